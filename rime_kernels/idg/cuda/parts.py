"""Shared by the CUDA kernels of image-domain gridding: shapes, wide reads and writes, sines.

A *task* is what one thread of the degridder sums: `n` visibilities of an item. Tasks are of several kinds:

    even    n neighbouring channels of one row, evenly spaced. With the middle's phase p and half a step's
            phase h, channels lie at p -+ h, p -+ 3 h, ...: sums over pixels P of P exp(i p) cos(k h) and
            P exp(i p) sin(k h) give two channels each, C + i S and C - i S, for half the multiply-adds.
    other   any n visibilities of the item, each with a phase of its own.

Phases of pixel (x, y) are a x + b y + d c: (a, b, d) of each are the task's coefficients, in the unit in
which the device's sines count, x and y in whole pixels from the middle, c the curvature over its largest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import float32, float64, types
from numba.core import cgutils

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    Compiled,
    IrBuilder,
    IrValue,
    IrValues,
    Module,
    NumbaType,
    Scalar,
    Signature,
    TargetContext,
    TypingContext,
    Vector,
)
from rime_kernels.cuda.kernels import scalars
from rime_kernels.physics import phase

ir: Module = cgutils.ir  # of llvmlite
_TWO_PI = 2.0 * math.pi


@dataclass(frozen=True)
class IdgShape:
    """How the kernels are cut: chosen per device, never needed for a right answer.

    Attributes
    ----------
    n_chan : int
        Evenly spaced channels that a degridding thread sums; 4, 8 or 16.
    n_other : int
        Visibilities that it sums where channels are uneven, or too few.
    n_sine : int
        Pairs of channels that have sines of their own; those of others follow by recurrence, with errors
        that grow.
    n_thread : int
        Threads of a degridding block.
    n_pixel : int
        Pixels of a gridding thread, which divide those along an axis of the subgrid.
    n_grid_thread : int
        Threads of a gridding block.
    max_register, max_grid_register : int
        Registers that a thread may have; 0 leaves it to the compiler.
    """

    n_chan: int = 8
    n_other: int = 4
    n_sine: int = 2
    n_thread: int = 128
    n_pixel: int = 4
    n_grid_thread: int = 128
    max_register: int = 128
    max_grid_register: int = 128


def idg_shape(single: bool, n_sum: int) -> IdgShape:
    """A shape whose sums stay in registers."""
    few = n_sum <= 2
    # A thread has 2 n_sum sums for each visibility: with more planes it has fewer visibilities, so that
    # its sums stay in registers.
    n_thread = 16 if device.simulated() else 128
    if single:
        n_thread = min(n_thread, 128 if few else 64)
        return IdgShape(
            n_chan=16 if few else 8, n_other=8 if few else 4, n_sine=2, n_thread=n_thread,
            n_grid_thread=n_thread,
        )  # fmt: skip
    return IdgShape(
        n_chan=8 if few else 4, n_other=4 if few else 2, n_sine=1, n_thread=n_thread, n_pixel=2,
        n_grid_thread=n_thread,
    )  # fmt: skip


class TaskTables(NamedTuple):
    """Items, their tasks (`tasks.Tasks`) and rows, on the device."""

    items: Array
    w_item: Array
    start: Array
    first_chan: Array
    n_chan: Array
    first_task: Array
    uvw: Array
    order: Array
    shift: Array
    scale: Array


@dataclass(frozen=True)
class TaskKind:
    """A kind of task.

    Attributes
    ----------
    even : bool
        Neighbouring channels, evenly spaced; or any visibilities.
    n : int
        Visibilities of a task; an even number of even ones.
    """

    even: bool
    n: int

    @property
    def n_part(self) -> int:
        """Pairs of channels of a task, or visibilities."""
        return self.n // 2 if self.even else self.n

    @property
    def n_coef(self) -> int:
        """Coefficients of a task: four for each phase, the last of them idle."""
        return 8 if self.even else 4 * self.n


@dataclass(frozen=True)
class IdgKernel:
    """All that a heavy kernel is compiled for.

    Attributes
    ----------
    single : bool
    n_sum : int
        Planes that are summed over pixels.
    size : int
        S, pixels of a subgrid along an axis.
    kinds : tuple of TaskKind
        Those that there are, one behind the other in arrays of tasks.
    shape : IdgShape
    """

    single: bool
    n_sum: int
    size: int
    kinds: tuple[TaskKind, ...]
    shape: IdgShape

    @property
    def real(self) -> NumbaType:
        return float32 if self.single else float64

    @property
    def n_value(self) -> int:
        """Numbers of a pixel, or of a visibility."""
        return 2 * self.n_sum


def joined(function: Callable[..., object]) -> Compiled:
    """Compile a function by itself, to join those that call it in the machine code.

    What is large is compiled faster so than by `device.inline`, which copies it into each caller before.
    """
    return function if device.simulated() else device.cuda.jit(device=True)(function)


@functools.cache
def sine_function(single: bool) -> tuple[Compiled, float]:
    """Function that gives cos and sin of an angle in working precision, and a turn in the angle's unit.

    In single precision the device has instructions for both; they take radians, multiply them by 1/(2 pi)
    in float32, and leave off whole turns by themselves. The unit makes up for this factor's rounding.
    """
    if device.simulated():
        real = np.float32 if single else np.float64
        return lambda angle: (real(math.cos(angle)), real(math.sin(angle))), _TWO_PI
    if not single:
        nearest = scalars.nearest_function(False, phase.nearest)
        return phase.make_cos_sin(False, nearest, nearest), 1.0
    # Absolute errors of about 2^-21 within half a turn (CUDA C++ Programming Guide, intrinsic functions).
    libdevice = device.libdevice()
    cos, sin = libdevice.fast_cosf, libdevice.fast_sinf

    @device.inline
    def cos_sin(angle: Array) -> tuple[Scalar, Scalar]:
        return cos(angle), sin(angle)

    return cos_sin, 1.0 / float(np.float32(1.0 / _TWO_PI))


@functools.cache
def make_next(kernel: IdgKernel) -> Compiled:
    """Function that gives cos and sin of (2 k + 1) h from those of (2 k - 1) h and (2 k - 3) h, and the
    latter.

    `twice` is 2 cos 2 h.
    """
    real, n_sine = kernel.real, kernel.shape.n_sine
    cos_sin, _ = sine_function(kernel.single)

    @device.inline
    def next_sines(
        k: int, h: Scalar, twice: Array, cos: Vector, sin: Vector, before_cos: Array, before_sin: Array
    ) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        # Chebyshev recurrence: cos (2 k + 1) h = 2 cos 2 h cos (2 k - 1) h - cos (2 k - 3) h. Its rounding
        # errors grow with k, so that the first `n_sine` pairs have sines of their own.
        if k < n_sine:
            next_cos, next_sin = cos_sin(real(2 * k + 1) * h)
        else:
            next_cos, next_sin = twice * cos - before_cos, twice * sin - before_sin
        return next_cos, next_sin, cos, sin

    return next_sines


@functools.cache
def make_read(single: bool, n: int) -> Compiled:
    """Function that copies n numbers from index `offset` of an array, a multiple of the widest step, to
    `into`.

    In steps of 16 bytes where these divide n numbers, else of two numbers or one.
    """
    # A warp that reads 16 bytes a thread needs a quarter of the load instructions.
    step = _step(single, n)
    wide = _wide_read(step)

    @device.inline
    def read(array: Array, offset: int, into: Array) -> None:
        for k in range(0, n, step):
            if step == 4:
                into[k], into[k + 1], into[k + 2], into[k + 3] = wide(array, offset + k)
            elif step == 2:
                into[k], into[k + 1] = wide(array, offset + k)
            else:
                into[k] = array[offset + k]

    return read


@functools.cache
def make_write(single: bool, n: int) -> Compiled:
    """Function that copies n numbers, at least 2, from index `first` of a local array to index `offset`."""
    step = _step(single, n)
    wide = _wide_write(step)

    @device.inline
    def write(array: Array, offset: int, first: int, values: Array) -> None:
        for k in range(0, n, step):
            j = first + k
            if step == 4:
                wide(array, offset + k, values[j], values[j + 1], values[j + 2], values[j + 3])
            else:
                wide(array, offset + k, values[j], values[j + 1])

    return write


def _step(single: bool, n: int) -> int:
    return 4 if single and n % 4 == 0 else 2 if n % 2 == 0 else 1


@functools.cache
def _wide_read(n: int) -> Compiled:
    """n numbers from an index that is a multiple of n, in one load."""
    if device.simulated():
        return lambda array, offset: tuple(array[offset + k] for k in range(n))

    @device.intrinsic
    def read(typing_context: TypingContext, array: NumbaType, offset: NumbaType) -> IrValue:
        def build(
            context: TargetContext, builder: IrBuilder, signature: Signature, args: IrValues
        ) -> IrValue:
            found = builder.load(_wide_pointer(context, builder, signature, args, n))
            # Without the alignment the compiler would have to split the load into single numbers.
            found.align = n * array.dtype.bitwidth // 8
            index = ir.IntType(32)
            parts = [builder.extract_element(found, ir.Constant(index, k)) for k in range(n)]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(array.dtype, n)(array, offset), build

    return read


@functools.cache
def _wide_write(n: int) -> Compiled:
    """n numbers to an index that is a multiple of n, in one store."""
    if device.simulated():

        def write_each(array: IrValue, offset: IrValue, *values: IrValue) -> None:
            for k in range(n):
                array[offset + k] = values[k]

        return write_each

    def build(context: TargetContext, builder: IrBuilder, signature: Signature, args: IrValues) -> IrValue:
        pointer = _wide_pointer(context, builder, signature, args, n)
        value = ir.Constant(ir.VectorType(args[2].type, n), ir.Undefined)
        for k in range(n):
            value = builder.insert_element(value, args[2 + k], ir.Constant(ir.IntType(32), k))
        stored = builder.store(value, pointer)
        stored.align = n * signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    if n == 4:

        @device.intrinsic
        def write(
            typing_context: TypingContext,
            array: NumbaType,
            offset: NumbaType,
            a: NumbaType,
            b: NumbaType,
            c: NumbaType,
            d: NumbaType,
        ) -> IrValue:
            kind = array.dtype
            return types.void(array, offset, kind, kind, kind, kind), build

    else:

        @device.intrinsic
        def write(
            typing_context: TypingContext, array: NumbaType, offset: NumbaType, a: NumbaType, b: NumbaType
        ) -> IrValue:
            return types.void(array, offset, array.dtype, array.dtype), build

    return write


def _wide_pointer(
    context: TargetContext, builder: IrBuilder, signature: Signature, args: IrValues, n: int
) -> IrValue:
    """Pointer to n numbers of the array of the first argument, at the second."""
    array = context.make_array(signature.args[0])(context, builder, value=args[0])
    pointer = builder.gep(array.data, [args[1]])
    kind = ir.FloatType() if signature.args[0].dtype.bitwidth == 32 else ir.DoubleType()
    return builder.bitcast(pointer, ir.VectorType(kind, n).as_pointer())
