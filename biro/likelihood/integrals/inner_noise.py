"""Noise beside parameters that are integrated over or solved for: as weights state it, or as theta says.

A sample D with the model V and the weight u = 1/v adds to ln L, to first order in u,

    ln u - u h,     h = |D - V|^2 / 2 + what a determinant adds

Where linear parameters phi are integrated over, V has the best ones, and the rest is T^H C T / 2 with the
responses T = dV/d(phi) and the covariance C of phi. Where gains g of cells are,

    h = |D|^2 / 2 - a |g V|^2 - Re(conj(b g V) D)

a and b being the derivatives by the sums |g|^2 sum u |V|^2 and conj(g) sum u D conj(V) of its cell
(`rime_kernels.gains.curvature`): -1/2 and 1 at the best gains alone, which makes |D - g V|^2 / 2 of it.
The systematic term of v follows the sky and the power of the data on each baseline (`seen_sky`), not the
gains that fit best. So an integral over gains that is Gaussian with the stated noise is Gaussian with this
one. Where linear parameters are integrated over there is no such term: v would depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.differences import falls
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.free_gains.best_gains import BestGains, Slopes
from biro.likelihood.noise.noise_of_baselines import squared
from biro.likelihood.noise.sky_through_gains import SkyThroughGains
from biro.likelihood.noise.varied_noise import VariedNoise
from biro.likelihood.normalisation import Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from rime_kernels.gains.models import HostModel

Array = NDArray[np.float64]
Visibilities = Sequence[NDArray[np.complexfloating]]
_STEP = 1e-3
"""Of differences, relative."""


class InnerNoise(Protocol):
    """What the noise makes of a sky and of best values. Batches are of one theta, but in `log_likelihood`."""

    text: str
    """How noise is distributed, in words."""
    lines: list[str]
    is_parameter: NDArray[np.bool_]
    """Whether each parameter of theta is one of the noise, (n_param,)."""
    stated: list[NDArray[np.floating]]
    """Weights of each partition, (n_row, n_chan, n_corr), Jy^-2."""

    def weights(self, batch: ThetaBatch, vis: Visibilities | None = None) -> list[Array] | None:
        """s^2 / v of each partition, with the noise factor s of the partition; None where as stated.

        With these visibilities of the sky, without the gains in question; by default those of theta.
        """
        ...

    def log_likelihood(self, batch: ThetaBatch, chi2: Array) -> Array:
        """ln L (n_batch,), for chi2 (n_batch, n_partition) with these weights."""
        ...

    def slopes(self, batch: ThetaBatch, best: BestGains, slopes: Slopes) -> Array:
        """Derivatives by theta through the noise (n_param,), of what has these slopes by sums of cells.

        Where the noise follows the sky, through this as well.
        """
        ...

    def slopes_of_samples(self, batch: ThetaBatch, half: Sequence[Array]) -> Array:
        """Derivatives (n_param,) for h of all samples of each partition, (n_row, n_chan, n_corr), Jy^2."""
        ...

    def information(self, batch: ThetaBatch) -> Array | None:
        """The information on the noise (n_param, n_param); None where it is that of factors alone."""
        ...


class StatedNoise:
    """Noise as weights state it, times a factor for each partition; see `InnerNoise`."""

    text = "Gaussian noise"

    def __init__(self, observation: Observation, model: BoundModel) -> None:
        self._normalisation = Normalisation.of_visibilities(observation.partitions)
        self.stated = [part.weight for part in observation.partitions]
        self._model, self.lines = model, list[str]()
        self.is_parameter = np.isin(np.arange(model.n_param), list(model.noise_parameters))

    def weights(self, batch: ThetaBatch, vis: Visibilities | None = None) -> list[Array] | None:
        """None: as stated."""
        return None

    def log_likelihood(self, batch: ThetaBatch, chi2: Array) -> Array:
        """See `InnerNoise`."""
        of_factor = self._normalisation.of_factor(batch.noise_factor)
        return self._normalisation.log_likelihood(chi2, of_factor)

    def slopes(self, batch: ThetaBatch, best: BestGains, slopes: Slopes) -> Array:
        """See `InnerNoise`."""
        _, by_factor = self._normalisation.slopes(best.chi2[None], batch.noise_factor)
        return np.asarray(self._model.pull_back_noise(by_factor + best.by_factor(slopes))[0])

    def slopes_of_samples(self, batch: ThetaBatch, half: Sequence[Array]) -> Array:
        """See `InnerNoise`."""
        pairs = zip(self.stated, half, strict=True)
        return self.slopes_of_sums(batch, np.array([2.0 * np.sum(w * h) for w, h in pairs]))

    def slopes_of_sums(self, batch: ThetaBatch, total: Array) -> Array:
        """Derivatives (n_param,) for the sums of 2 w h over the samples of each partition, (n_partition,)."""
        _, by_factor = self._normalisation.slopes(total[None], batch.noise_factor)
        return np.asarray(self._model.pull_back_noise(by_factor)[0])

    def information(self, batch: ThetaBatch) -> Array | None:
        """None: that of factors."""
        return None


class NoiseOfTheta:
    """Noise that differs among baselines as theta says; see `InnerNoise`."""

    text = "Gaussian noise that differs among baselines"

    def __init__(
        self,
        observation: Observation,
        model: BoundModel,
        engines: PartitionEngines,
    ) -> None:
        self._varied, self._data = VariedNoise(observation, model), [p.vis for p in observation.partitions]
        self._engines, follows = engines, self._varied.terms.follows_model
        self._seen = SkyThroughGains(observation.partitions) if follows else None
        n = range(len(observation.partitions))
        # Derivatives by f^2 of rows of what normalises the density.
        self._lost = [] if self._seen is None else [-2.0 * self._seen.shares(i) for i in n]
        self._last: tuple[bytes, Visibilities] | None = None  # theta, and the visibilities there
        self.stated = [part.weight for part in observation.partitions]
        self.lines, self.is_parameter = self._varied.lines, self._varied.is_parameter

    def weights(self, batch: ThetaBatch, vis: Visibilities | None = None) -> list[Array] | None:
        """See `InnerNoise`."""
        return self._varied.weights(batch, self._followed(batch, vis))

    def _followed(self, batch: ThetaBatch, vis: Visibilities | None = None) -> Visibilities | None:
        """What the systematic term is a fraction of, for a batch of one; None where there is no such term."""
        return None if self._seen is None else self._seen(vis or self._predicted(batch))

    def _predicted(self, batch: ThetaBatch) -> Visibilities:
        """Visibilities of the sky for a batch of one, those of the last theta being kept."""
        theta = batch.theta.tobytes()
        if self._last is None or self._last[0] != theta:
            self._last = theta, [one[0] for one in self._engines.predict(batch)]
        return self._last[1]

    def log_likelihood(self, batch: ThetaBatch, chi2: Array) -> Array:
        """See `InnerNoise`."""
        found = -0.5 * np.sum(chi2 / batch.noise_factor**2, axis=1)
        for b in np.flatnonzero(np.isfinite(found)).tolist():
            one = batch.rows(np.array([b]))
            numbers, vis = self._varied.terms(one.theta)[0], self._followed(one)
            for i, noise in enumerate(self._varied.each):
                factor = one.noise_factor[0, i]
                found[b] += noise.log_norm(None if vis is None else vis[i], numbers, factor)
                if self._lost:
                    found[b] += self._lost[i] @ noise.fraction2(numbers, factor)
        return np.asarray(found)

    def slopes(self, batch: ThetaBatch, best: BestGains, slopes: Slopes) -> Array:
        """See `InnerNoise`."""
        by_power, by_cross, half = slopes[0], slopes[1] + 1j * slopes[2], []
        for cells, data, model in zip(best.free.layout.partitions, self._data, best.models, strict=True):
            assert isinstance(model, HostModel), "weights of theta are not on a device"
            n_corr = data.shape[2]
            seen = cells.of_visibilities(best.gain, n_corr) * model.vis
            half.append(0.5 * squared(data) - cells.of_visibilities(by_power, n_corr) * squared(seen))
            half[-1] -= (np.conj(cells.of_visibilities(by_cross, n_corr) * seen) * data).real
        return self.slopes_of_samples(batch, half)

    def slopes_of_samples(self, batch: ThetaBatch, half: Sequence[Array]) -> Array:
        """See `InnerNoise`."""
        numbers, factor = self._varied.terms(batch.theta)[0], batch.noise_factor[0]
        by_number, by_factor = np.zeros((1, numbers.size)), np.zeros((1, factor.size))
        vis, by_vis = self._followed(batch), []
        for i, (one, noise) in enumerate(zip(half, self._varied.each, strict=True)):
            model = None if vis is None else vis[i]
            found, by_factor[0, i], of_vis = noise.noise_slopes(one, model, numbers, factor[i])
            by_number += found
            if self._lost:
                by_row = np.zeros((len(self._lost[i]), 3))
                by_row[:, 1] = self._lost[i]
                found, of_factor = noise.pulled(by_row, numbers, factor[i])
                by_number += found
                by_factor[0, i] += of_factor
            if of_vis is not None:
                by_vis.append(of_vis)
        slopes = self._varied.pull_back(by_number, by_factor)[0]
        if self._seen is not None:
            by_sky = self._seen.pull_back(self._predicted(batch), by_vis)
            gradients = self._engines.adjoint(batch, [one[None] for one in by_sky])
            slopes = slopes + batch.pull_back(gradients)[0]
        return np.asarray(slopes)

    def information(self, batch: ThetaBatch) -> Array | None:
        """See `InnerNoise`."""
        return self._varied.information(batch, self._followed(batch))


def inner_noise(
    observation: Observation,
    model: BoundModel,
    engines: PartitionEngines,
) -> InnerNoise:
    """The noise of a model that is bound to an observation.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
    engines : PartitionEngines
        Which compute its visibilities.

    Raises
    ------
    InputError
        A class of baseline length without data.
    """
    if model.noise_terms is None:
        return StatedNoise(observation, model)
    return NoiseOfTheta(observation, model, engines)


def noise_information(
    law: InnerNoise,
    model: BoundModel,
    theta: Array,
    half_of: Callable[[ThetaBatch], Sequence[Array]],
    beside: Sequence[int] | NDArray[np.int64] = (),
) -> Array:
    """The Fisher information on the noise, and of it with some parameters beside, float64 (n_param, n_param).

    With the covariance S of the data, that of noise and of what inner parameters add, and derivatives S_a by
    a parameter of the noise, it is tr(S^-1 S_a S^-1 S_b) / 2 (Kay 1993, section 3.9). That is minus the
    derivative by b of tr(S^-1 S_a) / 2 = sum v_a u (1 - u h) with S_a held, taken by differences.

    Parameters
    ----------
    law : InnerNoise
    model : BoundModel
        Of theta.
    theta : float64 (n_param,)
    half_of : function
        From a batch of one to h of each partition, float64 (n_row, n_chan, n_corr), where data are what the
        model says.
    beside : int, optional
        Which parameters are those of priors of inner ones: all of them scales.
    """
    noise, found = np.flatnonzero(law.is_parameter), np.zeros((theta.size,) * 2)
    if not noise.size:
        return found
    which = np.union1d(noise, beside).astype(np.int64)
    stated, here = law.stated, model.at(theta[None])

    def precision(one: ThetaBatch) -> list[Array]:
        """u of each partition."""
        pairs = zip(law.weights(one) or stated, one.noise_factor[0], strict=True)
        return [weight.astype(np.float64) / factor**2 for weight, factor in pairs]

    variance = [np.divide(1.0, u, out=np.zeros_like(u), where=u > 0.0) for u in precision(here)]

    def slopes(part: Array) -> Array:
        """Minus tr(S^-1 S_a) / 2 (n, n_param), the derivatives S_a being those at theta."""
        values = np.full((len(part), theta.size), np.nan)
        for k, row in enumerate(part):
            moved = theta.copy()
            moved[which] = row
            one = model.at(moved[None])
            if one.allowed.all() and (one.noise_factor > 0.0).all():
                pairs = zip(precision(one), variance, half_of(one), strict=True)
                values[k] = law.slopes_of_samples(here, [v - v**2 * u * (1.0 - u * h) for u, v, h in pairs])
        return values

    low, high = np.zeros(which.size), np.full(which.size, np.inf)
    rows = -falls(slopes, theta[which], low, high, steps_of_scales(model, theta, which))[:, noise]
    found[np.ix_(which, noise)] = rows
    found[np.ix_(noise, which)] = rows.T
    own = found[np.ix_(noise, noise)]
    found[np.ix_(noise, noise)] = 0.5 * (own + own.T)
    return found


def steps_of_scales(model: BoundModel, theta: Array, which: NDArray[np.int64]) -> Array:
    """Steps of differences (n_which,): a small part of a scale, or of its prior's width where it is 0."""
    first, third = model.prior_transform(np.array([[0.25], [0.75]]) * np.ones(theta.size))
    return np.asarray(_STEP * np.where(theta > 0.0, theta, third - first)[which])
