"""Which visibilities a plane of a cube is made of, and what each counts for: linear interpolation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.distributed.blocks import Vis, Weight
from biro.imaging.cubes.axis import SpectralAxis, spacing
from biro.imaging.imager import ImagedVisibilities
from biro.observation.partition import Partition
from biro.observation.partition_header import PartitionHeader
from biro.observation.stokes import stokes_visibilities

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
_EXACT = 1e-4
"""Channels between which and a channel of the cube a frequency differs by less, in channels, are the same."""
_GAP = 1.5
"""Channels farther apart than this, in usual distances, are not interpolated between."""


class CubeSelection(NamedTuple):
    """Some rows and channels of a partition."""

    i_partition: int
    rows: Index
    channels: Index


@dataclass(frozen=True)
class Unused:
    """Visibilities that no plane is made of, although they have a weight.

    Attributes
    ----------
    outside : int
        Beyond the outermost channels of the cube.
    beside_gap : int
        With no neighbour to be interpolated with: it is flagged, or missing.
    """

    outside: int
    beside_gap: int

    def __str__(self) -> str:
        return (
            f"{self.outside} channels outside the cube, {self.beside_gap} next to flagged or missing channels"
        )


class ChannelInterpolation:
    """The visibilities of each plane.

    At each integration, a channel of the cube has the frequency nu in the frame of the data. It lies between
    two channels of a window, nu_k <= nu < nu_k+1, and

        V = (1 - a) V_k + a V_k+1,    a = (nu - nu_k) / (nu_k+1 - nu_k),    1/w = (1 - a)^2/w_k + a^2/w_k+1

    so that flux and first moment of a line are kept. Both must have a weight. An image is linear in its
    visibilities: V_k and V_k+1 are gridded at their own uv, with weights (1 - a) w and a w. The channel of a
    window that has one alone goes where it is nearest.

    Parameters
    ----------
    parts : sequence of Partition
        Visibilities of a plane are taken when it is made.
    stokes : str
        As `biro.observation.stokes.stokes_visibilities` takes it.
    factors : sequence of float64 (n_time,)
        Frequencies in the frame of the cube over those of each partition, at its distinct times.
    axis : SpectralAxis
    """

    def __init__(
        self, parts: Sequence[Partition], stokes: str, factors: Sequence[Array], axis: SpectralAxis
    ) -> None:
        self._parts, self._stokes, self._factors, self._axis = parts, stokes, factors, axis
        self._made = set[int]()

    def of_plane(self, i_plane: int) -> tuple[ImagedVisibilities, list[CubeSelection]]:
        """The visibilities of a plane, and what these are of the partitions; none where it is blank."""
        self._made.add(i_plane)
        freq = self._axis.channels(i_plane)
        parts, noise, natural, cuts = list[Partition](), list[Array](), list[Array](), list[CubeSelection]()
        for i, (part, factor) in enumerate(zip(self._parts, self._factors, strict=True)):
            for needed in _needed(part, factor, freq):
                own = cut_out(part, needed.rows, needed.channels)
                by_noise = stokes_visibilities(own, own.vis, self._stokes)[1]
                weight = _weights(by_noise, needed.places, needed.first)
                rows = np.flatnonzero(weight.any(axis=1))
                if rows.size:
                    parts.append(_rows_of(own, rows))
                    noise.append(by_noise[rows])
                    natural.append(weight[rows])
                    cuts.append(CubeSelection(i, needed.rows[rows], needed.channels))
        return ImagedVisibilities(parts, noise, natural), cuts

    def unused(self) -> Unused:
        """What none of the planes made so far took."""
        found = []
        for part, factor in zip(self._parts, self._factors, strict=True):
            headers = [part.header.some_rows(rows) for rows in part.block_rows]
            factors = [factor[np.unique(time_index)] for time_index in part.split(part.time_index)]
            each = list(zip(headers, factors, strict=True))
            found += part.by_block(_unused, self._stokes, self._axis, sorted(self._made), each=each)
        return Unused(sum(each.outside for each in found), sum(each.beside_gap for each in found))


class _Needed(NamedTuple):
    """What channels of the cube need of a partition.

    Attributes
    ----------
    rows, channels : int64
    places : _ChannelPositions
        Of the rows.
    first : int
        Number of the first of the channels, counted in the order of frequencies.
    """

    rows: Index
    channels: Index
    places: _ChannelPositions
    first: int


def _needed(part: Partition, factor: Array, freq: Array) -> Iterator[_Needed]:
    """What channels of the cube need of a partition, whatever its weights are.

    Where the channels of the data change with time, times that share few channels come apart.
    """
    order = np.argsort(part.chan_freq)
    places = _locate(part, freq[:, None] / factor)
    lowest = np.where(places.inside, places.channel, part.n_chan).min(axis=0)
    block = (lowest - lowest.min()) // (len(freq) + 1)
    for number in np.unique(block[places.inside.any(axis=0)]):
        at_times = (block == number) & places.inside.any(axis=0)
        first = int(lowest[at_times].min())
        last = int((places.channel + (places.fraction > 0.0))[places.inside & at_times].max())
        rows = np.flatnonzero(at_times[part.time_index])
        yield _Needed(rows, order[first : last + 1], places.of_rows(part.time_index[rows]), first)


def _unused(
    vis: Vis,
    weight: Weight,
    of_block: tuple[PartitionHeader, Array],
    stokes: str,
    axis: SpectralAxis,
    planes: Sequence[int],
) -> Unused:
    """What planes did not take of a block: its rows, and its frequencies in the frame of the cube."""
    part, factor = Partition.of(of_block[0], vis=vis, weight=weight), of_block[1]
    noise = stokes_visibilities(part, vis, stokes)[1]
    used = np.zeros(noise.shape, bool)
    for i_plane in planes:
        for needed in _needed(part, factor, axis.channels(i_plane)):
            inside = np.ix_(needed.rows, needed.channels)
            used[inside] |= _weights(noise[inside], needed.places, needed.first) > 0.0
    left = (noise > 0.0) & ~used
    freq = factor[part.time_index][:, None] * part.chan_freq
    low, high = axis.channels(0)[0], axis.channels(axis.n_plane - 1)[-1]
    n_outside = int(np.count_nonzero(left & ((freq < low) | (freq > high))))
    return Unused(n_outside, int(np.count_nonzero(left)) - n_outside)


class _ChannelPositions(NamedTuple):
    """Where frequencies lie among the sorted channels of a window, (n_freq, n_time) each."""

    channel: Index
    fraction: Array
    inside: Mask

    def of_rows(self, time_index: NDArray[np.int32]) -> _ChannelPositions:
        """Places of frequencies for each row, (n_freq, n_row), in place of each time."""
        channel, fraction, inside = self
        return _ChannelPositions(channel[:, time_index], fraction[:, time_index], inside[:, time_index])


def _locate(part: Partition, wanted: Array) -> _ChannelPositions:
    """The channel below each frequency, how far it is to the next, and whether both are there."""
    freq, usual = np.sort(part.chan_freq), spacing(part)
    if part.n_chan == 1:
        return _ChannelPositions(
            np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape), np.abs(wanted - freq[0]) < 0.5 * usual
        )
    channel = np.clip(np.searchsorted(freq, wanted, "right") - 1, 0, part.n_chan - 2)
    gap = np.diff(freq)[channel]
    fraction = (wanted - freq[channel]) / gap
    nearest = np.rint(fraction)
    is_exact = (np.abs(fraction - nearest) < _EXACT) & (nearest >= 0.0) & (nearest <= 1.0)
    inside = is_exact | ((fraction > 0.0) & (fraction < 1.0) & (gap < _GAP * usual))
    channel = np.where(is_exact, channel + nearest.astype(np.int64), channel)
    return _ChannelPositions(channel, np.where(is_exact, 0.0, fraction), inside)


def _weights(noise: Array, places: _ChannelPositions, first: int) -> Array:
    """What each visibility counts for in the mean of channels of the cube, float64 (n_row, n_chan).

    Parameters
    ----------
    noise : float64 (n_row, n_chan)
        Of the channels from number `first` on.
    places : _ChannelPositions
        (n_freq, n_row)
    first : int
    """
    natural = np.zeros_like(noise)
    for channel, fraction, inside in zip(*places, strict=True):
        rows = np.flatnonzero(inside)
        low, a = channel[rows] - first, fraction[rows]
        high = np.where(a > 0.0, low + 1, low)
        below, above = noise[rows, low], noise[rows, high]
        complete = (below > 0.0) & (above > 0.0)
        rows, low, high, a = rows[complete], low[complete], high[complete], a[complete]
        weight = 1.0 / ((1.0 - a) ** 2 / below[complete] + a**2 / above[complete])
        natural[rows, low] += (1.0 - a) * weight
        natural[rows, high] += a * weight
    return natural


def cut_out(part: Partition, rows: Index, channels: Index) -> Partition:
    """A partition of some rows and channels of another, in the memory of this process."""
    vis, weight = part.taken(rows, channels)
    return replace(
        part,
        **part.row_arrays(rows),
        chan_freq=part.chan_freq[channels],
        chan_width=part.chan_width[channels],
        chan_id=channels if part.chan_id is None else part.chan_id[channels],
        vis=vis,
        weight=weight,
        distributed=None,
    )


def _rows_of(part: Partition, rows: Index) -> Partition:
    if rows.size == part.n_row:
        return part
    return replace(part, **part.row_arrays(rows), vis=part.vis[rows], weight=part.weight[rows])
