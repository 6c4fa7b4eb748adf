"""Conjugate gradients of the variational posterior, compiled once for all iterations of a run.

Those of nifty that move the mean are a loop of Python. Its calls of JAX take longer than a metric of a small
image, and on a GPU longer than one of a large image.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import nifty.re as jft
from nifty.re.conjugate_gradient import CGResults


def conjugate_gradients(likelihood: Any, samples: Any) -> Callable[..., CGResults]:
    """A solver for Newton's method of nifty, whose matrix is the mean metric over samples.

    Parameters
    ----------
    likelihood : jft.Likelihood
    samples : jft.Samples

    Returns
    -------
    function
        Takes the metric as nifty binds it to the mean, the gradient, and the limits of `jft.static_cg`.
    """

    def solve(mat: Any, gradient: Any, *, absdelta: float, resnorm: float, maxiter: int, **_: Any) -> Any:
        mean = mat.args[-1]
        found, info = _solved(likelihood, samples, mean, gradient, absdelta, resnorm, maxiter)
        return CGResults(x=found, info=info, nit=0, nfev=0, success=info == 0)

    return solve


@partial(jax.jit, static_argnames="maxiter")
def _solved(
    likelihood: Any, samples: Any, mean: Any, gradient: Any, absdelta: Any, resnorm: Any, maxiter: int
) -> Any:
    points = samples.at(mean).samples

    def metric(tangent: Any) -> Any:
        of_all = jax.vmap(likelihood.metric, in_axes=(0, None))(points, tangent)
        return jnp.mean(of_all, axis=0) + tangent

    return jft.static_cg(
        metric,
        gradient,
        absdelta=absdelta,
        resnorm=resnorm,
        norm_ord=1,
        maxiter=maxiter,
        _raise_nonposdef=False,
    )
