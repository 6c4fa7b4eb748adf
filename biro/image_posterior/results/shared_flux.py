"""What a user must know of parameters of components beside an image with samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.image_posterior.problem import ImageProblem

Array = NDArray[np.float64]
_SHARED = -0.9
"""Correlation of a component's flux with that of the image at its place below which there is a remark."""
_AS_PRIOR, _FAR = 0.8, 4.0
"""Sd of a standard normal number above which a parameter repeats its prior; distance that is far from it."""


def remarks_on_components(problem: ImageProblem, xi: Array, images: Array) -> tuple[str, ...]:
    """Lines on fluxes that only the sum with the image has, and on parameters that priors decide.

    Parameters
    ----------
    problem : ImageProblem
        With its components at the mean of the draws.
    xi : float64 (n_sample, n)
        Standard normal numbers of the parameters.
    images : float64 (n_sample, 1, N, N), Jy/pixel
        Of the same draws.
    """
    free = problem.free
    assert free is not None
    lines = []
    far = [f"{free.names[k]} ({xi[:, k].mean():+.1f} sd)" for k in _where(np.abs(xi.mean(axis=0)) > _FAR)]
    if far:
        lines.append(
            f"FAR FROM THE PRIOR: {', '.join(far)}. The prior pulls the value; widen it, or find out why"
        )
    if len(xi) < 2:
        return tuple(lines)
    lines += _shared(problem, xi, images)
    repeated = [free.names[k] for k in _where(xi.std(axis=0, ddof=1) > _AS_PRIOR)]
    if repeated:
        lines.append(f"NOT DETERMINED BY THE DATA: {', '.join(repeated)} only repeat their priors")
    return tuple(lines)


def _shared(problem: ImageProblem, xi: Array, images: Array) -> list[str]:
    """A line for each flux whose sum with that of the image at its place is known far better."""
    free, operator = problem.free, problem.operator
    assert free is not None
    changes, lines = free.changes(problem.numbers), []
    for k in (k for k, name in enumerate(free.names) if name.endswith(".I")):
        power = sum(
            float((weight * np.abs(vis) ** 2).sum())
            for weight, vis in zip(operator.weights, changes[k], strict=True)
        )
        # The flux that the component would have if the image were the data: least squares.
        seen = images[:, 0].reshape(len(xi), -1) @ operator.adjoint(changes[k], weighted=True)[0].ravel()
        slope = _slope(problem, k)
        alike, own = slope * seen / power, free.theta(xi)[:, k]
        both = float((alike + own).std(ddof=1))
        correlation = float(np.corrcoef(own, alike)[0, 1])
        if correlation < _SHARED and own.std(ddof=1) > 2.0 * both:
            lines.append(
                f"SHARED FLUX: {free.names[k]} and the image at its place have a correlation of "
                f"{correlation:.2g}. The data determine their sum to {both:.2g} {free.units[k]} and divide "
                "it poorly"
            )
    return lines


def _slope(problem: ImageProblem, k: int) -> float:
    """d theta_k / d xi_k by a difference: fluxes depend on their own number alone."""
    assert problem.free is not None
    step = np.zeros(problem.free.n)
    step[k] = 1e-3
    high, low = (problem.free.theta(problem.numbers + sign * step)[k] for sign in (1.0, -1.0))
    return float((high - low) / 2e-3)


def _where(condition: NDArray[np.bool_]) -> list[int]:
    return [int(k) for k in np.flatnonzero(condition)]
