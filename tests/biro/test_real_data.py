"""Fits to real data against the reference fits that come with them (the README of the reference data).

Those fits used Stokes I, the weighted mean of the parallel hands that are there: `stokes="pseudoI"`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import real

import biro
from biro.inference.maximum.maximum import Maximum
from biro.inference.posterior.posterior import Posterior

FIXED_NOISE = "\n[noise]\nfactor = 1\n"


@pytest.fixture
def model(tmp_path: Path) -> Callable[[str], biro.SkyModel]:
    def read(text: str) -> biro.SkyModel:
        path = tmp_path / "sky.toml"
        path.write_text(text)
        return biro.read_model(path)

    return read


def highest(likelihood: biro.Likelihood, start: dict[str, float]) -> tuple[np.ndarray, float]:
    """Best parameters and total chi2, by SciPy from a stated start."""
    from scipy.optimize import minimize

    theta = np.array([start[name] for name in likelihood.parameter_names])
    scale = np.maximum(np.abs(theta), 1e-2) * 0.05

    def chi2(x: np.ndarray) -> float:
        value = likelihood.chi2(theta + scale * x).sum()
        return float(value) if math.isfinite(value) else 1e30

    best = minimize(chi2, np.zeros(len(theta)), method="Powell", options={"xtol": 1e-6, "ftol": 1e-10})
    return theta + scale * best.x, float(best.fun)


def nested(likelihood: biro.Likelihood) -> Posterior:
    """A short run of dynesty: evidence to about 2, where differences are hundreds and thousands."""
    return biro.sample(likelihood, "dynesty", seed=1, progress=False, n_live=40, dlogz=1.0)


def check(posterior: Posterior, reference: dict[str, tuple[float, float]]) -> None:
    """Posterior median within three of the reference's errors of its value."""
    rows = {row.name: row for row in posterior.summary().rows}
    for name, (value, error) in reference.items():
        assert abs(rows[name].median - value) < 3.0 * error, f"{name}: {rows[name]}"


# --- VLA 3C273: a core and a jet knot, 21 arcsec away


@pytest.fixture(scope="module")
def vla(measurement_set: Callable[[str], Path]) -> biro.Observation:
    return biro.read_ms(measurement_set("vla_3c273_x"), stokes="pseudoI")


# Value and formal error of the reference fit.
CORE_AND_JET = {
    "core.I": (29.916, 0.005),
    "jet.I": (3.374, 0.006),
    "jet.east": (-13.929, 0.003),
    "jet.north": (-15.461, 0.003),
    "jet.emaj": (2.927, 0.010),
    "jet.ratio": (0.306, 0.004),
    "jet.pa": (45.84, 0.21),
}


@pytest.mark.slow
def test_3c273_with_emcee(vla: biro.Observation, model: Callable[[str], biro.SkyModel]) -> None:
    # As the programs of the reference, which do not average their models.
    likelihood = biro.Likelihood(vla, model(real.CORE_3C273 + real.JET_3C273), smearing="off")
    posterior = biro.sample(likelihood, "emcee", seed=1, progress=False, n_tau=20.0)
    check(posterior, CORE_AND_JET)
    table = posterior.summary()
    # The reference gives the core's position without an error; its peak is known to 0.2 mas.
    assert table["core.east"].median == pytest.approx(-0.0009, abs=3e-4)
    assert table["core.north"].median == pytest.approx(0.0006, abs=3e-4)
    east, north = table["jet.east"].median, table["jet.north"].median
    assert math.degrees(math.atan2(east, north)) % 360 == pytest.approx(222.0, abs=0.5)
    assert posterior.diagnostics["converged"] == 1.0


