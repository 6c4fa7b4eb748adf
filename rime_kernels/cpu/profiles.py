"""Profiles on the CPU: their envelopes, lane by lane, between the vectors of phases and sums.

What is here is compiled only where there are profiles: in place of `Profiles` there is None otherwise.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rime_kernels.compile.jit import inner_function, serial_loop, vector_function
from rime_kernels.compile.types import (
    Compiled,
    IrBuilder,
    IrValue,
    IrValues,
    Module,
    NumbaType,
    Pointer,
    Record,
    Signature,
    TargetContext,
    TypingContext,
    Vector,
)
from rime_kernels.cpu.simd import (
    ahead,
    constant,
    convert,
    dot,
    lane,
    load,
    pointer,
    repeat,
    size,
    spread,
    store,
    with_lane,
)
from rime_kernels.inputs import Inputs
from rime_kernels.physics import envelope, phase
from rime_kernels.physics.profiles import N_PARAMETER
from rime_kernels.physics.registered import RegisteredProfile, make_slopes, make_visibility

ir: Module = cgutils.ir  # of llvmlite
_INDEX = ir.IntType(32)
# Names that the compiled functions see: an attribute of a module would not be part of the cache.
_turns, _AXIS_SCALE, _C = phase.turns, envelope.AXIS_SCALE, phase.SPEED_OF_LIGHT
# From derivatives with respect to coordinates to what the sums of Gaussians have: `cpu.gradient.adjoint_of`.
_OF_PROJECTION = -0.5 * envelope.AXIS_SCALE / phase.SPEED_OF_LIGHT


class ProfileFunctions(NamedTuple):
    """Where the machine code of the functions of profiles lies.

    Loops call it by its address: they are compiled once for all profiles, those of a user's own included, and
    the long functions are compiled once, not again within every function that calls them.
    """

    visibility: int
    slopes: int


# Kind, coordinates, frequency, parameters.
_ARGUMENTS = types.int64, types.float64, types.float64, types.float64, types.CPointer(types.float64)
_N_SLOPE = 6 + 2 * N_PARAMETER


@functools.cache
def functions_of(registered: tuple[RegisteredProfile, ...] | None) -> ProfileFunctions | None:
    """The functions of profiles, those of a user's own among them; None without profiles."""
    if registered is None:
        return None
    return ProfileFunctions(
        _address(make_visibility(registered), 2), _address(make_slopes(registered), _N_SLOPE)
    )


_KEPT: list[Compiled] = []


def _address(function: Compiled, n: int) -> int:
    """The address of machine code that puts the n numbers which a function gives where it is told."""

    def put(kind: int, a: float, b: float, nu: float, p: Pointer, out: Pointer) -> None:
        values = function(kind, a, b, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], nu)
        for k in range(n):
            out[k] = values[k]

    entry: Any = serial_loop(put)
    arguments = *_ARGUMENTS, types.CPointer(types.float64)
    entry.compile(arguments)
    _KEPT.append(entry)  # for as long as the process lives, as what is compiled with it
    # `numba.cfunc(...).address` is the documented way, but our cache does not keep a cfunc: each process
    # would compile for 0.6 s what it now finds in 0.01 s.
    code = entry.overloads[arguments]
    return int(code.library.get_pointer_to_function(code.fndesc.llvm_func_name))


def _make_call(n: int) -> Compiled:
    @intrinsic
    def call(
        typingctx: TypingContext, address: NumbaType, kind: NumbaType, a: NumbaType, b: NumbaType,
        nu: NumbaType, parameters: NumbaType,
    ) -> IrValue:  # fmt: skip
        """The n numbers that the function at this address gives of these `_ARGUMENTS`."""
        result = types.UniTuple(types.float64, n)

        def generate(context: TargetContext, builder: IrBuilder, sig: Signature, args: IrValues) -> IrValue:
            double, byte = ir.DoubleType(), ir.IntType(8).as_pointer()
            out = cgutils.alloca_once(builder, ir.ArrayType(double, n))
            first = builder.bitcast(out, double.as_pointer())
            # Numba's own convention: where to put a result and an error, neither of which there are.
            unused = [cgutils.alloca_once(builder, byte), cgutils.alloca_once(builder, byte)]
            given = [builder.bitcast(x, byte) for x in unused] + list(args[1:]) + [first]
            kind_of = ir.FunctionType(ir.IntType(32), [x.type for x in given])
            builder.call(builder.inttoptr(args[0], kind_of.as_pointer()), given)
            values = [builder.load(builder.gep(first, [ir.Constant(_INDEX, k)])) for k in range(n)]
            return context.make_tuple(builder, result, values)

        return result(types.int64, *_ARGUMENTS), generate

    return call


