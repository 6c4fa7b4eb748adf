"""ln L of visibilities whose variance differs by row and follows the model, and derivatives, row by row.

With the weight w of a visibility D, the model V, and three numbers of its row

    v = a / w + f^2 |V|^2 + b,     x = |D - V|^2 / v
    ln L = -x / 2 - ln v           or -(1 + nu/2) ln(1 + x / nu) - ln v (Student's t)

without -ln(2 pi) for each visibility. What has weight 0 does not count. Sums are made row by row, so that
their order does not depend on threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rime_kernels.compile.jit import loop

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
Weights = NDArray[np.floating]
_SMALL, _LARGE = 1e-100, 1e100
"""Products of variances are multiplied up between these, so that one logarithm stands for several."""


@loop
def log_density(vis: Vis, data: Vis, weight: Weights, of_row: Array, dof: float, found: Array) -> None:
    """Fill ln L of each row, (n_row,).

    Parameters
    ----------
    vis, data : complex (n_row, n), Jy
        V and D.
    weight : float (n_row, n), Jy^-2
    of_row : float64 (3, n_row)
        a, f^2 and b.
    dof : float
        nu; 0 of Gaussian noise.
    found : float64 (n_row,)
    """
    for i in prange(weight.shape[0]):
        a, fraction, added = of_row[0, i], of_row[1, i], of_row[2, i]
        total, product, tail = 0.0, 1.0, 1.0
        for k in range(weight.shape[1]):
            w = np.float64(weight[i, k])
            if w <= 0.0:
                continue
            re, im = np.float64(vis[i, k].real), np.float64(vis[i, k].imag)
            v = a / w + fraction * (re * re + im * im) + added
            re -= np.float64(data[i, k].real)
            im -= np.float64(data[i, k].imag)
            ratio = (re * re + im * im) / v
            product *= v
            if not _SMALL < product < _LARGE:
                total -= math.log(product)
                product = 1.0
            if dof > 0.0:
                tail *= 1.0 + ratio / dof
                if not tail < _LARGE:
                    total -= (1.0 + 0.5 * dof) * math.log(tail)
                    tail = 1.0
            else:
                total -= 0.5 * ratio
        found[i] = total - math.log(product) - (1.0 + 0.5 * dof) * math.log(tail)


@loop
def density_slopes(
    vis: Vis,
    data: Vis,
    weight: Weights,
    of_row: Array,
    dof: float,
    found: Array,
    by_row: Array,
    residual: NDArray[np.complex128],
) -> None:
    """Fill ln L of each row as `log_density`, and its derivatives.

    Parameters
    ----------
    found : float64 (n_row, 2)
        ln L, and its derivative by nu (0 of Gaussian noise).
    by_row : float64 (n_row, 3)
        By a, f^2 and b.
    residual : complex128 (n_row, n), Jy
        Minus the derivatives by V, over the weights.
    """
    for i in prange(weight.shape[0]):
        a, fraction, added = of_row[0, i], of_row[1, i], of_row[2, i]
        total, by_dof, by_a, by_fraction, by_added = 0.0, 0.0, 0.0, 0.0, 0.0
        product = 1.0
        for k in range(weight.shape[1]):
            w = np.float64(weight[i, k])
            if w <= 0.0:
                residual[i, k] = 0.0
                continue
            inverse = 1.0 / w
            model_re, model_im = np.float64(vis[i, k].real), np.float64(vis[i, k].imag)
            power = model_re * model_re + model_im * model_im
            v = a * inverse + fraction * power + added
            re, im = model_re - np.float64(data[i, k].real), model_im - np.float64(data[i, k].imag)
            ratio, hold = (re * re + im * im) / v, 1.0
            product *= v
            if not _SMALL < product < _LARGE:
                total -= math.log(product)
                product = 1.0
            if dof > 0.0:
                hold = (dof + 2.0) / (dof + ratio)
                tail = math.log1p(ratio / dof)
                total -= (1.0 + 0.5 * dof) * tail
                by_dof += 0.5 * (hold * ratio / dof - tail)
            else:
                total -= 0.5 * ratio
            by_v = (0.5 * hold * ratio - 1.0) / v
            by_a += by_v * inverse
            by_fraction += by_v * power
            by_added += by_v
            each, through = hold * inverse / v, 2.0 * fraction * inverse * by_v
            residual[i, k] = complex(re * each - through * model_re, im * each - through * model_im)
        found[i, 0], found[i, 1] = total - math.log(product), by_dof
        by_row[i, 0], by_row[i, 1], by_row[i, 2] = by_a, by_fraction, by_added
