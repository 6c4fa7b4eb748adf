"""Average in time and frequency, and say how much of a source away from the phase centre is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import in_unit
from biro.distributed.blocks import Vis, Weight, cut_rows
from biro.errors import InputError
from biro.observation.partition import Partition
from biro.observation.partition_header import PartitionHeader
from biro.observation.uv_extent import field_of_view, longest_wavelengths
from rime_kernels.physics.phase import SPEED_OF_LIGHT

EARTH_RATE = 7.2921150e-5
"""Rotation of the Earth, rad/s."""
BLOCK_VISIBILITIES = 1 << 23
"""Visibilities that are in double precision at a time while averaging."""


@dataclass(frozen=True)
class Averaging:
    """What to average while reading.

    Attributes
    ----------
    average_time : text with a unit of time ("30 s", "1 min"), or float (s); None: not at all
        Longest time averaged together. A bin begins at the first time not yet in one, and ends with its scan.
    average_channels : int
        Adjacent channels averaged together; the last group may be smaller.
    smearing_radius : text with a unit of angle ("10 arcmin"), or float (rad)
        Distance from the phase centre for which the loss is stated; default: half the field of view
        lambda / D at the lowest frequency, or ten times the resolution where dish diameters are not known.
    """

    average_time: str | float | None = None
    average_channels: int = 1
    smearing_radius: str | float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.average_channels, int | np.integer) or self.average_channels < 1:
            raise InputError(f"average_channels must be a whole number >= 1, got {self.average_channels!r}")
        if self.average_time is not None and not self.seconds > 0:
            raise InputError(f"average_time must be positive, got {self.average_time!r}")

    @property
    def seconds(self) -> float:
        """Longest time averaged, s; 0 for none."""
        return (
            0.0
            if self.average_time is None
            else in_unit(self.average_time, "s", "average_time", unit_needed=True)
        )


@dataclass(frozen=True)
class Averaged:
    """What was averaged, and how much of a source is lost by it.

    Attributes
    ----------
    seconds : float, s
        Longest time averaged together as asked; 0 for none.
    channels : int
        Channels averaged together.
    radius : float, rad
        Distance from the phase centre for which the loss is stated.
    loss : float
        Largest fraction of the amplitude of a point source there that any visibility loses.
    """

    seconds: float
    channels: int
    radius: float
    loss: float


def average(
    partitions: Sequence[Partition], averaging: Averaging, dish_diameter: NDArray[np.float64]
) -> tuple[list[Partition], Averaged | None]:
    """Average every partition; None in place of `Averaged` where nothing is to be averaged.

    Visibilities are averaged with their weights, which add up. UVW is averaged over the rows of a baseline
    with the weights of the rows (summed over channels and correlations; equal ones where all are 0). All
    baselines of a bin share one time, the mean of the bin's distinct times, so that terms per antenna and
    time keep their meaning. Channel frequencies are plain means: flagged channels do not move them.

    Parameters
    ----------
    partitions : sequence of Partition
    averaging : Averaging
    dish_diameter : float64 (n_antenna,), m
        0 where it is not known.
    """
    if not averaging.seconds and averaging.average_channels == 1:
        return list(partitions), None
    radius = _radius(partitions, averaging, dish_diameter)
    result, loss = [], 0.0
    for part in partitions:
        if averaging.average_channels > 1:
            part = average_channels(part, min(int(averaging.average_channels), part.n_chan))
        loss = max(loss, smearing_loss(part, part.chan_width, 0.0, radius))
        if averaging.seconds:
            part, duration = average_time(part, averaging.seconds)
            loss = max(loss, smearing_loss(part, part.chan_width, duration, radius))
        result.append(part)
    return result, Averaged(averaging.seconds, int(averaging.average_channels), radius, loss)


def average_channels(part: Partition, number: int) -> Partition:
    """Average groups of adjacent channels; the last group may be smaller.

    Parameters
    ----------
    part : Partition
    number : int
        Channels averaged together.

    Raises
    ------
    InputError
        Channels of a group are not adjacent.
    """
    starts = np.arange(0, part.n_chan, number)
    low = np.minimum.reduceat(part.chan_freq - part.chan_width / 2, starts)
    high = np.maximum.reduceat(part.chan_freq + part.chan_width / 2, starts)
    size = np.diff(np.append(starts, part.n_chan))
    if (high - low > 1.5 * np.add.reduceat(part.chan_width, starts)).any():
        raise InputError("average_channels: the channels selected are not adjacent; select ranges of them")
    return part.replaced(
        _channel_means,
        starts,
        chan_freq=np.add.reduceat(part.chan_freq, starts) / size,
        chan_width=high - low,
        chan_id=(np.arange(part.n_chan) if part.chan_id is None else part.chan_id)[starts],
    )[0]


def _channel_means(vis: Vis, weight: Weight, starts: NDArray[np.int64]) -> tuple[Vis, Weight, None]:
    """Weighted means over runs of channels, of some rows."""
    return (*_weighted_means(vis, weight, starts, axis=1), None)


def time_bins(
    times: NDArray[np.float64], seconds: float, scan: NDArray[np.int32] | None = None
) -> NDArray[np.int64]:
    """Number of the bin of each time, int64 (n_time,); a bin begins at the first time not yet in one.

    Parameters
    ----------
    times : float64 (n_time,), s
        Distinct, ascending.
    seconds : float, s
        Length of a bin.
    scan : int32 (n_time,), optional
        Scan number of each time: no bin holds times of two.
    """
    ends = np.zeros(len(times), bool)
    if scan is not None:
        ends[1:] = scan[1:] != scan[:-1]
    bins = np.zeros(len(times), np.int64)
    start, number = times[0], 0
    for i, time in enumerate(times):
        # Stored times are rounded: the tolerance lets 3 x 10 s fit into "30 s" whatever the rounding.
        if ends[i] or time - start > seconds * (1 - 1e-4) - 1e-3:
            start, number = time, number + 1
        bins[i] = number
    return bins


def average_time(part: Partition, seconds: float) -> tuple[Partition, float]:
    """Average the rows of each baseline within bins of time.

    Rows come out in the order of the first row of those averaged.

    Parameters
    ----------
    part : Partition
    seconds : float, s
        Longest time averaged together.

    Returns
    -------
    part : Partition
    longest : float, s
        Longest time that was averaged together, the length of an integration included.
    """
    groups = _Groups.of(part, seconds)
    first, order, starts = groups.first, groups.order, groups.starts
    longest = _longest_bin(part, groups.bins)
    each = part.interval or part.spacing
    lasts = np.full(part.n_row, each) if part.row_interval is None else part.row_interval
    spans = _spans(part, lasts, order, starts)
    averaged = _with_means(
        part,
        groups,
        time=groups.time,
        slot_time=None,
        time_index=groups.time_index,
        antenna1=part.antenna1[first],
        antenna2=part.antenna2[first],
        row_id=part.row_id[first],
        interval=float(spans.max()),
        row_interval=None if np.ptp(spans) <= 1e-3 * spans.max() else spans,
        exposure=None if part.exposure is None else _spans(part, part.exposure, order, starts),
        scan_number=None if part.scan_number is None else part.scan_number[first],
    )
    return averaged, longest


@dataclass(frozen=True)
class _Groups:
    """Which rows are averaged together in time; this follows without any visibility.

    Attributes
    ----------
    bins : int64 (n_time,)
        Number of the bin of each time.
    first : int64 (n_group,)
        First row of each group.
    group : int64 (n_row,)
        Group of each row; groups are in the order of their first rows.
    time : float64 (n_group,), s
        Of the averaged rows.
    time_index : int32 (n_group,)
    """

    bins: NDArray[np.int64]
    first: NDArray[np.int64]
    group: NDArray[np.int64]
    time: NDArray[np.float64]
    time_index: NDArray[np.int32]

    @classmethod
    def of(cls, part: PartitionHeader, seconds: float) -> _Groups:
        bins = time_bins(part.times, seconds, part.scan_of_time)
        row_bin = bins[part.time_index]
        first, group = _group_rows(part, row_bin)
        bin_time = np.bincount(bins, part.times - part.times[0]) / np.bincount(bins) + part.times[0]
        times, time_index = np.unique(bin_time[row_bin[first]], return_inverse=True)
        return cls(bins, first, group, times[time_index], time_index.astype(np.int32))

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Rows in the order of their groups."""
        return np.argsort(self.group, kind="stable")

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each group begins in that order."""
        return np.flatnonzero(np.diff(self.group[self.order], prepend=-1))

    @cached_property
    def blocks(self) -> tuple[NDArray[np.int64], ...]:
        """The groups of each block of the averaged rows."""
        return cut_rows(self.time_index, int(self.time_index.max(initial=-1)) + 1)

    def runs(
        self, rows: NDArray[np.int64] | None, own: NDArray[np.int64] | None, uvw: NDArray[np.float64]
    ) -> _Runs:
        """Runs of rows of which groups `own` are made; of all rows where they are None."""
        if rows is None or own is None:
            return _Runs(self.order, self.starts, self.group, uvw)
        place = np.empty(self.first.size, np.int64)
        place[own] = np.arange(own.size)
        group = place[self.group[rows]]
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        return _Runs(order, starts, group, uvw[rows])


def n_averaged_row(part: PartitionHeader, averaging: Averaging) -> int:
    """How many rows a partition has once it is averaged."""
    return _Groups.of(part, averaging.seconds).first.size if averaging.seconds and part.n_row else part.n_row


def blocks_to_average(part: PartitionHeader, averaging: Averaging) -> tuple[NDArray[np.int64], ...]:
    """Rows of a partition in blocks, of which averages in time do not mix two.

    Those that are averaged into a block of the averaged partition are a block; without averages in time,
    `PartitionHeader.block_rows`.
    """
    if not averaging.seconds or not part.n_row:
        return part.block_rows
    groups = _Groups.of(part, averaging.seconds)
    block = np.empty(groups.first.size, np.int64)
    for number, own in enumerate(groups.blocks):
        block[own] = number
    of_row = block[groups.group]
    return tuple(np.flatnonzero(of_row == number) for number in range(len(groups.blocks)))


def _with_means(part: Partition, groups: _Groups, **described: Any) -> Partition:
    """A partition with the means of groups of rows: visibilities, weights and uvw."""
    stored, n_row = part.stored, groups.first.size
    # All rows at once where they are in the memory of this process; else the blocks that were made for this.
    in_memory = part.distributed is None
    into = (None,) if in_memory else groups.blocks
    each = [groups.runs(rows, own, part.uvw) for rows, own in zip(stored.rows, into, strict=True)]
    made, means = stored.replaced(_time_means, each=each, into=None if in_memory else groups.blocks)
    uvw = np.empty((n_row, 3))
    for own, mean in zip(into, means, strict=True):
        uvw[slice(None) if own is None else own] = mean
    return replace(part, **made.fields(n_row), **described, uvw=uvw)


class _Runs(NamedTuple):
    """Rows that are averaged together: their order, where each run begins in it, the run of each row, uvw."""

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    run: NDArray[np.int64]
    uvw: NDArray[np.float64]


def _time_means(vis: Vis, weight: Weight, runs: _Runs) -> tuple[Vis, Weight, NDArray[np.float64]]:
    """Weighted means of visibilities, sums of weights, and mean uvw of runs of rows."""
    uvw = _mean_uvw(weight, runs)
    return (*_weighted_means(vis, weight, runs.starts, axis=0, order=runs.order), uvw)


def _spans(
    part: Partition, lasts: NDArray[np.float64], order: NDArray[np.int64], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Time from the begin of each group's first integration to the end of its last, s; rows last so long."""
    begin = np.minimum.reduceat((part.time - 0.5 * lasts)[order], starts)
    return np.asarray(np.maximum.reduceat((part.time + 0.5 * lasts)[order], starts) - begin)


