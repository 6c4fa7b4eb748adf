"""The way to the maximum of a posterior: many starts side by side, then Newton's method.

Starts move in parameters that may be any number (`biro.models.bound.unconstrained`), each with SciPy's
L-BFGS-B in a thread of its own, all of whose calls are answered in batches. The best is brought to rest in
theta with
Newton's method, projected on the priors: parameters whose density rises towards an end are put there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError, LikelihoodError
from biro.maximum.batching import BatchingPool, ask
from biro.maximum.laplace import Laplace, curvature, sigmas, step_lengths
from biro.maximum.protocol import DifferentiableLikelihood, Watch
from biro.maximum.saddles import Place, look_beside, modes

Array = NDArray[np.float64]
BATCH = 256
"""Parameter vectors in one call, at most."""
N_SCREEN, N_KEPT = 64, 4
"""Draws of the prior for each start; starts that go on to the end."""
N_EARLY, N_LATE = 40, 1000
"""Iterations of L-BFGS-B, of all starts and of those that go on."""
N_NEWTON, N_AGAIN = 30, 8
"""Steps of Newton's method, and climbs from elsewhere among them, at most."""
MEMORY = 30
"""Steps that L-BFGS-B knows the curvature by; parameters beyond that are brought to one scale first."""
ENOUGH = {"double": 1e-6, "single": 1e-2}
"""What another step would add to the log-posterior where the search is at rest."""
NEAR = 0.03
"""Standard deviations, rms, over which a curvature is as good as new."""
LARGE = 1.0
"""What a step of Newton's method would add where L-BFGS-B goes on from its end, with many parameters."""
FAR = 1e30
"""Minus the log-posterior where it is -inf: line searches want a number."""
EDGE = 0.1
"""A parameter is put at an end where that costs less than this of the log-posterior."""
HIGHER = 0.1
"""By how much of the log-posterior a place must have been higher for a search at rest to go on from it."""


class Ascent:
    """Log-posterior and gradient of a likelihood, in theta and in unconstrained parameters y.

    Attributes
    ----------
    n_row : int
        Gradients asked for.
    low, high, width : float64 (n_param,)
        Ends of the priors, infinite where there is none, and their widths.
    period : float64 (n_param,)
        Of parameters that are taken modulo it; else NaN.
    best : float
        Highest log-posterior seen.
    best_theta : float64 (n_param,)
        Where that was; empty before anything was seen.
    """

    def __init__(self, likelihood: DifferentiableLikelihood, watch: Watch | None = None) -> None:
        self.likelihood, self._watch = likelihood, watch
        self._change = likelihood.model.unconstrained
        self.low, self.high = likelihood.model.box
        ends = likelihood.model.prior_transform(np.array([[0.16], [0.84]]) * np.ones(likelihood.n_param))
        bounded = np.isfinite(self.high - self.low)
        period = np.array([p.period or np.nan for p in likelihood.parameters], float)
        self.period: Array = np.where(bounded, np.nan, period)
        self.width: Array = np.where(bounded, self.high - self.low, 3.0 * (ends[1] - ends[0]))
        self.n_row, self.best, self.best_theta = 0, -np.inf, np.empty(0)

    def value_and_gradient(self, theta: Array) -> tuple[Array, Array]:
        """Log-posterior (n,) and gradient (n, n_param), in batches of at most `BATCH`.

        Raises
        ------
        LikelihoodError
            A gradient is not a number where the log-posterior is one.
        """
        found = [
            self.likelihood.log_posterior_and_gradient(theta[i : i + BATCH])
            for i in range(0, len(theta), BATCH)
        ]
        value = np.concatenate([each for each, _ in found])
        gradient = np.concatenate([each for _, each in found])
        self._check(theta, value, gradient)
        self.n_row += len(theta)
        if value.max(initial=-np.inf) > self.best:
            self.best, self.best_theta = float(value.max()), theta[int(np.argmax(value))].copy()
        if self._watch is not None:
            self._watch(self.best)
        return value, gradient

    def gradient(self, theta: Array) -> Array:
        """Of the log-posterior, (n, n_param); NaN where that is -inf."""
        return self.value_and_gradient(theta)[1]

    def values(self, theta: Array) -> Array:
        """Log-posterior (n,) at the places of theta (n, n_param), or where they leave the prior."""
        return self.value_and_gradient(np.clip(theta, self.low, self.high))[0]

    def y(self, theta: Array) -> Array:
        return self._change.of_theta(theta)

    def pull_back(self, y: Array, slope: Array) -> Array:
        """Derivatives with respect to y from those with respect to theta, (n, n_param)."""
        return np.asarray(self._change.pull_back(y, slope))

    def theta(self, y: Array) -> Array:
        """Within the prior; periodic parameters in their range."""
        return np.clip(self.likelihood.model.wrap(self._change.theta(y)), self.low, self.high)

    def descend(self, y: Array) -> Array:
        """Minus the log-posterior and its derivatives with respect to y, (n, 1 + n_param)."""
        value, gradient = self.value_and_gradient(np.clip(self._change.theta(y), self.low, self.high))
        fine = np.isfinite(value)[:, None]
        slope = self._change.pull_back(y, np.where(fine, gradient, 0.0))
        return np.where(fine, -np.column_stack([value, slope]), FAR * (np.arange(slope.shape[1] + 1) == 0))

    def _check(self, theta: Array, value: Array, gradient: Array) -> None:
        bad = np.isfinite(value) & ~np.isfinite(gradient).all(axis=1)
        if bad.any():
            i = int(np.argmax(bad))
            names = self.likelihood.parameter_names
            culprit = names[int(np.argmin(np.isfinite(gradient[i])))]
            words = ", ".join(f"{name} = {x:.6g}" for name, x in zip(names, theta[i], strict=True))
            raise LikelihoodError(f"the derivative with respect to {culprit} is not a number at {words}")


