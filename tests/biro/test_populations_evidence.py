"""Evidence and probability of each number of sources, against a quadrature over the place and flux of one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

import biro
from biro.models import Noise, NumberPrior, Population, PowerLaw, SkyModel, Uniform
from biro.source_finding.populations.posterior import PopulationPosterior

Array = NDArray[np.float64]
C = 299792458.0
ARCSEC = np.pi / 180.0 / 3600.0
N_ROW = 100
POPULATION = Population(
    "field",
    number=NumberPrior("poisson", mean=1, high=3),
    I=PowerLaw(1.5, "50 mJy", "2 Jy"),
    east=Uniform("-6 arcsec", "6 arcsec"),
    north=Uniform("-6 arcsec", "6 arcsec"),
)
ENGINE = {"smearing": "off"}


@cache
def observation(flux: float) -> biro.Observation:
    """One source of this flux (Jy) in noise of 1 Jy, which leaves an error of 1 Jy / sqrt(200) = 0.07 Jy."""
    rng = np.random.default_rng(5)
    uvw = np.column_stack([rng.uniform(-2000.0, 2000.0, (N_ROW, 2)), np.zeros(N_ROW)])
    phase = -2.0 * np.pi * (3.0 * uvw[:, 0] - 2.0 * uvw[:, 1]) * ARCSEC / 0.06
    noise = rng.normal(size=(N_ROW, 1, 2)) + 1j * rng.normal(size=(N_ROW, 1, 2))
    return biro.Observation.from_arrays(
        vis=flux * np.exp(1j * phase)[:, None, None] + noise,
        uvw=uvw,
        antenna1=np.zeros(N_ROW, int),
        antenna2=np.ones(N_ROW, int),
        time=np.arange(float(N_ROW)),
        chan_freq=[C / 0.06],
        corr_type=["XX", "YY"],
        weight=np.ones((N_ROW, 1, 2)),
        phase_centre=(1.0, 0.5),
    )


def sky(number: NumberPrior, **changes: object) -> SkyModel:
    return SkyModel([], populations=replace(POPULATION, number=number, **changes), noise=Noise(factor=1.0))


def fit(flux: float, number: NumberPrior, **changes: object) -> PopulationPosterior:
    return biro.fit_population(
        observation(flux), sky(number, **changes), seed=3, progress=False, n_effective=600, **ENGINE
    )


@cache
def exact(flux: float) -> tuple[float, float]:
    """ln Z of no source and of one.

    ln L is a parabola of the flux of a source at a known place, which three values give; it is averaged over
    quantiles of the prior of the flux, and over a grid of places of a tenth of a beam (the fringes of the
    longest baselines are 4.4 arcsec wide).
    """
    one = SkyModel([POPULATION.source(1, "point")], noise=Noise(factor=1.0))
    likelihood = biro.Likelihood(observation(flux), one, **ENGINE)
    assert likelihood.parameter_names == ["field1.east", "field1.north", "field1.I"]
    middle = (np.arange(80) + 0.5) / 80 * 12.0 - 6.0
    east, north = (of.ravel() for of in np.meshgrid(middle, middle))
    unit = likelihood.parameters[2].unit
    step = 1.0 if unit == "Jy" else 1000.0

    def height(of: float) -> Array:
        return np.asarray(likelihood.log_likelihood(np.column_stack([east, north, np.full(east.shape, of)])))

    none = height(0.0)[0]
    rise, twice = height(step) - none, height(2.0 * step) - none
    curvature, slope = (2.0 * rise - twice) / step**2, (2.0 * rise - 0.5 * twice) / step
    x = likelihood.parameters[2].prior.transform((np.arange(2000) + 0.5) / 2000)
    of_place = [special.logsumexp(b * x - 0.5 * a * x**2) for a, b in zip(curvature, slope, strict=True)]
    return float(none), float(none + special.logsumexp(of_place) - np.log(len(x) * len(of_place)))


def of_number(found: PopulationPosterior, k: int) -> tuple[float, float]:
    """ln of the posterior probability of a number of sources, and its error."""
    result = found.sources.number_probability()
    p = float(result.probability[k])
    return np.log(p), float(result.error[k]) / p


NUMBERS = {
    "poisson": NumberPrior("poisson", mean=1, high=3),
    "jeffreys": NumberPrior("jeffreys", high=3),
    "uniform": NumberPrior("uniform", high=1),
}


@pytest.mark.parametrize("prior", NUMBERS)
def test_probabilities_and_evidence_are_those_of_a_quadrature(prior: str) -> None:
    """A source of 3 sigma, so that none and one have both large probabilities."""
    number, expected = NUMBERS[prior], exact(0.2)
    found = fit(0.2, number)
    assert found.posterior.diagnostics["converged"] == 1.0
    log_z, error = found.posterior.log_evidence, found.posterior.log_evidence_err
    assert 0.0 < error < 0.2
    for k in (0, 1):
        log_p, of_p = of_number(found, k)
        assert log_p > np.log(0.03)
        log_z_k = log_z + log_p - number.log_pmf(k)
        # Three errors, and 0.02 for the quadrature.
        assert abs(log_z_k - expected[k]) < 3.0 * np.hypot(error, of_p) + 0.02, k


def test_an_empty_field_has_the_probability_of_no_source_that_a_quadrature_gives() -> None:
    """With one source at most, P(0) = pmf(0) Z_0 / (pmf(0) Z_0 + pmf(1) Z_1)."""
    number, (none, one) = NUMBERS["uniform"], exact(0.0)
    p = special.expit(none - one)
    result = fit(0.0, number).sources.number_probability()
    assert 0.5 < p < 0.999
    # Three standard errors of a frequency of that probability.
    assert result.probability[0] == pytest.approx(p, abs=3.0 * np.sqrt(p * (1.0 - p) / result.n_effective))


def test_a_number_without_doubt_converges() -> None:
    """A source of 30 sigma in a model of one or none: all draws have it, and the run ends."""
    found = fit(2.0 * 0.95, NUMBERS["uniform"])
    assert found.sources.number_probability().probability[1] == 1.0
    assert found.posterior.diagnostics["converged"] == 1.0
    assert found.posterior.diagnostics["n_step"] < 3000
