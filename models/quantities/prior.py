"""Priors of single parameters: each class gives the log density and the transform of the unit cube.

All methods work on arrays, and the numbers of a prior may be arrays as well: the priors of one family are
stacked into a single prior whose numbers are arrays, so that a whole model takes a few calls of numpy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.strict import did_you_mean, key_names, short_repr, strict

Array = NDArray[np.float64]
# The user gives a float, a text with unit or an astropy quantity. In a prior it is a float, or an array
# where the prior stands for several (`Prior.stack`).
Number: TypeAlias = Any
_P = TypeVar("_P", bound="Prior")
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_BISECTIONS = 60
_NARROWEST, _WIDEST = 1e-50, 1e50
"""Widths that a prior may have, in its unit: beyond them, variances are not numbers any more."""


class Prior(ABC):
    """A probability density of one parameter, in the unit that it was written in.

    Numbers may be given as floats with `unit`, or as text ("0.1 Jy"); the unit of the prior
    is `unit` where given, else that of the first number that has one.
    """

    family: ClassVar[str]
    unit: str
    # Names of numbers that are computed from the fields, and stacked as the fields are.
    derived: ClassVar[tuple[str, ...]] = ()
    may_be_infinite: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[tuple[str, ...]] = ()
    """Numbers that have no unit, whatever that of the prior is."""
    marginalise: bool = False
    """Whether a likelihood integrates over the quantity itself: normal priors have this key."""

    def __post_init__(self) -> None:
        read = {}
        for name in self._numbers():
            try:
                read[name] = units.number(getattr(self, name))
            except ModelError as error:
                raise ModelError(f"{name}: {error}") from None
        units_given = (unit for name, (_, unit) in read.items() if unit and name not in self.plain)
        unit = self.unit or next(units_given, "")
        if not isinstance(unit, str) or not units.is_unit(unit):
            raise ModelError(
                f"unit: unknown unit {short_repr(unit)}{did_you_mean(unit, ('arcsec', 'deg', 'Jy', 'GHz'))}"
            )
        for name, (value, own) in read.items():
            if own and name in self.plain:
                raise ModelError(f"{name} is a plain number, found {value:g} {own}")
            if math.isinf(value) and name not in self.may_be_infinite:
                raise ModelError(f"{name} must be finite, found {value}")
            object.__setattr__(self, name, units.convert(value, unit if own is None else own, unit))
        object.__setattr__(self, "unit", unit)
        self._check()
        low, high = self.quantile_range(0.25)
        self.require(
            high - low >= _NARROWEST and max(abs(low), abs(high)) <= _WIDEST,
            f"a middle half that is wider than {_NARROWEST:g}, and no number above {_WIDEST:g}",
        )

    @abstractmethod
    def _check(self) -> None:
        """Raise `ModelError` unless the numbers make a density."""

    @abstractmethod
    def transform(self, unit_cube: Array) -> Array:
        """The quantile: the value whose cumulative probability is `unit_cube` (float64, any shape)."""

    @abstractmethod
    def log_density(self, x: Array) -> Array:
        """Natural log of the normalised density per unit at x (float64, any shape); -inf outside."""

    @abstractmethod
    def log_slope(self, x: Array) -> Array:
        """Derivative of `log_density` with respect to x; it means nothing outside the support."""

    def cumulative(self, x: Array) -> Array:
        """Probability below x, by bisection of `transform`: too slow for use while sampling."""
        x = np.asarray(x, dtype=np.float64)
        low, high = np.zeros(x.shape), np.ones(x.shape)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = self.transform(middle) < x
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where(x <= self.support[0], 0.0, np.where(x >= self.support[1], 1.0, 0.5 * (low + high)))

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest value; they may be infinite."""
        low, high = self.transform(np.array([0.0, 1.0]))
        return float(low), float(high)

    def quantile_range(self, tail: float) -> tuple[float, float]:
        """The range outside which the probability is `tail` on either side."""
        low, high = self.transform(np.array([tail, 1.0 - tail]))
        return float(low), float(high)

    def require(self, condition: bool, text: str) -> None:
        """Raise `ModelError` unless `condition` holds: it says what is needed, `text`, and all numbers."""
        if not condition:
            numbers = ", ".join(f"{name} = {getattr(self, name)}" for name in self._numbers())
            raise ModelError(f"needs {text}, found {numbers} {self.unit}".rstrip())

    @classmethod
    def _numbers(cls) -> list[str]:
        """The keys that are numbers."""
        return [name for name in key_names(cls) if name not in ("unit", "marginalise")]

    @classmethod
    def stack(cls: type[_P], priors: Sequence[_P]) -> _P:
        """One prior of the same family whose numbers are arrays, for parameters on the last axis."""
        stacked = object.__new__(cls)
        for name in (*cls._numbers(), *cls.derived):
            object.__setattr__(stacked, name, np.array([getattr(prior, name) for prior in priors]))
        object.__setattr__(stacked, "unit", "")
        return stacked