def starting_points(ascent: Ascent, starts: int | ArrayLike, rng: np.random.Generator) -> Array:
    """Where to begin, theta (n_start, n_param).

    Parameters
    ----------
    starts : int or float64 (n_start, n_param)
        How many, the best of many draws from the prior beside its middle; or the points themselves.

    Raises
    ------
    InputError
        No such number, another shape, or points outside the prior.
    LikelihoodError
        No draw has a finite posterior.
    """
    likelihood = ascent.likelihood
    if isinstance(starts, (int, np.integer)) and not isinstance(starts, bool):
        if starts < 1:
            raise InputError(f"starts must be at least 1, got {starts}")
        return _best_draws(likelihood, int(starts), rng)
    theta = np.atleast_2d(np.asarray(starts, dtype=np.float64))
    if theta.ndim != 2 or theta.shape[1] != likelihood.n_param or not len(theta):
        raise InputError(
            f"starts must be a number, or points of shape (n_start, {likelihood.n_param}), got {theta.shape}"
        )
    outside = ~np.isfinite(likelihood.log_prior(theta))
    if outside.any():
        raise InputError(_outside(likelihood, theta[int(np.argmax(outside))]))
    return theta


def _outside(likelihood: DifferentiableLikelihood, theta: Array) -> str:
    """One line about a start outside of the prior."""
    wrapped, (low, high) = likelihood.model.wrap(theta), likelihood.model.box
    for i, parameter in enumerate(likelihood.parameters):
        if not low[i] <= wrapped[i] <= high[i]:
            unit = f" {parameter.unit}" if parameter.unit else ""
            return (
                f"a start lies outside the prior: {parameter.name} = {theta[i]:g}, which must be within "
                f"{low[i]:g} .. {high[i]:g}{unit}"
            )
    return "a start breaks a constraint of the model"


def _best_draws(likelihood: DifferentiableLikelihood, n: int, rng: np.random.Generator) -> Array:
    """The best n of the middle of the prior and draws from it, noise factors fitted."""
    unit = rng.random((N_SCREEN * n, likelihood.n_param))
    unit[0] = 0.5
    theta = likelihood.prior_transform(unit)
    value = np.full(len(theta), -np.inf)
    for i in range(0, len(theta), BATCH):
        some = slice(i, i + BATCH)
        inside = np.flatnonzero(np.isfinite(likelihood.log_prior(theta[some]))) + i
        if inside.size:
            theta[inside] = with_best_noise(likelihood, theta[inside])
            value[inside] = likelihood.log_posterior(theta[inside])
    if not np.isfinite(value).any():
        raise LikelihoodError(
            f"none of {len(theta)} draws from the prior has a finite posterior; check the model"
        )
    order = np.argsort(-value, kind="stable")[:n]
    return theta[order[np.isfinite(value[order])]]


def with_best_noise(likelihood: DifferentiableLikelihood, theta: Array) -> Array:
    """theta (n, n_param) with fitted noise factors where the likelihood is highest, within the prior.

    s^2 = sum chi2 / sum 2 N over the partitions of a factor s.
    """
    chi2, n_vis, moved = likelihood.chi2(theta), likelihood.n_vis, theta.copy()
    low, high = likelihood.model.box
    for i, (together, unit) in likelihood.model.noise_parameters.items():
        best = np.sqrt(chi2[:, together].sum(axis=1) / (2.0 * n_vis[together].sum())) / unit
        moved[:, i] = np.where(np.isfinite(best), np.clip(best, low[i], high[i]), theta[:, i])
    return moved


