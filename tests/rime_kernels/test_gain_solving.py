"""Parts of the gain solver: triangular factors and derivatives against NumPy, and the choice of baselines."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from rime_kernels.gain_solving import IntervalSums, Reason, SolveOptions, Unknowns, graph, solve_sums
from rime_kernels.gain_solving.edges import LEAST_PIVOT
from rime_kernels.gain_solving.unknowns import MODES, Mode
from rime_kernels.gains import envelope

# What only compiled functions call, for Python.
factorise = njit(lambda rows, matrix: envelope.factorise(rows, 0, len(rows.row), matrix, LEAST_PIVOT))
solve = njit(lambda rows, lower, vector: envelope.solve(rows, 0, len(rows.row), lower, vector))
invert = njit(lambda rows, lower, *work: envelope.invert(rows, 0, len(rows.row), lower, *work))
choose_edges = njit(lambda *given: graph.choose_edges(*given))
SOLVED, NO_DATA, FEW_BASELINES, UNCONNECTED = 0, 1, 2, 3


def rows_of(begin: list[int]) -> envelope.Rows:
    """Rows that are kept from these columns to the diagonal."""
    size = np.arange(len(begin)) - begin + 1
    return envelope.Rows(np.array(begin), np.concatenate([[0], np.cumsum(size)[:-1]]) - begin)


def positive_definite(begin: list[int]) -> np.ndarray:
    """A matrix with elements where rows are kept, and on the other side of the diagonal."""
    n = len(begin)
    root = np.random.default_rng(n).normal(size=(n, n))
    found: np.ndarray = root @ root.T * kept(begin) + n * np.eye(n)
    found = np.tril(found)
    return found + np.tril(found, -1).T


def kept(begin: list[int]) -> np.ndarray:
    """Where a matrix is kept."""
    n = len(begin)
    return np.tril(np.arange(n) >= np.array(begin)[:, None])


@pytest.mark.parametrize("begin", [[0], [0, 0], [0] * 9, [0, 0, 0, 3, 3, 3], [0, 1, 1, 0, 2]])
def test_triangular_factors_are_those_of_numpy(begin: list[int]) -> None:
    whole, where, n = positive_definite(begin), kept(begin), len(begin)
    rows, x = rows_of(begin), np.arange(1.0, n + 1.0)
    matrix = whole[where]  # row after row
    assert factorise(rows, matrix) == -1
    # Rounding of sums of nine.
    np.testing.assert_allclose(matrix, np.linalg.cholesky(whole)[where], rtol=1e-12, atol=1e-14)
    solve(rows, matrix, x)
    np.testing.assert_allclose(x, np.linalg.solve(whole, np.arange(1.0, n + 1.0)), rtol=1e-11)
    invert(rows, matrix, np.empty(n), np.empty(n))
    np.testing.assert_allclose(matrix, np.linalg.inv(whole)[where], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(
    ("least", "expected"), [(-1.0, 1), (0.0, 1), (0.9e-11, 1), (1.2e-11, -1), (np.nan, 1)]
)
def test_a_pivot_below_rounding_counts_as_0(least: float, expected: int) -> None:
    """[[4, 2], [2, 1 + x]] has the second pivot x, which counts where it is above 1e-11 (1 + x)."""
    assert factorise(rows_of([0, 0]), np.array([4.0, 2.0, 1.0 + least])) == expected
    assert factorise(rows_of([0]), np.array([least])) == (-1 if least > 0.0 else 0)


def chosen(
    pairs: list[tuple[int, int]], n_node: int, *, min_baselines: int = 1, n_feed: int = 1,
    order: list[int] | None = None, without: tuple[int, ...] = (),
) -> tuple[list[int], list[int], list[int], int]:  # fmt: skip
    """Edges, reasons, nodes that are fixed, and the anchor; `without` has the pairs without data."""
    first, second = np.array(pairs).T
    model = np.array([0.0 if i in without else 2.0 for i in range(len(pairs))])
    antennas = np.array(order or range(n_node // n_feed))
    edges, reason, fixed, anchor = choose_edges(first, second, model, antennas, n_feed, min_baselines)
    return edges.tolist(), reason.tolist(), np.flatnonzero(fixed).tolist(), int(anchor)


TRIANGLE = [(0, 1), (1, 2), (0, 2)]


def test_all_baselines_of_a_connected_array_are_used() -> None:
    assert chosen(TRIANGLE, 3, min_baselines=2) == ([0, 1, 2], [SOLVED] * 3, [0], 0)
    assert chosen(TRIANGLE, 3, order=[2, 0, 1]) == ([0, 1, 2], [SOLVED] * 3, [2], 2)
    # Chains tie, whatever the order of their links.
    chain = [(3, 4), (1, 2), (2, 3), (1, 0)]
    assert chosen(chain, 5) == ([0, 1, 2, 3], [SOLVED] * 5, [0], 0)


def test_antennas_with_few_baselines_are_left_out_again_and_again() -> None:
    tail = [*TRIANGLE, (2, 3), (3, 4)]  # without 4, antenna 3 has one baseline
    expected = ([0, 1, 2], [SOLVED] * 3 + [FEW_BASELINES] * 2, [0], 0)
    assert chosen(tail, 5, min_baselines=2) == expected
    assert chosen(tail, 5, min_baselines=2, order=[4, 3, 0, 1, 2]) == expected
    turned = [(q, p) for p, q in tail]
    assert chosen(turned, 5, min_baselines=2) == expected
    assert chosen([(0, 1), (1, 2)], 3, min_baselines=2) == ([], [FEW_BASELINES] * 3, [], -1)


def test_antennas_without_data_are_named_so() -> None:
    # The baseline (2, 3) has no data; antenna 3 has no other.
    found = chosen([*TRIANGLE, (2, 3)], 4, without=(3,))
    assert found == ([0, 1, 2], [SOLVED] * 3 + [NO_DATA], [0], 0)
    assert chosen([(0, 1)], 2, without=(0,)) == ([], [NO_DATA] * 2, [], -1)


def test_what_no_chain_ties_to_the_reference_is_left_out() -> None:
    two = [*TRIANGLE, (3, 4), (4, 5), (3, 5)]
    assert chosen(two, 6) == ([0, 1, 2], [SOLVED] * 3 + [UNCONNECTED] * 3, [0], 0)
    assert chosen(two, 6, order=[4, 0, 1, 2, 3, 5]) == (
        [3, 4, 5],
        [UNCONNECTED] * 3 + [SOLVED] * 3,
        [4],
        4,
    )


def test_what_has_no_data_or_is_left_out_ties_nothing() -> None:
    two = [*TRIANGLE, (3, 4), (4, 5), (3, 5), (2, 3)]
    assert chosen(two, 6, without=(6,)) == ([0, 1, 2], [SOLVED] * 3 + [UNCONNECTED] * 3, [0], 0)
    # Two arrays of four antennas, tied by a ninth with two baselines where three are asked for.
    four = [(p, q) for p in range(4) for q in range(p)]
    arrays = [*four, *((p + 4, q + 4) for p, q in four)]
    reason = [SOLVED] * 4 + [UNCONNECTED] * 4 + [FEW_BASELINES]
    assert chosen([*arrays, (3, 8), (8, 4)], 9, min_baselines=3) == (list(range(6)), reason, [0], 0)


def test_feeds_that_cross_hands_tie_share_one_fixed_phase() -> None:
    """Node 2 a + f is feed f of antenna a."""
    parallel = [(2 * p + f, 2 * q + f) for p, q in TRIANGLE for f in (0, 1)]
    everything = list(range(6))
    assert chosen(parallel, 6, n_feed=2) == (everything, [SOLVED] * 6, [0, 1], 0)
    tied = [*parallel, (0, 3)]
    assert chosen(tied, 6, n_feed=2) == ([*everything, 6], [SOLVED] * 6, [0], 0)
    assert chosen(tied, 6, n_feed=2, order=[1, 2, 0]) == ([*everything, 6], [SOLVED] * 6, [2], 2)
    # Cross hands are no baselines of their own: feed 1 of antenna 2 has none but these.
    cross = [(0, 2), (0, 4), (2, 4), (1, 3), (0, 5), (2, 5)]
    reason = [SOLVED] * 5 + [FEW_BASELINES]
    assert chosen(cross, 6, n_feed=2) == ([0, 1, 2, 3], reason, [0, 1], 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cross_hands", [False, True])
@pytest.mark.parametrize("signal", [0.7, 30.0])
def test_slopes_of_chi2_vanish_at_a_solution(mode: Mode, cross_hands: bool, signal: float) -> None:
    """The minimum of random sums of 5 antennas, by slopes worked out here; noise has the variance 1."""
    unknowns = Unknowns(5, ("XX", "XY", "YX", "YY"), "separate", cross_hands)
    rng = np.random.default_rng(3)
    shape = 20, 1, unknowns.n_group, unknowns.n_edge
    first, second = unknowns.nodes
    true = np.exp(rng.normal(size=(*shape[:3], unknowns.n_node)) @ np.eye(unknowns.n_node) * (0.1 + 1j))
    if mode != "complex":
        true = true / np.abs(true) if mode == "phase" else np.abs(true)
    model = np.full(shape, signal**2)
    noise = signal * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    cross = model * true[..., first] * true[..., second].conj() + noise
    sums = IntervalSums(cross, model, np.abs(cross) ** 2 / model, np.ones(shape, np.int64))
    found = solve_sums(sums, unknowns, SolveOptions(mode), np.arange(5))
    r = found.gain[..., first].conj() * found.gain[..., second] * cross
    m = np.abs(found.gain[..., first] * found.gain[..., second]) ** 2 * model
    at_first, at_second = np.eye(unknowns.n_node)[first], np.eye(unknowns.n_node)[second]
    by_log, by_phase = (m - r.real) @ (at_first + at_second), r.imag @ (at_second - at_first)
    # An amplitude whose best value would be below 0 goes to 0, where its logarithm has no minimum.
    solved = (found.reason == Reason.SOLVED) & (found.log_amplitude_error < 1.0)
    # A phase of the reference is held, but changes no more than the others together.
    if mode != "phase":
        # A slope times the error of its coordinate is the way to the minimum in errors; the search promises
        # steps that gain 1e-13 for each coordinate, before the last of them is made.
        np.testing.assert_allclose((by_log * found.log_amplitude_error)[solved], 0.0, atol=1e-5)
    if mode != "amplitude":
        np.testing.assert_allclose((by_phase * found.phase_error)[solved], 0.0, atol=1e-5)
    chi2 = (sums.data - 2.0 * r.real + m).sum(axis=-1)
    # Sums of 40 terms.
    is_solved = solved.all(axis=-1)
    np.testing.assert_allclose(found.chi2_after[is_solved], chi2[is_solved], rtol=1e-12, atol=1e-9)
    assert solved.mean() > (0.5 if signal < 1.0 else 0.99)
    assert not (found.reason == Reason.NOT_CONVERGED).any()
