"""Where the search for the best gains begins: phases that baselines to antennas with known ones have."""

from __future__ import annotations

import math

from rime_kernels.compile.jit import summing_function
from rime_kernels.gains.arrays import Array, Flag, GainCells, GainGroups, GainSums
from rime_kernels.gains.curvature import turned

_PASSES, _SWEEPS = 8, 6


@summing_function
def _accumulate(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    g: int,
    x: Array,
    known: Flag,
    real: Array,
    imag: Array,
) -> None:
    """Sums of r as each phase that may be anything turns it, over cells with no other unknown phase."""
    for i in range(groups.first[g], groups.first[g + 1]):
        real[i], imag[i] = 0.0, 0.0
    for entry in range(groups.cell_first[g], groups.cell_first[g + 1]):
        c = groups.cell[entry]
        n_unknown = 0
        for e in range(cells.first[c], cells.first[c + 1]):
            if not known[cells.coordinate[e]]:
                n_unknown += 1
        if n_unknown > 1:
            continue
        _, re, im = turned(cells, sums, c, x)
        for e in range(cells.first[c], cells.first[c + 1]):
            i = cells.coordinate[e]
            if groups.turns[i] and cells.is_phase[e] and (n_unknown == 0 or not known[i]):
                real[i] += re
                imag[i] += im if cells.factor[e] > 0.0 else -im


@summing_function
def begin_cold(
    cells: GainCells,
    groups: GainGroups,
    sums: GainSums,
    g: int,
    x: Array,
    known: Flag,
    real: Array,
    imag: Array,
) -> None:
    """Fill x with the means of priors and, for phases that may be anything, with what the data say.

    First from the reference antennas outwards; then all antennas in turn are brought half the way to what all
    others say, as in StefCal (Salvini & Wijnholds 2014).
    """
    first, end = groups.first[g], groups.first[g + 1]
    for i in range(first, end):
        x[i], known[i] = groups.middle[i], not groups.turns[i]
    for _ in range(_PASSES):
        _accumulate(cells, groups, sums, g, x, known, real, imag)
        n_found, lost = 0, -1
        for i in range(first, end):
            if not known[i]:
                lost = i
                if real[i] != 0.0 or imag[i] != 0.0:
                    x[i] += math.atan2(imag[i], real[i])
                    known[i] = True
                    n_found += 1
        if lost < 0:
            break
        if n_found == 0:
            known[lost] = True
    for i in range(first, end):
        known[i] = True
    for _ in range(_SWEEPS):
        _accumulate(cells, groups, sums, g, x, known, real, imag)
        for i in range(first, end):
            if groups.turns[i] and (real[i] != 0.0 or imag[i] != 0.0):
                x[i] += 0.5 * math.atan2(imag[i], real[i])