def climb(ascent: Ascent, theta: Array) -> tuple[Array, Array]:
    """From several starts to local maxima, best first: theta (n, n_param) and log-posterior (n,).

    All go some way, the best of them to the end.
    """
    y, value = _descend(ascent, ascent.y(theta), N_EARLY)
    if len(y) > N_KEPT:
        y, value = y[:N_KEPT], value[:N_KEPT]
    sigma = None
    if y.shape[1] > MEMORY:
        at, precision = ascent.theta(y[:1])[0], ascent.likelihood.precision
        step = step_lengths(ascent.gradient, at, ascent.low, ascent.high, 1e-4 * ascent.width, precision)
        sigma = sigmas(step, precision)
    y, value = _to_the_end(ascent, y, sigma)
    return ascent.theta(y), value


def _to_the_end(ascent: Ascent, y: Array, sigma: Array | None) -> tuple[Array, Array]:
    """As `_descend`, for as long as it takes, in units of theta's errors where these are given."""
    return _descend(ascent, y, N_LATE, None if sigma is None else _scale(ascent, y[0], sigma))


def _scale(ascent: Ascent, y: Array, sigma: Array) -> Array:
    """About one sigma of each y, from those of theta, (n_param,)."""
    slope = np.diag(ascent.pull_back(np.broadcast_to(y, (y.size, y.size)), np.eye(y.size)))
    with np.errstate(divide="ignore"):
        found = sigma / np.abs(slope)
    return np.clip(np.where(np.isfinite(found), found, 1.0), 1e-9, 1.0)


def _descend(ascent: Ascent, y: Array, n_iteration: int, scale: Array | None = None) -> tuple[Array, Array]:
    """L-BFGS-B from each start, all side by side, in y over a scale; best first."""
    from scipy import optimize

    minimize: Any = optimize.minimize  # its stubs know no function that returns its gradient too
    unit = np.ones(y.shape[1]) if scale is None else scale

    def answer(row: Array) -> tuple[float, Array]:
        found = ask(row * unit)
        return float(found[0]), found[1:] * unit

    def one(start: Array) -> tuple[float, Array]:
        options = {
            "maxiter": n_iteration,
            "maxfun": 2 * n_iteration,
            "maxcor": MEMORY,
            "ftol": 1e-11,
            "gtol": 1e-9,
        }
        outcome = minimize(answer, start / unit, jac=True, method="L-BFGS-B", options=options)
        return -float(outcome.fun), outcome.x * unit

    with BatchingPool(ascent.descend, len(y)) as pool:
        ends = sorted(pool.map(one, list(y)), key=lambda end: -end[0])
    return np.array([end for _, end in ends]), np.array([value for value, _ in ends])


@dataclass(frozen=True, eq=False)
class Rest:
    """Where a search came to rest.

    Attributes
    ----------
    log_posterior : float
    laplace : Laplace
    left : float
        What another step of Newton's method would add to the log-posterior.
    """

    log_posterior: float
    laplace: Laplace
    left: float


def settle(ascent: Ascent, theta: Array) -> Rest:
    """Newton's method from near a maximum, until another step would change nothing.

    Curvature comes from differences of the gradient. Parameters at an end of their prior with a slope
    outwards stay there, the others move. Where the search is at rest it looks about itself (`look_beside`),
    and goes on from a place that was higher, wherever that was seen.
    """
    precision = ascent.likelihood.precision
    step, matrix = 1e-4 * ascent.width, np.empty((0, 0))
    where: Array | None = None
    again = 0
    for k in range(N_NEWTON + 1):
        theta, value, gradient, side = _at_ends(ascent, theta)
        if where is None or _apart(theta, where, matrix) > NEAR:
            step = step_lengths(ascent.gradient, theta, ascent.low, ascent.high, step, precision)
            matrix, where = curvature(ascent.gradient, theta, ascent.low, ascent.high, step), theta
        move = _newton_step(matrix, gradient, side, ascent.width)
        left = 0.5 * float(gradient @ move)
        if k == N_NEWTON:  # value and curvature are those of theta, however far it has come
            break
        if left >= ENOUGH[precision]:
            trial = theta + np.outer(np.concatenate([[2.0, 1.5], 0.5 ** np.arange(14)]), move)
            trial = np.clip(trial, ascent.low, ascent.high)
            found = ascent.values(trial)
            if found.max() > value + ENOUGH[precision]:
                theta = trial[int(np.argmax(found))]
                if left > LARGE and theta.size > MEMORY:  # curvature costs more than to climb
                    theta = _climbed(ascent, theta, matrix)
                continue
        look_beside(ascent, Place(theta, value, gradient, matrix, side))
        if ascent.best > value + HIGHER and again < N_AGAIN:
            theta = _climbed(ascent, ascent.best_theta, matrix)
            again += 1
            continue
        if left < ENOUGH[precision]:
            theta, value, gradient = _last_step(ascent, theta, move, value, gradient)
            side = _sides(ascent, theta, gradient)  # it may have ended at an end
        break
    # A prior with one end alone goes on as far as anybody looks.
    room = np.minimum([theta - ascent.low, ascent.high - theta], 1e6 * ascent.width)
    room = np.where(np.isfinite(ascent.period), 0.5 * ascent.period, room)
    theta = ascent.likelihood.model.wrap(theta)
    return Rest(value, Laplace.about(theta, gradient, matrix, side, ascent.width, room, precision), left)


