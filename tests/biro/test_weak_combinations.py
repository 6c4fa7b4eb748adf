"""Combinations of parameters that data hardly determine: their errors, and when they are named."""

from __future__ import annotations

import numpy as np
import pytest

import biro
from biro.display.formatting import plain
from biro.inference.maximum.differences import with_weak_modes
from biro.likelihood.degeneracies import nearly_open_position
from biro.models import Feeds, Leakage, Noise, PointSource, SkyModel, Uniform
from biro.simulation.simulator import Channels, Track, simulate
from biro.simulation.telescopes import telescope
from tests.biro.test_antenna_terms import eht, observation
from tests.biro.test_fitted_gains import exercise, true_theta

__all__ = ["eht", "observation"]  # fixtures
Array = np.ndarray


@pytest.mark.parametrize("snr", [1e3, 1e6])
@pytest.mark.parametrize("weakest", [1e-3, 1e-7, 3e-9, 0.0])
def test_a_weak_curvature_is_measured_along_its_combination(weakest: float, snr: float) -> None:
    """A quadratic log-posterior whose curvature is known, with errors of differences of 1e-7."""
    rng, n = np.random.default_rng(1), 6
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    exact = turn @ np.diag([*np.linspace(0.5, 2.0, n - 1), weakest]) @ turn.T * snr**2
    error = 1e-7 * snr**2 * rng.normal(size=(n, n))
    best, wide = rng.normal(size=n), np.full(n, 100.0)
    found = with_weak_modes(
        lambda theta: -(theta - best) @ exact, best, -wide, wide, exact + error + error.T, "double"
    )
    values = np.linalg.eigvalsh(found / snr**2)
    # Roundings of gradients: 1e-16 of parameters that are 1e6 sigma long; and errors of other curvatures.
    assert values[0] == pytest.approx(weakest, rel=1e-2, abs=3e-10)


def test_a_bent_valley_has_no_curvature_along_it() -> None:
    """Curvature of ln p = -(S (x y - 1))^2 / 2 at x = y = 1, for a flux and an amplitude at S/N = S."""
    s = 30.0

    def gradient(theta: Array) -> Array:
        return -(s**2) * (theta[:, :1] * theta[:, 1:] - 1.0) * theta[:, ::-1]

    at, low, high = np.ones(2), np.full(2, 0.01), np.full(2, 100.0)
    exact = s**2 * np.ones((2, 2))
    near = exact + 1e-7 * s**2 * np.array([[1.0, 0.0], [0.0, -0.5]])
    found = with_weak_modes(gradient, at, low, high, near, "double")
    assert np.linalg.eigvalsh(found / s**2)[0] == pytest.approx(0.0, abs=1e-14)  # roundings
    # A saddle stays one.
    saddle = np.diag([1.0, -0.1])
    np.testing.assert_array_equal(
        with_weak_modes(lambda theta: -theta @ saddle, 0 * at, -high, high, saddle, "double"), saddle
    )


def test_positions_beside_gains_have_the_errors_of_the_information(
    eht: dict[str, np.ndarray], observation: biro.Observation
) -> None:
    """Eht-imaging's exercise: gains leave the position, but for the change of u within a scan."""
    likelihood = biro.Likelihood(observation, exercise(eht, "auto"), backend="cpu", gains="solve")
    full = likelihood.full
    truth = true_theta(eht, full)
    known = dict(zip(full.parameter_names, truth, strict=True))
    start = np.array([[known[name] for name in likelihood.parameter_names]])
    found = biro.maximise(likelihood, seed=1, starts=start)
    information = full.fisher(truth)
    by = 1.0 / np.sqrt(np.diag(information))
    # Phases, the flux scale, and what differs between feeds are exactly open: 1e-11 as in `undetermined`.
    inverse = np.linalg.pinv(information * np.outer(by, by), rcond=1e-11, hermitian=True)
    expected = by * np.sqrt(np.diag(inverse))
    for name in ("g.east", "g.north", "p.east", "p.north"):
        sigma = found.error[found.names.index(name)]
        # The curvature of these data is not that of all data on average: 4000 numbers, 2 %; and the priors'.
        assert sigma == pytest.approx(expected[full.parameter_names.index(name)], rel=0.1)
    assert not any("position" in text for text in found.unidentified)
    assert any("flux scale" in text for text in found.unidentified)


def test_a_position_that_gains_leave_to_its_prior_is_named() -> None:
    """Two antennas' phases and a common place: data see drifts of 0.01 of it alone, with errors of 1."""
    drift = 0.01 * np.array([-1.0, 0.0, 1.0])
    rows = []
    for antenna in range(2):
        for step in drift:
            gain = np.eye(2)[antenna]
            rows += [[1.0 + step, 0.0, *gain], [0.0, 1.0 + step, *gain]]  # sources a and b are seen apart
    change = np.array(rows)
    names = ["a.east", "b.east", "gain.phase[A]", "gain.phase[B]"]
    information = change.T @ change
    # The common shift is known by its drift: 1 / sqrt(8 * 1e-4).
    sigma = 1.0 / np.sqrt(8e-4)
    for width, named in ((0.9 * sigma, ["a.east", "b.east"]), (1.1 * sigma, [])):
        assert nearly_open_position(information, np.full(4, width), names) == named
    assert nearly_open_position(information, np.full(4, 0.1), ["a.east", "b.east", "a.I", "b.I"]) == []


def test_leakages_of_flat_priors_at_a_high_signal_to_noise() -> None:
    """Seven alt-az antennas, a polarised point, 1e4 a visibility: 64 starts end at the noise, not above."""
    array = telescope("kat-7")
    flat = Uniform(-0.5, 0.5)
    fluxes = {"I": Uniform("0.1 Jy", "20 Jy"), **dict.fromkeys("QUV", Uniform("-5 Jy", "5 Jy"))}
    sky = SkyModel(
        [PointSource("a", east="0 arcsec", north="0 arcsec", **fluxes)],
        noise=Noise(factor=1.0), feeds=Feeds(rotation="present"), leakage=Leakage(d_r=flat, d_l=flat),
    )  # fmt: skip
    rng, truth = np.random.default_rng(1), {"a.I": 7.0, "a.Q": 0.5, "a.U": -0.4, "a.V": 0.02}
    for name in array.antenna_names:
        for part in ("d_r.real", "d_r.imag", "d_l.real", "d_l.imag"):
            truth[f"leakage.{part}[{name}]"] = 0.05 * rng.normal()
    data = simulate(
        array, sky, phase_centre="12h29m06s -20d00m00s", times=Track("2026-01-01", 21600.0, 1800.0),
        channels=Channels(1.4e9, 1e6), feeds="circular", noise=7e-4, seed=1, values=truth, backend="cpu",
    )  # fmt: skip
    found = biro.maximise(biro.Likelihood(data, sky, backend="cpu"), seed=1, starts=64)
    assert found.converged
    assert found.unidentified == []
    n_data = 2 * found.n_vis.sum()
    assert abs(found.chi2[0] - (n_data - len(found.names))) < 5.0 * np.sqrt(2.0 * n_data)
    pull = (found.best_fit - [truth[name] for name in found.names]) / found.error
    # The mean square of 32 pulls is 1 +- 0.25.
    assert 0.25 < np.mean(pull**2) < 2.0


def test_numbers_are_plain() -> None:
    assert [plain(x) for x in (217.3, 0.0134, 7.0, 1.04e-7)] == ["217", "0.013", "7.0", "1e-07"]
    assert [plain(x, sign="+") for x in (217.3, -98.2, 0.0)] == ["+217", "-98", "+0"]
