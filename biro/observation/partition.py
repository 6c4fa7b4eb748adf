"""One field seen through one data description: visibilities, weights and where they were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from biro.deprecation import by_earlier_name
from biro.display.formatting import FREQUENCIES, Printed, range_text
from biro.errors import InputError
from biro.observation.distributed_data import (
    Channels,
    DistributedData,
    RemoteArray,
    Vis,
    Weight,
    some_of,
    taken,
)
from biro.observation.feeds.feeds import FeedMetadata
from biro.observation.feeds.pointing import DishPointing
from biro.observation.read_only import freeze_arrays, reduce_to_fields
from rime_kernels.arrays import Rows
from rime_kernels.arrays.slices import as_slice
from rime_kernels.arrays.time_slots import spacing_of_baselines
from rime_kernels.engine.shards import shards_of
from rime_kernels.physics.brightness import stokes_to_corr

T = TypeVar("T")
Convention = Literal["casa", "fourier"]
"""Signs of uvw: as a Measurement Set stores them, or negated (physics: section 2)."""
BYTES_AS_READ = 12
"""Of a visibility, complex64, with its weight, float32."""
STOKES_NAMES = ("I", "Q", "U", "V")
MIXED_HANDS = ("RX", "RY", "LX", "LY", "XR", "XL", "YR", "YL")
"""Correlations of circular with linear feeds."""
KNOWN_CORRELATIONS = (*STOKES_NAMES, "RR", "RL", "LR", "LL", "XX", "XY", "YX", "YY", *MIXED_HANDS)
"""Correlations that physics: section 3 defines."""
PARALLEL_HANDS = ("RR", "LL", "XX", "YY")
"""Correlations of equal receptors, whose mean is Stokes I of an unpolarised sky."""
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


@dataclass(frozen=True, eq=False)
class Partition(Printed):
    """One field seen through one data description.

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
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
        0 where the weight is 0.
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
        1/sigma^2 of the real and of the imaginary part; 0 for what does not count.
    row_id : int64 (n_row,)
        Row numbers in the Measurement Set; after averaging in time, the first row of those averaged.
    n_antenna : int
        Length of the antenna axis; 0 means the largest antenna number + 1.
    interval : float, s
        Integration time of a row; 0 where it is not known. The median, where `row_interval` is given.
    chan_id, corr_id : int64 (n_chan,), (n_corr,)
        Which stored channels and correlations these are; None means all, in order. After averaging
        in frequency, the first channel of those averaged; empty where Stokes parameters were formed.
    weight_origin : str
        Column that the weights of this partition came from.
    frame : str
        Frame that the set gives the phase centre (and so UVW's axes) in, "J2000", "B1950_VLA", ...
    hands : str
        "parallel", "cross" or the name of a correlation where this is a part of those that were observed
        (`split_hands`); else empty.
    set_name : str
        Name of the set, where several were joined; else empty.
    tapered : bool
        Whether weights fall with uv distance, and so are less than the noise asks for.
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
    distributed : DistributedData or None
        What holds visibilities and weights, where these lie elsewhere; `vis` and `weight` have a shape and a
        type then, but no values.
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
    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    row_id: NDArray[np.int64]
    n_antenna: int = 0
    interval: float = 0.0
    chan_id: NDArray[np.int64] | None = None
    corr_id: NDArray[np.int64] | None = None
    weight_origin: str = ""
    frame: str = "ICRS"
    hands: str = ""
    set_name: str = ""
    tapered: bool = False
    feeds: FeedMetadata | None = None
    row_interval: NDArray[np.float64] | None = None
    exposure: NDArray[np.float64] | None = None
    guessed: tuple[str, ...] = ()
    scan_number: NDArray[np.int32] | None = None
    slot_time: NDArray[np.float64] | None = None
    distributed: DistributedData | None = None
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
            f"<Partition field {self.field}, spw {self.spw}: {self.n_row} rows, {self.n_chan} "
            f"channel{'s' * (self.n_chan != 1)} ({freq}), {' '.join(self.corr_type)}>"
        )

    @property
    def n_row(self) -> int:
        """Number of rows."""
        return int(self.vis.shape[0])

    @cached_property
    def shards(self) -> tuple[NDArray[np.int64], ...]:
        """Rows of each shard: whole time slots that follow from the rows alone.

        Data that are yet to be averaged are held in others, which the averages do not mix
        (`DistributedData.rows`).
        """
        if self.distributed is not None and self.distributed.rows is not None:
            return tuple(self.distributed.rows)
        return shards_of(self.time_index, len(self.times))

    def by_shard(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """What a function makes of the visibilities and weights of each shard, in the order of shards.

        Parameters
        ----------
        function : function of a module
            Of vis and weight, (n_row of the shard, n_chan, n_corr), of the item of `each` if it is given, and
            of the arguments. It must not change the arrays.
        *arguments
            The same for all shards.
        each : sequence, optional
            An item for each shard.
        """
        if self.distributed is not None:
            return self.distributed.by_shard(function, *arguments, each=each)
        own = [()] * len(self.shards) if each is None else [(item,) for item in each]
        pairs = zip(map(as_slice, self.shards), own, strict=True)
        return [function(self.vis[rows], self.weight[rows], *one, *arguments) for rows, one in pairs]

    def by_row(self, function: Callable[..., NDArray[Any]], *arguments: object) -> NDArray[np.float64]:
        """The number that a function as for `by_shard` gives for each row, float64 (n_row,)."""
        found = np.zeros(self.n_row)
        for rows, values in zip(self.shards, self.by_shard(function, *arguments), strict=True):
            found[rows] = values
        return found

    def taken(self, rows: NDArray[np.int64], channels: Channels) -> tuple[Vis, Weight]:
        """Visibilities and weights of some rows and channels, (n_taken, n_chan taken, n_corr).

        Parameters
        ----------
        rows : int64 (n_taken,)
            Each once, in any order.
        channels : slice or int64 (n_chan taken,)
        """
        if self.distributed is None:
            return some_of(self.vis, rows, channels), some_of(self.weight, rows, channels)
        vis, weight = taken(self.distributed, self.shards, {0: self.vis, 1: self.weight}, rows, channels)
        return vis, weight

    def taken_weight(self, rows: NDArray[np.int64]) -> Weight:
        """Weights of some rows, (n_taken, n_chan, n_corr); see `taken`."""
        if self.distributed is None:
            return some_of(self.weight, rows, slice(None))
        return taken(self.distributed, self.shards, {1: self.weight}, rows, slice(None))[0]

    def replaced(
        self,
        function: Callable[..., tuple[Vis, Weight, T]],
        *arguments: object,
        each: Sequence[Any] | None = None,
        **described: Any,
    ) -> tuple[Partition, list[T]]:
        """The partition with what a function makes of the visibilities and weights of each shard.

        Parameters
        ----------
        function : function of a module
            As for `by_shard`. It returns vis and weight of the same rows, and what else is to be known.
        *arguments
            The same for all shards.
        each : sequence, optional
            An item for each shard.
        **described
            What else of the partition changes, as `corr_type`.

        Returns
        -------
        Partition
        list
            What else the function has returned, by shard.
        """
        if self.distributed is not None:
            distributed, found = self.distributed.replaced(function, *arguments, each=each)
            return replace(self.distributed_over(distributed), **described), found
        whole: list[NDArray[Any]] = [self.vis, self.weight]
        found = []
        all_rows = self.shards or (np.zeros(0, np.int64),)
        items = [()] * len(all_rows) if each is None else [(item,) for item in each]
        for rows, item in zip(map(as_slice, all_rows), items, strict=True):
            own = self.vis[rows], self.weight[rows]
            *made, also = function(*own, *item, *arguments)
            found.append(also)
            for k, (old, new) in enumerate(zip(own, made, strict=True)):
                if new is old:  # as the weights change alone
                    continue
                if len(found) == 1:
                    whole[k] = np.empty((self.n_row, *new.shape[1:]), new.dtype)
                whole[k][rows] = new
        return replace(self, vis=whole[0], weight=whole[1], **described), found

    def distributed_over(self, distributed: DistributedData) -> Partition:
        """The partition with visibilities and weights that other processes or files hold."""
        n_chan_corr, *types = distributed.by_shard(_like)[0]
        vis, weight = (cast(Any, RemoteArray((self.n_row, *n_chan_corr), each)) for each in types)
        return replace(self, vis=vis, weight=weight, distributed=distributed)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return by_earlier_name(self, name)

    def row_arrays(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """What is known of some rows apart from visibilities and weights, by the names of its arrays.

        Times are numbered among those of these rows.
        """
        taken = {name: getattr(self, name)[rows] for name in OF_ROWS if getattr(self, name) is not None}
        number = np.unique(self.time_index[rows], return_inverse=True)[1].astype(np.int32)
        return taken | {"time_index": number}

    def some(self, rows: NDArray[np.int64], channels: slice) -> Partition:
        """Some rows, ascending, and some channels, in the memory of this process."""
        every = (self.chan_freq[channels].size, rows.size) == (self.n_chan, self.n_row)
        if every and self.distributed is None:
            return self
        vis, weight = self.taken(rows, channels)
        return replace(
            self,
            **self.row_arrays(rows),
            chan_freq=self.chan_freq[channels],
            chan_width=self.chan_width[channels],
            chan_id=None if self.chan_id is None else self.chan_id[channels],
            vis=vis,
            weight=weight,
            distributed=None,
        )

    def whole(self) -> Partition:
        """The partition with its visibilities and weights in the memory of this process."""
        if self.distributed is None:
            return self
        vis, weight = self.taken(np.arange(self.n_row), slice(None))
        return replace(self, vis=vis, weight=weight, distributed=None)

    @property
    def n_chan(self) -> int:
        """Number of channels."""
        return int(self.vis.shape[1])

    @property
    def n_corr(self) -> int:
        """Number of correlations."""
        return int(self.vis.shape[2])

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
    def n_usable(self) -> int:
        """Complex samples with weight > 0."""
        return sum(self.by_shard(_n_usable))

    @cached_property
    def row_weight(self) -> NDArray[np.float64]:
        """Sum of the weights of each row, float64 (n_row,), 1/Jy^2; 0 where nothing of it counts."""
        return self.by_row(_sum_of_row)

    @cached_property
    def used_antennas(self) -> NDArray[np.bool_]:
        """Whether an antenna has a row, bool (n_antenna,)."""
        used = np.zeros(self.n_antenna, dtype=bool)
        used[self.antenna1] = used[self.antenna2] = True
        return used

    def antenna_weight(self) -> NDArray[np.float64]:
        """Sum of the weights of each antenna at each time, float64 (n_time, n_antenna), 1/Jy^2."""
        total = np.zeros((len(self.times), self.n_antenna))
        for antenna in (self.antenna1, self.antenna2):
            np.add.at(total, (self.time_index, antenna), self.row_weight)
        return total

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


def _like(vis: Vis, weight: Weight) -> tuple[tuple[int, ...], np.dtype[Any], np.dtype[Any]]:
    """(n_chan, n_corr), and the types of visibilities and weights."""
    return vis.shape[1:], vis.dtype, weight.dtype


def _n_usable(_: Vis, weight: Weight) -> int:
    return int(np.count_nonzero(weight))


def _sum_of_row(_: Vis, weight: Weight) -> NDArray[np.float64]:
    return np.asarray(weight.sum(axis=(1, 2), dtype=np.float64))


def split_hands(part: Partition, *, each: bool = False) -> list[Partition]:
    """Parallel and cross hands as partitions of their own, which share rows; one where only one kind counts.

    I of data that hold Stokes parameters is a parallel hand, the others are cross hands. With `each`, every
    correlation that counts is a partition of its own, and those that do not count are left with the first.
    """
    order = np.arange(part.n_corr) if part.corr_id is None or not part.corr_id.size else part.corr_id
    parallel = np.array([name in (*PARALLEL_HANDS, "I") for name in part.corr_type])
    kinds = {"parallel": np.flatnonzero(parallel), "cross": np.flatnonzero(~parallel)}
    if each:
        counts = part.weight.any(axis=(0, 1))
        kinds = {part.corr_type[i]: np.array([i]) for i in np.flatnonzero(counts)}
        if kinds:
            kinds[next(iter(kinds))] = np.append(next(iter(kinds.values())), np.flatnonzero(~counts))
    if len(kinds) < 2 or not all(part.weight[..., corr].any() for corr in kinds.values()):
        return [part]
    return [
        replace(
            part,
            corr_type=tuple(part.corr_type[i] for i in corr),
            vis=part.vis[..., corr],
            weight=part.weight[..., corr],
            corr_id=order[corr],
            hands=hands,
        )
        for hands, corr in kinds.items()
    ]


def merge_hands(parts: Sequence[Partition]) -> list[Partition]:
    """Partitions as they were before `split_hands`."""
    groups: list[list[Partition]] = []
    for part in parts:
        if part.hands and groups and _belongs(part, groups[-1]):
            groups[-1].append(part)
        else:
            groups.append([part])
    return [group[0] if len(group) == 1 else _merged(group) for group in groups]


def _belongs(part: Partition, group: Sequence[Partition]) -> bool:
    """Whether a partition and those of a group were one."""
    first = group[0]
    alike = all(getattr(part, key) == getattr(first, key) for key in ("set_name", "field_id", "data_desc_id"))
    return bool(first.hands) and alike and part.hands not in [one.hands for one in group]


def _merged(group: Sequence[Partition]) -> Partition:
    """The partition of which these were split off."""
    names = [name for one in group for name in one.corr_type]
    stored = np.concatenate([one.corr_id for one in group if one.corr_id is not None])
    order = np.argsort(stored)
    return replace(
        group[0],
        corr_type=tuple(names[i] for i in order),
        vis=np.concatenate([one.vis for one in group], axis=2)[..., order],
        weight=np.concatenate([one.weight for one in group], axis=2)[..., order],
        corr_id=stored[order],
        hands="",
    )


def check_correlations(corr_type: Sequence[str], name: str) -> None:
    """Refuse correlations that are not among `KNOWN_CORRELATIONS`; `name` is what errors call them.

    Raises
    ------
    InputError
    """
    unknown = [corr for corr in corr_type if corr not in KNOWN_CORRELATIONS]
    if unknown or not corr_type:
        raise InputError(
            f"{name}: unknown correlation {', '.join(map(repr, unknown)) or '(none given)'};"
            f" known are {', '.join(KNOWN_CORRELATIONS)}"
        )
    if len(set(corr_type)) < len(corr_type):
        raise InputError(f"{name}: {', '.join(corr_type)} has a correlation twice")


def share_of_i(corr_type: Sequence[str]) -> NDArray[np.complex128]:
    """What each correlation has of Stokes I, complex128 (n_corr,): 1 of parallel hands, 0 of cross hands.

    Correlations of circular with linear feeds have +-1 and +-i over the root of 2.
    """
    return stokes_to_corr(corr_type)[:, 0]