def _climbed(ascent: Ascent, theta: Array, matrix: Array) -> Array:
    """Where L-BFGS-B leads from theta, in units of errors by a curvature (n_param, n_param) near by."""
    sigma = None
    if theta.size > MEMORY:
        sigma = 1.0 / np.sqrt(np.maximum(np.nan_to_num(np.abs(np.diag(matrix))), 1.0 / ascent.width**2))
    return ascent.theta(_to_the_end(ascent, ascent.y(theta[None]), sigma)[0])[0]


def _apart(theta: Array, other: Array, matrix: Array) -> float:
    """Root mean square distance of two points, in standard deviations of parameters whose others are held."""
    weight = np.nan_to_num(np.abs(np.diag(matrix)))
    return float(np.sqrt(np.mean(weight * (theta - other) ** 2)))


def _last_step(
    ascent: Ascent, theta: Array, move: Array, value: float, gradient: Array
) -> tuple[Array, float, Array]:
    """One more step, which costs nothing but a gradient; not where rounding makes it a step down."""
    moved = np.clip(theta + move, ascent.low, ascent.high)
    (there,), (slope,) = ascent.value_and_gradient(moved[None])
    return (moved, float(there), slope) if there >= value else (theta, value, gradient)


def _at_ends(ascent: Ascent, theta: Array) -> tuple[Array, float, Array, NDArray[np.int64]]:
    """theta, with parameters whose density rises to an end near by put there; value, gradient, and ends."""
    (value,), (gradient,) = ascent.value_and_gradient(theta[None])
    end = np.where(gradient > 0.0, ascent.high, ascent.low)
    with np.errstate(invalid="ignore"):
        near = np.isfinite(end) & (np.abs(gradient * (end - theta)) < EDGE)
        near &= np.abs(end - theta) < 1e-3 * ascent.width
    # Each by itself first: a slope near 0 foretells little of an end that is far, as noise factors' are; and
    # where the density falls towards the end, the maximum lies within, however little that is worth.
    each = np.flatnonzero(near)
    if each.size:
        alone, row = np.repeat(theta[None], each.size, axis=0), np.arange(each.size)
        alone[row, each] = end[each]
        values, slopes = ascent.value_and_gradient(alone)
        outwards = np.where(end == ascent.high, 1.0, -1.0)[each] * slopes[row, each]
        near[each] = (values >= value - EDGE) & (outwards >= 0.0)
    if near.any():
        moved = np.where(near, end, theta)
        (there,), (slope,) = ascent.value_and_gradient(moved[None])
        if there >= value - EDGE:
            theta, value, gradient = moved, there, slope
    return theta, float(value), gradient, _sides(ascent, theta, gradient)


def _sides(ascent: Ascent, theta: Array, gradient: Array) -> NDArray[np.int64]:
    """-1 and 1 for parameters at an end of their prior to which the density rises, else 0."""
    side = np.where((theta <= ascent.low) & (gradient <= 0.0), -1, 0)
    return np.where((theta >= ascent.high) & (gradient >= 0.0), 1, side)


def _newton_step(matrix: Array, gradient: Array, side: NDArray[np.int64], width: Array) -> Array:
    """P^-1 gradient of what may move, no mode beyond the prior; where P curves the wrong way, uphill."""
    free, scale, values, vectors = modes(matrix, side, width)
    move = np.zeros(gradient.size)
    if not free.size:
        return move
    along = (vectors.T @ (gradient[free] / scale)) / np.maximum(np.abs(values), 1e-9)
    each = vectors * along / scale[:, None]
    move[free] = (each / np.maximum(1.0, np.max(np.abs(each) / width[free, None], axis=0))).sum(axis=1)
    return move
