"""What an engine that fits an image is given, made of an observation and a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from biro.display.formatting import angle_text, first_few
from biro.errors import InputError
from biro.image_posterior.components import FreeComponents
from biro.image_posterior.field import ImageField, choose_field
from biro.image_posterior.frames import FramesOperator, choose_frames
from biro.image_posterior.operator import ImageOperator, Vis
from biro.image_posterior.planes import (
    check_correlations,
    planes_operator,
    reference_frequency,
    with_all_correlations,
)
from biro.image_posterior.primary_beam import (
    about_centre,
    mosaic_centre,
    power_patterns,
    sensitivity_line,
    widest_separation,
)
from biro.image_posterior.problem import ImageProblem, PlanesData
from biro.image_posterior.single_dish import SingleDishData, single_dish_data
from biro.image_posterior.single_dish_file import SingleDishMap
from biro.models import Fixed, ImagePrior, Noise, SkyModel
from biro.models.quantities import units
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.noise import MIN_DIFFERENCES, measure_noise
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.observation.uv_extent import field_of_view
from biro.simulation.prediction import predict
from rime_kernels.choices import Backend

LITTLE_VIEW = 0.4
"""Part of lambda/D of the dishes across which their primary beam changes brightness by less than 10 %."""
NO_BEAM = (
    "NO PRIMARY BEAM: the image is {} wide, and beyond {} the dishes of the interferometer attenuate sources "
    "that the single dish measures in full. Add [beam]"
)
ONE_HAND = 0.1
"""Share of visibilities of one parallel hand above which there is a remark; flags of one hand are usual."""


def image_problem(
    observation: Observation,
    sky: SkyModel,
    prior: ImagePrior,
    backend: Backend,
    memory_limit: int | str | None,
    dish_map: SingleDishMap | None = None,
) -> ImageProblem:
    whole = observation.whole("an image that is fitted")
    if not any(part.n_usable for part in whole.partitions):
        raise InputError("no visibility counts: all are flagged or have a weight of 0, so there is no image")
    parts, formed = form_stokes(whole.partitions, PSEUDO_I)
    pointed = replace(whole, partitions=tuple(part for part in parts if part.n_usable))
    apart = widest_separation(pointed)
    free = _free_components(pointed, sky, backend)
    if prior.has_frames and (apart or sky.beam is not None):
        raise InputError(
            "frames need one pointing without [beam]; leave [beam] out, select one field (fields=, "
            "--fields), or leave frames out"
        )
    if prior.has_frames and prior.single_dish is not None:
        raise InputError("frames cannot stand beside single_dish, a map of one time; leave one of them out")
    if apart and (sky.beam is None or free is not None):
        _refuse_mosaic(pointed, free)
    components = _components(pointed, sky if free is None else replace(sky, sources=(), images=()), backend)
    stokes_i, components = about_centre(pointed, mosaic_centre(pointed), components)
    place = choose_field(
        stokes_i,
        size=prior.size,
        field=_radians(prior.field),
        cell=_radians(prior.cell),
        pointings=apart,
        dish_beam=None if dish_map is None else dish_map.beam.major,
    )
    single_dish = None
    if dish_map is not None:
        single_dish, place = _beside_map(dish_map, place, pointed, sky)
    beams = power_patterns(pointed, place, sky)
    operator = ImageOperator(stokes_i, place, backend=backend, memory_limit=memory_limit, beams=beams)
    if operator.sensitivity is not None:
        operator.field = replace(place, chosen=(*place.chosen, sensitivity_line(operator.sensitivity)))
    operator.data = [vis - model for vis, model in zip(operator.data, components, strict=True)]
    noise, remark = noise_of(stokes_i, sky)
    problem = ImageProblem(
        stokes_i,
        operator,
        components,
        prior,
        sky,
        noise,
        1,
        True,
        remarks=() if prior.is_polarised else one_hand(whole.partitions, formed.n_formed),
        noise_remark=remark,
        free=free,
        pointings=[part.phase_centre for part in pointed.partitions],
        single_dish=single_dish,
    )
    if not prior.is_polarised and prior.spectral_index is None and not prior.has_frames:
        return problem
    if free is not None:
        raise InputError(
            f"{', '.join(free.names[:4])}: components beside an image with polarisation, a spectrum or "
            "frames must be fixed; write numbers in place of priors, or leave the component out: the image "
            "has its flux"
        )
    if prior.has_frames:
        return _with_frames(problem, backend, memory_limit)
    seen = [own for own, part in zip(whole.partitions, parts, strict=True) if part.n_usable]
    return replace(problem, planes=_planes(problem, seen, backend, memory_limit))


def _beside_map(
    dish_map: SingleDishMap, field: ImageField, observation: Observation, sky: SkyModel
) -> tuple[SingleDishData, ImageField]:
    """The pixels of a map inside an image, and the field with what was assumed.

    Raises
    ------
    InputError
        There are components beside the image, which the map has, too.
    """
    if sky.sources or sky.images:
        names = first_few([one.name for one in (*sky.sources, *sky.images)])
        raise InputError(
            f"{names}: components cannot stand beside an image with single_dish, whose map has their flux, "
            "too; leave them out: the image has their flux"
        )
    freq = np.concatenate([part.chan_freq for part in observation.partitions])
    made = single_dish_data(dish_map, field, (float(freq.min()), float(freq.max())))
    views = [field_of_view(part, observation.dish_diameter) for part in observation.partitions]
    remarks, widest = field.remarks, LITTLE_VIEW * min(views)
    if sky.beam is None and 0.0 < widest < field.width:
        remarks = (*remarks, NO_BEAM.format(angle_text(field.width), angle_text(widest)))
    return made, replace(field, chosen=(*field.chosen, *made.lines), remarks=remarks)


def _refuse_mosaic(observation: Observation, free: FreeComponents | None) -> None:
    """Refuse several pointings without a beam, or with components that are fitted."""
    if free is not None:
        raise InputError(
            f"{', '.join(free.names[:4])}: components beside a mosaic must be fixed; write numbers in place "
            "of priors, or select one field (fields=, --fields)"
        )
    n = len({part.phase_centre for part in observation.partitions})
    raise InputError(
        f"the data have {n} phase centres, and a mosaic needs the primary beam: add [beam], or select one "
        "field (fields=, --fields)"
    )


def _with_frames(problem: ImageProblem, backend: Backend, memory_limit: int | str | None) -> ImageProblem:
    """The problem with frames, unless the image is one frame."""
    times, observation = choose_frames(problem.observation, problem.prior), problem.observation
    place, line = problem.operator.field, "one frame has all times: the image is constant"
    place = replace(place, chosen=(*place.chosen, line if times is None else times.line))
    if times is None:
        problem.operator.field = place
        return problem
    operator = FramesOperator(observation, place, times, backend=backend, memory_limit=memory_limit)
    operator.data = problem.operator.data
    reference = reference_frequency(problem.sky, observation)
    return replace(problem, planes=PlanesData(observation, operator, problem.components, reference))


def _planes(
    problem: ImageProblem, measured: Sequence[Partition], backend: Backend, memory_limit: int | str | None
) -> PlanesData:
    """Data and operator of all Stokes parameters and frequencies of an image."""
    observation, components = problem.observation, problem.components
    if problem.prior.is_polarised:
        check_correlations(measured, observation.labels)
        every = tuple(with_all_correlations(part) for part in measured)
        observation = replace(observation, partitions=every)
        components = _components(observation, problem.sky, backend)
    reference = reference_frequency(problem.sky, observation)
    operator = planes_operator(problem, observation, reference, backend, memory_limit)
    operator.data = [vis - model for vis, model in zip(operator.data, components, strict=True)]
    return PlanesData(observation, operator, components, reference)


def one_hand(partitions: Sequence[Partition], n_formed: int) -> tuple[str, ...]:
    """A remark where many visibilities of Stokes I are one parallel hand alone."""
    alone: Counter[str] = Counter()
    for part in partitions:
        names = [name for name in part.corr_type if name in PARALLEL_HANDS]
        counts = part.weight[..., [name in names for name in part.corr_type]] > 0
        single = counts.sum(axis=2) == 1
        alone.update({name: int((counts[..., i] & single).sum()) for i, name in enumerate(names)})
    if sum(alone.values()) <= ONE_HAND * n_formed:
        return ()
    which = " and ".join(f"{n} visibilities are {name} alone" for name, n in alone.items() if n)
    return (f"ONE HAND: {which} and count as Stokes I; the sky is assumed unpolarised",)


def _radians(angle: Fixed | None) -> float | None:
    return None if angle is None else float(angle.value * units.factor(angle.unit or "rad", units.ANGLE))


def _free_components(observation: Observation, sky: SkyModel, backend: Backend) -> FreeComponents | None:
    """The components beside the image where some of their parameters have priors."""
    if not sky.sources and not sky.images:
        return None
    beside = replace(sky, image_priors=(), gain=None, constraints=(), noise=Noise(factor=1.0))
    if not beside.bind(observation.partition_views).parameters:
        return None
    return FreeComponents(observation, sky, backend)


def _components(observation: Observation, sky: SkyModel, backend: Backend) -> list[Vis]:
    """Visibilities of the components beside the image, where all are fixed."""
    if not sky.sources and not sky.images:
        return [np.zeros(part.vis.shape, np.complex128) for part in observation.partitions]
    beside = replace(
        sky,
        image_priors=(),
        gain=None,
        leakage=None,
        feeds=None,
        constraints=(),
        noise=Noise(factor=1.0),
    )
    return [np.asarray(vis) for vis in predict(observation, beside, backend=backend)]


def noise_of(observation: Observation, sky: SkyModel) -> tuple[float, str]:
    """The factor of the noise, and a remark: a number of the model, or measured from neighbouring times."""
    factor = sky.noise.factor
    if isinstance(factor, Fixed):
        return float(factor.value), ""
    measured = measure_noise(observation.partitions)
    if measured.n_difference < MIN_DIFFERENCES or not 0.0 < measured.ratio < np.inf:
        return 1.0, (
            "NOISE NOT MEASURED: noise taken as stated: too few neighbouring times "
            f"({measured.n_difference} differences, {MIN_DIFFERENCES} are needed). Check the weights"
        )
    ratio = float(measured.ratio)
    if measured.is_bound:
        return ratio, (
            "NOISE IS AN UPPER LIMIT: neighbouring times differ by more than noise, so that "
            f"{ratio:.3g} times the noise of the weights is an upper limit. Give [noise] factor if known"
        )
    return ratio, ""
