"""The scalar physics, each against its closed form or another library."""

import numpy as np
import pytest
from scipy import special

from rime_kernels import InputError, stokes_to_corr
from rime_kernels.physics import beam, brightness, envelope, phase


def test_n_minus_1_does_not_cancel() -> None:
    # n - 1 = -l^2/2 to first order; sqrt(1 - l^2) - 1 would be 0.
    assert phase.directions(np.array([1e-9, 0.0]))[2] == pytest.approx(-0.5e-18, rel=1e-12)


def test_n_minus_1_below_the_horizon_is_nan() -> None:
    assert np.isnan(phase.directions(np.array([0.8, 0.7]))[2])
    assert phase.directions(np.array([0.6, 0.8]))[2] == pytest.approx(-1.0, abs=1e-7)


def test_cos_sin_against_longer_numbers() -> None:
    pi = np.longdouble("3.14159265358979323846264338327950288")
    turns = np.concatenate([np.linspace(-1.0, 1.0, 4001), np.random.default_rng(1).normal(size=2000) * 1e6])
    angle = 2 * pi * (np.longdouble(turns) - np.rint(np.longdouble(turns)))
    expected = np.array([np.cos(angle), np.sin(angle)]).T
    # Rounding of the polynomial's last steps: less than 1.5 units of the last place of 1.
    for real, tolerance in ((np.float64, 3.4e-16), (np.float32, 1.8e-7)):
        cos_sin = phase.make_cos_sin(real is np.float32)
        found = np.array([cos_sin(x) for x in turns])
        assert np.abs(found - expected).max() < tolerance


@pytest.mark.parametrize("turns", [0.0, 0.25, -0.25, 1e6 + 0.5, -1e6 - 0.75, 1e9 + 0.25, -0.5, 0.5, 1.0])
def test_cos_sin_of_quarter_turns_are_exact(turns: float) -> None:
    quadrant = int(4 * turns) % 4
    assert phase.make_cos_sin(False)(turns) == [(1, 0), (0, 1), (-1, 0), (0, -1)][quadrant]


@pytest.mark.parametrize("turns", [np.nan, np.inf])
def test_cos_sin_keep_what_is_not_a_number(turns: float) -> None:
    assert not np.isfinite(phase.make_cos_sin(False)(turns)).any()


def test_cos3_is_the_wsrt_beam_of_the_text() -> None:
    # C = 65 per GHz at 1.4 GHz, r = 0.01: argument 0.91 (physics: section 6)
    x = beam.argument(65e-9, 1.4e9, 0.006, 0.008)
    assert x == pytest.approx(0.91, rel=1e-14)
    assert beam.cos3(x) == pytest.approx(np.cos(0.91) ** 3, rel=1e-14)


def test_cos3_is_held_where_it_is_a_tenth_and_keeps_nan() -> None:
    assert beam.cos3(5.0) == beam.cos3(1.0881) == pytest.approx(0.1, rel=1e-3)
    assert np.isnan(beam.cos3(np.nan))


def test_gaussian_power_is_half_at_half_the_width() -> None:
    assert beam.gaussian(0.5) ** 2 == pytest.approx(0.5, rel=1e-14)


def test_airy_matches_scipy() -> None:
    x = np.concatenate([[1e-300, 1e-8], np.linspace(0.01, 8.0, 400), np.linspace(8.0, 300.0, 800)])
    found = np.array([beam.airy(value) for value in x])
    # The series loses 1.4 digits to cancellation just below x = 8.
    np.testing.assert_allclose(found, 2.0 * special.j1(x) / x, atol=1e-14, rtol=0)


@pytest.mark.parametrize("code", beam.CODES.values())
def test_beams_are_one_at_the_centre(code: int) -> None:
    assert beam.voltage(code, 0.0) == 1.0


@pytest.mark.parametrize(
    ("ratio", "is_log", "expected"),
    [(2.0, True, 2.0 ** (-0.7 + 0.2 * np.log(2.0))), (1.5, False, 1.0 + (-0.7 + 0.2 * 0.5) * 0.5)],
)
def test_spectral_factor(ratio: float, is_log: bool, expected: float) -> None:
    x = brightness.spectral_variable(ratio, is_log)
    assert brightness.spectral_factor(-0.7 + 0.2 * x, x, is_log) == pytest.approx(expected, rel=1e-14)


def test_no_flux_is_zero_whatever_the_spectrum() -> None:
    assert brightness.brightness(0.0, np.inf) == 0.0
    assert brightness.brightness(0.0, np.nan) == 0.0
    assert brightness.brightness(-2.0, 3.0) == -6.0
    assert np.isnan(brightness.brightness(np.nan, 1.0))


def test_correlations_of_stokes(reference) -> None:
    names = ["I", "Q", "U", "V", "XX", "XY", "YX", "YY", "RR", "RL", "LR", "LL"]
    stokes = np.array([1.0, 0.3, -0.2, 0.1])
    np.testing.assert_array_equal(stokes_to_corr(names) @ stokes, reference.corr_of_stokes(names, stokes))


@pytest.mark.parametrize("names", [[], ["XX", "ZZ"], "linear"])
def test_unknown_correlations_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="correlations must be among I, Q, U, V, XX"):
        stokes_to_corr(names)


def test_envelope_falls_to_its_fourier_half_width(reference) -> None:
    # The transform of a Gaussian of FWHM W is exp(-pi^2/(4 ln 2) (W u)^2): 1/2 at u = 2 ln2 / (pi W).
    width, nu = 1e-4, 1.4e9
    u = 2.0 * np.log(2.0) / (np.pi * width) * phase.SPEED_OF_LIGHT / nu
    x, _ = envelope.projections(np.array([width, 0.0, np.pi / 2]), np.zeros(3), "uv")
    assert np.exp(envelope.exponent(x @ [u, 0.0, 0.0], 0.0, nu)) == pytest.approx(0.5, rel=1e-12)
    assert np.exp(envelope.exponent(x @ [0.0, u, 0.0], 0.0, nu)) == pytest.approx(1.0, rel=1e-12)
