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
from biro.image_posterior.fast_map import fit_map, with_components
from biro.image_posterior.operator import ImageOperator, Vis, with_data
from biro.image_posterior.parameter_facts import parameter_facts
from biro.image_posterior.problem import CHECKPOINT, FittedImage, ImageProblem, PlanesData
from biro.image_posterior.sampling.jax_room import double_precision, has_gpu
from biro.image_posterior.shared_flux import remarks_on_components
from biro.models import Fixed, Gain
from biro.models.quantities import units
from biro.models.quantities.prior import LogNormal, Normal, Prior

if TYPE_CHECKING:
    from biro.image_posterior.sampling.chains import ChainDraws
    from biro.image_posterior.sampling.compact import CompactModel
    from biro.image_posterior.sampling.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.sky_priors import CorrelatedField, SkyPrior
    from biro.image_posterior.sampling.variational import Draws, Method, Settings
    from biro.image_posterior.sampling.visibility_model import VisibilityModel

    AnyModel: TypeAlias = VisibilityModel | CompactModel | ConvolvedModel
log = logging.getLogger(__name__)

Array = NDArray[np.float64]
_NOT_CONVERGED = (
    "NOT CONVERGED: the mean image still moves after {} iterations, so that the errors may be too small; "
    "give more (n_iterations)"
)
_CHAINS_DISAGREE = (
    "NOT CONVERGED: after {} steps the chains disagree: largest R-hat {:.2f} (below {:.3g} is wanted), at "
    "least {:.0f} effective samples ({:.0f} are wanted; slowest: {}). Errors may be wrong. Give more steps "
    "(n_steps) with the same run directory"
)
_APPROXIMATE = (
    "APPROXIMATE ERRORS: errors of the power spectrum, and of pixels that the data do not determine, are too "
    "large or too small by up to a factor of 1.5. Use them as a guide"
)
_TOO_SMALL = (
    "ERRORS TOO SMALL: MGVI gives errors of the power spectrum and of faint pixels that are 2 to 3 times too "
    "small"
)
_ANGLE_LOST = (
    "EVPA NOT CALIBRATED: phases of both hands are fitted apart, so that all angles are off by half of the "
    "phase between the hands of the reference antenna; turn them to a known angle"
)
_UNFINISHED = "{} of {} samples did not converge; errors are less reliable"
_OF_CHAINS = 256
"""Samples of chains that a result has by default."""
_BRIGHTER = 10.0
"""Samples are at most so much brighter than the fast map: what modes of the data are looked for."""
_FLUX_ERROR = 0.01
"""Relative error of a flux that is a number."""
_FARTHEST = 6.0
"""Numbers of components are at most so far from 0 where a search begins: beyond, they hardly change."""
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
        if on_gpu:
            start = _first_image(problem)
        else:
            found, start = fit_map(_for_fast_map(problem))
            problem = replace(
                problem, operator=found.operator, components=found.components, numbers=found.numbers
            )
        image = np.maximum(start.samples[0, 0], 0.0)
        if problem.closures:
            from biro.image_posterior.sampling.closure_fit import centred, is_adrift

            image = centred(image) if is_adrift(problem) else image
        whole = problem.of_planes
        prior = _prior(whole, image)
        model = _model(whole, prior, float(image.sum()))
        settings = replace(settings, method=_method(problem, model, settings.method))
        if settings.method == "hmc" and "n_samples" not in problem.options:
            settings = replace(settings, n_samples=_OF_CHAINS)
        _tell(_plan(whole, model, settings))
        draws = _sampled(whole, model, settings, _start(problem, model, start.operator, image))
        return _result(whole, model, draws, settings.method, time.monotonic() - began)


def _method(problem: ImageProblem, model: AnyModel, given: Method) -> Method:
    """The method that was asked for, or the best that the data allow.

    Raises
    ------
    InputError
        It is not available for data of this size.
    """
    from biro.image_posterior.sampling.compact import CompactModel

    is_compact = isinstance(model, CompactModel)
    size = f"{model.operator.field.size} x {model.operator.field.size} pixels and {model.n_data} visibilities"
    if "method" not in problem.options:
        if isinstance(model, CompactModel) and model.is_quick:
            return "hmc"
        return "mgvi" if model.is_convolved else "geovi"  # bent samples of large images take very long
    if given == "hmc" and problem.closures:
        raise InputError('method = "hmc": is not available for closures alone; give method = "geovi"')
    if given == "hmc" and not is_compact:
        raise InputError(
            f'method = "hmc": is not available for {size}; average data, give fewer pixels (size), or give '
            'method = "geovi"'
        )
    return given


