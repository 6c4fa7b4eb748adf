"""Residuals of the two hands of a fit: alike, independent, correlated, of unequal scatter, polarised."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.diagnosis.verdict_text import HOLDS
from biro.imaging.fit_images import fit_images
from biro.likelihood.parallel_hands import ParallelHandResiduals
from biro.observation.stokes import form_stokes

SIGMA = 0.3
ROW_ARRAYS = ("uvw", "antenna1", "antenna2", "time")
POINT = """
[[source]]
name = "s"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
"""


def complex_noise(rng: np.random.Generator, n: int) -> np.ndarray:
    return SIGMA * (rng.normal(size=n) + 1j * rng.normal(size=n))


def observed(first: np.ndarray, second: np.ndarray, weight: object = SIGMA**-2) -> biro.Observation:
    """A point of 1 Jy in the middle, with noise of RR and of LL."""
    n = len(first)
    return biro.Observation.from_arrays(
        vis=(1.0 + np.stack([first, second], axis=1))[:, None],
        uvw=np.random.default_rng(5).normal(size=(n, 3)) * 1e3,
        antenna1=np.zeros(n, int),
        antenna2=1 + np.arange(n) % 20,
        time=5e9 + 10.0 * (np.arange(n) // 20),
        chan_freq=[1.4e9],
        corr_type=("RR", "LL"),
        weight=weight,
    )


def warnings_of(obs: biro.Observation, tmp_path: Path, more: str = "") -> tuple[list[str], float]:
    """Warnings of a fit, and the error of the flux."""
    (tmp_path / "sky.toml").write_text(POINT + more)
    likelihood = biro.Likelihood(obs, biro.read_model(tmp_path / "sky.toml"))
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    row = posterior.summary()["s.I"]
    return posterior.summary().warnings(), (row.high_68 - row.low_68) / 2


def test_independent_noise_is_no_matter(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    assert warnings_of(observed(complex_noise(rng, 2000), complex_noise(rng, 2000)), tmp_path)[0] == []


def test_noise_that_both_hands_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the variance is common, so that the correlation is 1/2; Stokes I has the right error."""
    rng = np.random.default_rng(2)
    common, *own = (complex_noise(rng, 2000) * np.sqrt(0.5) for _ in range(3))
    obs = observed(common + own[0], common + own[1])
    (text, total), error = warnings_of(obs, tmp_path)
    # 4000 real residuals: the correlation is known to 0.75 / sqrt(4000) = 0.012.
    assert float(text.split("correlated (")[1].split(")")[0]) == pytest.approx(0.5, abs=0.05)
    assert total == "ERRORS ARE TOO SMALL: multiply all errors by about 1.2"
    assert "--stokes I" in text
    # 2000 of Stokes I have the variance (1 + rho) sigma^2 / 2 each; a fit to both hands lacks the rho.
    # Errors come from a finite sample of draws: to some per cent.
    assert error == pytest.approx(SIGMA / np.sqrt(2 * 2000), rel=0.1)
    # What the likelihood itself says of the hands; of large data some times are looked at.
    likelihood = biro.Likelihood(obs, biro.read_model(tmp_path / "sky.toml"))
    best = biro.maximise(likelihood, seed=1).best_fit
    (whole,) = likelihood.remarks(best)
    assert 'If the gains of the feeds differ, fit them ([gain] feeds = "ratio")' in whole
    for module in ("likelihood", "fit_remarks"):
        monkeypatch.setattr(f"biro.likelihood.{module}.N_RESIDUALS", 1000)
    (few,) = likelihood.remarks(best)
    assert float(few.split("correlated (")[1].split(")")[0]) == pytest.approx(0.5, abs=0.15)
    assert few != whole
    parts, _ = form_stokes(obs.partitions, "I")
    found, error = warnings_of(replace(obs, partitions=tuple(parts)), tmp_path)
    assert found == []
    assert error == pytest.approx(SIGMA * np.sqrt(1.5) / np.sqrt(2 * 2000), rel=0.1)


