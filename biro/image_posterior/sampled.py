"""The engine of images with samples, `prior = "correlated-field"` and `"pixels"`."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import check_names
from biro.errors import InputError
from biro.files.json_value import JsonValue
from biro.image_posterior.operator import ImageOperator, Vis, with_data
from biro.image_posterior.problem import CHECKPOINT, FittedImage, ImageProblem
from biro.image_posterior.sampling.jax_room import double_precision, has_gpu
from biro.image_posterior.self_calibration import fit_smooth
from biro.models import Fixed
from biro.models.quantities import units
from biro.models.quantities.prior import LogNormal, Normal, Prior

if TYPE_CHECKING:
    from biro.image_posterior.sampling.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.sky_priors import SkyPrior
    from biro.image_posterior.sampling.variational import Draws, Iteration, Settings
    from biro.image_posterior.sampling.visibility_model import VisibilityModel

    AnyModel: TypeAlias = VisibilityModel | ConvolvedModel
log = logging.getLogger(__name__)

Array = NDArray[np.float64]
_NOT_CONVERGED = (
    "NOT CONVERGED: the mean image still moves after {} iterations, so that the errors may be too small; "
    "give more (n_iterations)"
)
_APPROXIMATE = (
    "APPROXIMATE ERRORS: errors of the power spectrum, and of pixels that the data do not determine, are not "
    "calibrated yet. Use them as a guide"
)
_TOO_SMALL = (
    "ERRORS TOO SMALL: MGVI gives errors of the power spectrum and of faint pixels that are 2 to 3 times too "
    "small"
)
_UNFINISHED = "{} of {} samples are not converged; their errors are not reliable"
_FLUX_ERROR = 0.01
"""Relative error of a flux that is a number."""
_BYTES, _STEPS = 8, 1500
"""Bytes of a number, and calls of the gridder in an iteration with three pairs of samples."""
_OF_STATE, _ARRAYS = 4, 8
"""Times of a convolution that a step takes for each sample, and arrays of twice the field of each sample."""


def fit_sampled(problem: ImageProblem) -> FittedImage:
    """Samples of the image of a problem, from a start by the fast map.

    Raises
    ------
    InputError
        A package is missing, options that do not exist, or a model that this engine does not have.
    """
    # Predictions by the gridder keep JAX on the CPU: what it computes between them is little.
    on_gpu = _is_convolved(problem) and problem.operator.backend == "cuda" and has_gpu()
    with double_precision(on_gpu):
        settings = _settings(problem)
        began = time.monotonic()
        start = _first_image(problem) if on_gpu else fit_smooth(_for_fast_map(problem))
        image = np.maximum(start.samples[0, 0], 0.0)
        prior = _prior(problem, image)
        model = _model(problem, prior)
        if model.is_convolved and "method" not in problem.options:
            settings = replace(settings, method="mgvi")  # bent samples of large images take very long
        _tell(_plan(problem, model, settings))
        draws = _sampled(problem, model, settings, _start(problem, model, start.operator, image))
        return _result(problem, model, draws, settings.method, time.monotonic() - began)


def _for_fast_map(problem: ImageProblem) -> ImageProblem:
    """The problem as the fast map takes it: no options, and a flux with a normal prior."""
    flux, sd = _flux(problem.prior.flux)
    given = None if flux is None else Normal(flux, sd * flux, "Jy")
    return replace(problem, options={}, prior=replace(problem.prior, flux=given))


def _settings(problem: ImageProblem) -> Settings:
    from biro.image_posterior.sampling.variational import Settings

    names = ("method", "n_samples", "n_iterations", "n_pairs")
    check_names(problem.options, names, "fit_image")
    return Settings(seed=problem.seed, **problem.options)


def _prior(problem: ImageProblem, image: Array) -> SkyPrior:
    """The prior of the sky with the flux of the model, or that of the fast map."""
    from biro.image_posterior.sampling.sky_priors import FLUX_SD, CorrelatedField, Pixels

    flux, sd = _flux(problem.prior.flux)
    if flux is None:
        flux, sd = float(image.sum()), FLUX_SD
    if not flux > 0.0:
        raise InputError("the data have no positive flux, so that there is no image; check their phases")
    if problem.prior.prior == "pixels":
        return Pixels(problem.operator.field.size, flux)
    made = CorrelatedField(problem.operator.field.size, flux, sd)
    if isinstance(problem.prior.flux, Normal):
        made.lines += (
            f"flux: the normal prior is taken as log-normal, median {flux:.3g} Jy, sd of ln {sd:.2g}",
        )
    return made


def _flux(given: Any) -> tuple[float | None, float]:
    """The flux of the image in Jy, and sd of its logarithm."""
    if given is None:
        return None, 0.0
    scale = units.factor(given.unit or "Jy", units.FLUX)
    if isinstance(given, Fixed):
        return float(given.value * scale), _FLUX_ERROR
    if isinstance(given, LogNormal):
        return float(given.median * scale), float(given.sd)
    if isinstance(given, Normal):
        if not 0.0 <= given.sd < given.mean:
            raise InputError(
                "flux: a normal prior of an image that is sampled is taken as log-normal and needs a mean "
                f"above its sd, found mean {given.mean:g} and sd {given.sd:g}; give a log-normal prior"
            )
        return float(given.mean * scale), float(given.sd / given.mean)
    raise InputError(
        f"flux: an image that is sampled needs a number, a normal or a log-normal prior, found {given.family}"
    )


def _model(problem: ImageProblem, prior: SkyPrior) -> AnyModel:
    """Visibilities with gains and noise as the model has them; large data without these by convolution."""
    from biro.image_posterior.sampling.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.gain_model import GainModel
    from biro.image_posterior.sampling.jax_operator import UsedData
    from biro.image_posterior.sampling.noise_model import NoiseModel
    from biro.image_posterior.sampling.visibility_model import VisibilityModel

    sky, observation = problem.sky, problem.observation
    used = UsedData(problem.operator.weights)
    gains = GainModel(sky, observation, used) if sky.gains else None
    data: list[Vis] = problem.operator.data
    fixed: Sequence[Vis] | None = None
    if gains is not None:
        # Gains act on the components, too: the data are those that were measured.
        data, fixed = [part.vis for part in observation.partitions], problem.components
    noise, scale = None, problem.noise
    if isinstance(sky.noise.factor, Prior) or sky.noise.follows_model:
        noise, scale = NoiseModel(sky.noise, observation.partition_views, used), 1.0
    operator = with_data(problem.operator, data, [weight / scale**2 for weight in problem.operator.weights])
    if _is_convolved(problem):
        return ConvolvedModel(operator, prior)
    return VisibilityModel(operator, prior, gains=gains, noise=noise, fixed=fixed, used=used)


def _is_convolved(problem: ImageProblem) -> bool:
    """Whether convolutions with the PSF take the place of predictions: large data without gains, noise."""
    from biro.image_posterior.sampling.convolved_model import LARGE

    noise = problem.sky.noise
    is_fitted = bool(problem.sky.gains) or isinstance(noise.factor, Prior) or noise.follows_model
    return sum(problem.operator.n_data) > LARGE and not is_fitted


def _first_image(problem: ImageProblem) -> FittedImage:
    """A start in place of the fast map, whose minor cycles on the CPU take minutes for a large image."""
    from biro.image_posterior.sampling.first_image import first_image

    image = first_image(problem.operator, problem.noise)
    return FittedImage(samples=image[None, None], is_map=True, operator=problem.operator)


def _start(problem: ImageProblem, model: AnyModel, calibrated: ImageOperator, image: Array) -> Array:
    """The state of the fast map: its image, and the gains that it took out."""
    xi = np.zeros(model.n)
    xi[model.at.sky] = model.prior.numbers(image)
    if model.gains is not None:
        products = []
        for part, vis, beside in zip(
            problem.observation.partitions, calibrated.data, problem.components, strict=True
        ):
            with np.errstate(divide="ignore", invalid="ignore"):
                products.append(np.asarray(part.vis / (vis + beside)))
        xi[model.at.gains] = model.gains.numbers(products)
    return xi


def _sampled(problem: ImageProblem, model: AnyModel, settings: Settings, start: Array) -> Draws:
    from biro.image_posterior.sampling.variational import sample
    from biro.image_posterior.sampling.visibility_model import VisibilityModel

    checkpoint: Path | None = None
    if problem.run_dir is not None:
        problem.run_dir.mkdir(parents=True, exist_ok=True)
        checkpoint = problem.run_dir / CHECKPOINT
    between = None if isinstance(model, VisibilityModel) else model.major_cycle
    if between is not None:
        between(start)
    return sample(
        model,
        start,
        settings,
        checkpoint=checkpoint,
        identity="" if checkpoint is None else _identity(problem, model),
        tell=_tell,
        between=between,
    )


def _identity(problem: ImageProblem, model: AnyModel) -> str:
    """A digest of data, weights, components beside the image, priors, gains and noise."""
    found = hashlib.sha256()
    operator = model.operator
    for array in (*operator.data, *operator.weights, *problem.components):
        found.update(np.ascontiguousarray(array).tobytes())
    names = [*(model.gains.names if model.gains else ()), *(model.noise.names if model.noise else ())]
    found.update(repr((model.prior.lines, names, operator.field)).encode())
    found.update(problem.sky.to_toml().encode())
    return found.hexdigest()


def _tell(line: str) -> None:
    log.info("%s", line)


def _plan(problem: ImageProblem, model: AnyModel, settings: Settings) -> str:
    """Memory and time of the run, before it begins."""
    from biro.image_posterior.sampling.visibility_model import VisibilityModel

    n_state, size = max(2 * settings.n_pairs, 1), problem.operator.field.size
    if not isinstance(model, VisibilityModel):
        step, n_array = n_state * _OF_STATE * model.seconds_of_convolution(), 4 * _ARRAYS * size**2
        numbers = n_state * (10 * model.n + n_array)
    else:
        image = np.zeros((1, size, size))
        model.operator.predict(image)  # compiled
        began = time.monotonic()
        model.operator.adjoint(model.operator.predict(image))
        step = (time.monotonic() - began) * settings.n_pairs / 3
        numbers = 10 * n_state * (model.n + 2 * model.n_data)
    memory = _BYTES * (numbers + settings.n_samples * model.n)
    minutes = settings.n_iterations * _STEPS * step / 60.0
    return (
        f"{settings.method}: {model.n} numbers, {model.n_data} complex visibilities; about "
        f"{memory / 1e6:.3g} MB, at most about {minutes + 0.5:.2g} minutes"
    )


def _result(problem: ImageProblem, model: AnyModel, draws: Draws, method: str, seconds: float) -> FittedImage:
    """Images of the samples, the data with mean gains taken out, and what else was found."""
    import jax
    import jax.numpy as jnp

    is_map = not len(draws.samples)
    states = jnp.asarray(draws.mean[None] if is_map else draws.samples)
    images = np.asarray(jax.lax.map(model.image, states))[:, None]
    facts: dict[str, JsonValue] = {
        "method": method,
        "iterations": [_for_json(one) for one in draws.iterations],
        "converged": draws.converged,
        "seconds": round(seconds, 1),
        "assumed": list(model.prior.lines),
    }
    arrays: dict[str, NDArray[Any]] = {"latent": np.asarray(states)}
    spectrum = model.prior.spectrum(states[0][model.at.sky])
    if spectrum is not None:
        spectra = jax.lax.map(lambda xi: model.prior.spectrum(xi[model.at.sky]), states)
        arrays |= {"wavenumber": model.prior.wavenumbers, "power_spectrum": np.asarray(spectra)}
    if model.noise is not None:
        factor, fraction = jax.vmap(lambda xi: model.noise.values(xi[model.at.noise]))(states)
        facts["noise"] = {
            "factor": float(np.mean(factor)),
            "factor_sd": float(np.std(factor)),
            "systematic": float(np.mean(fraction)),
        }
    (operator, noise), n_free, centre = _with_noise(problem, model, draws.mean), 0, None
    if model.gains is not None:
        operator = _calibrated(problem, model, draws.mean, operator)
        # Gains of the mean state go with its image: with free amplitudes the mean image has another flux.
        centre = np.asarray(model.image(jnp.asarray(draws.mean)))[None]
        # What the data determine of each number is what its variance has lost against the prior, 1.
        n_free = round(float(np.sum(1.0 - np.clip(np.var(states[:, model.at.gains], axis=0), 0.0, 1.0))))
        arrays["gain_coordinates"] = np.asarray(
            jax.vmap(lambda xi: model.gains.coordinates(xi[model.at.gains]))(states)
        )
        facts["gains"] = list(model.gains.names)
    remarks = _remarks(problem, draws, method)
    return FittedImage(
        samples=images,
        is_map=is_map,
        operator=operator,
        remarks=remarks,
        facts=facts,
        arrays=arrays,
        noise=noise,
        n_free=n_free,
        centre=centre,
    )


def _for_json(one: Iteration) -> dict[str, JsonValue]:
    """Numbers of an iteration; JSON has no infinity."""
    return {key: None if value == np.inf else value for key, value in vars(one).items()}


def _remarks(problem: ImageProblem, draws: Draws, method: str) -> tuple[str, ...]:
    """What a user must know of the errors of the samples."""
    has_spectrum, n_samples = problem.prior.prior != "pixels", len(draws.samples)
    given = [
        (bool(n_samples) and has_spectrum, _APPROXIMATE),
        (not draws.converged, _NOT_CONVERGED.format(len(draws.iterations))),
        (draws.n_unfinished > 0, _UNFINISHED.format(draws.n_unfinished, n_samples)),
        (method == "mgvi" and has_spectrum, _TOO_SMALL),
    ]
    return tuple(text for is_given, text in given if is_given)


def _with_noise(problem: ImageProblem, model: AnyModel, mean: Array) -> tuple[ImageOperator, float | None]:
    """The operator with the noise of the mean state in its weights, less the factor that is returned."""
    if model.noise is None:
        return problem.operator, None
    numbers = mean[model.at.noise]
    scale = np.asarray(model.noise.scale(numbers, model.visibilities(mean)))[0]
    # Several groups have factors of their own: chi2 is divided by one, and weights have the rest.
    factor = float(np.mean(model.noise.values(numbers)[0]))
    ratio = model.used.put(factor / scale)
    weights = [weight * own**2 for weight, own in zip(problem.operator.weights, ratio, strict=True)]
    return with_data(problem.operator, problem.operator.data, weights), factor


def _calibrated(
    problem: ImageProblem, model: AnyModel, mean: Array, operator: ImageOperator
) -> ImageOperator:
    """The data with the gains of the mean state taken out, and without the components."""
    assert model.gains is not None
    log_amplitude, phase = model.gains.factors(mean[model.at.gains])
    factor = np.exp(np.asarray(log_amplitude) + 1j * np.asarray(phase))
    products = model.used.put(np.broadcast_to(factor, (model.n_data,)))
    data, weights = [], []
    for part, product, beside, weight in zip(
        problem.observation.partitions, products, problem.components, operator.weights, strict=True
    ):
        safe = np.where(product == 0.0, 1.0, product)
        data.append(np.asarray(part.vis / safe - beside))
        weights.append(weight * np.abs(safe) ** 2)
    return with_data(problem.operator, data, weights)
