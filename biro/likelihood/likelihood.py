"""The likelihood: an observation and a sky model, joined once, evaluated for many parameter vectors."""

from __future__ import annotations

import copy
import hashlib
import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from biro.beams.loading import beam_of
from biro.deprecation import by_earlier_name
from biro.display.formatting import PrintedText, given_text, html_text
from biro.display.progress import show_compilation
from biro.distributed.closing import Closing
from biro.distributed.single_process import ranks_of
from biro.errors import BiroError, InputError
from biro.inference.maximum.tempering.exploration import SEARCHABLE
from biro.inference.target.degeneracy_text import FLUX_SCALE
from biro.inference.target.protocol import InnerDraws, StartPoints
from biro.io.gain_files import with_gains_read
from biro.io.ionosphere import with_ionosphere_read
from biro.likelihood.cells.average import Average, reduced_data
from biro.likelihood.cells.compress import Cells
from biro.likelihood.degeneracies import undetermined
from biro.likelihood.density import Array
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.free_gains.starts import gain_starts
from biro.likelihood.noise_range import refuse_tapered, with_noise_range
from biro.likelihood.options import Choices, EngineKeywords, EngineOptions
from biro.likelihood.parallel_hands import N_RESIDUALS, residual_remarks
from biro.likelihood.precision import thinned, with_chosen_precision
from biro.likelihood.residuals import Residuals
from biro.likelihood.single_baseline_gains import lone_gains
from biro.likelihood.treatments.choice import needing_all_data, treatment_of
from biro.likelihood.treatments.fluxes_beside_gains import InnerFluxAndGainLikelihood
from biro.likelihood.treatments.inner_gains import InnerGainLikelihood
from biro.likelihood.treatments.treatment import INNER_GAINS, Gains, Information, check_gains, data_digest
from biro.likelihood.treatments.visibilities import VisibilityLikelihood
from biro.models import LogNormal, ModelError, SkyModel
from biro.models.bound.model import BoundModel
from biro.models.components.noise import SPLITS
from biro.observation.flags import warn_of_reading
from biro.observation.observation import Observation
from biro.observation.smearing import lines_of
from rime_kernels.device import Backend

log = logging.getLogger(__name__)
show_compilation()
_BIAS = 0.3
"""Bias of the flux scale of a maximum, in its errors, from which on a line states it."""
_HINT = "; marginalised parameters belong to `full`"

MOST_SHOWN = 30
"""Parameters that a notebook names of a likelihood."""


