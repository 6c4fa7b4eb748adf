"""What gains are solved from: weighted products of data and model, summed over each solution interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile import types
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.jit import loop
from rime_kernels.gain_solving.unknowns import Unknowns

Array = NDArray[np.float64]
Index = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class IntervalSums:
    """Sums of a problem (an interval, a block of channels, a group of feeds) and an edge (see `Unknowns`).

    With D the data, V the model, w weights, chi-squared of gains g that do not change in the interval is

        sum over edges of  data - 2 Re(conj(g_p) g_q cross) + |g_p|^2 |g_q|^2 model

    so that no step of a solution goes through the data again.

    Attributes
    ----------
    cross : complex128 (n_interval, n_block, n_group, n_edge)
        sum w D conj(V).
    model, data : float64, as cross
        sum w |V|^2 and sum w |D|^2.
    count : int64, as cross
        Visibilities with weight.
    """

    cross: NDArray[np.complex128]
    model: Array
    data: Array
    count: Index

    def of_parallel_hands(self) -> IntervalSums:
        """The sums of each feed by itself, out of sums of all four correlations."""
        return IntervalSums(
            _parallel(self.cross), _parallel(self.model), _parallel(self.data), _parallel(self.count)
        )

    def __add__(self, other: IntervalSums) -> IntervalSums:
        return IntervalSums(
            self.cross + other.cross,
            self.model + other.model,
            self.data + other.data,
            self.count + other.count,
        )


def _parallel(array: NDArray[T]) -> NDArray[T]:
    """(..., 1, 4 n_pair) as (..., 2, n_pair): the first and the last of each four."""
    return np.stack([array[..., 0, 0::4], array[..., 0, 3::4]], axis=-2)


def sum_intervals(
    vis: NDArray[np.complexfloating],
    model: NDArray[np.complexfloating],
    weight: NDArray[np.floating],
    *,
    antennas: tuple[NDArray[np.int32], NDArray[np.int32]],
    interval: Index,
    block: Index,
    n_interval: int,
    unknowns: Unknowns,
) -> IntervalSums:
    """The sums of all solution intervals, in one pass over the data.

    Parameters
    ----------
    vis, model : complex (n_row, n_chan, n_corr), Jy
        Data and model without the gains.
    weight : float (n_row, n_chan, n_corr), 1/Jy^2
        1/sigma^2 of the real and of the imaginary part; 0 for what does not count.
    antennas : two int32 (n_row,)
        antenna1 and antenna2. Rows of one antenna with itself do not count.
    interval : int64 (n_row,)
        The solution interval of each row.
    block : int64 (n_chan,)
        The block of channels of each channel, from 0 without gaps.
    n_interval : int
    unknowns : Unknowns

    Returns
    -------
    IntervalSums
    """
    order = np.argsort(interval, kind="stable")
    start = np.searchsorted(interval[order], np.arange(n_interval + 1))
    shape = (n_interval, int(block.max()) + 1, unknowns.n_group, unknowns.n_edge)
    sums = IntervalSums(
        np.zeros(shape, np.complex128), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    )
    with CALL_LOCK:
        _add(
            vis,
            np.ascontiguousarray(model, np.complex128),
            weight,
            antennas[0],
            antennas[1],
            order,
            start,
            block,
            unknowns.place,
            unknowns.n_antenna,
            sums.cross,
            sums.model,
            sums.data,
            sums.count,
        )
    return sums


@loop
def _add(
    vis: types.Array,
    model: types.Array,
    weight: types.Array,
    antenna1: types.Array,
    antenna2: types.Array,
    order: types.Array,
    start: types.Array,
    block: types.Array,
    place: types.Array,
    n_antenna: int,
    cross: types.Array,
    square: types.Array,
    data: types.Array,
    count: types.Array,
) -> None:
    """Add the rows of each interval; one thread has all rows of an interval, in their order."""
    n_chan, n_corr = vis.shape[1], vis.shape[2]
    n_sub = cross.shape[3] // (n_antenna * (n_antenna - 1) // 2)
    for t in prange(start.size - 1):
        for r in order[start[t] : start[t + 1]]:
            p, q, swapped = antenna1[r], antenna2[r], 0
            if p == q:
                continue
            if p > q:
                p, q, swapped = q, p, 1
            first = n_sub * (p * (2 * n_antenna - p - 1) // 2 + q - p - 1)
            for corr in range(n_corr):
                group = place[swapped, corr, 0]
                if group < 0:
                    continue
                edge = first + place[swapped, corr, 1]
                for chan in range(n_chan):
                    w = np.float64(weight[r, chan, corr])
                    if not w > 0.0:
                        continue
                    d, v, k = np.complex128(vis[r, chan, corr]), model[r, chan, corr], block[chan]
                    product = w * d * np.conj(v)
                    cross[t, k, group, edge] += np.conj(product) if swapped else product
                    square[t, k, group, edge] += w * (v.real * v.real + v.imag * v.imag)
                    data[t, k, group, edge] += w * (d.real * d.real + d.imag * d.imag)
                    count[t, k, group, edge] += 1
