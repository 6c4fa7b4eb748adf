"""A changed sky model fitted to residuals: Gauss-Newton steps of all parameters of its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from biro.diagnosis.causes.fitted_sky import ThinPredictor
from biro.diagnosis.causes.samples import Array, Complex, Index, ResidualSamples, parts_of
from biro.models.bound.model import BoundModel

N_STEP, N_TRIAL = 12, 2
"""Steps of a fit, and those after which the better starts go on."""
DAMPING, LESS, MORE = 1e-3, 0.2, 6.0
SMALL, TARGET = 1e-2, 1e-3
"""Part of the model by which a step of a derivative may change it, and should."""
CONVERGED = 1e-3
"""Part of a decrease of sum |r|^2 that a further step adds at least."""
MOST_FREE = 40


@dataclass(frozen=True, eq=False)
class ThinSamples:
    """Samples at the times and channels of a predictor, and where they are in what it predicts."""

    own: ResidualSamples
    predictor: ThinPredictor
    row: Index
    chan: Index

    @classmethod
    def of(cls, samples: ResidualSamples, predictor: ThinPredictor) -> ThinSamples:
        """The samples that a predictor knows."""
        known, row = np.zeros(samples.n, bool), np.zeros(samples.n, np.int64)
        step = np.array(predictor.steps)[samples.part]
        for i, rows in enumerate(predictor.rows):
            here = samples.part == i
            place = np.searchsorted(rows, samples.row[here])
            row[here] = np.minimum(place, max(len(rows) - 1, 0))
            known[here] = (place < len(rows)) & (rows[row[here]] == samples.row[here]) if len(rows) else False
        known &= samples.chan % step == 0
        return cls(samples.only(known), predictor, row[known], (samples.chan // step)[known])

    def predict(self, model: BoundModel, thetas: Array) -> Complex:
        """Model visibilities times `root`, complex128 (n_batch, n)."""
        found = np.empty((len(thetas), self.own.n), np.complex128)
        for i, vis in enumerate(self.predictor.predict(model, thetas)):
            here = self.own.part == i
            found[:, here] = vis[:, self.row[here], self.chan[here], self.own.corr[here]]
        return found * self.own.root


@dataclass(frozen=True, eq=False)
class SkyFit:
    """Parameters of a changed sky that fit best.

    Attributes
    ----------
    theta : float64 (n_param,)
    drop : float
        By how much sum |r|^2 decreases.
    """

    theta: Array
    drop: float


def fit_sky(
    thin: ThinSamples, now: Complex, model: BoundModel, start: Array, free: Index, n_step: int = N_STEP
) -> SkyFit:
    """Fit some parameters of a model to data, with the penalty of their priors.

    Parameters
    ----------
    thin : ThinSamples
    now : complex128 (n,)
        What the fit has predicted, times `root`: the data are this plus the residuals.
    model : BoundModel
    start : float64 (n_param,)
    free : int64 (n_free,)
        Which parameters are fitted.
    n_step : int
        Gauss-Newton steps at most.
    """
    data = now + thin.own.residual
    box = np.array(model.box)
    inside = np.clip(start, *box)
    before = thin.own.square
    base = float(model.log_prior(inside))
    theta, left = inside, data - thin.predict(model, inside[None])[0]
    cost = _cost(left, model, theta, base)
    width = _first_steps(model, theta, free, box)
    damping = DAMPING
    for _ in range(n_step):
        width, columns = _derivatives(thin, model, theta, data - left, free, width, box)
        normal, side = _normal(columns, left, model, theta, free, width)
        fallen = False
        for _ in range(4):
            scale = np.sqrt(np.maximum(np.diag(normal), 1e-300))
            scaled = normal / np.outer(scale, scale) + damping * np.eye(len(free))
            change = np.linalg.lstsq(scaled, side / scale, rcond=1e-12)[0] / scale
            trial = theta.copy()
            trial[free] += change
            trial = np.clip(model.wrap(trial), *box)
            there = data - thin.predict(model, trial[None])[0]
            price = _cost(there, model, trial, base)
            if price < cost:
                fallen, gained = True, cost - price
                theta, left, cost, damping = trial, there, price, damping * LESS
                break
            damping *= MORE
        if not fallen or gained < CONVERGED * max(before - cost, 0.0) or gained < 0.1:
            break
    return SkyFit(theta, before - float(np.vdot(left, left).real))


def _cost(left: Complex, model: BoundModel, theta: Array, base: float) -> float:
    """Sum |r|^2 - 2 ln prior, infinite outside the prior or where the model has no value."""
    square, prior = float(np.vdot(left, left).real), float(model.log_prior(theta))
    if not np.isfinite(square) or not np.isfinite(prior):
        return np.inf
    return square - 2.0 * (prior - base if np.isfinite(base) else 0.0)


def _first_steps(model: BoundModel, theta: Array, free: Index, box: Array) -> Array:
    middle = model.prior_transform(np.array([[0.3] * len(theta), [0.7] * len(theta)]))
    size = np.abs(middle[1] - middle[0])[free]
    return np.asarray(1e-3 * np.where(size > 0.0, size, np.maximum(np.abs(theta[free]), 1e-6)))


def _derivatives(
    thin: ThinSamples, model: BoundModel, theta: Array, now: Complex, free: Index, width: Array, box: Array
) -> tuple[Array, Complex]:
    """Derivatives of the model, complex128 (n_free, n), by differences over steps that suit it."""
    power = float(np.vdot(now, now).real)
    for _ in range(4):
        moved = np.repeat(theta[None], len(free), axis=0)
        above, below = box[1][free] - theta[free], theta[free] - box[0][free]
        width = np.minimum(width, 0.5 * np.maximum(above, below))
        step = np.where(above >= below, width, -width)
        moved[np.arange(len(free)), free] += step
        change = thin.predict(model, moved) - now
        size = np.sqrt(np.sum(np.abs(change) ** 2, axis=1) / max(power, 1e-300))
        wrong = (size > SMALL) | ((size < SMALL * TARGET**2) & (size > 0.0))
        if not wrong.any():
            break
        width = np.where(wrong, width * np.clip(TARGET / np.maximum(size, 1e-300), 1e-4, 1e4), width)
    return np.abs(step), change / step[:, None]


def _normal(
    columns: Complex, left: Complex, model: BoundModel, theta: Array, free: Index, width: Array
) -> tuple[Array, Array]:
    """Normal equations of the residuals and of the slope of the prior."""
    columns = np.where(np.isfinite(columns), columns, 0.0)
    parts = parts_of(columns)
    normal, side = parts @ parts.T, parts @ parts_of(left)
    slope = np.nan_to_num(model.log_prior_slope(theta))[free]
    moved = np.repeat(theta[None], len(free), axis=0)
    moved[np.arange(len(free)), free] += width
    there = model.log_prior_slope(moved)[np.arange(len(free)), free]
    bend = np.maximum(np.nan_to_num((slope - there) / width), 0.0)
    return normal + np.diag(bend), side + slope


def theta_of(model: BoundModel, values: Mapping[str, float], start: Mapping[str, float]) -> Array:
    """A vector of a model from values by name; what has none is in the middle of its prior."""
    middle = model.prior_transform(np.full((1, model.n_param), 0.5))[0]
    known = {**values, **start}
    return np.array(
        [known.get(name, x) for name, x in zip(model.parameter_names, middle.tolist(), strict=True)]
    )


def free_of(model: BoundModel, sources: set[str], names: set[str]) -> Index:
    """Parameters of sources, or, where these are too many, of some sources alone."""
    owner = [name.split("[")[0].rpartition(".")[0] for name in model.parameter_names]
    every = np.flatnonzero([each in sources for each in owner])
    return every if len(every) <= MOST_FREE else np.flatnonzero([each in names for each in owner])
