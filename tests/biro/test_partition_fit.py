"""Does the model fit? What is said of weights in other units, of a model that does not fit, of sound data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import biro
from biro.diagnosis.diagnosis import diagnose
from biro.diagnosis.partition_fit import (
    OUTLIERS,
    UNITS,
    UNKNOWN,
    WHY_BOUND,
    PartitionFit,
    fit_lines,
    grouped,
    noise_verdict,
)
from biro.models.files.toml import from_toml
from biro.plots.report import write_report

SIGMA = 0.1
CORE = """
[[source]]
name = "core"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }

[noise]
"""


def observe(
    weight: float = SIGMA**-2,
    second: float = 0.0,
    outliers: float = 0.0,
    n_time: int = 60,
    away: float = 10.0,
    **about: Any,
) -> biro.Observation:
    """A core of 1 Jy, a second source `away` arcsec to the east, noise of 0.1 Jy whatever weights say."""
    rng = np.random.default_rng(4)
    pairs = np.array([(p, q) for p in range(6) for q in range(p + 1, 6)])
    place = rng.normal(scale=400.0, size=(6, 2))
    turn = 2 * np.pi / 86400 * 10.0 * np.arange(n_time)  # the Earth, 10 s at a time
    turned = [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    uv = np.einsum("rst,ps->tpr", turned, place[pairs[:, 1]] - place[pairs[:, 0]]).reshape(-1, 2)
    wavelength = 299792458.0 / 1e9
    model = 1 + second * np.exp(2j * np.pi * uv[:, 0] / wavelength * np.deg2rad(away / 3600))
    noise = SIGMA * (rng.normal(size=(len(uv), 1, 2)) + 1j * rng.normal(size=(len(uv), 1, 2)))
    noise[rng.random(noise.shape) < outliers] *= 100.0
    return biro.Observation.from_arrays(
        vis=model[:, None, None] + noise,
        uvw=np.column_stack([uv, np.zeros(len(uv))]),
        antenna1=np.tile(pairs[:, 0], n_time),
        antenna2=np.tile(pairs[:, 1], n_time),
        time=np.repeat(5e9 + 10.0 * np.arange(n_time), len(pairs)),
        chan_freq=[1e9],
        corr_type=("XX", "YY"),
        weight=weight,
        **about,
    )


def fit(observation: biro.Observation, noise: str = "", flux: float = 1.0) -> tuple[PartitionFit, list[str]]:
    """Fit of the core alone, with the best noise factor if none is given; and the lines above a table."""
    likelihood = biro.Likelihood(observation, from_toml(CORE + noise), backend="cpu")
    factor = float(
        np.sqrt(likelihood.chi2([flux] + [1.0] * (likelihood.n_param - 1))[0] / likelihood.n_vis[0] / 2)
    )
    theta = np.array([flux, factor, 5.0][: likelihood.n_param])
    # sigma/sqrt(2N) of the flux: the order of magnitude is enough.
    sd = np.array([0.002, 0.01, 1.0][: likelihood.n_param])
    columns = biro.maximise(likelihood, seed=1).columns
    found = diagnose(likelihood, theta, theta, sd, columns)
    return found.fits[0], list(found.warnings)


def test_noise_as_stated_needs_no_words() -> None:
    found, lines = fit(observe())
    # 3600 real numbers, one of which the flux takes: chi2 / dof is 1 to sqrt(2/3600) = 0.024.
    assert found.chi2_per_dof == pytest.approx(1.0, abs=4 * 0.024)
    assert found.dof == 3599
    # First differences tell the thermal noise to 0.87 / sqrt(3600) = 1.5 %, second ones to about 2 %.
    assert found.thermal == pytest.approx(1.0, abs=0.07)
    assert (lines, found.n_vis) == ([], 1800)


@pytest.mark.parametrize("units", [0.01, 30.0])
def test_weights_in_other_units(units: float) -> None:
    """Residuals that are noise change from one time to the next by as much as they scatter."""
    found, (line,) = fit(observe(weight=(units / SIGMA) ** 2))
    # Robust scatters of 3600 numbers are right to 1.17 / sqrt(3600) = 2 %.
    assert found.scatter == pytest.approx(units, rel=0.08)
    assert found.step == pytest.approx(units, rel=0.08)
    assert line.startswith("WEIGHT SCALE IS WRONG (field/spw0): the residuals scatter ")
    assert "the fitted noise factor corrects for it" in line
    _, (fixed,) = fit(observe(weight=(units / SIGMA) ** 2), "factor = 1")
    assert "Scale the weights, or fit [noise] factor" in fixed
    wrong = max(units, 1 / units)
    assert f"times too {'small' if units > 1 else 'large'}" in fixed
    # chi2 / dof is right to 0.024, its root to 0.012.
    assert float(fixed.split("errors are ")[1].split()[0]) == pytest.approx(wrong, rel=0.05)


def test_noise_that_weights_understate_by_a_fifth() -> None:
    """With a fixed factor all errors are 1.2 times too small: 3600 real numbers show that at 19 sigma."""
    _, (line,) = fit(observe(weight=(1.2 / SIGMA) ** 2), "factor = 1")
    assert line.startswith("NOISE DIFFERS FROM THE WEIGHTS")
    # Where the factor is fitted, errors are right.
    assert fit(observe(weight=(1.2 / SIGMA) ** 2))[1] == []


@pytest.mark.parametrize(
    ("second", "noise"), [(0.6, ""), (0.6, "factor = 1"), (0.06, ""), (0.06, "factor = 1")]
)
def test_a_source_that_the_model_lacks(second: float, noise: str) -> None:
    """chi2/2N is 19 for a source of 0.6 Jy, and 1.18 for one of 0.06 Jy that is there at all times."""
    found, lines = fit(observe(second=second), noise)
    assert lines[0].startswith("THE MODEL DOES NOT FIT (field/spw0): the residual rms is ")
    # Residuals have the mean square of the source and the noise, the thermal noise that of the noise alone.
    # Its fringe turns by less than 0.1 rad in 10 s: 0.06 Jy / sqrt(2) at most are left beside 0.1 Jy.
    expected = np.sqrt(1 + (second / SIGMA) ** 2 / 2)
    assert 0.85 * expected < 1 / found.thermal < 1.1 * expected
    assert not any(line.startswith(("WEIGHTS", "NOISE", "residuals of", "noise ")) for line in lines)
    both, also = fit(observe(second=second, weight=(20 / SIGMA) ** 2))
    assert also[0].startswith("THE MODEL DOES NOT FIT")
    assert 0.85 * expected < 1 / both.thermal < 1.1 * expected


def test_fringes_that_turn_between_two_times_are_no_weights_in_other_units() -> None:
    """A source of 3 Jy, whose fringes turn by half a radian and more per time; differences are no noise."""
    found, lines = fit(observe(second=3.0, away=400.0))
    assert lines[0].startswith("THE MODEL DOES NOT FIT")
    assert not any("WEIGHTS" in line for line in lines)
    assert 1 / found.thermal > 3


def test_outliers_are_neither() -> None:
    spoiled = observe(outliers=0.01)
    found, (line,) = fit(spoiled)
    assert noise_verdict(found) == OUTLIERS
    assert line.startswith("OUTLIERS (field/spw0): ")
    assert found.scatter == pytest.approx(1.0, rel=0.1)
    likelihood = biro.Likelihood(spoiled, from_toml(CORE + 'distribution = "student-t"'), backend="cpu")
    assert biro.maximise(likelihood, seed=1).warnings() == []


def test_a_single_time_cannot_tell() -> None:
    found, (line,) = fit(observe(n_time=1, weight=(30 / SIGMA) ** 2))
    assert noise_verdict(found) == UNKNOWN
    assert "There are too few neighbouring times and channels" in line


def test_few_visibilities_have_few_degrees_of_freedom() -> None:
    """Five sound visibilities, which the parameters fit too well, give no warning."""
    rng = np.random.default_rng(9)
    for seed in range(10):
        chi2 = float(rng.chisquare(3))  # ten real numbers, seven parameters
        few = PartitionFit("f/0", 5, chi2 / 10, 1.0, dof=3.0, is_fitted=bool(seed % 2))
        assert noise_verdict(few) == ""
    assert noise_verdict(PartitionFit("f/0", 5, 4.0, 1.0, dof=0.0, is_fitted=False)) == ""


def test_many_partitions_are_summed_up() -> None:
    fits = [PartitionFit(f"F/spw{i}", 100, 1.0 + 0.1 * i, 1.0) for i in range(4)]
    assert fit_lines(fits)[2] == "F/spw2: chi2/dof 1.2 (100 visibilities), noise factor 1"
    fits += [PartitionFit("G/spw0", 50, 0.01, 0.1, thermal=1.0), PartitionFit("G/spw1", 0, np.nan, 1.0)]
    empty, line, thermal = fit_lines(fits)
    assert empty == "1 of 6 partitions have no visibilities"
    assert line == (
        "chi2/dof of 5 partitions: 0.01 to 1.3, median 1.1. Noise factors 0.1 to 1. Worst partition G/spw0"
    )
    assert thermal == "residual rms 1 to 1 times the thermal noise, median 1. Highest in G/spw0"
    bound = replace(fits[0], thermal=0.25, is_bound=True)
    _, _, thermal, why = fit_lines([bound, *fits[1:]])
    assert thermal == ("residual rms at least 1 to 4 times the thermal noise, median 2.5. Highest in F/spw0")
    assert why == WHY_BOUND
    assert fit_lines([bound]) == [
        "F/spw0: chi2/dof 1 (100 visibilities), noise factor 1, "
        "residual rms at least 4 times the thermal noise",
        WHY_BOUND,
    ]
    assert noise_verdict(fits[4]) == UNITS
    (line,) = grouped([("WRONG", fit, f"reason {i}") for i, fit in enumerate(fits)], 10)
    assert line == "WRONG (6 of 10 partitions, the worst is F/spw0): reason 0"


@pytest.mark.parametrize("sampler", ["emcee", "none"])
def test_every_table_says_it_above_the_figures(tmp_path: Path, sampler: str) -> None:
    observation = observe(weight=(30 / SIGMA) ** 2)
    likelihood = biro.Likelihood(observation, from_toml(CORE), backend="cpu")
    options = {"n_walker": 8, "max_steps": 60} if sampler == "emcee" else {}
    posterior = biro.sample(likelihood, sampler, run_dir=tmp_path / "run", seed=1, progress=False, **options)
    (found,) = posterior.fits
    chi2 = likelihood.chi2(posterior.best_fit)[0]
    assert found.reduced_chi2 == pytest.approx(chi2 / 3600, rel=1e-9)
    table = posterior.summary()
    lines = str(table).splitlines()
    above, rest = lines[: len(table.warnings())], lines[len(table.warnings()) :]
    if sampler == "emcee":  # eight walkers, 60 steps
        assert above.pop(0).startswith("NOT CONVERGED")
    (first,) = above
    assert first.startswith("WEIGHT SCALE IS WRONG (field/spw0): the residuals scatter ")
    (line,) = [line for line in rest if line.startswith("field/spw0: ")]
    assert line.startswith(
        f"field/spw0: chi2/dof {chi2 / 3599:.4g} (1800 visibilities), "
        f"noise factor {posterior.best_fit[1]:.4g}"
    )
    assert table.to_dict()["warnings"][-1] == first
    again = biro.Posterior.load(tmp_path / "run" / "posterior.nc")
    assert again.fits == posterior.fits
    assert again.summary().warnings() == table.warnings()
    page = write_report(tmp_path, again, likelihood, pictures={}).read_text()
    assert page.index("WEIGHT SCALE IS WRONG") < page.index("<table>") < page.index("field/spw0: chi2/dof")


def test_the_maximum_and_the_samplers_say_the_same() -> None:
    """One diagnosis: the maximum and draws about it have the same lines, but for roundings of the errors."""
    likelihood = biro.Likelihood(observe(second=0.6), from_toml(CORE), backend="cpu")
    maximum = biro.maximise(likelihood, seed=1)
    assert str(maximum).startswith("THE MODEL DOES NOT FIT (field/spw0): the residual rms is ")
    assert maximum.to_dict()["warnings"] == maximum.warnings()
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    assert posterior.summary().warnings()[0] == maximum.warnings()[0]
    assert posterior.fits == maximum.fits
    # The stated noise is the thermal one; differences have at most 0.4 of the power of the source beside it.
    part = maximum.to_dict()["partitions"][0]
    assert part["residual_over_thermal"] == pytest.approx(np.sqrt(maximum.fits[0].chi2_per_dof), rel=0.2)
    assert part["dof"] == 3599