call_visibility, call_slopes = _make_call(2), _make_call(_N_SLOPE)


class Profiles(NamedTuple):
    """The profiles of a task; pointers to contiguous arrays."""

    first: int  # their first, of all sources
    projection: Pointer  # float64 (n_profile, 2, 3)
    parameter: Pointer  # float64 (n_profile, 8)
    kind: Pointer  # float64 (n_profile,)
    functions: ProfileFunctions
    nu: Vector  # float64, Hz


@inner_function
def profiles_of(functions: ProfileFunctions | None, inputs: Inputs, b: int, scale: Vector) -> Profiles | None:
    """The profiles of entry b of the batch at nu/c = `scale`; None without functions."""
    if functions is None:
        return None
    n_profile, n_shape = inputs.profile_kind.shape[0], inputs.projection.shape[1]
    return Profiles(
        inputs.direction.shape[1] - n_profile,
        ahead(pointer(inputs.projection[b]), 6 * (n_shape - n_profile)),
        pointer(inputs.profile[b]),
        pointer(inputs.profile_kind),
        functions,
        scale * constant(_C, scale),
    )


@vector_function
def n_before_profiles(profiles: Record, first: int, n_source: int) -> int:
    """How many of n_source sources from `first` on are none."""
    if profiles is None:
        return n_source
    return min(max(profiles.first - first, 0), n_source)


@vector_function
def _coordinate(u: Vector, v: Vector, w: Vector, projection: Pointer, offset: int) -> Vector:
    """maj a or min b at coordinates in wavelengths."""
    along = _turns(
        u,
        v,
        w,
        spread(projection[offset], u),
        spread(projection[offset + 1], u),
        spread(projection[offset + 2], u),
    )
    return along * constant(_AXIS_SCALE, u)


@inner_function
def profile_envelope(profiles: Profiles, j: int, u: Vector, v: Vector, w: Vector) -> tuple[Vector, Vector]:
    """Real and imaginary part of the envelope of profile j at coordinates in wavelengths, float64."""
    along = _coordinate(u, v, w, profiles.projection, 6 * j)
    across = _coordinate(u, v, w, profiles.projection, 6 * j + 3)
    p, kind = ahead(profiles.parameter, 8 * j), int(profiles.kind[j])
    re, im = constant(0.0, u), constant(0.0, u)
    for i in range(size(u)):
        x, y = call_visibility(
            profiles.functions.visibility, kind, lane(along, i), lane(across, i), lane(profiles.nu, i), p
        )
        re, im = with_lane(re, i, x), with_lane(im, i, y)
    return re, im


