"""How long rows last, and how far the times of a baseline lie apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.io.data_set.index import IndexColumns, PartitionRows, RowIndex
from rime_kernels.arrays.time_slots import spacing_of_baselines


def of_all_baselines(index: RowIndex, part: PartitionRows) -> dict[str, Any]:
    """Distinct times and their spacing, for `Samples` of some baselines of a partition."""
    columns, time = index.columns, index.slot_time(part.rows)
    spacing = spacing_of_baselines(time, columns.antenna1[part.rows], columns.antenna2[part.rows])
    return {"times": np.unique(time), "spacing": spacing}


def interval_of(columns: IndexColumns, rows: NDArray[np.int64]) -> float:
    """INTERVAL where it fits the spacing of the times of a baseline (some hold rubbish), else that, s."""
    stated = float(np.median(columns.interval[rows])) if rows.size else 0.0
    between = np.diff(np.unique(columns.time[rows]))
    if stated > 0.0 and (between >= 0.99 * stated).all():
        return stated
    spacing = spacing_of_baselines(columns.time[rows], columns.antenna1[rows], columns.antenna2[rows])
    return stated if stated > 0 and (spacing == 0 or stated <= 1.01 * spacing) else spacing


def row_interval_of(columns: IndexColumns, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """INTERVAL of each row where rows have their own (baseline-dependent averaging), else None.

    Some sets hold rubbish: intervals are believed where those of a baseline do not overlap.
    """
    interval, time = columns.interval[rows], columns.time[rows]
    if not interval.size or not (np.isfinite(interval) & (interval > 0.0)).all():
        return None
    if np.ptp(interval) <= 1e-3 * interval.max():
        return None
    order = np.lexsort((time, columns.antenna2[rows], columns.antenna1[rows]))
    first, second = columns.antenna1[rows][order], columns.antenna2[rows][order]
    same = (np.diff(first) == 0) & (np.diff(second) == 0)
    sums = 0.5 * (interval[order][1:] + interval[order][:-1])
    overlaps = np.diff(time[order])[same] < 0.99 * sums[same]
    return None if np.mean(overlaps) > 0.01 else interval


def exposure_of(
    columns: IndexColumns, rows: NDArray[np.int64], lasts: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """EXPOSURE of each row where it is shorter than INTERVAL by more than 1 %; None where none is.

    Rows whose EXPOSURE is not above 0, or not below what they are believed to last, have the latter: some
    sets hold rubbish.
    """
    exposure, interval = columns.exposure[rows], columns.interval[rows]
    is_shorter = (exposure > 0.0) & (exposure < 0.99 * interval) & (exposure < 0.99 * lasts)
    return np.where(is_shorter, exposure, lasts) if is_shorter.any() else None
