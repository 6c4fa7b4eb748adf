"""Times of subarrays, which AIPS sets five days apart from each other in a file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.io.data_set.index import IndexColumns
from biro.io.data_set.metadata import Metadata
from biro.io.data_set.orientation import projected

OFFSET = 5.0 * 86400.0
"""Delay of subarray n, in units of n - 1, where a task of AIPS has joined data, s."""
NEAR, BETTER = 0.03, 2.0
"""Times fit UVW that differ by less than this part of a baseline, and by so much less than others."""


def true_times(
    columns: IndexColumns, subarray: NDArray[np.int64], metadata: Metadata
) -> tuple[IndexColumns, list[str]]:
    """Columns with the times at which subarrays observed, and notes about those that were moved.

    Five days turn the sky by 4.9 deg against the clock: UVW and positions of antennas tell which of the two
    times is meant. Where they tell nothing, times stay as they are.

    Parameters
    ----------
    columns : IndexColumns
    subarray : int64 (n_row,)
        From 1.
    metadata : Metadata
    """
    time, notes = columns.time.copy(), []
    for number in np.unique(subarray[subarray > 1]).tolist():
        rows, late = np.flatnonzero(subarray == number), OFFSET * (number - 1)
        stored, moved = (_error(columns, metadata, rows, each) for each in (0.0, late))
        if moved < NEAR and stored > BETTER * moved:
            time[rows] -= late
            notes.append(
                f"AIPS stores the times of subarray {number} {late / 86400.0:g} days late, as UVW shows. "
                "biro "
                "removes this shift"
            )
    return columns._replace(time=time), notes


def _error(columns: IndexColumns, metadata: Metadata, rows: NDArray[np.int64], late: float) -> float:
    """Median difference of UVW and baselines, in lengths of baselines, where times are late by so many s."""
    positions = np.array(metadata["antenna_positions"], np.float64).reshape(-1, 3)
    offset = positions[columns.antenna1[rows]] - positions[columns.antenna2[rows]]
    length = np.linalg.norm(offset, axis=1)
    rows, offset, length = rows[length > 0.0], offset[length > 0.0], length[length > 0.0]
    if not rows.size:
        return np.inf
    time, uv = columns.time[rows] - late + metadata["utc_offset"], columns.uvw[rows, :2]
    expected = np.empty((rows.size, 2))
    for field in np.unique(columns.field_id[rows]).tolist():
        own = columns.field_id[rows] == field
        expected[own] = projected(offset[own], time[own], metadata["fields"][field]["direction"])
    return float(min(np.median(np.linalg.norm(uv - s * expected, axis=1) / length) for s in (1, -1)))
