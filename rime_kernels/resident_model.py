"""Model visibilities that stay on a device, and what gains of their cells make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.types import DeviceArray
from rime_kernels.derivatives import Derivatives
from rime_kernels.engine import ResidentVisibilities
from rime_kernels.gradient import Gradient

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class ResidentModel:
    """V of one list of sources, made by `Rime.keep`; data D, weights w, and gains g (n_cell,) of cells."""

    sources: Sources
    resident: ResidentVisibilities
    derivatives: Derivatives

    def sums(self, scale: float) -> Array:
        """float64 (3, n_cell): sum w |V|^2, and real and imaginary part of sum w D conj(V), times `scale`."""
        with CALL_LOCK:
            return self.resident.sums(scale)

    def chi2(self, gain: Complex) -> float:
        """sum w |D - g V|^2."""
        with CALL_LOCK:
            return self.resident.chi2(gain)

    def pulled(self, gain: Complex, by_power: Array, by_cross: Complex) -> Gradient:
        """Re(J^H W r), r = 2 a |g|^2 V + conj(b) conj(g) D, with a `by_power` and b `by_cross` (n_cell,)."""
        with CALL_LOCK:
            return self.derivatives.of_resident(self.sources, self.resident.adjoint(gain, by_power, by_cross))

    def sums_on_device(self, scale: float) -> DeviceArray:
        """`sums` that stay on the device, until others take their place."""
        with CALL_LOCK:
            return self.resident.sums_on_device(scale)

    def pulled_on_device(self, scale: float, gain: DeviceArray, slopes: Sequence[DeviceArray]) -> Gradient:
        """`pulled` of arrays on the device: parts of g, (2 n_cell,); a, Re b and Im b, times `scale`."""
        with CALL_LOCK:
            return self.derivatives.of_resident(
                self.sources, self.resident.adjoint_on_device(scale, gain, slopes)
            )
