"""Beams on a grid: cubic splines against polynomials, scipy's splines and a smooth beam; refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import RectBivariateSpline

from biro.models.components.beam_cube import BeamCube
from biro.models.errors import ModelError

X, Y = np.linspace(-0.02, 0.03, 17), np.linspace(-0.01, 0.025, 15)
FREQ = np.array([1.0e9, 1.1e9, 1.25e9, 1.3e9, 1.5e9])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260)


def cube_of(function, freq=FREQ, x=X, y=Y) -> BeamCube:
    at_y, at_x = np.meshgrid(y, x, indexing="ij")
    jones = np.zeros((len(freq), y.size, x.size, 2, 2), complex)
    for i, nu in enumerate(freq):
        for p in range(2):
            for q in range(2):
                jones[i, ..., p, q] = function(at_x, at_y, nu, 2 * p + q)
    return BeamCube(x, y, freq, jones)


def polynomial(x, y, nu, element):
    """Of third order in x, y and frequency: what a cubic spline reproduces."""
    u, v, f = x / 0.02, y / 0.02, nu / 1.2e9 - 1.0
    real = 1.0 + element * u - 0.5 * u**3 + 0.3 * u * u * v - 0.2 * v**3 * u**2 + f * v - f**3
    return real + 1j * (0.1 * element + v**2 - 0.4 * u**3 * v**3 + f**2 * u)


def points(rng, n=40):
    return rng.uniform(X[0], X[-1], n), rng.uniform(Y[0], Y[-1], n)


def test_polynomials_of_third_order_are_exact(rng) -> None:
    cube = cube_of(polynomial)
    x, y = points(rng)
    for nu in (1.0e9, 1.07e9, 1.29e9, 1.5e9):
        expected = np.stack([polynomial(x, y, nu, k) for k in range(4)], -1).reshape(-1, 2, 2)
        # Rounding of the solution for coefficients, whose condition number is below 100.
        np.testing.assert_allclose(cube(x, y, nu), expected, atol=1e-11, rtol=0)


def test_a_spline_of_another_library(rng) -> None:
    """scipy's interpolating splines in two dimensions have the same conditions at the rim."""
    values = rng.normal(size=(1, Y.size, X.size, 2, 2)) + 1j * rng.normal(size=(1, Y.size, X.size, 2, 2))
    cube = BeamCube(X, Y, FREQ[:1], values)
    x, y = points(rng)
    found = cube(x, y, FREQ[0])
    for p in range(2):
        for q in range(2):
            real, imag = (
                RectBivariateSpline(Y, X, part[0, ..., p, q], s=0) for part in (values.real, values.imag)
            )
            # Both solve the same linear equations for random values of order 1.
            np.testing.assert_allclose(found[:, p, q], real.ev(y, x) + 1j * imag.ev(y, x), atol=1e-11)


def test_frequencies_beyond_the_planes_stretch_directions() -> None:
    """A beam that depends on x nu alone is followed beyond its planes as far as its grid reaches."""

    def beam(x, y, nu, element):
        return np.exp(-(x**2 + y**2) * (nu / 1e9) ** 2 / 0.02**2) * (1 + element)

    cube = cube_of(beam, x=np.linspace(-0.03, 0.03, 61), y=np.linspace(-0.03, 0.03, 61))
    for nu in (0.8e9, 1.8e9):
        expected = beam(0.008, -0.006, nu, 0)
        # The spline's own error, which the cube states.
        assert abs(cube(0.008, -0.006, nu)[0, 0] - expected) < 10 * cube.direction_error
        # The coefficients that kernels read are those of a spline through the same beam, once more.
        again = BeamCube(cube.x, cube.y, np.array([nu]), np.zeros((1, 61, 61, 2, 2)))
        object.__setattr__(again, "coefficients", cube.at(nu))
        assert abs(again(0.008, -0.006, nu)[0, 0] - expected) < 20 * cube.direction_error


def test_few_planes_are_joined_by_straight_lines() -> None:
    cube = cube_of(lambda x, y, nu, element: np.full_like(x, (nu / 1e9) ** 2), freq=np.array([1e9, 2e9]))
    assert cube(0.0, 0.0, 1.5e9)[0, 0] == pytest.approx(2.5)
    single = cube_of(polynomial, freq=np.array([1.2e9]))
    np.testing.assert_allclose(single(0.0, 0.0, 1.2e9)[0, 1], polynomial(0.0, 0.0, 1.2e9, 1), atol=1e-12)


def test_outside_the_grid_the_rim_holds() -> None:
    cube = cube_of(polynomial)
    np.testing.assert_allclose(cube(X[-1] + 0.01, Y[0] - 0.3, 1.1e9), cube(X[-1], Y[0], 1.1e9))


def test_the_stated_error_is_that_of_a_smooth_beam(rng) -> None:
    def beam(x, y, nu, element):
        return np.exp(-(x**2 + y**2) / 0.008**2) * np.exp(1j * 40 * x)

    cube = cube_of(beam)
    x, y = points(rng, 4000)
    largest = np.abs(cube(x, y, 1e9)[:, 0, 0] - beam(x, y, 1e9, 0)).max()
    # An estimate: the right order, and not many times too small.
    assert 0.2 * largest < cube.direction_error < 20 * largest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X[:-1]}, "shape"),
        ({"x": X[::-1]}, "ascend in even steps"),
        ({"y": Y + 0.001 * (np.arange(Y.size) == 3)}, "along y"),
        ({"freq": FREQ[::-1]}, "frequencies"),
        ({"freq": FREQ - 1e9}, "frequencies"),
    ],
)
def test_refusals(change, message) -> None:
    cube = cube_of(polynomial)
    with pytest.raises(ModelError, match=message):
        BeamCube(**({"x": X, "y": Y, "freq": FREQ, "jones": cube.jones} | change))


def test_a_value_that_is_not_finite_is_named() -> None:
    jones = cube_of(polynomial).jones.copy()
    jones[2, 5, 7, 0, 1] = np.nan
    with pytest.raises(ModelError, match=r"the first at 1\.25e\+09 Hz in row 5 and column 7"):
        BeamCube(X, Y, FREQ, jones)


def test_few_nodes_are_refused() -> None:
    with pytest.raises(ModelError, match="4 to 4096 nodes, got 3"):
        BeamCube(X[:3], Y, FREQ[:1], np.ones((1, Y.size, 3, 2, 2)))
