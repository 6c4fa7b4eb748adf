"""The search for the gains of one problem: its edges as cells of two nodes each (`rime_kernels.gains`).

The gain of an edge (p, q) is g_p conj(g_q). f, its slopes and second derivatives are those that
`rime_kernels.gains.curvature` has for a cell, without priors; with g_p = exp(x_p + i y_p) coordinates are
x and y of all nodes that are free in them. Cells of gains in general are not as fast: here exponentials are
those of nodes, of which there are fewer than edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rime_kernels.compile.jit import inlined_summing_function, summing_function
from rime_kernels.compile.types import Record
from rime_kernels.gains.arrays import Array, GainSums, GainWork, Index
from rime_kernels.gains.cell_sums import Complex
from rime_kernels.gains.curvature import second_derivatives, turned_by
from rime_kernels.gains.envelope import Rows, add, factorise, invert
from rime_kernels.gains.newton import LONGEST, make_climb

LEAST_PIVOT = 1e-11
"""A pivot that is less than this share of its diagonal element counts as 0: rounding leaves about 1e-14."""


class Edges(NamedTuple):
    """Edges that are used, and where the coordinates of their nodes are.

    Coordinates that are not free come after the n free ones: no step changes them.

    Attributes
    ----------
    first, second : int64 (n_edge,)
        Nodes.
    sums : GainSums
        Those of edges.
    log, phase : int64 (n_node,)
        Coordinates.
    gain : complex128 (n_node,)
        Gains of the latest coordinates.
    """

    first: Index
    second: Index
    sums: GainSums
    log: Index
    phase: Index
    gain: Complex


@summing_function
def gains_at(edges: Edges, x: Array) -> None:
    """Fill the gains of nodes."""
    for i in range(edges.gain.size):
        size, phase = np.exp(x[edges.log[i]]), x[edges.phase[i]]
        edges.gain[i] = complex(size * np.cos(phase), size * np.sin(phase))


@inlined_summing_function
def turned(edges: Edges, e: int) -> tuple[float, float, float]:
    """m, Re r and Im r of an edge, of the latest gains."""
    a, b = edges.gain[edges.first[e]], edges.gain[edges.second[e]]
    return turned_by(edges.sums, e, a.real * b.real + a.imag * b.imag, a.imag * b.real - a.real * b.imag)


@summing_function
def chi2_of(edges: Edges, data: Array) -> float:
    """chi-squared of the latest gains; `data` (n_edge,) are sum w |D|^2."""
    total = 0.0
    for e in range(edges.first.size):
        power, real, _ = turned(edges, e)
        total += data[e] - 2.0 * real + power
    return total


@summing_function
def _evaluate(problem: Record, x: Array, slope: Array) -> float:
    """f and its slopes."""
    edges, _ = problem
    gains_at(edges, x)
    slope[:] = 0.0
    total = 0.0
    for e in range(edges.first.size):
        p, q = edges.first[e], edges.second[e]
        power, real, imag = turned(edges, e)
        total += 0.5 * power - real
        slope[edges.log[p]] += power - real
        slope[edges.log[q]] += power - real
        slope[edges.phase[p]] -= imag
        slope[edges.phase[q]] += imag
    return total


@summing_function
def _assemble(problem: Record, x: Array, exact: bool, matrix: Array, slope: Array) -> None:
    """Fill the second derivatives; those of Gauss and Newton have none between logs and phases."""
    edges, rows = problem
    gains_at(edges, x)
    matrix[:] = 0.0
    for e in range(edges.first.size):
        p, q = edges.first[e], edges.second[e]
        log_p, log_q, phase_p, phase_q = edges.log[p], edges.log[q], edges.phase[p], edges.phase[q]
        power, real, imag = turned(edges, e)
        both, mixed, twist = second_derivatives(power, real, imag, exact)
        if log_p != log_q:  # else both are none
            add(rows, matrix, log_p, log_p, both)
            add(rows, matrix, log_q, log_q, both)
            add(rows, matrix, log_p, log_q, both)
        if phase_p != phase_q:
            add(rows, matrix, phase_p, phase_p, twist)
            add(rows, matrix, phase_q, phase_q, twist)
            add(rows, matrix, phase_p, phase_q, -twist)
        if exact and log_p != log_q and phase_p != phase_q:
            add(rows, matrix, log_p, phase_p, mixed)
            add(rows, matrix, log_q, phase_p, mixed)
            add(rows, matrix, log_p, phase_q, -mixed)
            add(rows, matrix, log_q, phase_q, -mixed)


@summing_function
def _longest(problem: Record, step: Array) -> float:
    """The largest change of ln amplitude or phase of an edge, or a bound of it where no step is shortened."""
    edges, _ = problem
    longest = 2.0 * np.abs(step).max()
    if longest < LONGEST:  # no edge changes by more than its two nodes together
        return longest
    longest = 0.0
    for e in range(edges.first.size):
        p, q = edges.first[e], edges.second[e]
        log = step[edges.log[p]] + step[edges.log[q]]
        phase = step[edges.phase[p]] - step[edges.phase[q]]
        longest = max(longest, abs(log), abs(phase))
    return longest


_climb = make_climb(_evaluate, _assemble, _longest)


@summing_function
def _rows(n: int, n_all: int, n_log: int) -> Rows:
    """Rows of a matrix of which the phases have no elements with the first `n_log` coordinates."""
    begin, row, stored = np.zeros(n_all, np.int64), np.zeros(n_all, np.int64), 0
    for i in range(n_all):
        begin[i] = n_log if n_log <= i < n else 0
        row[i] = stored - begin[i]
        stored += i + 1 - begin[i]
    return Rows(begin, row)


@summing_function
def best_and_errors(
    edges: Edges, n: int, n_log: int, x: Array, unit: float, most: int
) -> tuple[int, bool, Array]:
    """Bring x to the least chi-squared.

    x are n free coordinates, logs first, and those that are not free; its gains are then the latest of the
    edges. `unit` is that of `has_arrived`.

    Returns
    -------
    n_step : int
        -1 where there is no minimum.
    is_determined : bool
        Whether data determine all coordinates.
    spread : float64, as x
        Standard deviations that noise gives to the free ones, by the expected second derivatives.
    """
    n_all = x.size
    matrix, has_factor = np.empty(n_all * (n_all + 1) // 2), np.zeros(1, np.bool_)
    vectors = np.zeros((5, n_all))
    step, trial, slope, other, spread = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    trial[:] = x
    work = GainWork(step, trial, slope, other, has_factor, matrix, has_factor)
    rows = _rows(n, n_all, 0)
    n_step = _climb((edges, rows), rows, 0, 0, n, x, work, np.inf, most, unit)
    rows = _rows(n, n_all, n_log)
    _assemble((edges, rows), x, False, matrix, slope)
    if factorise(rows, 0, n, matrix, LEAST_PIVOT) >= 0:
        return n_step, False, spread
    invert(rows, 0, n, matrix, slope, other)
    for i in range(n):
        spread[i] = np.sqrt(matrix[rows.row[i] + i])
    return n_step, True, spread
