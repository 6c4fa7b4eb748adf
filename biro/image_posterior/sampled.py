"""The engine of images with samples, `prior = "correlated-field"` and `"pixels"`."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import check_names
from biro.errors import InputError, RunError
from biro.image_posterior.maps.fast_map import fit_map
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.problem import CHECKPOINT, FittedImage, ImageProblem
from biro.image_posterior.results.elbo import with_elbo
from biro.image_posterior.results.map_facts import SCALE
from biro.image_posterior.sampled_model import (
    flux_of,
    is_convolved,
    posterior_model,
    sky_prior,
    to_reference,
)
from biro.image_posterior.sampled_result import fitted_image
from biro.image_posterior.sampling.jax_room import double_precision, has_gpu
from biro.models import Gain
from biro.models.quantities.prior import Normal

if TYPE_CHECKING:
    from biro.image_posterior.sampled_model import AnyModel
    from biro.image_posterior.sampling.compact import CompactModel
    from biro.image_posterior.sampling.draws import Draws, Method, Settings

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
_OF_CHAINS = 256
"""Samples of chains that a result has by default."""
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
    on_gpu = is_convolved(problem) and problem.operator.backend == "cuda" and has_gpu()
    with double_precision(on_gpu):
        settings = _settings(problem)
        began = time.monotonic()
        if problem.is_adrift:
            start = _envelope_alone(problem)
        elif on_gpu and not problem.sky.gains:
            start = _first_image(problem)
        else:
            found, start = fit_map(_for_fast_map(problem))
            problem = replace(
                problem, operator=found.operator, components=found.components, numbers=found.numbers
            )
        image = np.maximum(start.samples[0, 0], 0.0) * to_reference(problem)
        whole = problem.of_planes
        if problem.sky.gains and is_convolved(problem):
            whole = replace(whole, operator=start.operator)
        prior = sky_prior(whole, image)
        model = posterior_model(whole, prior, float(image.sum()))
        settings = replace(settings, method=_method(problem, model, settings.method))
        if settings.elbo:
            settings = replace(settings, method=_with_elbo(problem, model, settings.method))
        if settings.method == "hmc" and "n_samples" not in problem.options:
            settings = replace(settings, n_samples=_OF_CHAINS)
        _tell(_plan(whole, model, settings))
        draws = _sampled(whole, model, settings, _start(problem, model, start.operator, image))
        made = fitted_image(whole, model, draws, settings.method, time.monotonic() - began)
        if draws.elbo is not None:
            made = with_elbo(made, draws.elbo, whole, model.operator)
        if problem.single_dish is None:
            return made
        scales = problem.single_dish.scale_of(made.arrays["latent"][:, -1])
        return replace(made, arrays=made.arrays | {SCALE: scales})


def _method(problem: ImageProblem, model: AnyModel, given: Method) -> Method:
    """The method that was asked for, or the best that the data allow.

    Raises
    ------
    InputError
        It is not available for data of this size.
    """
    from biro.image_posterior.sampling.compact import CompactModel

    is_compact = isinstance(model, CompactModel)
    n, frames = model.operator.field.size, "".join(f"{n} frames of " for n in model.operator.plane_axis)
    size = f"{frames}{n} x {n} pixels and {model.n_data} visibilities"
    if "method" not in problem.options:
        if isinstance(model, CompactModel) and model.is_quick:
            return "hmc"
        return "mgvi" if model.is_convolved else "geovi"  # bent samples of large images take very long
    if given == "hmc" and problem.planes is not None and not problem.prior.has_frames:
        raise InputError(
            'method = "hmc": is not available for polarised images and spectra; give method = "geovi"'
        )
    if given == "hmc" and not is_compact:
        raise InputError(
            f'method = "hmc": is not available for {size}; average data, give fewer pixels (size), or give '
            'method = "geovi"'
        )
    return given


def _with_elbo(problem: ImageProblem, model: AnyModel, method: Method) -> Method:
    """The method where the lower bound of the evidence is computed, which only variational ones have.

    Raises
    ------
    InputError
        Another method was asked for, closures, gains of large data, or an image that is too large.
    """
    from biro.image_posterior.sampling.elbo import check_elbo

    check_elbo(model.n)
    if problem.closures:
        raise InputError('elbo: is not available for gains = "closures"; leave it out')
    if model.is_convolved and problem.sky.gains:
        raise InputError(
            f"elbo: is not available for gains beside {model.n_data} visibilities, which are solved for "
            "without their priors; average the data (--average-time), or leave elbo out"
        )
    if method in ("mgvi", "geovi"):
        return method
    if "method" in problem.options:
        raise InputError(f'elbo: method = "{method}" has none; give method = "geovi", or leave elbo out')
    return "geovi"


def _for_fast_map(problem: ImageProblem) -> ImageProblem:
    """The problem as the fast map takes it: no options, a flux with a normal prior, Stokes I."""
    if problem.closures:
        from biro.image_posterior.sampling.closure_fit import with_any_gains

        problem = with_any_gains(problem)
    flux, sd = flux_of(problem.prior.flux)
    given = None if flux is None else Normal(flux, sd * flux, "Jy")
    prior = replace(problem.prior, flux=given, stokes="I", spectral_index=None)
    if not problem.prior.is_polarised:
        return replace(problem, options={}, prior=prior)
    sky = replace(problem.sky, gain=_of_both_hands(problem.sky.gains) or None, leakage=None, feeds=None)
    return replace(problem, options={}, prior=prior, sky=sky)


def _of_both_hands(gains: Sequence[Gain]) -> tuple[Gain, ...]:
    """Gains as data of Stokes I have them: one for both hands, without those of their ratio alone."""
    common = (
        replace(gain, feeds="common", ratio_amplitude=None, ratio_phase=None)
        for gain in gains
        if gain.feeds != "ratio" or any(getattr(gain, key) is not None for key in ("amplitude", "phase"))
    )
    return tuple(common)


def _settings(problem: ImageProblem) -> Settings:
    from biro.image_posterior.sampling.draws import Settings

    names = ("method", "n_samples", "n_iterations", "n_pairs", "n_steps", "elbo")
    check_names(problem.options, names, "fit_image")
    # Which method is the default depends on the data: what one alone refuses is checked when it is known.
    given = {"method": "hmc", **problem.options}
    return Settings(seed=problem.seed, **given)


def _first_image(problem: ImageProblem) -> FittedImage:
    """A start in place of the fast map, whose minor cycles on the CPU take minutes for a large image."""
    from biro.image_posterior.sampling.first_image import first_image

    image = first_image(problem.operator, problem.noise)
    return FittedImage(samples=image[None, None], is_map=True, operator=problem.operator)


def _envelope_alone(problem: ImageProblem) -> FittedImage:
    """The middle of the prior, an envelope without structure: a start that prefers no image to another."""
    from biro.image_posterior.sampling.envelope import envelope_of

    flux, envelope = flux_of(problem.prior.flux)[0], envelope_of(problem)
    assert flux is not None
    assert envelope is not None
    shape = np.exp(np.asarray(envelope.log(problem.operator.field.size, 0.0)))
    return FittedImage((flux / shape.sum() * shape)[None, None], is_map=True, operator=problem.operator)


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
    from biro.image_posterior.sampling.models.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.models.map_model import MapModel
    from biro.image_posterior.sampling.variational import sample

    checkpoint: Path | None = None
    if problem.run_dir is not None:
        problem.run_dir.mkdir(parents=True, exist_ok=True)
        checkpoint = problem.run_dir / CHECKPOINT
    identity = "" if checkpoint is None else _identity(problem, model)
    whole: Any = model
    if problem.single_dish is not None:
        whole, start = MapModel(model, problem.single_dish), np.append(start, 0.0)
    if settings.method == "hmc" and isinstance(model, CompactModel):
        return sample_chains(whole, start, settings, checkpoint=checkpoint, identity=identity, tell=_tell)
    between = whole.major_cycle if isinstance(model, ConvolvedModel) else None
    if between is not None:
        between(start)
    try:
        return sample(
            whole, start, settings, checkpoint=checkpoint, identity=identity, tell=_tell, between=between
        )
    except (ValueError, RuntimeError) as error:  # the latter from compiled code
        if "energy is nan" not in str(error).lower():
            raise
        raise RunError(
            f'method = "{settings.method}": samples left the range of numbers, as the posterior is far from '
            "a normal distribution; give more pairs (n_pairs), fewer frames and pixels, or a narrower prior "
            "of the flux"
        ) from None


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
    if problem.single_dish is not None:
        found.update(problem.single_dish.data.tobytes() + problem.single_dish.spline.tobytes())
    return found.hexdigest()


def _tell(line: str) -> None:
    log.info("%s", line)


def _plan(problem: ImageProblem, model: AnyModel, settings: Settings) -> str:
    """Memory and time of the run, before it begins."""
    from biro.image_posterior.sampling.compact import CompactModel
    from biro.image_posterior.sampling.models.convolved_model import ConvolvedModel

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
    image = np.zeros((*operator.plane_axis, n_stokes, operator.field.size, operator.field.size))
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
