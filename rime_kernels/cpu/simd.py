"""Vectors as values in compiled code: lanes of numbers that one instruction works on.

Numba vectorises a loop only where it can prove that it may, and small changes of the loop prevent it. Loops
over these vectors are vectorised explicitly. A vector has any number of lanes: LLVM divides it into registers
of the host, so that one source text serves every host and both precisions. `+`, `-`, `*` and `/` work lane by
lane; functions that make a vector take another vector, `lanes_like`,
whose type and number of lanes the result has.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
from numba import types
from numba.core import cgutils, codegen, config
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

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

ir: Module = cgutils.ir  # of llvmlite
_INDEX = ir.IntType(32)


def register_bytes() -> int:
    """Size of the widest vector registers that Numba compiles for: 64, 32 or 16."""
    # NUMBA_CPU_FEATURES restricts what Numba compiles for: a vector wider than that would be cut in two.
    features = config.CPU_FEATURES
    if features is None:
        features = codegen.get_host_cpu_features()
    if "+avx512f" in features.split(","):
        return 64
    return 32 if "+avx2" in features.split(",") else 16


def n_lanes(real: type[np.floating]) -> int:
    """Numbers of this type that fill one register of the host."""
    return register_bytes() // np.dtype(real).itemsize


class Vector(types.Type):
    """The type of n float32 or float64 numbers."""

    def __init__(self, dtype: types.Type, n: int) -> None:
        self.dtype, self.n = dtype, n
        super().__init__(f"Vector({dtype}, {n})")

    @property
    def bits(self) -> int:
        return int(self.dtype.bitwidth)

    @property
    def llvm(self) -> ir.VectorType:
        return ir.VectorType(ir.FloatType() if self.bits == 32 else ir.DoubleType(), self.n)

    @property
    def llvm_int(self) -> ir.VectorType:
        return ir.VectorType(ir.IntType(self.bits), self.n)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: object, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, fe_type.llvm)


def _lane_wise(symbol: Callable[..., object], instruction: str, n_arg: int) -> None:
    """Teach Numba an operator between vectors of one type."""

    @infer_global(symbol)
    class _Template(AbstractTemplate):
        def generic(self, args: IrValue, kws: IrValue) -> IrValue:
            # No number is spread on its own: a float64 number beside float32 lanes would hide a conversion.
            if isinstance(args[0], Vector) and all(arg == args[0] for arg in args):
                return signature(args[0], *args)
            return None

    @lower_builtin(symbol, *[Vector] * n_arg)
    def lower(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        # A product and a sum may become one instruction: the compiler's choice, the same in every run.
        return getattr(builder, instruction)(*args, flags=("contract",))


for _symbol, _instruction in (
    (operator.add, "fadd"), (operator.iadd, "fadd"), (operator.sub, "fsub"), (operator.isub, "fsub"),
    (operator.mul, "fmul"), (operator.imul, "fmul"), (operator.truediv, "fdiv"),
):  # fmt: skip
    _lane_wise(_symbol, _instruction, 2)
_lane_wise(operator.neg, "fneg", 1)


def _constant(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _spread(builder: IrBuilder, value: IrValue, kind: Vector) -> IrValue:
    # LLVM makes one broadcast of these two steps.
    undefined = ir.Constant(kind.llvm, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(first, undefined, _constant(ir.VectorType(_INDEX, kind.n), 0))


def _call(builder: IrBuilder, name: str, kind: Vector, args: IrValues) -> IrValue:
    """LLVM's own function of this name, lane by lane."""
    declared = ir.FunctionType(kind.llvm, [kind.llvm] * len(args))
    full_name = f"llvm.{name}.v{kind.n}f{kind.bits}"
    return builder.call(cgutils.get_or_insert_function(builder.module, declared, full_name), args)


@intrinsic(prefer_literal=True)
def zeros(typingctx: TypingContext, real: NumbaType, n: NumbaType) -> IrValue:
    """A vector of n zeros; n a constant of the compiled function."""
    kind = Vector(real.dtype, n.literal_value)
    return kind(real, n), lambda context, builder, sig, args: _constant(kind.llvm, 0.0)


@intrinsic
def size(typingctx: TypingContext, vector: NumbaType) -> IrValue:
    """The number of lanes."""
    return types.intp(vector), lambda context, builder, sig, args: context.get_constant(types.intp, vector.n)