@strict
class Uniform(Prior):
    """Uniform: p = 1 / (high - low) for low <= x <= high."""

    label: ClassVar[str] = "uniform prior"
    family: ClassVar[str] = "uniform"
    low: Number
    high: Number
    unit: str = ""

    def _check(self) -> None:
        self.require(self.low < self.high, "low < high")
        self.require(math.isfinite(self.high - self.low), "a finite width")

    def transform(self, unit_cube: Array) -> Array:
        theta: Array = np.minimum(self.low + unit_cube * (self.high - self.low), self.high)
        return theta

    def log_density(self, x: Array) -> Array:
        return np.where((x >= self.low) & (x <= self.high), -np.log(self.high - self.low), -np.inf)

    def log_slope(self, x: Array) -> Array:
        return np.zeros(x.shape)


@strict
class LogUniform(Prior):
    """Log-uniform: p = 1 / (x ln(high / low)) for 0 < low <= x <= high."""

    label: ClassVar[str] = "log-uniform prior"
    family: ClassVar[str] = "log-uniform"
    low: Number
    high: Number
    unit: str = ""

    def _check(self) -> None:
        self.require(0 < self.low < self.high, "0 < low < high")

    def transform(self, unit_cube: Array) -> Array:
        start, stop = np.log(self.low), np.log(self.high)
        theta: Array = np.clip(np.exp(start + unit_cube * (stop - start)), self.low, self.high)
        return theta

    def log_density(self, x: Array) -> Array:
        inside = (x >= self.low) & (x <= self.high)
        return np.where(
            inside, -np.log(np.where(inside, x, 1.0)) - np.log(np.log(self.high) - np.log(self.low)), -np.inf
        )

    def log_slope(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):
            return -1.0 / x


@strict
class Normal(Prior):
    """Normal: p = exp(-z^2 / 2) / (sd sqrt(2 pi)), z = (x - mean) / sd.

    With `marginalise`, for quantities in which visibilities are linear, a likelihood integrates over it
    analytically, so that nothing samples it; its posterior is restored afterwards.
    """

    label: ClassVar[str] = "normal prior"
    family: ClassVar[str] = "normal"
    mean: Number
    sd: Number
    unit: str = ""
    marginalise: bool = field(default=False, repr=False)

    def _check(self) -> None:
        self.require(self.sd > 0, "sd > 0")

    def transform(self, unit_cube: Array) -> Array:
        theta: Array = self.mean + self.sd * special.ndtri(unit_cube)
        return theta

    def log_density(self, x: Array) -> Array:
        z = (x - self.mean) / self.sd
        log_density: Array = -0.5 * z * z - np.log(self.sd) - _LOG_SQRT_2PI
        return log_density

    def log_slope(self, x: Array) -> Array:
        slope: Array = (self.mean - x) / self.sd**2
        return slope


