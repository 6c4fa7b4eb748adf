"""A quantity of a model: a number with unit, a prior, or a tie to other quantities."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ParamSpec, TypeAlias, TypeVar

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.prior import Prior
from biro.models.quantities.prior_table import from_table
from biro.models.quantities.strict import Entry, short_repr
from biro.models.quantities.tie import Tie, is_name, is_sum, read_sum
from biro.models.quantities.units import DECLINATION, RIGHT_ASCENSION, Dimension

MAX_SERIES = 100_000
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Fixed:
    """A number that is not fitted.

    Attributes
    ----------
    value : float
    unit : str
        "" for a plain number.
    """

    value: float
    unit: str = ""


Quantity: TypeAlias = Fixed | Prior | Tie
# What a person may write for a quantity; strict classes turn it into a Quantity.
QuantityLike: TypeAlias = Entry
# One quantity, or a tuple of them.
Series: TypeAlias = tuple[Quantity, ...]


@dataclass(frozen=True)
class Parameter:
    """One number that is fitted.

    Attributes
    ----------
    name : str
        "jet.I", "noise.factor[3C273/spw0]".
    unit : str
        Unit of theta, as written in the model; "" for a plain number.
    prior : Prior
    period : float or None
        Length after which the parameter repeats (position angles), in `unit`.
    latex : str
        A label for pictures.
    """

    name: str
    unit: str
    prior: Prior
    period: float | None
    latex: str


@dataclass(frozen=True)
class Column:
    """What a table or a figure must know of a fitted parameter.

    Attributes
    ----------
    name, unit, latex : str
    prior : str
        The prior, in words.
    period : float or None
        In the parameter's unit; statistics of a parameter that wraps are circular.
    low, high : float or None
        Ends of the prior; None where it has none, or where the two are one point.
    """

    name: str
    unit: str = ""
    latex: str = ""
    prior: str = ""
    period: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        """Name and unit, for tables."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def _fixed(value: object, dimension: Dimension) -> Fixed:
    if isinstance(value, str) and dimension in (RIGHT_ASCENSION, DECLINATION):
        degrees = units.sexagesimal(value, hours=dimension is RIGHT_ASCENSION)
        if degrees is not None:
            return Fixed(degrees, "deg")
    number, unit = units.number(value)
    if unit is None and dimension.si:
        text = short_repr(value).strip("'\"")
        example = dimension.example.split()[-1] if " " in dimension.example else "deg"
        raise ModelError(f"{text} has no unit; expected {dimension.name}, for example '{text} {example}'")
    return Fixed(number, unit or "")


def _check_fixed(fixed: Fixed, dimension: Dimension) -> Fixed:
    units.factor(fixed.unit, dimension)
    if not math.isfinite(fixed.value):
        raise ModelError(f"must be finite, found {fixed.value}")
    return fixed


def quantity(value: QuantityLike, dimension: Dimension) -> Quantity:
    """Read what a person wrote for one quantity.

    Parameters
    ----------
    value : number, text, dict, Prior, Fixed, Tie or astropy quantity
        "1.5 Jy" is fixed; { prior = ... } and a Prior are fitted; "core.I", "core.I * 0.5" and
        { tie = "core.I" } are tied.
    dimension : Dimension
        What it must be.

    Raises
    ------
    ModelError
        Anything else, an unknown unit, or a unit of another dimension.
    """
    if isinstance(value, Prior):
        units.factor(value.unit, dimension)
        return value
    if isinstance(value, Tie):
        return _tie(value.to, dimension)
    if isinstance(value, Fixed):
        return _check_fixed(value, dimension)
    if isinstance(value, Mapping):
        return _from_table(value, dimension)
    if isinstance(value, str) and (is_name(value) or is_sum(value)):
        return _tie(value, dimension)
    return _check_fixed(_fixed(value, dimension), dimension)


def _tie(text: str, dimension: Dimension) -> Tie:
    unit = read_sum(text).unit
    if unit is not None:
        units.factor(unit, dimension)
    return Tie(text)


