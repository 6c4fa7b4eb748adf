"""The likelihood: an observation and a sky model, joined once, evaluated for many parameter vectors."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from biro.choices import Gains
from biro.deprecation import by_earlier_name
from biro.display.formatting import PrintedText, given_text, html_text
from biro.display.progress import show_compilation
from biro.distributed.closing import Closing
from biro.errors import BiroError, InputError
from biro.inference.maximum.tempering.exploration import SEARCHABLE
from biro.inference.target.protocol import InnerDraws, StartPoints
from biro.likelihood.cells.average import Average
from biro.likelihood.cells.compress import Cells
from biro.likelihood.densities.choice import treatment_of
from biro.likelihood.densities.gain_treatment import INNER_GAINS, Information, check_gains, data_digest
from biro.likelihood.densities.visibilities import VisibilityLikelihood
from biro.likelihood.density import Array
from biro.likelihood.fit_remarks import FitRemarks
from biro.likelihood.free_gains.starts import gain_starts
from biro.likelihood.integrals.fluxes_beside_gains import InnerFluxAndGainLikelihood
from biro.likelihood.integrals.gains import InnerGainLikelihood
from biro.likelihood.options import Choices, EngineKeywords, EngineOptions
from biro.likelihood.other_skies import OtherSkies
from biro.likelihood.parallel_hands import N_RESIDUALS
from biro.likelihood.precision import thinned
from biro.likelihood.prepared import PreparedData
from biro.models import SkyModel
from biro.models.bound.model import BoundModel
from biro.observation.flags import warn_of_reading
from biro.observation.observation import Observation
from biro.observation.smearing import lines_of
from rime_kernels.choices import Backend

log = logging.getLogger(__name__)
show_compilation()
_HINT = "; marginalised parameters belong to `full`"

MOST_SHOWN = 30
"""Parameters that a notebook names of a likelihood."""


class Likelihood(FitRemarks, Closing):
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
        closures are asked for; or processes with other data or versions.
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
        self.share(observation, options.comm)
        check_gains(gains)
        prepared = PreparedData.of(observation, sky, gains, average, options, Likelihood)
        self._take(prepared, gains, prepared.models.outer)

    def _take(self, prepared: PreparedData, gains: Gains, model: BoundModel) -> None:
        """Begin with data and engines that may be those of another likelihood, for theta of this model."""
        self._prepared, self.gains = prepared, gains
        self.described, self.observation = prepared.described, prepared.observation
        self.full_model, self.options = prepared.models.full, prepared.options
        self.precision, self._engines = prepared.options.chosen_precision, prepared.engines
        self.image_outlines = prepared.engines.image_outlines
        is_full = model is self.full_model
        seen = full = of_sky = prepared.at_samples(model)
        if not is_full:
            full, of_sky = (prepared.at_samples(each) for each in (self.full_model, prepared.models.of_sky))
        treatment = treatment_of(gains, self.observation, seen, self._engines, full, of_sky)
        self._evaluate(model, seen, treatment, "" if is_full else _HINT)

    def __repr__(self) -> str:
        closures = f"{self.n_data.sum()} closures, " if self.gains == "closures" else ""
        return (
            f"<Likelihood of {self.observation.source}: {self.n_vis.sum()} visibilities, {closures}"
            f"{self.n_param} parameters; {self.backend}, {self.precision} precision>"
        )

    def _repr_html_(self) -> str:
        names = ", ".join(self.parameter_names[:MOST_SHOWN])
        more = f" and {self.n_param - MOST_SHOWN} more" if self.n_param > MOST_SHOWN else ""
        return html_text(f"{repr(self)[1:-1]}\nparameters: {names}{more}")

    @property
    def sky(self) -> SkyModel:
        """The sky model, with the prior of its noise as it is used."""
        return self._prepared.sky

    def other_skies(self, theta: ArrayLike) -> OtherSkies:
        """Other sky models at the data that `residual_data` has, beside the best fit theta (n_param,)."""
        whole, without_gains = self._of_all_data, self.gains in INNER_GAINS
        values = dict(zip(self.full_model.parameter_names, self.completed(theta).tolist(), strict=True))
        return OtherSkies(
            observation=self.observation,
            sky=self.sky,
            beam=self._prepared.models.beam,
            options=self.options,
            without_gains=without_gains,
            engines=whole._engines,
            places=self._looked_at,
            values=values,
        )

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
        full = Likelihood.__new__(Likelihood)
        full._take(self._prepared, "sample" if self.gains in INNER_GAINS else self.gains, self.full_model)
        full.described, full.ranks = self.described, self.ranks
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
        return [] if self._prepared.reduced is None else self._prepared.reduced.cells

    @property
    def choices(self) -> Choices:
        """What was chosen where options left it open, with reasons, and what it means for a fit."""
        return Choices(
            forms=[rime.form for rime in self._engines.rimes],
            precision=self._prepared.precision_reason,
            smearing=lines_of(self._engines.smearing, self.observation.labels),
            gains=self._treatment.lines,
            average=self._prepared.average_lines,
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
                self.described, replace(self.sky, gain=None), gains="closures", options=self.options
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

    def of_few(self) -> Likelihood:
        """The likelihood of some times and channels: about a million visibilities at most."""
        few = thinned(self.observation, N_RESIDUALS)
        of_few = Likelihood(few, self.sky, gains=self.gains, options=self.options)
        of_few.described = self.described
        return of_few

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
            **self.sharing,
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
        if self._prepared.reduced is not None:
            parts += ["cells", self._prepared.reduced.observation.digest()]
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
        return self if self._prepared.reduced is None else self._without_cells

    @cached_property
    def _without_cells(self) -> Likelihood:
        return Likelihood(self.observation, self.sky, gains=self.gains, options=self.options)

    @cached_property
    def _gain_solver(self) -> InnerGainLikelihood | None:
        """What finds the gains of theta beside its sky; None where there are none, or none that it takes."""
        if type(self._treatment) is not VisibilityLikelihood or not self.model.has_fitted_gains:
            return None
        views, beam = self.observation.partition_views, self._prepared.models.beam
        outer = self.sky.bind(views, beam, without_gains=True)
        try:
            seen = self._prepared.at_samples(outer)
            return InnerGainLikelihood(self.observation, seen, self._engines, self._seen, integrate=False)
        except BiroError as error:
            log.info("gains are not solved at the start of the fit: %s", error)
            return None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return by_earlier_name(self, name)
