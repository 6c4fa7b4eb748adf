"""Choose single or double precision: measure on the data how much single precision changes ln L."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.errors import BiroError
from biro.inference.maximum.climb import climb
from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.newton import newton
from biro.inference.maximum.objective import Objective
from biro.inference.maximum.segments.laplace import SegmentLaplace
from biro.inference.maximum.starts import starting_points
from biro.inference.target.protocol import DifferentiableLikelihood
from biro.likelihood.options import EngineOptions
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from rime_kernels.choices import Precision

log = logging.getLogger(__name__)

LikelihoodOf: TypeAlias = Callable[[Observation, Precision], DifferentiableLikelihood]
LIMIT = 0.05
"""Single precision is taken where it changes differences of ln L by less: no sampler notices that."""
N_VISIBILITY = 20_000
"""At most so many visibilities are used to find the maximum."""
N_TIME = 16
"""They are of so many times at least, where the data have as many; channels are left out before times."""
N_START, N_POINT = 8, 32
COVERED = 0.9973
"""Probability within the region in which points are compared: that of 3 sigma of one parameter."""


@dataclass(frozen=True)
class PrecisionChoice:
    """The precision that was chosen, and the reason.

    Attributes
    ----------
    precision : "double" or "single"
    difference : float
        Largest difference of ln L between the two precisions, minus that at the maximum; NaN where it could
        not be measured.
    reason : str
    """

    precision: Precision
    difference: float
    reason: str


def with_chosen_precision(
    observation: Observation,
    options: EngineOptions,
    like: Callable[[Observation, EngineOptions], DifferentiableLikelihood],
) -> tuple[EngineOptions, str]:
    """Options with the precision that is chosen, and the reason; `like` makes the likelihood of the model."""

    def likelihood_of(data: Observation, precision: Precision) -> DifferentiableLikelihood:
        return like(data, replace(options, precision=precision))

    choice = choose_precision(observation, likelihood_of)
    log.info("precision %s", choice.reason)
    return replace(options, precision=choice.precision), choice.reason


def choose_precision(observation: Observation, likelihood_of: LikelihoodOf) -> PrecisionChoice:
    """Choose single precision if it changes ln L by less than `LIMIT` within 3 sigma of the maximum.

    The maximum theta_0 of the posterior of at most `N_VISIBILITY` visibilities is found first, by climbs from
    draws of the prior. Then ln L of the whole data is computed in both precisions at points about theta_0,
    within 3 sigma of the whole data:

        difference = max |d(theta) - d(theta_0)|,   d = ln L (single) - ln L (double)

    The comparison needs the whole data, since a single visibility with a high weight that fits badly may
    cause most of the difference. The same data and model always give the same choice: the random numbers
    have a fixed seed, and no times are measured.

    Parameters
    ----------
    observation : Observation
    likelihood_of : function of an observation and a precision
        Makes the likelihood of the model.
    """

    def at(theta: NDArray[np.float64], precision: Precision) -> NDArray[np.float64]:
        """ln L of the whole data; only one of the two likelihoods is in memory at a time."""
        return np.asarray(likelihood_of(observation, precision).log_likelihood(theta))

    few = thinned(observation, N_VISIBILITY)
    log.info("precision: looking for the maximum on %d of %d visibilities", _size(few), _size(observation))
    try:
        theta = points_about_maximum(likelihood_of(few, "double"), np.sqrt(_size(few) / _size(observation)))
        log.info("precision: single against double at %d points", len(theta))
        difference = largest_difference(at(theta, "single"), at(theta, "double"))
    except BiroError as error:
        return PrecisionChoice(
            "double",
            np.nan,
            f"double: the comparison with single precision failed ({error})",
        )
    chosen: Precision = "single" if difference < LIMIT else "double"
    sign = "below" if difference < LIMIT else "not below"
    reason = f"single precision changes ln L by {difference:.2g} within 3 sigma, {sign} {LIMIT:g}"
    return PrecisionChoice(chosen, difference, f"{chosen}: {reason}")


def about_maximum(likelihood: DifferentiableLikelihood) -> tuple[Objective, Laplace | SegmentLaplace]:
    """What was climbed, and the normal approximation at the highest maximum that a few climbs find.

    Raises
    ------
    BiroError
        The model has no free parameters.
    """
    if not likelihood.n_param:
        raise BiroError("the model has no free parameters")
    objective = Objective(likelihood)
    ends, _, _ = climb(objective, starting_points(objective, N_START, np.random.default_rng(0)).theta)
    return objective, newton(objective, ends[0]).laplace


def points_about_maximum(likelihood: DifferentiableLikelihood, scale: float) -> NDArray[np.float64]:
    """The highest maximum that a few climbs find, and points within 3 sigma times `scale` of it.

    Raises
    ------
    BiroError
        The model has no free parameters.
    """
    objective, laplace = about_maximum(likelihood)
    steps = scale * (points_within(laplace, N_POINT) - laplace.theta)
    theta = np.clip(
        laplace.theta + np.concatenate([np.zeros((1, likelihood.n_param)), steps]),
        objective.low,
        objective.high,
    )
    return np.asarray(theta[np.isfinite(likelihood.log_posterior(theta))])


def largest_difference(single: NDArray[np.float64], double: NDArray[np.float64]) -> float:
    """max |d - d[0]|, d = single - double, over the points where double is finite; NaN counts as infinite."""
    usable = np.isfinite(double)
    difference = single[usable] - double[usable]
    return float(np.nan_to_num(np.abs(difference - difference[0]), nan=np.inf).max())


def points_within(laplace: Laplace | SegmentLaplace, n: int) -> NDArray[np.float64]:
    """Points of the region with 99.7 % of the probability, float64 (n, n_param).

    A quarter are draws, brought onto its edge where they lie outside; the others are all on its edge.
    """
    theta = laplace.draws(np.random.default_rng(0), n)
    free = int((laplace.side == 0).sum())
    edge = special.chdtri(max(free, 1), 1.0 - COVERED)
    reach = np.sqrt(edge / np.maximum(-2.0 * laplace.log_density(theta), 1e-12))
    reach[: n // 4] = np.minimum(reach[: n // 4], 1.0)
    return np.asarray(laplace.theta + reach[:, None] * (theta - laplace.theta))


def thinned(observation: Observation, n: int) -> Observation:
    """The observation with about n of its visibilities: of some times, evenly spread, and some channels."""
    parts = [_thinned(part, n // len(observation.partitions)) for part in observation.partitions]
    return replace(observation, partitions=tuple(parts))


def _thinned(part: Partition, n: int) -> Partition:
    if part.vis.size <= n:
        return part.whole()
    n_time = max(n * len(part.times) // part.vis.size, min(N_TIME, len(part.times)))
    slots = np.linspace(0, len(part.times) - 1, n_time).round().astype(np.int32)
    rows = np.flatnonzero(np.isin(part.time_index, slots))
    step = -(-rows.size * part.n_chan * part.n_corr // max(n, 1))
    channels = slice(min(step, part.n_chan) // 2, None, step)
    return part.some(rows, channels)


def _size(observation: Observation) -> int:
    return sum(part.n_usable for part in observation.partitions)
