"""Instructions of tensor cores, of the shared memory that feeds them, and for the device's memory.

A warp multiplies a matrix of 16 rows by one of 8 columns at once. Its threads hold the result as the
instruction lays it out: thread 4 g + t has rows g and g + 8 of columns 2 t and 2 t + 1.

In single precision numbers go in as two numbers of half precision each, whose sum has 22 bits; in double
precision as they are. (NVIDIA, Parallel Thread Execution ISA, "Warp Level Matrix Multiply-Accumulate".)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels.tiles import emulated

ir: Any = cgutils.ir  # LLVM's

# Rows and columns of a product; numbers of the result that a thread has.
N_ROW, N_COLUMN, N_OWN = 16, 8, 4
# Compute capability from which instructions for both precisions exist, and the one for 16 rows in double
# precision.
_CAPABILITY, _DOUBLE_ROWS = (8, 0), (9, 0)

# LLVM's types by the letters of constraints.
_KINDS = {"r": ir.IntType(32), "l": ir.IntType(64), "f": ir.FloatType(), "d": ir.DoubleType()}


def _instruction(code: str, results: str, arguments: str, more: str = "") -> Callable[..., Any]:
    """What builds a piece of PTX in a kernel; gives its results as a tuple, or the only one.

    `results` and `arguments` have a letter for each: r and l for whole numbers of 32 and 64 bits, f and d for
    numbers of single and double precision. `more` are further constraints; with "&", results are written
    before all arguments are read. The piece is marked as having an effect: so no thread of a warp
    takes it on another way than the rest.
    """
    early = "&" if "&" in more else ""
    letters = [f"={early}{letter}" for letter in results] + list(arguments)
    # A string: machine code is kept on disk by what its functions close over.
    constraints = ",".join(letters + [each for each in more.split(",") if each not in ("", "&")])

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [_KINDS[letter] for letter in results]
        result = ir.VoidType() if not kinds else kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
        function = ir.FunctionType(result, [_KINDS[letter] for letter in arguments])
        inline = ir.InlineAsm(function, code, constraints, side_effect=True)
        found = builder.call(inline, args)
        if len(kinds) < 2:
            return found if kinds else context.get_dummy_value()
        values = [builder.extract_value(found, k) for k in range(len(kinds))]
        return context.make_tuple(builder, signature.return_type, values)

    return build


def available() -> bool:
    """Whether the device of this thread has these instructions; the simulator has not."""
    return device.capability() >= _CAPABILITY


def multiplies_rows_in_double() -> bool:
    """Whether the device of this thread multiplies all rows in double precision at once; else eight."""
    return device.capability() >= _DOUBLE_ROWS


@functools.cache
def make_product(single: bool, all_rows: bool) -> Compiled:
    """Function that adds a product to four numbers of a thread: rows g, g, g + 8, g + 8.

    In single precision (a0, a1, a2, a3, b0, b1, c0, c1, c2, c3): pairs of half precision, packed. Those of a
    have rows g and g + 8 with numbers 2 t and 2 t + 1, then both with 8 more; those of b the same numbers
    with column g. In double precision a has rows g and g + 8 with number t, then both with 4 more; `all_rows`
    is for devices that `multiplies_rows_in_double`.
    """
    if not single:
        return _double_product(all_rows)
    if device.simulated():
        return emulated.make_product()
    # Products of half precision are exact and are added in float32 (rounded towards 0).
    four = types.UniTuple(types.float32, 4)
    code = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    )
    build = _instruction(code, "ffff", "rrrrrrffff")
    u32, f32 = types.uint32, types.float32

    @device.intrinsic
    def product(
        context: Any, a0: Scalar, a1: Scalar, a2: Scalar, a3: Scalar, b0: Scalar, b1: Scalar,
        c0: Scalar, c1: Scalar, c2: Scalar, c3: Scalar,
    ) -> Any:  # fmt: skip
        return four(u32, u32, u32, u32, u32, u32, f32, f32, f32, f32), build

    return product


def _double_product(all_rows: bool) -> Compiled:
    if all_rows:
        code = (
            "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
            "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
        )
    else:
        # Eight rows and four numbers at a time.
        eight = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "
        code = (
            f"{eight}{{$0,$1}}, {{$4}}, {{$8}}, {{$10,$11}}; {eight}{{$0,$1}}, {{$6}}, {{$9}}, {{$0,$1}}; "
            f"{eight}{{$2,$3}}, {{$5}}, {{$8}}, {{$12,$13}}; {eight}{{$2,$3}}, {{$7}}, {{$9}}, {{$2,$3}};"
        )
    f64 = types.float64
    four = types.UniTuple(f64, 4)
    build = _instruction(code, 4 * "d", 10 * "d", "&")

    @device.intrinsic
    def product(
        context: Any, a0: Scalar, a1: Scalar, a2: Scalar, a3: Scalar, b0: Scalar, b1: Scalar,
        c0: Scalar, c1: Scalar, c2: Scalar, c3: Scalar,
    ) -> Any:  # fmt: skip
        return four(f64, f64, f64, f64, f64, f64, f64, f64, f64, f64), build

    return product


@functools.cache
def make_turn(single: bool) -> Compiled:
    """Function that gives (y, -x) of (x, y): a packed pair, or the two numbers of double precision."""
    if single and device.simulated():
        return emulated.turn
    if single:
        # prmt swaps the halves, xor turns the sign of the upper one: two integer instructions for a pair.
        code = "{.reg .b32 x; prmt.b32 x, $1, $1, 0x1032; xor.b32 $0, x, 0x80000000;}"
        build = _instruction(code, "r", "r")
        u32 = types.uint32

        @device.intrinsic
        def turn(context: Any, pair: Scalar) -> Any:
            return u32(u32), build

        return turn

    # The sign alone, by an instruction that needs no unit for double precision.
    negative = _instruction("xor.b64 $0, $1, 0x8000000000000000;", "l", "l")
    f64 = types.float64

    @device.intrinsic
    def turn_sign(context: Any, x: Scalar) -> Any:
        def build_sign(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            bits = builder.bitcast(args[0], _KINDS["l"])
            return builder.bitcast(negative(target, builder, signature, [bits]), _KINDS["d"])

        return f64(f64), build_sign

    return turn_sign


@functools.cache
def make_address() -> Compiled:
    """Function that gives the address of a shared array, uint32."""
    if device.simulated():
        return emulated.Address

    @device.intrinsic
    def address(context: Any, array: Array) -> Any:
        def build(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = target.make_array(signature.args[0])(target, builder, args[0]).data
            number = builder.ptrtoint(pointer, _KINDS["l"])
            # Shared memory has 32-bit addresses: half the registers of a generic pointer, and ld.shared takes
            # them.
            code = "{.reg .u64 x; cvta.to.shared.u64 x, $1; cvt.u32.u64 $0, x;}"
            return _instruction(code, "r", "l")(target, builder, signature, [number])

        return types.uint32(array), build

    return address


@functools.cache
def make_load(single: bool) -> Compiled:
    """Function that reads 16 bytes of shared memory: four packed pairs, or two numbers."""
    if single and device.simulated():
        return emulated.load
    letter, n = ("r", 4) if single else ("d", 2)
    numba_kind = types.uint32 if single else types.float64
    outs = ", ".join(f"${k}" for k in range(n))
    # One vector load: the alignment of 16 bytes is the caller's, who lays operands out in units of 16.
    code = f"ld.shared.v{n}.{'b32' if single else 'f64'} {{{outs}}}, [${n}];"
    build = _instruction(code, n * letter, "r", "~{memory}")
    result = types.UniTuple(numba_kind, n)

    @device.intrinsic
    def load(context: Any, address: Scalar) -> Any:
        return result(types.uint32), build

    return load


def _element(target: Any, builder: Any, kinds: Any, args: Any) -> Any:
    """The address of element args[1] of the contiguous array args[0]."""
    first = target.make_array(kinds[0])(target, builder, args[0]).data
    size = target.get_abi_sizeof(target.get_data_type(kinds[0].dtype))
    return builder.add(builder.ptrtoint(first, _KINDS["l"]), builder.mul(args[1], _KINDS["l"](size)))


@functools.cache
def make_fetch_line() -> Compiled:
    """Function that has the line of element `k` (uint64) of an array brought to L2, without a wait."""
    if device.simulated():
        return emulated.fetch_line
    code = "{.reg .u64 x; cvta.to.global.u64 x, $0; prefetch.global.L2 [x];}"
    fetch = _instruction(code, "", "l")

    @device.intrinsic
    def fetch_line(context: Any, array: Array, k: Scalar) -> Any:
        def build(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _element(target, builder, signature.args, args)
            return fetch(target, builder, signature, [place])

        return types.void(array, types.uint64), build

    return fetch_line


@functools.cache
def make_read_complex() -> Compiled:
    """Function that reads element `k` (uint64) of an array of complex64 at once: real and imaginary part.

    The array is one that the kernel does not write; what is read once displaces nothing in L1.
    """
    if device.simulated():
        return emulated.read_complex
    code = "{.reg .u64 x; cvta.to.global.u64 x, $2; ld.global.nc.L1::no_allocate.v2.f32 {$0, $1}, [x];}"
    read = _instruction(code, "ff", "l")

    @device.intrinsic
    def read_complex(context: Any, array: Array, k: Scalar) -> Any:
        def build(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _element(target, builder, signature.args, args)
            return read(target, builder, signature, [place])

        return types.UniTuple(types.float32, 2)(array, types.uint64), build

    return read_complex


@functools.cache
def make_load_global() -> Compiled:
    """Function that reads four packed pairs from k times 16 bytes on, of an array that no kernel writes."""
    if device.simulated():
        return emulated.load_global
    code = (
        "{.reg .u64 x; cvta.to.global.u64 x, $4; mad.wide.u32 x, $5, 16, x; "
        "ld.global.nc.v4.b32 {$0, $1, $2, $3}, [x];}"
    )
    build = _instruction(code, "rrrr", "lr")
    result = types.UniTuple(types.uint32, 4)

    @device.intrinsic
    def load_global(context: Any, array: Array, k: Scalar) -> Any:
        def build_load(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = target.make_array(signature.args[0])(target, builder, args[0]).data
            return build(target, builder, signature, [builder.ptrtoint(pointer, _KINDS["l"]), args[1]])

        return result(array, types.uint32), build_load

    return load_global


@functools.cache
def make_place() -> Compiled:
    """Function that gives the address of element `k` (uint64) of an array in the device's memory, uint64."""
    if device.simulated():
        return emulated.place
    to_global = _instruction("cvta.to.global.u64 $0, $1;", "l", "l")

    @device.intrinsic
    def place(context: Any, array: Array, k: Scalar) -> Any:
        def build(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            return to_global(target, builder, signature, [_element(target, builder, signature.args, args)])

        return types.uint64(array, types.uint64), build

    return place


@functools.cache
def make_read_numbers(single: bool) -> Compiled:
    """Function that reads 16 bytes at an address, of an array that no kernel writes.

    Four numbers of single precision, or two of double precision.
    """
    if device.simulated():
        return emulated.read_numbers
    n, letter = (4, "f") if single else (2, "d")
    outs = ", ".join(f"${i}" for i in range(n))
    build = _instruction(f"ld.global.nc.v{n}.f{128 // n} {{{outs}}}, [${n}];", n * letter, "l")
    result = types.UniTuple(types.float32 if single else types.float64, n)

    @device.intrinsic
    def read_numbers(context: Any, address: Scalar) -> Any:
        return result(types.uint64), build

    return read_numbers


@functools.cache
def make_load_complex(single: bool) -> Compiled:
    """Function that reads a complex number of shared memory at once: real and imaginary part."""
    if device.simulated():
        return emulated.load_complex
    kind, letter = ("f32", "f") if single else ("f64", "d")
    build = _instruction(f"ld.shared.v2.{kind} {{$0, $1}}, [$2];", 2 * letter, "r", "~{memory}")
    result = types.UniTuple(types.float32 if single else types.float64, 2)

    @device.intrinsic
    def load_complex(context: Any, address: Scalar) -> Any:
        return result(types.uint32), build

    return load_complex


@functools.cache
def make_write_complex(single: bool) -> Compiled:
    """Function that writes complex number `k` (uint64) of an array of numbers at once."""
    if device.simulated():
        return emulated.write_complex
    kind, letter = ("f32", "f") if single else ("f64", "d")
    code = f"{{.reg .u64 x; cvta.to.global.u64 x, $0; st.global.v2.{kind} [x], {{$1, $2}};}}"
    write = _instruction(code, "", "l" + 2 * letter, "~{memory}")
    real = types.float32 if single else types.float64

    @device.intrinsic
    def write_complex(context: Any, array: Array, k: Scalar, re: Scalar, im: Scalar) -> Any:
        def build(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            number = builder.mul(args[1], _KINDS["l"](2))
            place = _element(target, builder, signature.args, [args[0], number])
            return write(target, builder, signature, [place, args[2], args[3]])

        return types.void(array, types.uint64, real, real), build

    return write_complex


@functools.cache
def make_store_pair() -> Compiled:
    """Function that writes a packed pair to shared memory."""
    if device.simulated():
        return emulated.store_pair
    build = _instruction("st.shared.b32 [$0], $1;", "", "rr", "~{memory}")
    u32 = types.uint32

    @device.intrinsic
    def store_pair(context: Any, address: Scalar, pair: Scalar) -> Any:
        return types.void(u32, u32), build

    return store_pair


@functools.cache
def make_split() -> Compiled:
    """Function that gives two numbers as packed pairs: rounded to half precision, and what is left."""
    if device.simulated():
        return emulated.split
    code = (
        "{.reg .b16 a, b; .reg .f32 x, y; cvt.rn.f16x2.f32 $0, $3, $2; mov.b32 {a, b}, $0; "
        "cvt.f32.f16 x, a; cvt.f32.f16 y, b; sub.f32 x, $2, x; sub.f32 y, $3, y; "
        "cvt.rn.f16x2.f32 $1, y, x;}"
    )
    build = _instruction(code, "rr", "ff", "&")

    @device.intrinsic
    def split(context: Any, x: Scalar, y: Scalar) -> Any:
        return types.UniTuple(types.uint32, 2)(types.float32, types.float32), build

    return split


@functools.cache
def make_whole() -> Compiled:
    """Function that gives two numbers from packed pairs: rounded to half precision, and what was left."""
    code = (
        "{.reg .b16 a, b, c, d; .reg .f32 x, y; mov.b32 {a, b}, $2; mov.b32 {c, d}, $3; "
        "cvt.f32.f16 $0, a; cvt.f32.f16 $1, b; cvt.f32.f16 x, c; cvt.f32.f16 y, d; "
        "add.f32 $0, $0, x; add.f32 $1, $1, y;}"
    )
    build = _instruction(code, "ff", "rr", "&")

    @device.intrinsic
    def whole(context: Any, high: Scalar, low: Scalar) -> Any:
        return types.UniTuple(types.float32, 2)(types.uint32, types.uint32), build

    return whole


@functools.cache
def make_weigh(half: int) -> Compiled:
    """Function that multiplies a number that is split by a pair that is: rounded, and what is left.

    (high, low, by): packed pairs of half precision; `by` has four numbers of half precision, two rounded and
    what is left of them, of which the first or the second are taken. With h = high by_high, the result is h
    rounded, and (h - this) + low by_high + high by_low.
    """
    register = "ab"[half]
    code = (
        "{.reg .b32 r, q, s, t; .reg .b16 a, b; mov.b64 {r, q}, $4; mov.b32 {a, b}, r; "
        f"mov.b32 s, {{{register}, {register}}}; mov.b32 {{a, b}}, q; mov.b32 t, {{{register}, {register}}}; "
        "mul.rn.f16x2 $0, $2, s; neg.f16x2 r, $0; fma.rn.f16x2 q, $2, s, r; fma.rn.f16x2 q, $3, s, q; "
        "fma.rn.f16x2 $1, $2, t, q;}"
    )
    build = _instruction(code, "rr", "rrl", "&")
    u32 = types.uint32

    @device.intrinsic
    def weigh(context: Any, high: Scalar, low: Scalar, by: Scalar) -> Any:
        return types.UniTuple(u32, 2)(u32, u32, types.uint64), build

    return weigh


@functools.cache
def make_store(single: bool) -> Compiled:
    """Function that writes 16 bytes of shared memory: four packed pairs, or two numbers."""
    if single:
        build = _instruction("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "", "rrrrr", "~{memory}")
        u32 = types.uint32

        @device.intrinsic
        def store_pairs(context: Any, address: Scalar, a: Scalar, b: Scalar, c: Scalar, d: Scalar) -> Any:
            return types.void(u32, u32, u32, u32, u32), build

        return store_pairs
    build_two = _instruction("st.shared.v2.f64 [$0], {$1, $2};", "", "rdd", "~{memory}")

    @device.intrinsic
    def store(context: Any, address: Scalar, x: Scalar, y: Scalar) -> Any:
        return types.void(types.uint32, types.float64, types.float64), build_two

    return store
