"""The shapes that a CUDA kernel may have, and the shared memory and registers that each needs.

A shape is a `TileShape`, a `RowShape` or a `TransposeShape`; nothing here touches CUDA. Every shape that
`fits` gives the right answer on every device: its shared arrays are within what a kernel may declare, and the
registers of a block's threads within what a multiprocessor has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, NamedTuple

from rime_kernels.cuda.kernels.rows.parts import RowShape
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.shapes.transposition import TransposeShape

# Bytes of shared memory that a kernel may declare, on every device.
MAX_SHARED = 48 * 1024
# Registers of a multiprocessor, and the most that one thread can have.
_REGISTERS, _MOST = 65536, 255
# A turning phase loses more than single precision may lose after more steps than these.
_MAX_RUN = 8
# With at most so many antennas, small tiles are filled better; a block takes several items; a block takes one
# item (and with more antennas, part of one).
_FEWEST_ANTENNAS, _FEW_ANTENNAS, _MANY_ANTENNAS = 16, 32, 72

Kernel = Literal["tiles", "rows", "transposition"]
Antennas = Literal["fewest", "few", "many", "most", "any"]
Shape = TileShape | RowShape | TransposeShape

# Values that a field of a shape may have; tuning varies the fields in this order.
_LADDERS: dict[str, dict[str, tuple[int, ...]]] = {
    "tiles": {
        "n_thread": (64, 96, 128, 160, 192, 256, 320, 384, 512),
        "max_register": (64, 80, 96, 128, 160, 192, 224, 0),
        "chunk": (4, 8, 16, 24, 32),
        "side": (1, 2, 3, 4, 5, 6),
        "n_slot": (32, 48, 64, 96, 128, 192),
        "n_item": (1, 2, 4, 8, 16),
    },
    "rows": {
        "n_row": (32, 64, 128, 256, 512),
        "run": (1, 2, 4, 8),
        "max_register": (64, 80, 96, 128, 160, 192, 224, 0),
    },
    "transposition": {"n_each": (1, 2, 4, 8, 16), "padding": (0, 1, 2)},
}


class KernelKind(NamedTuple):
    """One shape is remembered for each of these on a device: a kernel, its variant, a class of sizes."""

    kernel: Kernel
    single: bool
    polarised: bool
    has_gaussian: bool
    antennas: Antennas

    def __str__(self) -> str:
        if self.kernel == "transposition":
            return "transposition, single"
        words = (
            "single" if self.single else "double",
            "IQUV" if self.polarised else "I",
            "points and Gaussians" if self.has_gaussian else "points",
        )
        return f"{self.kernel}, {', '.join(words)}" + (
            f", {self.antennas} antennas" if self.antennas != "any" else ""
        )


TRANSPOSITION = KernelKind("transposition", True, False, False, "any")
"""That of flagging, whose shape does not depend on what is flagged."""


def antenna_class(n_antenna: int) -> Antennas:
    """The class of sizes that a number of antennas belongs to."""
    if n_antenna > _MANY_ANTENNAS:
        return "most"
    if n_antenna > _FEW_ANTENNAS:
        return "many"
    return "few" if n_antenna > _FEWEST_ANTENNAS else "fewest"


def all_kinds(precision: str | None = None) -> list[KernelKind]:
    """All kinds of kernels, or those of "single" or "double" precision; a transposition is of float32."""
    kernels: list[tuple[Kernel, Antennas]] = [
        ("tiles", "many"), ("tiles", "few"), ("tiles", "fewest"), ("tiles", "most"), ("rows", "any"),
    ]  # fmt: skip
    transposition = [TRANSPOSITION] if precision in (None, "single") else []
    return [
        KernelKind(kernel, single, polarised, has_gaussian, antennas)
        for single in (True, False)
        if precision in (None, "single" if single else "double")
        for polarised in (True, False)
        for has_gaussian in (False, True)
        for kernel, antennas in kernels
    ] + transposition


def shared_bytes(kind: KernelKind, shape: Shape) -> int:
    """Bytes of the shared arrays of `tiles.kernel.make_tile_sums` or `rows.kernel.make_row_sums`.

    Of a kernel with a beam, which has three arrays more than others; the gaps that align arrays included. Or
    of float32 that are transposed.
    """
    if isinstance(shape, RowShape):
        return 8 * shape.n_row
    if isinstance(shape, TransposeShape):
        return 4 * shape.side * (shape.side + shape.padding)
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
        *(16 for _ in range(3)),  # one element each of what an adjoint gathers
        *(16 for _ in range(3)),  # and of what matrix units read
    ]
    return sum(-(-n_byte // 16) * 16 for n_byte in arrays)


def fits(kind: KernelKind, shape: Shape) -> bool:
    """Whether a kernel of this shape can be launched on every device, and is as precise as it must be."""
    n_thread = _n_thread(shape)
    if isinstance(shape, TransposeShape):
        cut = shape.side > 0 and shape.n_each > 0 and shape.side % shape.n_each == 0
        return cut and shape.padding >= 0 and n_thread <= 1024 and shared_bytes(kind, shape) <= MAX_SHARED
    if isinstance(shape, TileShape):
        sizes = [shape.side, shape.n_thread, shape.chunk, shape.n_slot, shape.n_item]
    else:
        sizes = [shape.n_row, shape.run]
    if min(sizes) < 1 or not 0 <= shape.max_register <= _MOST:
        return False
    if n_thread % 32 or n_thread > 1024 or n_thread * _registers(shape.max_register) > _REGISTERS:
        return False
    if isinstance(shape, RowShape):
        # The sums of a block's threads are added in pairs, again and again: a power of two.
        return shape.run <= _MAX_RUN and n_thread & (n_thread - 1) == 0
    if shape.chunk > n_thread or shape.n_slot % shape.side or shape.n_slot < 2 * shape.side:
        return False
    return shared_bytes(kind, shape) <= MAX_SHARED


def neighbours(kind: KernelKind, shape: Shape) -> Iterator[Shape]:
    """Shapes that fit and differ in one field, by one step of its ladder; the most promising field first."""
    for name, ladder in _LADDERS[kind.kernel].items():
        now = getattr(shape, name)
        rung = _rung(now, ladder, name)
        for value in ladder[max(0, rung - 1) : rung + 2]:
            changed = _changed(shape, name, value) if value != now else shape
            if changed != shape and fits(kind, changed):
                yield changed


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
    return longer if fits(kind, longer) else shape


def _changed(shape: Shape, name: str, value: int) -> Shape:
    """The shape with one field changed, and with the changes of other fields that this entails."""
    changed: Shape = type(shape)(**{**dataclasses.asdict(shape), name: value})
    n_thread = _n_thread(changed)
    if isinstance(changed, TransposeShape):
        return changed
    if isinstance(changed, TileShape):
        changed = dataclasses.replace(changed, n_slot=-(-changed.n_slot // changed.side) * changed.side)
    if name == "side" or n_thread * _registers(changed.max_register) > _REGISTERS:
        # Larger tiles need more registers, more threads leave fewer for each.
        most = _REGISTERS // n_thread // 8 * 8
        changed = dataclasses.replace(changed, max_register=0 if most > _MOST else most)
    return changed


def _n_thread(shape: Shape) -> int:
    """Threads of a block."""
    if isinstance(shape, TransposeShape):
        return shape.side * (shape.side // max(1, shape.n_each))
    return shape.n_row if isinstance(shape, RowShape) else shape.n_thread


def _rung(value: int, ladder: tuple[int, ...], name: str) -> int:
    """The index of the step nearest to a value; no limit of registers counts as the largest."""
    size = {rung: rung if rung or name != "max_register" else _MOST for rung in (*ladder, value)}
    return min(range(len(ladder)), key=lambda i: abs(size[ladder[i]] - size[value]))


def _registers(max_register: int) -> int:
    """Registers that a device sets aside for a thread: multiples of 8."""
    return -(-(max_register or _MOST) // 8) * 8
