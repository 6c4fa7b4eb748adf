"""Few frequencies in place of many channels: a function of frequency from its values at nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Of nodes, tried one after the other."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """f(channel c) = sum over nodes k of coefficient[c, k] f(freq[k]), as exactly as was asked.

    Attributes
    ----------
    channels : int64 (n_chan,)
    freq : float64 (n_node,), Hz
    coefficient : float64 (n_chan, n_node)
    """

    channels: NDArray[np.int64]
    freq: Array
    coefficient: Array


def choose_nodes(
    function: Callable[[float], Array], channels: NDArray[np.int64], chan_freq: Array, accuracy: float
) -> list[Nodes]:
    """Nodes for a function that is smooth over some channels.

    Polynomials through Chebyshev's points of the range; as many as it takes until, at channels spread over
    the range, sum |f - interpolated| <= accuracy sum |f|: looked at, not promised by theory. A function
    that sixteen nodes do not hold, or that has no more channels than nodes, is taken channel by channel.

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
        return [Nodes(channels, np.array([low]), np.ones((len(channels), 1)))]
    for n in NUMBERS:
        if n > 1 and n >= len(channels):
            break
        nodes = _chebyshev(low, high, n)
        if _holds(function, freq, nodes, accuracy):
            return [Nodes(channels, nodes, _lagrange(freq, nodes))]
    return [Nodes(channels[i : i + 1], freq[i : i + 1], np.ones((1, 1))) for i in range(len(channels))]


def _holds(function: Callable[[float], Array], freq: Array, nodes: Array, accuracy: float) -> bool:
    """Whether channels at the ends, and others between the nodes, come out well."""
    order = np.argsort(freq)
    at = np.unique(np.linspace(0, len(freq) - 1, 2 * len(nodes) + 3).round().astype(int))
    looked_at = np.unique(freq[order[at]])
    values = [function(float(node)) for node in nodes]
    for nu, row in zip(looked_at, _lagrange(looked_at, nodes), strict=True):
        exact = function(float(nu))
        found = sum(a * value for a, value in zip(row, values, strict=True))
        if np.abs(exact - found).sum() > accuracy * np.abs(exact).sum():
            return False
    return True


def _chebyshev(low: float, high: float, n: int) -> Array:
    turn = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    return np.asarray(0.5 * (low + high) + 0.5 * (high - low) * turn, dtype=np.float64)


def _lagrange(freq: Array, nodes: Array) -> Array:
    """Lagrange's polynomials of the nodes at some frequencies, float64 (n_freq, n_node)."""
    out = np.ones((len(freq), len(nodes)))
    for k in range(len(nodes)):
        for j in range(len(nodes)):
            if j != k:
                out[:, k] *= (freq - nodes[j]) / (nodes[k] - nodes[j])
    return out
