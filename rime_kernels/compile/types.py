"""Names for the values that compiled functions and CUDA work with, where no Python type describes them.

Most are `Any` to the type checker, for the reason beside each; to a reader they say what is meant.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

# ---- values in compiled functions: one text is compiled for several types

# A number, float32 or float64 as the caller compiles it; functions of physics get vectors, too.
Scalar: TypeAlias = Any
# Several numbers side by side (`rime_kernels.cpu.simd.Vector`): Numba knows its operators, Python does not.
Vector: TypeAlias = Any
# Where numbers lie in memory, without shape or bounds: p[i]. Made by `rime_kernels.cpu.simd.pointer`.
Pointer: TypeAlias = Any
# An array in a compiled function, of either precision: its numbers are `Any`.
Array: TypeAlias = NDArray[Any]
# A NamedTuple of pointers or arrays, of a class that depends on the caller; None where it is absent.
Record: TypeAlias = Any

# ---- what compiles them: Numba and llvmlite have no annotations

# A function that Numba has compiled, or is about to compile, for the CPU or a device.
Compiled: TypeAlias = Any
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

# An array on the device, as numba.cuda or CuPy makes it.
DeviceArray: TypeAlias = Any
# A stream of numba.cuda, or 0, the default stream.
Stream: TypeAlias = Any
# A module of numba.cuda, CuPy or the driver.
Module: TypeAlias = Any
# A record or handle of the CUDA driver.
DriverObject: TypeAlias = Any
