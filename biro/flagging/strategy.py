"""Strategies of flagging: what is looked for, and which frequencies are not trusted."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import Printed
from biro.errors import InputError
from biro.files.foreign_text import visible
from biro.models.files.foreign import read_text_file
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.observation.selection import UVRange
from rime_kernels.check import one_of
from rime_kernels.flagging.options import SpectrumOptions, WaterfallOptions

BUILT_IN = {name: f"{name.replace('-', '_')}.toml" for name in ("meerkat", "wsrt", "long-baseline")}
"""Strategies that come with biro, and their files."""
LARGEST_FILE = 1 << 20
"""Files of strategies are no larger, bytes."""
T = TypeVar("T")


@dataclass(frozen=True)
class Mask:
    """A range of frequencies that is flagged whatever its visibilities are.

    Attributes
    ----------
    low, high : float, Hz
        Channels of which any part lies between these are flagged.
    uv_range : UVRange or None
        On baselines of these projected lengths; None means on all.
    """

    low: float
    high: float
    uv_range: UVRange | None = None

    @classmethod
    def of(cls, freq: object, uv_range: object = None) -> Mask:
        """From "1.525 GHz..1.56 GHz" and "..600 m".

        Raises
        ------
        InputError
            Text that is not understood.
        """
        if not isinstance(freq, str) or (uv_range is not None and not isinstance(uv_range, str)):
            raise InputError(f"freq and uv_range must be text, got {short_repr(freq)}")
        low, dots, high = freq.partition("..")
        ends = [_frequency(end.strip(), freq) for end in (low, high)] if dots else []
        if not ends or not ends[0] < ends[1]:
            raise InputError(f'freq {short_repr(freq)} is not understood; write "1.525 GHz..1.56 GHz"')
        return cls(ends[0], ends[1], None if uv_range is None else UVRange.of(uv_range))

    def covers(
        self, uvw: NDArray[np.float64], chan_freq: NDArray[np.float64], chan_width: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Which visibilities are masked: bool, broadcasts to (n_row, n_chan).

        Parameters
        ----------
        uvw : float64 (n_row, 3), m
        chan_freq, chan_width : float64 (n_chan,), Hz
        """
        chan = (chan_freq + 0.5 * chan_width > self.low) & (chan_freq - 0.5 * chan_width < self.high)
        return chan[None] if self.uv_range is None else chan & self.uv_range.mask(uvw, chan_freq)


@dataclass(frozen=True)
class Strategy(Printed):
    """How interference is looked for.

    Attributes
    ----------
    name : str
        What it was read from.
    method : "waterfalls" or "spectra"
        In the times and channels of each baseline, or in each integration by itself.
    waterfalls : WaterfallOptions
    spectra : SpectrumOptions
    masks : tuple of Mask

    Raises
    ------
    InputError
        Another method.
    """

    name: str = "meerkat"
    method: Literal["waterfalls", "spectra"] = "waterfalls"
    waterfalls: WaterfallOptions = field(default_factory=WaterfallOptions)
    spectra: SpectrumOptions = field(default_factory=SpectrumOptions)
    masks: tuple[Mask, ...] = ()

    def __post_init__(self) -> None:
        one_of("method", self.method, ("waterfalls", "spectra"))


StrategyLike: TypeAlias = "Strategy | str | os.PathLike[str]"
"""A strategy, the name of one that comes with biro, or the path of a TOML file."""


def read_strategy(given: StrategyLike) -> Strategy:
    """A strategy by its name, or from a TOML file.

    Parameters
    ----------
    given : Strategy, str or path
        "meerkat", "wsrt", "long-baseline", or a file with the key `method` ("waterfalls" or "spectra"), the
        tables `[waterfalls]` (`rime_kernels.flagging.options.WaterfallOptions`) and `[spectra]`
        (`SpectrumOptions`), and any number of `[[mask]]` (freq = "1.525 GHz..1.56 GHz", and
        uv_range = "..600 m" if not on all baselines).

    Returns
    -------
    Strategy

    Raises
    ------
    InputError
        No such name or file, or a file with keys and values that are not understood.

    Examples
    --------
    >>> read_strategy("wsrt").waterfalls.rank_eta
    0.2
    """
    if isinstance(given, Strategy):
        return given
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"a strategy must be a name or a path, got {short_repr(given)}")
    name = os.fspath(given)
    place = Path(__file__).parent / "strategies" / BUILT_IN[name] if name in BUILT_IN else Path(name)
    shown = visible(name)
    try:
        tables = tomllib.loads(read_text_file(place, LARGEST_FILE))
    except FileNotFoundError:
        known = ", ".join(BUILT_IN)
        raise InputError(
            f"{shown}: no such strategy or file{did_you_mean(name, BUILT_IN)}; biro has {known}"
        ) from None
    except OSError as error:
        raise InputError(f"{shown}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shown}: not valid TOML: {visible(str(error))[:200]}") from None
    try:
        return _from_tables(shown, tables)
    except InputError as error:
        raise InputError(f"{shown}: {error}") from None


def _from_tables(name: str, tables: Mapping[str, Any]) -> Strategy:
    _refuse_unknown("key", tables, ("method", "waterfalls", "spectra", "mask"))
    masks = tables.get("mask", [])
    if not isinstance(masks, list) or not all(isinstance(mask, dict) for mask in masks):
        raise InputError("mask must be tables [[mask]]")
    for mask in masks:
        _refuse_unknown("[[mask]] key", mask, ("freq", "uv_range"))
    return Strategy(
        name,
        tables.get("method", "waterfalls"),
        _options(WaterfallOptions, "waterfalls", tables),
        _options(SpectrumOptions, "spectra", tables),
        tuple(Mask.of(mask.get("freq"), mask.get("uv_range")) for mask in masks),
    )


def _options(kind: type[T], name: str, tables: Mapping[str, Any]) -> T:
    """Options of a table; numbers and texts are of the types of the defaults."""
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{name} must be a table [{name}]")
    known: dict[str, Any] = {item.name: item.default for item in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    _refuse_unknown(f"[{name}] key", table, tuple(known))
    given: dict[str, Any] = {}
    for key, value in table.items():
        wanted: type = type(known[key])
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not (isinstance(value, wanted) and not isinstance(value, bool)) and not (
            wanted is float and is_whole
        ):
            words = {float: "a number", int: "a whole number", str: "a text"}
            raise InputError(f"[{name}] {key} must be {words[wanted]}, got {short_repr(value)}")
        given[key] = wanted(value)
    return kind(**given)


def _refuse_unknown(what: str, given: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise InputError(f"unknown {what} {short_repr(key)}{hint}; allowed: {', '.join(known)}")


def _frequency(text: str, whole: str) -> float:
    from astropy import units

    try:
        return float(units.Quantity(text).to_value("Hz"))
    except (ValueError, TypeError):
        raise InputError(f'freq {short_repr(whole)} is not understood; write "1.525 GHz..1.56 GHz"') from None
