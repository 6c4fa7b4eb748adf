"""An image that is fitted to closures alone: its model, what fixes flux and position, and its result."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from biro.files.json_value import JsonValue
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.problem import ImageProblem
from biro.image_posterior.sampling.compact import with_modes
from biro.image_posterior.sampling.envelope import envelope_line, envelope_of
from biro.image_posterior.sampling.jax_operator import UsedData
from biro.image_posterior.sampling.models.closure_model import ClosureModel
from biro.image_posterior.sampling.models.component_model import ComponentModel
from biro.image_posterior.sampling.models.noise_model import NoiseModel
from biro.image_posterior.sampling.models.visibility_model import VisibilityModel
from biro.image_posterior.sampling.sky_priors import SkyPrior
from biro.models import Fixed, Gain
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.quantities.prior import LogNormal, Uniform

Array = NDArray[np.float64]
_ANY_GAIN = Gain(
    amplitude=PerSegment(LogNormal(1.0), per="integration"),
    phase=PerSegment(Uniform("-180 deg", "180 deg"), per="integration"),
)
_FLUX = "the flux of the image repeats its prior"
_CENTRE = "its centroid is put at the middle to half a pixel"


def with_any_gains(problem: ImageProblem) -> ImageProblem:
    """The problem with free gains at each integration in place of closures, as the fast map takes it."""
    return replace(problem, sky=replace(problem.sky, gain=_ANY_GAIN), closures=False)


def closure_model(problem: ImageProblem, prior: SkyPrior, flux: float) -> VisibilityModel:
    """The model of the closures of a problem, whose images have about this flux (Jy)."""
    noise, used = problem.sky.noise, UsedData(problem.operator.weights)
    factor = float(noise.factor.value) if isinstance(noise.factor, Fixed) else None
    closures = ClosureModel(problem.observation, used, noise.fixed_fraction or 0.0, factor or 1.0)
    fitted: NoiseModel | None = None
    if factor is None:
        counts = UsedData([np.ones(n) for n in closures.n_each])
        fitted = NoiseModel(replace(noise, systematic=None), problem.observation.partition_views, counts)
    return with_modes(
        problem.operator,
        prior,
        flux,
        used,
        noise=fitted,
        fixed=None if problem.free else problem.components,
        components=ComponentModel(problem.free, used) if problem.free else None,
        closures=closures,
        is_adrift=problem.is_adrift,
    )


def closure_remark(problem: ImageProblem) -> str:
    """The line on what closures do not determine."""
    fixed = f"{_FLUX}, and {_CENTRE}" if problem.is_adrift else f"{_FLUX}, unless a component is bright"
    return (
        f"CLOSURES ALONE: the data determine neither the flux nor the position of the whole sky; {fixed}. "
        f"Regions and fluxes are relative to that{_extent(problem)}"
    )


def _extent(problem: ImageProblem) -> str:
    """What the prior states of the extent of the source."""
    envelope = envelope_of(problem)
    if envelope is None:
        return ""
    line = envelope_line(envelope, problem.operator.field.cell)
    return f". The prior makes flux far out improbable ({line}); compare with another envelope"


def without_gains(
    problem: ImageProblem, model: VisibilityModel, mean: Array, image: Array
) -> tuple[ImageOperator, float, int, dict[str, JsonValue]]:
    """Data of the visibilities that closures are made of, without the gains that fit an image best.

    Parameters
    ----------
    problem : ImageProblem
    model : VisibilityModel
    mean : float64 (n,)
        State with the components and the noise.
    image : float64 (N, N), Jy/pixel
        Such as the mean of the samples; the image of a mean state may fit worse than every sample.

    Returns
    -------
    operator : ImageOperator
        With these data less the components.
    noise : float
        Its factor.
    n_free : int
        Numbers of the gains that were taken out.
    facts : dict
        For JSON.
    """
    closures = model.closures
    assert closures is not None
    state = jnp.asarray(mean)
    vis = model.predicted(state) + model.predict(jnp.asarray(image) - model.image(state))
    whole = model.used.put(_complex(np.asarray(vis)))
    data, weights = [], []
    for part, own, vis, beside in zip(
        problem.observation.partitions, closures.closures, whole, problem.components, strict=True
    ):
        gains = own.gains(vis)
        there = gains != 0.0
        data.append(np.where(there, part.vis / np.where(there, gains, 1.0) - beside, 0.0))
        weight = np.zeros(part.vis.shape)
        weight[own.at] = 1.0 / (own.sets.legs.variance * np.abs(vis[own.at]) ** 2)
        weights.append(weight)
    noise = closures.factor
    if model.noise is not None:
        noise = float(np.mean(model.noise.values(mean[model.at.noise])[0]))
    n_free = 2 * sum(len(own.sets.legs) for own in closures.closures) - closures.n
    chi2 = np.sum([own.chi2(vis[None])[0] for own, vis in zip(closures.closures, whole, strict=True)], axis=0)
    facts: dict[str, JsonValue] = {
        "n_phase": sum(own.n_phase for own in closures.closures),
        "n_amplitude": sum(own.n_amplitude for own in closures.closures),
        "chi2_phase": float(chi2[0]) / noise**2,
        "chi2_amplitude": float(chi2[1]) / noise**2,
        "lines": list[JsonValue](closures.lines),
    }
    return with_data(problem.operator, data, weights), noise, n_free, {"closures": facts}


def _complex(parts: Array) -> NDArray[np.complex128]:
    return np.asarray(parts[0] + 1j * parts[1])
