"""What a `Rime` asks of the engine that works for it, on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint
from rime_kernels.arrays import Sources
from rime_kernels.inputs import Output

# Complex in the working precision; float64 for `Output.WEIGHTED`.
Visibilities = NDArray[Any]


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

    def chi2_and_adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None = None,
        /,
    ) -> Adjoint:
        """chi2 and its derivatives; `vis` (n_row, n_chan, n_corr) takes the place of the data."""
        ...

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is computed, in words."""
        ...
