"""The cells of the grid that a thread of W-projection's kernels owns (`wprojection.cuda.parts`).

Tuning remembers them for classes of supports. The rest of a kernel's shape follows from them and from its own
support: see `parts.shape_for`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rime_kernels import device
from rime_kernels.cuda.launch_shapes.families import MAX_THREAD, Family, Kernel, KernelKind

# Threads whose sums meet without shared memory, and by whose number blocks are rounded up.
LANES = 4 if device.simulated() else 32
# Cells of a thread that are considered where nothing is on record, along u and v; the most that it may have,
# and registers that their sums may take.
_CELLS = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))
_MOST_CELLS, _MOST_SUMS = 16, 128
# Threads of a block that is small.
_FEW_THREADS = 320
# Cells of all planes of a kernel up to which the degridder's threads have visibilities, and own no cells.
MOST_OF_VIS = 900
# The largest support of each class, and the planes of a grid that kernels are compiled for.
_SUPPORTS, _PLANES = (8, 16, 32, 64), (1, 2, 4)


@dataclass(frozen=True)
class CellShape:
    """How many cells a thread has, and how they are multiplied.

    Attributes
    ----------
    m_x, m_y : int
        Cells along u and v.
    whole_kernel : int
        1 where cells are multiplied by the product of the kernels in u and v, 4 + 4 P multiply-adds a cell of
        P planes; 0 where first by one and then, for a row of a thread's cells together, by the other,
        4 P (1 + 1/Mx).
    """

    m_x: int
    m_y: int
    whole_kernel: int = 0


def kind_of(support: int, n_plane: int, single: bool, *, degrids: bool) -> KernelKind:
    """What the cells of a thread are remembered for."""
    of_support = min(most for most in _SUPPORTS if support <= most)
    of_planes = min(most for most in _PLANES if n_plane <= most)
    return KernelKind(
        "degridder" if degrids else "gridder", single, False, False, "any", of_support, of_planes
    )


def middling(kind: KernelKind) -> int:
    """The support that stands for its class: supports are odd."""
    return kind.support - 1


def n_thread(support: int, m_x: int, m_y: int) -> int:
    """Threads of a block, in whole warps: a bin has room for a kernel wherever it begins."""
    n_x, n_y = (-(-(support + m - 1) // m) for m in (m_x, m_y))
    return -(-(n_x * n_y) // LANES) * LANES


def can_have(cells: CellShape, support: int, n_plane: int, single: bool) -> bool:
    """Whether threads have registers for the sums of such cells, and a block has so many threads."""
    if min(cells.m_x, cells.m_y) < 1 or cells.m_x * cells.m_y > _MOST_CELLS:
        return False
    has_registers = _registers(cells.m_x, cells.m_y, n_plane, single) <= _MOST_SUMS
    return has_registers and n_thread(support, cells.m_x, cells.m_y) <= MAX_THREAD


def estimated(support: int, n_plane: int, single: bool, *, degrids: bool) -> CellShape:
    """The cells for which the estimated time of a visibility is least, of the gridder or the degridder.

    That is instructions of the threads' own cells and of reading what they are multiplied by, times warps.
    Sums of a thread fit its registers; blocks are small enough that several share a multiprocessor, or as
    small as they can be.
    """
    pairs = [m for m in _CELLS if _registers(*m, n_plane, single) <= _MOST_SUMS]
    every = [CellShape(*m, whole) for m in pairs for whole in (0, 1)]
    small = [each for each in every if n_thread(support, each.m_x, each.m_y) <= _FEW_THREADS]
    return min(small or every[-2:], key=lambda each: _instructions(support, n_plane, each, degrids=degrids))


def values_of(n_plane: int) -> int:
    """Numbers of a visibility's planes, real and imaginary parts, up to a power of two."""
    return 2 if n_plane == 1 else 4 if n_plane == 2 else 8


def _registers(m_x: int, m_y: int, n_plane: int, single: bool) -> int:
    """Registers for the sums of a thread's cells."""
    return 2 * n_plane * m_x * m_y * (1 if single else 2)


def _instructions(support: int, n_plane: int, cells: CellShape, *, degrids: bool) -> int:
    """Instructions of all warps for a visibility, about."""
    m_x, m_y = cells.m_x, cells.m_y
    each = 4 * m_x * m_y * (1 + n_plane) if cells.whole_kernel else 4 * n_plane * m_y * (1 + m_x)
    each += 2 * m_x + m_y + n_plane // 2 + 12
    if degrids:  # sums over lanes
        each += 6 * values_of(n_plane)
    return n_thread(support, m_x, m_y) // LANES * each


def _guess(kind: KernelKind) -> CellShape:
    degrids = kind.kernel == "degridder"
    return estimated(middling(kind), kind.n_plane, kind.single, degrids=degrids)


def _fits(kind: KernelKind, cells: CellShape) -> bool:
    if cells.whole_kernel not in (0, 1):
        return False
    return can_have(cells, middling(kind), kind.n_plane, kind.single)


def _kinds(degrids: bool) -> Iterator[KernelKind]:
    for single in (True, False):
        for n_plane in _PLANES:
            for support in _SUPPORTS:
                kind = kind_of(support, n_plane, single, degrids=degrids)
                if not degrids or n_plane * middling(kind) ** 2 > MOST_OF_VIS:
                    yield kind


def _family(degrids: bool) -> Family:
    ladders = {"m_x": (1, 2, 4, 8), "m_y": (1, 2, 4, 8), "whole_kernel": (0, 1)}
    return Family(CellShape, tuple(_kinds(degrids)), ladders, _guess, _fits, "wprojection/cuda/*.py")


FAMILIES: dict[Kernel, Family] = {"degridder": _family(True), "gridder": _family(False)}
