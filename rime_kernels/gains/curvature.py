"""What is minimised over the gains of a group, its slopes and its second derivatives.

    f = sum over cells of (m / 2 - Re r) + sum of priors,  m = |g|^2 sum w |V|^2,  r = conj(g) sum w D conj(V)

which is chi2 / 2, but for a constant, plus minus ln prior. With g = exp(a + i p)

    df/da = m - Re r,  df/dp = -Im r,  d2f/da2 = 2 m - Re r,  d2f/da dp = -Im r,  d2f/dp2 = Re r

Where r is replaced by m, as it is on average, these are the second derivatives of Gauss and Newton.
"""

from __future__ import annotations

import math

from rime_kernels.compile.jit import inlined_summing_function, summing_function
from rime_kernels.gains.arrays import Array, GainCells, GainGroups, GainSums
from rime_kernels.gains.envelope import add


@inlined_summing_function
def log_gain(cells: GainCells, c: int, x: Array) -> tuple[float, float]:
    """ln amplitude and phase that coordinates x (n,) give a cell."""
    log, phase = 0.0, 0.0
    for e in range(cells.first[c], cells.first[c + 1]):
        by = cells.factor[e] * x[cells.coordinate[e]]
        if cells.is_phase[e]:
            phase += by
        else:
            log += by
    return log, phase


@inlined_summing_function
def turned_by(sums: GainSums, c: int, along: float, across: float) -> tuple[float, float, float]:
    """m, Re r and Im r of a cell whose gain has this real and this imaginary part."""
    real = along * sums.real[c] + across * sums.imag[c]
    imag = along * sums.imag[c] - across * sums.real[c]
    return (along * along + across * across) * sums.power[c], real, imag


@inlined_summing_function
def turned(cells: GainCells, sums: GainSums, c: int, x: Array) -> tuple[float, float, float]:
    """m, Re r and Im r of a cell."""
    log, phase = log_gain(cells, c, x)
    size = math.exp(log)
    return turned_by(sums, c, size * math.cos(phase), size * math.sin(phase))


@inlined_summing_function
def second_derivatives(power: float, real: float, imag: float, exact: bool) -> tuple[float, float, float]:
    """d2f/da2, d2f/da dp and d2f/dp2 of a cell, or those of Gauss and Newton."""
    if exact:
        return 2.0 * power - real, -imag, real
    return power, 0.0, power


@summing_function
def objective(cells: GainCells, groups: GainGroups, sums: GainSums, g: int, x: Array) -> float:
    """f of group g."""
    total = 0.0
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        power, real, _ = turned(cells, sums, groups.cell[entry], x)
        total += 0.5 * power - real
    for i in range(groups.first[g], groups.first[g + 1]):
        total += 0.5 * groups.weight[i] * (x[i] - groups.middle[i]) ** 2
    for k in range(groups.link_first[g], groups.link_first[g + 1]):
        a, b = groups.later[k], groups.earlier[k]
        away = x[a] - groups.middle[a] - groups.keep[k] * (x[b] - groups.middle[b])
        total += 0.5 * groups.link_weight[k] * away * away
    return total


@summing_function
def objective_and_slopes(
    cells: GainCells, groups: GainGroups, sums: GainSums, g: int, x: Array, slope: Array
) -> float:
    """f of group g; fills its slopes."""
    total = 0.0
    for i in range(groups.first[g], groups.first[g + 1]):
        away = x[i] - groups.middle[i]
        slope[i] = groups.weight[i] * away
        total += 0.5 * slope[i] * away
    for k in range(groups.link_first[g], groups.link_first[g + 1]):
        a, b = groups.later[k], groups.earlier[k]
        away = x[a] - groups.middle[a] - groups.keep[k] * (x[b] - groups.middle[b])
        slope[a] += groups.link_weight[k] * away
        slope[b] -= groups.link_weight[k] * groups.keep[k] * away
        total += 0.5 * groups.link_weight[k] * away * away
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        c = groups.cell[entry]
        power, real, imag = turned(cells, sums, c, x)
        total += 0.5 * power - real
        for e in range(cells.first[c], cells.first[c + 1]):
            by = cells.factor[e] * (-imag if cells.is_phase[e] else power - real)
            slope[cells.coordinate[e]] += by
    return total


@summing_function
def assemble(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    g: int,
    x: Array,
    exact: bool,
    slope: Array,
    matrix: Array,
    signal: Array | None,
) -> None:
    """Fill the slopes of f, and its second derivatives, or those of Gauss and Newton.

    `signal` becomes the sum of Re r over the cells of each phase that is uniform over the circle.
    """
    begin, row = groups.begin, groups.row
    first, end = groups.first[g], groups.first[g + 1]
    for i in range(first, end):
        slope[i] = groups.weight[i] * (x[i] - groups.middle[i])
        for k in range(begin[i], i):
            matrix[row[i] + k] = 0.0
        matrix[row[i] + i] = groups.weight[i]
        if signal is not None:
            signal[i] = 0.0
    for k in range(groups.link_first[g], groups.link_first[g + 1]):
        a, b, keep, weight = groups.later[k], groups.earlier[k], groups.keep[k], groups.link_weight[k]
        away = weight * (x[a] - groups.middle[a] - keep * (x[b] - groups.middle[b]))
        slope[a] += away
        slope[b] -= keep * away
        matrix[row[a] + a] += weight
        matrix[row[b] + b] += weight * keep * keep
        add(groups, matrix, a, b, -weight * keep)
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        c = groups.cell[entry]
        power, real, imag = turned(cells, sums, c, x)
        both, mixed, twist = second_derivatives(power, real, imag, exact)
        for e in range(cells.first[c], cells.first[c + 1]):
            i, by = cells.coordinate[e], cells.factor[e]
            by_log, by_phase = by * both, by * mixed
            if cells.is_phase[e]:
                slope[i] -= by * imag
                by_log, by_phase = by * mixed, by * twist
                if signal is not None:
                    circle = groups.circle[i]
                    if circle >= 0:
                        signal[circle] += real
            else:
                slope[i] += by * (power - real)
            for other in range(cells.first[c], e):
                j = cells.coordinate[other]
                value = cells.factor[other] * (by_phase if cells.is_phase[other] else by_log)
                if i == j:
                    value *= 2.0
                add(groups, matrix, i, j, value)
            matrix[row[i] + i] += by * (by_phase if cells.is_phase[e] else by_log)
