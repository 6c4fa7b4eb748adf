"""The curvature at the best gains: its determinant, and how an integral changes with the sums of cells.

With H the second derivatives of f (`curvature`) and P what is added to them in determinants, the integral is

    ln Z = -f - ln det(H + P) / 2 + constants

at the maximum x of -f. With S = (H + P)^-1, z = a + i p of a cell a sum over x, S_aa, S_ap and S_pp the
elements of S between the a and p of a cell, t the derivatives of ln det(H + P) / 2 by x, u = H^-1 t, the
derivatives of ln Z with respect to m, Re r and Im r of a cell (`curvature`), g being held, are

    -1/2 - S_aa + u_a,   1 + S_aa/2 - S_pp/2 - u_a,   S_ap - u_p

where the terms with u are how the maximum moves (implicit function theorem). Likewise, those with respect to
the weight of a coordinate with the normal prior w y^2 / 2, y = x - middle, and to weight and keep c of a link
v (y_i - c y_j)^2 / 2 are, with d = y_i - c y_j,

    -y^2/2 - S_ii/2 + u_i y,   -d^2/2 - (S_ii - 2 c S_ij + c^2 S_jj)/2 + (u_i - c u_j) d,
    v (d y_j + S_ij - c S_jj - u_j d - (u_i - c u_j) y_j)

P belongs to phases that are uniform over the circle: (0.05 + 0.95 exp(-k)) / (2 pi), k the sum of Re r over
the cells of the phase. Without a signal the integral over such a phase is 1, as it must be, and not infinite;
with one, P is nothing. As it depends on k, -S_ii P'/2 of its phases i is added to the derivative by Re r.

Where other quantities touch all groups, as fluxes do, the elements of S between coordinates of one group are
those of (H + P)^-1 plus those of B B^T, B the border (n, n_border): all below holds with this S.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from rime_kernels.compile.jit import loop, summing_function
from rime_kernels.gains.arrays import Array, GainCells, GainGroups, GainSums, GainWork
from rime_kernels.gains.curvature import assemble, objective, turned
from rime_kernels.gains.envelope import (
    back_substitute,
    factorise,
    invert,
    keep_factor,
    log_determinant,
    solve,
)

FLAT = 0.5 / math.pi
FLOOR = 0.05
"""Of P, where phases are weakly tied to a reference but strongly to each other."""


@summing_function
def _determinant(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    g: int,
    x: Array,
    slope: Array,
    matrix: Array,
    signal: Array,
) -> float:
    """ln det(H + P) of a group, and its factor; NaN where it is not positive."""
    first, end = groups.first[g], groups.first[g + 1]
    assemble(cells, groups, sums, g, x, True, slope, matrix, signal)
    for i in range(first, end):
        if groups.circle[i] == i:
            matrix[groups.row[i] + i] += FLAT * (FLOOR + (1.0 - FLOOR) * math.exp(-max(signal[i], 0.0)))
    if factorise(groups, first, end, matrix, 0.0) >= 0:
        return np.nan
    return log_determinant(groups, first, end, matrix)


@loop
def determinants(
    cells: GainCells, groups: GainGroups, sums: GainSums, x: Array, work: GainWork, found: Array
) -> None:
    """Fill ln det(H + P) of all groups (n_group,), and leave their factors."""
    for g in prange(len(groups.first) - 1):
        found[g] = _determinant(cells, groups, sums, g, x, work.slope, work.matrix, work.other)
        keep_factor(work, g, np.isfinite(found[g]))


@loop
def solve_all(groups: GainGroups, factor: Array, vectors: Array) -> None:
    """Replace vectors (n_vector, n) by solutions with the factors of all groups."""
    for g in prange(len(groups.first) - 1):
        for k in range(len(vectors)):
            solve(groups, groups.first[g], groups.first[g + 1], factor, vectors[k])


@summing_function
def _element(groups: GainGroups, i: int, j: int, inverse: Array, border: Array) -> float:
    """S_ij."""
    total = inverse[groups.row[max(i, j)] + min(i, j)]
    for k in range(border.shape[1]):
        total += border[i, k] * border[j, k]
    return total


@summing_function
def _elements(
    cells: GainCells, groups: GainGroups, c: int, inverse: Array, border: Array
) -> tuple[float, float, float]:
    """S_aa, S_ap and S_pp of a cell."""
    both, mixed, twist = 0.0, 0.0, 0.0
    for e in range(cells.first[c], cells.first[c + 1]):
        for other in range(cells.first[c], cells.first[c + 1]):
            i, j = cells.coordinate[e], cells.coordinate[other]
            value = cells.factor[e] * cells.factor[other] * _element(groups, i, j, inverse, border)
            if cells.is_phase[e] and cells.is_phase[other]:
                twist += value
            elif cells.is_phase[e]:
                mixed += value
            elif not cells.is_phase[other]:
                both += value
    return both, mixed, twist


@summing_function
def _by_priors(
    groups: GainGroups,
    g: int,
    x: Array,
    inverse: Array,
    border: Array,
    by_weight: Array,
    by_keep: Array,
    by_link_weight: Array,
) -> None:
    """Fill the derivatives of ln Z by the numbers of normal priors, x being held."""
    for i in range(groups.first[g], groups.first[g + 1]):
        by_weight[i] = -0.5 * ((x[i] - groups.middle[i]) ** 2 + _element(groups, i, i, inverse, border))
    for k in range(groups.link_first[g], groups.link_first[g + 1]):
        i, j, keep = groups.later[k], groups.earlier[k], groups.keep[k]
        before = x[j] - groups.middle[j]
        away = x[i] - groups.middle[i] - keep * before
        own, last = _element(groups, i, i, inverse, border), _element(groups, j, j, inverse, border)
        both = _element(groups, i, j, inverse, border)
        by_link_weight[k] = -0.5 * (away * away + own - 2.0 * keep * both + keep * keep * last)
        by_keep[k] = groups.link_weight[k] * (away * before + both - keep * last)


@summing_function
def _by_priors_moved(
    groups: GainGroups,
    g: int,
    x: Array,
    moved: Array,
    by_weight: Array,
    by_keep: Array,
    by_link_weight: Array,
) -> None:
    """Add how the maximum moves with these numbers; `moved` is u."""
    for i in range(groups.first[g], groups.first[g + 1]):
        by_weight[i] += moved[i] * (x[i] - groups.middle[i])
    for k in range(groups.link_first[g], groups.link_first[g + 1]):
        i, j, keep = groups.later[k], groups.earlier[k], groups.keep[k]
        before = x[j] - groups.middle[j]
        away = x[i] - groups.middle[i] - keep * before
        along = moved[i] - keep * moved[j]
        by_link_weight[k] += along * away
        by_keep[k] -= groups.link_weight[k] * (moved[j] * away + along * before)


@loop
def sensitivities(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    x: Array,
    border: Array,
    work: GainWork,
    found: Array,
    slope: Array,
    by_power: Array,
    by_real: Array,
    by_imag: Array,
    by_weight: Array,
    by_keep: Array,
    by_link_weight: Array,
) -> None:
    """`determinants`, and the derivatives of ln Z by m, Re r and Im r of the cells of groups (n_cell,).

    Those by the numbers of normal priors are of (n,), (n_link,) and (n_link,). The maximum is held in all of
    them: `add_moves` adds how it moves. `slope` (n,) becomes t.
    """
    matrix, column, product, signal = work.matrix, work.step, work.trial, work.other
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        keep_factor(work, g, False)
        found[g] = _determinant(cells, groups, sums, g, x, column, matrix, signal)
        for i in range(first, end):
            slope[i] = 0.0
        if not np.isfinite(found[g]):
            continue
        invert(groups, first, end, matrix, column, product)
        for i in range(first, end):
            if groups.circle[i] == i:  # from here on S_ii P'/2
                by = -FLAT * (1.0 - FLOOR) * math.exp(-signal[i]) if signal[i] > 0.0 else 0.0
                signal[i] = 0.5 * by * _element(groups, i, i, matrix, border)
        for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
            c = groups.cell[entry]
            power, real, imag = turned(cells, sums, c, x)
            both, mixed, twist = _elements(cells, groups, c, matrix, border)
            by_power[c], by_real[c], by_imag[c] = -0.5 - both, 1.0 + 0.5 * (both - twist), mixed
            by_log = 0.5 * ((4.0 * power - real) * both + real * twist) - imag * mixed
            by_phase = 0.5 * imag * (twist - both) + real * mixed
            for e in range(cells.first[c], cells.first[c + 1]):
                circle = groups.circle[cells.coordinate[e]]
                if cells.is_phase[e] and circle >= 0:
                    by_real[c] -= signal[circle]
                    by_log += signal[circle] * real
                    by_phase += signal[circle] * imag
            for e in range(cells.first[c], cells.first[c + 1]):
                by = cells.factor[e]
                slope[cells.coordinate[e]] += by * by_phase if cells.is_phase[e] else by * by_log
        _by_priors(groups, g, x, matrix, border, by_weight, by_keep, by_link_weight)


@loop
def add_moves(
    cells: GainCells,
    groups: GainGroups,
    x: Array,
    moved: Array,
    by_power: Array,
    by_real: Array,
    by_imag: Array,
    by_weight: Array,
    by_keep: Array,
    by_link_weight: Array,
) -> None:
    """Add to the derivatives of `sensitivities` how the maximum moves; `moved` (n,) is u."""
    for g in prange(len(groups.first) - 1):
        _by_priors_moved(groups, g, x, moved, by_weight, by_keep, by_link_weight)
        for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
            c = groups.cell[entry]
            for e in range(cells.first[c], cells.first[c + 1]):
                by = cells.factor[e] * moved[cells.coordinate[e]]
                if cells.is_phase[e]:
                    by_imag[c] -= by
                else:
                    by_power[c] += by
                    by_real[c] -= by


@loop
def solutions(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    x: Array,
    exact: bool,
    slope: Array,
    matrix: Array,
    found: Array,
    vectors: Array,
) -> None:
    """Replace vectors (n_vector, n) by H^-1 times them, H exact or that of Gauss and Newton.

    `found` (n_group,) becomes ln det H, or NaN where H is not positive.
    """
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        assemble(cells, groups, sums, g, x, exact, slope, matrix, None)
        found[g] = np.nan
        if factorise(groups, first, end, matrix, 0.0) < 0:
            found[g] = log_determinant(groups, first, end, matrix)
            for k in range(len(vectors)):
                solve(groups, first, end, matrix, vectors[k])


@loop
def draws(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    x: Array,
    slope: Array,
    matrix: Array,
    signal: Array,
    found: Array,
    noise: Array,
) -> None:
    """Replace standard normal numbers (n_draw, n) by draws with the covariance (H + P)^-1."""
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        found[g] = _determinant(cells, groups, sums, g, x, slope, matrix, signal)
        if np.isfinite(found[g]):
            for k in range(len(noise)):
                back_substitute(groups, first, end, matrix, noise[k])


@loop
def importance(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    x: Array,
    slope: Array,
    matrix: Array,
    signal: Array,
    noise: Array,
    found: Array,
) -> None:
    """Fill ln of the density over the normal approximation at draws of it, (n_draw, n_group).

    `noise` are standard normal numbers (n_draw, n), and become the draws.
    """
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        _determinant(cells, groups, sums, g, x, slope, matrix, signal)
        best = objective(cells, groups, sums, g, x)
        for k in range(len(noise)):
            square = 0.0
            for i in range(first, end):
                square += noise[k, i] * noise[k, i]
            back_substitute(groups, first, end, matrix, noise[k])
            outside = False
            for i in range(first, end):
                outside = outside or (groups.circle[i] == i and abs(noise[k, i]) > math.pi)
                noise[k, i] += x[i]
            found[k, g] = 0.5 * square + best - objective(cells, groups, sums, g, noise[k])
            if outside:
                found[k, g] = -np.inf


@loop
def undetermined(
    cells: GainCells, groups: GainGroups, sums: GainSums, x: Array, slope: Array, matrix: Array, found: Array
) -> None:
    """Fill found (n,) with 1 for coordinates that data and priors leave open beside those before them."""
    for g in prange(len(groups.first) - 1):
        first, end = groups.first[g], groups.first[g + 1]
        while True:
            assemble(cells, groups, sums, g, x, False, slope, matrix, None)
            for i in range(first, end):
                matrix[groups.row[i] + i] *= 1.0 + found[i]
            row = factorise(groups, first, end, matrix, 1e-9)
            if row < 0:
                break
            found[row] = 1.0
