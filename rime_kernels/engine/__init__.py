"""What a `Rime` asks of the engine that works for it, on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint
from rime_kernels.arrays import Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.compile.types import DeviceArray
from rime_kernels.inputs import Output

# Complex in the working precision; float64 for `Output.WEIGHTED`.
Visibilities = NDArray[Any]


class ResidentVisibilities(Protocol):
    """Model visibilities V on a device, beside data D and weights w whose cells have gains g, (n_cell,)."""

    def sums(self, scale: float) -> NDArray[np.float64]:
        """float64 (3, n_cell): sum w |V|^2, and real and imaginary part of sum w D conj(V), times `scale`."""
        ...

    def chi2(self, gain: NDArray[np.complex128]) -> float:
        """sum w |D - g V|^2."""
        ...

    def adjoint(
        self,
        gain: NDArray[np.complex128],
        by_power: NDArray[np.float64],
        by_cross: NDArray[np.complex128],
    ) -> Adjoint:
        """Derivatives of chi2 where V - D is 2 a |g|^2 V + conj(b) conj(g) D, a and b those of cells."""
        ...

    def sums_on_device(self, scale: float) -> DeviceArray:
        """`sums` that stay on the device, until others take their place."""
        ...

    def adjoint_on_device(self, scale: float, gain: DeviceArray, slopes: Sequence[DeviceArray]) -> Adjoint:
        """`adjoint` of arrays on the device: parts of g, (2 n_cell,); a, Re b and Im b, times `scale`."""
        ...


class Engine(Protocol):
    """The measurement equation at fixed rows, for sources that have been checked.

    With the scaled degrees of freedom t of Student's t, chi2 stands for sum ln(1 + w |D - V|^2 / t), which is
    that of `Rime.chi2` divided by t. Batch entries with impossible values may give any number.
    """

    def run(self, sources: Sources, output: Output) -> Visibilities:
        """Model visibilities or what `output` makes of them, (n_batch, n_row, n_chan, n_corr)."""
        ...

    def start_chi2(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None, /
    ) -> Callable[[], NDArray[np.float64]]:
        """Begin to compute chi2, float64 (n_batch,); the function returned waits for it."""
        ...

    def start_adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None = None,
        /,
    ) -> Callable[[], Adjoint]:
        """Begin to compute chi2 and its derivatives; the function returned waits for them.

        `vis` (n_row, n_chan, n_corr) takes the place of the data.
        """
        ...

    def cache_model(self, sources: Sources, cells: RowCells) -> ResidentVisibilities | None:
        """V of one list of sources, to stay on a device; None where there is none, or where it cannot."""
        ...

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is computed, in words."""
        ...
