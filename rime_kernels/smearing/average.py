"""The times and frequencies whose mean is a smeared visibility: Gauss-Legendre nodes of both axes.

The mean of a smooth function over an interval converges spectrally with the number of nodes; how many follow
from the largest change of phase over the interval, within the half-range x of which the mean of
exp(i x t), -1 < t < 1, is sin(x)/x.
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


class Node(NamedTuple):
    """One place on an axis: its weight, and where it lies, -1/2 .. 1/2 of the interval or width."""

    weight: float
    offset: float


@dataclass(frozen=True, eq=False)
class Average:
    """`Smearing` of given rows, with the nodes that its error asks for.

    Attributes
    ----------
    smearing : Smearing
    times, freqs : tuple of Node
    slot_interval : float64 (n_time,), s, or None
        Of each time slot; None where rows of one slot have different ones.
    """

    smearing: Smearing
    times: tuple[Node, ...]
    freqs: tuple[Node, ...]
    slot_interval: Array | None

    def __str__(self) -> str:
        return f"smeared: the mean of {len(self.times)} times x {len(self.freqs)} frequencies"

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
                at = replace(rows, uvw=uvw, chan_freq=self.chan_freq(rows.chan_freq, freq))
                yield time.weight * freq.weight, at, antennas


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
    error = smearing.error * largest_loss(smearing, rows, extent)
    return Average(
        smearing,
        _nodes("an integration", by_time, error),
        _nodes("a channel", by_freq, error),
        _slot_interval(smearing, rows),
    )


def half_ranges(smearing: Smearing, rows: Rows, extent: float) -> tuple[float, float]:
    """Largest change of phase from the middle of an integration, and of a channel, to its end, rad."""
    r = min(np.sqrt(2.0) * extent, 1.0)
    n_minus_1 = r * r / (1.0 + np.sqrt(1.0 - r * r))
    u, v, w = rows.uvw.T
    du, dv, dw = rates(u, v, w, smearing.declination, smearing.pole_angle)
    metres = np.hypot(u, v) * r + np.abs(w) * n_minus_1
    rate = np.hypot(du, dv) * r + np.abs(dw) * n_minus_1
    turn = np.pi / SPEED_OF_LIGHT
    by_time = turn * float((rate * smearing.interval).max()) * float(rows.chan_freq.max())
    return by_time, turn * float(metres.max()) * float(smearing.chan_width.max())


def largest_loss(smearing: Smearing, rows: Rows, extent: float) -> float:
    """Fraction of a point that is lost at most, 1 - sinc of either axis added up; 1 at most."""
    return min(1.0, sum(_loss(each) for each in half_ranges(smearing, rows, extent)))


def _loss(half_range: float) -> float:
    """1 - sin(x)/x up to the first zero."""
    return float(1.0 - np.sinc(min(half_range / np.pi, 1.0)))


def _slot_interval(smearing: Smearing, rows: Rows) -> Array | None:
    """The interval of each time slot, where all its rows have the same to 1e-6."""
    longest = np.zeros(rows.n_time)
    np.maximum.at(longest, rows.time_index, smearing.interval)
    return longest if np.all(smearing.interval >= (1.0 - 1e-6) * longest[rows.time_index]) else None


def _nodes(what: str, half_range: float, error: float) -> tuple[Node, ...]:
    """The fewest nodes whose mean of exp(i x t) is right to an error at all x up to the half-range."""
    x = half_range * np.linspace(0.05, 1.0, 20)
    exact = np.sinc(x / np.pi)
    # Fewer than half as many nodes as turns are never enough.
    for n in range(1 + int(half_range / np.pi), _MOST_NODES + 1):
        place, weight = _legendre(n)
        if np.abs(np.cos(np.outer(x, place)) @ weight - exact).max() <= max(error, 1e-13):
            return tuple(Node(float(a), 0.5 * float(t)) for t, a in zip(place, weight, strict=True))
    raise InputError(
        f"the phase of a source may turn by {half_range / np.pi:.3g} turns within {what}, which is more than "
        f"{_MOST_NODES} nodes resolve: limit where sources may lie, or switch smearing off"
    )


@functools.cache
def _legendre(n: int) -> tuple[Array, Array]:
    """Nodes of Gauss-Legendre quadrature in -1 .. 1, and weights whose sum is 1."""
    place, weight = np.polynomial.legendre.leggauss(n)
    return place, 0.5 * weight
