"""What samples of an image make: images, calibrated data, tables, and what a user must know of the errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue
from biro.image_posterior.maps.fast_map import with_components
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.problem import FittedImage, ImageProblem
from biro.image_posterior.results.parameter_facts import parameter_facts
from biro.image_posterior.results.shared_flux import remarks_on_components
from biro.models import Gain

if TYPE_CHECKING:
    from biro.image_posterior.sampled_model import AnyModel
    from biro.image_posterior.sampling.chains import ChainDraws
    from biro.image_posterior.sampling.draws import Draws

Array = NDArray[np.float64]
_NOT_CONVERGED = (
    "NOT CONVERGED: the mean image still moves after {} iterations, so that the errors may be too small; "
    "give more (n_iterations)"
)
_MAP_MOVES = (
    "NOT CONVERGED: the image still moves after {} iterations, so that it is not the most probable one; give "
    "more (n_iterations)"
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
_PIXELS = (
    'ERRORS TOO SMALL: of skies drawn from prior = "pixels", at a signal-to-noise ratio of 30, variational '
    "samples held 55 to 59 % of the pixels, and those of geoVI 46 % of the fluxes of regions, in their 68 % "
    'intervals. Give method = "hmc"'
)
_FEW_SAMPLES = (
    "FEW SAMPLES: errors from {} samples are themselves uncertain by {:.0f} %. Give n_samples = 16, or leave "
    "it out"
)
_UNCERTAIN = 0.4
"""Relative error of errors above which there are few samples."""
_TOO_SMALL = (
    "ERRORS TOO SMALL: MGVI gives errors of the power spectrum and of faint pixels that are 2 to 3 times too "
    "small"
)
_ANGLE_LOST = (
    "EVPA NOT CALIBRATED: phases of both hands are fitted apart, so that all angles are off by half of the "
    "phase between the hands of the reference antenna; turn them to a known angle"
)
_LEAKAGES = (
    "LEAKAGES NOT CALIBRATED: errors of leakages beside an image are right only where geoVI has converged. "
    "In a run that had not, leakages were 4 to 9 errors off. Give more iterations (n_iterations), or fit the "
    "leakages of a calibrator that a few components describe, and write them as numbers"
)
_CLOSURES = (
    "APPROXIMATE ERRORS: closures of visibilities near the noise are not normally distributed, as assumed. "
    "Of two simulated skies 42 and 58 % of pixels lay within their 68 % intervals"
)
_GAINS_APART = (
    "GAINS WITHOUT ERRORS: gains of large data were solved for between the iterations, without their priors, "
    "and errors of the image do not include those of gains: they are too small. Average the data to fewer "
    "than {} visibilities to fit gains with the image"
)
_FEW_PAIRS = (
    "FEW PAIRS: n_pairs is {}. With 5 pairs errors of pixels of polarised images were 3 to 8 times too small "
    "in tests, with 12 they were right within 1.4; give n_pairs = 12"
)
_FAR_FLUX = (
    "FLUX FAR FROM THE PRIOR: the flux of the image is {:.2g} standard deviations from the middle of its "
    "prior. Scales beyond the shortest baseline may hide any flux: narrow the prior (flux), or the "
    "field"
)
_FAR = 4.0
"""Standard deviations of the prior of the flux, as those of `shared_flux` for components."""
_UNFINISHED = "{} of the samples that were drawn did not converge; errors are less reliable"


def fitted_image(
    problem: ImageProblem, model: AnyModel, draws: Draws, method: str, seconds: float
) -> FittedImage:
    """Images of the samples, the data with mean gains taken out, and what else was found."""
    import jax
    import jax.numpy as jnp

    from biro.image_posterior.sampling.chains import ChainDraws
    from biro.image_posterior.sampling.models.convolved_model import LARGE, ConvolvedModel
    from biro.image_posterior.sampling.models.planes_model import PlanesModel, PolarisedModel
    from biro.image_posterior.sampling.movie_prior import MovieField
    from biro.image_posterior.sampling.movie_result import movie_of
    from biro.image_posterior.sampling.plane_priors import SpectralField

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
    noise: float | None
    n_free, centre = 0, None
    has_leakages = isinstance(model, PolarisedModel) and bool(model.antennas.leakage_names)
    is_of_chains = isinstance(draws, ChainDraws)
    state = _nearest(np.asarray(states), images) if is_of_chains and model.gains is not None else draws.mean
    if isinstance(draws, ChainDraws):
        remarks = (*_of_chains(draws), *([_CLOSURES] if problem.closures else []))
    else:
        remarks = _remarks(problem, draws, method, has_leakages=has_leakages)
    if spectrum is not None:  # the first number is that of the flux in all priors but that of pixels
        remarks = (*_far_flux(float(np.mean(states[:, model.at.sky][:, 0]))), *remarks)
    if problem.closures:
        from biro.image_posterior.sampling.closure_fit import closure_remark, without_gains

        assert not isinstance(model, ConvolvedModel)
        centre = images.mean(axis=0)
        operator, noise, n_free, of_closures = without_gains(problem, model, draws.mean, centre[0])
        facts |= of_closures
        remarks += (closure_remark(problem),)
    else:
        operator, noise = _with_noise(problem, model, state)
    if isinstance(model, PlanesModel):
        centre = np.asarray(jax.lax.map(model.image, states)).mean(axis=0)
    if isinstance(model, ConvolvedModel) and model.calibrate is not None:
        weights = [weight * problem.noise**2 for weight in model.operator.weights]
        operator, n_free = with_data(model.operator, model.operator.data, weights), model.n_gain
        centre = np.asarray(model.image(jnp.asarray(draws.mean)))[None]
        facts["n_gain"] = n_free
        remarks = (_GAINS_APART.format(LARGE), *remarks)
    if isinstance(model.prior, MovieField):
        of_frames = movie_of(problem, model, states)
        arrays |= of_frames.arrays
        facts |= of_frames.facts
        remarks += of_frames.remarks
        centre = of_frames.mean if centre is None else centre
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
    elif model.gains is not None and not isinstance(model, PolarisedModel):
        operator = _calibrated(problem, model, state, operator)
        # Gains of a state go with its image: with free amplitudes the mean image has another flux.
        centre = model.operand(state)
        n_free = 0 if is_of_chains else _n_free(states[:, model.at.gains])
        arrays["gain_coordinates"] = np.asarray(
            jax.vmap(lambda xi: model.gains.coordinates(xi[model.at.gains]))(states)
        )
        facts["gains"] = list(model.gains.names)
    if model.components is not None:
        centre = model.operand(draws.mean) if centre is None else centre
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
        components=problem.components,
    )


def _far_flux(number: float) -> tuple[str, ...]:
    """The line of a flux that its prior hardly allows, by its standard normal number."""
    return (_FAR_FLUX.format(abs(number)),) if abs(number) > _FAR else ()


def _of_chains(draws: ChainDraws) -> tuple[str, ...]:
    """What a user must know of samples of chains."""
    from biro.image_posterior.sampling.chains import N_EFFECTIVE, R_HAT

    few = _few_samples(len(draws.samples), len(draws.samples) - 1)
    if draws.converged:
        return few
    last = draws.blocks[-1]
    found = last.steps, draws.r_hat, R_HAT, draws.effective, N_EFFECTIVE, last.slowest
    return (_CHAINS_DISAGREE.format(*found), *few)


def _nearest(states: Array, images: Array) -> Array:
    """The sample whose image is nearest to the mean image.

    Gains of chains are far from normal: the image and the gains of a mean state may fit worse than any
    sample. chi2 of a sample has the expectation 2 N, and no number is free in it.
    """
    distance = ((images - images.mean(axis=0)) ** 2).sum(axis=(1, 2, 3))
    return np.asarray(states[int(distance.argmin())])


def _n_free(numbers: Any) -> int:
    """How many numbers the data determine: what the variance of each has lost against the prior, 1."""
    return round(float(np.sum(1.0 - np.clip(np.var(numbers, axis=0), 0.0, 1.0))))


def _for_json(one: Any) -> dict[str, JsonValue]:
    """Numbers of an iteration; JSON has no infinity."""
    return {key: None if value == np.inf else value for key, value in vars(one).items()}


def _remarks(
    problem: ImageProblem, draws: Draws, method: str, *, has_leakages: bool = False
) -> tuple[str, ...]:
    """What a user must know of the errors of the samples."""
    from biro.image_posterior.sampling.draws import Settings

    has_spectrum, n_samples = problem.prior.prior != "pixels", len(draws.samples)
    n_pairs = problem.options.get("n_pairs", Settings.n_pairs)
    given = [
        (bool(n_samples) and has_spectrum, _APPROXIMATE),
        (bool(n_samples) and has_spectrum and n_pairs < Settings.n_pairs, _FEW_PAIRS.format(n_pairs)),
        (bool(n_samples) and not has_spectrum, _PIXELS),
        (not draws.converged, (_NOT_CONVERGED if n_samples else _MAP_MOVES).format(len(draws.iterations))),
        (draws.n_unfinished > 0, _UNFINISHED.format(draws.n_unfinished)),
        (method == "mgvi" and has_spectrum, _TOO_SMALL),
        (problem.prior.is_polarised and _has_own_phases(problem.sky.gains), _ANGLE_LOST),
        (bool(n_samples) and has_leakages and not (draws.converged and method == "geovi"), _LEAKAGES),
    ]
    # Of two mirrored samples one is independent: n / 2 draws about a known mean.
    few = _few_samples(n_samples, n_samples / 2) if n_samples else ()
    return (*few, *(text for is_given, text in given if is_given))


def _few_samples(n: int, n_free: float) -> tuple[str, ...]:
    """The line of so few samples that their errors are uncertain, by 1 / sqrt(2 n_free) of normal draws."""
    error = (2.0 * n_free) ** -0.5
    return (_FEW_SAMPLES.format(n, 100.0 * error),) if error > _UNCERTAIN else ()


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
