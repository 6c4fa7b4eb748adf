"""The climb to the maximum of a posterior whose precision falls into blocks of segments.

Steps are those of Gauss and Newton, with the Fisher information and the curvature of the prior for second
derivatives: phases of all antennas that begin anywhere fall into place in some ten steps. Where no part of a
step leads higher, L-BFGS-B goes on in coordinates z, y = y_0 + R z with R R^T the inverse of the precision
there, so that a step of 1 is one sigma of every direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.inference.maximum.modes import Mode, Modes
from biro.inference.maximum.newton import (
    ENOUGH,
    NewtonPoint,
    NewtonResult,
    at_ends,
    room_at,
    sides,
)
from biro.inference.maximum.objective import Objective, Outcome
from biro.inference.maximum.segments.laplace import PriorEnds, SegmentLaplace
from biro.inference.maximum.segments.precision import (
    posterior_arrowhead,
    space_of,
    unconstrained_precision,
)
from biro.inference.target.protocol import SegmentedLikelihood

Array = NDArray[np.float64]
N_START = 4
"""Starts from which first steps are made."""
_N_FIRST, _N_STEP = 6, 60
"""Steps of Gauss and Newton: from each start, and from the best of these."""
_N_ROUND, _N_LBFGS = 4, 60
"""Rounds of L-BFGS-B between such steps at most, and steps of each."""
_LENGTHS = 0.5 ** np.arange(8)
"""Multiples of a step that are tried, all in one batch."""


class SegmentClimb:
    """The maximum that is reached from several starts; has what `Climbs` has.

    Parameters
    ----------
    objective : Objective
    likelihood : SegmentedLikelihood
        That of the objective.
    starts : float64 (n_start, n_param)

    Attributes
    ----------
    n_start, n_climb : int
        Starts, and ends that were compared: one.
    rest : NewtonResult
    found : Modes

    Raises
    ------
    LikelihoodError
        No start has a finite posterior.
    """

    def __init__(self, objective: Objective, likelihood: SegmentedLikelihood, starts: Array) -> None:
        self._ascent, self._likelihood = objective, likelihood
        first = [self._newton(theta, _N_FIRST) for theta in starts]
        rest = max(first, key=lambda one: one.log_posterior)
        enough = ENOUGH[objective.likelihood.precision]
        for _ in range(_N_ROUND):
            rest = self._newton(rest.laplace.theta, _N_STEP)
            if rest.left < enough:
                break
            rest = self._newton(self._round(rest.laplace.theta), _N_FIRST)
        self.rest = rest
        if not np.isfinite(self.rest.log_posterior):
            raise LikelihoodError(f"none of the {len(starts)} starts has a finite posterior")
        self.n_start, self.n_climb = len(starts), 1
        self.found = Modes((Mode(self.rest.laplace, self.rest.log_posterior),), (), (1,))

    def _newton(self, theta: Array, n_step: int) -> NewtonResult:
        """Where steps of Gauss and Newton lead, until another one would add less than `ENOUGH`."""
        objective, enough = self._ascent, ENOUGH[self._ascent.likelihood.precision]
        point = at_ends(objective, theta)
        for k in range(n_step + 1):
            laplace = self._about(point)
            free = np.where(point.side == 0, point.gradient, 0.0)
            step = np.where(point.side == 0, laplace.precision.solve(free[:, None])[:, 0], 0.0)
            left = 0.5 * float(free @ step)
            higher = None if left < enough or k == n_step else self._along(point, step)
            if higher is None:
                break
            point = higher
        wrapped = replace(laplace, theta=objective.likelihood.model.wrap(point.theta))
        return NewtonResult(point.value, wrapped, left)

    def _along(self, point: NewtonPoint, step: Array) -> NewtonPoint | None:
        """The best point along a step, within the prior; None where none is higher."""
        objective = self._ascent
        trial = np.clip(point.theta + np.outer(_LENGTHS, step), objective.low, objective.high)
        values, gradients = objective.value_and_gradient(trial)
        best = int(np.argmax(values))
        if not values[best] > point.value:
            return None
        side = sides(objective, trial[best], gradients[best])
        return NewtonPoint(trial[best], float(values[best]), gradients[best], side)

    def _round(self, theta: Array) -> Array:
        """The theta that L-BFGS-B reaches from here."""
        from scipy import optimize

        # SciPy's stubs know no function that returns its gradient too.
        minimize: Callable[..., Outcome] = optimize.minimize
        objective = self._ascent
        y: Array = objective.y(theta[None])[0]
        root = unconstrained_precision(self._likelihood, y, objective.width)

        def value_and_gradient(z: Array) -> tuple[float, Array]:
            (answer,) = objective.negative_log_posterior((y + root.draw(z[:, None])[:, 0])[None])
            return float(answer[0]), root.draw_back(answer[1:, None])[:, 0]

        options = {"maxiter": _N_LBFGS, "maxfun": 2 * _N_LBFGS, "maxcor": 8, "ftol": 1e-12, "gtol": 1e-4}
        outcome = minimize(value_and_gradient, np.zeros(y.size), jac=True, method="L-BFGS-B", options=options)
        return np.asarray(objective.theta((y + root.draw(outcome.x[:, None])[:, 0])[None])[0])

    def _about(self, point: NewtonPoint) -> SegmentLaplace:
        objective = self._ascent
        arrowhead = posterior_arrowhead(self._likelihood, point.theta, objective.width)
        ends = PriorEnds(point.side, point.gradient, room_at(objective, point.theta))
        return SegmentLaplace.about(point.theta, space_of(self._likelihood), arrowhead, ends, objective.width)
