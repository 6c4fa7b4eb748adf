"""Names for the values that compiled functions and CUDA work with, where no Python type describes them.

Classes here are protocols of what Numba and CUDA make, which have no annotations of their own. Some names are
`Any` to the type checker, for the reason beside each; to a reader they say what is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

# ---- values in compiled functions: one text is compiled for several types

# A number, float32 or float64 as the caller compiles it; functions of physics get vectors, too.
Scalar: TypeAlias = Any


class Vector(Protocol):
    """Several numbers side by side (`rime_kernels.cpu.simd.Vector`); such functions take numbers, too."""

    def __add__(self, other: Vector, /) -> Vector: ...
    def __sub__(self, other: Vector, /) -> Vector: ...
    def __mul__(self, other: Vector, /) -> Vector: ...
    def __truediv__(self, other: Vector, /) -> Vector: ...
    def __neg__(self) -> Vector: ...


# A matrix 2 x 2: eight vectors or numbers, real and imaginary part of 00, 01, 10, 11.
Matrix: TypeAlias = tuple[Vector, ...]


class Pointer(Protocol):
    """Where numbers lie in memory, without shape or bounds; `rime_kernels.cpu.simd.pointer` makes it."""

    def __getitem__(self, index: int, /) -> Any: ...
    def __setitem__(self, index: int, value: Any, /) -> None: ...


# An array in a compiled function, of either precision: its numbers are `Any`.
Array: TypeAlias = NDArray[Any]
# A NamedTuple of pointers or arrays, of a class that depends on the caller; None where it is absent.
Record: TypeAlias = Any

# ---- what compiles them: Numba and llvmlite have no annotations

# A function that Numba has compiled, or is about to compile, for the CPU or a device.
Compiled: TypeAlias = Callable[..., Any]


class DeviceKernel(Protocol):
    """A kernel of a device: kernel[blocks, threads](...) launches it, on a stream where there is a third."""

    def __getitem__(self, launch: tuple[Any, ...], /) -> Callable[..., None]: ...


# The type of an argument, as Numba infers it (`numba.types.Type`).
NumbaType: TypeAlias = Any
# Numba's contexts of typing and of code generation, and the signature that is compiled.
TypingContext: TypeAlias = Any
TargetContext: TypeAlias = Any
Signature: TypeAlias = Any
# llvmlite's builder of instructions, a value that an instruction has made, and the values of all arguments.
IrBuilder: TypeAlias = Any
IrValue: TypeAlias = Any
IrValues: TypeAlias = Any

# ---- CUDA: the modules are imported when a device is used, and have no annotations

# An array on the device, as numba.cuda or CuPy makes it: kernels take these where functions take NumPy's.
DeviceArray: TypeAlias = Any
# A stream of numba.cuda, or 0, the default stream.
Stream: TypeAlias = Any
# A module of numba.cuda, CuPy or the driver.
Module: TypeAlias = Any
# A record or handle of the CUDA driver.
DriverObject: TypeAlias = Any
