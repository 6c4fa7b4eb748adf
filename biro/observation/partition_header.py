"""What is known of a partition apart from its visibilities: where, when and how they were measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import FREQUENCIES, Printed, range_text
from biro.distributed.blocks import cut_rows
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.feeds.feeds import FeedMetadata
from biro.observation.feeds.pointing import DishPointing
from biro.observation.read_only import freeze_arrays, reduce_to_fields
from rime_kernels.arrays import Rows
from rime_kernels.arrays.time_slots import spacing_of_baselines
from rime_kernels.physics.brightness import stokes_to_corr

BYTES_AS_READ = 12
"""Bytes of a visibility, complex64, with its weight, float32."""
OF_ROWS = (
    "uvw",
    "antenna1",
    "antenna2",
    "time",
    "row_id",
    "row_interval",
    "exposure",
    "scan_number",
    "slot_time",
)
"""What a partition has of each row, beside visibilities, weights and the number of its time slot."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PartitionHeader(Printed):
    """What is known of one field seen through one data description before its visibilities are read.

    Attributes
    ----------
    field, spw : str
        Names (the id as text where the set has no name, or gives one name twice).
    field_id, spw_id, data_desc_id : int
    phase_centre : (float, float), rad
        ICRS.
    uvw : float64 (n_row, 3), m
        As stored, negated when read with convention="fourier".
    antenna1, antenna2 : int32 (n_row,)
    time : float64 (n_row,), s
        MJD, TIME column (mid-point), on the time scale that the observation names.
    time_index : int32 (n_row,)
        Time slot of each row: index among `times`.
    chan_freq, chan_width : float64 (n_chan,), Hz
    freq_frame : str
        "TOPO", "LSRK", ...
    corr_type : tuple of str
        "XX", "XY", ... or "RR", ... as stored.
    row_id : int64 (n_row,)
        Row numbers in the Measurement Set; after averaging in time, the first row of those averaged.
    n_antenna : int
        Length of the antenna axis; 0 means the largest antenna number + 1.
    interval : float, s
        Integration time of a row; 0 where it is not known. The median, where `row_interval` is given.
    chan_id, corr_id : int64 (n_chan,), (n_corr,)
        Which stored channels and correlations these are; None means all, in order. After averaging
        in frequency, the first channel of those averaged; empty where Stokes parameters were formed.
    frame : str
        Frame that the set gives the phase centre (and so UVW's axes) in, "J2000", "B1950_VLA", ...
    hands : str
        "parallel", "cross" or the name of a correlation where this is a part of those that were observed
        (`split_hands`); else empty.
    set_name : str
        Name of the set, where several were joined; else empty.
    feeds : FeedMetadata or None
        Mounts of the antennas and angles of their feeds; None where nothing is known of them.
    row_interval : float64 (n_row,), s, or None
        Integration time of each row, where they differ (baseline-dependent averaging).
    exposure : float64 (n_row,), s, or None
        How much of its integration time each row was integrated for, where that is less in some rows.
    scan_number : int32 (n_row,) or None
        SCAN_NUMBER of each row, one for each time; None where the set does not tell scans apart.
    slot_time : float64 (n_row,), s, or None
        Time of the slot of each row, which may differ from `time` by a small part of an integration
        (`rime_kernels.arrays.time_slots`); None where each is the row's own.
    guessed : tuple of str
        "interval" and "chan_width", where these are guesses: nothing is taken as averaged over them.
    pointing : DishPointing or None
        Where the dishes pointed; None where nothing states it: to the phase centre.
    """

    field: str
    spw: str
    field_id: int
    spw_id: int
    data_desc_id: int
    phase_centre: tuple[float, float]
    uvw: NDArray[np.float64]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    time: NDArray[np.float64]
    time_index: NDArray[np.int32]
    chan_freq: NDArray[np.float64]
    chan_width: NDArray[np.float64]
    freq_frame: str
    corr_type: tuple[str, ...]
    row_id: NDArray[np.int64]
    n_antenna: int = 0
    interval: float = 0.0
    chan_id: NDArray[np.int64] | None = None
    corr_id: NDArray[np.int64] | None = None
    frame: str = "ICRS"
    hands: str = ""
    set_name: str = ""
    feeds: FeedMetadata | None = None
    row_interval: NDArray[np.float64] | None = None
    exposure: NDArray[np.float64] | None = None
    guessed: tuple[str, ...] = ()
    scan_number: NDArray[np.int32] | None = None
    slot_time: NDArray[np.float64] | None = None
    pointing: DishPointing | None = None

    def __post_init__(self) -> None:
        if not self.n_antenna and self.antenna1.size:
            largest = max(int(self.antenna1.max()), int(self.antenna2.max()))
            object.__setattr__(self, "n_antenna", largest + 1)
        freeze_arrays(self)

    def __reduce__(self) -> tuple[object, ...]:
        return reduce_to_fields(self)

    def __repr__(self) -> str:
        freq = range_text(float(self.chan_freq.min()), float(self.chan_freq.max()), FREQUENCIES, 6)
        return (
            f"<{type(self).__name__} field {self.field}, spw {self.spw}: {self.n_row} rows, {self.n_chan} "
            f"channel{'s' * (self.n_chan != 1)} ({freq}), {' '.join(self.corr_type)}>"
        )

    @property
    def n_row(self) -> int:
        """Number of rows."""
        return int(self.antenna1.size)

    @property
    def n_chan(self) -> int:
        """Number of channels."""
        return int(self.chan_freq.size)

    @property
    def n_corr(self) -> int:
        """Number of correlations."""
        return len(self.corr_type)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of visibilities and weights, (n_row, n_chan, n_corr)."""
        return self.n_row, self.n_chan, self.n_corr

    @property
    def size(self) -> int:
        """Number of visibilities."""
        return self.n_row * self.n_chan * self.n_corr

    @cached_property
    def block_rows(self) -> tuple[NDArray[np.int64], ...]:
        """Rows of each block: whole time slots that follow from the rows alone, at most 24 of them."""
        return cut_rows(self.time_index, len(self.times))

    def some_rows(self, rows: NDArray[np.int64] | None) -> PartitionHeader:
        """The header of some rows; None for all."""
        return self if rows is None else replace(self, **self.row_arrays(rows))

    def row_arrays(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """What is known of some rows apart from visibilities and weights, by the names of its arrays.

        Times are numbered among those of these rows.
        """
        taken = {name: getattr(self, name)[rows] for name in OF_ROWS if getattr(self, name) is not None}
        number = np.unique(self.time_index[rows], return_inverse=True)[1].astype(np.int32)
        return taken | {"time_index": number}

    @property
    def is_cross(self) -> bool:
        """Whether it was split off (`split_hands`) with nothing but cross hands."""
        return self.hands not in ("", "parallel", "I", *PARALLEL_HANDS)

    @property
    def row_intervals(self) -> NDArray[np.float64]:
        """Integration time of each row, float64 (n_row,), s."""
        return np.full(self.n_row, self.interval) if self.row_interval is None else self.row_interval

    @property
    def averaged_over(self) -> NDArray[np.float64]:
        """How long each row was integrated for, float64 (n_row,), s; about the time that its uvw are of."""
        return self.row_intervals if self.exposure is None else self.exposure

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """Time of each slot, float64 (n_time,), s, ascending; `time_index` points into them."""
        times = np.unique(self.time_of_slots)
        times.flags.writeable = False
        return times

    @property
    def time_of_slots(self) -> NDArray[np.float64]:
        """Time of the slot of each row, float64 (n_row,), s."""
        return self.time if self.slot_time is None else self.slot_time

    @cached_property
    def spacing(self) -> float:
        """Median step from one time of a baseline to its next, s; 0 where each has a single time."""
        return spacing_of_baselines(self.time_of_slots, self.antenna1, self.antenna2)

    @property
    def shortest_interval(self) -> float:
        """The shortest integration time of a row, s; 0 where it is not known."""
        return float(self.row_intervals.min(initial=np.inf)) if self.n_row else 0.0

    @cached_property
    def scan_of_time(self) -> NDArray[np.int32] | None:
        """Scan number of each of the distinct times, int32 (n_time,); None where they are not known."""
        if self.scan_number is None:
            return None
        scan = np.empty(len(self.times), np.int32)
        scan[self.time_index] = self.scan_number
        scan.flags.writeable = False
        return scan

    @cached_property
    def used_antennas(self) -> NDArray[np.bool_]:
        """Whether an antenna has a row, bool (n_antenna,)."""
        used = np.zeros(self.n_antenna, dtype=bool)
        used[self.antenna1] = used[self.antenna2] = True
        return used

    @cached_property
    def rows(self) -> Rows:
        """What the kernels need of this partition."""
        return Rows(
            uvw=self.uvw,
            antenna1=self.antenna1,
            antenna2=self.antenna2,
            time_index=self.time_index,
            chan_freq=self.chan_freq,
            stokes_to_corr=stokes_to_corr(self.corr_type),
            n_antenna=self.n_antenna,
            n_time=len(self.times),
        )
