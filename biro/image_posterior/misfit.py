"""Why an image does not fit: sources outside of it, changes in time, antennas at one place, gains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from biro.display.formatting import FLUXES, angle_text, unit_for
from biro.image_posterior.frames import FramesOperator
from biro.image_posterior.operator import ImageOperator, Vis
from biro.image_posterior.problem import ImageProblem
from biro.image_posterior.short_baselines import at_one_place
from rime_kernels.idg import ImageGrid

MISFIT = 1.2
"""Reduced chi2, over that of the noise, from which on an image does not fit."""
_N_PART = 4
"""Parts of the time of which residuals of a constant image are compared; of a movie these are half frames."""
OUTSIDE_SIGMA, OUTSIDE_SHARE = 7.0, 0.3
"""A source outside: sigma of the noise, and share of the misfit that it explains, at least."""
WIDER, WIDEST = 4, 2048
"""How many times wider the image is in which sources outside are looked for, and its pixels at most."""


def misfit_lines(
    problem: ImageProblem, operator: ImageOperator, residuals: Sequence[Vis], noise: float, reduced: float
) -> tuple[list[str], list[str]]:
    """Lines of an image that does not fit: the verdict with its cause, and a source outside.

    Parameters
    ----------
    problem : ImageProblem
    operator : ImageOperator
        With the data that the image was fitted to.
    residuals : sequence of complex (n_row, n_chan, n_corr), Jy
    noise : float
        Factor by which the noise is larger than the weights state.
    reduced : float
        chi2/dof; up to `MISFIT` there are no lines.
    """
    if reduced <= MISFIT:
        return [], []
    outside = source_outside(operator, residuals, noise)
    changes = _changes(problem, operator, residuals, noise)
    return [_misfit(problem, reduced, outside, changes)], [outside] if outside else []


def source_outside(operator: ImageOperator, residuals: Sequence[Vis], noise: float = 1.0) -> str | None:
    """A line about a source outside of the field, from a dirty image of the residuals of a wider field.

    It is one where a point there would explain at least `OUTSIDE_SHARE` of what is left of chi2 above noise,
    and is `OUTSIDE_SIGMA` times the noise. Phases that are not calibrated scatter flux over
    the wider image, too, but no single point explains them.

    Parameters
    ----------
    operator : ImageOperator
    residuals : sequence of complex (n_row, n_chan, n_corr), Jy
        Of the image that was fitted.
    noise : float
        Factor by which the noise is larger than the weights state.
    """
    field, n = operator.field, WIDER * operator.field.size
    while n > field.size and (n > WIDEST or n * field.cell > 1.3):
        n -= 2 * (field.size // 2)
    if n <= field.size:
        return None
    plane = np.zeros((n, n))
    for part, vis, weight in zip(operator.observation.partitions, residuals, operator.weights, strict=True):
        plane += operator.gridder_of(part, ImageGrid(n, field.cell)).grid(np.ascontiguousarray(vis), weight)[
            0
        ]
    start = n // 2 - field.size // 2
    inside = slice(start, start + field.size)
    plane[inside, inside] = 0.0
    y, x = np.unravel_index(int(plane.argmax()), plane.shape)
    explained = plane[y, x] ** 2 / operator.weight_sum
    left = _above_noise(operator, residuals, noise)
    if not (plane[y, x] > 0.0 and explained > max((OUTSIDE_SIGMA * noise) ** 2, OUTSIDE_SHARE * left)):
        return None
    ways = "west" if x > n // 2 else "east", "south" if y < n // 2 else "north"
    flux, east, north = (
        plane[y, x] / operator.weight_sum,
        (n // 2 - x) * field.cell,
        (y - n // 2) * field.cell,
    )
    unit = unit_for([flux], FLUXES)
    return (
        f"SOURCE OUTSIDE: about {unit.text(flux, 2)} {unit.name} lie {angle_text(abs(east))} "
        f"{ways[0]} and {angle_text(abs(north))} {ways[1]} "
        "of the phase centre, outside the image. The sidelobes of this source are in the image. Make the "
        "field larger (field, size), or add the source as [[source]]"
    )


def change_remark(
    operator: ImageOperator, residuals: Sequence[Vis], noise: float = 1.0, remedy: str = "give frames = 4"
) -> str | None:
    """A line where residuals differ between parts of the time by what a change of the source would make.

    The criterion is that of `source_outside`: points of each part of the time explain at least
    `OUTSIDE_SHARE` of what is left of chi2 above noise. Images of residuals that all parts have in common are
    subtracted.

    Parameters
    ----------
    operator : ImageOperator
    residuals : sequence of complex (n_row, n_chan, n_corr), Jy
        Of the image that was fitted.
    noise : float
        Factor by which the noise is larger than the weights state.
    remedy : str
        What to do where the image is constant.
    """
    parts, is_movie = operator.observation.partitions, isinstance(operator, FramesOperator)
    times = np.concatenate([part.time for part in parts])
    if len(np.unique(times)) < 2 * _N_PART:
        return None
    n_part = _N_PART
    if isinstance(operator, FramesOperator):
        n_part = 2 * operator.times.n
        first, last = operator.times.edges[[0, -1]]
    else:
        first, last = times.min(), np.nextafter(times.max(), np.inf)
    planes, weights = np.zeros((n_part, operator.field.size, operator.field.size)), np.zeros(n_part)
    for part, vis, weight in zip(parts, residuals, operator.weights, strict=True):
        own = np.clip((part.time - first) / (last - first) * n_part, 0, n_part - 1).astype(int)
        for k in np.unique(own):
            rows = np.flatnonzero(own == k)
            gridder = operator.gridder_of(part.some(rows, slice(None)), operator.field.grid)
            planes[k] += gridder.grid(np.ascontiguousarray(vis[rows]), np.ascontiguousarray(weight[rows]))[0]
            weights[k] += weight[rows].sum()
    planes, weights = planes[weights > 0.0], weights[weights > 0.0]
    planes -= (weights / weights.sum())[:, None, None] * planes.sum(axis=0)
    explained = float(np.sum(np.abs(planes).max(axis=(1, 2)) ** 2 / weights))
    left = _above_noise(operator, residuals, noise)
    if not explained > max(len(weights) * (OUTSIDE_SIGMA * noise) ** 2, OUTSIDE_SHARE * left):
        return None
    remedy = "give more frames" if is_movie else remedy
    return (
        f"Residuals differ from one part of the time to another: the source changes ({remedy}), or gains do"
    )


def _above_noise(operator: ImageOperator, residuals: Sequence[Vis], noise: float) -> float:
    """What is left of chi2 above its expectation, with the weights as stated."""
    pairs = zip(operator.weights, residuals, strict=True)
    chi2 = sum(float((weight * np.abs(vis) ** 2).sum()) for weight, vis in pairs)
    return chi2 - 2.0 * noise**2 * sum(operator.n_data)


def _changes(
    problem: ImageProblem, operator: ImageOperator, residuals: Sequence[Vis], noise: float
) -> str | None:
    """The line on changes in time; none of closures, nor of pointings, which have times of their own."""
    if problem.closures or len(set(problem.pointings)) > 1:
        return None
    prior, remedy = problem.prior, "give frames = 4"
    has_more = prior.is_polarised or prior.spectral_index is not None or prior.single_dish is not None
    if has_more or operator.beams is not None or problem.free is not None:
        remedy = "select a shorter time, time_range= or --time-range"
    elif prior.prior != "correlated-field":
        remedy = 'give prior = "correlated-field" and frames = 4'
    return change_remark(operator, residuals, noise, remedy)


def _misfit(problem: ImageProblem, reduced: float, outside: str | None, changes: str | None) -> str:
    """The line of an image that does not fit."""
    line = f"THE IMAGE DOES NOT FIT: chi2/dof is {reduced:.3g}, 1 is expected"
    if outside:
        return f"{line}; another line says why"
    if changes:
        return f"{line}. {changes}"
    near = at_one_place(problem.observation)
    if near:
        return f"{line}. {near}"
    if problem.closures:
        return (
            f"{line}. Closures do not depend on gains: look for outliers (biro flag), state errors of "
            "baselines ([noise] systematic), or make the image larger"
        )
    gains = problem.sky.gains
    if problem.prior.is_polarised and all(gain.feeds == "common" for gain in gains):
        return (
            f"{line}. The usual causes are errors of gains, also those that differ between the hands (add "
            '[gain] with priors and feeds = "separate"), leakage ([leakage] with priors), and an image that '
            "is too small"
        )
    if gains:
        return (
            f"{line}. The gains of [gain] do not explain it: shorten `per`, add amplitude or phase, state "
            "errors of baselines ([noise] systematic), or make the image larger"
        )
    return (
        f"{line}. The usual causes are errors of gains (add [gain] with priors to the model), bright points "
        "between pixels (give a smaller cell, or add them as [[source]]), and an image that is too small"
    )
