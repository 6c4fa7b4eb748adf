"""A likelihood whose posterior and evidence are known in closed form, in the shape samplers expect."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from biro.models.bound.prior.unconstrained import Unconstrained


@dataclass(frozen=True)
class Flat:
    """Uniform prior between two ends."""

    low: float
    high: float
    name: str
    unit: str = "Jy"
    period: float | None = None
    latex: str = ""

    @property
    def prior(self) -> str:
        return f"uniform {self.low:g} {self.high:g}"


class GaussianLikelihood:
    """ln L = -1/2 (theta - mean)^T C^-1 (theta - mean), priors uniform.

    Posterior: the normal distribution (mean, C), as long as the prior is wide. Evidence:
    Z = (2 pi)^(d/2) sqrt(det C) / V, V the volume of the prior, divided by the mass that a constraint leaves.
    A parameter with a period enters through its distance around the circle.
    """

    def __init__(self, priors, mean, covariance, *, allowed=None, log_constraint_mass=0.0, label="data"):
        self.parameters = tuple(priors)
        self.mean = np.asarray(mean, float)
        self.covariance = np.asarray(covariance, float)
        self.log_constraint_mass = log_constraint_mass
        self.inverse = np.linalg.inv(self.covariance)
        self._allowed = allowed or (lambda theta: np.ones(len(theta), bool))
        self._low = np.array([p.low for p in priors])
        self.span = np.array([p.high - p.low for p in priors])
        self._period = np.array([p.period or np.inf for p in priors])
        self.n_call = self.n_row = 0
        self.observation = SimpleNamespace(digest=lambda: hashlib.sha256(label.encode()).hexdigest())
        text = repr((priors, self.mean.tolist(), self.covariance.tolist()))
        self.model = SimpleNamespace(
            digest=lambda: hashlib.sha256(text.encode()).hexdigest(),
            to_toml=lambda: "# a Gaussian\n",
            log_constraint_mass_error=0.0,
        )

    @property
    def log_evidence(self) -> float:
        d = len(self.mean)
        _, log_det = np.linalg.slogdet(self.covariance)
        return 0.5 * d * math.log(2 * math.pi) + 0.5 * log_det - float(np.log(self.span).sum())

    def digest(self) -> str:
        return self.observation.digest()[:32] + self.model.digest()[:32]

    def description(self) -> dict:
        return {"kind": "closed form"}

    def allowed(self, theta):
        return self._allowed(theta)

    def prior_transform(self, unit):
        return self._low + self.span * unit

    def log_prior(self, theta):
        inside = ((theta >= self._low) & (theta <= self._low + self.span)).all(axis=1) & self.allowed(theta)
        return np.where(inside, -np.log(self.span).sum() - self.log_constraint_mass, -np.inf)

    def log_likelihood(self, theta):
        self.n_call += 1
        self.n_row += len(theta)
        away = theta - self.mean
        with np.errstate(invalid="ignore"):
            away = np.where(
                np.isfinite(self._period), away - self._period * np.rint(away / self._period), away
            )
        both = zip(away, self._each_by_inverse(away), strict=True)
        return np.array([-0.5 * (row @ other) for row, other in both])

    def _each_by_inverse(self, rows):
        """Row by row: the roundings of a product of matrices depend on how many rows there are."""
        return np.array([row @ self.inverse for row in rows]).reshape(rows.shape)


def five_parameters(label: str = "data") -> GaussianLikelihood:
    """Correlated, of very different widths."""
    priors = [Flat(-10, 10, f"p{i}") for i in range(5)]
    sigma = np.array([1.0, 0.3, 0.01, 0.5, 1e-3])
    correlation = (
        np.eye(5) + 0.6 * (np.eye(5, k=1) + np.eye(5, k=-1)) * np.array([1, 0.5, 0.2, 1, 0.3])[:, None]
    )
    correlation = 0.5 * (correlation + correlation.T)
    return GaussianLikelihood(priors, [1, -2, 3, 0, 5], correlation * np.outer(sigma, sigma), label=label)


class SmoothGaussian(GaussianLikelihood):
    """The same with all that `biro.maximise` and NUTS ask of a likelihood; nothing is compiled for it."""

    n_vis, precision = np.array([100]), "double"

    def __init__(self, priors, mean, covariance, **about):
        super().__init__(priors, mean, covariance, **about)
        low, high = self._low, self._low + self.span
        self.n_param, self.parameter_names = len(priors), tuple(p.name for p in priors)
        self.observation.labels = ("all",)
        self.model.unconstrained = Unconstrained(priors, low, high, [], np.array([], int))
        self.model.box, self.model.wrap, self.model.noise_parameters = (low, high), lambda theta: theta, {}
        self.model.prior_transform = self.prior_transform

    def log_prior(self, theta):
        return super().log_prior(theta) if theta.ndim > 1 else float(super().log_prior(theta[None])[0])

    def chi2(self, theta):
        away = theta - self.mean
        return np.einsum("...i,ij,...j->...", away, self.inverse, away)[..., None]

    def noise_factor(self, theta):
        return np.ones(1)

    def log_posterior(self, theta):
        return self.log_posterior_and_gradient(theta)[0]

    def log_posterior_and_gradient(self, theta):
        value = self.log_prior(theta)
        inside = np.isfinite(value)
        slope = np.full(theta.shape, np.nan)
        value[inside] += self.log_likelihood(theta[inside])
        slope[inside] = -self._each_by_inverse(theta[inside] - self.mean)
        return value, slope
