"""How good the Laplace approximation is, measured by importance sampling about the best gains."""

from __future__ import annotations

import numpy as np

from biro.free_gains.best_gains import BestGains

_N_DRAW = 400
_TOLERANCE = 0.3
"""Of ln of the integral."""
_LEAST_SHARE = 0.05
"""Draws that count, of all, below which the estimate itself is doubtful."""


def correction(best: BestGains, n_draw: int = _N_DRAW) -> tuple[float, float, float]:
    """ln of the integral less its Laplace approximation, its standard error, and the least share of draws.

    Draws of the normal approximation of each group of gains are weighted by the true density over it. The
    share is (sum w)^2 / sum w^2 over the number of draws, of the group where it is least.
    """
    weight = best.log_weights(n_draw, np.random.default_rng(0))
    top = weight.max(axis=0)
    relative = np.exp(weight - top)
    mean = relative.mean(axis=0)
    share = np.minimum(mean**2 / (relative**2).mean(axis=0), 1.0)  # equal weights: but for roundings
    variance = (1.0 / share - 1.0) / n_draw
    return float((top + np.log(mean)).sum()), float(np.sqrt(variance.sum())), float(share.min())


def accuracy_line(best: BestGains) -> str:
    """A line where the approximation is off, or where that cannot be told; else ""."""
    found, error, share = correction(best)
    n = best.free.layout.n
    if share < _LEAST_SHARE:
        return (
            f"gains: the Laplace approximation of the integral over {n} of them is doubtful at the best fit: "
            f"too few of the draws about the best gains count ({share:.1%}) to tell by how much; compare "
            'gains="sample"'
        )
    if abs(found) < _TOLERANCE + 2.0 * error:
        return ""
    return (
        f"gains: by importance sampling, the integral over {n} of them is off by {-found:+.2f} +- "
        f'{error:.2f} in ln L at the best fit, and evidences with it; compare gains="sample"'
    )
