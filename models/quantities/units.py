"""Numbers with units, at the border: text in, plain floats in SI (or radians, janskys) out."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from biro.models.errors import ModelError
from biro.models.quantities.strict import nearest, shown

_NUMBER = re.compile(r"\s*([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?)\s*(.*?)\s*\Z")
_NAME = r"[A-Za-zµμ°%]{1,16}(?:(?:\*\*|\^)?[+-]?\d)?"
_UNIT = re.compile(rf"(?:1? ?/ ?)?{_NAME}(?: ?[*/. ] ?{_NAME}){{0,3}}\Z")
_SEXAGESIMAL = re.compile(
    r"\s*([+-]?)(\d{1,3})\s*([hd°:])\s*(\d{1,2})\s*([m'′:])\s*(\d{1,2}(?:\.\d{0,20})?)\s*(s|\"|″|)\s*\Z"
)
_COMMON = ("rad", "deg", "arcmin", "arcsec", "mas", "uas", "Jy", "mJy", "uJy", "Hz", "kHz", "MHz", "GHz", "m")


@dataclass(frozen=True)
class Kind:
    """A physical kind of quantity: its name in errors, the unit inside, and an example."""

    name: str
    si: str
    example: str


ANGLE = Kind("an angle", "rad", "1.5 arcsec")
RIGHT_ASCENSION = Kind("a right ascension", "rad", "12h29m06.7s")
DECLINATION = Kind("a declination", "rad", "+02d03m08.6s")
FLUX = Kind("a flux density", "Jy", "1.5 Jy")
FREQUENCY = Kind("a frequency", "Hz", "1.4 GHz")
LENGTH = Kind("a length", "m", "25 m")
PER_FREQUENCY = Kind("an inverse frequency", "1/Hz", "65 1/GHz")
NUMBER = Kind("a plain number", "", "0.5")


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
def factor(unit: str, kind: Kind) -> float:
    """How many SI units of `kind` one `unit` is.

    Raises
    ------
    ModelError
        An unknown unit, or one of another kind.
    """
    if unit == kind.si:
        return 1.0
    found = _unit(unit)
    if found is None:
        raise ModelError(
            f"unknown unit {shown(unit)}{nearest(unit, _COMMON)}; expected one such as in {kind.example!r}"
        )
    wanted = _unit(kind.si)
    if not found.is_equivalent(wanted):
        given = f"unit {unit!r}" if unit else "a number without unit"
        raise ModelError(f"{given} is not {kind.name}; write for example {kind.example!r}")
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
        raise ModelError(f"minutes and seconds must be below 60, found {shown(text)}")
    total = int(whole) * 3600 + int(minute) * 60 + float(second)
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


def _plain(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"expected one number, found {shown(value)}") from None


def number(value: Any) -> tuple[float, str | None]:
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
            raise ModelError(f"expected a number with its unit, if it has one, found {shown(value)}")
        result, unit = parts[0], parts[1] or None
    elif hasattr(value, "unit") and hasattr(value, "value"):
        result, unit = _plain(value.value), str(value.unit) or None
    elif isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ModelError(f"expected a number with its unit, if it has one, found {shown(value)}")
    else:
        result = _plain(value)
    if unit is not None and not is_unit(unit):
        raise ModelError(f"unknown unit {shown(unit)} in {shown(value)}{nearest(unit, _COMMON)}")
    if math.isnan(result):
        raise ModelError(f"expected a finite number, found {shown(value)}")
    return result, unit


def convert(value: float, unit: str, to: str) -> float:
    """A value in another unit of the same kind."""
    if unit == to:
        return value
    old, new = _unit(unit), _unit(to)
    if new is None:
        raise ModelError(f"unknown unit {shown(to)}{nearest(to, _COMMON)}")
    if not old.is_equivalent(new):
        raise ModelError(f"unit {unit!r} cannot be expressed in {to!r}")
    return float(old.to(new, value))
