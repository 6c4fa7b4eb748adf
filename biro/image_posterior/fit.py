"""`fit_image`: an observation and a model with an image that has a prior, to the image and its errors."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from biro.display.arguments import OBSERVATION, SKY, takes
from biro.display.progress import showing
from biro.errors import InputError
from biro.files.atomic import write_atomic
from biro.image_posterior.field import choose_field
from biro.image_posterior.operator import ImageOperator, Vis, source_outside
from biro.image_posterior.primary_beam import (
    about_centre,
    mosaic_centre,
    power_patterns,
    widest_separation,
)
from biro.image_posterior.problem import CHECKPOINT, FittedImage, ImageProblem
from biro.image_posterior.result import FILE, MISFIT, MODEL, ImagePosterior
from biro.imaging.imager import first_date, origin_of
from biro.imaging.psf import fit_beam
from biro.models import Fixed, ImagePrior, SkyModel
from biro.models.components.noise import SPLITS
from biro.models.quantities import units
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.flags import warn_of_reading
from biro.observation.noise import MIN_DIFFERENCES, measure_noise
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation.prediction import predict
from rime_kernels.choices import Backend

log = logging.getLogger(__name__)
ONE_HAND = 0.1
"""Share of visibilities of one parallel hand above which there is a remark; flags of one hand are usual."""


@takes(observation=OBSERVATION, sky=SKY)
def fit_image(
    observation: Observation,
    sky: SkyModel,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int = 1,
    backend: Backend = "auto",
    memory_limit: int | str | None = None,
    progress: bool = True,
    pictures: bool = True,
    **options: Any,
) -> ImagePosterior:
    """Fit the image of a model that has a prior, `ImagePrior`, to an observation.

    Data are Stokes I: the weighted mean of the parallel hands. Components beside the image are fixed and
    subtracted. The image is apparent brightness at all frequencies; a model with a beam is refused.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
        With one `ImagePrior`. Where [gain] has priors, gains of antennas are fitted beside the image.
    run_dir : path, optional
        Folder for the result (`ImagePosterior.save`) and for checkpoints.
    seed : int
        Of samples.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that gridding may take on the device.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    pictures : bool
        Draw image.png into the folder.
    **options
        Of the engine: for "smooth" strength (a number above 0) and n_cycle (of self-calibration, from 1).

    Returns
    -------
    ImagePosterior

    Raises
    ------
    InputError
        No image with a prior or several, free components, a beam, no usable data, a run directory that has a
        result.

    Examples
    --------
    >>> image = biro.fit_image(observation, biro.read_model("sky.toml"))  # doctest: +SKIP
    >>> print(image, image.region("offset; circle(0 mas, 0 mas, 1 mas)"))  # doctest: +SKIP
    """
    prior = _prior_of(sky)
    folder = None if run_dir is None else Path(run_dir)
    if folder is not None and (folder / FILE).exists() and not (folder / CHECKPOINT).exists():
        raise InputError(f"{folder}: has an image already; choose another directory")
    warn_of_reading(observation)
    with showing(progress):
        problem = _problem(observation, sky, prior, backend, memory_limit)
        problem = replace(problem, seed=seed, progress=progress, run_dir=folder, options=options)
        made = _result(problem, _with_remarks(problem, _engine(problem)))
    if folder is not None:
        # A result that had not converged is replaced by that of the run which went on.
        made.save(folder, overwrite=True, pictures=pictures)
        write_atomic(folder / MODEL, sky.to_toml().encode())
        if made.facts.get("converged", True):
            (folder / CHECKPOINT).unlink(missing_ok=True)
    return made


def _prior_of(sky: SkyModel) -> ImagePrior:
    """The image with a prior of a model.

    Raises
    ------
    InputError
        There is none, there are several, or the model has what cannot stand beside it.
    """
    if len(sky.image_priors) != 1:
        raise InputError(
            f"the model has {len(sky.image_priors)} images with a prior, expected one: [[image]] with "
            'prior = "smooth" or "correlated-field"'
        )
    for name in ("pointing", "leakage", "feeds", "ionosphere"):
        if getattr(sky, name) is not None:
            raise InputError(
                f"[{name}] cannot stand beside a fitted image, which is of Stokes I; leave it out"
            )
    if any(gain.table is not None for gain in sky.gains):
        raise InputError(
            "[gain] table cannot stand beside a fitted image; write calibrated data first "
            "(biro solve --corrected)"
        )
    prior: ImagePrior = sky.image_priors[0]
    _check_noise(sky, prior)
    if prior.prior == "pixels" and prior.flux is not None:
        raise InputError(
            'flux: prior = "pixels" has no prior of the flux; leave flux out, or write prior = '
            '"correlated-field"'
        )
    return prior


def _check_noise(sky: SkyModel, prior: ImagePrior) -> None:
    """Refuse noise that is not a factor and a fraction, and what the fast map does not fit."""
    noise = sky.noise
    other = [
        (noise.distribution != "gaussian", f'distribution = "{noise.distribution}"'),
        (noise.of_antennas, 'per = "antenna"'),
        (noise.grouping in SPLITS, f'per = "{noise.grouping}"'),
        (noise.additive is not None, "additive"),
        (bool(noise.edges), "edges"),
        (noise.correlation is not None, f'correlation = "{noise.correlation}"'),
    ]
    found = next((text for is_given, text in other if is_given), None)
    if found:
        raise InputError(f"[noise] {found} is not fitted beside an image; give factor and systematic alone")
    if not prior.is_sampled and noise.follows_model and not noise.fixed_fraction:
        raise InputError('[noise] systematic: prior = "smooth" needs one number, found a prior; write 0.02')


def _problem(
    observation: Observation,
    sky: SkyModel,
    prior: ImagePrior,
    backend: Backend,
    memory_limit: int | str | None,
) -> ImageProblem:
    whole = observation.whole("an image that is fitted")
    if not any(part.n_usable for part in whole.partitions):
        raise InputError("no visibility counts: all are flagged or have a weight of 0, so there is no image")
    parts, formed = form_stokes(whole.partitions, PSEUDO_I)
    pointed = replace(whole, partitions=tuple(part for part in parts if part.n_usable))
    components = _components(pointed, sky, backend)
    centre, apart = mosaic_centre(pointed), widest_separation(pointed)
    if apart and sky.beam is None:
        raise InputError(
            f"the data have {len({part.phase_centre for part in pointed.partitions})} phase centres, and a "
            "mosaic needs the primary beam: add [beam], or select one field (fields=, --fields)"
        )
    stokes_i, components = about_centre(pointed, centre, components)
    place = choose_field(
        stokes_i,
        size=prior.size,
        field=_radians(prior.field),
        cell=_radians(prior.cell),
        pointings=apart,
    )
    beams = power_patterns(pointed, place, sky)
    operator = ImageOperator(stokes_i, place, backend=backend, memory_limit=memory_limit, beams=beams)
    operator.data = [vis - model for vis, model in zip(operator.data, components, strict=True)]
    noise, remark = _noise(stokes_i, sky)
    return ImageProblem(
        stokes_i,
        operator,
        components,
        prior,
        sky,
        noise,
        1,
        True,
        remarks=_one_hand(whole.partitions, formed.n_formed),
        noise_remark=remark,
    )


def _one_hand(partitions: Sequence[Partition], n_formed: int) -> tuple[str, ...]:
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


def _components(observation: Observation, sky: SkyModel, backend: Backend) -> list[Vis]:
    """Visibilities of the components beside the image, which are fixed."""
    if not sky.sources and not sky.images:
        return [np.zeros(part.vis.shape, np.complex128) for part in observation.partitions]
    beside = replace(sky, image_priors=(), gain=None, constraints=())
    free = [one.name for one in beside.bind(observation.partition_views).parameters]
    free = [name for name in free if not name.startswith("noise.")]
    if free:
        raise InputError(
            f"{', '.join(free[:4])}: components beside a fitted image must be fixed; write numbers in "
            "place of priors, or leave the component out: the image has its flux"
        )
    beside = replace(beside, noise=type(beside.noise)(factor=1.0))
    return [np.asarray(vis) for vis in predict(observation, beside, backend=backend)]


def _noise(observation: Observation, sky: SkyModel) -> tuple[float, str]:
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


def _with_remarks(problem: ImageProblem, fitted: FittedImage) -> FittedImage:
    """What an engine returned, with remarks on the data, and on the noise unless the engine changed it."""
    is_kept = problem.noise_remark and fitted.noise in (None, problem.noise)
    of_noise = (problem.noise_remark,) if is_kept else ()
    return replace(fitted, remarks=(*fitted.remarks, *problem.remarks, *of_noise))


def _engine(problem: ImageProblem) -> FittedImage:
    """The image by the engine of its prior."""
    if problem.prior.is_sampled:
        try:
            from biro.image_posterior.sampled import fit_sampled
        except ModuleNotFoundError as error:
            raise InputError(
                f'prior = "{problem.prior.prior}" needs {error.name}; pip install "biro-rime[images]", or '
                'write prior = "smooth"'
            ) from None
        return fit_sampled(problem)
    from biro.image_posterior.self_calibration import fit_smooth

    return fit_smooth(problem)


def _result(problem: ImageProblem, fitted: FittedImage) -> ImagePosterior:
    """The result with chi2, residuals and remarks of the mean image, or of that at the gains taken out."""
    operator, parts = fitted.operator, problem.observation.partitions
    noise = problem.noise if fitted.noise is None else fitted.noise
    centre = fitted.samples.mean(axis=0) if fitted.centre is None else fitted.centre
    model = operator.predict(centre)
    residuals = operator.residuals(model)
    chi2 = tuple(value / noise**2 for value in operator.chi2(model))
    reduced = sum(chi2) / max(1.0, 2.0 * sum(operator.n_data) - fitted.n_free)
    remarks = [*fitted.remarks]
    outside = source_outside(operator, residuals, noise) if reduced > MISFIT else None
    if reduced > MISFIT:
        remarks.insert(0, _misfit(reduced, outside, bool(problem.sky.gains)))
    remarks += [outside] if outside else []
    frequencies = np.concatenate([part.chan_freq for part in parts])
    low = min(float((part.chan_freq - 0.5 * part.chan_width).min()) for part in parts)
    high = max(float((part.chan_freq + 0.5 * part.chan_width).max()) for part in parts)
    about = {
        "freq": float(frequencies.mean()),
        "bandwidth": high - low,
        "freq_frame": parts[0].freq_frame,
        "field": parts[0].field,
        "telescope": problem.observation.telescope,
        "date": first_date(problem.observation),
        "origin": origin_of(problem.observation),
    }
    return ImagePosterior(
        name=problem.prior.name,
        prior=problem.prior.prior,
        field=operator.field,
        samples=fitted.samples,
        is_map=fitted.is_map,
        labels=tuple(problem.observation.labels),
        chi2=chi2,
        n_data=tuple(operator.n_data),
        noise=noise,
        residual=operator.dirty(residuals),
        beam=fit_beam(operator.psf / operator.weight_sum, operator.field.cell),
        about=about,
        remarks=(*remarks, *operator.field.remarks),
        facts={"seed": problem.seed, **fitted.facts},
        arrays=fitted.arrays,
    )


def _misfit(reduced: float, outside: str | None, has_gains: bool) -> str:
    """The line of an image that does not fit."""
    line = f"THE IMAGE DOES NOT FIT: chi2/dof is {reduced:.3g}, 1 is expected"
    if outside:
        return f"{line}; another line says why"
    if has_gains:
        return (
            f"{line}. The gains of [gain] do not explain it: shorten `per`, add amplitude or phase, state "
            "errors of baselines ([noise] systematic), or make the image larger"
        )
    return (
        f"{line}. The usual causes are errors of gains (add [gain] with priors to the model), bright points "
        "between pixels (give a smaller cell, or add them as [[source]]), and an image that is too small"
    )
