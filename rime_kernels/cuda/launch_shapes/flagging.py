"""The shapes of the kernels of flagging, whose flags do not depend on them, nor on what is flagged."""

from __future__ import annotations

from dataclasses import dataclass

from rime_kernels import device
from rime_kernels.cuda.launch_shapes.families import MAX_SHARED, MAX_THREAD, WARP, Family, Kernel, KernelKind

_MAX_EACH, _MAX_NUMBER, _MAX_BIT = 30, 64, 4
# Samples that the longest window of SumThreshold reaches beyond those of a block.
_REACH = 127


@dataclass(frozen=True)
class TransposeShape:
    """How a transposition is cut.

    Attributes
    ----------
    side : int
        Matrices are cut into squares of this side, which a block brings through shared memory.
    padding : int
        Numbers that rows of a square are longer than needed; 1 lets a column lie in different banks.
    n_each : int
        Numbers of a square that a thread moves; a divisor of the side.
    """

    side: int = 32
    padding: int = 1
    n_each: int = 4


@dataclass(frozen=True)
class MedianShape:
    """How running medians are cut.

    Attributes
    ----------
    n_thread : int
        Threads of a block, each with a spectrum of its own.
    n_part : int
        Channels that a thread walks over, after those that fill its first window.
    """

    n_thread: int = 64
    n_part: int = 256


@dataclass(frozen=True)
class NoiseShape:
    """How the medians of lines, of which noises are made, are cut.

    Attributes
    ----------
    n_each : int
        Numbers that a thread holds in registers. A block has as many threads as a line needs: lines that
        need more than a block can have are read from memory again and again.
    n_bit : int
        Bits of a median that are found each time that numbers are counted, up to 2^n_bit - 1 bounds at once.
    """

    n_each: int = 32
    n_bit: int = 1


@dataclass(frozen=True)
class RunShape:
    """How SumThreshold is cut.

    Attributes
    ----------
    n_thread : int
        Threads of a block: fewer where lines are short, more where windows are long.
    n_each : int
        Neighbouring samples of a thread; odd, so that those of its neighbours lie in other banks.
    """

    n_thread: int = 128
    n_each: int = 15


def _kind(kernel: Kernel) -> KernelKind:
    return KernelKind(kernel, True, False, False, "any")


TRANSPOSITION, MEDIAN = _kind("transposition"), _kind("running median")
NOISE, RUNS = _kind("noise"), _kind("SumThreshold")
"""Each kernel of flagging has one kind, of float32."""


def _fits_transposition(kind: KernelKind, shape: TransposeShape) -> bool:
    side, n_each = shape.side, shape.n_each
    if min(side, n_each) < 1 or shape.padding < 0 or side % n_each or side * side // n_each > MAX_THREAD:
        return False
    return 4 * side * (side + shape.padding) <= MAX_SHARED


def _fits_medians(kind: KernelKind, shape: MedianShape) -> bool:
    return _is_block(shape.n_thread) and shape.n_part > 0


def _fits_noise(kind: KernelKind, shape: NoiseShape) -> bool:
    return 1 <= shape.n_each <= _MAX_NUMBER and 1 <= shape.n_bit <= _MAX_BIT


def _fits_runs(kind: KernelKind, shape: RunShape) -> bool:
    if not _is_block(shape.n_thread) or not 1 <= shape.n_each <= _MAX_EACH:
        return False
    return 4 * (shape.n_thread * (shape.n_each + 2) + _REACH) <= MAX_SHARED


def _is_block(n_thread: int) -> bool:
    return 0 < n_thread <= MAX_THREAD and n_thread % WARP == 0


FAMILIES: dict[Kernel, Family] = {
    "transposition": Family(
        shape=TransposeShape,
        kinds=(TRANSPOSITION,),
        ladders={"n_each": (1, 2, 4, 8, 16), "padding": (0, 1, 2)},
        guess=lambda kind: TransposeShape(4, 1, 2) if device.simulated() else TransposeShape(),
        fits=_fits_transposition,
        sources="flagging/cuda/**/*.py",
    ),
    "running median": Family(
        shape=MedianShape,
        kinds=(MEDIAN,),
        ladders={"n_part": (32, 64, 128, 256, 512, 1024), "n_thread": (32, 64, 128, 256)},
        guess=lambda kind: MedianShape(4, 16) if device.simulated() else MedianShape(),
        fits=_fits_medians,
        sources="flagging/cuda/**/*.py",
    ),
    "noise": Family(
        shape=NoiseShape,
        kinds=(NOISE,),
        ladders={"n_each": (4, 8, 16, 32, 64), "n_bit": (1, 2, 3)},
        guess=lambda kind: NoiseShape(4, 2) if device.simulated() else NoiseShape(),
        fits=_fits_noise,
        sources="flagging/cuda/**/*.py",
    ),
    "SumThreshold": Family(
        shape=RunShape,
        kinds=(RUNS,),
        ladders={"n_each": (3, 5, 7, 9, 11, 15, 19, 23), "n_thread": (32, 64, 128, 256, 512)},
        guess=lambda kind: RunShape(8, 5) if device.simulated() else RunShape(),
        fits=_fits_runs,
        sources="flagging/cuda/**/*.py",
    ),
}
