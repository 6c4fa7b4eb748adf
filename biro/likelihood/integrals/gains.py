"""`gains="marginalise"` and `gains="solve"`: gains are integrated over, or taken where they fit best.

For each theta of the sky, the best gains x are found for the model's visibilities
(`biro.likelihood.free_gains`). Then

    marginalise   ln L = ln of the integral of the likelihood over gains with their priors (Laplace)
    solve         ln L = ln likelihood + ln prior of the gains, at the best gains: a profile likelihood

Derivatives with respect to theta are exact: those of ln L at the best gains (envelope theorem) and those of
the determinant, including how the best gains move. Where gains are integrated over, standard deviations and
correlation times of their priors may be parameters of theta: derivatives of the integral by the numbers of
the priors, and those of their normalisation, are pulled back to these (`FittedPriors`). Gains and such a
standard deviation have no maximum together: ln prior grows without bound as all of them go to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.inference.maximum.differences import curvature
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.free_gains.accuracy import Accuracy, of_gains
from biro.likelihood.free_gains.best_gains import BestGains, Slopes
from biro.likelihood.free_gains.expected import expected, share_of_cells
from biro.likelihood.free_gains.gain_search import FreeGains
from biro.likelihood.integrals.gain_information import GainInformation
from biro.likelihood.integrals.inner_fit import LaplaceLikelihood
from biro.likelihood.integrals.inner_noise import inner_noise, noise_information, steps_of_scales
from biro.likelihood.integrals.inner_parameters import InnerParameters
from biro.likelihood.noise.noise_of_baselines import squared
from biro.models import BoundModel
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


class InnerGainLikelihood(LaplaceLikelihood["GainFit"]):
    """The log-likelihood of a sky whose gains are integrated over, or solved for; a `GainTreatment`.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
        Without the gains that have priors: what theta belongs to.
    engines : PartitionEngines
        Which compute its visibilities.
    full : BoundModel
        With the priors of gains.
    integrate : bool
        Whether gains are integrated over, or solved for.

    Raises
    ------
    InputError
        Noise that is not Gaussian; gains that turn with linear feeds; amplitudes that nothing determines.
    ModelError
        No gains have a prior, or one of another kind.
    """

    def __init__(
        self,
        observation: Observation,
        model: BoundModel,
        engines: PartitionEngines,
        full: BoundModel,
        *,
        integrate: bool,
    ) -> None:
        word = "marginalise" if integrate else "solve"
        distribution = model.model.noise.distribution
        if distribution != "gaussian":
            raise InputError(
                f'gains="{word}" needs Gaussian noise, found noise.distribution {distribution!r}; use '
                'gains="sample"'
            )
        gains = full.log_gains
        if any(each.turned for each in gains.each):
            raise InputError(
                f'gains="{word}" does not support separate gains of linear feeds in data that are '
                'corrected for feed rotation. Write feeds = "common", use gains="sample", or use '
                'uncorrected data with [feeds] rotation = "present"'
            )
        law = inner_noise(observation, model, engines)
        super().__init__(observation, InnerParameters(full, model), law, integrate=integrate)
        order = {name: k for k, name in enumerate(gains.names)}
        self._order = np.array([order[name] for name in self.inner.names], np.int64)
        self._model, self._engines = model, engines
        self.free = FreeGains(engines.partitions, gains, engines.left_out)
        self._priors, names = gains.priors, list(model.parameter_names)
        self._of_priors = np.array([names.index(name) for name in gains.priors.names], np.int64)
        self.identity = [word]  # the model as it was written says what is integrated over
        if model.model.noise.follows_model:
            self.identity.append("systematic of the model")  # until version 0.2 of the data
        self.lines = [*self.law.lines, *full.gain_lines, *self._lines()]

    def fit(self, one: ThetaBatch) -> GainFit | None:
        """The best gains for a batch of one; None for impossible sources, or where no maximum was found."""
        if not self.is_possible(one):
            return None
        models = self.free.models(self._engines.rimes, self._engines.sources(one), self.law.weights(one))
        best = self.free.best(models, one.noise_factor[0], self.priors_at(one))
        return GainFit(best, one) if best.converged else None

    def fisher(
        self, batch: ThetaBatch, half_of: Callable[[ThetaBatch], Sequence[Array]] | None = None
    ) -> Fisher:
        """The information on theta where gains are free: the Schur complement of the joint one.

        Where gains are integrated over, they take some of what the data say of the noise: see
        `noise_information`. `half_of` is its h, by default that of gains alone.
        """

        def of_noise(vis: Sequence[Complex]) -> Array | None:
            if not self.integrates:
                return self.law.information(batch)
            return self._information(batch, vis, half_of or self._half_of(batch, vis))

        prior, weights = self.priors_at(batch), self.law.weights(batch)
        shared = self._model, self._engines, self.free, prior, self.n_data, batch
        return GainInformation(*shared, weights, of_noise)

    def _half_of(self, batch: ThetaBatch, vis: Sequence[Complex]) -> Callable[[ThetaBatch], Sequence[Array]]:
        """See `noise_information`, for a sky of these visibilities and the gains that are best at `batch`."""
        x = self._best_of(batch, vis).x

        def half(one: ThetaBatch) -> list[Array]:
            models = self.free.of_visibilities(vis, self.law.weights(one))
            best = expected(BestGains(self.free, models, one.noise_factor[0], x, self.priors_at(one)))
            share, pairs = share_of_cells(best), zip(self.free.layout.partitions, vis, strict=True)
            of_cell = share * np.abs(best.gain) ** 2
            return [own.of_visibilities(of_cell, v.shape[2]) * squared(v) for own, v in pairs]

        return half

    def _information(
        self, batch: ThetaBatch, vis: Sequence[Complex], half_of: Callable[[ThetaBatch], Sequence[Array]]
    ) -> Array:
        """The information on noise and priors of gains, (n_param, n_param), for a batch of one.

        Between priors of gains it is minus the second derivatives of ln L, for these data and not on average
        over data, by differences of exact derivatives: negative where a maximum is far. The sky is held.
        """
        model, theta, priors = self._model, batch.theta[0], self._of_priors
        found = noise_information(self.law, model, theta, half_of, priors)
        if priors.size:

            def gradient(part: Array) -> Array:
                moved = np.repeat(batch.theta, len(part), axis=0)
                moved[:, priors] = part
                return np.array([self._slopes_beside(model.at(row[None]), vis)[priors] for row in moved])

            low, high = (limit[priors] for limit in model.box)
            step = steps_of_scales(model, theta, priors)
            found[np.ix_(priors, priors)] = curvature(gradient, theta[priors], low, high, step)
        return found

    def _slopes_beside(self, batch: ThetaBatch, vis: Sequence[Complex]) -> Array:
        """Derivatives of ln L by noise and priors of gains, (n_param,), of a batch of one with this sky."""
        if not (batch.allowed.all() and (batch.noise_factor > 0.0).all()):
            return np.full(batch.theta.size, np.nan)
        return self.value_and_slopes(self._best_of(batch, vis), batch)[2]

    def _best_of(self, batch: ThetaBatch, vis: Sequence[Complex]) -> BestGains:
        """The best gains of a batch of one whose sky has these visibilities."""
        models = self.free.of_visibilities(vis, self.law.weights(batch, vis))
        return self.free.best(models, batch.noise_factor[0], self.priors_at(batch))

    def n_inner(self, batch: ThetaBatch | None = None) -> Array:
        """How many real data numbers the gains of each partition take up, float64 (n_partition,).

        For a batch of one, on average over data (`biro.likelihood.free_gains.expected`): a gain that its
        prior knows better than the data takes up less than one. Without a batch, the number of gains that
        data see, those of several partitions shared out by the cells that see them.
        """
        if batch is not None:
            fit = self.fit(batch)
            if fit is not None:
                data_alone = expected(fit.best)
                taken = 2.0 * share_of_cells(data_alone) * np.abs(data_alone.gain) ** 2 * fit.best.sums.power
                return np.array([own.own(taken).sum() for own in self.free.layout.partitions])
        return self.free.layout.n_seen()

    def corrected(self, vis: Sequence[Complex], batch: ThetaBatch) -> Observation:
        """The data with the gains taken out that fit the visibilities of a model best."""
        weights, best, parts = self.law.weights(batch, vis), self._best_of(batch, vis), []
        for i, cells in enumerate(self.free.layout.partitions):
            part = self._observation.partitions[i]
            weight = part.weight if weights is None else weights[i]
            gain = cells.of_visibilities(best.gain, part.n_corr)
            data = np.where(part.weight > 0.0, part.vis / gain, 0.0)
            parts.append(replace(part, vis=data, weight=weight * np.abs(gain) ** 2))
        return replace(self._observation, partitions=tuple(parts))

    def beside(self, theta: Array) -> Array:
        """Vectors of the full model (n_batch, n_full) with their gains replaced as by `best`."""
        return self.best(self.batch_of(theta)).theta

    def batch_of(self, theta: Array) -> ThetaBatch:
        """The sky of vectors of the full model (n_batch, n_full)."""
        return self._model.at(theta[:, self.inner.of_outer])

    def of_sky(self, batch: ThetaBatch) -> ThetaBatch:
        """Theta of the sky alone: the gains that fit best are taken out of the data instead (`corrected`)."""
        return batch

    def parameters(self, best: BestGains, x: Array) -> Array:
        """Values of the gains' parameters (n_inner,) of coordinates (n,), in the order of the full model."""
        return best.parameters(x)[self._order]

    def by_priors(self, batch: ThetaBatch, by: NormalPriors) -> Array:
        """Derivatives by theta through the priors of gains (n_param,), from those by the priors."""
        found = np.zeros(batch.theta.shape[1])
        numbers = batch.theta[0, self._of_priors]
        found[self._of_priors] = self._priors.pull_back(numbers, by)
        return found

    def chi2_of(self, fit: GainFit) -> Array:
        """Chi-squared at the best gains, float64 (n_partition,)."""
        return fit.best.chi2

    def values(self, fit: GainFit) -> Array:
        """The best gains, float64 (n_inner,)."""
        return self.parameters(fit.best, fit.best.x)

    def value(self, fit: GainFit) -> float:
        """ln L."""
        volume = fit.best.log_volume() if self.integrates else 0.0
        return self._at_best(fit.best, fit.one) + volume

    def value_and_gradient(self, fit: GainFit) -> tuple[float, Array]:
        """ln L, and its derivatives with respect to theta, float64 (n_param,)."""
        value, slopes, beside = self.value_and_slopes(*fit)
        gradients = self._engines.pull_back(fit.one, fit.best.pulled(slopes))
        return value, np.asarray(fit.one.pull_back(gradients)[0]) + beside

    def draw(self, fit: GainFit, rng: np.random.Generator) -> tuple[Array, float]:
        """Gains (n_inner,) from the normal approximation, and ln L of these."""
        x = fit.best.draw(rng)
        value = self.law.log_likelihood(fit.one, fit.best.chi2_at(x)[None])[0]
        return self.parameters(fit.best, x), float(value)

    def accuracy(self, fit: GainFit) -> Accuracy:
        """How good the integral over gains is."""
        return of_gains(fit.best)

    def _at_best(self, best: BestGains, batch: ThetaBatch) -> float:
        """ln L + ln prior at the best gains, for a batch of one."""
        return float(self.law.log_likelihood(batch, best.chi2[None])[0]) + best.log_prior

    def value_and_slopes(self, best: BestGains, batch: ThetaBatch) -> tuple[float, Slopes, Array]:
        """The value; its slopes by sums of cells, and by theta through the noise and the priors of gains."""
        value = self._at_best(best, batch)
        if not self.integrates:
            slopes = best.slopes()
            return value, slopes, self.law.slopes(batch, best, slopes)
        volume, slopes, by_priors = best.log_volume_and_slopes()
        beside = self.law.slopes(batch, best, slopes)
        if by_priors is not None:
            beside += self.by_priors(batch, by_priors)
        return value + volume, slopes, beside

    def priors_at(self, batch: ThetaBatch) -> NormalPriors:
        """The priors of the gains, for a batch of one."""
        return self._priors.at(batch.theta[0, self._of_priors])

    def is_possible(self, batch: ThetaBatch) -> bool:
        """Whether a batch of one has sources, noise and priors of gains that can be."""
        factor = batch.noise_factor
        return (
            not any(each.invalid().any() for each in self._engines.sources(batch))
            and bool((np.isfinite(factor) & (factor > 0.0)).all())
            and bool((batch.theta[0, self._of_priors] >= 0.0).all())
        )

    def _lines(self) -> list[str]:
        """What is done to the gains, in words."""
        layout, gains = self.free.layout, self.free.gains
        size = np.diff(layout.groups.first)
        done = "integrated over (Laplace)" if self.integrates else "solved for, a profile likelihood"
        groups = f"{size.size} independent group{'s' * (size.size != 1)} of {size.max()} at most"
        lines = [f"gains: {layout.n} gain parameters are {done} for each sky, in {groups}"]
        if layout.pinned.size:
            names = [gains.names[k] for k in layout.pinned[:3]]
            more = f" and {layout.pinned.size - 3} more" if layout.pinned.size > 3 else ""
            lines.append(
                f"gains: neither a reference nor a prior fixes {', '.join(names)}{more}. biro sets them to "
                "0 (for uniform phases the integral does not depend on it)"
            )
        if gains.log_uniform:
            lines.append(
                "gains: the integral ignores the limits of log-uniform amplitude priors"
                if self.integrates
                else "gains: the solution ignores the limits of log-uniform amplitude priors"
            )
        return lines


class GainFit(NamedTuple):
    """The gains that fit best beside one theta.

    Attributes
    ----------
    best : BestGains
    one : ThetaBatch
        The one theta.
    """

    best: BestGains
    one: ThetaBatch
