"""The scalar physics, each against its closed form or another library."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from rime_kernels import InputError, stokes_to_corr
from rime_kernels.physics import beam, brightness, envelope, phase

LONG, LAT = 0.31, -0.24  # a direction far from the centre


def slopes_of(function: Callable[..., object], *at: float, step: float = 3e-4) -> np.ndarray:
    """Derivatives of a function by each argument, from differences of fourth order: (n_argument, ...)."""

    def moved(k: int, by: float) -> np.ndarray:
        return np.asarray(function(*at[:k], at[k] + by * step * scale(k), *at[k + 1 :]))

    def scale(k: int) -> float:
        return abs(at[k]) or 1.0

    each = range(len(at))
    return np.array(
        [
            (8.0 * (moved(k, 1) - moved(k, -1)) - moved(k, 2) + moved(k, -2)) / (12.0 * step * scale(k))
            for k in each
        ]
    )


def close_to_differences(found: object, expected: object) -> None:
    # Differences of a step of 3e-4 are right to 1e-12, of the fifth derivative and of rounding.
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


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


@pytest.mark.parametrize("code", [beam.NO_BEAM, *beam.CODES.values()])
@pytest.mark.parametrize("x", [0.3, 0.9, 1.2, 5.2, 7.9, 8.1, 23.0])
def test_slopes_of_beams_are_those_of_differences(code: int, x: float) -> None:
    close_to_differences(beam.voltage_slope(code, x), slopes_of(lambda at: beam.voltage(code, at), x)[0])


@pytest.mark.parametrize("code", [beam.NO_BEAM, *beam.CODES.values()])
def test_beams_are_flat_at_the_centre(code: int) -> None:
    assert beam.voltage_slope(code, 0.0) == 0.0


def test_slopes_of_the_argument_of_a_beam() -> None:
    nu = 1.4  # GHz, so that all derivatives are of order 1
    scale, dl, dm = 0.7, 0.3, -0.4
    close_to_differences(
        beam.argument_slopes(scale, nu, dl, dm),
        slopes_of(lambda scale, dl, dm: beam.argument(scale, nu, dl, dm), scale, dl, dm),
    )
    assert beam.argument_slopes(scale, nu, 0.0, 0.0) == (0.0, 0.0, 0.0)
    assert beam.argument_slopes(scale, nu, 0.0, 2.0) == (nu * 2.0, 0.0, scale * nu)


@pytest.mark.parametrize("is_log", [True, False])
def test_slope_of_the_spectral_factor(is_log: bool) -> None:
    x, polynomial = 0.4, -0.7
    found = brightness.spectral_slope(brightness.spectral_factor(polynomial, x, is_log), x, is_log)
    close_to_differences(found, slopes_of(lambda p: brightness.spectral_factor(p, x, is_log), polynomial)[0])


# Slab depths whose phase has its series (0.09) and its closed form, and none.
@pytest.mark.parametrize("slab", [0.0, 1.5, 1.7, -30.0, 75.0])
def test_faraday_rotation_and_depolarisation(slab: float) -> None:
    def burn(wave2: float, rm: float, wave2_0: float, slab: float, sigma: float) -> np.ndarray:
        inside = np.sinc(slab * wave2 / np.pi) * np.exp(-2.0 * sigma**2 * wave2**2)
        value = inside * np.exp(2j * rm * (wave2 - wave2_0))
        return np.array([value.real, value.imag])

    at = 0.06, 12.0, 0.02, slab, 7.0
    # The series of sin(x)/x ends with a term below 3e-14.
    np.testing.assert_allclose(brightness.faraday(*at), burn(*at), rtol=0, atol=3e-14)
    expected = slopes_of(lambda *free: burn(at[0], *free), *at[1:])
    close_to_differences(np.reshape(brightness.faraday_slopes(*at), (4, 2)), expected)


@pytest.mark.parametrize("x", [0.05, 0.0999])
def test_slope_of_the_series_of_a_thin_slab(x: float) -> None:
    exact = np.longdouble(x)
    expected = float((np.cos(exact) - np.sin(exact) / exact) / exact)
    # The first term left out, 10 x^9/11!, is below 3e-16.
    assert brightness.faraday_slopes(1.0, 0.0, 0.0, x, 0.0)[4] == pytest.approx(expected, abs=1e-15)


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


def test_correlations_between_circular_and_linear_feeds() -> None:
    # R = (X + iY)/sqrt(2), L = (X - iY)/sqrt(2): each is a product with the coherency of linear feeds.
    i, q, u, v = stokes = np.array([1.0, 0.3, -0.2, 0.1])
    coherency = np.array([[i + q, u + 1j * v], [u - 1j * v, i - q]])
    feed = {"X": [1, 0], "Y": [0, 1], "R": [np.sqrt(0.5), 1j * np.sqrt(0.5)]}
    feed["L"] = np.conj(feed["R"])
    for names in (["RX", "RY", "LX", "LY"], ["XR", "XL", "YR", "YL"]):
        expected = [np.asarray(feed[p]) @ coherency @ np.conj(feed[r]) for p, r in names]
        np.testing.assert_allclose(stokes_to_corr(names) @ stokes, expected, rtol=0, atol=1e-15)


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


def gaussian_axes(emaj: float, emin: float, pa: float, l: float, m: float, frame: str) -> np.ndarray:
    """`projections` as its docstring has them, by products with unit vectors of (u, v, w)."""
    n = np.sqrt(1.0 - l * l - m * m)
    u, v, w = np.eye(3)
    if frame == "tangent":
        u, v = u - w * l / n, v - w * m / n
    a, b = u * np.sin(pa) + v * np.cos(pa), u * np.cos(pa) - v * np.sin(pa)
    return np.pi / (2.0 * np.sqrt(np.log(2.0)) * phase.SPEED_OF_LIGHT) * np.array([emaj * a, emin * b])


@pytest.mark.parametrize("frame", ["tangent", "uv"])
def test_axes_of_a_gaussian_far_from_the_centre(frame: str) -> None:
    shape, direction = np.array([3.0, 2.0, 0.7]), phase.directions(np.array([LONG, LAT]))
    expected = gaussian_axes(*shape, LONG, LAT, frame)
    # Rounding: 1e-15 of the longest axis.
    np.testing.assert_allclose(envelope.projections(shape, direction, frame), expected, rtol=0, atol=3e-23)
    if frame == "tangent":
        n = 1.0 + direction[2]
        for axis, first, second, row in (
            (3.0, np.sin(0.7), np.cos(0.7), 0),
            (2.0, np.cos(0.7), -np.sin(0.7), 1),
        ):
            found = envelope.projection(axis, first, second, LONG / n, LAT / n)
            np.testing.assert_allclose(found, expected[row], rtol=0, atol=3e-23)


@pytest.mark.parametrize("frame", ["tangent", "uv"])
def test_derivatives_of_the_axes_of_a_gaussian(frame: str) -> None:
    weight = np.array([[1.3, -0.4, 0.9], [0.2, 0.6, -1.1]]) * phase.SPEED_OF_LIGHT
    at = 3.0, 2.0, 0.7, LONG, LAT
    expected = slopes_of(lambda *free: np.sum(weight * gaussian_axes(*free, frame)), *at)
    shape, direction = np.array(at[:3]), phase.directions(np.array(at[3:]))
    for axes in (None, envelope.unit_axes(shape, direction, frame)):
        found = envelope.pull_projections(shape, direction, frame, weight, axes)
        close_to_differences(np.concatenate(found), expected)


def test_no_gaussians_have_no_axes() -> None:
    shape, direction = np.zeros((4, 0, 3)), np.zeros((4, 0, 3))
    assert envelope.projections(shape, direction, "uv").shape == (4, 0, 2, 3)
    pulled = envelope.pull_projections(shape, direction, "uv", np.zeros((4, 0, 2, 3)))
    assert [each.shape for each in pulled] == [(4, 0, 3), (4, 0, 2)]


def test_the_exponent_adds_both_axes() -> None:
    assert envelope.exponent(2.0, 3.0, 0.5) == -(4.0 + 9.0) * 0.25


def test_phase_of_a_direction_far_from_the_centre() -> None:
    n_minus_1 = np.sqrt(1.0 - LONG**2 - LAT**2) - 1.0
    assert phase.n_minus_1(LONG, LAT) == pytest.approx(n_minus_1, rel=1e-14)
    np.testing.assert_allclose(phase.directions(np.array([LONG, LAT])), [LONG, LAT, n_minus_1], rtol=1e-14)
    assert phase.n_minus_1(0.6, 0.8) == pytest.approx(-1.0, abs=1e-7)
    expected = 7.0 * LONG - 5.0 * LAT + 3.0 * n_minus_1
    assert phase.turns(7.0, -5.0, 3.0, LONG, LAT, n_minus_1) == pytest.approx(expected, rel=1e-14)


def test_derivatives_of_a_direction() -> None:
    weight = np.array([1.3, -0.4, 0.9])
    expected = slopes_of(lambda l, m: weight @ [l, m, np.sqrt(1.0 - l * l - m * m)], LONG, LAT)
    found = phase.pull_directions(phase.directions(np.array([LONG, LAT])), weight)
    close_to_differences(found, expected)
