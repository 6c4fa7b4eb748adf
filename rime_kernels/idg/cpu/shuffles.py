"""Operations that rearrange the lanes of vectors, for complex numbers in pairs of lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rime_kernels.compile.types import (
    Compiled,
    IrBuilder,
    IrValue,
    IrValues,
    Module,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
)
from rime_kernels.cpu.simd import Vector

ir: Module = cgutils.ir  # of llvmlite
_INDEX = ir.IntType(32)


def _order(lanes: Sequence[int]) -> IrValue:
    return ir.Constant(ir.VectorType(_INDEX, len(lanes)), list(lanes))


def _shuffle(order: Callable[[int], Sequence[int]]) -> Compiled:
    """A function of two vectors of n lanes: those of both in a given order; the second's count from n."""

    @intrinsic
    def shuffle(typingctx: TypingContext, a: NumbaType, b: NumbaType) -> IrValue:
        lanes = _order(order(a.n))
        return a(a, a), lambda context, builder, sig, args: builder.shuffle_vector(args[0], args[1], lanes)

    return shuffle


# Real and imaginary parts of n complex numbers in two vectors, and back.
even = _shuffle(lambda n: range(0, 2 * n, 2))
odd = _shuffle(lambda n: range(1, 2 * n, 2))
first_of_pairs = _shuffle(lambda n: [i // 2 + (i % 2) * n for i in range(n)])
second_of_pairs = _shuffle(lambda n: [n // 2 + i // 2 + (i % 2) * n for i in range(n)])


@intrinsic
def swapped(typingctx: TypingContext, a: NumbaType) -> IrValue:
    """Real and imaginary parts, having changed places."""
    lanes = _order([i ^ 1 for i in range(a.n)])
    return a(a), lambda context, builder, sig, args: builder.shuffle_vector(args[0], args[0], lanes)


@intrinsic
def alternating(typingctx: TypingContext, value: NumbaType, lanes_like: NumbaType) -> IrValue:
    """-value, value, -value, value, ... in the type of `lanes_like`, of a float64 number."""

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        number = context.cast(builder, args[0], types.float64, lanes_like.dtype)
        vector = ir.Constant(lanes_like.llvm, ir.Undefined)
        first = builder.insert_element(vector, number, ir.Constant(_INDEX, 0))
        spread = builder.shuffle_vector(first, vector, _order([0] * lanes_like.n))
        signs = ir.Constant(lanes_like.llvm, [-1.0, 1.0] * (lanes_like.n // 2))
        return builder.fmul(spread, signs)

    return lanes_like(types.float64, lanes_like), generate


@intrinsic
def spread_each(
    typingctx: TypingContext, where: NumbaType, index: NumbaType, lanes_like: NumbaType, wide: NumbaType
) -> IrValue:
    """Elements index, index + 1, ..., each in as many lanes as `lanes_like` has, as many as there are in
    `wide`.
    """
    kind = Vector(where.dtype, wide.n)

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        n = wide.n // lanes_like.n
        # A vector of the numbers first: one permutation then spreads all of them.
        undefined = ir.Constant(ir.VectorType(kind.llvm.element, n), ir.Undefined)
        vector = undefined
        for i in range(n):
            offset = builder.add(args[1], ir.Constant(args[1].type, i))
            value = builder.load(builder.gep(args[0], [offset], inbounds=True))
            vector = builder.insert_element(vector, value, ir.Constant(_INDEX, i))
        return builder.shuffle_vector(vector, undefined, _order([i // lanes_like.n for i in range(wide.n)]))

    return kind(where, types.intp, lanes_like, wide), generate


@intrinsic
def store_sums(
    typingctx: TypingContext, where: NumbaType, index: NumbaType, vectors: NumbaType, lanes_like: NumbaType
) -> IrValue:
    """Write the sums of the lanes, by as many as `lanes_like` has, of a tuple of vectors: one number after
    the other.
    """
    n, wide = lanes_like.n, vectors.dtype

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        undefined = ir.Constant(wide.llvm, ir.Undefined)
        pieces = [
            builder.shuffle_vector(vector, undefined, _order(range(start, start + n)))
            for vector in (builder.extract_value(args[2], k) for k in range(vectors.count))
            for start in range(0, wide.n, n)
        ]
        n_sum = len(pieces)
        # Zeros fill up to a whole vector of sums, and are not written.
        pieces += [ir.Constant(lanes_like.llvm, [0.0] * n)] * (-n_sum % n)
        evens, odds = _order(range(0, 2 * n, 2)), _order(range(1, 2 * n, 2))
        for _ in range(n.bit_length() - 1):
            # Neighbouring lanes of two vectors are added: half of the sum's lanes come from each.
            pieces = [
                builder.fadd(builder.shuffle_vector(a, b, evens), builder.shuffle_vector(a, b, odds))
                for a, b in zip(pieces[::2], pieces[1::2], strict=True)
            ]
        for k in range(n_sum):
            number = builder.extract_element(pieces[k // n], ir.Constant(_INDEX, k % n))
            offset = builder.add(args[1], ir.Constant(args[1].type, k))
            builder.store(number, builder.gep(args[0], [offset], inbounds=True))
        return context.get_dummy_value()

    return types.void(where, types.intp, vectors, lanes_like), generate
