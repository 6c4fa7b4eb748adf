"""From chi-squared and noise factors to the log-likelihood (physics: section 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.observation import Partition

Array = NDArray[np.float64]


class Normalisation:
    """Of each partition, over its N usable complex visibilities of weight w, with a noise factor s,

        ln L = -chi2 / (2 s^2) - N ln(2 pi) + sum ln w - 2 N ln s

    Parameters
    ----------
    partitions : sequence of Partition

    Attributes
    ----------
    n_vis : int64 (n_partition,)
    """

    def __init__(self, partitions: Sequence[Partition]) -> None:
        usable = [_usable_weights(part) for part in partitions]
        self.n_vis: NDArray[np.int64] = np.array([w.size for w in usable], dtype=np.int64)
        log_weight = np.array([np.log(w).sum() for w in usable])
        self._log_norm = log_weight - self.n_vis * np.log(2.0 * np.pi)

    def log_likelihood(self, chi2: Array, factor: Array) -> Array:
        """The sum over partitions, (n_batch,), for chi2 and s (n_batch, n_partition), finite or not."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            terms = self._log_norm - chi2 / (2.0 * factor**2) - 2.0 * self.n_vis * np.log(factor)
        # A sum over one is slow for many vectors: each is a loop of its own.
        return np.asarray(terms[:, 0] if terms.shape[1] == 1 else terms.sum(axis=1))

    def slopes(self, chi2: Array, factor: Array) -> tuple[Array, Array]:
        """d ln L / d chi2 = -1 / (2 s^2) and d ln L / ds = chi2 / s^3 - 2 N / s, (n_batch, n_partition)."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return -0.5 / factor**2, (chi2 / factor**2 - 2.0 * self.n_vis) / factor


def _usable_weights(part: Partition) -> Array:
    weight = np.asarray(part.weight, dtype=np.float64)
    return weight[weight > 0]
