"""Linear parameters of the sky beside gains, integrated over or solved for together: `marginalise = true`.

Visibilities are g (V(theta, m) + sum_k z_k s_k T_k), with linear parameters m + s z of normal priors. The
maximum over z and the coordinates of gains, the integral about it (Laplace) and derivatives are those of
`biro.likelihood.free_gains.beside_linear`. Derivatives by V and T are pulled back to theta, and z is held.

    marginalise   ln L = ln of the integral over both; where gains are known, the exact one of `linear`
    solve         ln L = ln likelihood + ln prior of both, at the best values: a profile likelihood, whose
                  maximum is that of a fit of all parameters
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.errors import InputError
from biro.likelihood.degeneracies import in_words
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.free_gains.accuracy import Accuracy, of_both
from biro.likelihood.free_gains.beside_linear import GainsBesideLinear
from biro.likelihood.free_gains.joint_best import JointBest
from biro.likelihood.free_gains.linear_sky import LinearSky
from biro.likelihood.integrals.gains import InnerGainLikelihood
from biro.likelihood.integrals.inner_fit import LaplaceLikelihood
from biro.likelihood.integrals.inner_parameters import InnerParameters
from biro.likelihood.integrals.linear import SchurInformation
from biro.likelihood.noise.varied_noise import weight_ratios
from biro.likelihood.responses import Responses, ResponsesAt
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation

Array = NDArray[np.float64]
_LEAST_SIGNAL = 3.0
"""Standard deviations of their priors that quantities which gains take up must be away from 0."""


class InnerFluxAndGainLikelihood(LaplaceLikelihood["JointFit"]):
    """The log-likelihood of a sky whose linear parameters and gains theta lacks; a `GainTreatment`.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
        What theta belongs to: with the linear parameters at the means of their priors, without the gains that
        have priors.
    engines : PartitionEngines
        Which compute visibilities without these gains.
    full : BoundModel
        With all parameters.
    of_sky : BoundModel
        With the linear parameters, without these gains.
    integrate : bool
        Whether both are integrated over, or solved for.

    Raises
    ------
    InputError
        As `InnerGainLikelihood`; or linear parameters that gains absorb, and whose priors are about 0.
    ModelError
        No gains have a prior, or one of another kind.
    """

    def __init__(
        self,
        observation: Observation,
        model: BoundModel,
        engines: PartitionEngines,
        full: BoundModel,
        of_sky: BoundModel,
        *,
        integrate: bool,
    ) -> None:
        self._gains = InnerGainLikelihood(observation, of_sky, engines, full, integrate=integrate)
        inner = InnerParameters(full, model)
        super().__init__(observation, inner, self._gains.law, integrate=integrate)
        self._model, self._engines, self._sky = model, engines, of_sky
        self._linear = InnerParameters(of_sky, model)
        # Where the linear parameters are among those of the full model.
        places = {name: i for i, name in enumerate(full.parameter_names)}
        self._places = np.array([places[name] for name in self._linear.names], np.int64)
        priors = [of_sky.parameters[i].prior for i in self._linear.of_inner]
        self._mean, self._sd = (np.array([getattr(p, key) for p in priors]) for key in ("mean", "sd"))
        self._responses = Responses(observation, engines, self._linear)
        self._search = GainsBesideLinear(self._gains.free)
        self._last: tuple[bytes, JointFit | None] | None = None  # theta, and what fits best there
        self.identity = self._gains.identity
        self._refuse_absorbed()

    @property
    def lines(self) -> list[str]:
        """What is integrated over or solved for."""
        names = self._linear.names
        count = "1 parameter is" if len(names) == 1 else f"{len(names)} parameters are"
        done = "integrated over with the gains (Laplace)" if self.integrates else "solved for with the gains"
        return [*self._gains.lines, f"{count} {done}: {first_few(names)}"]

    def fit(self, one: ThetaBatch) -> JointFit | None:
        """What fits best for a batch of one; None where there is nothing."""
        outer = one.theta[0].tobytes()
        if self._last is None or self._last[0] != outer:
            self._last = outer, self._found(one.theta[0], one.noise_factor[0])
        return self._last[1]

    def fisher(self, batch: ThetaBatch) -> SchurInformation:
        """The information on theta where linear parameters and gains are free, of a batch of one."""
        at = self.fit(batch)
        half_of = None if at is None else partial(self._half_of, at.best)
        return SchurInformation(self._gains.fisher(self.of_sky(batch), half_of), self._linear, self._sd**-2.0)

    def n_inner(self, batch: ThetaBatch | None = None) -> Array:
        """How many real data numbers gains and linear parameters of each partition take up."""
        at = None if batch is None else self.fit(batch)
        if at is None:
            return self._gains.n_inner() + self._sd.size * self.n_data / max(int(self.n_data.sum()), 1)
        factor = at.sky.noise_factor[0]
        pairs = zip(self._half_of(at.best, at.sky), self._gains.weights(at.sky), factor, strict=True)
        return np.array([2.0 * float(np.sum(w * h)) / s**2 for h, w, s in pairs])

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data with the gains taken out that fit the visibilities of a model best."""
        return self._gains.corrected(vis, self.of_sky(batch))

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> Sequence[NDArray[np.floating]]:
        """Weights of the residuals of each partition: `GainTreatment.weights`."""
        return self._gains.weights(self._at_means(batch.theta), vis)

    def of_sky(self, batch: ThetaBatch) -> ThetaBatch:
        """Theta of the model that visibilities are predicted from: `InnerGainTreatment.of_sky`."""
        linear = np.tile(self._mean, (len(batch), 1))
        for b in range(len(batch)):
            at = self.fit(batch.rows(np.array([b])))
            linear[b] = np.nan if at is None else self._mean + self._sd * at.best.z
        return self._sky.at(self._linear.theta(batch.theta, linear))

    def chi2_of(self, fit: JointFit) -> Array:
        """Chi-squared at the best values, float64 (n_partition,)."""
        return fit.best.chi2

    def values(self, fit: JointFit) -> Array:
        """The best values of the inner parameters, float64 (n_inner,)."""
        return self._parameters(fit.best, fit.best.gains.x, fit.best.z)

    def _parameters(self, best: JointBest, x: Array, z: Array) -> Array:
        """Values of the inner parameters of the full model (n_inner,)."""
        found = np.empty(self.inner.full.n_param)
        found[self._gains.inner.of_inner] = self._gains.parameters(best.gains, x)
        found[self._places] = self._mean + self._sd * z
        return found[self.inner.of_inner]

    def value(self, fit: JointFit) -> float:
        """ln L."""
        return self._at_best(fit) + (fit.best.log_volume if self.integrates else 0.0)

    def _at_best(self, fit: JointFit) -> float:
        """ln L + ln prior at the best values.

        Of the linear parameters per unit of z, without (2 pi)^(-n/2), where these are integrated over.
        """
        value = self._value_of(fit, fit.best.chi2) + fit.best.log_prior
        unit = np.sqrt(2.0 * np.pi) * self._sd
        return value if self.integrates else value - float(np.log(unit).sum())

    def _value_of(self, fit: JointFit, chi2: Array) -> float:
        """ln L of the chi-squared of each partition."""
        return float(self.law.log_likelihood(fit.sky, chi2[None])[0])

    def draw(self, fit: JointFit, rng: np.random.Generator) -> tuple[Array, float]:
        """Values of the inner parameters (n_inner,) from the normal approximation, and ln L of these."""
        x, z, chi2 = fit.best.draw(rng)
        return self._parameters(fit.best, x, z), self._value_of(fit, chi2)

    def accuracy(self, fit: JointFit) -> Accuracy:
        """How good the integral over both is."""
        return of_both(fit.best)

    def value_and_gradient(self, fit: JointFit) -> tuple[float, Array]:
        """ln L, and its derivatives (n_param,)."""
        if not self.integrates:
            by_vis, half = fit.best.slopes_of_maximum()
            return self._at_best(fit), self._gradient(fit, by_vis, half)[self._linear.of_outer]
        slopes = fit.best.slopes()
        gradient = self._gradient(fit, slopes.by_vis, slopes.half)
        gradient = (gradient + self._gains.by_priors(fit.sky, slopes.by_priors))[self._linear.of_outer]
        by_responses = self._adjoint_parts(fit, self._sd[:, None] * slopes.by_responses)
        return self._at_best(fit) + slopes.log_volume, gradient + fit.responses.slope(by_responses)

    def _gradient(self, at: JointFit, by_vis: NDArray[np.complex128], half: Array) -> Array:
        """Derivatives by theta and the linear parameters of what has these by `JointSlopes`."""
        gradients = self._engines.adjoint(at.sky, self._adjoint_parts(at, by_vis[None]))
        of_noise = self.law.slopes_of_samples(at.sky, self._search.parts(half))
        return np.asarray(at.sky.pull_back(gradients)[0] + of_noise)

    def _half_of(self, best: JointBest, one: ThetaBatch) -> list[Array]:
        """See `noise_information`: where the values are these, of a batch of one of the sky."""
        sky = best.sky._replace(weight=self._weight(one))
        priors = self._gains.priors_at(one)
        there = JointBest(self._search, sky, one.noise_factor[0], priors, best.z, best.gains.x, climb=False)
        return self._search.parts(there.expected_half())

    def _weight(self, of_sky: ThetaBatch) -> NDArray[np.floating]:
        """Weights of all partitions, one after the other, (n_vis,), for a batch of one of the sky."""
        return np.concatenate([part.ravel() for part in self._gains.weights(of_sky)])

    def _adjoint_parts(self, at: JointFit, vis: NDArray[np.complex128]) -> list[NDArray[np.complex128]]:
        """Visibilities (n, n_vis) in parts, times the ratio of their weights to those of an adjoint."""
        parts, weights = self._search.parts(vis), self.law.weights(at.sky)
        if weights is None:
            return parts
        ratios = weight_ratios(weights, self.law.stated)
        return [ratio * part for ratio, part in zip(ratios, parts, strict=True)]

    def _found(self, outer: Array, factor: Array) -> JointFit | None:
        of_sky = self._at_means(outer[None])
        if not self._gains.is_possible(of_sky):
            return None
        responses, sky = self._sky_at(of_sky)
        if not all(np.isfinite(part).all() for part in sky):
            return None
        best = self._search.best(sky, factor, self._gains.priors_at(of_sky))
        if best is None:
            return None
        linear = (self._mean + self._sd * best.z)[None]
        return JointFit(best, responses, self._sky.at(self._linear.theta(outer[None], linear)))

    def _at_means(self, outer: Array) -> ThetaBatch:
        """Vectors (n_batch, n_outer) with the linear parameters at the means of their priors."""
        return self._sky.at(self._linear.theta(outer, self._mean[None]))

    def _sky_at(self, of_sky: ThetaBatch) -> tuple[ResponsesAt, LinearSky]:
        """The responses and the sky of a batch of one, linear parameters at the means of their priors."""
        responses = self._responses.at(of_sky.theta[0, self._linear.of_outer])
        base = np.concatenate([vis.ravel() for vis in self._engines.predict(of_sky)]).astype(np.complex128)
        n = len(self._mean)
        each = [responses.visibilities(i).reshape(n, -1) for i in range(len(self.n_vis))]
        of_all = self._sd[:, None] * np.concatenate(each, axis=1)
        return responses, LinearSky(base, of_all, self._weight(of_sky))

    def _refuse_absorbed(self) -> None:
        """Refuse linear parameters that gains can take up, and whose priors are about 0.

        Along such a combination there is no maximum, or a ring of them. It is looked for at one draw
        of the prior, with data of this draw and gains at the means of their priors.
        """
        model = self._model
        theta = model.prior_transform(np.random.default_rng(0).uniform(0.3, 0.7, (1, model.n_param)))
        of_sky = self._at_means(theta)
        if not self._gains.is_possible(of_sky):
            return
        _, sky = self._sky_at(of_sky)
        z = np.random.default_rng(1).uniform(0.3, 1.0, self._mean.size)
        priors, signal = self._gains.priors_at(of_sky), self._mean / self._sd
        lost = self._search.absorbed(sky, of_sky.noise_factor[0], priors, z)
        # Of several combinations there is one that the priors have about 0.
        is_known = len(lost) == 1 and abs(lost[0] @ signal) >= _LEAST_SIGNAL * np.linalg.norm(lost[0])
        if len(lost) and not is_known:
            words = first_few(in_words(lost * self._sd, self._linear.names), "; ")
            raise InputError(
                f"marginalise = true: gains absorb a change of {words}, and its prior is within "
                f"{_LEAST_SIGNAL:g} sd of 0, so there is no single maximum. Give gains a normal or "
                'log-normal prior, fix a sky quantity or a gain, or use gains="sample"'
            )


class JointFit(NamedTuple):
    """The linear parameters and gains that fit best beside one theta.

    Attributes
    ----------
    best : JointBest
    responses : ResponsesAt
    sky : ThetaBatch
        Theta with the best linear parameters, a batch of one.
    """

    best: JointBest
    responses: ResponsesAt
    sky: ThetaBatch
