"""The shapes of the kernels that sum over sources: which can run, and good ones to begin with.

Nothing here touches CUDA. A shape fits where its shared arrays are within what a kernel may declare, and the
registers of a block's threads within what a multiprocessor has.
"""

from __future__ import annotations

import dataclasses

from rime_kernels import device
from rime_kernels.cuda.kernels.rows.parts import RowShape
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.launch_shapes.families import (
    MAX_SHARED,
    MAX_THREAD,
    MOST_REGISTER,
    REGISTERS,
    WARP,
    Antennas,
    Family,
    Kernel,
    KernelKind,
    most_registers,
)

# A turning phase loses more than single precision may lose after more steps than these.
_MAX_RUN = 8
# With at most so many antennas, small tiles are filled better; a block takes several items; a block takes one
# item (and with more antennas, part of one).
_FEWEST_ANTENNAS, _FEW_ANTENNAS, _MANY_ANTENNAS = 16, 32, 72


def antenna_class(n_antenna: int) -> Antennas:
    """The class of sizes that a number of antennas belongs to."""
    if n_antenna > _MANY_ANTENNAS:
        return "most"
    if n_antenna > _FEW_ANTENNAS:
        return "many"
    return "few" if n_antenna > _FEWEST_ANTENNAS else "fewest"


def _kinds(kernel: Kernel, *classes: Antennas) -> tuple[KernelKind, ...]:
    """All variants of a kernel, in each of the classes of sizes."""
    return tuple(
        KernelKind(kernel, single, polarised, has_gaussian, antennas)
        for single in (True, False)
        for polarised in (True, False)
        for has_gaussian in (False, True)
        for antennas in classes
    )


def shared_bytes(kind: KernelKind, shape: TileShape | RowShape) -> int:
    """Bytes of the shared arrays of `tiles.kernel.make_tile_sums` or `rows.kernel.make_row_sums`.

    Of a kernel with a beam, which has three arrays more than others; the gaps that align arrays included.
    """
    if isinstance(shape, RowShape):
        return 8 * shape.n_row
    return kernel_bytes(kind.single, 4 if kind.polarised else 1, kind.has_gaussian, shape)