@strict
class LogNormal(Prior):
    """Log-normal: ln(x / median) is normal with standard deviation sd, a plain number, and mean 0."""

    label: ClassVar[str] = "log-normal prior"
    family: ClassVar[str] = "log-normal"
    plain: ClassVar[tuple[str, ...]] = ("sd",)
    sd: Number
    median: Number = 1.0
    unit: str = ""

    def _check(self) -> None:
        self.require(self.sd > 0, "sd > 0")
        self.require(self.median > 0, "median > 0")

    def transform(self, unit_cube: Array) -> Array:
        theta: Array = self.median * np.exp(self.sd * special.ndtri(unit_cube))
        return theta

    def log_density(self, x: Array) -> Array:
        inside = x > 0
        log = np.log(np.where(inside, x, 1.0))
        z = (log - np.log(self.median)) / self.sd
        return np.where(inside, -0.5 * z * z - log - np.log(self.sd) - _LOG_SQRT_2PI, -np.inf)

    def log_slope(self, x: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            slope: Array = -(1.0 + np.log(x / self.median) / self.sd**2) / x
            return slope


@strict
class TruncatedNormal(Prior):
    """Normal(mean, sd) for low <= x <= high, normalised there; a limit that is not given is infinite."""

    label: ClassVar[str] = "truncated-normal prior"
    family: ClassVar[str] = "truncated-normal"
    derived: ClassVar[tuple[str, ...]] = ("mirror", "log_cdf_low", "log_cdf_high", "log_mass")
    may_be_infinite: ClassVar[tuple[str, ...]] = ("low", "high")
    mean: Number
    sd: Number
    low: Number = -math.inf
    high: Number = math.inf
    unit: str = ""

    def _check(self) -> None:
        self.require(self.sd > 0, "sd > 0")
        self.require(self.low < self.high, "low < high")
        a, b = (self.low - self.mean) / self.sd, (self.high - self.mean) / self.sd
        # A range above the mean is mirrored to below it: above, log_ndtr of both ends is almost 0.
        mirror = -1.0 if a > 0 else 1.0
        if mirror < 0:
            a, b = -b, -a
        log_low, log_high = float(special.log_ndtr(a)), float(special.log_ndtr(b))
        log_mass = log_high + math.log1p(-math.exp(log_low - log_high)) if log_low < log_high else -math.inf
        self.require(math.isfinite(log_mass), "some probability between low and high")
        derived = (mirror, log_low, log_high, log_mass)
        for name, value in zip(self.derived, derived, strict=True):
            object.__setattr__(self, name, value)

    mirror: ClassVar[Number]
    log_cdf_low: ClassVar[Number]
    log_cdf_high: ClassVar[Number]
    log_mass: ClassVar[Number]

    def transform(self, unit_cube: Array) -> Array:
        u = np.where(self.mirror > 0, unit_cube, 1.0 - unit_cube)
        with np.errstate(divide="ignore"):
            log_cdf = np.logaddexp(self.log_cdf_low + np.log1p(-u), self.log_cdf_high + np.log(u))
        x = self.mean + self.sd * self.mirror * special.ndtri_exp(np.minimum(log_cdf, 0.0))
        theta: Array = np.clip(x, self.low, self.high)
        return theta

    def log_density(self, x: Array) -> Array:
        z = (x - self.mean) / self.sd
        density = -0.5 * z * z - np.log(self.sd) - _LOG_SQRT_2PI - self.log_mass
        return np.where((x >= self.low) & (x <= self.high), density, -np.inf)

    def log_slope(self, x: Array) -> Array:
        slope: Array = (self.mean - x) / self.sd**2
        return slope


@strict
class HalfNormal(Prior):
    """Half-normal: p = sqrt(2 / pi) exp(-x^2 / (2 sd^2)) / sd for x >= 0."""

    label: ClassVar[str] = "half-normal prior"
    family: ClassVar[str] = "half-normal"
    sd: Number
    unit: str = ""

    def _check(self) -> None:
        self.require(self.sd > 0, "sd > 0")

    def transform(self, unit_cube: Array) -> Array:
        # The quantile of (1 - u)/2, negated, is that of (1 + u)/2, but does not lose digits near u = 1.
        theta: Array = -self.sd * special.ndtri(0.5 * (1.0 - unit_cube))
        return theta

    def log_density(self, x: Array) -> Array:
        z = x / self.sd
        density = -0.5 * z * z - np.log(self.sd) - _LOG_SQRT_2PI + math.log(2.0)
        return np.where(x >= 0, density, -np.inf)

    def log_slope(self, x: Array) -> Array:
        slope: Array = -x / self.sd**2
        return slope


@strict
class Triangular(Prior):
    """Triangular: rises linearly from 0 at low to 2 / (high - low) at mode, and falls to 0 at high."""

    label: ClassVar[str] = "triangular prior"
    family: ClassVar[str] = "triangular"
    low: Number
    mode: Number
    high: Number
    unit: str = ""

    def _check(self) -> None:
        self.require(
            self.low <= self.mode <= self.high and self.low < self.high, "low <= mode <= high, low < high"
        )

    def transform(self, unit_cube: Array) -> Array:
        width, left, right = self.high - self.low, self.mode - self.low, self.high - self.mode
        rising = self.low + np.sqrt(unit_cube * width * left)
        falling = self.high - np.sqrt((1.0 - unit_cube) * width * right)
        theta: Array = np.where(unit_cube * width < left, rising, falling)
        return theta

    def log_density(self, x: Array) -> Array:
        width = self.high - self.low
        rising = (x < self.mode) | (self.mode == self.high)
        distance = np.where(rising, x - self.low, self.high - x)
        side = np.where(rising, self.mode - self.low, self.high - self.mode)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.log(2.0 * distance / (width * side))
        return np.where((x >= self.low) & (x <= self.high), density, -np.inf)

    def log_slope(self, x: Array) -> Array:
        rising = (x < self.mode) | (self.mode == self.high)
        with np.errstate(divide="ignore"):
            slope: Array = np.where(rising, 1.0 / (x - self.low), -1.0 / (self.high - x))
            return slope


class _Angular(Prior):
    """What `Sine` and `Cosine` share: numbers in a unit of angle, and `rad`, that unit in radians."""

    derived: ClassVar[tuple[str, ...]] = ("rad",)
    limits: ClassVar[tuple[float, float]]
    rad: ClassVar[Number]
    low: Number
    high: Number

    def _check(self) -> None:
        object.__setattr__(self, "rad", units.factor(self.unit, units.ANGLE))
        least, most = np.deg2rad(self.limits)
        slack = 1e-12
        inside = least - slack <= self.low * self.rad and self.high * self.rad <= most + slack
        self.require(self.low < self.high and inside, "{} deg <= low < high <= {} deg".format(*self.limits))


@strict
class Sine(_Angular):
    """Polar angle of an isotropic direction: p proportional to sin(x), 0 <= low <= x <= high <= 180 deg."""

    label: ClassVar[str] = "sine prior"
    family: ClassVar[str] = "sine"
    limits: ClassVar[tuple[float, float]] = (0.0, 180.0)
    low: Number = "0 deg"
    high: Number = "180 deg"
    unit: str = ""

    def _mass(self) -> Number:
        low, high = self.low * self.rad, self.high * self.rad
        return 2 * np.sin(0.5 * (low + high)) * np.sin(0.5 * (high - low))

    def transform(self, unit_cube: Array) -> Array:
        cosine = np.cos(self.low * self.rad) - unit_cube * self._mass()
        theta: Array = np.clip(np.arccos(np.clip(cosine, -1, 1)) / self.rad, self.low, self.high)
        return theta

    def log_density(self, x: Array) -> Array:
        inside = (x >= self.low) & (x <= self.high)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.log(np.sin(np.where(inside, x, 0.5 * (self.low + self.high)) * self.rad))
        return np.where(inside, density + np.log(self.rad) - np.log(self._mass()), -np.inf)

    def log_slope(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):
            slope: Array = self.rad / np.tan(x * self.rad)
            return slope


@strict
class Cosine(_Angular):
    """Latitude of an isotropic direction: p proportional to cos(x), -90 <= low <= x <= high <= 90 deg."""

    label: ClassVar[str] = "cosine prior"
    family: ClassVar[str] = "cosine"
    limits: ClassVar[tuple[float, float]] = (-90.0, 90.0)
    low: Number = "-90 deg"
    high: Number = "90 deg"
    unit: str = ""

    def _mass(self) -> Number:
        low, high = self.low * self.rad, self.high * self.rad
        return 2 * np.cos(0.5 * (low + high)) * np.sin(0.5 * (high - low))

    def transform(self, unit_cube: Array) -> Array:
        sine = np.sin(self.low * self.rad) + unit_cube * self._mass()
        theta: Array = np.clip(np.arcsin(np.clip(sine, -1, 1)) / self.rad, self.low, self.high)
        return theta

    def log_density(self, x: Array) -> Array:
        inside = (x >= self.low) & (x <= self.high)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.log(np.cos(np.where(inside, x, 0.5 * (self.low + self.high)) * self.rad))
        return np.where(inside, density + np.log(self.rad) - np.log(self._mass()), -np.inf)

    def log_slope(self, x: Array) -> Array:
        slope: Array = -self.rad * np.tan(x * self.rad)
        return slope
