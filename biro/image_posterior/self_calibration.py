"""The engine of `prior = "smooth"`: the fast map, with gains of antennas solved between cycles if asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biro.calibration.solving import gains_of_model
from biro.display.formatting import check_names
from biro.errors import InputError
from biro.image_posterior.operator import ImageOperator, Vis, with_data
from biro.image_posterior.problem import FittedImage, ImageProblem
from biro.image_posterior.smooth import FluxPrior, SmoothMap, smooth_map
from biro.models import Fixed, ImagePrior, Normal
from biro.models.choices import Regularisation
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.quantities import units
from biro.observation.weighting import with_systematic

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

N_CYCLE, N_SHALLOW = 5, 5
"""Cycles of self-calibration at most, and those of bright structures alone before them."""
FALLS = 0.01
"""Self-calibration ends where chi2 falls by a smaller share."""
NARROW, WIDE = 2.5, 8.0
"""Sigma of the blobs that cycles start from: pixels (half a beam), and the part of the field."""
USEFUL = 0.5
"""A map of data as measured is a start where chi2 is below this share of that of no image."""
FLUX_ERROR = 0.01
"""Relative error of a flux that is a number."""


def fit_smooth(problem: ImageProblem) -> FittedImage:
    """The most probable image of a problem.

    Where the model has gains with priors, each cycle solves for gains of the measured data with the image, as
    `biro.solve_gains` does, and fits the image to data with these gains taken out. Gains are solved for
    without their priors; intervals are those of the priors.

    Raises
    ------
    InputError
        Options that do not exist, or a prior of the flux other than normal.
    """
    options = dict(problem.options)
    check_names(options, ("strength", "n_cycle"), "fit_image")
    flux = _flux(problem.prior)
    shared: dict[str, Any] = {"noise": problem.noise, "flux": flux, "strength": options.get("strength")}
    shared["show"] = problem.progress
    name = _regularisation(problem)
    made = smooth_map(problem.operator, name, **shared)
    operator, n_free = _with_systematic(problem, made.image), 0
    if operator is not problem.operator and not problem.sky.gains:
        made = smooth_map(operator, name, start=made, **shared)
    facts: dict[str, Any] = {}
    if problem.sky.gains:
        made, operator, facts, n_free = _self_calibrated(
            problem, made, shared, options.get("n_cycle", N_CYCLE)
        )
    facts |= {"strength": made.strength, "regularisation": name, "chi2_by_cycle": list(made.chi2)}
    return FittedImage(
        samples=made.image[None, None],
        is_map=True,
        operator=operator,
        facts=facts,
        n_free=n_free,
    )


def _regularisation(problem: ImageProblem) -> Regularisation:
    return cast(Regularisation, problem.prior.regularisation)


def _flux(prior: ImagePrior) -> FluxPrior | None:
    """The flux of the image, Jy."""
    flux = prior.flux
    if flux is None:
        return None
    if isinstance(flux, Fixed):
        mean = flux.value * units.factor(flux.unit or "Jy", units.FLUX)
        return FluxPrior(mean, FLUX_ERROR * mean)
    if not isinstance(flux, Normal):
        raise InputError(
            f'image {prior.name!r}: flux: prior = "smooth" needs a number or a normal prior, '
            f"found {flux.family}"
        )
    size = units.factor(flux.unit or "Jy", units.FLUX)
    return FluxPrior(flux.mean * size, flux.sd * size)


def _with_systematic(problem: ImageProblem, image: Array) -> ImageOperator:
    """The operator with the systematic error, a fraction of the model visibilities, in its weights."""
    fraction = problem.sky.noise.fixed_fraction
    if not fraction:
        return problem.operator
    seen = with_systematic(problem.observation, fraction, _model_of(problem, image))
    return with_data(problem.operator, problem.operator.data, [part.weight for part in seen.partitions])


def _model_of(problem: ImageProblem, image: Array) -> list[Vis]:
    """Visibilities of an image and of the components beside it."""
    pairs = zip(problem.operator.predict(image[None]), problem.components, strict=True)
    return [vis + beside for vis, beside in pairs]


def _self_calibrated(
    problem: ImageProblem, made: SmoothMap, shared: dict[str, Any], n_cycle: int
) -> tuple[SmoothMap, ImageOperator, dict[str, Any], int]:
    """The map, data with gains taken out, figures, and the real numbers of gains, of the best cycle.

    Cycles start from blobs in the middle, of the size of the beam and of a third of the field, and from the
    map of the data as measured where it is something: phases that are not calibrated make nothing.
    Gains of the first cycles are phases.
    """
    starts = [_blob(problem, made, sigma) for sigma in (NARROW, problem.operator.field.size / WIDE)]
    if made.chi2[-1] < USEFUL * sum(problem.operator.chi2([0.0 * vis for vis in problem.operator.data])):
        starts.append(made.image)
    ends = [_cycles(problem, start, shared, n_cycle) for start in starts]
    best = min(ends, key=lambda end: end[0].chi2[-1])
    facts = {"self_calibration": [chi2 for chi2 in best[3]], "n_gain": best[2]}
    return best[0], best[1], facts, best[2]


def _blob(problem: ImageProblem, made: SmoothMap, sigma: float) -> Array:
    """A Gaussian in the middle, sigma in pixels, with the flux of the prior or of short baselines."""
    operator = problem.operator
    n, flux = operator.field.size, _flux(problem.prior)
    if flux is None:
        longest = max(float(np.hypot(*part.uvw[:, :2].T).max()) for part in operator.observation.partitions)
        short = [
            np.abs(vis)[(weight > 0) & (np.hypot(*part.uvw[:, :2].T) < 0.1 * longest)[:, None, None]]
            for part, vis, weight in zip(
                operator.observation.partitions, operator.data, operator.weights, strict=True
            )
        ]
        amplitudes = np.concatenate(short)
        total = float(np.median(amplitudes)) if amplitudes.size else float(made.image.sum())
    else:
        total = flux.mean
    y, x = np.indices((n, n)) - n // 2
    blob = np.exp(-0.5 * (x**2 + y**2) / sigma**2)
    return np.asarray(total * blob / blob.sum())


def _cycles(
    problem: ImageProblem, image: Array, shared: dict[str, Any], n_cycle: int
) -> tuple[SmoothMap, ImageOperator, int, list[float]]:
    """Cycles of gains and maps; the last map, its data, the number of gains, and chi2 of each cycle.

    The first maps are of the brightest structures alone, so that gains do not fit to what wrong gains made.
    """
    mode, interval = _gains_asked(problem)
    shared = shared | {"show": False}
    history: list[float] = []
    made: SmoothMap | None = None
    shallow: list[float] = []
    for cycle in range(n_cycle + N_SHALLOW):
        model = _model_of(problem, image)
        is_first = cycle < N_SHALLOW
        phases = is_first and mode != "amplitude"
        operator, n_free = _without_gains(problem, model, "phase" if phases else mode, interval)
        if is_first:
            shallow = shallow or list(_strengths(operator, problem.noise))
            given = shared | {"strength": shallow[cycle], "n_cycle": 1}
        else:
            given = shared
        made = smooth_map(operator, _regularisation(problem), start=made, **given)
        image = made.image
        history.append(made.chi2[-1])
        log.info("self-calibration %d: chi2 %.6g", cycle + 1, history[-1])
        if cycle > N_SHALLOW and history[-1] > (1.0 - FALLS) * history[-2]:
            break
    assert made is not None
    return made, operator, n_free, history


def _strengths(operator: ImageOperator, noise: float) -> Array:
    """Strengths of the first maps, from a third of the brightest source to 10 sigma."""
    dirty = operator.adjoint(operator.data, weighted=True)
    first = float(np.abs(dirty).max()) / np.sqrt(operator.weight_sum) / noise / 3.0
    return np.geomspace(max(first, 10.0), 10.0, N_SHALLOW)


def _without_gains(
    problem: ImageProblem, model: Sequence[Vis], mode: Any, interval: str | float
) -> tuple[ImageOperator, int]:
    """The operator with gains taken out of the data, which make a model fit; and the number of gains."""
    observation = with_systematic(problem.observation, problem.sky.noise.fixed_fraction, model)
    predicted = zip(observation.partitions, model, strict=True)
    of_model = replace(
        observation, partitions=tuple(replace(part, vis=vis) for part, vis in predicted), column="MODEL_DATA"
    )
    solved = gains_of_model(observation, of_model, interval=interval, mode=mode)
    weights = [
        part.weight * factor * solved.factor(i)[1]
        for i, (part, factor) in enumerate(zip(observation.partitions, solved.weight_factors(), strict=True))
    ]
    data = [vis - beside for vis, beside in zip(solved.corrected(), problem.components, strict=True)]
    n_free = sum(int(window.n_free.sum()) for window in solved.windows)
    return with_data(problem.operator, data, weights), n_free


def _gains_asked(problem: ImageProblem) -> tuple[str, str | float]:
    """What is solved for and how long it lasts, by the priors of the model's gains."""
    found: dict[str, PerSegment] = {}
    for gain in problem.sky.gains:
        for key in ("amplitude", "phase", "delay", "rate"):
            value = getattr(gain, key)
            given = value if isinstance(value, PerSegment) else None
            if given is not None:
                found[key] = given
    if not found or {"delay", "rate"} & set(found):
        raise InputError(
            'prior = "smooth" solves for gains of amplitude and phase with priors of both feeds; write '
            '[gain] phase = { prior = "uniform", low = "-180 deg", high = "180 deg", per = "scan" }'
        )
    mode = "complex" if len(found) == 2 else next(iter(found))
    return mode, min((segment.time for segment in found.values()), key=_length)


def _length(time: str | float) -> float:
    """About how long a segment is, s, to compare segments."""
    return time if isinstance(time, float) else {"integration": 0.0, "scan": 1e4}.get(time, 1e9)