def kernel_bytes(single: bool, n_stokes: int, has_gaussian: bool, shape: TileShape) -> int:
    """Bytes of the shared arrays of a kernel over tiles."""
    real = 4 if single else 8
    n_term = 2 * (shape.n_slot // shape.side) * (shape.chunk * shape.side + 1)
    per_source = 2 if n_stokes == 4 else 1
    n_bright = 2 * shape.n_item * (shape.chunk + 1) * per_source
    arrays = [
        2 * real * n_term,  # antenna terms, of two chunks
        2 * real * n_term if has_gaussian else 2 * real,  # exponents
        2 * real * n_term if has_gaussian and single else 2 * real,  # their low parts
        (2 * real if n_stokes == 4 else real) * n_bright,  # brightness, of two chunks
        *(8 * shape.n_slot for _ in range(6)),  # u, v, w; frequency and pointing
        4 * shape.n_slot,  # where terms lie
        8 * shape.n_item,  # where brightness lies
        8 * shape.n_thread,  # partial sums
        *(16 for _ in range(3)),  # one element each of what an adjoint accumulates
        *(16 for _ in range(3)),  # and of what tensor cores read
    ]
    return sum(-(-n_byte // 16) * 16 for n_byte in arrays)


def _fits_tiles(kind: KernelKind, shape: TileShape) -> bool:
    sizes = shape.side, shape.n_thread, shape.chunk, shape.n_slot, shape.n_item
    if min(sizes) < 1 or not _has_registers(shape.n_thread, shape.max_register):
        return False
    if shape.chunk > shape.n_thread or shape.n_slot % shape.side or shape.n_slot < 2 * shape.side:
        return False
    return shared_bytes(kind, shape) <= MAX_SHARED


def _fits_rows(kind: KernelKind, shape: RowShape) -> bool:
    # The sums of a block's threads are added in pairs, again and again: a power of two.
    sound = 1 <= shape.run <= _MAX_RUN and shape.n_row > 0 and shape.n_row & (shape.n_row - 1) == 0
    return sound and _has_registers(shape.n_row, shape.max_register)


def _has_registers(n_thread: int, max_register: int) -> bool:
    """Whether a block can have so many threads with so many registers."""
    if not 0 <= max_register <= MOST_REGISTER or n_thread % WARP or n_thread > MAX_THREAD:
        return False
    return n_thread * _registers(max_register) <= REGISTERS


def fitted(kind: KernelKind, shape: TileShape) -> TileShape:
    """The shape, with as many sources side by side and items in a block as there is shared memory for."""
    while shared_bytes(kind, shape) > MAX_SHARED:
        if shape.chunk > 4:
            shape = dataclasses.replace(shape, chunk=shape.chunk // 2)
        elif shape.n_item > 1:
            shape = dataclasses.replace(shape, n_item=shape.n_item // 2)
        else:
            shape = dataclasses.replace(shape, n_slot=max(2, shape.n_slot // shape.side // 2) * shape.side)
    return shape


def grown(kind: KernelKind, shape: TileShape, n_slot: int) -> TileShape:
    """The shape for a block that needs only `n_slot` slots: chunks twice as long where that fits."""
    longer = dataclasses.replace(shape, n_slot=n_slot, n_item=1, chunk=2 * shape.chunk)
    return longer if _fits_tiles(kind, longer) else shape


def _entailed_by_tiles(shape: TileShape, name: str) -> TileShape:
    shape = dataclasses.replace(shape, n_slot=-(-shape.n_slot // shape.side) * shape.side)
    return dataclasses.replace(shape, max_register=_left(shape.n_thread, shape.max_register, name == "side"))


def _entailed_by_rows(shape: RowShape, name: str) -> RowShape:
    return dataclasses.replace(shape, max_register=_left(shape.n_row, shape.max_register, False))


def _left(n_thread: int, max_register: int, is_larger: bool) -> int:
    """Registers of a thread: larger tiles need more of them, more threads leave fewer for each."""
    if not is_larger and n_thread * _registers(max_register) <= REGISTERS:
        return max_register
    most = most_registers(n_thread)
    return 0 if most == MOST_REGISTER else most


def _registers(max_register: int) -> int:
    """Registers that a device sets aside for a thread: multiples of 8."""
    return -(-(max_register or MOST_REGISTER) // 8) * 8


def _tile_guess(kind: KernelKind) -> TileShape:
    if device.simulated():
        return TileShape(2, 16, 4, 16, 4)
    antennas = kind.antennas
    if not kind.single and antennas == "many":
        shape = TileShape(3, 128, 8, 66, 8) if kind.polarised else TileShape(4, 160, 8, 64, 8)
    elif not kind.single:
        shape = TileShape(2, 192 if antennas == "most" else 128, 8, 64, 8, 160)
    elif not kind.polarised:
        shape = TileShape(2, 64, 8, 64, 8) if antennas == "fewest" else TileShape(5, 96, 24, 65, 8)
    elif antennas == "fewest":
        shape = TileShape(2, 192, 8, 96, 16, 96)
    else:
        shape = TileShape(3, 128 if antennas == "most" else 256, 8 if kind.has_gaussian else 16, 96, 8, 128)
    return fitted(kind, shape)


def _row_guess(kind: KernelKind) -> RowShape:
    if device.simulated():
        return RowShape(16, 4)
    return RowShape(128, 8 if kind.single else 4)


_REGISTER_LADDER = (64, 80, 96, 128, 160, 192, 224, 0)
TILES = Family(
    shape=TileShape,
    kinds=_kinds("tiles", "many", "few", "fewest", "most"),
    ladders={
        "n_thread": (64, 96, 128, 160, 192, 256, 320, 384, 512),
        "max_register": _REGISTER_LADDER,
        "chunk": (4, 8, 16, 24, 32),
        "side": (1, 2, 3, 4, 5, 6),
        "n_slot": (32, 48, 64, 96, 128, 192),
        "n_item": (1, 2, 4, 8, 16),
    },
    guess=_tile_guess,
    fits=_fits_tiles,
    sources="cuda/**/*.py",
    entailed=_entailed_by_tiles,
)
ROWS = Family(
    shape=RowShape,
    kinds=_kinds("rows", "any"),
    ladders={"n_row": (32, 64, 128, 256, 512), "run": (1, 2, 4, 8), "max_register": _REGISTER_LADDER},
    guess=_row_guess,
    fits=_fits_rows,
    sources="cuda/**/*.py",
    entailed=_entailed_by_rows,
)
