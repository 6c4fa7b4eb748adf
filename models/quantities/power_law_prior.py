"""Power laws of any index, such as the counts of sources by their flux."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from biro.models.quantities.prior import Number, Prior
from biro.models.quantities.strict import strict

Array = NDArray[np.float64]


@strict
class PowerLaw(Prior):
    """Power law: p proportional to x^-index for 0 < low <= x <= high.

    The index, a plain number, may be any: 2.5 of sources that are counted through a static Euclidean space, 1
    is log-uniform, 0 uniform. In s, the distance of ln x from the end where x p(x) is higher, the density is
    that of an exponential with the rate a = |1 - index|, cut off at s = ln(high / low).
    """

    label: ClassVar[str] = "power-law prior"
    family: ClassVar[str] = "power-law"
    plain: ClassVar[tuple[str, ...]] = ("index",)
    index: Number
    low: Number
    high: Number
    unit: str = ""

    def _check(self) -> None:
        self.require(0 < self.low < self.high, "0 < low < high")

    def _kept(self) -> Number:
        """1 - exp(-a ln(high / low)), the part of the exponential before the cut."""
        return -np.expm1(-np.abs(1.0 - self.index) * (np.log(self.high) - np.log(self.low)))

    def transform(self, unit_cube: Array) -> Array:
        start, stop, rate = np.log(self.low), np.log(self.high), np.abs(1.0 - self.index)
        part = np.where(self.index > 1.0, unit_cube, 1.0 - unit_cube)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = np.where(rate > 0.0, -np.log1p(-part * self._kept()) / rate, part * (stop - start))
        theta: Array = np.clip(np.exp(np.where(self.index > 1.0, start + s, stop - s)), self.low, self.high)
        return theta

    def log_density(self, x: Array) -> Array:
        start, stop, rate = np.log(self.low), np.log(self.high), np.abs(1.0 - self.index)
        inside = (x >= self.low) & (x <= self.high)
        log = np.log(np.where(inside, x, self.low))
        s = np.where(self.index > 1.0, log - start, stop - log)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_norm = np.where(rate > 0.0, np.log(self._kept() / rate), np.log(stop - start))
        return np.where(inside, -rate * s - log - log_norm, -np.inf)

    def log_slope(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):
            slope: Array = -self.index / x
            return slope