def _for_fast_map(problem: ImageProblem) -> ImageProblem:
    """The problem as the fast map takes it: no options, a flux with a normal prior, Stokes I."""
    if problem.closures:
        from biro.image_posterior.sampling.closure_fit import with_any_gains

        problem = with_any_gains(problem)
    flux, sd = _flux(problem.prior.flux)
    given = None if flux is None else Normal(flux, sd * flux, "Jy")
    prior = replace(problem.prior, flux=given, stokes="I", spectral_index=None)
    if not problem.prior.is_polarised:
        return replace(problem, options={}, prior=prior)
    gains = tuple(replace(gain, feeds="common") for gain in problem.sky.gains)
    sky = replace(problem.sky, gain=gains or None, leakage=None, feeds=None)
    return replace(problem, options={}, prior=prior, sky=sky)


def _settings(problem: ImageProblem) -> Settings:
    from biro.image_posterior.sampling.variational import Settings

    names = ("method", "n_samples", "n_iterations", "n_pairs", "n_steps")
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
    return made if problem.planes is None else _with_planes(problem, problem.planes, made)


def _with_planes(problem: ImageProblem, planes: PlanesData, intensity: CorrelatedField) -> SkyPrior:
    """The prior of polarised brightness, of spectra, or of both."""
    from biro.image_posterior.sampling.plane_priors import PolarisedField, SpectralField

    size, prior = planes.operator.field.size, problem.prior
    made = PolarisedField(intensity, size, prior.stokes) if prior.is_polarised else intensity
    if planes.operator.freq is None:
        return made
    return SpectralField(made, size, prior.spectral_index, planes.operator.freq, planes.reference)


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


def _model(problem: ImageProblem, prior: SkyPrior, flux: float) -> AnyModel:
    """Visibilities with gains and noise as the model has them; large data without these by convolution."""
    from biro.image_posterior.sampling.compact import CompactModel, find_modes
    from biro.image_posterior.sampling.component_model import ComponentModel
    from biro.image_posterior.sampling.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.gain_model import GainModel
    from biro.image_posterior.sampling.jax_operator import UsedData
    from biro.image_posterior.sampling.noise_model import NoiseModel
    from biro.image_posterior.sampling.planes_model import PlanesModel, PolarisedModel
    from biro.image_posterior.sampling.visibility_model import VisibilityModel

    sky, observation = problem.sky, problem.observation
    if problem.closures:
        from biro.image_posterior.sampling.closure_fit import closure_model

        return closure_model(problem, prior)
    used, is_polarised = UsedData(problem.operator.weights), problem.prior.is_polarised
    gains = GainModel(sky, observation, used) if sky.gains and not is_polarised else None
    data: list[Vis] = problem.operator.data
    fixed: Sequence[Vis] | None = None
    components = ComponentModel(problem.free, used) if problem.free else None
    if gains is not None or is_polarised or components is not None:
        # Gains act on the components, too: the data are those that were measured.
        data = [part.vis for part in observation.partitions]
        fixed = problem.components if components is None else None
    noise, scale = None, problem.noise
    if isinstance(sky.noise.factor, Prior) or sky.noise.follows_model:
        noise, scale = NoiseModel(sky.noise, observation.partition_views, used), 1.0
    operator = with_data(problem.operator, data, [weight / scale**2 for weight in problem.operator.weights])
    n_stokes = len(problem.prior.stokes)
    if is_polarised:
        return PolarisedModel(operator, prior, sky, n_stokes=n_stokes, noise=noise, fixed=fixed, used=used)
    if problem.planes is not None:
        return PlanesModel(
            operator, prior, n_stokes=n_stokes, gains=gains, noise=noise, fixed=fixed, used=used
        )
    if _is_convolved(problem):
        return ConvolvedModel(operator, prior)
    modes = find_modes(operator, used, _BRIGHTER * flux)
    options: dict[str, Any] = {
        "gains": gains,
        "noise": noise,
        "fixed": fixed,
        "used": used,
        "components": components,
    }
    if modes is not None:
        return CompactModel(operator, prior, modes, **options)
    return VisibilityModel(operator, prior, **options)


def _is_convolved(problem: ImageProblem) -> bool:
    """Whether convolutions with the PSF take the place of predictions: large data of an image alone."""
    from biro.image_posterior.sampling.convolved_model import LARGE

    noise = problem.sky.noise
    is_fitted = bool(problem.sky.gains) or isinstance(noise.factor, Prior) or noise.follows_model
    has_more = is_fitted or problem.free is not None or problem.closures or problem.planes is not None
    # The convolution with one PSF does not know beams.
    return sum(problem.operator.n_data) > LARGE and not has_more and problem.operator.beams is None


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
    xi[model.at.components] = np.clip(problem.numbers, -_FARTHEST, _FARTHEST)
    return xi


