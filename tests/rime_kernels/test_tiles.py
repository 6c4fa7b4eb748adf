"""Tables of tiles: where every row lies, and what blocks of threads need for theirs."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rime_kernels.cuda.layouts.tile_table import TileTable, tile_table


class Case(NamedTuple):
    """Rows in the order of time, and what the tiles may be."""

    first: np.ndarray
    second: np.ndarray
    time: np.ndarray
    side: int
    max_tile: int
    max_slot: int

    def table(self, least_fill: float = 0.0) -> TileTable | None:
        return tile_table(*self, least_fill)


@st.composite
def cases(draw: Any) -> Case:
    """Any rows: antennas with gaps between their numbers, empty times, duplicates, autocorrelations."""
    numbers = np.array(draw(st.lists(st.integers(0, 400), min_size=1, max_size=40, unique=True)), np.int32)
    n_row = draw(st.integers(1, 120))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, second = rng.choice(numbers, (2, n_row))
    time = np.sort(rng.choice(draw(st.sampled_from([1, 3, 50])), n_row) * 2).astype(np.int32)
    side = draw(st.integers(1, 4))
    max_slot = side * draw(st.sampled_from([2, 3, 8, 40]))
    return Case(first, second, time, side, draw(st.sampled_from([1, 2, 7, 64])), max_slot)


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_every_row_lies_in_one_place_of_its_own_antennas_and_time(case: Case) -> None:
    table = case.table()
    layer, split, cell, tile = np.nonzero(table.place)
    found = table.place[layer, split, cell, tile]
    row = np.abs(found) - 1
    np.testing.assert_array_equal(np.sort(row), np.arange(case.first.size))
    np.testing.assert_array_equal(table.layer_time[layer], case.time[row])
    # The antennas of the cell, through the split's list: antenna1 on the first side, or turned round.
    sides = [
        table.antenna[split, table.group[side, split, tile] * case.side + within]
        for side, within in enumerate(np.divmod(cell, case.side))
    ]
    antennas = np.stack([case.first, case.second])[:, row]
    np.testing.assert_array_equal(np.where(found > 0, sides, sides[::-1]), antennas)


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_only_what_occurs_twice_takes_another_layer(case: Case) -> None:
    table = case.table()
    pairs = np.sort([case.first, case.second], axis=0)
    _, time, count = np.unique(np.stack([*pairs, case.time]), axis=1, return_counts=True, return_index=True)
    layers = {int(t): int(count[case.time[time] == t].max()) for t in np.unique(case.time)}
    assert [int(t) for t in table.layer_time] == [t for t, n in sorted(layers.items()) for _ in range(n)]


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_splits_hold_what_a_block_can(case: Case) -> None:
    table = case.table()
    assert 1 <= table.n_tile <= case.max_tile
    assert table.fill * table.place.size == pytest.approx(np.count_nonzero(table.place))
    assert case.side <= table.n_slot <= case.max_slot
    assert table.n_slot % case.side == 0
    occupied = np.count_nonzero(table.place.any(axis=(0, 2)))
    groups = np.searchsorted(np.unique([case.first, case.second]), [case.first, case.second]) // case.side
    assert occupied == np.unique(np.sort(groups, axis=0), axis=1).shape[1], "a tile for each pair of groups"


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_a_split_has_the_antennas_of_its_tiles_and_no_others(case: Case) -> None:
    table = case.table()
    used = np.unique([case.first, case.second])
    for split in range(table.n_split):
        tiles = np.flatnonzero(table.place[:, split].any(axis=(0, 1)))
        wanted = {int(g) for g in table.group[:, split, tiles].ravel()}
        slots = [g * case.side + i for g in sorted(wanted) for i in range(case.side)]
        assert wanted == set(range(len(wanted))), "groups are numbered without gaps"
        held = table.antenna[split, slots]
        # Whole groups of the antennas in use; the last one may end early and is filled up with zeros.
        first = np.searchsorted(used, held[:: case.side])
        assert not (first % case.side).any()
        for k, begin in enumerate(first):
            group = used[begin : begin + case.side]
            np.testing.assert_array_equal(held[k * case.side :][: group.size], group)
            assert k * case.side + group.size <= table.n_used


def test_a_full_array_fills_its_tiles() -> None:
    """27 antennas at two times, both triangles of the diagonal tiles counted: 702 rows in 45 tiles of 9."""
    first, second = np.triu_indices(27, 1)
    both = [np.tile(side, 2).astype(np.int32) for side in (first, second)]
    time = np.repeat([0, 1], first.size).astype(np.int32)
    table = Case(*both, time, 3, 256, 96).table()
    assert table.place.shape == (2, 1, 9, 45)
    assert table.n_used == table.n_slot == 27
    assert Case(*both, time, 3, 256, 96).table(least_fill=702 / 810) is not None
    assert Case(*both, time, 3, 256, 96).table(least_fill=703 / 810) is None


def test_sparse_rows_get_no_table_that_no_memory_could_hold() -> None:
    """All baselines of 300 antennas, each row at a time of its own: 2e9 places for 44850 rows."""
    first, second = (side.astype(np.int32) for side in np.triu_indices(300, 1))
    case = Case(first, second, np.arange(first.size, dtype=np.int32), 3, 256, 96)
    assert case.table(least_fill=0.15) is None


def test_no_table_is_made_of_more_splits_than_are_wanted() -> None:
    """45 tiles in blocks of at most 20: three splits."""
    first, second = (side.astype(np.int32) for side in np.triu_indices(27))
    case = Case(first, second, np.zeros(first.size, np.int32), 3, 20, 96)
    assert case.table().n_split == 3
    assert tile_table(*case, 0.0, most_splits=2) is None
    assert tile_table(*case, 0.0, most_splits=3).n_split == 3


@pytest.mark.parametrize("n_duplicate", [1, 5])
def test_duplicates_of_both_orientations_share_no_place(n_duplicate: int) -> None:
    first = np.array([0, 1] * n_duplicate, np.int32)
    table = Case(first, 1 - first, np.zeros(first.size, np.int32), 2, 4, 4).table()
    assert table.layer_time.tolist() == [0] * (2 * n_duplicate)
    assert np.sign(table.place[table.place != 0]).tolist() == [1, -1] * n_duplicate
