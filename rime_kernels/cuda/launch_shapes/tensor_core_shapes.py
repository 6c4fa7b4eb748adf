"""When tensor cores sum the point sources, and how their kernel is cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rime_kernels import device
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.kernels.tiles.tensor_cores import N_ROW, available
from rime_kernels.cuda.launch_shapes.families import MAX_SHARED, REGISTERS
from rime_kernels.cuda.launch_shapes.model import kernel_bytes
from rime_kernels.inputs import Variant
from rime_kernels.physics.beam import NO_BEAM

# Antennas on each side of a tile.
_SIDE = 2
# Tiles that rows fill by less than this lose to other kernels (H100: 0.25, 20 antennas, by 1.1).
LEAST_TENSOR_CORE_FILL = 0.35
# Where rows fill less, tensor cores take four Stokes parameters in double precision for adjoints alone (H200:
# with 0.46, 27 antennas, other kernels are faster by 1.17 to 1.26, with 0.79 slower by 1.12 to 1.40), and
# adjoints of so many points alone, in single precision or not (100 points lose 1.13 in single and gain 1.12
# in double precision, 1000 gain 1.26 and 1.45).
_GOOD_FILL = 0.6
_LEAST_ADJOINT_POINTS_BELOW = {True: 160, False: 64}
# Fewer points are summed faster by other kernels, by precision (single or not) and Stokes parameters (H100;
# four in double precision: H200).
_LEAST_POINTS = {
    (True, 4): 64, (True, 2): 24, (True, 1): 16, (False, 4): 64, (False, 2): 50, (False, 1): 12,
}  # fmt: skip
# Slots of a block, and bytes of its shared memory for all but operands.
_MAX_SLOT, _REST_BYTES = 112, 12 * 1024
# The same for brightness and directions of two chunks of points alone.
_BRIGHT_BYTES = 3 * 1024
# Threads, registers of each, operand units and tiles of a thread, by precision (single or not) and Stokes
# parameters: the fastest of those tried on an H100 (four in double precision: on an H200).
_SHAPES = {
    (True, 4): (640, 96, 16, 1),
    (True, 2): (320, 96, 16, 2),
    (True, 1): (320, 64, 16, 2),
    (False, 4): (320, 168, 16, 2),
    (False, 2): (320, 96, 16, 2),
    (False, 1): (320, 64, 8, 2),
}

# Registers of a thread that adds Gaussians, too, at least: with fewer, sums would not stay in them.
_MIXED_REGISTERS = 96
# Fewest points whose adjoint goes by tensor cores: a guess; 100 were measured.
_LEAST_ADJOINT_POINTS = 48


class TensorCoreAdjointShape(NamedTuple):
    """How the kernel is cut in which sources accumulate gradients: see `matrices.TensorCoreAdjointKernel`."""

    n_parameter: int
    chunk: int
    max_register: int


# By precision (single or not) and Stokes parameters.
GATHER_SHAPES = {
    (True, 4): TensorCoreAdjointShape(2, 32, 128),
    (True, 2): TensorCoreAdjointShape(2, 32, 128),
    (True, 1): TensorCoreAdjointShape(1, 32, 128),
    (False, 4): TensorCoreAdjointShape(2, 32, 255),
    (False, 2): TensorCoreAdjointShape(2, 32, 255),
    (False, 1): TensorCoreAdjointShape(1, 32, 255),
}
# What a warp has of a matrix fills its registers.
_ADJOINT_SLOTS = 64

_forced: list[TileShape | None] = []


def tensor_cores_faster(
    variant: Variant, n_point: int, n_gaussian: int, *, for_adjoint: bool = False
) -> bool:
    """Whether the kernels of tensor cores are faster for such a model than others, or for its adjoint."""
    if not variant.factored or variant.jones_beam or variant.profiles is not None:
        return False
    if for_adjoint and (variant.jones or variant.beam != NO_BEAM):
        return False
    if _forced:
        return _forced[-1] is not None
    # Halves of float16 have no digits left for what the voltage beam of an antenna leaves of a bright source.
    if variant.single and variant.beam != NO_BEAM:
        return False
    least = _least_adjoint_points(n_gaussian) if for_adjoint else _least_points(variant, n_gaussian)
    return n_point >= least and available()


def full_enough(variant: Variant, n_point: int, fill: float, *, for_adjoint: bool) -> bool:
    """Whether tensor cores are faster for so many points if rows fill only this share of their tiles."""
    if _forced or fill >= _GOOD_FILL:
        return True
    if for_adjoint:
        return n_point >= _LEAST_ADJOINT_POINTS_BELOW[variant.single]
    return variant.single or variant.n_stokes < 4


def _least_points(variant: Variant, n_gaussian: int) -> int:
    """Fewest points that are summed faster by tensor cores beside so many Gaussians.

    A Gaussian takes longer in tiles for tensor cores than in others, which rows fill better: 0.023 ms in
    place of 0.016 where a point takes 0.006 to 0.008 in place of 0.012 (H100, 64 antennas, 100 times, 64
    channels, four Stokes parameters, single precision). In double precision it takes 0.077 in place of 0.045,
    and the first one 0.3 more, where a point takes 0.017 in place of 0.021 (H200). Of fewer Stokes parameters
    the numbers are guesses.
    """
    alone = _LEAST_POINTS[variant.single, variant.n_stokes]
    if variant.single or not n_gaussian:
        return alone + 2 * n_gaussian
    return alone + 90 + 4 * n_gaussian


def _least_adjoint_points(n_gaussian: int) -> int:
    """Fewest points whose adjoint is faster by tensor cores, beside so many Gaussians.

    Beside 50 Gaussians 50 points gain 3 %, beside 100 with Stokes I alone 100 gain 6 % (H200); beside 20, 100
    points gain 24 % (as above). Data may have to be laid out twice for them.
    """
    return max(_LEAST_ADJOINT_POINTS, n_gaussian)


def has_adjoint_kernel(n_split: int, n_slot: int) -> bool:
    """Whether there is a kernel in which sources accumulate, for so many blocks an item and slots of
    antennas.
    """
    return n_split == 1 and n_slot <= _ADJOINT_SLOTS


def adjoint_shape(variant: Variant) -> TensorCoreAdjointShape:
    """The shape of that kernel."""
    return GATHER_SHAPES[variant.single, variant.n_stokes]


def most_tensor_core_splits(variant: Variant) -> int | None:
    """Blocks that may share the tiles of an item, where each makes the operands of its own; None for any."""
    return 1 if variant.polarised and not _forced else None


def tensor_core_shape(variant: Variant) -> TileShape:
    """The most that a block may have; half as long chunks where shared memory is small."""
    if _forced and _forced[-1] is not None:
        return _forced[-1]
    n_thread, register, operand_units, n_own = _SHAPES[variant.single, variant.n_stokes]
    room = device.shared_bytes() - _REST_BYTES
    per_slot = 2 * 16 * (1 + variant.n_stokes)
    if room // (per_slot * operand_units) < 64:
        operand_units = 8
    n_slot = min(_MAX_SLOT, room // (per_slot * operand_units) // N_ROW * N_ROW)
    return TileShape(_SIDE, n_thread, 8, n_slot, 1, register, operand_units, n_own)


def mixed_shape(variant: Variant, shape: TileShape) -> TileShape | None:
    """The shape of the kernel that adds Gaussians; None where there is no shared memory for their terms.

    As many blocks share a multiprocessor as its registers have room for: chunks are shorter where needed.
    """
    if _forced:
        return shape
    n_stokes, system = 4 if variant.polarised else 1, 1024  # bytes of each block that the system takes
    register = max(_MIXED_REGISTERS, shape.max_register)
    most = min(2, REGISTERS // (shape.n_thread * register))  # small arrays would have shorter chunks
    for n_block, operand_units, chunk in [
        (most, shape.operand_units, 8),
        (most, 8, 8),
        (most, 8, 4),
        (1, 8, 4),
    ]:
        found = dataclasses.replace(shape, operand_units=operand_units, chunk=chunk, max_register=register)
        declared = kernel_bytes(variant.single, n_stokes, True, found) + _BRIGHT_BYTES
        of_operands = 2 * 16 * operand_units * shape.n_slot * (1 + variant.n_stokes)
        of_all = n_block * (declared + of_operands + system)
        if declared <= MAX_SHARED and of_all <= device.shared_bytes() + system:
            return found
    return None


def fitted_tensor_cores(shape: TileShape, n_tile: int, n_slot: int) -> TileShape:
    """The shape of a kernel whose splits have so many tiles and slots; a block has one item."""
    return dataclasses.replace(shape, n_thread=n_tile // shape.n_own, n_slot=n_slot, n_item=1)


@contextmanager
def forced_tensor_cores(shape: TileShape | None) -> Iterator[None]:
    """Take tensor cores, cut so, wherever a kernel for them exists; nowhere for None."""
    _forced.append(shape)
    try:
        yield
    finally:
        _forced.pop()
