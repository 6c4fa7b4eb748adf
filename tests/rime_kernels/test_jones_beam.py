"""Beams of 2x2 Jones matrices: the explicit sums against closed forms, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, JonesBeam, Rime, Rows

# E of the polynomial beam: for each element the factors of 1, x/h, y/h, x^3/h^3 y/h, x^2 y^2/h^4.
TERMS = np.array([[1.0, 0.2 + 0.1j, -0.1j, 0.02, 0.03], [0.1j, 0.05, 0.02j, -0.01j, 0.01],
                  [-0.2, 0.03j, 0.04, 0.02, -0.01], [0.8, -0.1, 0.1 + 0.1j, -0.02j, 0.02j]])  # fmt: skip
H = 0.02  # rad, the spacing


def monomials(x: Any, y: Any) -> np.ndarray:
    return np.stack([x**0 * y**0, x + 0 * y, y + 0 * x, x**3 * y, x**2 * y**2], axis=-1)


def polynomial_beam(x: Any, y: Any) -> np.ndarray:
    """E at x, y in steps of the grid, (..., 2, 2)."""
    e = monomials(x, y) @ TERMS.T
    return e.reshape(*e.shape[:-1], 2, 2)


def polynomial_coefficients(n: int) -> np.ndarray:
    """Coefficients of its spline: a cubic's are p - p''/6 at the nodes, along each axis."""
    k = np.arange(-1.0, n + 1.0) - (n - 1) / 2
    one, first, second, third = np.ones_like(k), k, k**2 - 1.0 / 3.0, k**3 - k
    pairs = [(one, one), (first, one), (one, first), (third, first), (second, second)]
    basis = np.stack([np.outer(of_y, of_x) for of_x, of_y in pairs], axis=-1)
    return (basis @ TERMS.T).reshape(n + 2, n + 2, 2, 2)


def polynomial(rows: Rows, n: int = 6, **changes: Any) -> JonesBeam:
    """One class of antennas with the polynomial beam at all channels, turned nowhere."""
    coefficient = np.broadcast_to(polynomial_coefficients(n), (1, rows.n_chan, n + 2, n + 2, 2, 2))
    first = -(n - 1) / 2 * H
    given = {
        "coefficient": coefficient, "grid": [first, H, first, H],
        "antenna_class": np.zeros(rows.n_antenna, int), "angle": np.zeros((1, rows.n_antenna)),
        "feed_angle": np.zeros((1, rows.n_antenna)), "scale": np.ones(1),
    }  # fmt: skip
    return JonesBeam(**{**given, **changes})


# ---- the explicit sums


def test_the_spline_of_a_polynomial_is_the_polynomial(problem: Any, reference: Any) -> None:
    beam, rng = polynomial(problem()), np.random.default_rng(1)
    for x, y in rng.uniform(-2.5, 2.5, (20, 2)):
        found = reference.spline_beam(beam, 0, 1, H * x, H * y)
        np.testing.assert_allclose(found, polynomial_beam(x, y), rtol=0, atol=1e-13)  # sums of 16 terms to 10
    edge = reference.spline_beam(beam, 0, 1, H * 9.0, H * -7.0)
    np.testing.assert_allclose(edge, polynomial_beam(2.5, -2.5), rtol=0, atol=1e-13)


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coefficient": np.ones((1, 3, 8, 8, 2))}, r"beam.coefficient must have shape \(class, chan"),
        ({"coefficient": np.full((1, 3, 8, 8, 2, 2), np.nan)}, "beam.coefficient must be finite"),
        ({"coefficient": np.ones((1, 3, 3, 8, 2, 2))}, "at least 2 x 2 nodes within its borders, got 1 x 6"),
        ({"grid": [0.0, -0.1, 0.0, 0.1]}, "the spacing of beam.grid must be positive"),
        ({"antenna_class": [0, 0, 1, 0, 0]}, "beam.antenna_class must lie in 0 .. 0, got 0 .. 1"),
        ({"angle": np.full((1, 5), np.inf)}, "beam.angle must be finite"),
        ({"pointing": np.zeros((1, 1, 4, 2))}, r"beam.pointing must have shape .* antenna = 5, 2\), got"),
    ],
)
def test_beams_of_wrong_shapes_are_refused(problem: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        polynomial(problem(), **change)


def test_beams_of_other_rows_and_batches_are_refused(problem: Any, sky: Any) -> None:
    rows = problem()
    rime = Rime(rows, backend="cpu", extent=0.04)
    for other, message in (
        (problem(n_antenna=4), "beam.antenna_class must have n_antenna = 5 antennas, got 4"),
        (problem(n_chan=4), "beam.coefficient must have n_chan = 3 channels, got 4"),
    ):
        with pytest.raises(InputError, match=message):
            rime.predict(sky(rows, beam=polynomial(other)))
    with pytest.raises(InputError, match=r"beam.angle must have 1 or n_time = 3 time slots, got 2"):
        rime.predict(sky(rows, beam=polynomial(rows, angle=np.zeros((2, 5)))))
    with pytest.raises(InputError, match=r"beam.scale must have 1 or batch = 2 entries, got 3"):
        sky(rows, beam=polynomial(rows, scale=np.ones(3)))
    with pytest.raises(InputError, match=r"beam.applies must have shape \(source = 4,\)"):
        sky(rows, beam=polynomial(rows, applies=np.ones(3, bool)))
    stokes = problem(corr=["I", "Q"])
    with pytest.raises(InputError, match="beams of Jones matrices need data in the correlations of feeds"):
        Rime(stokes, backend="cpu", extent=0.04).predict(sky(stokes, beam=polynomial(stokes)))


def test_copies_and_entries(problem: Any, sky: Any) -> None:
    rows = problem()
    pointing = np.random.default_rng(1).normal(size=(2, 1, rows.n_antenna, 2))
    sources = sky(rows, beam=polynomial(rows, pointing=pointing))
    copied, last = sources.copy().beam, sources.entries(1, 2).beam
    assert copied.pointing is not pointing
    np.testing.assert_array_equal(copied.pointing, pointing)
    np.testing.assert_array_equal(last.pointing, pointing[1:])
    assert last.scale.size == 1
    assert replace(copied, scale=np.ones(2)).entries(1, 2).scale.size == 1
