"""Where a sampler starts: the parameters that a user gives, or those of an earlier fit, by name."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.errors import InputError
from biro.inference.maximum.maximum import Maximum
from biro.inference.posterior.samples import Samples
from biro.inference.target.checked import Target
from biro.inference.target.protocol import SampledLikelihood, solves_gains
from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.units import Dimension
from biro.run.log_file import NOTICE

log = logging.getLogger(__name__)

Start: TypeAlias = Maximum | Samples | Mapping[str, float]
"""What `biro.sample` can start from."""


def start_point(likelihood: SampledLikelihood, start: Start) -> NDArray[np.float64]:
    """The parameters that a sampler starts from, float64 (n_param,), in the units of the likelihood.

    Gains that the start lacks are those that fit best beside its sky; other parameters that it lacks begin in
    the middle of their prior. Which these are, and which values are not used because the model has no such
    parameter, is logged.

    Parameters
    ----------
    likelihood : SampledLikelihood
    start : Maximum, Posterior or dict
        The maximum, the best fit of a posterior, or numbers by name, in the units of the model.

    Raises
    ------
    InputError
        Another type, a name of a dict that the model does not have, a value that is no finite number or lies
        outside its prior, or no parameter that the model has.
    """
    names = [parameter.name for parameter in likelihood.parameters]
    middle = likelihood.prior_transform(np.full((1, len(names)), 0.5))
    theta: NDArray[np.float64] = np.array(middle[0], np.float64)
    given = _numbers(start, {parameter.name: parameter.unit for parameter in likelihood.parameters})
    unknown = [name for name in given if name not in names]
    if isinstance(start, Mapping) and unknown:
        raise InputError(f"start: no parameter {first_few(unknown)}; there are {first_few(names, ', ')}")
    if len(unknown) == len(given):
        raise InputError(f"start has no parameter of this model, which has {first_few(names)}")
    for i, name in enumerate(names):
        theta[i] = given.get(name, theta[i])
    _check(likelihood, theta)
    lacking = np.array([name not in given for name in names])
    best = _with_best_gains(likelihood, theta)
    solved = lacking & (best != theta)
    theta[solved] = best[solved]
    for which, taken in (
        (solved, "the best-fitting values are"),
        (lacking & ~solved, "the middle of the prior is"),
    ):
        if which.any():
            log.log(
                NOTICE, "no start value for %s, so %s used", first_few(np.array(names)[which].tolist()), taken
            )
    if unknown:
        log.log(NOTICE, "ignoring the start value of %s, which the model does not have", first_few(unknown))
    return theta


def start_text(start: Start | None) -> str:
    """What the start is, in words."""
    if start is None:
        return "nothing given"
    if isinstance(start, Mapping):
        return "the values given"
    return "the maximum given" if isinstance(start, Maximum) else "the best fit of the posterior given"


def _with_best_gains(likelihood: SampledLikelihood, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """theta with the gains that fit best beside its sky, where the likelihood finds them."""
    return likelihood.with_best_gains(theta[None])[0] if solves_gains(likelihood) else theta


def _numbers(start: object, unit_of: Mapping[str, str]) -> dict[str, float]:
    """Values by name, in the units of the likelihood where both name the same quantity."""
    if isinstance(start, Mapping):
        for name, value in start.items():
            is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not is_number or not math.isfinite(float(value)):
                raise InputError(f"start: {name} must be a finite number, got {value!r}")
        return {str(name): float(value) for name, value in start.items()}
    if not isinstance(start, Maximum | Samples):
        raise InputError(
            f"start must be a maximum, a posterior, or a dict of numbers by name, got {type(start).__name__}"
        )
    columns = zip(start.columns, start.best_fit, strict=True)
    return {
        column.name: float(value) * _ratio(column.name, column.unit, unit_of.get(column.name, column.unit))
        for column, value in columns
    }


def _ratio(name: str, unit: str, wanted: str) -> float:
    """How many `wanted` one `unit` is."""
    if unit == wanted:
        return 1.0
    try:
        return units.factor(unit, Dimension(f"of {name} here", wanted, f"1 {wanted}"))
    except ModelError:
        raise InputError(f"start: {name} is in {unit!r} there, and in {wanted!r} here") from None


def _check(likelihood: SampledLikelihood, theta: NDArray[np.float64]) -> None:
    """Refuse a start that the prior does not allow."""
    if np.isfinite(likelihood.log_prior(theta[None])[0]):
        return
    reason = Target(likelihood).outside(theta)
    if reason:
        raise InputError(f"start lies outside the prior: {reason}")
    raise InputError("start lies outside the prior, or breaks a constraint of the model")
