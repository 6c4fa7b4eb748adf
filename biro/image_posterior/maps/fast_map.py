"""The fast map with components that have free parameters, which are fitted anew for each image."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.image_posterior.components import FreeComponents
from biro.image_posterior.maps.operator_beside import OperatorBeside
from biro.image_posterior.maps.self_calibration import fit_smooth
from biro.image_posterior.operator import with_data
from biro.image_posterior.problem import FittedImage, ImageProblem
from biro.image_posterior.results.parameter_facts import parameter_facts

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
N_TURN = 4
"""Turns of gains, or of a systematic error, with components at most."""
STILL, FINE = 0.3, 1e-4
"""Turns end when no parameter moves by more of its error beside a known image, or of its prior."""
NO_ERRORS = (
    "NO ERRORS OF COMPONENTS: their values are the most probable ones. Image and component share the flux at "
    'one place; fit with prior = "correlated-field" for errors'
)
_NOT_CONVERGED = "COMPONENTS NOT CONVERGED: {} still changes after {} turns; narrow its prior, or fix it"


def fit_map(problem: ImageProblem) -> tuple[ImageProblem, FittedImage]:
    """The fast map of a problem, and the problem with its components at their most probable values.

    The first parameters explain the data without an image; where the model has gains, they are the medians
    of the priors. Gains and systematic errors are those of the parameters of the turn before.
    """
    free = problem.free
    if free is None:
        return problem, fit_smooth(problem)
    weights = [weight / problem.noise**2 for weight in problem.operator.weights]
    data = [part.vis for part in problem.observation.partitions]
    xi = np.zeros(free.n) if problem.sky.gains else free.most_probable(data, weights, seed=problem.seed)
    in_turn = bool(problem.sky.gains or problem.sky.noise.fixed_fraction)
    for turn in range(N_TURN if in_turn else 1):
        problem = with_components(problem, xi)
        beside = OperatorBeside(problem.operator, free, problem.components, problem.noise, xi)
        # The checkpoint of a map is that of the first turn.
        fitted = fit_smooth(replace(problem, operator=beside, run_dir=None if turn else problem.run_dir))
        problem, fitted, moved = _taken_out(problem, fitted)
        xi = problem.numbers
        log.info("components, turn %d: %s", turn + 1, first_few(_values(free, xi)))
        if moved.max() < STILL:
            break
    remarks = [*fitted.remarks, NO_ERRORS]
    if in_turn and moved.max() >= STILL:
        remarks.append(_NOT_CONVERGED.format(free.names[int(moved.argmax())], N_TURN))
    theta = free.theta(xi)[None]
    facts = fitted.facts | parameter_facts(free.names, free.units, theta)
    arrays = fitted.arrays | {"parameters": theta}
    n_free = fitted.n_free + free.n
    made = replace(fitted, remarks=tuple(remarks), facts=facts, arrays=arrays, n_free=n_free)
    return problem, replace(made, components=problem.components)


def with_components(problem: ImageProblem, xi: Array) -> ImageProblem:
    """The problem with its free components at standard normal numbers (n,), taken out of its data."""
    assert problem.free is not None
    vis = problem.free.visibilities(xi)
    data = [part.vis - own for part, own in zip(problem.observation.partitions, vis, strict=True)]
    operator = with_data(problem.operator, data, problem.operator.weights)
    return replace(problem, operator=operator, components=vis, numbers=xi)


def _taken_out(problem: ImageProblem, fitted: FittedImage) -> tuple[ImageProblem, FittedImage, Array]:
    """Problem and map with the components that fit best beside the map, and how far these moved.

    Moves are in units of the errors beside a known image, or of `FINE`.
    """
    assert problem.free is not None
    free, operator = problem.free, fitted.operator
    noise = problem.noise if fitted.noise is None else fitted.noise
    weights = [weight / noise**2 for weight in operator.weights]
    whole = [vis + own for vis, own in zip(operator.data, problem.components, strict=True)]
    left = [vis - own for vis, own in zip(whole, operator.predict(fitted.samples[0]), strict=True)]
    xi = free.most_probable(left, weights, problem.numbers)
    slopes = free.derivatives(xi, weights)
    errors = np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    moved = np.abs(xi - problem.numbers) / np.maximum(errors, FINE / STILL)
    problem = with_components(problem, xi)
    data = [vis - own for vis, own in zip(whole, problem.components, strict=True)]
    fitted = replace(fitted, operator=with_data(problem.operator, data, operator.weights))
    return problem, fitted, moved


def _values(free: FreeComponents, xi: Array) -> list[str]:
    triples = zip(free.names, free.theta(xi), free.units, strict=True)
    return [f"{name} {value:.6g} {unit}".rstrip() for name, value, unit in triples]
