"""What is said of a noise factor far from 1: weights in other units, or a model that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from biro.maximum.partition_fit import PartitionFit, fit_lines, fit_warnings, fits_at

import biro
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
    weight: float = SIGMA**-2, second: float = 0.0, outliers: float = 0.0, n_time: int = 60, **about: Any
) -> biro.Observation:
    """A core of 1 Jy, a second source 10 arcsec to the east, and noise of 0.1 Jy, whatever weights say."""
    rng = np.random.default_rng(4)
    pairs = np.array([(p, q) for p in range(6) for q in range(p + 1, 6)])
    place = rng.normal(scale=400.0, size=(6, 2))
    turn = 2 * np.pi / 86400 * 10.0 * np.arange(n_time)  # the Earth, 10 s at a time
    turned = [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    uv = np.einsum("rst,ps->tpr", turned, place[pairs[:, 1]] - place[pairs[:, 0]]).reshape(-1, 2)
    wavelength = 299792458.0 / 1e9
    model = 1 + second * np.exp(2j * np.pi * uv[:, 0] / wavelength * np.deg2rad(10 / 3600))
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


def fit(observation: biro.Observation, noise: str = "", flux: float = 1.0) -> PartitionFit:
    """Of the core alone, with the noise factor that is best there if none is given."""
    likelihood = biro.Likelihood(observation, from_toml(CORE + noise), backend="cpu")
    factor = float(
        np.sqrt(likelihood.chi2([flux] + [1.0] * (likelihood.n_param - 1))[0] / likelihood.n_vis[0] / 2)
    )
    (found,) = fits_at(likelihood, np.array([flux, factor, 5.0][: likelihood.n_param]))
    return found


def test_noise_as_stated_needs_no_words() -> None:
    found = fit(observe())
    # 1800 complex numbers: chi2 / 2N is 1 to sqrt(1/1800) = 0.024.
    assert found.reduced_chi2 == pytest.approx(1.0, abs=4 * 0.024)
    assert (found.verdict, found.n_vis) == ("", 1800)


@pytest.mark.parametrize("units", [0.01, 30.0])
def test_weights_in_other_units(units: float) -> None:
    """Residuals that are noise change from one time to the next by as much as they scatter."""
    found = fit(observe(weight=(units / SIGMA) ** 2))
    # Robust scatters of 3600 numbers are right to 1.17 / sqrt(3600) = 2 %.
    assert found.scatter == pytest.approx(units, rel=0.08)
    assert found.step == pytest.approx(units, rel=0.08)
    (line,) = fit_warnings([found])
    assert line.startswith("WEIGHTS IN OTHER UNITS (field/spw0): residuals are ")
    assert "the fitted noise factor makes up for it" in line
    fixed = fit(observe(weight=(units / SIGMA) ** 2), "factor = 1")
    assert "scale the weights, or give the noise factor a prior" in fixed.reason


def test_a_source_that_the_model_lacks_is_coherent() -> None:
    found = fit(observe(second=0.6))
    assert found.verdict == "THE MODEL DOES NOT FIT"
    # Its fringe of 0.6 Jy turns by less than 0.1 rad in 10 s: at most 0.06 / sqrt(2) Jy beside 0.1 Jy.
    assert 0.9 < found.step < 1.15
    # |cos| of any angle has the median 1/sqrt(2); phases are not quite evenly spread, and there is noise.
    assert found.scatter == pytest.approx(1.4826 * 0.6 / np.sqrt(2) / SIGMA, rel=0.1)
    assert "weights are in other units, too" not in found.reason
    both = fit(observe(second=0.6, weight=(20 / SIGMA) ** 2))
    assert both.verdict == "THE MODEL DOES NOT FIT"
    assert "the weights are in other units, too" in both.reason


def test_outliers_are_neither() -> None:
    spoiled = observe(outliers=0.01)
    found = fit(spoiled)
    assert found.verdict == "OUTLIERS"
    assert found.scatter == pytest.approx(1.0, rel=0.1)
    likelihood = biro.Likelihood(spoiled, from_toml(CORE + 'distribution = "student-t"'), backend="cpu")
    (robust,) = fits_at(likelihood, np.array([1.0, 0.9, 3.0]))
    assert robust.reduced_chi2 > 10
    assert robust.verdict == ""


def test_a_single_time_cannot_tell() -> None:
    found = fit(observe(n_time=1, weight=(30 / SIGMA) ** 2))
    assert found.verdict == "MODEL OR WEIGHTS ARE WRONG"
    assert "too few times are neighbours" in found.reason


def test_many_partitions_are_summed_up() -> None:
    fits = [PartitionFit(f"F/spw{i}", 100, 1.0 + 0.1 * i, 1.0) for i in range(4)]
    assert fit_lines(fits)[2] == "F/spw2: chi2/2N 1.2 of 100 visibilities, noise factor 1"
    fits += [PartitionFit("G/spw0", 50, 0.01, 0.1, 0.1, 0.1), PartitionFit("G/spw1", 0, np.nan, 1.0)]
    empty, line = fit_lines(fits)
    assert empty == "1 of 6 partitions have no visibilities"
    assert line == (
        "chi2/2N of 5 partitions: 0.01 to 1.3, median 1.1, noise factors 0.1 to 1; "
        "the worst is G/spw0: chi2/2N 0.01 of 50 visibilities, noise factor 0.1"
    )
    assert len(fit_warnings(fits)) == 1
    wrong = [PartitionFit(f"H/spw{i}", 9, 100.0 * (i + 1), 10.0, 10.0, 1.0) for i in range(6)]
    (line,) = fit_warnings([*fits[:4], *wrong])
    assert line.startswith("THE MODEL DOES NOT FIT (6 of 10 partitions, the worst is H/spw5): ")


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
    assert first.startswith("WEIGHTS IN OTHER UNITS (field/spw0): residuals are ")
    assert any(
        line == f"field/spw0: chi2/2N {chi2 / 3600:.4g} of 1800 visibilities, noise factor "
        f"{posterior.best_fit[1]:.4g}"
        for line in rest
    )
    assert table.to_dict()["warnings"][-1] == first
    again = biro.Posterior.load(tmp_path / "run" / "posterior.nc")
    assert again.fits == posterior.fits
    page = write_report(tmp_path, again, likelihood, pictures={}).read_text()
    assert page.index("WEIGHTS IN OTHER UNITS") < page.index("<table>") < page.index("chi2/2N")


def test_the_maximum_says_it_above_its_table() -> None:
    likelihood = biro.Likelihood(observe(second=0.6), from_toml(CORE), backend="cpu")
    maximum = biro.maximise(likelihood, seed=1)
    assert str(maximum).startswith("THE MODEL DOES NOT FIT (field/spw0): residuals are ")
    assert maximum.to_dict()["warnings"] == maximum.warnings()