def _from_table(table: Mapping[str, object], dimension: Dimension) -> Quantity:
    if "prior" in table and "tie" in table:
        raise ModelError(
            "a tied quantity has no prior of its own: give the prior to the quantity that it is tied to"
        )
    if "prior" in table:
        prior = from_table(dict(table))
        units.factor(prior.unit, dimension)
        return prior
    if set(table) == {"tie"} and isinstance(table["tie"], str):
        return _tie(table["tie"], dimension)
    raise ModelError(
        f"expected a number such as '{dimension.example}', a prior such as "
        '{ prior = "uniform", low = ..., high = ... }, or { tie = "source.key" }, '
        f"found {short_repr(dict(table))}"
    )


def series(value: Entry, dimension: Dimension) -> Series:
    """One quantity or a list of them, as a tuple."""
    if isinstance(value, (list, tuple)) or (hasattr(value, "__array__") and getattr(value, "ndim", 0) == 1):
        if not 0 < len(value) <= MAX_SERIES:
            raise ModelError(f"a list must have 1 to {MAX_SERIES} elements, found {len(value)}")
        made = []
        for index, item in enumerate(value):
            try:
                made.append(quantity(item, dimension))
            except ModelError as error:
                raise ModelError(f"element {index}: {error}") from None
        return tuple(made)
    return (quantity(value, dimension),)


def read_entry(key: str, read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`read(*args)`, with the key put in front of what it raises."""
    try:
        return read(*args, **kwargs)
    except ModelError as error:
        raise ModelError(f"{key}: {error}") from None


_SYMBOLS = {
    "ra": r"\alpha",
    "dec": r"\delta",
    "east": r"\mathrm{east}",
    "north": r"\mathrm{north}",
    "emaj": r"\theta_\mathrm{maj}",
    "emin": r"\theta_\mathrm{min}",
    "fwhm": r"\theta",
    "ratio": "r",
    "pa": r"\mathrm{PA}",
    "pol_fraction": "p",
    "pol_angle": r"\chi",
    "v_fraction": "v",
    "spectral_index": "a",
    "log10_spectrum": "b",
    "polynomial": "c",
    "effective_radius": r"R_\mathrm{e}",
    "scale_length": "h",
    "core_radius": r"r_\mathrm{c}",
    "core_fwhm": r"\theta_\mathrm{core}",
    "core_fraction": r"f_\mathrm{core}",
    "hole_pa": r"\mathrm{PA}_\mathrm{hole}",
    "axis_pa": r"\mathrm{PA}",
    "limb_darkening": "u",
    "inner_ratio": "f",
    "coefficients": "c",
    "beta": r"\beta",
    "beta_re": r"\mathrm{Re}\,\beta",
    "beta_im": r"\mathrm{Im}\,\beta",
    "beta_pol_re": r"\mathrm{Re}\,\beta_\mathrm{pol}",
    "beta_pol_im": r"\mathrm{Im}\,\beta_\mathrm{pol}",
    "beta_v_re": r"\mathrm{Re}\,\beta_\mathrm{V}",
    "beta_v_im": r"\mathrm{Im}\,\beta_\mathrm{V}",
    "free_free": r"\nu_\mathrm{ff}",
    "self_absorption": r"\nu_\mathrm{m}",
    "rm": r"\mathrm{RM}",
    "factor": "s",
    "dof": r"\nu",
}


def latex(owner: str, key: str, index: str) -> str:
    """A mathtext label: `latex("jet", "emaj", "")` is the major axis with "jet" beneath."""
    words = key.replace("_", r"\ ")
    symbol = _SYMBOLS.get(key, rf"\mathrm{{{words}}}")
    below = re.sub(r"([_#%&{}$\\^~])", r"\\\1", f"{owner} {index}".strip())
    below = below.replace(" ", r"\ ")
    if "_" in symbol:
        return rf"${symbol}^\mathrm{{{below}}}$"
    return rf"${symbol}_\mathrm{{{below}}}$"
