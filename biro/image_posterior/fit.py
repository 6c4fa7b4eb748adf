"""`fit_image`: an observation and a model with an image that has a prior, to the image and its errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from biro.choices import Gains
from biro.display.arguments import OBSERVATION, SKY, takes
from biro.display.progress import showing
from biro.errors import InputError
from biro.image_posterior.frames import FramesOperator
from biro.image_posterior.make_problem import image_problem
from biro.image_posterior.maps.map_checkpoint import NAME
from biro.image_posterior.misfit import misfit_lines
from biro.image_posterior.primary_beam import check_scalar
from biro.image_posterior.problem import CHECKPOINT, FittedImage, ImageProblem
from biro.image_posterior.results.map_facts import with_map_facts
from biro.image_posterior.results.products import CALIBRATED, write_calibrated
from biro.image_posterior.results.result import FILE, ImagePosterior
from biro.image_posterior.results.run import image_run
from biro.image_posterior.single_dish_file import read_map
from biro.imaging.imager import first_date, origin_of
from biro.imaging.psf import fit_beam
from biro.models import Fixed, ImagePrior, SkyModel
from biro.models.components.noise import SPLITS
from biro.observation.flags import warn_of_reading
from biro.observation.observation import Observation
from rime_kernels.choices import Backend

log = logging.getLogger(__name__)


@takes(observation=OBSERVATION, sky=SKY)
def fit_image(
    observation: Observation,
    sky: SkyModel,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int = 1,
    gains: Gains = "sample",
    backend: Backend = "auto",
    memory_limit: int | str | None = None,
    progress: bool = True,
    pictures: bool = True,
    facts: Mapping[str, object] | None = None,
    **options: Any,
) -> ImagePosterior:
    """Fit the image of a model that has a prior, `ImagePrior`, to an observation.

    Data are Stokes I, the weighted mean of the parallel hands, or all correlations for a polarised image.
    Components beside the image are subtracted; those that have priors are fitted with the image. The image
    is brightness through the primary beam of the model, and apparent brightness where there is none. Several
    pointings make one image.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
        With one `ImagePrior`. Where [gain] has priors, gains of antennas are fitted beside the image.
    run_dir : path, optional
        Folder for the result (`ImagePosterior.save`) and for checkpoints.
    seed : int
        Of samples.
    gains : "sample" or "closures"
        "closures": closure phases and log closure amplitudes alone are fitted, for data that are not
        calibrated. They need prior = "correlated-field" and a `flux`.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that gridding may take on the device.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    pictures : bool
        Draw pictures into the folder.
    facts : mapping, optional
        More to be written into `run.json`.
    **options
        Of the engine: for "smooth" strength (a number above 0) and n_cycle (of self-calibration, from 1);
        with samples method, n_samples, n_iterations, n_pairs, n_steps and elbo.

    Returns
    -------
    ImagePosterior

    Raises
    ------
    InputError
        No image with a prior or several, keys or options that images do not have, no usable data, a run
        directory that has a result.

    Examples
    --------
    >>> image = biro.fit_image(observation, biro.read_model("sky.toml"))  # doctest: +SKIP
    >>> print(image, image.region("offset; circle(0 mas, 0 mas, 1 mas)"))  # doctest: +SKIP
    """
    prior = _prior_of(sky)
    _check_gains(gains, sky, prior)
    folder = None if run_dir is None else Path(run_dir)
    if folder is not None and (folder / FILE).exists() and not (folder / CHECKPOINT).exists():
        raise InputError(f"{folder}: has an image already; choose another directory")
    warn_of_reading(observation)
    whole = observation.whole("an image that is fitted")
    dish_map = None if prior.single_dish is None else read_map(prior.single_dish)
    run_options = {**options, **({} if gains == "sample" else {"gains": gains})}
    run_options |= {} if dish_map is None else {"single_dish": dish_map.digest()}
    with showing(progress), image_run(folder, whole, sky, seed, run_options, facts or {}) as run:
        problem = image_problem(whole, sky, prior, backend, memory_limit, dish_map)
        if gains == "closures":
            problem = replace(problem, closures=True, noise=_fixed_factor(sky), noise_remark="")
        problem = replace(problem, seed=seed, progress=progress, run_dir=folder, options=options)
        fitted = with_map_facts(problem, _with_remarks(problem, _engine(problem)))
        made = _result(problem, fitted)
        if folder is not None and run is not None:
            # A result that had not converged is replaced by that of the run which went on.
            made.save(folder, overwrite=True, pictures=pictures)
            if sky.gains:
                write_calibrated(folder / CALIBRATED, problem, fitted)
            if made.facts.get("converged", True):
                for path in (folder / CHECKPOINT, *folder.glob(NAME.format("*"))):
                    path.unlink(missing_ok=True)
            run.finish()
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
    if sky.populations:
        raise InputError(
            f"population {sky.populations[0].name!r} cannot stand beside a fitted image, which holds sources "
            "of any number; write [[source]] tables"
        )
    prior: ImagePrior = sky.image_priors[0]
    check_scalar(sky)
    if sky.beam is not None and (prior.is_polarised or prior.spectral_index is not None):
        raise InputError(
            "[beam] in front of a fitted image needs Stokes I without a spectrum; leave [beam] out and "
            "divide the result by the beam"
        )
    if sky.pointing is not None:
        raise InputError("[pointing] cannot stand beside a fitted image; leave it out")
    for name in ("leakage", "feeds", "ionosphere"):
        if getattr(sky, name) is not None and not (prior.is_polarised and name != "ionosphere"):
            remedy = "leave it out" if name == "ionosphere" else 'leave it out, or write stokes = "IQU"'
            raise InputError(
                f"[{name}] cannot stand beside a fitted image of Stokes {prior.stokes}; {remedy}"
            )
    if any(gain.table is not None for gain in sky.gains):
        raise InputError(
            "[gain] table cannot stand beside a fitted image; write calibrated data first "
            "(biro solve --corrected)"
        )
    _check_noise(sky, prior)
    if prior.prior == "pixels" and prior.flux is not None:
        raise InputError(
            'flux: prior = "pixels" has no prior of the flux; leave flux out, or write prior = '
            '"correlated-field"'
        )
    if prior.single_dish is not None and prior.spectral_index is not None:
        raise InputError(
            "single_dish needs an image without a spectrum, as the map has one frequency; leave "
            "spectral_index out"
        )
    return prior


def _check_gains(gains: Gains, sky: SkyModel, prior: ImagePrior) -> None:
    """Refuse treatments of gains that images do not have, and what closures do not go with."""
    if gains == "sample":
        return
    if gains != "closures":
        raise InputError(
            f'gains = "{gains}" is not available for an image with a prior; give "closures", or priors in '
            "[gain], which are fitted with the image"
        )
    if prior.prior != "correlated-field":
        raise InputError(
            'gains = "closures" needs prior = "correlated-field", which has a prior of the flux, found '
            f'"{prior.prior}"; change it, or write [gain] with priors in place of closures'
        )
    if prior.single_dish is not None:
        raise InputError(
            'gains = "closures" has no position, so that no map can be compared; leave single_dish out, or '
            "write [gain] with priors in place of closures"
        )
    if prior.has_frames:
        raise InputError(
            'gains = "closures" needs an image that is constant; leave frames out, or write [gain] with '
            "priors in place of closures"
        )
    if prior.is_polarised or prior.spectral_index is not None:
        raise InputError(
            'gains = "closures" needs Stokes I without a spectrum; leave stokes and spectral_index out, '
            "or write [gain] with priors in place of closures"
        )
    if prior.flux is None:
        raise InputError(
            'closures do not determine the flux; give that of the image: flux = { prior = "log-normal", '
            'median = 1, sd = 0.2, unit = "Jy" }'
        )
    if sky.gains:
        raise InputError(
            "closures do not depend on antenna gains, but the model has [gain]; leave it out, or leave "
            'gains = "closures" out'
        )
    if sky.noise.follows_model and not sky.noise.fixed_fraction:
        raise InputError(
            "[noise] systematic: closures of an image need one number, found a prior; write 0.02"
        )


def _fixed_factor(sky: SkyModel) -> float:
    """The factor of the noise where it is a number, else 1."""
    return float(sky.noise.factor.value) if isinstance(sky.noise.factor, Fixed) else 1.0


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
    from biro.image_posterior.maps.fast_map import fit_map

    return fit_map(problem)[1]


def _result(problem: ImageProblem, fitted: FittedImage) -> ImagePosterior:
    """The result with chi2, residuals and remarks of the mean image, or of that at the gains taken out."""
    operator, parts = fitted.operator, problem.observation.partitions
    noise = problem.noise if fitted.noise is None else fitted.noise
    centre = fitted.samples.mean(axis=0) if fitted.centre is None else fitted.centre
    model = operator.predict(centre)
    residuals = operator.residuals(model)
    chi2 = tuple(value / noise**2 for value in operator.chi2(model))
    reduced = sum(chi2) / max(1.0, 2.0 * sum(operator.n_data) - fitted.n_free)
    first, last = misfit_lines(problem, operator, residuals, noise, reduced)
    remarks = [*first, *fitted.remarks, *last]
    freq = float(np.concatenate([part.chan_freq for part in parts]).mean())
    if problem.planes is not None and operator.freq is not None:
        freq = problem.planes.reference
    low = min(float((part.chan_freq - 0.5 * part.chan_width).min()) for part in parts)
    high = max(float((part.chan_freq + 0.5 * part.chan_width).max()) for part in parts)
    seen = operator.sensitivity
    more = {} if seen is None else {"sensitivity": seen}
    if isinstance(operator, FramesOperator):
        more["frame_chi2"] = operator.chi2_of_frames(model) / noise**2
    about = {
        "freq": freq,
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
        residual=operator.dirty(residuals, n_stokes=fitted.samples.shape[1]),
        beam=fit_beam(operator.psf / operator.weight_sum, operator.field.cell),
        about=about,
        remarks=(*remarks, *operator.field.remarks),
        facts={"seed": problem.seed, **fitted.facts},
        arrays={**fitted.arrays, **more},
    )
