"""Differential evolution: a search of the whole prior for the highest likelihood."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution

from biro.errors import LikelihoodError
from biro.inference.maximum.objective import Outcome
from biro.inference.target.checked import Target
from biro.inference.target.protocol import Watch

log = logging.getLogger(__name__)

_N_SEARCH, _N_CONVERGE = 80, 200
"""Generations of differential evolution, at most: searching, then converging."""
EDGE = 1e-12
"""Points stay this far inside of the unit cube, where unbounded priors are finite."""


def search(target: Target, seed: int, watch: Watch | None = None) -> tuple[NDArray[np.float64], float]:
    """Near the highest likelihood over the prior, by differential evolution: point of the unit cube, ln L.

    Parameters
    ----------
    target : Target
    seed : int
    watch : function of the best log-likelihood so far, optional
        Called after each generation; what it raises ends the search.

    Raises
    ------
    LikelihoodError
        No point of the prior has a finite likelihood.
    """
    n_param = target.n_param
    rng = np.random.default_rng(seed)
    first = _first_population(target, rng, int(np.clip(32 * n_param, 64, 256)))
    value = target.log_likelihood_of_unit(first)
    worst = value[np.isfinite(value)].min() - 1e3

    def cost(columns: NDArray[np.float64]) -> NDArray[np.float64]:
        values = target.log_likelihood_of_unit(inside_cube(columns.T))
        return -np.where(np.isfinite(values), values, worst)

    def after_generation(intermediate_result: Outcome) -> None:
        if watch is not None:
            watch(-float(intermediate_result.fun))

    # SciPy's stubs know no vectorized costs.
    minimise: Callable[..., Outcome] = differential_evolution
    common = {
        "bounds": [(0.0, 1.0)] * n_param,
        "mutation": (0.4, 0.9),
        "recombination": 0.9,
        "tol": 0.0,
        "atol": 0.1,
        "polish": False,
        "updating": "deferred",
        "vectorized": True,
        "rng": rng,
        "callback": after_generation,
    }
    # Random parents search the whole prior, then the best parent converges: alone it may end in a sidelobe.
    outcome = minimise(cost, init=first, maxiter=_N_SEARCH, strategy="rand1bin", **common)
    outcome = minimise(cost, init=outcome.population, maxiter=_N_CONVERGE, strategy="best1bin", **common)
    log.info("search: log-likelihood %.3f after %d generations", -outcome.fun, outcome.nit)
    return inside_cube(outcome.x), float(-outcome.fun)


def _first_population(target: Target, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """The best n of prior draws; more are drawn while hardly any is allowed."""
    points, values = np.empty((0, target.n_param)), np.empty(0)
    for _ in range(50):
        draws = rng.random((8 * n, target.n_param))
        points = np.concatenate([points, draws])
        values = np.concatenate([values, target.log_likelihood_of_unit(draws)])
        if np.isfinite(values).sum() >= n:
            break
    good = np.isfinite(values)
    if not good.any():
        raise LikelihoodError(
            f"none of {len(points)} draws from the prior has a finite likelihood; check the priors"
        )
    order = np.argsort(-values, kind="stable")[: min(n, max(int(good.sum()), 5))]
    return points[order]


def inside_cube(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the unit cube, no nearer to its faces than `EDGE`."""
    return np.clip(unit, EDGE, 1.0 - EDGE)
