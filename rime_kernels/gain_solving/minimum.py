"""The gains that fit best, one problem per task: StefCal, then Gauss-Newton steps, and their errors.

chi2 of a problem, from its sums A = sum w D conj(V), B = sum w |V|^2, C = sum w |D|^2 of each edge (p, q), is

    chi2 = sum C - 2 Re t + s,      t = conj(g_p) g_q A,      s = |g_p|^2 |g_q|^2 B

StefCal (Salvini & Wijnholds 2014, algorithm 1) takes g_p = sum_q g_q A / sum_q |g_q|^2 B of all antennas at
once, and the mean with the gains before in every second step. With x = ln |g| and y = arg g, the slopes of
-chi2/2 are sum(Re t - s) and +-sum(Im t), and its expected curvature has no terms between x and y: s is added
to both diagonal elements of an edge, and s to the other two of x, -s to those of y. One phase is that of the
reference. The inverse of this curvature is the covariance of x and y.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from rime_kernels.compile import types
from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.gain_solving.cholesky import diagonal_of_inverse, factor, solve
from rime_kernels.gain_solving.graph import choose_edges

_SOLVED, _UNDETERMINED, _NOT_CONVERGED = 0, 4, 5
_COARSE = 1e-3
"""StefCal ends where the gains change by less than this share; Gauss-Newton steps go on from there."""
_FINE = 1e-8
"""A solution has converged where the next step would lower chi2 by less than this part of chi2 per
visibility, which is 1e-4 of the errors of noise."""
_ROUNDING = 1e-20
"""The same as a part of sum w |D|^2, for data without noise."""


@inner_function
def _chi2(edges: types.Array, node1: types.Array, node2: types.Array, sums: types.Record,
          problem: int, gain: types.Array) -> float:  # fmt: skip
    """chi2 of the edges that are used."""
    cross, model, data = sums
    total = 0.0
    for e in edges:
        a, b = gain[node1[e]], gain[node2[e]]
        t = np.conj(a) * b * cross[problem, e]
        power = (a.real * a.real + a.imag * a.imag) * (b.real * b.real + b.imag * b.imag)
        total += data[problem, e] - 2.0 * t.real + power * model[problem, e]
    return total


@inner_function
def _start(edges: types.Array, node1: types.Array, node2: types.Array, sums: types.Record,
           problem: int, reference: int, mode: int, gain: types.Array) -> None:  # fmt: skip
    """Gains of one amplitude, with the phases that the baselines to the reference give."""
    cross, model, _ = sums
    above, below = 0.0, 0.0
    for e in edges:
        above += abs(cross[problem, e])
        below += model[problem, e]
    scale = math.sqrt(above / below) if mode != 1 and above > 0.0 else 1.0
    gain[:] = scale
    if mode == 2:
        return
    for e in edges:
        value = cross[problem, e]
        size = abs(value)
        if size > 0.0 and node2[e] == reference:
            gain[node1[e]] = scale * value / size
        elif size > 0.0 and node1[e] == reference:
            gain[node2[e]] = scale * np.conj(value) / size


@inner_function
def _stefcal(edges: types.Array, node1: types.Array, node2: types.Array, sums: types.Record,
             problem: int, mode: int, most: int, gain: types.Array) -> int:  # fmt: skip
    """Steps of StefCal until the gains change little; how many."""
    cross, model, _ = sums
    n = gain.size
    above, below = np.empty(n, np.complex128), np.empty(n)
    for step in range(most):
        above[:] = 0.0
        below[:] = 0.0
        for e in edges:
            p, q = node1[e], node2[e]
            a, b = gain[p], gain[q]
            product, square = cross[problem, e], model[problem, e]
            above[p] += b * product
            above[q] += a * np.conj(product)
            below[p] += (b.real * b.real + b.imag * b.imag) * square
            below[q] += (a.real * a.real + a.imag * a.imag) * square
        change, whole = 0.0, 0.0
        for i in range(n):
            if not below[i] > 0.0:
                continue
            new = above[i] / below[i]
            if mode == 1:
                new = new / abs(new) if abs(new) > 0.0 else gain[i]
            elif mode == 2:
                new = np.complex128(abs(new.real))
            if step % 2 == 1:
                new = 0.5 * (new + gain[i])
                if mode == 1 and abs(new) > 0.0:
                    new = new / abs(new)
            if not abs(new) > 0.0:
                new = gain[i]  # half a turn apart: the mean has no phase
            difference = new - gain[i]
            change += difference.real**2 + difference.imag**2
            whole += new.real**2 + new.imag**2
            gain[i] = new
        if step % 2 == 1 and change <= _COARSE * _COARSE * whole:
            return step + 1
    return most


@inner_function
def _curvature(edges: types.Array, node1: types.Array, node2: types.Array, sums: types.Record, problem: int,
               gain: types.Array, local: types.Array, fixed: types.Array, sign: float,
               matrix: types.Array) -> None:  # fmt: skip
    """The expected curvature of ln |g| (sign 1) or arg g (sign -1); nodes that are fixed stay as they are."""
    model = sums[1]
    matrix[:, :] = 0.0
    for e in edges:
        a, b = gain[node1[e]], gain[node2[e]]
        p, q = local[node1[e]], local[node2[e]]
        power = (a.real * a.real + a.imag * a.imag) * (b.real * b.real + b.imag * b.imag) * model[problem, e]
        matrix[p, p] += power
        matrix[q, q] += power
        matrix[p, q] += sign * power
        matrix[q, p] += sign * power
    for i in range(matrix.shape[0]):
        if fixed[i]:
            matrix[i, :] = 0.0
            matrix[:, i] = 0.0
            matrix[i, i] = 1.0


@inner_function
def _slopes(edges: types.Array, node1: types.Array, node2: types.Array, sums: types.Record, problem: int,
            gain: types.Array, local: types.Array, by_x: types.Array, by_y: types.Array) -> None:  # fmt: skip
    """Slopes of -chi2/2 with respect to ln |g| and arg g."""
    cross, model, _ = sums
    by_x[:] = 0.0
    by_y[:] = 0.0
    for e in edges:
        a, b = gain[node1[e]], gain[node2[e]]
        p, q = local[node1[e]], local[node2[e]]
        t = np.conj(a) * b * cross[problem, e]
        power = (a.real * a.real + a.imag * a.imag) * (b.real * b.real + b.imag * b.imag) * model[problem, e]
        by_x[p] += t.real - power
        by_x[q] += t.real - power
        by_y[p] += t.imag
        by_y[q] -= t.imag


@inner_function
def _newton(edges: types.Array, node1: types.Array, node2: types.Array, sums: types.Record, problem: int,
            local: types.Array, fixed: types.Array, free: types.Array, mode: int, most: int, n_vis: int,
            gain: types.Array, work: types.Array) -> tuple[int, int]:  # fmt: skip
    """Gauss-Newton steps, halved where chi2 would rise; a reason, and how many."""
    n = fixed.size
    x, y, trial = np.zeros(n), np.zeros(n), gain.copy()
    whole = 0.0
    for e in edges:
        whole += sums[2][problem, e]
    chi2 = _chi2(edges, node1, node2, sums, problem, gain)
    for step in range(most):
        _slopes(edges, node1, node2, sums, problem, gain, local, x, y)
        gained, largest = 0.0, 0.0
        for kind in range(2):  # ln |g|, then arg g
            change, sign, held = (x, 1.0, free) if kind == 0 else (y, -1.0, fixed)
            if (kind == 0 and mode == 1) or (kind == 1 and mode == 2):
                change[:] = 0.0
                continue
            _curvature(edges, node1, node2, sums, problem, gain, local, held, sign, work)
            if not factor(work):
                return _UNDETERMINED, step
            for i in range(n):
                change[i] = 0.0 if held[i] else change[i]
            slope = change.copy()
            solve(work, change)
            for i in range(n):
                gained += slope[i] * change[i]
                largest = max(largest, abs(change[i]))
        if gained <= _FINE * max(chi2, 0.0) / n_vis + _ROUNDING * whole:
            return _SOLVED, step
        length = min(1.0, 1.0 / largest)
        better = False
        for _ in range(20):
            for i in range(gain.size):
                if local[i] >= 0:
                    j = local[i]
                    trial[i] = gain[i] * np.exp(length * (x[j] + 1j * y[j]))
            value = _chi2(edges, node1, node2, sums, problem, trial)
            if value <= chi2:
                better = True
                break
            length *= 0.5
        if not better:
            # chi2 is a sum of this many roundings; no step can be told from none below.
            return (_SOLVED if gained <= 1e-12 * whole else _NOT_CONVERGED), step
        chi2 = value
        gain[:] = trial
    return _NOT_CONVERGED, most


@inner_function
def _errors(edges: types.Array, node1: types.Array, node2: types.Array, sums: types.Record, problem: int,
            gain: types.Array, local: types.Array, held: types.Array, sign: float, work: types.Array,
            found: types.Array) -> bool:  # fmt: skip
    """Errors of ln |g| (sign 1) or arg g (sign -1) of the nodes; whether there are any."""
    _curvature(edges, node1, node2, sums, problem, gain, local, held, sign, work)
    if not factor(work):
        return False
    spread = np.zeros(held.size)
    diagonal_of_inverse(work, spread)
    for i in range(local.size):
        if local[i] >= 0 and not held[local[i]]:
            found[i] = math.sqrt(spread[local[i]])
    return True


@inner_function
def _solve_one(node1: types.Array, node2: types.Array, sums: types.Record, count: types.Array,
               order: types.Array, options: types.Record, problem: int, gain: types.Array,
               errors: types.Array, reason: types.Array, numbers: types.Array,
               chi2: types.Array) -> int:  # fmt: skip
    """Solve one problem; a node of its reference, or -1."""
    mode, min_baselines, most, warm = options
    n_node = gain.size
    edges, found, fixed_node, anchor = choose_edges(
        node1, node2, sums[1][problem], order, n_node // order.size, min_baselines
    )
    local, n_local = np.full(n_node, -1), 0
    for i in range(n_node):
        reason[i] = found[i]
        if found[i] == _SOLVED:
            local[i] = n_local
            n_local += 1
    if edges.size == 0:
        return anchor
    fixed, free = np.zeros(n_local, np.bool_), np.zeros(n_local, np.bool_)
    for i in range(n_node):
        if local[i] >= 0:
            fixed[local[i]] = fixed_node[i]
    n_vis = 0
    for e in edges:
        n_vis += count[problem, e]
    chi2[0] = _chi2(edges, node1, node2, sums, problem, np.ones(n_node, np.complex128))
    if not warm:
        _start(edges, node1, node2, sums, problem, anchor, mode, gain)
    n_step = _stefcal(edges, node1, node2, sums, problem, mode, most, gain)
    work = np.empty((n_local, n_local))
    state, n_newton = _newton(
        edges, node1, node2, sums, problem, local, fixed, free, mode, most, n_vis, gain, work
    )
    numbers[0], numbers[1], numbers[2] = n_vis, n_step, n_newton
    chi2[1] = _chi2(edges, node1, node2, sums, problem, gain)
    for kind in range(2):
        if state == _UNDETERMINED or (kind == 0 and mode == 1) or (kind == 1 and mode == 2):
            continue
        held, sign = (free, 1.0) if kind == 0 else (fixed, -1.0)
        if not _errors(edges, node1, node2, sums, problem, gain, local, held, sign, work, errors[:, kind]):
            state = _UNDETERMINED
    for i in range(n_node):
        if local[i] >= 0 and state != _SOLVED:
            reason[i] = state
    return anchor


@loop
def minimise(
    node1: types.Array,
    node2: types.Array,
    sums: types.Record,
    count: types.Array,
    order: types.Array,
    options: types.Record,
    gain: types.Array,
    errors: types.Array,
    reason: types.Array,
    anchor: types.Array,
    numbers: types.Array,
    chi2: types.Array,
) -> None:
    """Solve problem after problem; see `solver.solve_sums`, which makes the arrays."""
    for task in prange(gain.shape[0]):
        problem = np.int64(task)  # unsigned inside the loop: what it calls would be compiled for both
        anchor[problem] = _solve_one(
            node1,
            node2,
            sums,
            count,
            order,
            options,
            problem,
            gain[problem],
            errors[problem],
            reason[problem],
            numbers[problem],
            chi2[problem],
        )
