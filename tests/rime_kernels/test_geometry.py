"""Antenna coordinates, closure, choice of form, row tables."""

import numpy as np
import pytest

from rime_kernels import Rows, solve_antennas, stokes_to_corr
from rime_kernels.geometry import choose_form, closure_turns, row_table


def test_antennas_reproduce_ragged_swapped_rows(problem) -> None:
    rows = problem(n_antenna=7, n_time=4)
    geometry = solve_antennas(rows)
    found = geometry.uvw[rows.time_index, rows.antenna1] - geometry.uvw[rows.time_index, rows.antenna2]
    np.testing.assert_allclose(found, rows.uvw, atol=1e-10)  # 1e-13 of 1 km, with some room
    assert geometry.closure.max() < 1e-10


def test_disconnected_groups_each_have_a_reference() -> None:
    uvw = np.array([[100.0, 0.0, 1.0], [0.0, 50.0, 2.0], [30.0, 20.0, -4.0]])
    rows = Rows(uvw, [0, 3, 3], [1, 2, 4], [0, 0, 0], [1e9], stokes_to_corr("I"), 6, 1)
    geometry = solve_antennas(rows)
    assert geometry.closure.max() < 1e-12
    assert np.abs(geometry.uvw[0, [0, 1]].sum(axis=0)).max() < 1e-12
    assert np.abs(geometry.uvw[0, [2, 3, 4]].sum(axis=0)).max() < 1e-12
    assert not geometry.uvw[0, 5].any()


def test_closure_is_the_least_squares_residual() -> None:
    # A triangle that misses closing by 3 m: each side is off by 1 m.
    uvw = np.array([[10.0, 0.0, 0.0], [5.0, 0.0, 0.0], [18.0, 0.0, 0.0]])
    rows = Rows(uvw, [0, 1, 0], [1, 2, 2], [0, 0, 0], [1e9], stokes_to_corr("I"), 3, 1)
    np.testing.assert_allclose(solve_antennas(rows).closure, [1.0, 0.0, 0.0], atol=1e-12)


def test_autocorrelation_with_a_baseline_does_not_close() -> None:
    rows = Rows([[0.5, 0.0, 0.0]], [2], [2], [0], [1e9], stokes_to_corr("I"), 3, 1)
    assert solve_antennas(rows).closure[0] == 0.5


def test_closure_turns_weigh_w_by_n_minus_1() -> None:
    nu = 299792458.0  # one turn per metre
    assert closure_turns(np.array([1.0, 2.0, 0.0]), nu, 0.01) == pytest.approx(0.03)
    # l = m = 0.01: n - 1 = -1e-4 to 5e-5 of itself
    assert closure_turns(np.array([0.0, 0.0, 1.0]), nu, 0.01) == pytest.approx(1e-4, rel=1e-4)


@pytest.mark.parametrize(
    ("closure", "precision", "form"),
    [
        (1e-8, "double", "factored"),
        (1e-6, "double", "row"),
        (1e-6, "single", "factored"),
        (1e-2, "single", "row"),
    ],
)
def test_form_follows_closure_and_precision(problem, closure: float, precision, form: str) -> None:
    geometry = solve_antennas(problem())
    object.__setattr__(geometry, "closure", np.array([closure, 0.0, 0.0]))
    # 1 cm of extent at 1 turn per metre
    chosen, reason = choose_form(geometry, 299792458.0, 0.01, precision)
    assert chosen == form
    assert reason.startswith(f"{form} form")
    assert f"{closure * 0.01:.1e}" in reason


def test_row_table_groups_by_time_and_keeps_the_order() -> None:
    rows = Rows(np.zeros((5, 3)), [0] * 5, [1] * 5, [2, 0, 2, 0, 2], [1e9], stokes_to_corr("I"), 2, 4)
    table = row_table(rows.time_index, rows.n_time)
    assert table.order.tolist() == [1, 3, 0, 2, 4]
    assert table.slot_start.tolist() == [0, 2, 2, 5, 5]
