"""Rows of a UVFITS file from its random parameters: baseline, uvw, time, source, frequency id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError
from biro.io.data_set.index import IndexColumns
from biro.io.uvfits.groups import RandomGroups
from biro.io.uvfits.tables import AntennaTable
from rime_kernels.physics.phase import SPEED_OF_LIGHT

MJD_ZERO = 2400000.5
"""Julian date at which the modified Julian date is 0, d."""
LARGE_BASELINE = 65536
"""Added to baseline numbers that leave 2048 numbers to an antenna, not 256."""


class RandomParameters:
    """Random parameters of all groups, by name.

    Raises
    ------
    DataError
        A parameter that every file must have is not there.
    """

    def __init__(self, groups: RandomGroups) -> None:
        self.stored = groups.parameters()
        self.described = groups.header.parameters
        self.names = [parameter.name for parameter in self.described]

    def value(self, *names: str) -> NDArray[np.float64] | None:
        """The first of some parameters that the file has, scaled, float64 (n_group,)."""
        for name in names:
            if name in self.names:
                i = self.names.index(name)
                return self.stored[:, i] * self.described[i].scale + self.described[i].zero
        return None

    def needed(self, *names: str) -> NDArray[np.float64]:
        """Value of a parameter that must be there."""
        found = self.value(*names)
        if found is None:
            there = ", ".join(self.names)
            raise DataError(f"no random parameter {' or '.join(names)}; there are {there or 'none'}")
        return found

    def whole(self, name: str, default: int) -> NDArray[np.int64]:
        """A parameter of whole numbers, int64 (n_group,)."""
        found = self.value(name)
        if found is None:
            return np.full(len(self.stored), default)
        return _whole(found, name)

    def uvw(self) -> NDArray[np.float64]:
        """Float64 (n_group, 3), m: seconds of light times its speed, with the sign of the file.

        A Measurement Set that CASA makes of the file has the same sign, and visibilities as they are here.
        """
        columns = []
        for letter in "UVW":
            names = (f"{letter * 2}", f"{letter * 2}--", f"{letter * 2}---SIN")
            columns.append(self.needed(*names) * SPEED_OF_LIGHT)
        return np.stack(columns, axis=1)

    def mjd(self) -> NDArray[np.float64]:
        """Dates, float64 (n_group,), d: the sum of all parameters DATE, which are parts of a Julian date."""
        parts = [i for i, name in enumerate(self.names) if name in ("DATE", "_DATE")]
        if not parts:
            self.needed("DATE")
        # Whole days first, so that no digit of the fraction is lost.
        days = np.full(len(self.stored), sum(self.described[i].zero for i in parts) - MJD_ZERO)
        for i in parts:
            days += self.stored[:, i] * self.described[i].scale
        return days

    def baselines(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of two stations and of the subarray of each group."""
        if "ANTENNA1" in self.names and "ANTENNA2" in self.names:
            return self.whole("ANTENNA1", 0), self.whole("ANTENNA2", 0), self.whole("SUBARRAY", 1)
        number = self.needed("BASELINE")
        if not np.isfinite(number).all():
            raise DataError("random parameter BASELINE is not finite")
        whole = np.floor(number + 1e-3).astype(np.int64)  # a fraction of 0.01 is a second subarray
        subarray = 1 + np.rint((number - whole) * 100).astype(np.int64)
        large = whole >= LARGE_BASELINE
        base = np.where(large, 2048, 256)
        whole = np.where(large, whole - LARGE_BASELINE, whole)
        return whole // base, whole % base, subarray


def _whole(values: NDArray[np.float64], name: str) -> NDArray[np.int64]:
    if not (np.abs(values - np.rint(values)) < 1e-3).all() or np.abs(values).max(initial=0) > 1e9:
        raise DataError(f"random parameter {name} has values that are no whole numbers")
    return np.rint(values).astype(np.int64)


def index_columns(
    parameters: RandomParameters,
    antennas: AntennaTable,
    sources: Sequence[int],
    freq_ids: Sequence[int],
    n_if: int,
) -> IndexColumns:
    """What rows are selected by; each group is a row of every IF, in the order of the IFs.

    Parameters
    ----------
    parameters : RandomParameters
    antennas : AntennaTable
    sources, freq_ids : sequences of int
        Numbers of the sources and of the frequency ids that the tables have.
    n_if : int

    Raises
    ------
    DataError
        Antennas, sources or frequencies that no table has, or a date that is not finite.
    """
    first, second, subarray = parameters.baselines()
    stations = antennas.numbers
    field = _lookup(parameters.whole("SOURCE", sources[0]), sources, "source", "AIPS SU")
    setup = _lookup(parameters.whole("FREQSEL", freq_ids[0]), freq_ids, "frequency id", "AIPS FQ")
    mjd = parameters.mjd()
    if not np.isfinite(mjd).all():
        raise DataError("random parameter DATE is not finite")
    n_group, stated = len(mjd), parameters.value("INTTIM")
    interval = np.repeat(np.zeros(n_group) if stated is None else stated, n_if)
    return IndexColumns(
        antenna1=np.repeat(_station(subarray, first, stations), n_if),
        antenna2=np.repeat(_station(subarray, second, stations), n_if),
        field_id=np.repeat(field, n_if),
        data_desc_id=(setup[:, None] * n_if + np.arange(n_if)).ravel().astype(np.int32),
        scan_number=np.zeros(n_group * n_if, np.int32),
        flag_row=np.zeros(n_group * n_if, bool),
        time=np.repeat(mjd * 86400.0, n_if),
        interval=interval,
        exposure=interval,
        uvw=np.repeat(parameters.uvw(), n_if, axis=0),
    )


def _lookup(numbers: NDArray[np.int64], known: Sequence[int], what: str, table: str) -> NDArray[np.int32]:
    """Place of each number among those that are known."""
    present = np.unique(numbers)
    lacking = sorted(set(present.tolist()) - set(known))
    if lacking:
        raise DataError(f"{what} {lacking[0]} of the groups is not in table {table}")
    places = np.array([known.index(number) for number in present.tolist()], np.int32)
    return places[np.searchsorted(present, numbers)]


def _station(
    subarray: NDArray[np.int64], number: NDArray[np.int64], stations: Mapping[tuple[int, int], int]
) -> NDArray[np.int32]:
    """Index of the antenna of each group."""
    pairs, place = np.unique(np.stack([subarray, number], axis=1), axis=0, return_inverse=True)
    found = [stations.get((int(array), int(station)), -1) for array, station in pairs]
    if -1 in found:
        array, station = pairs[found.index(-1)]
        raise DataError(f"station {station} of subarray {array} is not in table AIPS AN {array}")
    return np.array(found, np.int32)[place.ravel()]
