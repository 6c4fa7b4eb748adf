"""The prior of the sky and the model of the data of an image that is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_posterior.frames import FramesOperator
from biro.image_posterior.operator import ImageOperator, Vis, with_data
from biro.image_posterior.problem import ImageProblem, PlanesData
from biro.models import Fixed
from biro.models.quantities import units
from biro.models.quantities.prior import LogNormal, Normal, Prior

if TYPE_CHECKING:
    from biro.image_posterior.sampling.compact import CompactModel
    from biro.image_posterior.sampling.models.convolved_model import Calibration, ConvolvedModel
    from biro.image_posterior.sampling.models.visibility_model import VisibilityModel
    from biro.image_posterior.sampling.sky_priors import CorrelatedField, SkyPrior

    AnyModel: TypeAlias = VisibilityModel | CompactModel | ConvolvedModel

Array = NDArray[np.float64]
_FLUX_ERROR = 0.01
"""Relative error of a flux that is a number."""


def sky_prior(problem: ImageProblem, image: Array) -> SkyPrior:
    """The prior of the sky with the flux of the model, or that of the fast map."""
    from biro.image_posterior.sampling.envelope import envelope_line, envelope_of
    from biro.image_posterior.sampling.sky_priors import FLUX_SD, CorrelatedField, Pixels

    flux, sd = flux_of(problem.prior.flux)
    if flux is None:
        flux, sd = float(image.sum()), FLUX_SD
    if not flux > 0.0:
        raise InputError("the data have no positive flux, so that there is no image; check their phases")
    if problem.prior.prior == "pixels":
        return Pixels(problem.operator.field.size, flux)
    field, envelope = problem.operator.field, envelope_of(problem)
    made = CorrelatedField(field.size, flux, sd, envelope=envelope)
    if envelope is not None:
        made.lines += (envelope_line(envelope, field.cell),)
    if isinstance(problem.prior.flux, Normal):
        made.lines += (
            f"flux: the normal prior is taken as log-normal, median {flux:.3g} Jy, sd of ln {sd:.2g}",
        )
    return made if problem.planes is None else _with_planes(problem, problem.planes, made)


def to_reference(problem: ImageProblem) -> float:
    """Brightness at the reference frequency over that of the band, by the means of the prior's spectrum."""
    from biro.image_posterior.sampling.plane_priors import mean_of

    planes = problem.planes
    if planes is None or planes.operator.freq is None:
        return 1.0
    log_ratio = float(np.log(planes.operator.freq.mean() / planes.reference))
    coefficients: Sequence[Fixed | Normal] = problem.prior.spectral_index
    return float(np.exp(-sum(mean_of(a) * log_ratio ** (1 + k) for k, a in enumerate(coefficients))))


def _with_planes(problem: ImageProblem, planes: PlanesData, intensity: CorrelatedField) -> SkyPrior:
    """The prior of frames, of polarised brightness, of spectra, or of the latter both."""
    from biro.image_posterior.sampling.movie_prior import MovieField
    from biro.image_posterior.sampling.plane_priors import PolarisedField, SpectralField

    size, prior = planes.operator.field.size, problem.prior
    if isinstance(planes.operator, FramesOperator):
        return MovieField(intensity, size, planes.operator.times.n)
    made = PolarisedField(intensity, size, prior.stokes) if prior.is_polarised else intensity
    if planes.operator.freq is None:
        return made
    return SpectralField(made, size, prior.spectral_index, planes.operator.freq, planes.reference)


def flux_of(given: Any) -> tuple[float | None, float]:
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


def posterior_model(problem: ImageProblem, prior: SkyPrior, flux: float) -> AnyModel:
    """Visibilities with gains and noise as the model has them; large data by convolution.

    Where large data have gains, the data of the operator of the problem have first gains taken out.
    """
    from biro.image_posterior.sampling.compact import with_modes
    from biro.image_posterior.sampling.jax_operator import UsedData
    from biro.image_posterior.sampling.models.component_model import ComponentModel
    from biro.image_posterior.sampling.models.convolved_model import ConvolvedModel
    from biro.image_posterior.sampling.models.gain_model import GainModel
    from biro.image_posterior.sampling.models.noise_model import NoiseModel
    from biro.image_posterior.sampling.models.planes_model import PlanesModel, PolarisedModel

    sky, observation = problem.sky, problem.observation
    if problem.closures:
        from biro.image_posterior.sampling.closure_fit import closure_model

        return closure_model(problem, prior, flux)
    used, is_polarised = UsedData(problem.operator.weights), problem.prior.is_polarised
    is_large = is_convolved(problem)
    gains = GainModel(sky, observation, used) if sky.gains and not is_polarised and not is_large else None
    data: list[Vis] = problem.operator.data
    fixed: Sequence[Vis] | None = None
    components = ComponentModel(problem.free, used) if problem.free else None
    if gains is not None or is_polarised or components is not None or sky.noise.follows_model:
        # Gains act on components, too, and noise may follow them: the data are those that were measured.
        data = [part.vis for part in observation.partitions]
        fixed = problem.components if components is None else None
    noise, scale = None, problem.noise
    if isinstance(sky.noise.factor, Prior) or sky.noise.follows_model:
        noise, scale = NoiseModel(sky.noise, observation.partition_views, used), 1.0
    operator = with_data(problem.operator, data, [weight / scale**2 for weight in problem.operator.weights])
    n_stokes = len(problem.prior.stokes)
    if is_polarised:
        return PolarisedModel(operator, prior, sky, n_stokes=n_stokes, noise=noise, fixed=fixed, used=used)
    if problem.planes is not None and not isinstance(operator, FramesOperator):
        return PlanesModel(
            operator, prior, n_stokes=n_stokes, gains=gains, noise=noise, fixed=fixed, used=used
        )
    if is_large:
        return ConvolvedModel(operator, prior, calibration(problem) if sky.gains else None)
    return with_modes(
        operator, prior, flux, used, gains=gains, noise=noise, fixed=fixed, components=components
    )


def calibration(problem: ImageProblem) -> Calibration:
    """What takes gains out of large data: those with which an image fits best, with the noise as it is."""
    from biro.image_posterior.maps.self_calibration import with_gains_taken_out

    def calibrate(image: Array) -> tuple[ImageOperator, int]:
        found, n_gain = with_gains_taken_out(problem, image)
        return with_data(found, found.data, [weight / problem.noise**2 for weight in found.weights]), n_gain

    return calibrate


def is_convolved(problem: ImageProblem) -> bool:
    """Whether convolutions with the PSF take the place of predictions: large data of an image, and gains."""
    from biro.image_posterior.sampling.models.convolved_model import LARGE

    noise = problem.sky.noise
    is_fitted = isinstance(noise.factor, Prior) or noise.follows_model
    has_more = is_fitted or problem.free is not None or problem.closures or problem.planes is not None
    # The convolution with one PSF does not know beams.
    n_data = sum(part.n_usable for part in problem.observation.partitions)
    return n_data > LARGE and not has_more and problem.operator.beams is None