def _group_rows(
    part: PartitionHeader, row_bin: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of equal antennas and time bin: the first row of each group, and the group of each row.

    Groups are numbered in the order of their first rows.
    """
    # One number for time bin and antennas: much faster to sort than triples.
    key = (row_bin * part.n_antenna + part.antenna1) * part.n_antenna + part.antenna2
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return np.sort(first), np.argsort(np.argsort(first))[group]


def _mean_uvw(weight: Weight, runs: _Runs) -> NDArray[np.float64]:
    """UVW averaged over the rows of each run with the weights of the rows, float64 (n_run, 3), m."""
    row_weight = weight.sum(axis=(1, 2), dtype=np.float64)
    unweighted = np.bincount(runs.run, row_weight)[runs.run] == 0
    row_weight[unweighted] = 1.0
    uvw = np.add.reduceat((runs.uvw * row_weight[:, None])[runs.order], runs.starts, axis=0)
    uvw /= np.add.reduceat(row_weight[runs.order], runs.starts)[:, None]
    return np.asarray(uvw, np.float64)


def _longest_bin(part: Partition, bins: NDArray[np.int64]) -> float:
    """Longest time from the begin of a bin's first integration to the end of its last, s."""
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    spacing = part.interval or part.spacing
    return float((np.maximum.reduceat(part.times, starts) - part.times[starts]).max()) + spacing


def _weighted_means(
    data: Vis, weights: Weight, starts: NDArray[np.int64], axis: int, order: NDArray[np.int64] | None = None
) -> tuple[Vis, Weight]:
    """Weighted means of the visibilities and sums of the weights over runs along an axis.

    Sums are taken in double precision. The other axis is taken in blocks: beside the result, only
    BLOCK_VISIBILITIES are in double precision.

    Parameters
    ----------
    data, weights : (n_row, n_chan, n_corr)
    starts : int64 (n_run,)
        Where each run begins along the axis, after sorting by `order`.
    axis : int
        0 for rows, 1 for channels.
    order : int64 (n_row,), optional
        Order in which the axis is read; only for rows.

    Returns
    -------
    vis, weight : of the same dtypes, n_run long along the axis
        vis is 0 where the weight is.
    """
    shape = list(data.shape)
    other = 1 - axis
    size = max(1, BLOCK_VISIBILITIES // (shape[axis] * shape[2]))
    begins = range(0, shape[other], size)
    shape[axis] = len(starts)
    vis, weight = np.empty(shape, data.dtype), np.empty(shape, weights.dtype)
    for begin in begins:
        block = (slice(None),) * other + (slice(begin, begin + size),)
        block_vis, block_weight = data[block], weights[block]
        if order is not None:
            block_vis, block_weight = block_vis[order], block_weight[order]
        block_weight = block_weight.astype(np.float64)
        total = np.add.reduceat(block_weight, starts, axis=axis)
        mean = np.add.reduceat(block_vis * block_weight, starts, axis=axis)
        vis[block] = np.divide(mean, total, out=mean, where=total > 0)
        weight[block] = total
    return vis, weight


def smearing_loss(part: Partition, bandwidth: NDArray[np.float64], duration: float, radius: float) -> float:
    """Largest loss of amplitude of a point source at a radius, 1 - |sinc sinc|.

    An average over bandwidth B and time T of a source at distance r in its worst direction keeps

        sinc(B b r / c) sinc(T b' r nu / c)        sinc(x) = sin(pi x) / (pi x)

    of its amplitude, with b = hypot(u, v) and b' = hypot(du/dt, dv/dt) of the rotating Earth,
    du/dt = Omega (w cos dec - v sin dec), dv/dt = Omega u sin dec (Thompson, Moran and Swenson,
    "Interferometry and Synthesis in Radio Astronomy", sections 6.3 and 6.4). The two worst directions,
    and the widest and the highest channel, are taken together: an upper bound when both are averaged.

    Parameters
    ----------
    part : Partition
    bandwidth : float64 (n_chan,), Hz
    duration : float, s
    radius : float, rad
    """
    u, v, w = part.uvw[part.row_weight > 0].T
    if not u.size:
        return 0.0
    dec = part.phase_centre[1]
    speed = EARTH_RATE * np.hypot(w * np.cos(dec) - v * np.sin(dec), u * np.sin(dec))
    band = np.hypot(u, v) * radius / SPEED_OF_LIGHT * bandwidth.max()
    turn = speed * radius * duration / SPEED_OF_LIGHT * part.chan_freq.max()
    # Beyond the first zero of the sinc all of the amplitude may be lost.
    amplitude = np.sinc(np.minimum(band, 1.0)) * np.sinc(np.minimum(turn, 1.0))
    return float(1 - amplitude.min())


def _radius(
    partitions: Sequence[Partition], averaging: Averaging, dish_diameter: NDArray[np.float64]
) -> float:
    if averaging.smearing_radius is not None:
        return in_unit(averaging.smearing_radius, "rad", "smearing_radius")
    view = max(field_of_view(part, dish_diameter) for part in partitions)
    longest = max(longest_wavelengths(part) for part in partitions)
    return view / 2 if view else 10.0 / longest if longest else 0.0
