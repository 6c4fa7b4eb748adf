"""Changes of the model that the fit of the sky makes by itself: of its flux, place and size, to first order.

They are real mixtures of F_k V with F = 1, i u, i v, u^2, u v, v^2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

POWERS = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
"""Powers of u and v in F."""
IS_TURNED = np.array([False, True, True, False, False, False])
"""Which of F have the factor i."""
GROUPS = ([0], [1, 2], [3, 4, 5])
"""Flux, place and size."""
PER_TANGENT = 20
"""Real and imaginary parts that there must be for each change of the model."""
FREE = 16.0
"""Decrease of chi2, in units of its mean, that a change which the fit has made can have left by chance."""


def free_mixture(gram: Array, product: Array, square: float, n_real: int) -> Array:
    """Orthonormal mixtures of F V, float64 (n_tangent, 6), along which the fit was free.

    Where a group of them lowers chi2 beyond chance, the fit was not free to change it, and it is left out.
    There are none of few samples, or of an empty model.

    Parameters
    ----------
    gram : float64 (6, 6)
        Products of F V with each other, as real and imaginary parts.
    product : float64 (6,)
        Those with the residuals.
    square : float
        Sum |r|^2 of the residuals.
    n_real : int
        Number of their real and imaginary parts.
    """
    free = [np.zeros((0, len(POWERS)))]
    if n_real < PER_TANGENT * len(POWERS):
        return free[0]
    for group in GROUPS:
        own = _orthonormal(gram[np.ix_(group, group)])
        mixture = np.zeros((len(own), len(POWERS)))
        mixture[:, group] = own
        if np.sum((mixture @ product) ** 2) < FREE * square / n_real:
            free.append(mixture)
    together = np.concatenate(free)
    return np.asarray(_orthonormal(together @ gram @ together.T) @ together)


def _orthonormal(gram: Array) -> Array:
    """Mixtures (n, k) of k vectors with these products that are orthonormal."""
    size = np.sqrt(np.diag(gram))
    some = np.flatnonzero(size > 0)
    values, vectors = np.linalg.eigh(gram[np.ix_(some, some)] / np.outer(size[some], size[some]))
    kept = values > 1e-8
    found = np.zeros((int(np.count_nonzero(kept)), len(gram)))
    found[:, some] = (vectors[:, kept] / np.sqrt(values[kept])).T / size[some]
    return found
