"""Transposition on a GPU: what lies along channels lies along time then, and the other way round."""

from __future__ import annotations

import functools

import numba
import numpy as np

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceArray, DeviceKernel, Module, Stream
from rime_kernels.cuda.launch_shapes.choice import flagging_shape
from rime_kernels.cuda.launch_shapes.flagging import TRANSPOSITION, TransposeShape

cuda: Module = device.cuda


@functools.cache
def make_transpose(shape: TransposeShape, kind: type) -> DeviceKernel:
    """Kernel that transposes matrices (n_matrix, n, m) of a type of NumPy into (n_matrix, m, n).

    Blocks along x are of columns, along y of rows, along z of matrices, with (side, side / n_each) threads.
    """
    side, n_each = shape.side, shape.n_each
    width, n_y, number = side + shape.padding, side // n_each, numba.from_dtype(np.dtype(kind))

    @device.kernel(0)
    def transpose(given: Array, out: Array) -> None:
        square = cuda.shared.array((side, width), number)
        x, y, matrix = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        first_row, first_column = cuda.blockIdx.y * side, cuda.blockIdx.x * side
        for k in range(n_each):
            row, column = first_row + y + k * n_y, first_column + x
            if row < given.shape[1] and column < given.shape[2]:
                square[y + k * n_y, x] = given[matrix, row, column]
        cuda.syncthreads()
        for k in range(n_each):
            row, column = first_column + y + k * n_y, first_row + x
            if row < out.shape[1] and column < out.shape[2]:
                out[matrix, row, column] = square[x, y + k * n_y]

    return transpose


def transpose_into(
    given: DeviceArray, out: DeviceArray, kind: type, stream: Stream = 0, shape: TransposeShape | None = None
) -> None:
    """Transpose matrices (n_matrix, n, m) on the device into `out` (n_matrix, m, n).

    In the shape that `biro tune` found fastest, unless one is given.
    """
    shape = shape or flagging_shape(TRANSPOSITION, TransposeShape)
    n_matrix, n, m = given.shape
    blocks = -(-m // shape.side), -(-n // shape.side), n_matrix
    threads = shape.side, shape.side // shape.n_each
    make_transpose(shape, kind)[blocks, threads, stream](given, out)
