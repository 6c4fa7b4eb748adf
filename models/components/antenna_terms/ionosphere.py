"""The ionosphere above each antenna: a dispersive phase and Faraday rotation (physics: section 6)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from biro.models.components.antenna_terms.per_antenna import read_names, read_own
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Quantity, quantity, read_entry
from biro.models.quantities.strict import Entry, did_you_mean, read_path, short_repr, strict
from biro.models.quantities.units import NUMBER, ROTATION_MEASURE, Dimension

Array = NDArray[np.float64]
KINDS = ("given", "spinifex", "spinifex-tec")
DIMENSIONS: dict[str, Dimension] = {"tec": NUMBER, "rm": ROTATION_MEASURE}
"""Quantities of each antenna; total electron contents are in TECU, 1e16 electrons per square metre."""


@dataclass(frozen=True, eq=False)
class IonosphereSamples:
    """What is known of the ionosphere above antennas at some times.

    Attributes
    ----------
    source : str
        Path of what they were read from; empty where they are in memory alone.
    time : float64 (n_time,), s
        MJD, ascending, on the time scale of the data.
    antenna_names : tuple of str
    tec : float64 (n_time, n_antenna), TECU
    rm : float64 (n_time, n_antenna), rad/m2

    Raises
    ------
    ModelError
        Shapes that do not fit, times that do not ascend, values that are not finite.
    """

    source: str
    time: Array
    antenna_names: tuple[str, ...]
    tec: Array
    rm: Array

    def __post_init__(self) -> None:
        shape = self.time.size, len(self.antenna_names)
        for name, found in (("tec", self.tec), ("rm", self.rm)):
            if found.shape != shape:
                raise ModelError(
                    f"ionosphere: {name} must have shape (time, antenna) = {shape}, found {found.shape}"
                )
            if not np.isfinite(found).all():
                raise ModelError(f"ionosphere: {name} must be finite, found NaN or inf")
        if not self.time.size or not np.isfinite(self.time).all() or np.any(np.diff(self.time) <= 0):
            raise ModelError("ionosphere: time must ascend, with one value at least")

    def at(self, antenna: str, time: Array) -> tuple[Array, Array]:
        """Electron content and rotation measure of an antenna, float64 (n_time,) each, linear in time.

        Beyond the first and the last time those of the ends.

        Raises
        ------
        ModelError
            There is no such antenna.
        """
        if antenna not in self.antenna_names:
            hint = did_you_mean(antenna, self.antenna_names)
            raise ModelError(f"ionosphere: {self.source or 'the table'} has no antenna {antenna!r}{hint}")
        i = self.antenna_names.index(antenna)
        tec, rm = (np.interp(time, self.time, found[:, i]) for found in (self.tec, self.rm))
        return tec, rm


@strict
class Ionosphere:
    """Z F = exp(-2 pi i K TEC / (c nu)) times a rotation of the sky by RM lambda^2, of each antenna and time.

    Quantities add to what a file has. A prior stands for one parameter per antenna.

    Parameters
    ----------
    kind : "given", "spinifex" or "spinifex-tec", default "given"
        "spinifex": rotation measures towards each phase centre by the package of this name; "spinifex-tec":
        and electron contents.
    tec : number, TECU, optional
        Electron content of every antenna in `antennas`.
    rm : rotation measure, optional
        Positive ones turn from north through east.
    file : path, IonosphereSamples, or a list of these, one for each partition, optional
        A file .npz with time (MJD, s, UTC), antenna_names, and tec, rm (time, antenna) or one of both; or a
        table as text with columns time, antenna, and tec, rm or one of both.
    antennas : list of str, default all
    antenna : {name: {"tec": ..., "rm": ...}}
        Antennas that have quantities of their own.
    """

    label: ClassVar[str] = "ionosphere"
    _: KW_ONLY
    kind: str = "given"
    tec: Entry = None
    rm: Entry = None
    file: Entry = None
    antennas: Entry = None
    antenna: Entry = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            hint = did_you_mean(self.kind, KINDS)
            raise ModelError(f"kind: one of {', '.join(KINDS)}, found {short_repr(self.kind)}{hint}")
        for key, read in _READ.items():
            if getattr(self, key) is not None:
                object.__setattr__(self, key, read_entry(key, read, getattr(self, key)))
        if self.file is not None:
            given = self.file if isinstance(self.file, (list, tuple)) else (self.file,)
            object.__setattr__(self, "file", tuple(read_entry("file", _file, one) for one in given))
            if self.kind != "given" and any(isinstance(one, str) for one in self.file):
                raise ModelError(f'file: is only for kind = "given", found kind = "{self.kind}"')
        object.__setattr__(self, "antennas", read_names(self.antennas))
        object.__setattr__(self, "antenna", read_own(self.antenna, _READ))

    def named(self) -> set[str]:
        """Antennas that the model names."""
        return set(self.antennas or ()) | set(self.antenna)

    def quantity_of(self, antenna: str, key: str) -> Quantity | None:
        """`tec` or `rm` of an antenna beyond the file; None where it has none."""
        included = self.antennas is None or antenna in self.antennas
        found: Quantity | None = self.antenna.get(antenna, {}).get(
            key, getattr(self, key) if included else None
        )
        return found

    def samples_of(self, i_partition: int) -> IonosphereSamples | None:
        """What is known of a partition.

        Raises
        ------
        ModelError
            It was not read yet.
        """
        if self.file is None and self.kind == "given":
            return None
        found = None if self.file is None else self.file[i_partition if len(self.file) > 1 else 0]
        if not isinstance(found, IonosphereSamples):
            raise ModelError(f"ionosphere: {found or self.kind} was not read; biro.Likelihood reads it")
        return found


def _tec(value: Entry) -> Quantity:
    return quantity(value, NUMBER)


def _rm(value: Entry) -> Quantity:
    return quantity(value, ROTATION_MEASURE)


_READ = {"tec": _tec, "rm": _rm}


def _file(value: Entry) -> str | IonosphereSamples:
    if isinstance(value, IonosphereSamples):
        return value
    return read_path(value, "the path of a file .npz or of a table")
