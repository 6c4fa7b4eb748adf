"""Data, models and engines of a likelihood, made once: `Likelihood` and its `full` share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from biro.beams.loading import beam_of
from biro.choices import Gains
from biro.io.gain_files import with_gains_read
from biro.io.ionosphere import with_ionosphere_read
from biro.likelihood.cells.average import Average, reduced_data
from biro.likelihood.cells.choose import ReducedData
from biro.likelihood.cells.variation import ComparableLikelihood
from biro.likelihood.densities.choice import needing_all_data
from biro.likelihood.densities.gain_treatment import INNER_GAINS
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.noise_range import refuse_tapered, with_noise_range
from biro.likelihood.options import EngineOptions
from biro.likelihood.precision import with_chosen_precision
from biro.models import SkyModel
from biro.models.bound.model import BoundModel
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.components.noise import SPLITS
from biro.observation.observation import Observation


@dataclass(frozen=True)
class BoundModels:
    """A sky model bound to data, with and without what a likelihood integrates over or solves for.

    Attributes
    ----------
    full : BoundModel
        As the model was written.
    outer : BoundModel
        Of the parameters of theta.
    of_sky : BoundModel
        What visibilities are computed of: without gains that are integrated over or solved for.
    beam : BeamCube, AntennaBeams or None
        The beam that all are bound with, as read from its file.
    """

    full: BoundModel
    outer: BoundModel
    of_sky: BoundModel
    beam: BeamCube | AntennaBeams | None

    @classmethod
    def of(cls, sky: SkyModel, observation: Observation, gains: Gains) -> BoundModels:
        """The models that a treatment of gains needs, bound to this observation."""
        views, inner, means = observation.partition_views, gains in INNER_GAINS, sky.with_means()
        beam = beam_of(sky, views)
        full = sky.bind(views, beam)
        of_sky = sky.bind(views, beam, without_gains=True) if inner else full
        outer = of_sky if means is sky else means.bind(views, beam, without_gains=inner)
        return cls(full, outer, of_sky, beam)


@dataclass(frozen=True)
class PreparedData:
    """What a likelihood is evaluated with.

    Attributes
    ----------
    described : Observation
        The observation that was given.
    observation : Observation
        With parallel and cross hands in partitions of their own, where the noise is that of hands.
    sky : SkyModel
        With the prior of its noise, the gains and the ionosphere as they are used.
    models : BoundModels
    reduced : ReducedData or None
        The cells that stand for the data.
    engines : PartitionEngines
    options : EngineOptions
        With the precision and the smearing that were chosen.
    precision_reason, average_lines : str, list of str
        Why these were chosen.
    """

    described: Observation
    observation: Observation
    sky: SkyModel
    models: BoundModels
    reduced: ReducedData | None
    engines: PartitionEngines
    options: EngineOptions
    precision_reason: str
    average_lines: list[str]

    @classmethod
    def of(
        cls,
        observation: Observation,
        sky: SkyModel,
        gains: Gains,
        average: Average,
        options: EngineOptions,
        likelihood: Callable[..., ComparableLikelihood],
    ) -> PreparedData:
        """Read, split and reduce the data, choose the precision, and make the engines.

        `likelihood` makes a likelihood of the same sky, by which choices are measured: `biro.Likelihood`.

        Raises
        ------
        BiroError
            As `biro.Likelihood`.
        """
        described, reason = observation, "as asked"
        if sky.noise.grouping in SPLITS:
            observation = observation.whole("noise of hands").split_parallel_cross(
                each=sky.noise.grouping == "correlation"
            )
        sky = with_gains_read(with_noise_range(sky, observation.partitions), observation)
        sky = with_ionosphere_read(sky, observation)
        models = BoundModels.of(sky, observation, gains)
        refuse_tapered(models.outer, observation.partitions)
        what = "cells" if average == "cells" else needing_all_data(gains, models.outer, models.full)
        if what:
            observation = observation.whole(what)

        def of_this_sky(
            data: Observation, options: EngineOptions, average: Average = "none"
        ) -> ComparableLikelihood:
            return likelihood(data, sky, gains=gains, average=average, options=options)

        if options.precision == "auto":
            options, reason = with_chosen_precision(observation, options, of_this_sky)
        reduced, average_lines = reduced_data(average, observation, options, of_this_sky)
        data, left_out = observation, None
        if reduced is not None:
            data, left_out = reduced.observation, reduced.left_out
        engines = PartitionEngines(data, _at_samples(models.of_sky, reduced), options, left_out)
        options = replace(options, smearing=[choice.mode for choice in engines.smearing])
        return cls(described, observation, sky, models, reduced, engines, options, reason, average_lines)

    def at_samples(self, model: BoundModel) -> BoundModel:
        """The model at the times and channels whose visibilities stand for all data."""
        return _at_samples(model, self.reduced)


def _at_samples(model: BoundModel, reduced: ReducedData | None) -> BoundModel:
    return model if reduced is None else model.taken(reduced.samples)
