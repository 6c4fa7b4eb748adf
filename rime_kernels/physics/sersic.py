"""The visibility of a Sersic profile, brightness exp(-b (r/Re)^(1/n)); float64.

There is no closed form in general. The table is a series of Chebyshev polynomials in ln(n) and ln(q Re), in
patches of both, of integrals that are good to 1e-13; what it leaves out adds up to less than 2e-10.
`tests/rime_kernels/sersic_table.py` makes it.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from rime_kernels.compile.jit import physics_function

TABLE = Path(__file__).parent / "data" / "sersic.csv"
# A change of the table must change this text, of which the cache of machine code keeps a digest.
TABLE_SHA256 = "a8d53306055fd14324617ebfba2c52f51772d7a829b661ff1b129e8b1381c049"
LEAST_N, MOST_N = 0.3, 8.0
_N_PIECE = 3

_lines = [line.split(",") for line in TABLE.read_text().splitlines()]
# Of each piece: where it begins and how far it reaches, in ln(n) and in ln(rho), and its number of patches.
_ranges = np.array(_lines[:_N_PIECE], dtype=np.float64)
_n_start, _n_width = np.log(_ranges[:, 0]), np.log(_ranges[:, 1] / _ranges[:, 0])
_x_start, _x_width = np.log(_ranges[:, 2]), np.log(_ranges[:, 3] / _ranges[:, 2])
_n_patch = _ranges[:, 4].astype(np.int64)
_first_patch = np.concatenate([[0], np.cumsum(_n_patch)]).astype(np.int64)
_rows = _lines[_N_PIECE:]
# Where the rows of a patch begin, one for each degree in ln(n), and the terms of a row; the end of the last.
_patch_of = [_first_patch[int(row[0])] + int(row[1]) for row in _rows]
_row_start = np.searchsorted(_patch_of, np.arange(_first_patch[-1] + 1)).astype(np.int64)
_term_start = np.cumsum([0] + [len(row) - 2 for row in _rows]).astype(np.int64)
_terms = np.array([term for row in _rows for term in row[2:]], dtype=np.float64)


@physics_function
def _series(patch: int, t: float, y: float) -> tuple[float, float, float]:
    """sum_m T_m(t) sum_k c_mk T_k(y) of a patch, and its derivatives with respect to t and y."""
    total, by_t, by_y = 0.0, 0.0, 0.0
    t0, t1, dt0, dt1 = 1.0, t, 0.0, 1.0
    for row in range(_row_start[patch], _row_start[patch + 1]):
        value, slope = 0.0, 0.0
        y0, y1, dy0, dy1 = 1.0, y, 0.0, 1.0
        for term in range(_term_start[row], _term_start[row + 1]):
            c = _terms[term]
            value += c * y0
            slope += c * dy0
            y0, y1, dy0, dy1 = y1, 2.0 * y * y1 - y0, dy1, 2.0 * y1 + 2.0 * y * dy1 - dy0
        total += value * t0
        by_t += value * dt0
        by_y += slope * t0
        t0, t1, dt0, dt1 = t1, 2.0 * t * t1 - t0, dt1, 2.0 * t1 + 2.0 * t * dt1 - dt0
    return total, by_t, by_y


@physics_function
def sersic(s: float, n: float) -> tuple[float, float, float]:
    """V, dV/ds and dV/dn, s = (q Re)^2, 0.3 <= n <= 8; absolute error below 2e-9.

    Re is the effective radius, which holds half of the flux: P(2n, b) = 1/2 (Graham & Driver 2005, eq. 4).
    Below the table 1 - V goes as s, above it V goes as s^(-1 - 1/(2n)), as the integral does.
    """
    piece = 0 if n < 1.0 else (1 if n < 2.9 else 2)
    t = 2.0 * (math.log(n) - _n_start[piece]) / _n_width[piece] - 1.0
    t_n = 2.0 / (_n_width[piece] * n)
    low, wide = _x_start[piece], _x_width[piece]
    # The place along the table in patches, held to its ends.
    x = 0.5 * math.log(s) if s > 0.0 else low - 1.0
    place = min(max((x - low) / wide, 0.0), 1.0) * _n_patch[piece]
    # NaN, which as a whole number may be anything, must not lead out of the table.
    patch = max(min(int(place), _n_patch[piece] - 1), 0)
    y = 2.0 * (place - patch) - 1.0
    value, by_t, by_y = _series(_first_patch[piece] + patch, t, y)
    by_n = by_t * t_n
    if x < low:
        over = math.exp(-2.0 * low)
        return 1.0 - (1.0 - value) * over * s, -(1.0 - value) * over, by_n * over * s
    if x > low + wide:
        power = 2.0 + 1.0 / n
        beyond = x - low - wide
        fall = math.exp(-power * beyond)
        return value * fall, -0.5 * power * value * fall / s, (by_n + value * beyond / (n * n)) * fall
    return value, by_y * _n_patch[piece] / (wide * s), by_n