def test_hands_of_unequal_scatter(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    first, second = complex_noise(rng, 2000), 1.5 * complex_noise(rng, 2000)
    (text,), _ = warnings_of(observed(first, second), tmp_path)
    assert "The residuals of LL scatter 1.5 times as much as the others" in text
    assert "correlated" not in text
    # With weights that say so, it is as it should be.
    weight = np.array([1.0, 1.5**-2])[None, None] * SIGMA**-2
    assert warnings_of(observed(first, second, weight), tmp_path)[0] == []


def test_polarised_sky(tmp_path: Path) -> None:
    """V is in the hands with opposite signs: a correlation of -0.5 or so, until it is in the model."""
    rng = np.random.default_rng(4)
    first, second = complex_noise(rng, 2000), complex_noise(rng, 2000)
    polarised = observed(first + 0.5, second - 0.5)
    first, *rest = warnings_of(polarised, tmp_path)[0]
    assert first.startswith("THE MODEL DOES NOT FIT")
    assert "Source s has Stokes V, but the model has none" in first
    # V is known to 1 / sqrt(2 x 4000) = 0.011 of the noise.
    assert float(re.findall(r"\(V ([0-9.]+) Jy\)", first)[0]) == pytest.approx(0.5, abs=0.05)
    # The errors of I are right, because V has opposite signs in the two hands.
    assert rest == [HOLDS]
    circular = 'V = { prior = "uniform", low = -2, high = 2, unit = "Jy" }\n'
    assert warnings_of(polarised, tmp_path, circular)[0] == []


def test_few_residuals_may_be_correlated_by_chance() -> None:
    few = ParallelHandResiduals(("XX", "YY"), 10, 0.6, (10, 10), (1.3, 1.0))
    assert few.remark() == ""
    many = ParallelHandResiduals(("XX", "YY"), 1000, 0.6, (1000, 1000), (1.3, 1.0))
    assert many.is_correlated
    assert many.is_unequal
    # A correlation that is certain, but small, changes errors by less than a tenth.
    assert ParallelHandResiduals(("XX", "YY"), 10**6, 0.15, (10**6, 10**6), (1.1, 1.0)).remark() == ""


def test_noise_factors_of_parallel_and_of_cross_hands(tmp_path: Path) -> None:
    """Noise of 0.3 Jy in the parallel hands and of 0.1 Jy in the cross hands, stated as 0.2 Jy in all."""
    rng, n = np.random.default_rng(6), 2000
    noise = [complex_noise(rng, n) / SIGMA * sigma for sigma in (0.3, 0.1, 0.1, 0.3)]
    rows = {name: getattr(observed(noise[0], noise[3]).partitions[0], name) for name in ROW_ARRAYS}
    # The two kinds of hands are not stored one after the other.
    vis = np.stack(noise, axis=1)[:, None] + np.array([1.0, 0.0, 0.0, 1.0])
    obs = biro.Observation.from_arrays(
        vis=vis, chan_freq=[1.4e9], corr_type=("RR", "RL", "LR", "LL"), weight=0.2**-2, **rows
    )
    text = POINT + "\n[noise]\n"
    (tmp_path / "hands.toml").write_text(text + 'per = "hands"\n')
    (tmp_path / "fixed.toml").write_text(text + 'per = "hands"\nfactor = 1.0\n')
    (tmp_path / "whole.toml").write_text(text + "factor = 1.0\n")
    likelihoods = [
        biro.Likelihood(obs, biro.read_model(tmp_path / f"{name}.toml"))
        for name in ("hands", "fixed", "whole")
    ]
    found = biro.maximise(likelihoods[0], seed=1)
    # 8000 real numbers each: a noise factor is known to 1 / sqrt(2 * 8000) = 0.8 %.
    assert found["noise.factor[field/spw0/parallel]"] == pytest.approx(1.5, rel=0.03)
    assert found["noise.factor[field/spw0/cross]"] == pytest.approx(0.5, rel=0.03)
    # The real parts of two hands tell the flux; the cross hands tell nothing of it.
    assert found.error[found.names.index("s.I")] == pytest.approx(0.3 / np.sqrt(2 * n), rel=0.03)
    # Split or not, the data and the likelihood of equal noise are the same.
    assert likelihoods[0].observation.digest() == obs.digest()
    split, whole = (likelihood.log_likelihood([0.9]) for likelihood in likelihoods[1:])
    assert split == pytest.approx(whole, rel=1e-12)


def test_data_of_one_kind_of_hands_are_not_split() -> None:
    rng = np.random.default_rng(7)
    obs = observed(complex_noise(rng, 40), complex_noise(rng, 40))
    assert obs.split_parallel_cross().labels == obs.labels == ("field/spw0",)
    # Cross hands none of which counts, as in files of Stokes I, are no group of their own.
    part = obs.partitions[0]
    flagged = replace(part, corr_type=("RR", "RL"), weight=part.weight * np.array([1.0, 0.0]))
    assert len(replace(obs, partitions=(flagged,)).split_parallel_cross().partitions) == 1
    four = replace(part, corr_type=("RR", "RL"))
    split = replace(obs, partitions=(four,)).split_parallel_cross()
    assert split.labels == ("field/spw0/parallel", "field/spw0/cross")
    assert split.split_parallel_cross().labels == split.labels


def test_images_of_a_fit_with_noise_of_hands(tmp_path: Path) -> None:
    """They are those of the parallel hands, whether these are a partition of their own or not."""
    rng = np.random.default_rng(8)
    obs = observed(complex_noise(rng, 200), complex_noise(rng, 200))
    part = obs.partitions[0]
    four = replace(
        part,
        corr_type=("RR", "RL", "LR", "LL"),
        vis=part.vis[..., [0, 0, 1, 1]],
        weight=part.weight[..., [0, 0, 1, 1]],
    )
    images = []
    for noise in ("", '\n[noise]\nper = "hands"\n'):
        (tmp_path / "sky.toml").write_text(POINT + noise)
        likelihood = biro.Likelihood(replace(obs, partitions=(four,)), biro.read_model(tmp_path / "sky.toml"))
        theta = np.ones(likelihood.n_param)
        images.append(fit_images(likelihood, theta, cell="3 arcsec", size=64)[0][2].dirty)
    np.testing.assert_array_equal(*images)