def _sampled(problem: ImageProblem, model: AnyModel, settings: Settings, start: Array) -> Draws:
    from biro.image_posterior.sampling.chains import sample_chains
    from biro.image_posterior.sampling.compact import CompactModel
    from biro.image_posterior.sampling.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.variational import sample

    checkpoint: Path | None = None
    if problem.run_dir is not None:
        problem.run_dir.mkdir(parents=True, exist_ok=True)
        checkpoint = problem.run_dir / CHECKPOINT
    identity = "" if checkpoint is None else _identity(problem, model)
    if settings.method == "hmc" and isinstance(model, CompactModel):
        return sample_chains(model, start, settings, checkpoint=checkpoint, identity=identity, tell=_tell)
    between = model.major_cycle if isinstance(model, ConvolvedModel) else None
    if between is not None:
        between(start)
    return sample(
        model, start, settings, checkpoint=checkpoint, identity=identity, tell=_tell, between=between
    )


def _identity(problem: ImageProblem, model: AnyModel) -> str:
    """A digest of data, weights, components beside the image, priors, gains and noise."""
    found = hashlib.sha256()
    operator = model.operator
    for array in (*operator.data, *operator.weights, *problem.components):
        found.update(np.ascontiguousarray(array).tobytes())
    names = [*(model.gains.names if model.gains else ()), *(model.noise.names if model.noise else ())]
    names += ["closures"] * problem.closures
    found.update(repr((model.prior.lines, names, operator.field)).encode())
    found.update(problem.sky.to_toml().encode())
    return found.hexdigest()


def _tell(line: str) -> None:
    log.info("%s", line)


def _plan(problem: ImageProblem, model: AnyModel, settings: Settings) -> str:
    """Memory and time of the run, before it begins."""
    from biro.image_posterior.sampling.compact import CompactModel
    from biro.image_posterior.sampling.convolved_model import ConvolvedModel

    if isinstance(model, CompactModel) and settings.method == "hmc":
        return _plan_of_chains(model, settings)
    n_state, size = max(2 * settings.n_pairs, 1), problem.operator.field.size
    if isinstance(model, ConvolvedModel):
        step, n_array = n_state * _OF_STATE * model.seconds_of_convolution(), 4 * _ARRAYS * size**2
        numbers = n_state * (10 * model.n + n_array)
    else:
        step = _seconds_of_gridder(problem) * settings.n_pairs / 3
        numbers = 10 * n_state * (model.n + 2 * model.n_data)
    memory = _BYTES * (numbers + settings.n_samples * model.n)
    minutes = settings.n_iterations * _STEPS * step / 60.0
    return (
        f"{settings.method}: {model.n} numbers, {model.n_data} complex visibilities; about "
        f"{memory / 1e6:.3g} MB, at most about {minutes + 0.5:.2g} minutes"
    )


def _seconds_of_gridder(problem: ImageProblem) -> float:
    """Time of a prediction of all planes and its adjoint."""
    operator, n_stokes = problem.operator, len(problem.prior.stokes)
    planes = () if operator.freq is None else (len(operator.freq),)
    image = np.zeros((*planes, n_stokes, operator.field.size, operator.field.size))
    operator.adjoint(operator.predict(image), n_stokes=n_stokes)  # compiled
    began = time.monotonic()
    operator.adjoint(operator.predict(image), n_stokes=n_stokes)
    return time.monotonic() - began


def _plan_of_chains(model: CompactModel, settings: Settings) -> str:
    """Memory and time of chains, by the time of a gradient of all of them."""
    from biro.image_posterior.sampling.chains import N_CHAIN, THIN, gradients_in, seconds_per_gradient

    seconds = seconds_per_gradient(model)
    least, most = (gradients_in(steps) * seconds / 60.0 + 0.5 for steps in (400, settings.n_steps))
    memory = _BYTES * N_CHAIN * settings.n_steps / THIN * 2 * model.n
    return (
        f"hmc: {model.n} numbers, {model.n_data} complex visibilities, {model.n_mode} modes; at most about "
        f"{memory / 1e6:.3g} MB, about {least:.2g} minutes, at most about {most:.2g}"
    )


