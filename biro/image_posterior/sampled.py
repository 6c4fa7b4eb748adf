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
from biro.image_posterior.sampling.jax_room import double_precision
from biro.image_posterior.self_calibration import fit_smooth
from biro.models import Fixed
from biro.models.quantities import units
from biro.models.quantities.prior import LogNormal, Normal, Prior

if TYPE_CHECKING:
    from biro.image_posterior.sampling.chains import ChainDraws
    from biro.image_posterior.sampling.compact import CompactModel
    from biro.image_posterior.sampling.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.sky_priors import SkyPrior
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
_UNFINISHED = "{} of {} samples did not converge; errors are less reliable"
_OF_CHAINS = 256
"""Samples of chains that a result has by default."""
_BRIGHTER = 10.0
"""Samples are at most so much brighter than the fast map: what modes of the data are looked for."""
_FLUX_ERROR = 0.01
"""Relative error of a flux that is a number."""
_BYTES, _STEPS = 8, 1500
"""Bytes of a number, and calls of the gridder in an iteration with three pairs of samples."""


def fit_sampled(problem: ImageProblem) -> FittedImage:
    """Samples of the image of a problem, from a start by the fast map.

    Raises
    ------
    InputError
        A package is missing, options that do not exist, or a model that this engine does not have.
    """
    with double_precision():
        settings = _settings(problem)
        began = time.monotonic()
        start = fit_smooth(_for_fast_map(problem))
        image = np.maximum(start.samples[0, 0], 0.0)
        prior = _prior(problem, image)
        model = _model(problem, prior, float(image.sum()))
        settings = replace(settings, method=_method(problem, model, settings.method))
        if settings.method == "hmc" and "n_samples" not in problem.options:
            settings = replace(settings, n_samples=_OF_CHAINS)
        _tell(_plan(problem, model, settings))
        draws = _sampled(problem, model, settings, _start(problem, model, start.operator, image))
        return _result(problem, model, draws, settings.method, time.monotonic() - began)


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
        return "mgvi" if model.is_convolved else "geovi"
    if given == "geovi" and model.is_convolved:
        raise InputError(f'method = "geovi": is not available for {size}; average data, or give "mgvi"')
    if given == "hmc" and not is_compact:
        raise InputError(
            f'method = "hmc": is not available for {size}; average data, give fewer pixels (size), or give '
            'method = "geovi"'
        )
    return given


def _for_fast_map(problem: ImageProblem) -> ImageProblem:
    """The problem as the fast map takes it: no options, and a flux with a normal prior."""
    flux, sd = _flux(problem.prior.flux)
    given = None if flux is None else Normal(flux, sd * flux, "Jy")
    return replace(problem, options={}, prior=replace(problem.prior, flux=given))


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


def _model(problem: ImageProblem, prior: SkyPrior, flux: float) -> AnyModel:
    """Visibilities with gains and noise as the model has them; large data without these by convolution."""
    from biro.image_posterior.sampling.compact import CompactModel, find_modes
    from biro.image_posterior.sampling.convolved_model import LARGE, ConvolvedModel
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
    if used.n > LARGE and gains is None and noise is None:
        return ConvolvedModel(operator, prior)
    modes = find_modes(operator, used, _BRIGHTER * flux)
    options: dict[str, Any] = {"gains": gains, "noise": noise, "fixed": fixed, "used": used}
    if modes is not None:
        return CompactModel(operator, prior, modes, **options)
    return VisibilityModel(operator, prior, **options)


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
    found.update(repr((model.prior.lines, names, operator.field)).encode())
    found.update(problem.sky.to_toml().encode())
    return found.hexdigest()


def _tell(line: str) -> None:
    log.info("%s", line)


def _plan(problem: ImageProblem, model: AnyModel, settings: Settings) -> str:
    """Memory and time of the run, before it begins."""
    from biro.image_posterior.sampling.compact import CompactModel

    image = np.zeros((1, problem.operator.field.size, problem.operator.field.size))
    model.operator.predict(image)  # compiled
    began = time.monotonic()
    model.operator.adjoint(model.operator.predict(image))
    call = time.monotonic() - began
    if isinstance(model, CompactModel) and settings.method == "hmc":
        return _plan_of_chains(model, settings)
    n_state = max(2 * settings.n_pairs, 1)
    memory = _BYTES * (10 * n_state * (model.n + 2 * model.n_data) + settings.n_samples * model.n)
    minutes = settings.n_iterations * _STEPS * call * settings.n_pairs / 3 / 60.0
    return (
        f"{settings.method}: {model.n} numbers, {model.n_data} complex visibilities; about "
        f"{memory / 1e6:.3g} MB, at most about {minutes + 0.5:.2g} minutes"
    )


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

    is_map = not len(draws.samples)
    states = jnp.asarray(draws.mean[None] if is_map else draws.samples)
    images = np.asarray(jax.lax.map(model.image, states))[:, None]
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
    remarks = _of_chains(draws) if isinstance(draws, ChainDraws) else _remarks(problem, draws, method)
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
