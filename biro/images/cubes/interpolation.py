"""Which visibilities a plane of a cube is made of, and what each counts for: linear interpolation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.images.cubes.axis import SpectralAxis, spacing
from biro.images.imager import Samples
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
_EXACT = 1e-4
"""Channels between which and a channel of the cube a frequency differs by less, in channels, are the same."""
_GAP = 1.5
"""Channels farther apart than this, in usual distances, are not interpolated between."""


class Cut(NamedTuple):
    """Some rows and channels of a partition."""

    i_partition: int
    rows: Index
    channels: Index

    @property
    def inside(self) -> tuple[Index, Index]:
        """These rows and channels as an index of arrays (n_row, n_chan, ...)."""
        rows, channels = np.ix_(self.rows, self.channels)
        return rows, channels


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
        return f"{self.outside} outside of the cube, {self.beside_gap} beside flagged or missing channels"


class Interpolation:
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
    noise : sequence of float64 (n_row, n_chan), 1/Jy^2
        Weights of Stokes visibilities by their noise.
    factors : sequence of float64 (n_time,)
        Frequencies in the frame of the cube over those of each partition, at its distinct times.
    axis : SpectralAxis
    """

    def __init__(
        self, parts: Sequence[Partition], noise: Sequence[Array], factors: Sequence[Array], axis: SpectralAxis
    ) -> None:
        self._parts, self._noise, self._factors, self._axis = parts, noise, factors, axis
        self._used = [np.zeros(weight.shape, bool) for weight in noise]

    def of_plane(self, i_plane: int) -> tuple[Samples, list[Cut]]:
        """The visibilities of a plane, and what these are of the partitions; none where it is blank."""
        freq = self._axis.channels(i_plane)
        found = [each for i in range(len(self._parts)) for each in self._of_partition(i, freq)]
        for cut, natural in found:
            self._used[cut.i_partition][cut.inside] |= natural > 0.0
        cuts = [cut for cut, _ in found]
        parts = [_cut_out(self._parts[cut.i_partition], cut) for cut in cuts]
        noise = [self._noise[cut.i_partition][cut.inside] for cut in cuts]
        return Samples(parts, noise, [natural for _, natural in found]), cuts

    def unused(self) -> Unused:
        """What none of the planes made so far took."""
        outside = beside_gap = 0
        low, high = self._axis.channels(0)[0], self._axis.channels(self._axis.n_plane - 1)[-1]
        for part, weight, factor, used in zip(
            self._parts, self._noise, self._factors, self._used, strict=True
        ):
            left = (weight > 0.0) & ~used
            if left.any():
                freq = factor[part.time_index][:, None] * part.chan_freq
                beyond = (freq < low) | (freq > high)
                outside += int(np.count_nonzero(left & beyond))
                beside_gap += int(np.count_nonzero(left & ~beyond))
        return Unused(outside, beside_gap)

    def _of_partition(self, i: int, freq: Array) -> Iterator[tuple[Cut, Array]]:
        """Cuts of a partition with their weights, for channels of the cube.

        Where the channels of the data change with time, times that share few channels are cuts of their own.
        """
        part = self._parts[i]
        order = np.argsort(part.chan_freq)
        places = _locate(part, freq[:, None] / self._factors[i])
        lowest = np.where(places.inside, places.channel, part.n_chan).min(axis=0)
        block = (lowest - lowest.min()) // (len(freq) + 1)
        for number in np.unique(block[places.inside.any(axis=0)]):
            at_times = (block == number) & places.inside.any(axis=0)
            first = int(lowest[at_times].min())
            last = int((places.channel + (places.fraction > 0.0))[places.inside & at_times].max())
            rows = np.flatnonzero(at_times[part.time_index])
            cut = Cut(i, rows, order[first : last + 1])
            natural = _weights(self._noise[i][cut.inside], places.of_rows(part.time_index[rows]), first)
            counts = natural.any(axis=1)
            if counts.any():
                yield Cut(i, rows[counts], cut.channels), natural[counts]


class _Places(NamedTuple):
    """Where frequencies lie among the sorted channels of a window, (n_freq, n_time) each."""

    channel: Index
    fraction: Array
    inside: Mask

    def of_rows(self, time_index: NDArray[np.int32]) -> _Places:
        """The same for rows, (n_freq, n_row)."""
        channel, fraction, inside = self
        return _Places(channel[:, time_index], fraction[:, time_index], inside[:, time_index])


def _locate(part: Partition, wanted: Array) -> _Places:
    """The channel below each frequency, how far it is to the next, and whether both are there."""
    freq, usual = np.sort(part.chan_freq), spacing(part)
    if part.n_chan == 1:
        return _Places(
            np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape), np.abs(wanted - freq[0]) < 0.5 * usual
        )
    channel = np.clip(np.searchsorted(freq, wanted, "right") - 1, 0, part.n_chan - 2)
    gap = np.diff(freq)[channel]
    fraction = (wanted - freq[channel]) / gap
    nearest = np.rint(fraction)
    is_exact = (np.abs(fraction - nearest) < _EXACT) & (nearest >= 0.0) & (nearest <= 1.0)
    inside = is_exact | ((fraction > 0.0) & (fraction < 1.0) & (gap < _GAP * usual))
    channel = np.where(is_exact, channel + nearest.astype(np.int64), channel)
    return _Places(channel, np.where(is_exact, 0.0, fraction), inside)


def _weights(noise: Array, places: _Places, first: int) -> Array:
    """What each visibility counts for in the mean of channels of the cube, float64 (n_row, n_chan).

    Parameters
    ----------
    noise : float64 (n_row, n_chan)
        Of the channels from number `first` on.
    places : _Places
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


def _cut_out(part: Partition, cut: Cut) -> Partition:
    """A partition of some rows and channels of another."""
    rows, channels = cut.rows, cut.channels
    return replace(
        part,
        **part.row_arrays(rows),
        chan_freq=part.chan_freq[channels],
        chan_width=part.chan_width[channels],
        chan_id=channels if part.chan_id is None else part.chan_id[channels],
        vis=part.vis[cut.inside],
        weight=part.weight[cut.inside],
    )
