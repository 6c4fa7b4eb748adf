"""The times and frequencies whose mean is a smeared visibility: Gauss-Legendre nodes of both axes.

The mean of a smooth function over an interval converges spectrally with the number of nodes; how many follow
from the largest change of phase over the interval, within the half-range x of which the mean of
exp(i x t), -1 < t < 1, is sin(x)/x. Rows are in groups with nodes of their own: short baselines need few.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Rows
from rime_kernels.errors import InputError
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import EARTH_RATE, rates, turned
from rime_kernels.smearing.smearing import Smearing

Array = NDArray[np.float64]
_MOST_NODES = 128
# Groups of rows, and the share of all rows that a group is made for: each makes terms of all antennas anew.
_N_GROUP, _LEAST_SHARE = 4, 1 / 16
# Half-ranges at which errors are computed: so many to a factor of 2, below the largest.
_PER_OCTAVE = 8


class Node(NamedTuple):
    """One place on an axis: its weight, and where it lies, -1/2 .. 1/2 of the interval or width."""

    weight: float
    offset: float


class NodeGroup(NamedTuple):
    """Rows, and the nodes that they need."""

    has_row: NDArray[np.bool_]  # (n_row,)
    times: tuple[Node, ...]
    freqs: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Average:
    """`Smearing` of given rows, with the nodes that its error asks for.

    Attributes
    ----------
    smearing : Smearing
    times, freqs : tuple of Node
        As many as the row needs that needs most.
    slot_interval : float64 (n_time,), s, or None
        Of each time slot; None where rows of one slot have different ones.
    groups : tuple of Group
        Rows with fewer nodes, each row in one of them.
    """

    smearing: Smearing
    times: tuple[Node, ...]
    freqs: tuple[Node, ...]
    slot_interval: Array | None
    groups: tuple[NodeGroup, ...]

    def __str__(self) -> str:
        each = [f"{len(group.times)} times x {len(group.freqs)} frequencies" for group in self.groups]
        return f"smeared: the mean of {' or '.join(each)}"

    def of(self, group: NodeGroup, rows: NDArray[np.int64]) -> Average:
        """The average for some rows of a group."""
        smearing = replace(self.smearing, interval=self.smearing.interval[rows])
        return replace(self, smearing=smearing, times=group.times, freqs=group.freqs, groups=())

    def of_rows(self, rows: NDArray[np.int64]) -> Average:
        """The average for some of the rows."""
        groups = [group._replace(has_row=group.has_row[rows]) for group in self.groups]
        smearing = replace(self.smearing, interval=self.smearing.interval[rows])
        return replace(
            self, smearing=smearing, groups=tuple(group for group in groups if group.has_row.any())
        )

    def chan_freq(self, chan_freq: Array, node: Node) -> Array:
        """Frequencies of the channels at a node, float64 (n_chan,), Hz."""
        return chan_freq + node.offset * self.smearing.chan_width

    def turned(self, uvw: Array, seconds: Array, node: Node) -> Array:
        """Coordinates (..., 3) at a node, of rows or antennas whose integrations last so long, (...)."""
        u, v, w = np.moveaxis(uvw, -1, 0)
        angle = EARTH_RATE * node.offset * seconds
        declination, pole_angle = self.smearing.declination, self.smearing.pole_angle
        return np.stack(turned(u, v, w, angle, declination, pole_angle), axis=-1)

    def samples(self, rows: Rows, antenna_uvw: Array | None) -> Iterator[tuple[float, Rows, Array | None]]:
        """Weight, rows, and antenna coordinates (n_time, n_antenna, 3) if there are any, of every node."""
        for time in self.times:
            uvw = self.turned(rows.uvw, self.smearing.interval, time)
            if antenna_uvw is not None and self.slot_interval is not None:
                antennas: Array | None = self.turned(antenna_uvw, self.slot_interval[:, None], time)
            else:
                antennas = None
            for freq in self.freqs:
                node_rows = replace(rows, uvw=uvw, chan_freq=self.chan_freq(rows.chan_freq, freq))
                yield time.weight * freq.weight, node_rows, antennas


def average_of(smearing: Smearing, rows: Rows, extent: float) -> Average:
    """The nodes that the error of a smearing asks for.

    Parameters
    ----------
    smearing : Smearing
    rows : Rows
    extent : float
        Largest |l| and |m| that the sources will take.

    Raises
    ------
    InputError
        Intervals and widths that are not those of the rows, or so much smearing that it would take more than
        128 nodes on an axis.
    """
    smearing.check_axes(rows)
    by_time, by_freq = half_ranges(smearing, rows, extent)
    n_time = _n_nodes("an integration", by_time, smearing.error)
    n_freq = _n_nodes("a channel", by_freq, smearing.error)
    return Average(
        smearing,
        _nodes(int(n_time.max())),
        _nodes(int(n_freq.max())),
        _slot_interval(smearing, rows),
        _groups(n_time, n_freq),
    )


def half_ranges(smearing: Smearing, rows: Rows, extent: float) -> tuple[Array, Array]:
    """Largest change of phase of each row from the middle of its integration, or channel, to the end."""
    r = min(np.sqrt(2.0) * extent, 1.0)
    n_minus_1 = r * r / (1.0 + np.sqrt(1.0 - r * r))
    u, v, w = rows.uvw.T
    du, dv, dw = rates(u, v, w, smearing.declination, smearing.pole_angle)
    metres = np.hypot(u, v) * r + np.abs(w) * n_minus_1
    rate = np.hypot(du, dv) * r + np.abs(dw) * n_minus_1
    turn = np.pi / SPEED_OF_LIGHT
    by_time = turn * rate * smearing.interval * float(rows.chan_freq.max())
    return by_time, turn * metres * float(smearing.chan_width.max())


def largest_loss(smearing: Smearing, rows: Rows, extent: float) -> float:
    """Fraction of a point that is lost at most, 1 - sinc of either axis added up; 1 at most."""
    return min(1.0, sum(float(_loss(each.max())) for each in half_ranges(smearing, rows, extent)))


def _loss(half_range: Array) -> Array:
    """1 - sin(x)/x up to the first zero."""
    return np.asarray(1.0 - np.sinc(np.minimum(half_range / np.pi, 1.0)))


def _slot_interval(smearing: Smearing, rows: Rows) -> Array | None:
    """The interval of each time slot, where all its rows have the same to 1e-6."""
    longest = np.zeros(rows.n_time)
    np.maximum.at(longest, rows.time_index, smearing.interval)
    return longest if np.all(smearing.interval >= (1.0 - 1e-6) * longest[rows.time_index]) else None


def _n_nodes(what: str, half_range: Array, error: float) -> NDArray[np.int64]:
    """The fewest nodes whose mean of exp(i x t) is right to a fraction of the loss, for the range x of a row.

    For smaller x it is, too: with n nodes the error falls as x^(2 n), the loss as x^2.
    """
    most = float(half_range.max())
    too_many = InputError(
        f"the phase of a source may turn by {most / np.pi:.3g} turns within {what}, which is more than "
        f"{_MOST_NODES} nodes resolve: limit where sources may lie, or switch smearing off"
    )
    if most >= np.pi * _MOST_NODES:
        raise too_many
    # Above the first zero of the loss steps of a part of a turn, below it those of a geometric series.
    low = np.pi * 2.0 ** (-np.arange(32 * _PER_OCTAVE) / _PER_OCTAVE)
    grid = np.unique(np.minimum(np.concatenate([low, np.arange(np.pi, most + 0.5, 0.4)]), most))
    exact, place = np.sinc(grid / np.pi), np.searchsorted(grid, half_range)
    tolerance = np.maximum(error * _loss(half_range), 1e-13)
    found = np.zeros(half_range.size, np.int64)
    for n in range(1, _MOST_NODES + 1):
        node, weight = _legendre(n)
        worst = np.maximum.accumulate(np.abs(np.cos(np.outer(grid, node)) @ weight - exact))
        # Fewer than half as many nodes as turns are never enough.
        is_enough = (worst[place] <= tolerance) & (half_range < n * np.pi)
        found[(found == 0) & is_enough] = n
        if found.all():
            return found
    raise too_many


def _groups(n_time: NDArray[np.int64], n_freq: NDArray[np.int64]) -> tuple[NodeGroup, ...]:
    """Rows that need the most nodes, half of them, a quarter and so on; few rows go with those above them."""
    n_node = n_time * n_freq
    level = np.minimum(np.log2(n_node.max() / n_node).astype(np.int64), _N_GROUP - 1)
    for low in range(_N_GROUP - 1, 0, -1):
        if np.count_nonzero(level == low) < _LEAST_SHARE * level.size:
            level[level == low] = low - 1
    found = []
    for low in np.unique(level):
        has_row = level == low
        found.append(
            NodeGroup(has_row, _nodes(int(n_time[has_row].max())), _nodes(int(n_freq[has_row].max())))
        )
    return tuple(found)


def _nodes(n: int) -> tuple[Node, ...]:
    place, weight = _legendre(n)
    return tuple(Node(float(a), 0.5 * float(t)) for t, a in zip(place, weight, strict=True))


@functools.cache
def _legendre(n: int) -> tuple[Array, Array]:
    """Nodes of Gauss-Legendre quadrature in -1 .. 1, and weights whose sum is 1."""
    place, weight = np.polynomial.legendre.leggauss(n)
    return place, 0.5 * weight
