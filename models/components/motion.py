"""How a source moves: proper motion, and the orbit of a close pair."""

from __future__ import annotations

from collections.abc import Mapping

from biro.models.components.light_curve import seconds
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, quantity, read_entry
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.quantities.units import ANGLE, NUMBER, TIME, Dimension, factor

MOTION_KEYS = ("pm_east", "pm_north")
# Elements of an orbit, in the order of the tables of `bound.positions.motion`.
ELEMENTS: dict[str, Dimension] = {
    "period": TIME,
    "periastron": TIME,
    "eccentricity": NUMBER,
    "semi_major": ANGLE,
    "inclination": ANGLE,
    "node": ANGLE,
    "argument": ANGLE,
}
# Beyond it the ellipse is a line on which rounding decides.
MOST_ECCENTRIC = 0.99
_ROUND = ("eccentricity", "argument")  # what a circle needs not


def read_orbit(value: object) -> dict[str, object]:
    """Elements of an orbit: { period = "2 yr", periastron = "10 day", semi_major = "3 mas", ... }.

    Eccentricity and argument are 0 where they are not given.

    Raises
    ------
    ModelError
        Unknown or missing keys, or what is no quantity of its dimension.
    """
    if not isinstance(value, Mapping):
        raise ModelError(
            'expected a table such as { period = "2 yr", periastron = "10 day", semi_major = "3 mas", '
            f'inclination = "0 deg", node = "0 deg" }}, found {short_repr(value)}'
        )
    for key in value:
        if key not in ELEMENTS:
            hint = did_you_mean(key, ELEMENTS)
            raise ModelError(f"unknown key {short_repr(key)}{hint}; allowed: {', '.join(ELEMENTS)}")
    missing = [key for key in ELEMENTS if key not in value and key not in _ROUND]
    if missing:
        raise ModelError(f"{missing[0]} is missing; an orbit needs {', '.join(ELEMENTS)}")
    return {
        key: read_entry(key, quantity, value[key], dimension)
        for key, dimension in ELEMENTS.items()
        if key in value
    }


def read_epoch(value: object) -> str | Fixed:
    """When a source is at its position: a date "2021-05-04T12:00:00", "J2016.0", or "0 h" from the start.

    Raises
    ------
    ModelError
        Neither a date nor a time.
    """
    if isinstance(value, str) and (value[:1] == "J" or value[4:5] == "-"):
        epoch_seconds(value, 0.0)
        return value
    found = quantity(value, TIME)
    if not isinstance(found, Fixed):
        raise ModelError(
            "must be a date or a number, because it only sets when the source is at its position"
        )
    return found


def epoch_seconds(epoch: str | Fixed | None, start: float) -> float:
    """Modified Julian date, s, of an epoch; `start` is that of the first time of the data, the default."""
    if epoch is None:
        return start
    if isinstance(epoch, Fixed):
        return start + epoch.value * factor(epoch.unit, TIME)
    if epoch[0] != "J":
        return float(seconds((epoch,), start)[0])
    from astropy.time import Time

    try:
        return float(Time(epoch, format="jyear_str").utc.mjd) * 86400.0
    except ValueError:
        raise ModelError(f"expected an epoch such as 'J2016.0', found {short_repr(epoch)}") from None
