"""Cells without a value and cells of another shape, as the child process finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from casacore.tables import makearrcoldesc, maketabdesc, table

from biro import _ms_child_read
from biro._ms_child_read import Reader, undefined_rows
from biro._ms_wire import RefusalError


class Silent:
    """A link that counts the signs of life."""

    steps = 0

    def step(self, what: str) -> None:
        self.steps += 1


@pytest.fixture
def cells(tmp_path: Path) -> Any:
    """20 rows of shape (1, 4) without a value in rows 3, 7 and 19."""
    column = makearrcoldesc("D", 0j, valuetype="complex", ndim=2)
    main = table(str(tmp_path / "cells"), maketabdesc([column]), nrow=20, ack=False)
    for row in set(range(20)) - {3, 7, 19}:
        main.putcell("D", row, np.ones((1, 4), np.complex64))
    return main


@pytest.mark.parametrize("block", [1, 6, 20, 100])
def test_cells_without_a_value(cells: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ms_child_read, "QUERY_ROWS", block)
    link = Silent()
    reader = Reader(link)  # type: ignore[arg-type]
    reader.path, reader.files = "", {}
    assert reader._undefined(cells, "D", (1, 4)).tolist() == [3, 7, 19]
    # A silent child is given up: each block but a single one is announced.
    assert link.steps == (0 if block >= 20 else -(-20 // block))
    some = cells.selectrows([19, 0, 7])
    assert reader._undefined(some, "D", (1, 4)).tolist() == [0, 2]


@pytest.mark.parametrize("shape", [(4, 1), (2, 2), (2, 4), (1, 3)])
def test_cells_of_another_shape(cells: Any, shape: tuple[int, int]) -> None:
    # (4, 1) and (2, 2) have as many elements as (1, 4): a tiled column would read them as if they were such.
    cells.putcell("D", 11, np.ones(shape, np.complex64))
    with pytest.raises(RefusalError, match="D of row 11 has shape"):
        undefined_rows(cells, "D", (1, 4))
