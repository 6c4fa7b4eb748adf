"""Which visibilities of the rows are in one cell, and have one gain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class RowCells(NamedTuple):
    """Cells of visibilities: of a baseline in a block of times, a block of channels and a correlation.

    Cells are numbered in this order: by baseline and block of times, block of channels, correlation.

    Attributes
    ----------
    n_block : int
        Blocks of channels.
    block : int32 (n_chan,)
        That of each channel.
    order, starts : int64 (n_row,), (n_baseline + 1,)
        Rows, those of one baseline and block of times together, and where each of these begins.
    cell_of_row : int64 (n_row,)
        The first cell of each row.
    """

    n_block: int
    block: NDArray[np.int32]
    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    cell_of_row: NDArray[np.int64]