def _result(problem: ImageProblem, model: AnyModel, draws: Draws, method: str, seconds: float) -> FittedImage:
    """Images of the samples, the data with mean gains taken out, and what else was found."""
    import jax
    import jax.numpy as jnp

    from biro.image_posterior.sampling.chains import ChainDraws
    from biro.image_posterior.sampling.plane_priors import SpectralField
    from biro.image_posterior.sampling.planes_model import PlanesModel, PolarisedModel

    is_map = not len(draws.samples)
    states = jnp.asarray(draws.mean[None] if is_map else draws.samples)
    images = np.asarray(jax.lax.map(lambda xi: model.prior.planes(xi[model.at.sky]), states))
    facts: dict[str, JsonValue] = {
        "method": method,
        "iterations": [_for_json(one) for one in getattr(draws, "blocks", draws.iterations)],
        "converged": draws.converged,
        "seconds": round(seconds, 1),
        "assumed": list(model.prior.lines),
    }
    arrays: dict[str, NDArray[Any]] = {"latent": np.asarray(states)}
    spectrum = model.prior.spectrum(states[0][model.at.sky])
    if spectrum is not None:
        spectra = jax.lax.map(lambda xi: model.prior.spectrum(xi[model.at.sky]), states)
        arrays |= {"wavenumber": model.prior.wavenumbers, "power_spectrum": np.asarray(spectra)}
    if isinstance(model.prior, SpectralField):
        coefficients = jax.lax.map(lambda xi: model.prior.coefficients(xi[model.at.sky]), states)
        arrays["spectral_index"] = np.asarray(coefficients)
        arrays["plane_freq"] = np.asarray(problem.operator.freq)
    if model.noise is not None:
        factor, fraction = jax.vmap(lambda xi: model.noise.values(xi[model.at.noise]))(states)
        facts["noise"] = {
            "factor": float(np.mean(factor)),
            "factor_sd": float(np.std(factor)),
            "systematic": float(np.mean(fraction)),
        }
    if model.components is not None:
        problem = with_components(problem, draws.mean[model.at.components])
    n_free, centre = 0, None
    remarks = _of_chains(draws) if isinstance(draws, ChainDraws) else _remarks(problem, draws, method)
    if problem.closures:
        from biro.image_posterior.sampling.closure_fit import closure_remark, without_gains

        operator, noise, n_free, of_closures = without_gains(problem, model, draws.mean)
        facts |= of_closures
        remarks += (closure_remark(problem),)
        centre = np.asarray(model.image(jnp.asarray(draws.mean)))[None]
    else:
        operator, noise = _with_noise(problem, model, draws.mean)
    if isinstance(model, PlanesModel):
        centre = np.asarray(jax.lax.map(model.image, states)).mean(axis=0)
    if isinstance(model, PolarisedModel) and not model.antennas.changes_nothing:
        centre = model.centre(draws.mean)
        observation = problem.observation
        operator = model.calibrated(draws.mean, [part.vis for part in observation.partitions], operator)
        antennas, numbers = model.antennas, states[:, model.at.gains]
        arrays["leakage"], facts["leakage"] = model.leakages(np.asarray(states))
        n_free = _n_free(numbers)
        if antennas.n_gain:
            arrays["gain_coordinates"] = np.asarray(jax.vmap(antennas.coordinates)(numbers))[
                :, : antennas.n_gain
            ]
            facts["gains"] = list(antennas.names[: antennas.n_gain])
    elif model.gains is not None:
        operator = _calibrated(problem, model, draws.mean, operator)
        # Gains of the mean state go with its image: with free amplitudes the mean image has another flux.
        centre = np.asarray(model.image(jnp.asarray(draws.mean)))
        centre = centre if isinstance(model, PlanesModel) else centre[None]
        n_free = _n_free(states[:, model.at.gains])
        arrays["gain_coordinates"] = np.asarray(
            jax.vmap(lambda xi: model.gains.coordinates(xi[model.at.gains]))(states)
        )
        facts["gains"] = list(model.gains.names)
    if model.components is not None:
        centre = np.asarray(model.image(jnp.asarray(draws.mean)))[None]
        n_free += model.components.n
        theta = np.asarray(jax.vmap(lambda xi: model.components.theta(xi[model.at.components]))(states))
        arrays["parameters"] = theta
        facts |= parameter_facts(model.components.names, model.components.units, theta)
        remarks += remarks_on_components(problem, np.asarray(states[:, model.at.components]), images)
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


def _of_chains(draws: ChainDraws) -> tuple[str, ...]:
    """What a user must know of samples of chains."""
    from biro.image_posterior.sampling.chains import N_EFFECTIVE, R_HAT

    if draws.converged:
        return ()
    last = draws.blocks[-1]
    found = last.steps, draws.r_hat, R_HAT, draws.effective, N_EFFECTIVE, last.slowest
    return (_CHAINS_DISAGREE.format(*found),)


def _n_free(numbers: Any) -> int:
    """How many numbers the data determine: what the variance of each has lost against the prior, 1."""
    return round(float(np.sum(1.0 - np.clip(np.var(numbers, axis=0), 0.0, 1.0))))


def _for_json(one: Any) -> dict[str, JsonValue]:
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
        (problem.prior.is_polarised and _has_own_phases(problem.sky.gains), _ANGLE_LOST),
    ]
    return tuple(text for is_given, text in given if is_given)


def _has_own_phases(gains: Sequence[Gain]) -> bool:
    """Whether phases of the two hands are fitted apart."""
    apart = (gain for gain in gains if gain.feeds != "common")
    return any(gain.phase is not None or gain.ratio_phase is not None for gain in apart)


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
