"""Read numbers with units from text, and convert them: all else works on floats in SI, radians or janskys."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from biro.models.errors import ModelError
from biro.models.quantities.strict import Entry, did_you_mean, short_repr

_NUMBER = re.compile(r"\s*([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?)\s*(.*?)\s*\Z")
_NAME = r"[A-Za-zµμ°%]{1,16}(?:(?:\*\*|\^)?[+-]?\d)?"
_UNIT = re.compile(rf"(?:1? ?/ ?)?{_NAME}(?: ?[*/. ] ?{_NAME}){{0,3}}\Z")
_SEXAGESIMAL = re.compile(
    r"\s*([+-]?)(\d{1,3})\s*([hd°:])\s*(\d{1,2})\s*([m'′:])\s*(\d{1,2}(?:\.\d{0,20})?)\s*(s|\"|″|)\s*\Z"
)
_COMMON = ("rad", "deg", "arcmin", "arcsec", "mas", "uas", "Jy", "mJy", "uJy", "Hz", "kHz", "MHz", "GHz", "m")


@dataclass(frozen=True)
class Dimension:
    """A physical dimension of quantity: its name in errors, the unit inside, and an example."""

    name: str
    si: str
    example: str


ANGLE = Dimension("an angle", "rad", "1.5 arcsec")
RIGHT_ASCENSION = Dimension("a right ascension", "rad", "12h29m06.7s")
DECLINATION = Dimension("a declination", "rad", "+02d03m08.6s")
FLUX = Dimension("a flux density", "Jy", "1.5 Jy")
FREQUENCY = Dimension("a frequency", "Hz", "1.4 GHz")
LENGTH = Dimension("a length", "m", "25 m")
PER_FREQUENCY = Dimension("an inverse frequency", "1/Hz", "65 1/GHz")
TIME = Dimension("a time", "s", "10 min")
VELOCITY = Dimension("a velocity", "m/s", "100 km/s")
ROTATION_MEASURE = Dimension("a rotation measure", "rad/m2", "50 rad/m2")
PROPER_MOTION = Dimension("a proper motion", "rad/s", "10 mas/yr")
NUMBER = Dimension("a plain number", "", "0.5")


@lru_cache(maxsize=256)
def _unit(text: str) -> Any:
    """The astropy unit of a text, or None where it is none."""
    if text == "":
        text = "1"
    elif not _UNIT.match(text):
        return None
    from astropy import units

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return units.dimensionless_unscaled if text == "1" else units.Unit(text)
    except (ValueError, TypeError):
        return None


def is_unit(text: str) -> bool:
    """Whether a text is a unit ("" is: a plain number)."""
    return text == "" or _unit(text) is not None


@lru_cache(maxsize=1024)
def factor(unit: str, dimension: Dimension) -> float:
    """How many SI units of `dimension` one `unit` is.

    Raises
    ------
    ModelError
        An unknown unit, or one of another dimension.
    """
    if unit == dimension.si:
        return 1.0
    found = _unit(unit)
    if found is None:
        raise ModelError(
            f"unknown unit {short_repr(unit)}{did_you_mean(unit, _COMMON)}; "
            f"expected one such as in {dimension.example!r}"
        )
    wanted = _unit(dimension.si)
    if not found.is_equivalent(wanted):
        given = f"unit {unit!r}" if unit else "a number without unit"
        raise ModelError(f"{given} is not {dimension.name}; write for example {dimension.example!r}")
    return float(found.to(wanted))


def sexagesimal(text: str, hours: bool) -> float | None:
    """Degrees of "12h29m06.7s", "+02d03m08.6s" or, with the axis known, "12:29:06.7"; None if it is neither.

    Parameters
    ----------
    text : str
    hours : bool
        Whether colons part hours (right ascension) or degrees.
    """
    found = _SEXAGESIMAL.match(text)
    if not found:
        return None
    sign, whole, mark, minute, _, second, _ = found.groups()
    if int(minute) >= 60 or float(second) >= 60:
        raise ModelError(f"minutes and seconds must be below 60, found {short_repr(text)}")
    total = int(whole) * 3600 + int(minute) * 60 + float(second)
    if (mark == "h" or (mark == ":" and hours)) and total > 24 * 3600:
        raise ModelError(f"hours must be 24 at most, found {short_repr(text)}")
    degrees = total / 240 if mark == "h" or (mark == ":" and hours) else total / 3600
    return -degrees if sign == "-" else degrees


def split(text: str) -> tuple[float, str] | None:
    """Number and unit of "3.5 arcsec", "-1e3" or "12h29m06.7s" (then in deg); None where it is no number.

    The unit is returned as written and may be unknown.
    """
    found = _NUMBER.match(text)
    if not found:
        return None
    if ":" not in text:
        degrees = sexagesimal(text, hours=False)
        if degrees is not None:
            return degrees, "deg"
    return float(found[1]), found[2]


def _as_float(value: Entry) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"expected one number, found {short_repr(value)}") from None


def number(value: object) -> tuple[float, str | None]:
    """Value and unit (None where none was said) of a number, a text with unit, or an astropy quantity.

    Raises
    ------
    ModelError
        Not a number, an unknown unit, or not finite.
    """
    unit: str | None = None
    if isinstance(value, str):
        parts = split(value)
        if parts is None:
            raise ModelError(f"expected a number with its unit, if it has one, found {short_repr(value)}")
        result, unit = parts[0], parts[1] or None
    elif hasattr(value, "unit") and hasattr(value, "value"):
        result, unit = _as_float(value.value), str(value.unit) or None
    elif isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ModelError(f"expected a number with its unit, if it has one, found {short_repr(value)}")
    else:
        result = _as_float(value)
    if unit is not None and not is_unit(unit):
        raise ModelError(
            f"unknown unit {short_repr(unit)} in {short_repr(value)}{did_you_mean(unit, _COMMON)}"
        )
    if math.isnan(result):
        raise ModelError(f"expected a finite number, found {short_repr(value)}")
    return result, unit


def convert(value: float, unit: str, to: str) -> float:
    """A value in another unit of the same dimension."""
    if unit == to:
        return value
    old, new = _unit(unit), _unit(to)
    if new is None:
        raise ModelError(f"unknown unit {short_repr(to)}{did_you_mean(to, _COMMON)}")
    if not old.is_equivalent(new):
        raise ModelError(f"unit {unit!r} cannot be expressed in {to!r}")
    return float(old.to(new, value))
