"""Knots in time of a brightness that varies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, quantity
from biro.models.quantities.strict import short_repr
from biro.models.quantities.units import TIME, factor

# Between knots a brightness is linear in time, or stays what it was at the last knot.
BETWEEN = ("linear", "constant")
MAX_KNOTS = 10_000
_DAY = 86400.0

# All of them dates, or all of them counted from the first time of the data.
Times = tuple[Fixed, ...] | tuple[str, ...]


def read_times(value: object) -> Times:
    """Times of knots: UTC dates "2021-05-04T12:00:00", or "0 min", "10 min", ... from the first of the data.

    Raises
    ------
    ModelError
        Not a list of at least two of one kind, or they do not ascend.
    """
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= MAX_KNOTS:
        raise ModelError(f"expected a list of 2 to {MAX_KNOTS} times, found {short_repr(value)}")
    if all(isinstance(each, str) and each[:4].isdigit() and each[4:5] == "-" for each in value):
        times: Times = tuple(value)
    else:
        found = [quantity(each, TIME) for each in value]
        if not all(isinstance(each, Fixed) for each in found):
            raise ModelError("times must be numbers; biro does not fit them")
        times = tuple(each for each in found if isinstance(each, Fixed))
    if np.any(np.diff(seconds(times, 0.0)) <= 0.0):
        raise ModelError("must ascend")
    return times


def read_between(value: object) -> str:
    """The way from knot to knot."""
    if not isinstance(value, str) or value not in BETWEEN:
        raise ModelError(f"one of {', '.join(BETWEEN)}, found {short_repr(value)}")
    return value


def seconds(times: Times, start: float) -> NDArray[np.float64]:
    """Modified Julian dates, s (float64 (n,)), of knots; `start` is that of the first time of the data."""
    from astropy.time import Time

    found = []
    for each in times:
        if isinstance(each, Fixed):
            found.append(start + each.value * factor(each.unit, TIME))
            continue
        try:
            found.append(float(Time(each, scale="utc").mjd) * _DAY)
        except ValueError:
            raise ModelError(
                f"expected a date such as '2021-05-04T12:00:00', found {short_repr(each)}"
            ) from None
    return np.array(found, dtype=np.float64)
