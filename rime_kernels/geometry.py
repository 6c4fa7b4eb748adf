"""Antenna coordinates from uvw, their closure errors, the form of the phase, and rows in order of time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Rows
from rime_kernels.choices import Precision
from rime_kernels.physics.phase import SPEED_OF_LIGHT

Form = Literal["factored", "row"]

# Largest phase error in turns that the factored form may add (physics: section 2).
TURN_TOLERANCE: dict[str, float] = {"single": 1e-6, "double": 1e-9}


@dataclass(frozen=True, eq=False)
class AntennaGeometry:
    """Coordinates x of the antennas with u_row = x[antenna1] - x[antenna2], per time slot.

    Attributes
    ----------
    uvw : float64 (n_time, n_antenna, 3), m
        Each connected group of antennas has its own reference, its centroid; 0 for antennas
        without rows.
    closure : float64 (3,), m
        Largest |u_row - (x[antenna1] - x[antenna2])| of each axis.
    """

    uvw: NDArray[np.float64]
    closure: NDArray[np.float64]


def solve_antennas(rows: Rows) -> AntennaGeometry:
    """Antenna coordinates from the rows by least squares (physics: section 2).

    For each time slot, minimises sum over rows |u_row - x[antenna1] + x[antenna2]|^2 through the
    pseudo-inverse of the normal equations, with one step of refinement. Slots of the same
    baselines share the pseudo-inverse.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    AntennaGeometry
    """
    solution = np.zeros((rows.n_time, rows.n_antenna, 3))
    residual = rows.uvw
    patterns = _baseline_patterns(rows)
    for _ in range(2):
        right = _antenna_sums(rows, residual)
        for times, inverse in patterns:
            solution[times] += inverse @ right[times]
        residual = rows.uvw - _baselines(rows, solution)
    return AntennaGeometry(solution, np.abs(residual).max(axis=0))


def _baselines(rows: Rows, antenna: NDArray[np.float64]) -> NDArray[np.float64]:
    """x[antenna1] - x[antenna2] of each row."""
    return antenna[rows.time_index, rows.antenna1] - antenna[rows.time_index, rows.antenna2]


def _antenna_sums(rows: Rows, baseline: NDArray[np.float64]) -> NDArray[np.float64]:
    """Right side of the normal equations: sum of +u over antenna1 and of -u over antenna2."""
    n = rows.n_time * rows.n_antenna
    slot = rows.time_index.astype(np.int64) * rows.n_antenna
    columns = [
        np.bincount(slot + rows.antenna1, u, n) - np.bincount(slot + rows.antenna2, u, n) for u in baseline.T
    ]
    return np.stack(columns, axis=-1).reshape(rows.n_time, rows.n_antenna, 3)


def _baseline_patterns(rows: Rows) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Time slots grouped by their set of baselines, each with the inverse of its normal equations."""
    low = np.minimum(rows.antenna1, rows.antenna2).astype(np.int64)
    high = np.maximum(rows.antenna1, rows.antenna2)
    code = low * rows.n_antenna + high
    order = np.lexsort((code, rows.time_index))
    sorted_code = code[order]
    bounds = np.searchsorted(rows.time_index[order], np.arange(rows.n_time + 1))
    slots: dict[bytes, list[int]] = {}
    for time in range(rows.n_time):
        slots.setdefault(sorted_code[bounds[time] : bounds[time + 1]].tobytes(), []).append(time)
    return [
        (np.array(times), _inverse(np.frombuffer(key, dtype=np.int64), rows.n_antenna))
        for key, times in slots.items()
    ]


def _inverse(code: NDArray[np.int64], n_antenna: int) -> NDArray[np.float64]:
    """Pseudo-inverse of the normal equations of these baselines (a graph Laplacian).

    Its null space is one constant per connected group, which puts each group's reference at its
    centroid. The smallest other eigenvalue of n antennas is near pi^2/n^2, the largest below 2 n.
    """
    low, high = np.divmod(code, n_antenna)
    count = np.zeros((n_antenna, n_antenna))
    np.add.at(count, (low, high), 1.0)
    count += count.T
    np.fill_diagonal(count, 0.0)
    used = np.flatnonzero(count.any(axis=0))
    laplacian = (np.diag(count.sum(axis=0)) - count)[np.ix_(used, used)]
    inverse = np.zeros((n_antenna, n_antenna))
    if used.size:
        inverse[np.ix_(used, used)] = np.linalg.pinv(laplacian, rcond=1e-10, hermitian=True)
    return inverse


def closure_turns(closure: NDArray[np.float64], max_freq: float, extent: float) -> float:
    """Largest phase error of the factored form, in turns.

        (closure_u + closure_v) nu/c extent + closure_w nu/c max|n - 1|

    Parameters
    ----------
    closure : float64 (3,), m
    max_freq : float, Hz
    extent : float
        Largest |l| and |m| of the model.
    """
    r2 = min(2.0 * extent * extent, 1.0)
    n_minus_1 = r2 / (1.0 + math.sqrt(1.0 - r2))
    metres = (closure[0] + closure[1]) * extent + closure[2] * n_minus_1
    return float(metres) * max_freq / SPEED_OF_LIGHT


def choose_form(
    geometry: AntennaGeometry, max_freq: float, extent: float, precision: Precision
) -> tuple[Form, str]:
    """The exact form that is cheapest, and why (physics: section 2).

    Returns
    -------
    form : "factored" or "row"
        "factored" where the closure residual stays below 1e-6 turns (1e-9 in double precision).
    reason : str
    """
    error = closure_turns(geometry.closure, max_freq, extent)
    limit = TURN_TOLERANCE[precision]
    form: Form = "factored" if error <= limit else "row"
    sign = "<=" if form == "factored" else ">"
    largest = float(geometry.closure.max())
    reason = (
        f"{form} form: antennas close to {largest:.1e} m, {error:.1e} {sign} {limit:.0e} turns "
        f"within |l|, |m| <= {extent:.2e}"
    )
    return form, reason


class RowTable(NamedTuple):
    """Rows in the order of their time slots.

    Attributes
    ----------
    order : int64 (n_row,)
        Row numbers, grouped by time slot, otherwise in the order given.
    slot_start : int64 (n_time + 1,)
        Where each slot begins in `order`.
    """

    order: NDArray[np.int64]
    slot_start: NDArray[np.int64]


def row_table(time_index: NDArray[np.int32], n_time: int) -> RowTable:
    """Group rows by time slot, of which there are n_time."""
    order = np.argsort(time_index, kind="stable").astype(np.int64)
    slot_start = np.searchsorted(time_index[order], np.arange(n_time + 1))
    return RowTable(order, slot_start.astype(np.int64))
