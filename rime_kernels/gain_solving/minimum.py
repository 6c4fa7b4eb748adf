"""The gains that fit best, one problem per task: StefCal, then Newton's method, and their errors.

chi2 of a problem, from its sums A = sum w D conj(V), B = sum w |V|^2, C = sum w |D|^2 of each edge (p, q), is

    chi2 = sum C - 2 Re r + m,      r = conj(g_p) g_q A,      m = |g_p|^2 |g_q|^2 B

StefCal (Salvini & Wijnholds 2014, algorithm 1) takes g_p = sum_q g_q A / sum_q |g_q|^2 B of all antennas at
once, and the mean with the gains before in every second step. Where gains change little, the search goes on
from there by the steps of `rime_kernels.gains.newton` in ln |g| and arg g; one phase is that of the
reference. The inverse of the expected second derivatives is the covariance of these.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from rime_kernels.compile import types
from rime_kernels.compile.jit import inner_function, loop
from rime_kernels.gain_solving.edges import Edges, best_and_errors, chi2_of
from rime_kernels.gain_solving.graph import choose_edges
from rime_kernels.gains.arrays import GainSums

_SOLVED, _UNDETERMINED, _NOT_CONVERGED = 0, 4, 5
_COARSE = 3e-3
"""StefCal ends where the gains change by less than this share; Newton's method goes on from there."""


@inner_function
def _start(edges: Edges, reference: int, mode: int) -> None:
    """Fill gains of one amplitude, with the phases that the baselines to the reference give."""
    first, second, (power, real, imag), gain = edges.first, edges.second, edges.sums, edges.gain
    above, below = 0.0, 0.0
    for e in range(first.size):
        above += math.sqrt(real[e] * real[e] + imag[e] * imag[e])
        below += power[e]
    scale = math.sqrt(above / below) if mode != 1 and above > 0.0 else 1.0
    gain[:] = scale
    if mode == 2:
        return
    for e in range(first.size):
        if first[e] != reference and second[e] != reference:
            continue
        size = math.hypot(real[e], imag[e])
        if size > 0.0 and second[e] == reference:
            gain[first[e]] = scale * complex(real[e], imag[e]) / size
        elif size > 0.0:
            gain[second[e]] = scale * complex(real[e], -imag[e]) / size


@inner_function
def _stefcal(edges: Edges, mode: int, most: int) -> int:
    """Steps of StefCal until the gains change little; how many."""
    gain, (power, real, imag) = edges.gain, edges.sums
    n = gain.size
    above, below = np.empty(n, np.complex128), np.empty(n)
    for step in range(most):
        above[:] = 0.0
        below[:] = 0.0
        for e in range(edges.first.size):
            p, q = edges.first[e], edges.second[e]
            a, b = gain[p], gain[q]
            product, square = complex(real[e], imag[e]), power[e]
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
def _coordinates(
    reason: types.Array, fixed: types.Array, mode: int
) -> tuple[types.Array, types.Array, int, int]:
    """Where ln |g| and arg g of each node are among all coordinates; how many logs, and how many, are free.

    After the free ones comes one of all that is not solved for, which is 0, and then those of fixed phases.
    """
    n_solved = (reason == _SOLVED).sum()
    n_fixed = fixed.sum() if mode != 2 else 0
    n_log = 0 if mode == 1 else n_solved
    n = n_log if mode == 2 else n_log + n_solved - n_fixed
    log, phase = np.full(reason.size, n), np.full(reason.size, n)
    next_log, next_phase, next_fixed = 0, n_log, n + 1
    for i in range(reason.size):
        if reason[i] != _SOLVED:
            continue
        if mode != 1:
            log[i] = next_log
            next_log += 1
        if mode != 2 and fixed[i]:
            phase[i] = next_fixed
            next_fixed += 1
        elif mode != 2:
            phase[i] = next_phase
            next_phase += 1
    return log, phase, n_log, n


@inner_function
def _solve_one(node1: types.Array, node2: types.Array, sums: types.Record, count: types.Array,
               order: types.Array, options: types.Record, problem: int, gain: types.Array,
               errors: types.Array, reason: types.Array, numbers: types.Array,
               chi2: types.Array) -> int:  # fmt: skip
    """Solve one problem; a node of its reference, or -1."""
    mode, min_baselines, most, warm = options
    n_feed = gain.size // order.size
    used, found, fixed, anchor = choose_edges(node1, node2, sums[1][problem], order, n_feed, min_baselines)
    reason[:] = found
    if used.size == 0:
        return anchor
    cross, data = sums[0][problem][used], sums[2][problem][used]
    log, phase, n_log, n = _coordinates(found, fixed, mode)
    of_edges = GainSums(sums[1][problem][used], cross.real.copy(), cross.imag.copy())
    edges = Edges(node1[used], node2[used], of_edges, log, phase, gain)
    x = np.zeros(n + 1 + np.count_nonzero(fixed))
    chi2[0] = (data - 2.0 * of_edges.real + of_edges.power).sum()  # of gains 1
    if not warm:
        _start(edges, anchor, mode)
    n_step = _stefcal(edges, mode, most)
    for i in range(gain.size):
        if found[i] == _SOLVED and mode != 1:
            x[log[i]] = math.log(abs(gain[i]))
        if found[i] == _SOLVED and mode != 2:
            x[phase[i]] = math.atan2(gain[i].imag, gain[i].real)
    n_vis = count[problem][used].sum()
    unit = max(chi2_of(edges, data), 0.0) / n_vis
    n_newton, is_determined, spread = best_and_errors(edges, n, n_log, x, unit, most)
    chi2[1] = chi2_of(edges, data)
    numbers[0], numbers[1], numbers[2] = n_vis, n_step, most if n_newton < 0 else n_newton
    state = _SOLVED if n_newton >= 0 else _NOT_CONVERGED
    for i in range(gain.size):
        if found[i] == _SOLVED:
            reason[i] = state if is_determined else _UNDETERMINED
            errors[i, 0], errors[i, 1] = spread[log[i]], spread[phase[i]]
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
