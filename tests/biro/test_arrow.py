"""Matrices of chained blocks with a border against dense ones of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from biro.inference.block_arrowhead.factor import ArrowheadFactor
from biro.inference.block_arrowhead.layout import ArrowheadLayout, arrowhead_layout
from biro.inference.block_arrowhead.matrix import ArrowheadColumns, ArrowheadMatrix
from biro.models.bound.antenna_terms.reach import NONE, Reach

Array = NDArray[np.float64]
# Numbers of about 1, condition about 30: roundings, times the number of sums.
ROUNDINGS = 1e-12


def arrowhead_of(
    n_segment: int, m: int, n_border: int, *, chained: bool, batch: tuple[int, ...] = ()
) -> ArrowheadMatrix:
    """A positive definite arrow: its diagonal outweighs the rest of each row."""
    rng = np.random.default_rng(n_segment + m + n_border)
    diagonal = rng.normal(size=(*batch, n_segment, m, m))
    corner = rng.normal(size=(*batch, n_border, n_border))
    below = rng.normal(size=(*batch, n_segment - 1, m, m)) if chained else None
    heavy = 3.0 * (3 * m + n_border + n_segment * m)
    return ArrowheadMatrix(
        diagonal + np.swapaxes(diagonal, -1, -2) + heavy * np.eye(m),
        below,
        rng.normal(size=(*batch, n_segment, m, n_border)),
        corner + np.swapaxes(corner, -1, -2) + heavy * np.eye(n_border),
    )


def flat(parts: ArrowheadColumns) -> Array:
    return np.concatenate([parts.inner.reshape(-1, parts.inner.shape[-1]), parts.outer])


SHAPES = [
    pytest.param(6, 4, 3, True, id="chained"),
    pytest.param(6, 4, 3, False, id="independent"),
    pytest.param(5, 3, 0, True, id="without border"),
    pytest.param(1, 4, 2, True, id="one segment"),
    pytest.param(0, 0, 3, False, id="border alone"),
]


@pytest.mark.parametrize(("n_segment", "m", "n_border", "chained"), SHAPES)
def test_all_of_a_factor_is_that_of_the_dense_matrix(
    n_segment: int, m: int, n_border: int, chained: bool
) -> None:
    arrowhead = arrowhead_of(n_segment, m, n_border, chained=chained and n_segment > 1)
    dense, factor = arrowhead.dense(), ArrowheadFactor.of(arrowhead)
    lower, inverse = np.linalg.cholesky(dense), np.linalg.inv(dense)
    rng = np.random.default_rng(0)
    parts = ArrowheadColumns(rng.normal(size=(n_segment, m, 5)), rng.normal(size=(n_border, 5)))
    columns = flat(parts)
    close = {"rtol": 0, "atol": ROUNDINGS * np.abs(dense).max(initial=1.0)}
    np.testing.assert_allclose(flat(arrowhead.product(parts)), dense @ columns, **close)
    np.testing.assert_allclose(flat(factor.solve(parts)), inverse @ columns, **close)
    np.testing.assert_allclose(flat(factor.forward(parts)), np.linalg.solve(lower, columns), **close)
    np.testing.assert_allclose(flat(factor.draw(parts)), np.linalg.solve(lower.T, columns), **close)
    np.testing.assert_allclose(flat(factor.whiten(parts)), lower.T @ columns, **close)
    assert factor.log_det() == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-13)
    of_diagonal = flat(arrowhead.main_diagonal())[:, 0]
    np.testing.assert_array_equal(of_diagonal, np.diag(dense))
    by = ArrowheadColumns(parts.inner[..., :1], parts.outer[..., :1])
    np.testing.assert_allclose(
        arrowhead.scaled(by).dense(), dense * np.outer(columns[:, 0], columns[:, 0]), **close
    )
    # The inverse has numbers everywhere; those of the blocks are compared.
    found, there = factor.inverse().dense(), dense != 0.0
    np.testing.assert_allclose(found[there], inverse[there], **close)


@pytest.mark.parametrize("chained", [True, False])
def test_batches_are_worked_out_side_by_side(chained: bool) -> None:
    arrowhead = arrowhead_of(4, 3, 2, chained=chained, batch=(3,))
    factor = ArrowheadFactor.of(arrowhead)
    rng = np.random.default_rng(0)
    parts = ArrowheadColumns(rng.normal(size=(3, 4, 3, 2)), rng.normal(size=(3, 2, 2)))
    solved, inverse = factor.solve(parts), factor.inverse()
    for i in range(3):
        below = None if arrowhead.below is None else arrowhead.below[i]
        one = ArrowheadMatrix(arrowhead.diagonal[i], below, arrowhead.side[i], arrowhead.corner[i])
        alone = ArrowheadFactor.of(one)
        expected = alone.solve(ArrowheadColumns(parts.inner[i], parts.outer[i]))
        np.testing.assert_allclose(solved.inner[i], expected.inner, rtol=0, atol=ROUNDINGS)
        np.testing.assert_allclose(solved.outer[i], expected.outer, rtol=0, atol=ROUNDINGS)
        np.testing.assert_allclose(inverse.side[i], alone.inverse().side, rtol=0, atol=ROUNDINGS)
        assert factor.log_det()[i] == pytest.approx(float(alone.log_det()), rel=1e-13)


def test_a_matrix_that_is_not_positive_is_refused() -> None:
    arrowhead = arrowhead_of(3, 2, 1, chained=True)
    with pytest.raises(np.linalg.LinAlgError):
        ArrowheadFactor.of(
            ArrowheadMatrix(arrowhead.diagonal, arrowhead.below, arrowhead.side, -arrowhead.corner)
        )


def reach_of(cells: list[list[int]], links: tuple[tuple[int, int], ...] = (), n_cell: int = 0) -> Reach:
    pairs = np.array([(i, cell) for i, own in enumerate(cells) for cell in own], np.int64).reshape(-1, 2)
    n_cell = n_cell or int(pairs[:, 1].max(initial=-1)) + 1
    before = np.full(len(cells), NONE)
    for first, second in links:
        before[second] = first
    one = np.ones(len(cells))
    return Reach(len(cells), n_cell, pairs[:, 0], pairs[:, 1], (), before, 0.5 * one, one)


def test_parameters_of_a_time_form_segments_and_the_rest_the_border() -> None:
    layout = arrowhead_layout(reach_of([[], *([[k] for k in (1, 0, 1, 2)]), list(range(4))]))
    np.testing.assert_array_equal(layout.index, [[2, NONE], [1, 3], [4, NONE]])
    np.testing.assert_array_equal(layout.border, [0, 5])
    np.testing.assert_array_equal(layout.segment_of_cell, [0, 1, 2, NONE])
    assert not layout.is_chained
    columns = np.random.default_rng(0).normal(size=(2, 6, 3))
    parts = layout.take(columns)
    assert parts.inner.shape == (2, 3, 2, 3)
    np.testing.assert_array_equal(parts.inner[:, 0, 1], 0.0)
    np.testing.assert_array_equal(layout.put(parts), columns)


def test_quantities_of_scans_stay_with_their_times() -> None:
    # 10 scans of 2 times, 8 parameters of each scan and 2 of each time: the border would hold 80.
    scans = [[2 * k, 2 * k + 1] for k in range(10) for _ in range(8)]
    layout = arrowhead_layout(reach_of([[k] for k in range(20) for _ in range(2)] + scans))
    assert layout.index.shape == (10, 12)
    assert layout.border.size == 0


def test_links_couple_neighbours_and_what_jumps_goes_to_the_border() -> None:
    # Two antennas at four times; the second one has no data at the times 1 and 2.
    cells = [[0], [1], [2], [3], [0], [3]]
    layout = arrowhead_layout(reach_of(cells, ((0, 1), (1, 2), (2, 3), (4, 5))))
    assert layout.is_chained
    np.testing.assert_array_equal(layout.border, [5])
    np.testing.assert_array_equal(layout.index, [[0, 4], [1, NONE], [2, NONE], [3, NONE]])


def test_without_segments_everything_is_border() -> None:
    layout = arrowhead_layout(reach_of([[], [], []], n_cell=4))
    assert layout.index.shape == (0, 0)
    np.testing.assert_array_equal(layout.border, [0, 1, 2])
    assert isinstance(layout, ArrowheadLayout)
