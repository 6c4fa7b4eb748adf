"""A lower bound of the evidence of an image, from samples of variational inference.

    ln Z >= ELBO = <ln L - |xi|^2/2> + (n - ln det D)/2

The mean is over samples, n is the count of numbers xi, and D = 1 + J^T J the Fisher metric with the prior at
their mean (Frank, Leike and Ensslin 2021, Entropy 23, 853, section 5.1; nifty.re's
`estimate_evidence_lower_bound`). For a linear model it is the evidence.

The first term scatters by sqrt(n/2) among samples, as their squared distance g from the mean in units of D
does. Its expectation n is known, so that (g - n)/2 of each sample is added: for a linear model no scatter
is left. With samples that are bent, g = v^T D^-1 v for v = xi - m + J^T (x(xi) - x(m)), where x are the
coordinates of the data in which the metric is constant.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from biro.errors import InputError

Array = NDArray[np.float64]
MOST = 64 * 64 + 512
"""Numbers of a state at most: D is a matrix of their square."""
_TOGETHER = 64
"""Columns of D that are computed at a time."""


class Elbo(NamedTuple):
    """The lower bound of ln Z, less what the noise of the data alone decides, and its error by sampling."""

    value: float
    error: float


def check_elbo(n: int) -> None:
    """Refuse states of too many numbers.

    Raises
    ------
    InputError
    """
    if n > MOST:
        raise InputError(
            f"elbo: the image has {n} numbers, and at most {MOST} are possible (64 x 64 pixels); give a "
            "smaller size, or leave elbo out"
        )


def elbo_of(likelihood: Any, mean: Array, samples: Array, *, bends: bool) -> Elbo:
    """The lower bound of the evidence of samples in pairs.

    Parameters
    ----------
    likelihood : nifty.re.Likelihood
        Of numbers (n,) with a standard normal prior.
    mean : float64 (n,)
        About which samples were drawn.
    samples : float64 (n_sample, n)
        Each pair of two neighbours is mirrored about the mean.
    bends : bool
        Whether samples are those of geoVI.
    """
    n, at = len(mean), jnp.asarray(mean)
    metric = np.concatenate(
        [
            np.asarray(_columns(likelihood, at, block))
            for block in np.split(np.eye(n), range(_TOGETHER, n, _TOGETHER))
        ]
    )
    factor = cho_factor(metric + np.eye(n), lower=True)
    half_log_det = float(np.log(np.diag(factor[0])).sum())
    energies, away = map(np.asarray, _energies(likelihood, at, jnp.asarray(samples), bends=bends))
    if bends:
        distance = np.einsum("kn,nk->k", away, cho_solve(factor, away.T))
    else:
        distance = (away**2).sum(axis=1) + np.einsum("kn,nm,km->k", away, metric, away)
    each = (0.5 * distance - energies).reshape(-1, 2).mean(axis=1) - half_log_det
    error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else np.inf
    return Elbo(float(each.mean()), error)


@partial(jax.jit)
def _columns(likelihood: Any, at: Any, vectors: Any) -> Any:
    """Products of the Fisher metric of the likelihood with vectors (n_vector, n)."""
    return jax.vmap(lambda vector: likelihood.metric(at, vector))(vectors)


@partial(jax.jit, static_argnames="bends")
def _energies(likelihood: Any, at: Any, samples: Any, *, bends: bool) -> tuple[Any, Any]:
    """-ln L + |xi|^2/2 of samples, and how far they are from the mean: v, or without bends xi - m."""
    there = likelihood.transformation(at) if bends else None

    def of_one(xi: Any) -> tuple[Any, Any]:
        energy = likelihood(xi) + 0.5 * jnp.vdot(xi, xi)
        if not bends:
            return energy, xi - at
        change = jax.tree_util.tree_map(lambda a, b: a - b, likelihood.transformation(xi), there)
        return energy, xi - at + likelihood.left_sqrt_metric(at, change)

    found: tuple[Any, Any] = jax.lax.map(of_one, samples)
    return found