@pytest.mark.slow
def test_3c273_with_dynesty(vla: biro.Observation, model: Callable[[str], biro.SkyModel]) -> None:
    """The knot is found anywhere within 25 arcsec; evidence asks for it, and for two Gaussians in it."""
    jet = nested(biro.Likelihood(vla, model(real.CORE_3C273 + real.JET_3C273), smearing="off"))
    # Climbs from about the reference fits: the search for the knot is that of dynesty.
    near = {"core.east": 0.0, "core.north": 0.0, "core.I": 30.0, "core.fwhm": 0.05, "noise.factor": 1.0}
    for jet_name, place, flux, size in (("jet1", -14.0, 2.0, 2.0), ("jet2", -12.5, 1.5, 6.0)):
        near |= {f"{jet_name}.east": place, f"{jet_name}.north": place - 1.5, f"{jet_name}.I": flux}
        near |= {f"{jet_name}.emaj": size, f"{jet_name}.ratio": 0.5, f"{jet_name}.pa": 45.0}
    likelihoods = [
        biro.Likelihood(vla, model(real.CORE_3C273 + more), smearing="off")
        for more in ("", real.TWO_JETS_3C273)
    ]
    core, two = (
        biro.maximise(each, seed=1, starts=[[near[name] for name in each.parameter_names]])
        for each in likelihoods
    )
    check(jet, CORE_AND_JET)
    evidence = [found.log_evidence or math.nan for found in (core, jet, two)]
    # Residuals of 2.54, 0.44 and 0.183 Jy: the noise factor alone is worth thousands.
    assert evidence[1] - evidence[0] > 1e4
    assert evidence[2] - evidence[1] > 1e3
    # "core + two jet Gaussians" of the README: flux, east, north, major, ratio, PA. Given to the last
    # digit without errors; theirs are at most those of the single knot, scaled by the flux: 3 of 0.01.
    for source, flux, east, north, emaj in (
        ("jet1", 2.354, -14.182, -15.674, 1.821),
        ("jet2", 1.325, -12.203, -13.668, 5.810),
    ):
        assert two[f"{source}.I"] == pytest.approx(flux, abs=0.03)
        assert two[f"{source}.east"] == pytest.approx(east, abs=0.03)
        assert two[f"{source}.north"] == pytest.approx(north, abs=0.03)
        assert two[f"{source}.emaj"] == pytest.approx(emaj, abs=0.1)


@pytest.mark.slow
def test_3c273_with_the_other_sign(
    measurement_set: Callable[[str], Path], model: Callable[[str], biro.SkyModel]
) -> None:
    obs = biro.read_ms(measurement_set("vla_3c273_x"), stokes="pseudoI", convention="fourier")
    likelihood = biro.Likelihood(obs, model(real.CORE_3C273 + real.JET_3C273))
    start = {"core.east": 0.0, "core.north": 0.0, "core.I": 30.0, "core.fwhm": 0.05, "noise.factor": 1.0}
    start |= {"jet.east": 13.0, "jet.north": 15.0, "jet.I": 3.0}
    start |= {"jet.emaj": 3.0, "jet.ratio": 0.5, "jet.pa": 45.0}
    theta, chi2 = highest(likelihood, start)
    found = dict(zip(likelihood.parameter_names, theta, strict=True))
    assert math.degrees(math.atan2(found["jet.east"], found["jet.north"])) == pytest.approx(42.0, abs=0.5)
    # As good a fit as that of the right sign: nothing in the data tells the two apart.
    # The README's residual of this model is 0.44 Jy (2.54 without the jet) per component of Stokes I,
    # whose weight is at most 2: one for each hand.
    assert chi2 < 2.0 * 2.0 * likelihood.n_vis.sum() * 0.44**2


def test_3c273_by_its_maximum_alone(vla: biro.Observation, model: Callable[[str], biro.SkyModel]) -> None:
    """The knot, anywhere within 25 arcsec, from draws of the prior; errors are those of the reference."""
    likelihood = biro.Likelihood(vla, model(real.CORE_3C273 + real.JET_3C273))
    found = biro.maximise(likelihood, seed=1)
    assert found.converged
    check_maximum(found, CORE_AND_JET)
    for name, (_, error) in CORE_AND_JET.items():
        # Stated to one digit: 0.003 may be 0.0025 or 0.0035.
        assert found.error[found.names.index(name)] == pytest.approx(error, rel=0.2), name
    # Seconds: no more than a short run of a sampler evaluates for its burn-in.
    assert found.n_gradient < 5000


def check_maximum(found: Maximum, reference: dict[str, tuple[float, float]]) -> None:
    """Each value within one of the reference's errors of its value: both are maxima of one likelihood."""
    for name, (value, error) in reference.items():
        assert abs(found[name] - value) < error, f"{name}: {found[name]}, reference {value} +- {error}"


# --- VLBA J1033+6051: eight windows, a core and two faint Gaussians