@intrinsic
def pointer(typingctx: TypingContext, array: NumbaType) -> IrValue:
    """Where the elements of a contiguous array lie: p[i] counts through all axes, without bounds.

    Functions that are called often take pointers: an array costs a dozen arguments and a count of its
    uses that all threads share. The caller keeps the array.
    """

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        # The address alone, without a count of uses: Numba may free the array after its last use by name.
        return context.make_array(array)(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def ahead(typingctx: TypingContext, pointer: NumbaType, n: NumbaType) -> IrValue:
    """The pointer n elements further."""
    return (
        pointer(pointer, types.intp),
        lambda context, builder, sig, args: builder.gep(args[0], [args[1]], inbounds=True),
    )


@intrinsic
def fetch(typingctx: TypingContext, pointer: NumbaType, start: NumbaType, stop: NumbaType) -> IrValue:
    """Ask for elements start .. stop - 1, so that they are in the cache when they are needed."""
    # Numbers of a cache line of 64 bytes: one request brings all of them.
    line = 64 * 8 // pointer.dtype.bitwidth

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        byte = ir.IntType(8).as_pointer()
        declared = ir.FunctionType(ir.VoidType(), [byte, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0")
        flags = [ir.Constant(ir.IntType(32), flag) for flag in (0, 3, 1)]  # to read, keep, data
        step = context.get_constant(types.intp, line)
        with cgutils.for_range_slice(builder, args[1], args[2], step, inc=True) as (index, _):
            where = builder.bitcast(builder.gep(args[0], [index], inbounds=True), byte)
            builder.call(function, [where, *flags])
        return context.get_dummy_value()

    return types.void(pointer, types.intp, types.intp), generate


def _vector_at(builder: IrBuilder, args: IrValues, kind: Vector) -> IrValue:
    return builder.bitcast(builder.gep(args[0], [args[1]], inbounds=True), kind.llvm.as_pointer())


@intrinsic
def load(typingctx: TypingContext, pointer: NumbaType, index: NumbaType, lanes_like: NumbaType) -> IrValue:
    """Elements index, index + 1, ..."""
    kind = Vector(pointer.dtype, lanes_like.n)

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        value = builder.load(_vector_at(builder, args, kind))
        # Aligned as its numbers, no more: rows of lanes may begin anywhere.
        value.align = kind.bits // 8
        return value

    return kind(pointer, types.intp, lanes_like), generate


@intrinsic
def store(typingctx: TypingContext, pointer: NumbaType, index: NumbaType, vector: NumbaType) -> IrValue:
    """Write a vector to elements index, index + 1, ..."""

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        builder.store(args[2], _vector_at(builder, args, vector)).align = vector.bits // 8
        return context.get_dummy_value()

    return types.void(pointer, types.intp, vector), generate


@intrinsic
def spread(typingctx: TypingContext, value: NumbaType, lanes_like: NumbaType) -> IrValue:
    """A number in every lane, in the number's own type."""
    kind = Vector(types.unliteral(value), lanes_like.n)
    return kind(kind.dtype, lanes_like), lambda context, builder, sig, args: _spread(builder, args[0], kind)


@intrinsic
def constant(typingctx: TypingContext, value: NumbaType, lanes_like: NumbaType) -> IrValue:
    """A float64 number in every lane, in the type of `lanes_like`."""

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        return _spread(builder, context.cast(builder, args[0], types.float64, lanes_like.dtype), lanes_like)

    return lanes_like(types.float64, lanes_like), generate


@intrinsic
def lane(typingctx: TypingContext, vector: NumbaType, index: NumbaType) -> IrValue:
    """One of the numbers."""
    return (
        vector.dtype(vector, types.intp),
        lambda context, builder, sig, args: builder.extract_element(*args),
    )


@intrinsic
def with_lane(typingctx: TypingContext, vector: NumbaType, index: NumbaType, value: NumbaType) -> IrValue:
    """The vector with another number in one of its lanes."""
    return (
        vector(vector, types.intp, vector.dtype),
        lambda context, builder, sig, args: builder.insert_element(args[0], args[2], args[1]),
    )


@intrinsic
def repeat(typingctx: TypingContext, vector: NumbaType, lanes_like: NumbaType) -> IrValue:
    """All lanes, again and again until there are as many as in `lanes_like`; in registers this is no work."""
    kind = Vector(vector.dtype, lanes_like.n)

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        # Where each part is a register of its own, all parts are the same register.
        order = ir.Constant(ir.VectorType(_INDEX, kind.n), [i % vector.n for i in range(kind.n)])
        return builder.shuffle_vector(args[0], ir.Constant(vector.llvm, ir.Undefined), order)

    return kind(vector, lanes_like), generate


@intrinsic
def dot(typingctx: TypingContext, a: NumbaType, b: NumbaType, lanes_like: NumbaType) -> IrValue:
    """The sum over k of parts k of a times parts k of b, parts of as many lanes as `lanes_like`."""
    kind = Vector(a.dtype, lanes_like.n)

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        def part(vector: IrValue, k: int) -> IrValue:
            order = ir.Constant(ir.VectorType(_INDEX, kind.n), list(range(k * kind.n, (k + 1) * kind.n)))
            return builder.shuffle_vector(vector, ir.Constant(a.llvm, ir.Undefined), order)

        total = builder.fmul(part(args[0], 0), part(args[1], 0))
        for k in range(1, a.n // kind.n):
            # In the order of the parts, always: sums repeat to the bit.
            total = _call(builder, "fmuladd", kind, [part(args[0], k), part(args[1], k), total])
        return total

    return kind(a, a, lanes_like), generate


@intrinsic
def fma(typingctx: TypingContext, a: NumbaType, b: NumbaType, c: NumbaType) -> IrValue:
    """a b + c, rounded once where the host can."""
    return a(a, a, a), lambda context, builder, sig, args: _call(builder, "fmuladd", a, args)


@intrinsic
def nearest(typingctx: TypingContext, a: NumbaType) -> IrValue:
    """The nearest whole numbers."""
    return a(a), lambda context, builder, sig, args: _call(builder, "rint", a, args)


@intrinsic
def convert(typingctx: TypingContext, vector: NumbaType, lanes_like: NumbaType) -> IrValue:
    """The vector in the type of `lanes_like`."""
    kind = Vector(lanes_like.dtype, vector.n)

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        if kind.bits == vector.bits:
            return args[0]
        cast: Compiled = builder.fptrunc if kind.bits < vector.bits else builder.fpext
        return cast(args[0], kind.llvm)

    return kind(vector, lanes_like), generate


@intrinsic
def between(typingctx: TypingContext, low: NumbaType, vector: NumbaType, high: NumbaType) -> IrValue:
    """The vector, held between two others; NaN stays."""

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        least, value, most = args
        # A comparison with NaN is false, so that NaN passes both steps.
        value = builder.select(builder.fcmp_ordered("<", value, least), least, value)
        return builder.select(builder.fcmp_ordered(">", value, most), most, value)

    return vector(vector, vector, vector), generate


@intrinsic
def where_below(typingctx: TypingContext, vector: NumbaType, bound: NumbaType, other: NumbaType) -> IrValue:
    """The vector where it is below a bound, and another one elsewhere."""

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[2])

    return vector(vector, vector, vector), generate


@intrinsic
def power_of_two(typingctx: TypingContext, vector: NumbaType) -> IrValue:
    """2^k of whole numbers k within the exponents of the type; of NaN, anything."""
    mantissa, bias = (23, 127) if vector.bits == 32 else (52, 1023)

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        # The last bits of k + 1.5 * 2^mantissa are k: no conversion, which NaN would make undefined.
        shifted = builder.fadd(args[0], _constant(vector.llvm, 1.5 * 2.0**mantissa))
        bits = builder.add(builder.bitcast(shifted, vector.llvm_int), _constant(vector.llvm_int, bias))
        exponent = builder.shl(bits, _constant(vector.llvm_int, mantissa))
        return builder.bitcast(exponent, vector.llvm)

    return vector(vector), generate


def _from_root_half(builder: IrBuilder, vector: IrValue, kind: Vector) -> IrValue:
    """The bits of a vector less those of sqrt(1/2), and the number of bits of a mantissa."""
    # Read as whole numbers, floating-point numbers above 0 have the order of their values.
    root = 0x3F3504F3 if kind.bits == 32 else 0x3FE6A09E667F3BCD
    bits = builder.bitcast(vector, kind.llvm_int)
    return builder.sub(bits, _constant(kind.llvm_int, root)), root, 23 if kind.bits == 32 else 52


@intrinsic
def exponent(typingctx: TypingContext, vector: NumbaType) -> IrValue:
    """k of x = 2^k m with m between sqrt(1/2) and sqrt(2), for normal numbers x > 0."""

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        bits, _, n_mantissa = _from_root_half(builder, args[0], vector)
        return builder.sitofp(builder.ashr(bits, _constant(vector.llvm_int, n_mantissa)), vector.llvm)

    return vector(vector), generate


@intrinsic
def mantissa(typingctx: TypingContext, vector: NumbaType) -> IrValue:
    """m of the same; some number of that size for infinity and NaN."""

    def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
        bits, root, n_mantissa = _from_root_half(builder, args[0], vector)
        bits = builder.and_(bits, _constant(vector.llvm_int, 2**n_mantissa - 1))
        return builder.bitcast(builder.add(bits, _constant(vector.llvm_int, root)), vector.llvm)

    return vector(vector), generate


def polynomial(single: tuple[float, ...], double: tuple[float, ...]) -> Compiled:
    """A function p(vector) = c0 + c1 x + c2 x^2 + ... by Horner's rule, with coefficients for each type."""

    @intrinsic
    def evaluate(typingctx: TypingContext, vector: NumbaType) -> IrValue:
        coefficients = single if vector.bits == 32 else double

        def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
            value = _constant(vector.llvm, coefficients[-1])
            for c in coefficients[-2::-1]:
                value = _call(builder, "fmuladd", vector, [value, args[0], _constant(vector.llvm, c)])
            return value

        return vector(vector), generate

    return evaluate
