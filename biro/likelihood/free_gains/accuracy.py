"""How good the Laplace approximation is, measured by importance sampling about the best gains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.best_gains import BestGains
from biro.likelihood.free_gains.joint_best import JointBest

_N_DRAW = 400
_TOLERANCE = 0.3
"""Of ln of the integral."""
LEAST_SHARE = 0.05
"""Draws that count, of all, below which the estimate itself is doubtful."""


def correction(best: BestGains, n_draw: int = _N_DRAW) -> tuple[float, float, float]:
    """ln of the integral less its Laplace approximation, its standard error, and the least share of draws.

    Draws of the normal approximation of each group of gains are weighted by the true density over it. The
    share is (sum w)^2 / sum w^2 over the number of draws, of the group where it is least.
    """
    return _mean(best.log_weights(n_draw, np.random.default_rng(0)))


def _mean(weight: NDArray[np.float64]) -> tuple[float, float, float]:
    """ln of the mean of weights, their logarithms (n_draw, n_group), summed over groups; error and share."""
    top = weight.max(axis=0)
    relative = np.exp(weight - top)
    mean = relative.mean(axis=0)
    share = np.minimum(mean**2 / (relative**2).mean(axis=0), 1.0)  # equal weights: but for roundings
    variance = (1.0 / share - 1.0) / len(weight)
    return float((top + np.log(mean)).sum()), float(np.sqrt(variance.sum())), float(share.min())


def joint_correction(best: JointBest) -> tuple[float, float, float]:
    """Correction of an integral over gains and linear parameters.

    Of the gains, at the best linear parameters; and of these, with the integral over gains beside each draw.
    """
    of_gains, of_linear = correction(best.gains), _mean(best.log_weights(np.random.default_rng(0)))
    error = float(np.hypot(of_gains[1], of_linear[1]))
    return of_gains[0] + of_linear[0], error, min(of_gains[2], of_linear[2])


def of_gains(best: BestGains) -> Accuracy:
    """How good the integral over gains is."""
    return Accuracy(correction(best), f"{best.free.layout.n} of them", "the best gains")


def of_both(best: JointBest) -> Accuracy:
    """How good an integral over gains and linear parameters is."""
    what = f"{best.gains.free.layout.n} of them and {best.z.size} marginalised quantities of the sky"
    return Accuracy(joint_correction(best), what, "the best values")


class Accuracy(NamedTuple):
    """How good an integral is.

    Attributes
    ----------
    correction : tuple of three float
        As `correction` gives it.
    what, where : str
        What is integrated over, and what the draws are around.
    """

    correction: tuple[float, float, float]
    what: str
    where: str

    @property
    def line(self) -> str:
        """A line where the approximation is off, or where that cannot be told; else ""."""
        found, error, share = self.correction
        if share < LEAST_SHARE:
            return (
                f"LAPLACE APPROXIMATION IS DOUBTFUL for {self.what}: at the best fit, too few "
                f"importance-sampling draws around {self.where} carry weight ({share:.1%}) to measure the "
                'error. Compare with gains="sample"'
            )
        if abs(found) < _TOLERANCE + 2.0 * error:
            return ""
        return (
            f"LAPLACE APPROXIMATION IS OFF for {self.what}: at the best fit, ln L is wrong by {-found:+.2f} "
            f'+- {error:.2f} (importance sampling), and so is the evidence. Compare with gains="sample"'
        )
