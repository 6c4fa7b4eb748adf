"""Shared by the kernels that work on an item as products of matrices, by tensor cores in single precision.

All visibilities of an item have their kernels within a block of B x B cells. With the kernels C_k(x) in u and
C_k(y) in v of visibilities k, 0 outside the S cells of each, the block is a product of two matrices,

    G[y, x] = sum_k conj(C_k(y)) (V_k conj(C_k(x))),

and the inner sum of V_k = sum_x C_k(x) (sum_y C_k(y) G[y, x]) is another. Planes lie side by side along x.

A complex product is two real ones of pairs (x, y) and (a, b): with x = Im, y = Re of the first factor, and
a = Re, b = Im of the second, x a + y b is the imaginary part and y a - x b the real part. For that one the
pairs of one matrix are turned.

Each number goes in as two of half precision, as in `tiles.tensor_cores`: rounded, and what is left,
22 bits in all.
Powers of two bring the largest numbers near the top of what half precision holds. Threads stage kernels in
shared memory, batch after batch, as those of the other form do; their polynomials are products, too
(`block_terms`).
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from rime_kernels import device
from rime_kernels.compile.types import Compiled
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.wprojection.cuda.parts import Task

# Threads of a warp, visibilities of a batch, and words of what a thread of each of a warp reads at once.
WARP, N_STAGE, UNIT = 32, tensor_cores.N_ROW, 128
# Batches that are kept: two are located at once, and serve until the last of three further steps is done.
N_KEPT = 8
# Registers of a multiprocessor, and threads of as many warps as it has schedulers.
_REGISTERS, _FOUR_WARPS = 65536, 4 * WARP


@dataclass(frozen=True)
class BlockKernel(Task):
    """All that a kernel for blocks is compiled for.

    Attributes
    ----------
    reach : int
        Cells from the middle of an item's block to its farthest visibilities.
    block : int
        B, a multiple of 16, at least S + 2 reach.
    """

    reach: int
    block: int

    @property
    def before(self) -> int:
        """Cells from the first one of an item's block to its middle."""
        return self.support // 2 + self.reach

    @property
    def n_left(self) -> int:
        """Pairs of the kernels in v of a batch."""
        return N_STAGE * self.block

    @property
    @abstractmethod
    def n_pair(self) -> int:
        """Pairs of a batch, those and others: an even number."""

    @property
    def dynamic_bytes(self) -> int:
        """Bytes of dynamic shared memory: those of two batches in turn."""
        return 2 * 8 * self.n_pair


def registers(n_thread: int, wanted: int) -> int:
    """Registers that a thread may have: as many as let no fewer blocks of threads share a multiprocessor.

    Its registers belong to four schedulers, and so its warps come in fours: those of a block, or of several
    blocks together, are rounded up.
    """
    n_block = max(1, _REGISTERS // wanted // _FOUR_WARPS * _FOUR_WARPS // n_thread)
    n_whole = -(-n_block * n_thread // _FOUR_WARPS) * _FOUR_WARPS
    return min(255, _REGISTERS // n_whole) // 8 * 8


@functools.cache
def make_product() -> Compiled:
    """Function that adds a product, 16 rows by 8 columns, to the four numbers `c`.

    Of four packed pairs of the rows, rounded and what is left of them, and two of the columns.
    """
    product = tensor_cores.make_product(True, False)

    @device.inline
    def add_product(high: Any, low: Any, b_high: Any, b_low: Any, c: Any) -> Any:
        # Small ones first: an addition rounds by the size of the sum.
        c = product(low[0], low[1], low[2], low[3], b_high[0], b_high[1], c[0], c[1], c[2], c[3])
        c = product(high[0], high[1], high[2], high[3], b_low[0], b_low[1], c[0], c[1], c[2], c[3])
        return product(high[0], high[1], high[2], high[3], b_high[0], b_high[1], c[0], c[1], c[2], c[3])

    return add_product
