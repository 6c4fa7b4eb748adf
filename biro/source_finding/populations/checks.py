"""What a population must be for its number to be inferred: refusals in one line."""

from __future__ import annotations

import numpy as np

from biro.choices import Gains
from biro.errors import InputError
from biro.models import Fixed, Population, SkyModel
from biro.models.quantities.strict import Entry
from biro.source_finding.populations.likelihoods import SizedLikelihood
from biro.source_finding.populations.space import SIZES

HIGHEST = 200
"""Sources at most: each state has room for all of them, and all draws are kept."""
_N_TEST = 512
"""Draws of the prior that must all be possible."""


def population_of(sky: SkyModel, gains: Gains) -> Population:
    """The population of a model, if its number can be inferred.

    Raises
    ------
    InputError
        None or several, quantities that all sources have alike but must not, constraints.
    """
    if len(sky.populations) != 1:
        raise InputError(
            f"the model has {len(sky.populations)} populations, expected one [[population]]; put sources of "
            "other kinds into the same one (types), or write them as [[source]]"
        )
    if gains == "solve":
        raise InputError(
            'gains = "solve" has no evidence for a number of sources; give "marginalise", "closures" or '
            '"sample"'
        )
    population: Population = sky.populations[0]
    name = f"population {population.name!r}"
    if population.number.high > HIGHEST:
        raise InputError(
            f"{name}: number has high = {population.number.high}, expected {HIGHEST} at most; lower it"
        )
    for key in ("I", "east", "north"):
        if isinstance(_only(getattr(population, key)), Fixed):
            raise InputError(f"{name}: {key} needs a prior, found one value for all sources")
    for key in ("Q", "U", "V"):
        if isinstance(_only(getattr(population, key)), Fixed):
            raise InputError(
                f"{name}: {key} is one value for all sources, expected a prior; for a known polarisation "
                "write pol_fraction and pol_angle, or v_fraction"
            )
    if len(population.types) > 1:
        for key in SIZES:
            if isinstance(_only(getattr(population, key)), Fixed):
                raise InputError(
                    f"{name}: {key} is one value for all sources, which a point does not have; give it a "
                    "prior, or leave one of the types out"
                )
    if sky.constraints:
        raise InputError(
            "the model has a [[constraint]], but constraints are not available with a population; leave it "
            "out, and narrow the priors instead"
        )
    return population


def check_independent(one: SizedLikelihood) -> None:
    """Refuse priors that depend on each other, and quantities that are integrated over analytically.

    Prior densities of states are products of those of their numbers.

    Parameters
    ----------
    one : SizedLikelihood
        Of one source of the population.

    Raises
    ------
    InputError
    """
    likelihood = one.likelihood
    inner = [name for name in likelihood.marginalised if not name.startswith("gain")]
    if inner:
        raise InputError(
            f"{inner[0]} has marginalise = true, which is not available with a population; leave it out, so "
            "that it is sampled"
        )
    unit = np.random.default_rng(0).random((_N_TEST, likelihood.n_param))
    theta = np.asarray(likelihood.prior_transform(unit), dtype=np.float64)
    for i, parameter in enumerate(likelihood.parameters):
        if not np.allclose(theta[:, i], parameter.prior.transform(unit[:, i]), rtol=1e-9, atol=0.0):
            raise InputError(
                f"the prior of {parameter.name} is ordered with that of another quantity, which is not "
                "available with a population; write ratio in place of emin, or change one of the priors"
            )
    if theta.size and not np.asarray(likelihood.allowed(theta), bool).all():
        raise InputError(
            "the priors allow sources that cannot be (a minor axis above the major one, a polarised fraction "
            "below 0 or above 1, a place below the horizon); narrow them"
        )


def _only(value: Entry) -> Entry:
    """The one value of a quantity that may be a list."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value
