"""Sums over the visibilities of each cell, and what becomes of a visibility when its cell has a gain."""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import loop
from rime_kernels.gains.arrays import Array, GainCells, GainSums, Index, Short
from rime_kernels.gains.curvature import log_gain, turned_by

Complex = NDArray[np.complex128]
Visibilities = NDArray[np.complexfloating]
Weights = NDArray[np.floating]


@loop
def add_sums(
    model: Visibilities,
    data: Visibilities,
    weight: Weights,
    order: Index,
    starts: Index,
    block: Short,
    n_block: int,
    scale: float,
    power: Array,
    real: Array,
    imag: Array,
) -> None:
    """Fill the sums of cells.

    Parameters
    ----------
    model, data : complex (n_row, n_chan, n_corr)
    weight : floating, likewise
    order, starts, block, n_block
        As `RowCells` has them.
    scale : float
        What weights are multiplied by.
    power, real, imag : float64 (n_cell,)
    """
    n_corr = model.shape[2]
    for baseline in prange(len(starts) - 1):
        offset = baseline * n_block * n_corr
        for k in range(offset, offset + n_block * n_corr):
            power[k], real[k], imag[k] = 0.0, 0.0, 0.0
        for place in range(starts[baseline], starts[baseline + 1]):
            r = order[place]
            for f in range(model.shape[1]):
                for c in range(n_corr):
                    w = scale * weight[r, f, c]
                    if w > 0.0:
                        v, d = model[r, f, c], data[r, f, c]
                        k = offset + block[f] * n_corr + c
                        power[k] += w * (v.real * v.real + v.imag * v.imag)
                        real[k] += w * (d.real * v.real + d.imag * v.imag)
                        imag[k] += w * (d.imag * v.real - d.real * v.imag)


@loop
def gains_of_cells(cells: GainCells, x: Array, gain: Complex) -> None:
    """Fill the gains of cells (n_cell,) for coordinates x (n,)."""
    for c in prange(len(gain)):
        log, phase = log_gain(cells, c, x)
        size = math.exp(log)
        gain[c] = complex(size * math.cos(phase), size * math.sin(phase))


@loop
def add_slopes(
    gain: Complex, sums: GainSums, by_power: Array, by_real: Array, by_imag: Array, total: Array
) -> None:
    """Fill total (n_cell,) with slopes by m, Re r and Im r (`curvature`), times these."""
    for c in prange(len(total)):
        power, real, imag = turned_by(sums, c, gain[c].real, gain[c].imag)
        total[c] = by_power[c] * power + by_real[c] * real + by_imag[c] * imag


@loop
def chi2_of_rows(
    model: Visibilities,
    data: Visibilities,
    weight: Weights,
    cell_of_row: Index,
    block: Short,
    gain: Complex,
    chi2: Array,
) -> None:
    """Fill chi2 (n_row,) with sum w |D - g V|^2; `gain` (n_cell,), `cell_of_row` is each row's first cell."""
    n_corr = model.shape[2]
    for r in prange(model.shape[0]):
        total = 0.0
        for f in range(model.shape[1]):
            for c in range(n_corr):
                w = weight[r, f, c]
                if w > 0.0:
                    away = data[r, f, c] - gain[cell_of_row[r] + block[f] * n_corr + c] * model[r, f, c]
                    total += w * (away.real * away.real + away.imag * away.imag)
        chi2[r] = total


@loop
def slopes_of_rows(
    model: Visibilities,
    data: Visibilities,
    weight: Weights,
    cell_of_row: Index,
    block: Short,
    gain: Complex,
    by_power: Array,
    by_cross: Complex,
    slope: Complex,
) -> None:
    """Fill slopes (n_row, n_chan, n_corr): 2 a |g|^2 V + conj(b) conj(g) D, a and b (n_cell,) of the cell.

    Times the weight it is the derivative, with respect to V, of what has the derivatives a and b with respect
    to |g|^2 sum w |V|^2 and to the real and imaginary part of conj(g) sum w D conj(V).
    """
    n_corr = model.shape[2]
    for r in prange(model.shape[0]):
        for f in range(model.shape[1]):
            for c in range(n_corr):
                k = cell_of_row[r] + block[f] * n_corr + c
                if weight[r, f, c] > 0.0:
                    g = gain[k]
                    own = 2.0 * by_power[k] * (g.real * g.real + g.imag * g.imag)
                    slope[r, f, c] = own * model[r, f, c] + np.conj(by_cross[k] * g) * data[r, f, c]
                else:
                    slope[r, f, c] = 0.0


@loop
def changes_of_rows(
    model: Visibilities,
    change: Visibilities,
    weight: Weights,
    order: Index,
    starts: Index,
    block: Short,
    n_block: int,
    gain: Complex,
    total: Complex,
) -> None:
    """Fill total (n_cell,) with |g|^2 sum w conj(V) dV."""
    n_corr = model.shape[2]
    for baseline in prange(len(starts) - 1):
        offset = baseline * n_block * n_corr
        for k in range(offset, offset + n_block * n_corr):
            total[k] = 0.0
        for place in range(starts[baseline], starts[baseline + 1]):
            r = order[place]
            for f in range(model.shape[1]):
                for c in range(n_corr):
                    if weight[r, f, c] > 0.0:
                        k = offset + block[f] * n_corr + c
                        total[k] += weight[r, f, c] * np.conj(model[r, f, c]) * change[r, f, c]
        for k in range(offset, offset + n_block * n_corr):
            g = gain[k]
            total[k] *= g.real * g.real + g.imag * g.imag
