"""From sums over sources to correlations: a constant matrix, of which zeros are left out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import vector_function
from rime_kernels.compile.types import Pointer, Record, Vector
from rime_kernels.cpu.lanes import copied
from rime_kernels.cpu.simd import constant, load, size, spread


class Correlations(NamedTuple):
    """The map from sums to correlations without its zeros.

    Each real (row 2 k) and imaginary part (2 k + 1) of correlation k is a sum of factors times parts:
    part j of the sums is the real part of Stokes j, part n_stokes + j the imaginary part.
    """

    part: NDArray[np.int64]  # (2 n_corr, n_term)
    factor: NDArray[np.floating]  # (2 n_corr, n_term)


def correlations(matrix: NDArray[np.complexfloating], real: type[np.floating]) -> Correlations:
    """The map of a matrix (n_corr, n_stokes)."""
    n_corr, n_stokes = matrix.shape
    full = np.zeros((2 * n_corr, 2 * n_stokes))
    full[0::2, :n_stokes], full[0::2, n_stokes:] = matrix.real, -matrix.imag
    full[1::2, :n_stokes], full[1::2, n_stokes:] = matrix.imag, matrix.real
    n_term = max(1, int(np.count_nonzero(full, axis=1).max()))
    part = np.argsort(full == 0.0, axis=1, kind="stable")[:, :n_term]
    return Correlations(copied(part, np.int64), copied(np.take_along_axis(full, part, axis=1), real))


@vector_function
def part_of(map: Record, i: int, sums: Pointer, lanes_like: Vector) -> Vector:
    """Real (i even) or imaginary part of element i // 2 of a map times the sums.

    `map` has the arrays of `Correlations` as pointers `part` and `factor`, and their `n_term`.
    """
    value = constant(0.0, lanes_like)
    for j in range(map.n_term * i, map.n_term * (i + 1)):
        value = value + spread(map.factor[j], lanes_like) * load(
            sums, size(lanes_like) * map.part[j], lanes_like
        )
    return value