@pytest.fixture(scope="module")
def vlba(measurement_set: Callable[[str], Path]) -> biro.Observation:
    return biro.read_ms(measurement_set("vlba_j1033p6051_ku"), stokes="pseudoI")


START = {
    "core.east": -0.0006, "core.north": -0.001, "core.I": 0.53, "core.fwhm": 0.1,
    "core.emaj": 0.14, "core.ratio": 0.2, "core.pa": 6.0,
    "a.east": 0.18, "a.north": -1.06, "a.I": 0.026, "a.fwhm": 0.5,
    "b.east": 0.53, "b.north": -3.69, "b.I": 0.016, "b.fwhm": 0.9,
}  # fmt: skip
ONE = real.j1033_blob("a", -1.0)
TWO = ONE + real.j1033_blob("b", -3.7)
# Model, chi2 of the reference fit, and what it found.
J1033 = [
    (real.j1033_core("point"), 153064.0, {"core.I": (0.51999, 15e-5)}),
    (real.j1033_core("circle"), 144718.3, {"core.I": (0.53168, 20e-5), "core.fwhm": (0.0933, 5e-4)}),
    (
        real.j1033_core("ellipse"),
        137816.1,
        {
            "core.I": (0.53326, 20e-5), "core.emaj": (0.1514, 7e-4),
            "core.ratio": (0.365, 7e-3), "core.pa": (5.57, 0.33),
        },
    ),
    (real.j1033_core("ellipse") + ONE, 124508.6, {}),
    (
        real.j1033_core("ellipse") + TWO,
        120707.2,
        {
            "core.I": (0.52360, 23e-5), "core.east": (-0.00063, 7e-5), "core.north": (-0.00112, 10e-5),
            "core.emaj": (0.1375, 8e-4), "core.ratio": (0.152, 21e-3), "core.pa": (6.70, 0.36),
            "a.I": (0.02566, 31e-5), "a.east": (0.183, 4e-3), "a.north": (-1.062, 5e-3),
            "a.fwhm": (0.505, 7e-3),
            "b.I": (0.01620, 29e-5), "b.east": (0.532, 0.015), "b.north": (-3.689, 0.017),
            "b.fwhm": (0.883, 0.023),
        },
    ),
]  # fmt: skip


@pytest.mark.slow
def test_j1033_chi2_of_each_model(vlba: biro.Observation, model: Callable[[str], biro.SkyModel]) -> None:
    found = []
    for text, _, reference in J1033:
        likelihood = biro.Likelihood(vlba, model(text + FIXED_NOISE))
        theta, chi2 = highest(likelihood, START)
        found.append(chi2)
        for name, (value, error) in reference.items():
            best = theta[likelihood.parameter_names.index(name)]
            assert abs(best - value) < error, f"{name}: {best}, reference {value} +- {error}"
    assert likelihood.n_vis.sum() == 40140
    expected = np.array([chi2 for _, chi2, _ in J1033])
    # 0.1 % of each difference is asked for; the table is rounded to 0.1 of some 7000.
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_j1033_by_its_maximum_alone(vlba: biro.Observation, model: Callable[[str], biro.SkyModel]) -> None:
    """The core and both faint Gaussians, from draws of the prior."""
    text, chi2, reference = J1033[-1]
    found = biro.maximise(biro.Likelihood(vlba, model(text + FIXED_NOISE)), seed=1)
    assert found.converged
    check_maximum(found, reference)
    assert found.chi2.sum() == pytest.approx(chi2, rel=1e-5)
    assert found.n_gradient < 3000


def difmap_model(phi: float = 7.03633, ratio: float = 0.0916782) -> str:
    """The peer's model: flux Jy, radius mas, theta deg, major FWHM mas, axial ratio, phi deg."""
    components = [
        (0.521960, 0.00139355, -151.625, 0.135110, ratio, phi),
        (0.0217360, 1.06140, 170.510, 0.463192, 1.0, 0.0),
        (0.0176248, 3.56213, 166.636, 1.99219, 1.0, 0.0),
    ]
    text = FIXED_NOISE
    for i, (flux, radius, theta, major, axis_ratio, pa) in enumerate(components):
        east, north = (radius * f(math.radians(theta)) for f in (math.sin, math.cos))
        text += f"""
[[source]]
name = "c{i}"
type = "gaussian"
east = "{east!r} mas"
north = "{north!r} mas"
I = "{flux} Jy"
emaj = "{major} mas"
ratio = {axis_ratio}
pa = "{pa} deg"
"""
    return text