class Likelihood(Residuals, Closing):
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
    gains : "sample", "marginalise", "solve" or "closures"
        "sample": visibilities are calibrated, beside what `[gain]` of the model has. "closures": gains may be
        anything at any time and channel; of parallel hands, what they cannot change is compared
        (`biro.likelihood.closures`); `choices` says what is left out. "marginalise": gains with priors (and
        what has `marginalise = true`) are integrated over at each theta, by Laplace, and "solve": they are
        taken where they fit best, a profile likelihood for `biro.maximise`; theta then has none of them
        (`marginalised`).
    average : "none" or "cells"
        "cells": few visibilities stand for those of each cell in time and frequency, with all of chi-squared
        (`biro.likelihood.cells`), within segments of gains. Cells are as large as leaves the result alone,
        which is measured here, about the maximum of the posterior; `choices` says what was found. Data
        that would become hardly fewer stay as they are. Predictions and residuals are of all data.
    options : EngineOptions, optional
        How it is computed: backend, precision, form, gaussian_frame, memory_limit, image_accuracy,
        image_engine, smearing, devices and comm. `biro.EngineOptions` says what each means.
    **engine
        The same by name, such as `backend="cuda"`; they go before those of `options`.

    Attributes
    ----------
    model : BoundModel
        Of the parameters of theta.
    full_model : BoundModel
        The model as it was written: with the gains that are integrated over or solved for.
    described : Observation
        What a report describes: the observation that was given, or of which `of_few` has some times.
    options : EngineOptions
        As they were asked for, with the precision and the smearing that were chosen.
    precision : "double" or "single"
        The precision that was chosen.

    Raises
    ------
    InputError
        An image of the model cannot be read or used; or there are no closures, or noise is not Gaussian where
        closures are asked for; or ranks with other data or versions.
    BackendError
        `backend="cuda"` without a working GPU; devices that are not there.
    ModelError
        The model cannot be bound to this observation.
    """

    def __init__(
        self,
        observation: Observation,
        sky: SkyModel,
        *,
        gains: Gains = "sample",
        average: Average = "none",
        options: EngineOptions | None = None,
        **engine: Unpack[EngineKeywords],
    ) -> None:
        for value, reader, has in ((observation, "read", "partitions"), (sky, "read_model", "sources")):
            if not hasattr(value, has):
                raise InputError(f"a likelihood needs the result of biro.{reader}, got {given_text(value)}")
        warn_of_reading(observation)
        options = (options or EngineOptions()).changed(engine)
        self.ranks = ranks_of(observation, options.comm)
        check_gains(gains)
        self.gains, self.described = gains, observation
        if sky.noise.grouping in SPLITS:
            observation = observation.whole("noise of hands").split_parallel_cross(
                each=sky.noise.grouping == "correlation"
            )
        self.observation = observation
        sky = with_gains_read(with_noise_range(sky, observation.partitions), observation)
        sky = with_ionosphere_read(sky, observation)
        self._sky, reason = sky, "as asked"
        of_sky = self._bind(observation)
        refuse_tapered(self.model, observation.partitions)
        what = "cells" if average == "cells" else needing_all_data(gains, self.model, self.full_model)
        if what:
            observation = self.observation = observation.whole(what)
        if options.precision == "auto":
            options, reason = with_chosen_precision(observation, options, self._like)
        self._reduced, average_lines = reduced_data(average, observation, options, self._like)
        data = observation if self._reduced is None else self._reduced.observation
        of_sky = self._at_samples(of_sky)
        self.precision, self._why = options.chosen_precision, (reason, average_lines)
        left_out = None if self._reduced is None else self._reduced.left_out
        self._engines = PartitionEngines(data, of_sky, options, left_out)
        self.options = replace(options, smearing=[choice.mode for choice in self._engines.smearing])
        self.image_outlines = self._engines.image_outlines
        seen, full = self._at_samples(self.model), self._at_samples(self.full_model)
        treatment = treatment_of(gains, observation, seen, self._engines, full, of_sky)
        self._evaluate(self.model, seen, treatment, _HINT if self.full_model is not self.model else "")

    def _bind(self, observation: Observation) -> BoundModel:
        """Bind `full_model` and `model` to this observation; gives the one that visibilities are made of."""
        sky, views, inner = self._sky, observation.partition_views, self.gains in INNER_GAINS
        outer, self._beam = sky.with_means(), beam_of(sky, views)
        self.full_model = of_sky = self.model = sky.bind(views, self._beam)
        if inner:
            of_sky = self.model = sky.bind(views, self._beam, without_gains=True)
        if outer is not sky:
            self.model = outer.bind(views, self._beam, without_gains=inner)
        return of_sky

    def _at_samples(self, model: BoundModel) -> BoundModel:
        """The model at the times and channels whose visibilities stand for all data."""
        return model if self._reduced is None else model.taken(self._reduced.samples)

    def __repr__(self) -> str:
        return (
            f"<Likelihood of {self.observation.source}: {self.n_vis.sum()} visibilities, {self._gains_text()}"
            f"{self.n_param} parameters; {self.backend}, {self.precision} precision>"
        )

    def _repr_html_(self) -> str:
        names = ", ".join(self.parameter_names[:MOST_SHOWN])
        more = f" and {self.n_param - MOST_SHOWN} more" if self.n_param > MOST_SHOWN else ""
        return html_text(f"{repr(self)[1:-1]}\nparameters: {names}{more}")

    @property
    def sky(self) -> SkyModel:
        """The sky model, with the prior of its noise as it is used."""
        return self._sky

    @property
    def marginalised(self) -> tuple[str, ...]:
        """Names of the parameters that are integrated over or solved for: fluxes, gains, or both."""
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
        for cached in (
            "undetermined",
            "lone_gains",
            "segments",
            "_gain_solver",
            "_without_cells",
            "_closures",
        ):
            full.__dict__.pop(cached, None)
        full.gains = "sample" if self.gains in INNER_GAINS else self.gains
        model = self._at_samples(self.full_model)
        of_full = treatment_of(full.gains, self.observation, model, self._engines, model, model)
        full._evaluate(self.full_model, model, of_full)
        return full

    def inner_draws(self, theta: ArrayLike, rng: np.random.Generator) -> InnerDraws:
        """A draw of the marginalised parameters for each theta (n_batch, n_param), given this theta.

        Raises
        ------
        InputError
            Nothing is marginalised; or the likelihood is not a number for a theta.
        """
        if self._inner is None:
            raise InputError("no quantity of the model has marginalise = true, and no gains are marginalised")
        return self._inner.draws(self._batch(theta)[0], rng)

    def integral_correction(self, theta: ArrayLike) -> tuple[float, float, float] | None:
        """How much the integral over gains is off at one theta, by importance sampling of the gains.

        Returns
        -------
        float, float, float or None
            ln of the integral less Laplace's approximation, the standard error, and the least share of draws
            that count, of all groups of gains. None where no gains are integrated over.
        """
        return None if self._inner is None else self._inner.correction(self._one(theta))

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

    def dof(self, theta: ArrayLike | None = None) -> Array:
        """Degrees of freedom of chi2 of each partition: real data numbers less what is fitted to them.

            n_data - parameters - gains

        Parameters of the sky are shared out over the partitions in proportion to their data. Gains, whether
        they are parameters, integrated over or solved for, count in their own partitions. At a `theta` they
        count by what they take of the data: a gain that its prior knows better than the data counts less than
        one. Noise factors change no chi2 of the stated weights, and do not count.

        Parameters
        ----------
        theta : (n_param,), optional

        Returns
        -------
        float64 (n_partition,)
            At least 0.
        """
        n_data = self.n_data.astype(np.float64)
        gains: InnerGainLikelihood | InnerFluxAndGainLikelihood | None = self._gain_solver
        if isinstance(self._treatment, InnerGainLikelihood | InnerFluxAndGainLikelihood):
            gains = self._treatment
        names = [name for name in self.parameter_names if not name.startswith("noise.")]
        n_shared = len(names) + (0 if gains is not None else len(self.marginalised))
        taken = np.zeros(n_data.size)
        if gains is not None:
            if gains is self._gain_solver:
                n_shared -= sum(name in set(gains.inner.names) for name in names)
            batch = None if theta is None else self._one(theta)
            if batch is not None and gains is self._gain_solver:
                batch = gains.batch_of(batch.theta)
            taken = gains.n_inner(batch)
        shared = n_shared * n_data / max(float(n_data.sum()), 1.0)
        return np.asarray(np.maximum(n_data - taken - shared, 0.0))

    @property
    def cells(self) -> list[Cells]:
        """Cells of each partition whose visibilities are replaced by few; empty without `average="cells"`.

        `Cells.expand` takes model visibilities from the rows and channels that are kept to all.
        """
        return [] if self._reduced is None else self._reduced.cells

    @property
    def choices(self) -> Choices:
        """What was chosen where options left it open, with reasons, and what it means for a fit."""
        reason, average_lines = self._why
        return Choices(
            forms=[rime.form for rime in self._engines.rimes],
            precision=reason,
            smearing=lines_of(self._engines.smearing, self.observation.labels),
            gains=self._treatment.lines,
            average=average_lines,
        )

    @property
    def backend(self) -> Backend:
        """The backend that computes the likelihood: "cpu" or "cuda"."""
        return cast(Backend, self._engines.rimes[0].backend)

    @property
    def solves_gains(self) -> bool:
        """Whether `with_best_gains` finds gains that theta has."""
        return self._gain_solver is not None

    def with_best_gains(self, theta: ArrayLike) -> Array:
        """Vectors theta (n_batch, n_param) with the gains that are best beside the sky of each.

        Gains stay as they are where these are not found, and where they are none that `gains="solve"` takes.
        """
        batch, _ = self._batch(theta)
        if self._gain_solver is None:
            return batch.theta
        found = self._gain_solver.beside(batch.theta)
        there = np.isfinite(found).all(axis=1)
        moved = batch.theta.copy()
        moved[there] = np.clip(self.model.wrap(found[there]), *self.model.box)
        return moved

    def start_points(self, seed: int) -> StartPoints:
        """Where the climb to the maximum begins beside gains that are found for each sky; else none.

        It begins at the maxima of the closures of the same data and sky
        (`biro.likelihood.free_gains.starts`). Gains among few parameters need no such start: the whole prior
        is searched.
        """
        if self._closures is None:
            return StartPoints(np.empty((0, self.n_param)))
        return gain_starts(self, self._closures, seed)

    @cached_property
    def _closures(self) -> Likelihood | None:
        """The likelihood of the closures of the same data and sky, where gains are found for each sky."""
        found_in_theta = self.gains == "sample" and self.solves_gains and self.n_param > SEARCHABLE
        if not self.n_param or not (self.gains in INNER_GAINS or found_in_theta):
            return None
        try:
            return Likelihood(
                self.described, replace(self._sky, gain=None), gains="closures", options=self.options
            )
        except BiroError as error:
            log.info("gains: the fit does not start at the maximum of the closures: %s", error)
            return None

    def plan(self, n_batch: int = 1) -> PrintedText:
        """How a call with so many parameter vectors is worked out, a line for each partition.

        Which kernel, how it is cut, what lies where, in how many steps; puts the data on the device. The last
        line says what the data take on this machine.

        Raises
        ------
        InputError
            `n_batch` is below 1.
        """
        if n_batch < 1:
            raise InputError(f"n_batch must be at least 1, got {n_batch}")
        batch, _ = self._batch(self.model.prior_transform(np.full((n_batch, self.n_param), 0.5)))
        noise = f"; {self._treatment.noise}" if batch.noise_dof is not None else ""
        lines = zip(self.observation.labels, self._engines.plans(batch), strict=True)
        texts = [*(f"{label}: {plan}{noise}" for label, plan in lines), self._engines.memory]
        return PrintedText("\n".join(texts))

    def remarks(self, theta: ArrayLike) -> list[str]:
        """What makes the errors of a fit doubtful, from its residuals, for one vector theta (the best fit).

        Residuals of the two parallel hands that are correlated or scatter unequally, where the sky has Stokes
        I alone (`biro.likelihood.parallel_hands`); noise that differs among correlations, antennas or lengths
        of baselines beyond what weights and model say (`biro.observation.unequal_noise`). Of large data some
        times and channels are looked at.
        """
        size = sum(part.vis.size for part in self.observation.partitions)
        # Gains belong to all times, noise to all antennas or lengths of baselines, or to neighbours in time.
        noise = self.model.model.noise
        of_noise = noise.of_antennas or bool(noise.edges) or self.model.noise_correlation is not None
        belongs = self.full_model.has_fitted_gains or of_noise
        if (size > 2 * N_RESIDUALS or self.observation.is_distributed) and not belongs:
            of_few = self.of_few()
            return (of_few if self._inner else of_few.full).remarks(theta)
        models = self.predict(theta)
        data = self.independent(theta, models).partitions
        of_data = residual_remarks(data, self.observation.antenna_names, models, self.noise_factor(theta))
        of_noise = self.doubts(theta) if self.model.noise_correlation is not None else []
        return [text for text in (*of_noise, self.undetermined, self.lone_gains, *of_data) if text]

    def of_few(self) -> Likelihood:
        """The likelihood of some times and channels: about a million visibilities at most."""
        few = thinned(self.observation, N_RESIDUALS)
        of_few = self._like(few, self.options)
        of_few.described = self.described
        return of_few

    @cached_property
    def undetermined(self) -> str:
        """A line about combinations of gains and other parameters that the data do not determine, or "".

        Where gains are integrated over or solved for, combinations of gains alone are left out: that is done.
        Closures leave open what gains would make up for.
        """
        if self.gains in INNER_GAINS:
            marginal = [p.name for p in self.full.parameters if p.prior.marginalise]
            return undetermined(self.full, beside=[*self.parameter_names, *marginal])
        is_open = self.model.has_fitted_gains or self.gains == "closures"
        return undetermined(self) if is_open else ""

    def doubts_of_maximum(self) -> list[str]:
        """What the maximum of the posterior is biased in, though samples of it are not.

        The density per unit of a log-normal amplitude has its maximum at exp(-sd^2), that per unit of its
        logarithm, at 1. Where data leave the flux scale to n such amplitudes, they are all low together, and
        fluxes high by sd sqrt(n) of their errors.
        """
        priors = [p.prior for p in self.parameters if p.name.startswith("gain") and ".amplitude" in p.name]
        sd = np.array([prior.sd for prior in priors if isinstance(prior, LogNormal)])
        if not sd.size or FLUX_SCALE not in self.undetermined:
            return []
        information = float(np.sum(sd**-2.0))
        sigma, part = sd.size / np.sqrt(information), 2.0 * sd.size / information
        if sigma < _BIAS:
            return []
        return [
            f"FLUXES ARE BIASED: at this maximum they are {np.expm1(part):.1%} too high, {sigma:.1f} times "
            f"the error, because {sd.size} log-normal gain amplitudes have their mode below their median. "
            'Use the mean of samples, or gains="marginalise"'
        ]

    @cached_property
    def lone_gains(self) -> str:
        """A line about gains, or antennas of closures, that a single baseline sees, or ""."""
        if self.gains == "closures":
            return lone_gains(self.observation, None)
        if not self.full_model.has_fitted_gains:
            return ""
        try:
            gains = self.full_model.log_gains
        except ModelError:  # priors that no integral takes: segments are not looked at
            gains = None
        return lone_gains(self.observation, gains)

    def description(self) -> dict[str, object]:
        """What was chosen, for the record of a run."""
        options, choices = self.options, self.choices
        images = {"images": self._engines.image_digest, "image_accuracy": options.image_accuracy}
        return {
            "column": self.observation.column,
            "backend": self.backend,
            "precision": self.precision,
            "precision_reason": choices.precision,
            "gaussian_frame": options.gaussian_frame,
            **(images if self._engines.image_digest else {}),
            "memory_limit": options.memory_limit,
            **({} if options.devices is None else {"devices": options.devices}),
            **({} if self.ranks is None else {"ranks": self.ranks.n_rank}),
            "noise": self._treatment.noise,
            "gains": self.gains,
            **({"average": choices.average} if choices.average else {}),
            **({self.gains: choices.gains} if choices.gains else {}),
            "smearing": options.smearing,
            "smearing_reason": choices.smearing,
            "form": choices.forms,
            "reason": list(dict.fromkeys(rime.reason for rime in self._engines.rimes)),
            "n_vis": self.n_vis.tolist(),
            "parameters": list(self.parameter_names),
        }

    def digest(self) -> str:
        """Hash of everything that decides the value: data, model, images, precision, frame, smearing.

        Backend, form, memory limit, devices and shapes of kernels change it by roundings and are left out.
        """
        frame = self.options.gaussian_frame
        parts = [self.observation.digest(), self.full_model.digest(), self.precision, frame]
        if self._engines.image_digest:
            parts += [self._engines.image_digest, repr(float(self.options.image_accuracy))]
        if self._inner is not None:
            parts.append("marginalised")
        if self._treatment.identity:
            parts += [self.gains, *self._treatment.identity]
        if "on" in self.options.smearing:
            parts += [choice.digest() for choice in self._engines.smearing]
        if self._reduced is not None:
            parts += ["cells", self._reduced.observation.digest()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def data_digest(self) -> str:
        """Hash of the data: equal for models whose evidences compare."""
        return data_digest(self.described, self.gains)

    def _fisher(self, theta: ArrayLike) -> Information:
        # What gains take of what the data say of the noise is counted by visibilities, not by cells.
        whole = self._of_all_data
        return super()._fisher(theta) if whole is self or self._inner is None else whole._fisher(theta)

    @property
    def _of_all_data(self) -> Likelihood:
        return self if self._reduced is None else self._without_cells

    @cached_property
    def _without_cells(self) -> Likelihood:
        return self._like(self.observation, self.options)

    @cached_property
    def _gain_solver(self) -> InnerGainLikelihood | None:
        """What finds the gains of theta beside its sky; None where there are none, or none that it takes."""
        if type(self._treatment) is not VisibilityLikelihood or not self.model.has_fitted_gains:
            return None
        outer = self._sky.bind(self.observation.partition_views, self._beam, without_gains=True)
        try:
            seen = self._at_samples(outer)
            return InnerGainLikelihood(self.observation, seen, self._engines, self._seen, integrate=False)
        except BiroError as error:
            log.info("gains are not solved at the start of the fit: %s", error)
            return None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return by_earlier_name(self, name)

    def _gains_text(self) -> str:
        return f"{self.n_data.sum()} closures, " if self.gains == "closures" else ""

    def _like(
        self, observation: Observation, options: EngineOptions, average: Average = "none"
    ) -> Likelihood:
        """The likelihood of the same model and treatment of gains."""
        return Likelihood(observation, self._sky, gains=self.gains, average=average, options=options)
