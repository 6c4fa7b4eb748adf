"""The amplitude of data that a sky explains through gains which are integrated over or solved for.

A systematic error is a fraction of |g V|, with V of the sky and a gain g that is not known before the noise
is. For |g|^2 stands what the data have of the power of the sky, on each baseline

    A^2 = sum w |D|^2 / sum w |V|^2

over all times, channels and correlations; or over all data of a partition, where baselines have too few. So
variances do not determine the flux scale, which gains would take up. With n visibilities in a sum, v depends
on each of them by 1/n: fluxes are 2 f^2 / n too small. |D|^2 has the noise in it: v is too large, by parts in
2 f^2. As A^2 depends on the data, the density would not be a normalised one: its integral over the data is
exp(2 f^2) for each A, to first order, whatever sky and thermal noise are. This is taken off (`shares`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.noise.noise_of_baselines import squared
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Visibilities = Sequence[NDArray[np.complexfloating]]
LEAST = 10
"""Visibilities of a baseline from which on it has an A of its own."""


class SkyThroughGains:
    """A V of the visibilities V of a sky, and the adjoint.

    Parameters
    ----------
    partitions : sequence of Partition
    """

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._weights = [part.weight for part in partitions]
        self._baselines = [_baselines(part) for part in partitions]
        self._power = [self._sums(i, squared(part.vis)) for i, part in enumerate(partitions)]

    def __call__(self, vis: Visibilities) -> list[NDArray[np.complexfloating]]:
        """A V of each partition, (n_row, n_chan, n_corr), Jy."""
        return [self._of_rows(i, self._ratio(i, one)) * one for i, one in enumerate(vis)]

    def shares(self, i: int) -> Array:
        """What part each row is of the usable data of an A, float64 (n_row,), of partition i."""
        used = np.count_nonzero(self._weights[i] > 0, axis=(1, 2)).astype(np.float64)
        total = np.bincount(self._baselines[i], used)[self._baselines[i]]
        return np.asarray(np.divide(used, total, out=np.zeros_like(used), where=total > 0.0))

    def pull_back(self, vis: Visibilities, slopes: Visibilities) -> list[NDArray[np.complex128]]:
        """Derivatives by V, from those by A V of what depends on |A V| alone; both over the weights w."""
        found = []
        for i, (one, slope) in enumerate(zip(vis, slopes, strict=True)):
            ratio = self._ratio(i, one)
            scale = self._of_rows(i, ratio)
            of_ratio = self._sums(i, (slope.conj() * scale * one).real)
            power = self._sums(i, squared(one))
            lost = np.divide(of_ratio, power, out=np.zeros_like(power), where=power > 0.0)
            found.append(scale * slope - self._of_rows(i, lost) * one)
        return found

    def _ratio(self, i: int, vis: NDArray[np.complexfloating]) -> Array:
        """A of each baseline; 0 where the sky is 0."""
        power = self._sums(i, squared(vis))
        return np.sqrt(np.divide(self._power[i], power, out=np.zeros_like(power), where=power > 0.0))

    def _sums(self, i: int, values: Array) -> Array:
        """Weighted sums over the visibilities of each baseline."""
        weight = self._weights[i]
        by_row = np.where(weight > 0, values * weight, 0.0).sum(axis=(1, 2), dtype=np.float64)
        return np.bincount(self._baselines[i], by_row).astype(np.float64)

    def _of_rows(self, i: int, values: Array) -> Array:
        return values[self._baselines[i]][:, None, None]


def _baselines(part: Partition) -> NDArray[np.int64]:
    """The baseline of each row, as a number; 0 of all where one has fewer usable data than `LEAST`."""
    first, second = (np.asarray(each, np.int64) for each in (part.antenna1, part.antenna2))
    pair = np.minimum(first, second) * (1 + max(first.max(), second.max())) + np.maximum(first, second)
    baseline = np.unique(pair, return_inverse=True)[1].reshape(-1).astype(np.int64)
    usable = np.bincount(baseline, np.count_nonzero(part.weight > 0, axis=(1, 2)))
    return baseline if usable[usable > 0].min(initial=LEAST) >= LEAST else np.zeros_like(baseline)
