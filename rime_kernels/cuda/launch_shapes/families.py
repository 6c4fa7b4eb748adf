"""Kernels whose shapes are measured, and all that tuning has to know of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

# Bytes of shared memory that a kernel may declare, on every device; threads of a block, and of a warp.
MAX_SHARED, MAX_THREAD, WARP = 48 * 1024, 1024, 32
# Registers of a multiprocessor, and the most that one thread can have.
REGISTERS, MOST_REGISTER = 65536, 255

Kernel = Literal[
    "tiles", "rows", "transposition", "running median", "noise", "SumThreshold", "degridder", "gridder"
]
Antennas = Literal["fewest", "few", "many", "most", "any"]
# A frozen dataclass of integers, of the class that the kernel's family names.
Shape = Any
MODEL: tuple[Kernel, ...] = ("tiles", "rows")
"""Kernels that sum over sources, of which there are variants; others are of flagging and W-projection."""


class KernelKind(NamedTuple):
    """One shape is remembered for each of these on a device: a kernel, its variant, a class of sizes.

    That is a class of numbers of antennas, or, of W-projection, the largest support of the class, in cells,
    and the planes of the grid.
    """

    kernel: Kernel
    single: bool
    polarised: bool
    has_gaussian: bool
    antennas: Antennas
    support: int = 0
    n_plane: int = 0

    def __str__(self) -> str:
        words = ["single" if self.single else "double"]
        if self.kernel in MODEL:
            words += ["IQUV" if self.polarised else "I"]
            words += ["points and Gaussians" if self.has_gaussian else "points"]
        if self.antennas != "any":
            words += [f"{self.antennas} antennas"]
        if self.support:
            words += [f"up to {self.support} cells", f"{self.n_plane} plane{'s' * (self.n_plane > 1)}"]
        return ", ".join([self.kernel, *words])


def most_registers(n_thread: int) -> int:
    """Registers that each thread of a block may have; devices set them aside in multiples of 8."""
    return min(MOST_REGISTER, REGISTERS // n_thread // 8 * 8)


def _as_it_is(shape: Shape, name: str) -> Shape:
    return shape


@dataclass(frozen=True)
class Family:
    """What tuning has to know of a kernel beside a trial of it (`rime_kernels.tuning.trial`).

    Attributes
    ----------
    shape : type
        Class of its shapes.
    kinds : tuple of KernelKind
        All that shapes are remembered for.
    ladders : dict
        Values that a field of a shape may have; tuning varies the fields in this order.
    guess : function
        The shape that an untuned kernel of a kind gets, and where tuning starts.
    fits : function
        Whether a kernel of a kind and shape can be launched on every device, and is as precise as it must be.
    sources : str
        Pattern of the modules, below `rime_kernels`, whose text a record holds for.
    entailed : function, optional
        A shape of which the field of a name was changed, with the changes of others that this entails.
    """

    shape: type[Shape]
    kinds: tuple[KernelKind, ...]
    ladders: dict[str, tuple[int, ...]]
    guess: Callable[[KernelKind], Shape]
    fits: Callable[[KernelKind, Shape], bool]
    sources: str
    entailed: Callable[[Shape, str], Shape] = _as_it_is
