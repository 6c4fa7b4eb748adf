"""The climb to the maximum of a posterior whose precision falls into blocks of segments.

L-BFGS-B moves in coordinates z, y = y_0 + R z with R R^T the inverse of the precision where a round begins:
there a step of 1 is one sigma of every direction, and few steps are needed. The last steps are those of
Newton's method with the same precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.maximum.ascent import Ascent
from biro.maximum.modes import Mode, Modes
from biro.maximum.newton import ENOUGH, LARGE, NewtonResult, Point, at_ends, room_at, sides
from biro.maximum.segments.laplace import Ends, SegmentLaplace
from biro.maximum.segments.precision import posterior_arrow, space_of, unconstrained_precision
from biro.target.protocol import SegmentedLikelihood

Array = NDArray[np.float64]
N_START = 4
"""Starts from which a first round is made."""
N_ROUND = 12
"""Rounds of L-BFGS-B, each with a precision of its own, at most."""
_N_STEP = 60
"""Steps of L-BFGS-B in a round."""
_N_LAST = 40
"""Steps of Newton's method."""
_LENGTHS = 0.5 ** np.arange(8)
"""Multiples of a Newton step that are tried, all in one batch."""


class _Outcome(Protocol):
    """What is used of SciPy's `OptimizeResult`."""

    fun: float
    x: Array


class SegmentClimb:
    """The maximum that is reached from several starts; has what `Climbs` has.

    Parameters
    ----------
    ascent : Ascent
    likelihood : SegmentedLikelihood
        That of the ascent.
    starts : float64 (n_start, n_param)

    Attributes
    ----------
    ends : float64 (n_end, n_param)
    rest : NewtonResult
    found : Modes

    Raises
    ------
    LikelihoodError
        No start has a finite posterior.
    """

    disagree = False

    def __init__(self, ascent: Ascent, likelihood: SegmentedLikelihood, starts: Array) -> None:
        self._ascent, self._likelihood = ascent, likelihood
        rounds = [self._round(y) for y in ascent.y(starts)]
        value, y = max(rounds, key=lambda one: one[0])
        for _ in range(N_ROUND):
            before, (value, y) = value, self._round(y)
            if value - before < LARGE:
                break
        self.rest = self._last(ascent.theta(y[None])[0])
        if not np.isfinite(self.rest.log_posterior):
            raise LikelihoodError(f"none of the {len(starts)} starts has a finite posterior")
        self.ends = self.rest.laplace.theta[None]
        self.found = Modes((Mode(self.rest.laplace, self.rest.log_posterior),), (), 1)

    def add(self, start: Array) -> bool:
        """Nothing else is searched."""
        return False

    def _round(self, y: Array) -> tuple[float, Array]:
        """The log-posterior and the y that L-BFGS-B reaches from here."""
        from scipy import optimize

        # SciPy's stubs know no function that returns its gradient too.
        minimize: Callable[..., _Outcome] = optimize.minimize
        root = unconstrained_precision(self._likelihood, y, self._ascent.width)

        def value_and_gradient(z: Array) -> tuple[float, Array]:
            (answer,) = self._ascent.descend((y + root.draw(z[:, None])[:, 0])[None])
            return float(answer[0]), root.draw_back(answer[1:, None])[:, 0]

        options = {"maxiter": _N_STEP, "maxfun": 2 * _N_STEP, "maxcor": 8, "ftol": 1e-12, "gtol": 1e-4}
        outcome = minimize(value_and_gradient, np.zeros(y.size), jac=True, method="L-BFGS-B", options=options)
        return -float(outcome.fun), y + root.draw(outcome.x[:, None])[:, 0]

    def _last(self, theta: Array) -> NewtonResult:
        """Newton's method to where another step would add less than `ENOUGH`, and the approximation there."""
        ascent = self._ascent
        enough = ENOUGH[ascent.likelihood.precision]
        point = at_ends(ascent, theta)
        laplace = self._about(point)
        for k in range(_N_LAST):
            free = np.where(point.side == 0, point.gradient, 0.0)
            step = np.where(point.side == 0, laplace.precision.solve(free[:, None])[:, 0], 0.0)
            left = 0.5 * float(free @ step)
            if left < enough or k == _N_LAST - 1:
                break
            trial = np.clip(point.theta + np.outer(_LENGTHS, step), ascent.low, ascent.high)
            values, gradients = ascent.value_and_gradient(trial)
            best = int(np.argmax(values))
            if not values[best] > point.value:
                break
            side = sides(ascent, trial[best], gradients[best])
            changed = (side != point.side).any() or best > 1
            point = Point(trial[best], float(values[best]), gradients[best], side)
            if changed:
                laplace = self._about(point)
        laplace = self._about(point, wrapped=True)
        return NewtonResult(point.value, laplace, left)

    def _about(self, point: Point, *, wrapped: bool = False) -> SegmentLaplace:
        """The approximation about a point; `wrapped`: periodic parameters in the range of their prior."""
        ascent = self._ascent
        arrow = posterior_arrow(self._likelihood, point.theta, ascent.width)
        ends = Ends(point.side, point.gradient, room_at(ascent, point.theta))
        theta = ascent.likelihood.model.wrap(point.theta) if wrapped else point.theta
        return SegmentLaplace.about(theta, space_of(self._likelihood), arrow, ends, ascent.width)
