"""Interpolate a function of frequency from its values at a few frequencies, the nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of nodes that are tried one after the other."""


@dataclass(frozen=True, eq=False)
class FrequencyNodes:
    """Nodes and coefficients with which f(channel c) = sum over nodes k of coefficient[c, k] f(freq[k]).

    Attributes
    ----------
    channels : int64 (n_chan,)
        Indices of the channels.
    freq : float64 (n_node,), Hz
    coefficient : float64 (n_chan, n_node)
    """

    channels: NDArray[np.int64]
    freq: Array
    coefficient: Array


def choose_nodes(
    function: Callable[[float], Array], channels: NDArray[np.int64], chan_freq: Array, accuracy: float
) -> list[FrequencyNodes]:
    """Choose nodes for a function that is smooth over some channels.

    The interpolating polynomial goes through the Chebyshev points of the range. Their number is raised until
    sum |f - interpolated| <= accuracy sum |f| at channels spread over the range, where the error is measured.
    Where sixteen nodes are not enough, or no fewer nodes than channels, each channel is a node.

    Parameters
    ----------
    function : frequency (Hz) to float64 array
    channels : int64 (n,)
        Indices into
    chan_freq : float64 (n_chan,), Hz
    accuracy : float
    """
    freq = chan_freq[channels]
    low, high = float(freq.min()), float(freq.max())
    if low == high:
        return [FrequencyNodes(channels, np.array([low]), np.ones((len(channels), 1)))]
    for n in NUMBERS:
        if n > 1 and n >= len(channels):
            break
        nodes = _chebyshev(low, high, n)
        if _is_accurate(function, freq, nodes, accuracy):
            return [FrequencyNodes(channels, nodes, lagrange(freq, nodes))]
    return [
        FrequencyNodes(channels[i : i + 1], freq[i : i + 1], np.ones((1, 1))) for i in range(len(channels))
    ]


def _is_accurate(function: Callable[[float], Array], freq: Array, nodes: Array, accuracy: float) -> bool:
    """Whether the interpolation is accurate at the ends of the range and at channels between the nodes."""
    order = np.argsort(freq)
    at = np.unique(np.linspace(0, len(freq) - 1, 2 * len(nodes) + 3).round().astype(int))
    tested = np.unique(freq[order[at]])
    values = [function(float(node)) for node in nodes]
    for nu, row in zip(tested, lagrange(tested, nodes), strict=True):
        exact = function(float(nu))
        interpolated = sum(a * value for a, value in zip(row, values, strict=True))
        if np.abs(exact - interpolated).sum() > accuracy * np.abs(exact).sum():
            return False
    return True


def _chebyshev(low: float, high: float, n: int) -> Array:
    """The n Chebyshev points of the first kind between low and high."""
    turn = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    return np.asarray(0.5 * (low + high) + 0.5 * (high - low) * turn, dtype=np.float64)


def lagrange(freq: Array, nodes: Array) -> Array:
    """Lagrange's basis polynomials of the nodes at some frequencies, float64 (n_freq, n_node)."""
    out = np.ones((len(freq), len(nodes)))
    for k in range(len(nodes)):
        for j in range(len(nodes)):
            if j != k:
                out[:, k] *= (freq - nodes[j]) / (nodes[k] - nodes[j])
    return out
