"""Gains fitted beside the sky of self-calibrated data: what becomes of fluxes and of their errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import real

import biro
from biro.inference.maximum.maximum import Maximum
from biro.models.files.toml import from_toml

SD = 0.05
GAIN = f"""
[gain]
amplitude = {{ prior = "log-normal", sd = {SD}, per = "scan" }}
phase = {{ prior = "normal", mean = 0, sd = "5 deg", per = "scan" }}
"""
J1033 = real.j1033_core("ellipse") + real.j1033_blob("near", -1.0) + real.j1033_blob("far", -3.6)
AT_J1033 = {
    "core.east": -0.0008, "core.north": -0.0012, "core.I": 0.5225, "core.emaj": 0.136, "core.ratio": 0.1,
    "core.pa": 7.5, "near.east": 0.18, "near.north": -1.05, "near.I": 0.021, "near.fwhm": 0.46,
    "far.east": 0.79, "far.north": -3.38, "far.I": 0.017, "far.fwhm": 1.6,
}  # fmt: skip
C273 = """
[[source]]
name = "core"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = 10, high = 50, unit = "Jy" }

[[source]]
name = "jet"
type = "gaussian"
east = "-13.929 arcsec"
north = "-15.461 arcsec"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
emaj = { prior = "uniform", low = 0.5, high = 10, unit = "arcsec" }
ratio = 0.306
pa = "45.84 deg"
"""
AT_3C273 = {"core.I": 29.9, "jet.I": 3.37, "jet.emaj": 2.93, "noise.factor": 0.34}


def maximum(data: biro.Observation, sky: str, start: dict[str, float], how: str | None = None) -> Maximum:
    """The maximum near a place, with gains as `how` says, or without."""
    gains = {} if how is None else {"gains": how}
    likelihood = biro.Likelihood(data, from_toml(sky + (GAIN if how else "")), backend="cpu", **gains)
    at = np.array([[start.get(name, 1.2) for name in likelihood.parameter_names]])
    return biro.maximise(likelihood, seed=1, starts=at)


def error(found: Maximum, name: str) -> float:
    return float(found.error[found.names.index(name)])


@pytest.fixture(scope="module")
def j1033(data_dir: Path) -> biro.Observation:
    path = data_dir / "vlba_j1033p6051_ku.uvfits"
    return biro.read(path, spws=[2, 4], average_time="120 s", correlations="RR,LL")


def flux_scale(data: biro.Observation, sky: str) -> float:
    """What priors of amplitudes leave of it, 2 sd / sqrt(number of them): a visibility has two."""
    names = biro.Likelihood(data, from_toml(sky + GAIN), backend="cpu").parameter_names
    return 2.0 * SD / float(np.sqrt(sum(name.startswith("gain.amplitude") for name in names)))


def test_j1033(j1033: biro.Observation) -> None:
    """Core and far blob stay; the near one, which a self-calibration can take into gains, does not."""
    without, beside = maximum(j1033, J1033, AT_J1033), maximum(j1033, J1033, AT_J1033, "marginalise")
    for name in ("core.I", "far.I"):
        assert abs(beside[name] - without[name]) < error(beside, name), name
    # The data leave a tenth of the scale's error beside it, which adds half a per cent in quadrature.
    assert error(beside, "core.I") / beside["core.I"] == pytest.approx(flux_scale(j1033, J1033), rel=0.03)
    assert error(without, "core.I") < 0.2 * error(beside, "core.I")
    # The self-calibration has fitted its gains to the noise: 310 new ones take out a quarter of the
    # 310 / 4316 that they would of noise nobody has looked at.
    assert 0.96 < beside.reduced_chi2.sum() / without.reduced_chi2.sum() < 1.0
    # By 4.0 of the errors without gains and 2.2 of those with them: the next test says why.
    assert beside["near.I"] - without["near.I"] > 3.0 * error(without, "near.I")
    assert beside["near.I"] - without["near.I"] < 3.0 * error(beside, "near.I")


def test_self_calibration_pulls_fluxes_to_its_model(j1033: biro.Observation) -> None:
    """Calibrated with a sky without the near blob, data have a third of it; a fit with gains has all."""
    data = replace(j1033, partitions=j1033.partitions[:1])
    likelihood = biro.Likelihood(data, from_toml(J1033 + "\n[noise]\nfactor = 1\n"), backend="cpu")
    (part,) = data.partitions

    def seen(near: float) -> np.ndarray:
        values = AT_J1033 | {"near.I": near}
        return likelihood.predict([values[name] for name in likelihood.parameter_names])[0]

    re, im = np.random.default_rng(1).normal(size=(2, *part.vis.shape))
    noise = (re + 1j * im) / np.sqrt(np.where(part.weight > 0, part.weight, np.inf))
    perfect, wrong = (
        replace(data, partitions=(replace(part, vis=vis),)) for vis in (seen(0.025) + noise, seen(0.0))
    )
    solved = biro.solve_gains(perfect, wrong, interval="scan", backend="cpu")
    (vis,) = solved.corrected()
    calibrated = replace(data, partitions=(replace(part, vis=vis),))
    without, beside = (maximum(calibrated, J1033, AT_J1033, how) for how in (None, "marginalise"))
    assert without["near.I"] < 0.025 - 8.0 * error(without, "near.I")  # 0.007 +- 0.001
    assert abs(beside["near.I"] - 0.025) < 3.0 * error(beside, "near.I")
    assert abs(beside["core.I"] - 0.5225) < 3.0 * error(beside, "core.I")


def test_3c273(data_dir: Path) -> None:
    """Fluxes change by less than their errors, which are those of the flux scale; the jet's share by more."""
    data = biro.read(data_dir / "vla_3c273_x.uvfits", correlations="RR,LL")
    without, beside = maximum(data, C273, AT_3C273), maximum(data, C273, AT_3C273, "solve")
    for name in ("core.I", "jet.I"):
        assert abs(beside[name] - without[name]) < error(beside, name), name
        assert error(beside, name) / beside[name] == pytest.approx(flux_scale(data, C273), rel=0.03), name
    # From 0.1114 in units of the weights to 0.1026: 8 %, many times the 0.6 % that 159 gains take of noise.
    assert 0.90 < beside.reduced_chi2[0] / without.reduced_chi2[0] < 0.95
    shares = [found["jet.I"] / found["core.I"] for found in (without, beside)]
    # 0.6 %, four times the error of 0.15 % of independent residuals, which those of this jet are not.
    assert -0.009 < shares[1] / shares[0] - 1.0 < -0.003
