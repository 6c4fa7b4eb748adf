"""The engine of `prior = "smooth"`: the fast map, with gains of antennas solved between cycles if asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from biro.calibration.solving import gains_of_model
from biro.display.formatting import check_names
from biro.errors import InputError
from biro.image_posterior.maps.map_checkpoint import NAME
from biro.image_posterior.maps.regularisers import Starlet
from biro.image_posterior.maps.smooth import FluxPrior, SmoothMap, smooth_map
from biro.image_posterior.operator import ImageOperator, Vis, with_data
from biro.image_posterior.problem import FittedImage, ImageProblem
from biro.models import Fixed, Gain, ImagePrior, Normal
from biro.models.choices import Regularisation
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.quantities import units
from biro.observation.weighting import with_systematic
from rime_kernels.gain_solving.unknowns import Mode

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Step = tuple[Mode, str | float]
"""What is solved for, and its interval."""

N_CYCLE, N_SHALLOW = 5, 5
"""Cycles of self-calibration at most, and those of bright structures alone before them."""
FALLS = 0.01
"""Self-calibration ends where chi2 falls by a smaller share."""
NARROW, WIDE = 5.0, 0.5
"""Diameters of the discs that cycles start from: pixels (a beam), and a part of the field."""
N_NOISE, LESS = 6, 0.95
"""Corrections of the noise at most, and the ratio of residuals to noise below which there is one."""
CLOSE, ALIKE, BLUR = 1.1, 0.8, 2.0
"""Other images count with chi2 up to this ratio, and below this correlation, smoothed to BLUR pixels."""
USEFUL, CALIBRATED = 0.5, 1e-3
"""Share of chi2 that a map of data as measured leaves: a start below the first, alone below the other."""
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
    options = _options(problem)
    flux = _flux(problem.prior)
    shared: dict[str, Any] = {"noise": problem.noise, "flux": flux, "strength": options.get("strength")}
    shared |= {"show": problem.progress, "single_dish": problem.single_dish}
    name = _regularisation(problem)
    made = smooth_map(problem.operator, name, checkpoint=_checkpoint(problem, 0), **shared)
    problem, made, shared = _with_less_noise(problem, made, shared)
    operator = _with_systematic(problem, made.image)
    if operator is not problem.operator and not problem.sky.gains:
        made = smooth_map(operator, name, start=made, **shared)
    if problem.sky.gains:
        return _self_calibrated(problem, made, shared, options["n_cycle"])
    return _fitted(problem, made, operator, {})


def with_gains_taken_out(problem: ImageProblem, image: Array) -> tuple[ImageOperator, int]:
    """The operator with data without the gains with which an image fits best, and the number of gains.

    Where nothing but a single-dish map determines the flux, gains are those of the image with that flux.

    Parameters
    ----------
    problem : ImageProblem
    image : float64 (N, N), Jy/pixel
    """
    steps = _gains_asked(problem)
    return _without_gains(problem, _model_of(problem, image * _to_map(problem, image, steps)), steps)


def _to_map(problem: ImageProblem, image: Array, steps: Sequence[Step]) -> float:
    """What gives an image the flux of the map, where that alone determines it: 1 without free amplitudes.

    Free amplitudes would else keep the flux that an image has, such as one of bright structures alone.
    """
    dish, has_amplitudes = problem.single_dish, any(mode != "phase" for mode, _ in steps)
    if dish is None or not has_amplitudes or _flux(problem.prior) is not None:
        return 1.0
    return dish.flux_ratio(image)


def _checkpoint(problem: ImageProblem, i: int) -> Path | None:
    """Where the state of the i-th map of data as measured goes."""
    return None if problem.run_dir is None else problem.run_dir / NAME.format(i)


def _options(problem: ImageProblem) -> dict[str, Any]:
    """Options of the fast map."""
    options = dict(problem.options)
    check_names(options, ("strength", "n_cycle"), "fit_image")
    strength: Any = options.get("strength")
    n_cycle: Any = options.get("n_cycle", N_CYCLE)
    if strength is not None and not (isinstance(strength, Real) and 0.0 < float(strength) < np.inf):
        raise InputError(f"strength: expected a number above 0, found {strength!r}")
    if not (isinstance(n_cycle, Integral) and int(n_cycle) >= 1):
        raise InputError(f"n_cycle: expected a whole number of at least 1, found {n_cycle!r}")
    return options | {"n_cycle": int(n_cycle)}


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
) -> FittedImage:
    """The map of the start that fits best, with data that have the gains taken out.

    Cycles start from discs in the middle, of the size of the beam and of half the field, and from the map of
    the data as measured where it is something; from that alone where it explains nearly all. Gains of the
    first cycles are phases.
    """
    starts = [_disc(problem, made, width) for width in (NARROW, WIDE * problem.operator.field.size)]
    nothing = sum(problem.operator.chi2([0.0 * vis for vis in problem.operator.data]))
    left = made.chi2[-1] * problem.noise**2 / nothing
    if left < USEFUL:
        starts = [made.image] if left < CALIBRATED else [*starts, made.image]
    ends = [_cycles(problem, start, shared, n_cycle) for start in starts]
    costs = [_chi2_of_all(problem, end[0]) for end in ends]
    best = ends[int(np.argmin(costs))]
    facts: dict[str, Any] = {
        "self_calibration": best[3],
        "n_gain": best[2],
        "chi2_by_start": [end[0].chi2[-1] for end in ends],
    }
    fitted = _fitted(problem, best[0], best[1], facts)
    close = [end[0].image for end, cost in zip(ends, costs, strict=True) if cost < CLOSE * min(costs)]
    return replace(fitted, n_free=best[2], remarks=_other_images(best[0].image, close))


def _chi2_of_all(problem: ImageProblem, made: SmoothMap) -> float:
    """chi2 of visibilities, and that of the single-dish map where there is one."""
    dish = problem.single_dish
    return made.chi2[-1] + (0.0 if dish is None else 2.0 * dish.penalty(made.image)[0])


def _with_less_noise(
    problem: ImageProblem, made: SmoothMap, shared: dict[str, Any]
) -> tuple[ImageProblem, SmoothMap, dict[str, Any]]:
    """The problem with the noise that the residuals have, and its map, where that is less than measured.

    Differences of times are an upper limit of the noise where the sky turns between them. A number in the
    model stays.
    """
    if isinstance(problem.sky.noise.factor, Fixed):
        return problem, made, shared
    n = 2 * sum(problem.operator.n_data)
    for i in range(N_NOISE):
        n_used = int(np.count_nonzero(made.variables)) if isinstance(made.regulariser, Starlet) else 0
        ratio = float(np.sqrt(made.chi2[-1] / (n - min(n_used, n // 2))))
        if ratio > LESS:
            break
        problem = replace(problem, noise=problem.noise * ratio)
        shared = shared | {"noise": problem.noise}
        made = smooth_map(
            problem.operator, _regularisation(problem), checkpoint=_checkpoint(problem, i + 1), **shared
        )
    return problem, made, shared


def _fitted(
    problem: ImageProblem, made: SmoothMap, operator: ImageOperator, facts: dict[str, Any]
) -> FittedImage:
    about = {"strength": made.strength, "regularisation": _regularisation(problem)}
    facts = facts | about | {"chi2_by_cycle": list(made.chi2)}
    return FittedImage(
        samples=made.image[None, None], is_map=True, operator=operator, facts=facts, noise=problem.noise
    )


def _other_images(best: Array, close: Sequence[Array]) -> tuple[str, ...]:
    """A line where another start ended in another image, of those that fit about as well as the best."""
    alike = [_likeness(best, other) for other in close]
    if min(alike) > ALIKE:
        return ()
    return (
        "SEVERAL IMAGES FIT: another start of self-calibration ended in an image whose correlation with this "
        f"one is {min(alike):.2g}, with chi2 within {100.0 * (CLOSE - 1.0):.0f} %. Narrow the field, give "
        "the flux, or fit samples",
    )


def _likeness(one: Array, other: Array) -> float:
    """The largest correlation of two images over all shifts, smoothed to about a beam."""
    pair = [np.fft.fft2(gaussian_filter(image, BLUR, mode="constant")) for image in (one, other)]
    power = np.sqrt([float((np.abs(each) ** 2).sum()) for each in pair]).prod()
    both = np.fft.ifft2(pair[0] * pair[1].conj()).real.max() * one.size
    return float(both / power) if power > 0.0 else 0.0


def _disc(problem: ImageProblem, made: SmoothMap, width: float) -> Array:
    """A disc in the middle, its diameter in pixels, with the flux of the prior or of short baselines."""
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
    disc = 1.0 / (1.0 + np.exp(2.0 * (np.hypot(x, y) - 0.5 * width)))  # an edge of a pixel
    return np.asarray(total * disc / disc.sum())


def _cycles(
    problem: ImageProblem, image: Array, shared: dict[str, Any], n_cycle: int
) -> tuple[SmoothMap, ImageOperator, int, list[float]]:
    """Cycles of gains and maps; the last map, its data, the number of gains, and chi2 of each cycle.

    The first maps are of the brightest structures alone, so that gains do not fit to what wrong gains made.
    """
    steps = _gains_asked(problem)
    phases: list[Step] = [("phase", interval) for mode, interval in steps if mode != "amplitude"]
    shared = shared | {"show": False}
    history: list[float] = []
    made: SmoothMap | None = None
    shallow: list[float] = []
    for cycle in range(n_cycle + N_SHALLOW):
        model = _model_of(problem, image * _to_map(problem, image, steps))
        is_first = cycle < N_SHALLOW
        operator, n_free = _without_gains(problem, model, phases if is_first and phases else steps)
        if is_first:
            shallow = shallow or list(_strengths(operator, problem.noise))
            given = shared | {"strength": shallow[cycle], "n_cycle": 1}
        else:
            given = shared
        made = smooth_map(operator, _regularisation(problem), start=made, **given)
        history.append(made.chi2[-1])
        log.info("self-calibration %d: chi2 %.6g", cycle + 1, history[-1])
        if made.image.any():
            image = made.image
        elif not is_first:
            break  # nothing is left of the image, and gains of nothing cannot be solved for
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
    problem: ImageProblem, model: Sequence[Vis], steps: Sequence[Step]
) -> tuple[ImageOperator, int]:
    """The operator with gains taken out of the data, which make a model fit; and the number of gains."""
    observation = with_systematic(problem.observation, problem.sky.noise.fixed_fraction, model)
    n_free = 0
    for mode, interval in steps:
        pairs = zip(observation.partitions, model, strict=True)
        of_model = replace(
            observation, partitions=tuple(replace(part, vis=vis) for part, vis in pairs), column="MODEL_DATA"
        )
        solved = gains_of_model(observation, of_model, interval=interval, mode=mode)
        n_free += sum(int(window.n_free.sum()) for window in solved.windows)
        corrected = zip(observation.partitions, solved.corrected(), solved.weight_factors(), strict=True)
        observation = replace(
            observation,
            partitions=tuple(
                replace(part, vis=vis, weight=part.weight * factor * solved.factor(i)[1])
                for i, (part, vis, factor) in enumerate(corrected)
            ),
        )
    pairs = zip(observation.partitions, problem.components, strict=True)
    data = [part.vis - beside for part, beside in pairs]
    return with_data(problem.operator, data, [part.weight for part in observation.partitions]), n_free


def _gains_asked(problem: ImageProblem) -> list[Step]:
    """What is solved for and how long it lasts, by the priors of the model's gains: phases first."""
    found: dict[Mode, str | float] = {}
    for gain in problem.sky.gains:
        if gain.delay is not None or gain.rate is not None or not _has_prior(gain):
            start = "starts from the fast map, which " if problem.prior.is_sampled else ""
            raise InputError(
                f'prior = "{problem.prior.prior}" {start}solves for gains of amplitude and phase that '
                'both feeds share; write [gain] phase = { prior = "uniform", low = "-180 deg", '
                'high = "180 deg", per = "scan" }'
            )
        modes: tuple[Mode, Mode] = ("phase", "amplitude")
        found |= {
            mode: getattr(gain, mode).time for mode in modes if isinstance(getattr(gain, mode), PerSegment)
        }
    if len(set(found.values())) == 1 and len(found) == 2:
        return [("complex", found["phase"])]
    return [(mode, found[mode]) for mode in ("phase", "amplitude") if mode in found]


def _has_prior(gain: Gain) -> bool:
    return isinstance(gain.phase, PerSegment) or isinstance(gain.amplitude, PerSegment)
