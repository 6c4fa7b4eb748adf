"""The likelihood: an observation and a sky model, joined once, evaluated for many parameter vectors."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.arrow.matrix import Arrow
from biro.arrow.space import ArrowSpace
from biro.beams.loading import beam_of
from biro.errors import InputError
from biro.gain_files import with_gains_read
from biro.ionosphere import with_ionosphere_read
from biro.likelihood.engines import EngineOptions, PartitionEngines
from biro.likelihood.evaluation_count import EvaluationCount
from biro.likelihood.fisher import Fisher
from biro.likelihood.hands import N_RESIDUALS, hand_residuals
from biro.likelihood.inner import without_gain_priors
from biro.likelihood.noise_range import with_noise_range
from biro.likelihood.precision import choose_precision, thinned
from biro.likelihood.treatments.choice import treatment_of
from biro.likelihood.treatments.inner_gains import InnerGains
from biro.likelihood.treatments.linear import Linear
from biro.likelihood.treatments.noise_terms import VisibilitiesWithNoiseTerms
from biro.likelihood.treatments.treatment import INNER_GAINS, Gains, Information, check_gains, data_digest
from biro.likelihood.undetermined import undetermined
from biro.models import Parameter, SkyModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.models.components.noise import SPLITS
from biro.observation.noise import residual_scatter
from biro.observation.observation import Observation
from biro.observation.unequal_noise import unequal_noise
from biro.observation.weighting import WITH_TAPER, with_systematic
from biro.smearing import Mode
from biro.target.protocol import InnerDraws
from rime_kernels.device import Backend
from rime_kernels.geometry import Form, Precision
from rime_kernels.physics.envelope import GaussianFrame

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
# A number for one theta (n_param,), an array (n_batch, ...) for a batch of them: shapes decide, not types.
NumberOrArray: TypeAlias = Any


class Likelihood:
    """Likelihood of visibilities, or of their closures, given a sky model.

    For each partition (field x data description), over its N unflagged complex correlations of
    weight w > 0, with a noise factor s (sigma -> s sigma),

        ln L = -chi2 / (2 s^2) - N ln(2 pi) + sum ln w - 2 N ln s,     chi2 = sum w |D - V|^2

    and the sum of these over partitions (physics: section 7); or what Student's t makes of it, where the
    model says so (`biro.likelihood.normalisation`). With `gains="closures"`, chi2 is that of closure phases
    and log closure amplitudes, with their covariance for the weights, and 2 N their number. Data, weights,
    uvw and frequencies are put on the device once; a call sends parameters up and takes chi-squared down, in
    float64.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
        Bound to the observation here: noise factors and pointing errors become parameters of its
        partitions and antennas. Where noise factors are those of hands, `observation` has parallel and cross
        hands in partitions of their own. A noise factor that the model leaves open gets a prior as wide as
        the scatter of these data asks for (`biro.likelihood.noise_range`).
    backend : "auto", "cpu" or "cuda"
        "auto" takes the GPU where one works and logs what it chose and why.
    precision : "double", "single" or "auto"
        Of the sums over sources; phases are float64 always and so is chi-squared. "auto" measures here,
        about the maximum of the posterior, what single would change, and takes it where that is below 0.05
        of ln L (`biro.likelihood.precision.choose_precision`): `precision` and `precision_reason` say what
        and why. It happens now, not when sampling starts, because kernels, plan and digest depend on it.
    form : "auto", "factored" or "row"
        Antenna-based phases, or exact ones per row (physics: section 2). "auto" looks at how well
        each partition's uvw close, and at how far out the prior lets sources go.
    gaussian_frame : "tangent" or "uv"
        In which plane elliptical Gaussians lie (physics: section 5).
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that data and work may take on the device, or the work on the CPU;
        shared out over the partitions by the size of their data. What does not fit is streamed from
        the host's memory. No result depends on it.
    image_accuracy : float
        Rms error over rms of the visibilities of the model's images, which are worked out once.
    smearing : "auto", "on" or "off", or one of them for each partition
        Whether the model is averaged over integrations and channels as the data are (physics: section 6).
        "auto" is on where the loss exceeds the noise (`biro.smearing.choose`); `smearing_lines` says what was
        chosen, and why.
    gains : "sample", "marginalise", "solve" or "closures"
        "sample": visibilities are calibrated, beside what `[gain]` of the model has. "closures": gains may be
        anything at any time and channel; of parallel hands, what they cannot change is compared
        (`biro.closures`); `gains_lines` says what is left out. "marginalise": gains with priors are
        integrated over at each theta, by Laplace, and "solve": taken where they fit best, a profile
        likelihood for `biro.maximise`; theta then has none (`biro.likelihood.treatments.inner_gains`).

    Attributes
    ----------
    model : BoundModel
        Of the parameters of theta.
    full_model : BoundModel
        The model as it was written: with the gains that are integrated over or solved for.

    Raises
    ------
    InputError
        An image of the model cannot be read or used; or there are no closures, or noise is not Gaussian where
        closures are asked for.
    BackendError
        `backend="cuda"` without a working GPU.
    ModelError
        The model cannot be bound to this observation.
    """

    def __init__(
        self,
        observation: Observation,
        sky: SkyModel,
        *,
        backend: Backend = "auto",
        precision: Precision | Literal["auto"] = "double",
        form: Form | Literal["auto"] = "auto",
        gaussian_frame: GaussianFrame = "tangent",
        memory_limit: int | str | None = None,
        image_accuracy: float = 1e-5,
        smearing: Mode | Sequence[Mode] = "auto",
        gains: Gains = "sample",
    ) -> None:
        for value, reader in ((observation, "read"), (sky, "read_model")):
            if isinstance(value, str | PathLike):
                raise InputError(
                    f"a likelihood takes what biro.{reader} gives, found the path {str(value)!r}"
                )
        options = EngineOptions(
            backend=backend,
            precision="double" if precision == "auto" else precision,
            form=form,
            gaussian_frame=gaussian_frame,
            memory_limit=memory_limit,
            image_accuracy=image_accuracy,
            smearing=smearing,
        )
        check_gains(gains)
        self.gains, self._given = gains, observation
        observation = with_systematic(observation, sky.noise.fixed_fraction)
        if sky.noise.grouping in SPLITS:
            observation = observation.by_hands(each=sky.noise.grouping == "correlation")
        self.observation = observation
        sky = with_gains_read(with_noise_range(sky, observation.partitions), observation)
        sky = with_ionosphere_read(sky, observation)
        views = observation.partition_views
        self._sky, outer, beam = sky, sky.with_means(), beam_of(sky, views)
        self.full_model = self.model = sky.bind(views, beam)
        if gains in INNER_GAINS:
            outer = without_gain_priors(sky)
        if outer is not sky:
            self.model = outer.bind(views, beam)
        fits_noise = self.model.noise_parameters or self.model.noise_terms is not None
        if fits_noise and any(part.tapered for part in observation.partitions):
            raise InputError(
                "weights are tapered, with which a noise factor that is fitted comes out too low, and errors "
                f"too small: {WITH_TAPER}"
            )
        self.precision_reason = "as asked"
        if precision == "auto":
            options = self._with_chosen_precision(sky, options)
        self.precision = options.precision
        self.gaussian_frame = gaussian_frame
        self.memory_limit = memory_limit
        self.image_accuracy = image_accuracy
        of_sky = self.model if gains in INNER_GAINS else self.full_model
        self._engines = PartitionEngines(observation, of_sky, options)
        self._options = replace(options, smearing=self.smearing)
        self.image_outlines = self._engines.image_outlines
        self._treatment = treatment_of(gains, observation, self.model, self._engines, self.full_model)
        self._count = EvaluationCount(self.parameter_names)

    def __repr__(self) -> str:
        return (
            f"<Likelihood of {self.observation.source}: {self.n_vis.sum()} visibilities, {self._gains_text()}"
            f"{self.n_param} parameters; {self.backend}, {self.precision} precision>"
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Free parameters in the order of theta, each with name, unit and prior."""
        return self.model.parameters

    @property
    def sky(self) -> SkyModel:
        """The sky model, with the prior of its noise as it is used."""
        return self._sky

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters, in the order of theta."""
        return self.model.parameter_names

    @property
    def n_param(self) -> int:
        """Number of free parameters."""
        return self.model.n_param

    @property
    def marginalised(self) -> tuple[str, ...]:
        """Names of the parameters that are integrated over or solved for: fluxes, or gains."""
        return () if self._inner is None else self._inner.inner.names

    @cached_property
    def full(self) -> Likelihood:
        """The likelihood with parameters in place of marginalised quantities; itself where there are none.

        It shares data and machine code with this one. A posterior whose marginalised quantities were
        restored belongs to it: pictures and residuals are drawn from it.
        """
        if self._inner is None:
            return self
        full = copy.copy(self)
        full.__dict__.pop("undetermined", None)
        full.model, full._count = self.full_model, EvaluationCount(self.full_model.parameter_names)
        full.gains = "sample" if self.gains in INNER_GAINS else self.gains
        full._treatment = treatment_of(
            full.gains, self.observation, self.full_model, self._engines, self.full_model
        )
        return full

    def inner_draws(self, theta: ArrayLike, rng: np.random.Generator) -> InnerDraws:
        """A draw of the marginalised parameters for each theta (n_batch, n_param), given this theta.

        Raises
        ------
        InputError
            Nothing is marginalised; or the likelihood is not a number for a theta.
        """
        if self._inner is None:
            raise InputError(
                "the model has no quantities with marginalise = true, and no gains are marginalised"
            )
        return self._inner.draws(self._batch(theta)[0], rng)

    def completed(self, theta: ArrayLike) -> Array:
        """Vectors of the parameters of `full`, with what is marginalised at its most probable values.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)

        Returns
        -------
        float64 (n_full,) or (n_batch, n_full)
        """
        batch, is_single = self._batch(theta)
        full = batch.theta if self._inner is None else self._inner.best(batch).theta
        return full[0] if is_single else full

    @property
    def n_vis(self) -> NDArray[np.int64]:
        """Complex visibilities that count, of each partition."""
        return self._treatment.n_vis

    @property
    def n_data(self) -> NDArray[np.int64]:
        """Real numbers that chi2 of each partition is a sum over: two for a visibility, one for a closure."""
        return self._treatment.n_data

    @property
    def gains_lines(self) -> list[str]:
        """How gains are treated, and what that leaves out; nothing where gains are those of the model."""
        return self._treatment.lines

    @property
    def n_call(self) -> int:
        """Number of parameter vectors for which the log-likelihood was computed so far."""
        return self._count.n_call

    @property
    def nan_count(self) -> int:
        """Number of these vectors for which the log-likelihood was not a number."""
        return self._count.n_nan

    @property
    def backend(self) -> str:
        """The backend that computes the likelihood: "cpu" or "cuda"."""
        return self._engines.rimes[0].backend

    @property
    def forms(self) -> list[Form]:
        """How phases are computed in each partition: "factored" or "row"."""
        return [rime.form for rime in self._engines.rimes]

    @property
    def smearing(self) -> list[Mode]:
        """Whether the model of each partition is averaged over integrations and channels: "on" or "off"."""
        return [choice.mode for choice in self._engines.smearing]

    @property
    def smearing_lines(self) -> list[str]:
        """What was chosen about smearing and why, a line for each partition, or one for all."""
        lines = [str(choice) for choice in self._engines.smearing]
        if len(set(lines)) == 1:
            return lines[:1]
        return [f"{label}: {line}" for label, line in zip(self.observation.labels, lines, strict=True)]

    @property
    def log_constraint_mass(self) -> float:
        """Log of the prior mass that constraints outside the prior transform leave."""
        return self.model.log_constraint_mass

    def chi2(self, theta: ArrayLike) -> Array:
        """Chi-squared of each partition, with weights as they are (noise factor 1), Gaussian noise or not.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)
            In the units of `parameters`.

        Returns
        -------
        float64 (n_partition,) or (n_batch, n_partition)
        """
        batch, is_single = self._batch(theta)
        chi2 = self._treatment.chi2(batch)
        return chi2[0] if is_single else chi2

    def log_likelihood(self, theta: ArrayLike) -> NumberOrArray:
        """Log-likelihood; -inf where a constraint of the model forbids the parameters.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)

        Returns
        -------
        float, or float64 (n_batch,)

        Raises
        ------
        InputError
            Any other shape.
        LikelihoodError
            More than a tenth of all evaluations so far, once there are 1000, were not a number; fewer
            are -inf, and counted in `nan_count`.
        """
        batch, is_single = self._batch(theta)
        value = self._of_allowed(batch)
        return float(value[0]) if is_single else value

    def log_likelihood_and_gradient(self, theta: ArrayLike) -> tuple[NumberOrArray, Array]:
        """Log-likelihood and its derivatives with respect to all parameters, for about two of its calls.

        Parameters
        ----------
        theta : (n_param,) or (n_batch, n_param)

        Returns
        -------
        float, or float64 (n_batch,)
            As `log_likelihood`.
        float64 (n_param,) or (n_batch, n_param)
            Per unit of each parameter; NaN where the value is -inf.

        Raises
        ------
        InputError, LikelihoodError
            As `log_likelihood`.
        """
        batch, is_single = self._batch(theta)
        value, gradient = np.full(len(batch), -np.inf), np.full(batch.theta.shape, np.nan)
        allowed = np.flatnonzero(batch.allowed)
        if allowed.size:
            value[allowed], gradient[allowed] = self._value_and_gradient(batch.rows(allowed))
        return (float(value[0]), gradient[0]) if is_single else (value, gradient)

    def fisher(self, theta: ArrayLike) -> Array:
        """The Fisher information: minus the expected second derivatives of ln L (`biro.likelihood.fisher`).

        Exact. Derivatives of visibilities are multiplied by each other for some rows at a time, on the CPU
        in double precision: n_param^2 products per real number of the data.

        Parameters
        ----------
        theta : (n_param,)

        Returns
        -------
        float64 (n_param, n_param)

        Raises
        ------
        InputError
            Any other shape, or a theta that a constraint of the model forbids.
        """
        return self._fisher(theta).matrix()

    @cached_property
    def segments(self) -> ArrowSpace | None:
        """How the precision of gains of many segments falls into blocks; None where there are no segments."""
        if self.gains != "sample" or not self.model.has_fitted_gains:
            return None
        space = ArrowSpace.of(self.model.reach)
        return space if len(space.layout.index) > 1 else None

    def fisher_by_segments(self, theta: ArrayLike) -> Arrow:
        """`fisher` in the blocks of `segments`, for one theta: far less work where there are many segments.

        It is W^T F W, of the states x with theta = W x, without the blocks that are 0.
        """
        fisher = self._fisher(theta)
        assert self.segments is not None, "there are no segments"
        assert isinstance(fisher, Fisher)
        return fisher.arrow(self.segments)

    def fisher_product(self, theta: ArrayLike, change: ArrayLike) -> Array:
        """`fisher(theta)` times a change of theta (n_param,), without the matrix."""
        return self._fisher(theta).product(self._one(change).theta)

    def log_prior(self, theta: ArrayLike) -> NumberOrArray:
        """Log of the normalised prior density, in the units of theta; -inf outside."""
        batch, is_single = self._batch(theta)
        return batch.log_prior[0].item() if is_single else batch.log_prior

    def log_posterior(self, theta: ArrayLike) -> NumberOrArray:
        """Log-prior plus log-likelihood (not normalised); the likelihood is not asked outside the prior."""
        batch, is_single = self._batch(theta)
        value = batch.log_prior.copy()
        inside = np.flatnonzero(np.isfinite(value))
        if inside.size:
            value[inside] += self._values(batch.rows(inside))
        return float(value[0]) if is_single else value

    def log_posterior_and_gradient(self, theta: ArrayLike) -> tuple[NumberOrArray, Array]:
        """`log_posterior` and its derivatives, as `log_likelihood_and_gradient` has them."""
        batch, is_single = self._batch(theta)
        value, gradient = batch.log_prior.copy(), batch.log_prior_slope.copy()
        inside = np.flatnonzero(np.isfinite(value))
        if inside.size:
            log_likelihood, slope = self._value_and_gradient(batch.rows(inside))
            value[inside] += log_likelihood
            gradient[inside] += slope
        return (float(value[0]), gradient[0]) if is_single else (value, gradient)

    def prior_transform(self, unit: ArrayLike) -> Array:
        """Parameters for points of the unit cube, (n_param,) or (n_batch, n_param)."""
        vectors, is_single = self._vectors(unit)
        theta = self.model.prior_transform(vectors)
        return theta[0] if is_single else theta

    def allowed(self, theta: ArrayLike) -> NumberOrArray:
        """Whether the model's constraints hold."""
        batch, is_single = self._batch(theta)
        return batch.allowed[0].item() if is_single else batch.allowed

    def predict(self, theta: ArrayLike) -> list[NDArray[np.complexfloating]]:
        """Model visibilities (n_row, n_chan, n_corr) of each partition, for one vector theta.

        Marginalised quantities of the sky have their most probable values, given theta; gains that are
        integrated over or solved for are taken out of the data instead (`corrected`).
        """
        batch = self._one(theta)
        if isinstance(self._inner, Linear):
            batch = self._inner.best(batch)
        return [vis[0] for vis in self._engines.predict(batch)]

    def plan(self, n_batch: int = 1) -> str:
        """How a call with so many parameter vectors is worked out, a line for each partition.

        Which kernel, how it is cut, what lies where, in how many steps; puts the data on the device.

        Raises
        ------
        InputError
            `n_batch` is below 1.
        """
        if n_batch < 1:
            raise InputError(f"n_batch must be at least 1, got {n_batch}")
        batch = self.model.at(self.model.prior_transform(np.full((n_batch, self.n_param), 0.5)))
        noise = f"; {self._treatment.noise}" if batch.noise_dof is not None else ""
        lines = zip(self.observation.labels, self._engines.plans(batch), strict=True)
        return "\n".join(f"{label}: {plan}{noise}" for label, plan in lines)

    def noise_factor(self, theta: ArrayLike) -> Array:
        """Noise factor of each partition, for one vector theta."""
        return np.asarray(self._one(theta).noise_factor[0])

    def noise_dof(self, theta: ArrayLike) -> Array | None:
        """Degrees of freedom of Student's t in each partition, for one theta; None for Gaussian noise."""
        dof = self._one(theta).noise_dof
        return None if dof is None else dof[0]

    def remarks(self, theta: ArrayLike) -> list[str]:
        """What makes the errors of a fit doubtful, from its residuals, for one vector theta (the best fit).

        Residuals of the two parallel hands that are correlated or scatter unequally, where the sky has Stokes
        I alone (`biro.likelihood.hands`); noise that differs among correlations, antennas or lengths of
        baselines beyond what weights and model say (`biro.observation.unequal_noise`). Of large data some
        times and channels are looked at.
        """
        size = sum(part.vis.size for part in self.observation.partitions)
        # Gains belong to all times, and noise to all antennas.
        belongs = self.full_model.has_fitted_gains or self.model.noise_terms is not None
        if size > 2 * N_RESIDUALS and not belongs:
            few = thinned(self.observation, N_RESIDUALS)
            of_few = Likelihood(few, self._sky, **asdict(self._options), gains=self.gains)
            return (of_few if self._inner else of_few.full).remarks(theta)
        data = self.corrected(theta).partitions
        models, factors = self.predict(theta), self.noise_factor(theta)
        hands = hand_residuals(data, models, factors)
        names, said = self.observation.antenna_names, any(each.is_unequal for each in hands)
        unequal = unequal_noise(data, names, models, factors, of_correlations=not said)
        return [text for text in (self.undetermined, *(each.remark() for each in hands), *unequal) if text]

    def doubts(self, theta: ArrayLike) -> list[str]:
        """What makes the value doubtful, for one vector theta: an integral that is only approximate."""
        return self._treatment.remarks(self._one(theta))

    @cached_property
    def undetermined(self) -> str:
        """A line about combinations of gains and other parameters that the data do not determine, or ""."""
        return undetermined(self) if self.model.has_fitted_gains else ""

    def residual_scatter(self, theta: ArrayLike, partitions: Sequence[int]) -> list[tuple[float, float]]:
        """How the residuals of these partitions scatter, and how from one time to the next.

        See `biro.observation.noise.residual_scatter`; for one vector theta.
        """
        models, data = self.predict(theta), self.corrected(theta).partitions
        # Gains that fit best make residuals smaller: so many of them are independent.
        share = np.sqrt(2.0 * self.n_vis / np.maximum(self.n_data, 1))
        found = [(share[i], residual_scatter(data[i], models[i])) for i in partitions]
        return [(factor * scatter, factor * step) for factor, (scatter, step) in found]

    def corrected(self, theta: ArrayLike) -> Observation:
        """The data, with the gains taken out that fit best for one vector theta; as they are with "sample".

        With "closures", visibilities that no closures are made of have no weight. Where noise differs among
        baselines, weights are those that it has at theta, but for `noise_factor`.
        """
        return self._treatment.corrected(self.predict(theta), self._one(theta))

    def sigma(self, theta: ArrayLike, vis: Sequence[NDArray[np.complexfloating]]) -> list[Array]:
        """Noise of the real and of the imaginary part of data that are `vis` but for their noise, in Jy.

        Of each partition, float64 (n_row, n_chan, n_corr), for one vector theta; 0 where the weight is 0.
        """
        batch, found = self._one(theta), []
        weights: Sequence[NDArray[np.floating]] = [part.weight for part in self.observation.partitions]
        if isinstance(self._treatment, VisibilitiesWithNoiseTerms):
            weights = self._treatment.weights(batch, vis)
        for weight, factor in zip(weights, batch.noise_factor[0], strict=True):
            variance = np.divide(1.0, weight, out=np.zeros(weight.shape), where=weight > 0)
            found.append(factor * np.sqrt(variance))
        return found

    def description(self) -> dict[str, object]:
        """What was chosen, for the record of a run."""
        images = {"images": self._engines.image_digest, "image_accuracy": self.image_accuracy}
        return {
            "backend": self.backend,
            "precision": self.precision,
            "precision_reason": self.precision_reason,
            "gaussian_frame": self.gaussian_frame,
            **(images if self._engines.image_digest else {}),
            "memory_limit": self.memory_limit,
            "noise": self._treatment.noise,
            "gains": self.gains,
            **({self.gains: self.gains_lines} if self.gains_lines else {}),
            "smearing": self.smearing,
            "smearing_reason": self.smearing_lines,
            "form": self.forms,
            "reason": [rime.reason for rime in self._engines.rimes],
            "n_vis": self.n_vis.tolist(),
            "parameters": list(self.parameter_names),
        }

    def digest(self) -> str:
        """Hash of everything that decides the value: data, model, images, precision, frame, smearing.

        Backend, form, memory limit and the shapes of kernels change it by roundings and are left out.
        """
        parts = [self.observation.digest(), self.full_model.digest(), self.precision, self.gaussian_frame]
        if self._engines.image_digest:
            parts += [self._engines.image_digest, repr(float(self.image_accuracy))]
        if self._inner is not None:
            parts.append("marginalised")
        if self._treatment.identity:
            parts += [self.gains, *self._treatment.identity]
        if "on" in self.smearing:
            parts += [choice.digest() for choice in self._engines.smearing]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def data_digest(self) -> str:
        """Hash of the data: equal for models whose evidences compare."""
        return data_digest(self._given, self.gains)

    @property
    def _inner(self) -> Linear | InnerGains | None:
        """What parameters are integrated over or solved for by; None where theta has all of them."""
        return self._treatment if isinstance(self._treatment, Linear | InnerGains) else None

    def _gains_text(self) -> str:
        return f"{self.n_data.sum()} closures, " if self.gains == "closures" else ""

    def _with_chosen_precision(self, sky: SkyModel, options: EngineOptions) -> EngineOptions:
        def likelihood_of(observation: Observation, precision: Precision) -> Likelihood:
            return Likelihood(
                observation, sky, gains=self.gains, **asdict(replace(options, precision=precision))
            )

        choice = choose_precision(self.observation, likelihood_of)
        self.precision_reason = choice.reason
        log.info("precision %s", choice.reason)
        return replace(options, precision=choice.precision)

    def _fisher(self, theta: ArrayLike) -> Information:
        return self._treatment.fisher(self._one(theta))

    def _of_allowed(self, batch: ThetaBatch) -> Array:
        """Log-likelihood where the constraints hold, -inf elsewhere."""
        if len(batch) and not self.model.is_constrained:
            return self._values(batch)
        value = np.full(len(batch), -np.inf)
        allowed = np.flatnonzero(batch.allowed)
        if allowed.size:
            value[allowed] = self._values(batch.rows(allowed))
        return value

    def _values(self, batch: ThetaBatch) -> Array:
        """Log-likelihood (n_batch,), whatever the constraints say."""
        return self._count.checked(batch.theta, self._treatment.log_likelihood(batch))

    def _value_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """`_values` and their derivatives, (n_batch, n_param)."""
        value, gradient = self._treatment.log_likelihood_and_gradient(batch)
        value = self._count.checked(batch.theta, value)
        gradient[~np.isfinite(value)] = np.nan
        return value, gradient

    def _batch(self, theta: ArrayLike) -> tuple[ThetaBatch, bool]:
        """theta as a batch, and whether it is one vector."""
        vectors, is_single = self._vectors(theta)
        return self.model.at(vectors), is_single

    def _one(self, theta: ArrayLike) -> ThetaBatch:
        """One vector theta as a batch of one."""
        batch, is_single = self._batch(theta)
        if not is_single:
            raise InputError(f"expected one vector theta of shape ({self.n_param},), got {batch.theta.shape}")
        return batch

    def _vectors(self, theta: ArrayLike) -> tuple[Array, bool]:
        try:
            array = np.asarray(theta, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"theta must be real numbers ({error})") from None
        if array.ndim not in (1, 2) or array.shape[-1] != self.n_param:
            raise InputError(
                f"theta must have shape ({self.n_param},) or (n_batch, {self.n_param}), got {array.shape}; "
                f"its parameters are {', '.join(self.parameter_names)}"
                + "; those that are marginalised, and posteriors of all, belong to `full`"
                * bool(self._inner)
            )
        return np.atleast_2d(array), array.ndim == 1
