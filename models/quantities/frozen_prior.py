"""Priors from `scipy.stats`, for distributions that this package does not have itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.prior import Prior
from biro.models.quantities.strict import short_repr

Array = NDArray[np.float64]
# Central differences of sixth order: (f(x + k h) - f(x - k h)) times these over h, k = 1, 2, 3.
_DIFFERENCES = (3.0 / 4.0, -3.0 / 20.0, 1.0 / 60.0)


class Frozen(Prior):
    """Any frozen continuous distribution of scipy.stats, from Python only.

    Parameters
    ----------
    distribution : scipy.stats frozen distribution
        For example `scipy.stats.beta(2, 3)`; its scale is in `unit`.
    unit : str
    """

    family: ClassVar[str] = "frozen"

    # scipy.stats has no public type for a frozen distribution.
    def __init__(self, distribution: Any, unit: str = "") -> None:
        from scipy import stats

        if not isinstance(getattr(distribution, "dist", None), stats.rv_continuous):
            raise ModelError(
                f"Frozen needs a frozen continuous scipy.stats distribution such as scipy.stats.beta(2, 3), "
                f"found {short_repr(distribution)}"
            )
        if not units.is_unit(unit):
            raise ModelError(f"Frozen prior: unknown unit {short_repr(unit)}")
        self.distribution = distribution
        self.unit = unit
        self._check()

    def _check(self) -> None:
        name, args, keywords, _ = self._identity()
        scalar = all(np.ndim(value) == 0 for value in (*args, *(value for _, value in keywords)))
        if not scalar or not np.all(np.isfinite(self.distribution.ppf([0.25, 0.5, 0.75]))):
            raise ModelError(
                f"Frozen: scipy.stats.{name} with these numbers is not a proper distribution of one"
            )

    def _identity(self) -> tuple[str, tuple[float, ...], tuple[tuple[str, float], ...], str]:
        keywords = tuple(sorted(self.distribution.kwds.items()))
        return self.distribution.dist.name, tuple(self.distribution.args), keywords, self.unit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        name, args, keywords, unit = self._identity()
        texts = [*(repr(float(a)) for a in args), *(f"{key}={float(value)!r}" for key, value in keywords)]
        return f"Frozen(scipy.stats.{name}({', '.join(texts)}), unit={unit!r})"

    def transform(self, unit_cube: Array) -> Array:
        return np.asarray(self.distribution.ppf(unit_cube), dtype=np.float64)

    def log_density(self, x: Array) -> Array:
        return np.asarray(self.distribution.logpdf(x), dtype=np.float64)

    def log_slope(self, x: Array) -> Array:
        """By differences within the support (good to about 1e-10): scipy.stats has no derivatives."""
        low, high = self.support
        quarter, three = self.quantile_range(0.25)
        with np.errstate(invalid="ignore"):
            step = np.minimum(5e-3 * (three - quarter), 0.02 * np.minimum(x - low, high - x))
            rise = np.zeros(np.shape(x))
            for k, factor in enumerate(_DIFFERENCES, start=1):
                rise += factor * (self.log_density(x + k * step) - self.log_density(x - k * step))
            return rise / step
