"""From chi-squared and noise to the log-likelihood (physics: section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.observation.partition import Partition

Array = NDArray[np.float64]


class NoiseFactorTerms(NamedTuple):
    """What ln L has of the noise factor s, (n_batch or 1, n_partition) each."""

    twice_square: Array  # 2 s^2
    log_volume: Array  # 2 N ln s


class Normalisation:
    """ln L of N usable complex visibilities of weight w of each partition, with a noise factor s,

        ln L = -chi2 / (2 s^2) - N ln(2 pi) + sum ln w - 2 N ln s

    and where noise is Student's t with nu degrees of freedom the same with (1 + 2/nu) chi2 for chi2, which
    then is sum t ln(1 + w |D - V|^2 / t) with the scaled degrees of freedom t = nu s^2 (`Rime.chi2`). In
    two dimensions the density of a sample is w / (2 pi s^2) at its centre whatever nu is, because
    Gamma(nu/2 + 1) / Gamma(nu/2) = nu/2.

    Of data that are not visibilities, such as closures, 2 N is the number of real data, and the rest is what
    makes the density of these a normalised one.

    Parameters
    ----------
    n_vis : sequence of int
        Visibilities that count in each partition.
    n_data : sequence of int
        Real numbers that chi2 is a sum over.
    log_norm : sequence of float
        ln L where chi2 is 0 and s is 1.

    Attributes
    ----------
    n_vis, n_data : int64 (n_partition,)
    """

    def __init__(self, n_vis: Sequence[int], n_data: Sequence[int], log_norm: Sequence[float]) -> None:
        self.n_vis: NDArray[np.int64] = np.array(n_vis, dtype=np.int64)
        self.n_data: NDArray[np.int64] = np.array(n_data, dtype=np.int64)
        self._log_norm = np.array(log_norm)

    @classmethod
    def of_visibilities(cls, partitions: Sequence[Partition]) -> Normalisation:
        """The normalisation for the usable visibilities of each partition."""
        n_vis = [part.n_usable for part in partitions]
        log_weight = [sum(part.by_block(_log_weight)) for part in partitions]
        log_norm = [float(sum_ - n * np.log(2.0 * np.pi)) for sum_, n in zip(log_weight, n_vis, strict=True)]
        return cls(n_vis, [2 * n for n in n_vis], log_norm)

    def of_factor(self, factor: Array) -> NoiseFactorTerms:
        """The terms of s (n_batch or 1, n_partition), finite or not."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return NoiseFactorTerms(
                2.0 * factor**2, np.asarray(self.n_data * np.log(factor), dtype=np.float64)
            )

    def log_likelihood(self, chi2: Array, of_factor: NoiseFactorTerms, dof: Array | None = None) -> Array:
        """The sum over partitions, (n_batch,), for chi2, s and nu (n_batch, n_partition), finite or not."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            grown = chi2 if dof is None else (1.0 + 2.0 / dof) * chi2
            terms = self._log_norm - grown / of_factor.twice_square - of_factor.log_volume
        # A sum over one is slow for many vectors: each is a loop of its own.
        return np.asarray(terms[:, 0] if terms.shape[1] == 1 else terms.sum(axis=1))

    def of_partition(self, i: int, chi2: float, factor: float) -> float:
        """ln L of partition i, for its chi2 and s."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return float(self._log_norm[i] - chi2 / (2.0 * factor**2) - self.n_data[i] * np.log(factor))

    def slopes(self, chi2: Array, factor: Array) -> tuple[Array, Array]:
        """d ln L / d chi2 = -1 / (2 s^2) and d ln L / ds = chi2 / s^3 - 2 N / s, (n_batch, n_partition)."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return -0.5 / factor**2, (chi2 / factor**2 - self.n_data) / factor

    def student_slopes(
        self, chi2: Array, by_scaled_dof: Array, factor: Array, dof: Array
    ) -> tuple[Array, Array, Array]:
        """d ln L / d chi2, d ln L / ds and d ln L / dnu of Student's t, (n_batch, n_partition).

        With x = w |D - V|^2 / s^2 and X = sum x / (nu + x) = chi2 / t - d chi2 / dt,

            d ln L / ds  = ((nu + 2) X - 2 N) / s
            d ln L / dnu = ((1 + 2/nu) X - chi2 / t) / 2
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            log_sum, grown = chi2 / (dof * factor**2), 1.0 + 2.0 / dof
            x = log_sum - by_scaled_dof
            by_factor = (dof * grown * x - self.n_data) / factor
            return -0.5 * grown / factor**2, by_factor, 0.5 * (grown * x - log_sum)


def student_information(factor: Array, dof: Array) -> tuple[Array, Array, Array, Array]:
    """Fisher information of a complex sample of weight w whose noise is Student's t, with s and nu.

    With B = x / (nu + x), which has the distribution Beta(1, nu/2), and -ln(1 - B), which is exponential:

        of V, real and imaginary part alike    w / s^2 (nu + 2) / (nu + 4)
        of s                                   4 nu / ((nu + 4) s^2)
        of s and nu                            -4 / ((nu + 2) (nu + 4) s)
        of nu                                  8 / (nu^2 (nu + 2) (nu + 4))

    none of V and the others. The first is returned by w: what J^T w J is to be multiplied by.
    """
    return (
        (dof + 2.0) / ((dof + 4.0) * factor**2),
        4.0 * dof / ((dof + 4.0) * factor**2),
        -4.0 / ((dof + 2.0) * (dof + 4.0) * factor),
        8.0 / (dof**2 * (dof + 2.0) * (dof + 4.0)),
    )


def _log_weight(_: NDArray[np.complexfloating], weight: NDArray[np.floating]) -> float:
    """sum ln w of a block."""
    return float(np.log(weight[weight > 0].astype(np.float64)).sum())
