"""What is no data, although its weights count it: zero visibilities, rows without uvw, copies of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.residual_data import ResidualData


def copies(data: ResidualData) -> NDArray[np.bool_]:
    """Which rows repeat an earlier one: its baseline, time slot, and all its visibilities that count."""
    part = data.partition
    slot = part.time_index.astype(np.int64) * part.n_antenna**2
    key = slot + part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    found = np.zeros(part.n_row, bool)
    if not part.n_row or np.bincount(np.unique(key, return_inverse=True)[1]).max() < 2:
        return found
    seen: set[tuple[int, bytes, bytes]] = set()
    for row in np.flatnonzero((part.weight > 0).any(axis=(1, 2)) & part.vis.any(axis=(1, 2))).tolist():
        counts = part.weight[row] > 0
        of_row = int(key[row]), counts.tobytes(), np.where(counts, part.vis[row], 0).tobytes()
        found[row] = of_row in seen
        seen.add(of_row)
    return found


def without_copies(data: Sequence[ResidualData]) -> tuple[list[ResidualData], float]:
    """The data with copies of rows left out, and by how much errors are too small because these count.

    Rows that count m times in a fit give errors that are sqrt(sum m^2 / sum m) too small, where rows know the
    parameters alike.
    """
    left, n_row, square = [], 0, 0.0
    for each in data:
        part, copy = each.partition, copies(each)
        used = (part.weight > 0).any(axis=(1, 2))
        n_row += int(np.count_nonzero(used))
        square += _squares(each, copy) if copy.any() else np.count_nonzero(used)
        if copy.any():
            weight = np.where(copy[:, None, None], 0, part.weight).astype(part.weight.dtype)
            each = replace(each, partition=replace(part, weight=weight))
        left.append(each)
    return left, math.sqrt(square / n_row) if n_row else 1.0


def _squares(data: ResidualData, copy: NDArray[np.bool_]) -> float:
    """Sum of m^2 over rows that are there m times; copies belong to the first row that is equal to them."""
    part = data.partition
    used = np.flatnonzero((part.weight > 0).any(axis=(1, 2)))
    key = np.stack([part.time_index[used], part.antenna1[used], part.antenna2[used]])
    _, place = np.unique(key, axis=1, return_inverse=True)
    place = place.reshape(-1)
    n_copy = np.bincount(place, copy[used])
    n_other = np.bincount(place, ~copy[used])
    # Of several rows of a baseline and time that differ, the copies are taken to be of one.
    return float(np.sum((1.0 + n_copy) ** 2 + np.maximum(n_other - 1.0, 0.0)))


def fault_lines(data: Sequence[ResidualData]) -> list[str]:
    """A line for each kind of fault (physics: section 7); none where there is none."""
    n_row = n_without = n_vis = n_zero = n_copy = 0
    for each in data:
        part, counts = each.partition, np.asarray(each.partition.weight > 0)
        used = counts.any(axis=(1, 2)) & (part.antenna1 != part.antenna2)
        n_row += int(np.count_nonzero(used))
        n_without += int(np.count_nonzero(used & ~part.uvw.any(axis=1)))
        n_vis += int(np.count_nonzero(counts))
        n_zero += int(np.count_nonzero(counts & (part.vis == 0)))
        n_copy += int(np.count_nonzero(copies(each)))
    lines = []
    if n_without and n_without < n_row:
        lines.append(
            f"ROWS WITHOUT UVW: uvw is 0 in {n_without} of {n_row} rows of two different antennas. Flag "
            "these rows, or correct uvw"
        )
    if n_zero and n_zero < n_vis:
        lines.append(
            f"ZERO VISIBILITIES: {n_zero} of {n_vis} unflagged visibilities are exactly 0, so they are not "
            "measurements. Flag them"
        )
    if n_copy:
        factor = without_copies(data)[1]
        lines.append(
            f"DUPLICATED ROWS: {n_copy} of {n_row} rows repeat another row of the same baseline and time. "
            f"The errors are {factor:.2f} times too small. Remove the copies"
        )
    return lines