@pytest.mark.parametrize(
    ("text", "convention", "expected"),
    [
        (
            FIXED_NOISE + '[[source]]\nname="no"\ntype="point"\neast="0 mas"\nnorth="0 mas"\nI="0 Jy"\n',
            "casa",
            154.35,
        ),
        (difmap_model(), "casa", 1.5210),
        (difmap_model(phi=-7.03633), "casa", 1.5412),
        (difmap_model(phi=97.03633), "casa", 1.9125),
        (difmap_model(), "fourier", 1.8755),
        (difmap_model(ratio=1.0), "casa", 1.9187),
    ],
    ids=["no source", "as is", "phi reversed", "phi + 90 deg", "sign reversed", "no ellipse"],
)
def test_j1033_with_the_model_of_a_peer(
    text: str,
    convention: str,
    expected: float,
    measurement_set: Callable[[str], Path],
    model: Callable[[str], biro.SkyModel],
) -> None:
    path = measurement_set("vlba_j1033p6051_ku")
    obs = biro.read_ms(path, stokes="pseudoI", convention=convention)
    likelihood = biro.Likelihood(obs, model(text))
    # The reference is rounded to the last digit given.
    digit = 10.0 ** -len(str(expected).split(".")[1])
    assert likelihood.chi2([]).sum() / (2 * likelihood.n_vis.sum()) == pytest.approx(
        expected, abs=0.6 * digit
    )


@pytest.mark.slow
def test_j1033_evidence_has_the_order_of_the_table(
    measurement_set: Callable[[str], Path], model: Callable[[str], biro.SkyModel]
) -> None:
    """On two-minute averages, which keep the answer (differences of thousands) at a tenth of the work."""
    obs = biro.read_ms(measurement_set("vlba_j1033p6051_ku"), stokes="pseudoI", average_time="2 min")
    noise = '\n[noise]\nper = "all"\nfactor = { prior = "log-uniform", low = 0.1, high = 100 }\n'
    evidence = []
    for text, _, _ in J1033:
        likelihood = biro.Likelihood(obs, model(text + noise))
        start = [(START | {"noise.factor": 1.2})[name] for name in likelihood.parameter_names]
        evidence.append(biro.maximise(likelihood, seed=1, starts=[start]).log_evidence)
    # Chi2 falls by thousands from model to model at a noise of 1.2; each step is worth at least a hundred,
    # next to which it does not matter that these evidences are Laplace's.
    assert np.all(np.diff(evidence) > 100.0), evidence


# --- WSRT 3C343.1 and 3C343, and the EHT's M87


def test_wsrt_fluxes(measurement_set: Callable[[str], Path], model: Callable[[str], biro.SkyModel]) -> None:
    obs = biro.read_ms(measurement_set("wsrt_3c343.1"), stokes="I")
    likelihood = biro.Likelihood(obs, model(real.WSRT_3C343))
    posterior = biro.sample(likelihood, "emcee", seed=1, progress=False)
    check(posterior, {"3C343_1.I": (2.923, 0.005), "3C343.I": (0.816, 0.005)})


def test_eht_set_with_infinite_weights(measurement_set: Callable[[str], Path]) -> None:
    obs = biro.read_ms(measurement_set("SR1_M87_2017_100_lo_hops_netcal_StokesI"))
    (part,) = obs.partitions
    assert part.n_row == 2367
    assert np.all(part.uvw[:, 2] == 0.0)
    # Cross hands are zero with infinite or no weight: none of them counts, all are reported. RR and LL are
    # copies of one another.
    assert part.corr_type == ("I",)
    assert np.isfinite(part.weight).all()
    left_out = sum(count for cause, count in obs.counts.items() if cause not in ("usable", "total"))
    assert obs.counts["usable"] + left_out == obs.counts["total"]
    assert obs.counts["usable"] == 2 * np.count_nonzero(part.weight)
    assert obs.counts["non-finite weight"] == 3628
    text = str(obs.summary())
    assert "4734 of 9468 usable (50.0 %)" in text
    assert "non-finite weight         3628   38.3 %" in text