@vector_function
def enveloped(
    profiles: Profiles, j: int, u: Vector, v: Vector, w: Vector, re: Vector, im: Vector, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """A product of antennas' terms times the envelope of profile j."""
    e_re, e_im = profile_envelope(profiles, j, u, v, w)
    e_re, e_im = convert(e_re, lanes_like), convert(e_im, lanes_like)
    return e_re * re - e_im * im, e_re * im + e_im * re


@vector_function
def _metres(values: Pointer, n_flat: int, k: int, e: int, lane_like: Vector, wide: Vector) -> Vector:
    """Coordinate k of entry e in metres, float64, in all lanes."""
    return repeat(load(values, k * n_flat + e * size(lane_like), lane_like), wide)


@vector_function
def zero_axes(wide: Vector) -> tuple[Vector, ...]:
    """The sums of `pull_entry` before the first entry."""
    zero = constant(0.0, wide)
    return zero, zero, zero, zero, zero, zero


@inner_function
def pull_entry(
    profiles: Profiles, entries: Record, e: int, j: int, y_re: Vector, y_im: Vector, axes: tuple[Vector, ...],
    of_profile: Pointer, lane_like: Vector,
) -> tuple[Vector, Vector, tuple[Vector, ...]]:  # fmt: skip
    """Add entry e to the sums of profile j for its axes, and to those for its parameters.

    Gives the envelope's real and imaginary part, and the sums for the axes; y, float64, as in `Adjoint`.
    """
    n_flat = entries.n_flat
    p, kind, zero = ahead(profiles.parameter, 8 * j), int(profiles.kind[j]), constant(0.0, y_re)
    u = _metres(entries.metres, n_flat, 0, e, lane_like, y_re)
    v = _metres(entries.metres, n_flat, 1, e, lane_like, y_re)
    w = _metres(entries.metres, n_flat, 2, e, lane_like, y_re)
    along = _coordinate(u, v, w, profiles.projection, 6 * j) * entries.scale
    across = _coordinate(u, v, w, profiles.projection, 6 * j + 3) * entries.scale
    e_re, e_im, of_a, of_b = zero, zero, zero, zero
    for i in range(size(y_re)):
        slopes = call_slopes(
            profiles.functions.slopes, kind, lane(along, i), lane(across, i), lane(profiles.nu, i), p
        )
        x, y = lane(y_re, i), lane(y_im, i)
        e_re, e_im = with_lane(e_re, i, slopes[0]), with_lane(e_im, i, slopes[1])
        of_a = with_lane(of_a, i, slopes[2] * x + slopes[3] * y)
        of_b = with_lane(of_b, i, slopes[4] * x + slopes[5] * y)
        for k in range(8):
            of_profile[k] += slopes[6 + 2 * k] * x + slopes[7 + 2 * k] * y
    axes = (
        axes[0] + of_a * u, axes[1] + of_a * v, axes[2] + of_a * w,
        axes[3] + of_b * u, axes[4] + of_b * v, axes[5] + of_b * w,
    )  # fmt: skip
    return e_re, e_im, axes


@inner_function
def add_axes(entries: Record, axes: tuple[Vector, ...], of_projection: Pointer) -> None:
    """Add the sums of `pull_entry` over a chunk to those of the profile."""
    # The sums of a Gaussian are multiplied by the square of the frequency in the end, these by the frequency.
    factor = constant(_OF_PROJECTION, axes[0]) / entries.scale
    for k in range(6):
        _add(of_projection, k * size(axes[0]), factor * axes[k])


@inner_function
def pull_profile(
    profiles: Profiles, entries: Record, products: Pointer, gains: Record, j: int, bright: Pointer,
    of_projection: Pointer, of_profile: Pointer, lane_like: Vector, lanes_like: Vector, stokes: Vector,
    wide: Vector,
) -> None:  # fmt: skip
    """Add a chunk of entries to the sums of profile j for its axes and parameters; puts its envelope in.

    From K_pq, (n_entry, 2, n), which becomes K_pq times the envelope. `gains` as for `adjoint._add_source`.
    """
    n, n_all, b, axes = size(lanes_like), size(stokes), load(bright, 0, stokes), zero_axes(wide)
    for e in range(entries.n_entry):
        k_re, k_im = load(products, 2 * n * e, lanes_like), load(products, 2 * n * e + n, lanes_like)
        s_re = dot(b, load(entries.residual, 2 * n_all * e, stokes), lanes_like)
        s_im = dot(b, load(entries.residual, 2 * n_all * e + n_all, stokes), lanes_like)
        y_re, y_im = k_re * s_re + k_im * s_im, k_re * s_im - k_im * s_re
        if gains is not None:
            at_p = n * gains.n_source * entries.antenna[2 * e]
            at_q = n * gains.n_source * entries.antenna[2 * e + 1]
            power = load(gains.voltage, at_p, lanes_like) * load(gains.voltage, at_q, lanes_like)
            y_re, y_im = power * y_re, power * y_im
        e_re, e_im, axes = pull_entry(
            profiles, entries, e, j, convert(y_re, wide), convert(y_im, wide), axes, of_profile, lane_like
        )
        e_re, e_im = convert(e_re, lanes_like), convert(e_im, lanes_like)
        store(products, 2 * n * e, e_re * k_re - e_im * k_im)
        store(products, 2 * n * e + n, e_re * k_im + e_im * k_re)
    add_axes(entries, axes, of_projection)


@vector_function
def _add(sums: Pointer, offset: int, vector: Vector) -> None:
    store(sums, offset, load(sums, offset, vector) + vector)
