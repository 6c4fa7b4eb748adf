"""Gains of antennas: G of the measurement equation (physics: section 6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY
from functools import partial
from typing import ClassVar

import numpy as np

from biro.models.components.antenna_terms.feeds import Basis
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.models.components.antenna_terms.per_antenna import read_names, read_own
from biro.models.components.antenna_terms.per_segment import PerSegment, read_per_segment
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, read_entry
from biro.models.quantities.prior import LogNormal, LogUniform
from biro.models.quantities.strict import Entry, did_you_mean, read_path, short_repr, strict
from biro.models.quantities.units import ANGLE, FREQUENCY, NUMBER, TIME, Dimension, factor

FEEDS: dict[Basis, tuple[str, str]] = {"circular": ("r", "l"), "linear": ("x", "y")}
"""Keys of the two feeds of each basis."""
INTERPOLATIONS = ("linear", "nearest")
FEED_MODES = ("common", "separate", "ratio")
DIMENSIONS: dict[str, Dimension] = {
    "amplitude": NUMBER,
    "phase": ANGLE,
    "delay": TIME,
    "rate": FREQUENCY,
    "ratio_amplitude": NUMBER,
    "ratio_phase": ANGLE,
}
"""Quantities of a gain; those of a ratio belong to the first feed alone."""
NEUTRAL = {"amplitude": 1.0, "ratio_amplitude": 1.0}
"""What quantities are that are not given; 0 otherwise."""
_SHARED = re.compile(rf"gain\d*\.({'|'.join(DIMENSIONS)})\.(correlated|sd)")
_NAME = re.compile(rf"gain\d*\.({'|'.join(DIMENSIONS)})(\.[rlxy])?(\.step)?\[")
_DEFAULTS: dict[str, dict[str, Entry]] = {
    "amplitude": {"log-normal.median": 1.0},
    "phase": {"uniform.low": "-180 deg", "uniform.high": "180 deg", "normal.mean": 0.0},
    "delay": {"normal.mean": 0.0},
    "rate": {"normal.mean": 0.0},
}


def is_gain(name: str) -> bool:
    """Whether a parameter of this name belongs to the gain of an antenna."""
    return _NAME.match(name) is not None


def is_of_prior(name: str) -> bool:
    """Whether a parameter of this name belongs to the prior of gains: a correlation time, or an sd."""
    return _SHARED.fullmatch(name) is not None


@strict
class Gain:
    """G = diag(g_0, g_1),  g = amplitude exp(i (phase + 2 pi delay (nu - nu_0) + 2 pi rate (t - t_0))).

    Each quantity is a number, or a prior (`PerSegment`): one parameter per antenna and segment.
    nu_0 is the mean frequency of the partitions that share parameters, t_0 the middle of the segment.

    Parameters
    ----------
    amplitude : number or PerSegment, or {"r": ..., "l": ...} or {"x": ..., "y": ...}, default 1
        Of both feeds, or of each. Priors are above 0.
    phase : angle, or a table of two, default 0
    delay, rate : time, frequency; likewise, default 0
    feeds : "common", "separate" or "ratio", default "common"
        Of quantities with priors: one for both feeds, one for each, or one for both and a ratio g_0/g_1 of
        its own, with `ratio_amplitude` and `ratio_phase`.
    reference : "auto", "none", or the name of an antenna, default "auto"
        Whose phase, delay and rate are 0 where all others are fitted; "auto" is the antenna with the largest
        sum of weights in each segment, or in all data where segments are correlated.
    table : path, GainSolutions, or a list of them, optional
        CASA calibration tables (G, T and B Jones), or the gains that `biro simulate` wrote.
    interpolation : "linear" or "nearest", default "linear"
        Between the solutions of tables, in time and frequency; see `GainSolutions.at`.
    antennas : list of str, default all
        To which the quantities belong; tables are for all.
    antenna : {name: {"amplitude": ..., "phase": ...}}
        Antennas that have quantities of their own.
    """

    label: ClassVar[str] = "gain"
    _: KW_ONLY
    amplitude: Entry = None
    phase: Entry = None
    delay: Entry = None
    rate: Entry = None
    feeds: str = "common"
    ratio_amplitude: Entry = None
    ratio_phase: Entry = None
    reference: str = "auto"
    table: Entry = None
    interpolation: str = "linear"
    antennas: Entry = None
    antenna: Entry = None

    def __post_init__(self) -> None:
        for key in DIMENSIONS:
            if getattr(self, key) is not None:
                object.__setattr__(self, key, read_entry(key, _READ[key], getattr(self, key)))
        if self.table is not None:
            tables = self.table if isinstance(self.table, (list, tuple)) else (self.table,)
            object.__setattr__(self, "table", tuple(read_entry("table", _table, one) for one in tables))
        for key, known in (("interpolation", INTERPOLATIONS), ("feeds", FEED_MODES)):
            found = getattr(self, key)
            if found not in known:
                hint = did_you_mean(found, known)
                raise ModelError(f"{key}: one of {', '.join(known)}, found {short_repr(found)}{hint}")
        object.__setattr__(self, "antennas", read_names(self.antennas))
        object.__setattr__(self, "antenna", read_own(self.antenna, _READ))
        self._check_feeds()

    def _check_feeds(self) -> None:
        """Refuse ratios without their mode, and the mode without ratios, and priors by feed."""
        given = [(key, value) for key in DIMENSIONS for value in self._values(key)]
        ratios = [key for key, _ in given if key.startswith("ratio_")]
        if ratios and self.feeds != "ratio":
            raise ModelError(f'{ratios[0]}: is only for feeds = "ratio", found feeds = "{self.feeds}"')
        if self.feeds == "ratio" and not ratios:
            raise ModelError('feeds = "ratio" needs ratio_amplitude, ratio_phase or both')
        for key, value in given:
            by_feed = isinstance(value, Mapping) and any(isinstance(x, PerSegment) for x in value.values())
            if by_feed and self.feeds != "separate":
                raise ModelError(f'{key}: priors by feed are only for feeds = "separate"')

    def _values(self, key: str) -> Iterator[Entry]:
        own = [entries.get(key) for entries in self.antenna.values()]
        yield from (value for value in (getattr(self, key), *own) if value is not None)

    def named(self) -> set[str]:
        """Antennas that the model names."""
        reference = {self.reference} - {"auto", "none"}
        return set(self.antennas or ()) | set(self.antenna) | reference

    @property
    def is_fitted(self) -> bool:
        """Whether any quantity has a prior."""
        return any(
            isinstance(one, PerSegment)
            for key in DIMENSIONS
            for value in self._values(key)
            for one in (value.values() if isinstance(value, Mapping) else (value,))
        )

    @property
    def is_common(self) -> bool:
        """Whether its quantities are the same for both feeds; of tables nothing is said."""
        given = [(key, value) for key in DIMENSIONS for value in self._values(key)]
        by_feed = any(isinstance(value, Mapping) or key.startswith("ratio_") for key, value in given)
        return not by_feed and (self.feeds == "common" or not self.is_fitted)

    @property
    def solutions(self) -> tuple[GainSolutions, ...]:
        """The tables.

        Raises
        ------
        ModelError
            One of them was not read yet.
        """
        tables = self.table or ()
        for table in tables:
            if not isinstance(table, GainSolutions):
                raise ModelError(f"gain: table {table!r} was not read; biro.read_gains reads it")
        return tuple(tables)

    def number(self, antenna: str, basis: Basis) -> tuple[complex, complex]:
        """Amplitude and phase of both feeds of an antenna as far as they are numbers, without tables.

        Raises
        ------
        ModelError
            Numbers of feeds that the data do not have.
        """
        value = {key: self._numbers(key, antenna, basis) for key in DIMENSIONS}
        first, second = (value["amplitude"][feed] * np.exp(1j * value["phase"][feed]) for feed in range(2))
        ratio = value["ratio_amplitude"][0] * np.exp(1j * value["ratio_phase"][0])
        return complex(first * ratio), complex(second)

    def fitted(self, key: str, antenna: str, basis: Basis) -> tuple[PerSegment | None, PerSegment | None]:
        """The priors of a quantity of an antenna, of each feed; None where it is a number."""
        first, second = (
            one if isinstance(one, PerSegment) else None for one in self._by_feed(key, antenna, basis)
        )
        return first, second

    def is_given(self, key: str, antenna: str) -> bool:
        """Whether a quantity of an antenna is a number that was written for it."""
        return isinstance(self._entry(key, antenna), (Fixed, dict))

    def _numbers(self, key: str, antenna: str, basis: Basis) -> tuple[float, float]:
        first, second = (
            one.value * factor(one.unit, DIMENSIONS[key]) if isinstance(one, Fixed) else NEUTRAL.get(key, 0.0)
            for one in self._by_feed(key, antenna, basis)
        )
        return first, second

    def _entry(self, key: str, antenna: str) -> Entry:
        included = self.antennas is None or antenna in self.antennas
        return self.antenna.get(antenna, {}).get(key, getattr(self, key) if included else None)

    def _by_feed(self, key: str, antenna: str, basis: Basis) -> tuple[Entry, Entry]:
        given = self._entry(key, antenna)
        if not isinstance(given, Mapping):
            return given, given
        foreign = sorted(set(given) - set(FEEDS[basis]))
        if foreign:
            raise ModelError(
                f"gain: {key}: {foreign[0]!r} is not a feed of the data, which have {', '.join(FEEDS[basis])}"
            )
        first, second = (given.get(feed) for feed in FEEDS[basis])
        return first, second


def _one(key: str, value: Entry) -> PerSegment | Fixed:
    made = read_per_segment(value, DIMENSIONS[key], _DEFAULTS[key.removeprefix("ratio_")])
    if isinstance(made, Fixed):
        if key in ("delay", "rate") and made.value != 0.0:
            raise ModelError(
                f"a {key} must have a prior, or be 0 for a reference antenna; put known ones into a gain "
                "table"
            )
    elif key in NEUTRAL:
        _check_positive(made)
    return made


def _check_positive(made: PerSegment) -> None:
    """Refuse priors of amplitudes that reach to 0 or below."""
    prior = made.prior
    if not isinstance(prior, (LogNormal, LogUniform)) and prior.support[0] <= 0.0:
        raise ModelError(
            "an amplitude is above 0, so its prior must be, too: log-normal, log-uniform, or another with "
            "low > 0, "
            f"found {prior.family}"
        )


def _read(key: str, value: Entry) -> Entry:
    if not isinstance(value, Mapping) or {"prior", "tie"} & set(value):
        return _one(key, value)
    known = [feed for feeds in FEEDS.values() for feed in feeds]
    for feed in value:
        if feed not in known or key.startswith("ratio_"):
            expected = "one value, of both feeds" if key.startswith("ratio_") else "r and l, or x and y"
            raise ModelError(f"unknown feed {short_repr(feed)}; expected {expected}")
    return {feed: read_entry(feed, _one, key, item) for feed, item in value.items()}


_READ = {key: partial(_read, key) for key in DIMENSIONS}


def _table(value: Entry) -> str | GainSolutions:
    if isinstance(value, GainSolutions):
        return value
    return read_path(value, "the path of a gain table")
