"""Read numbers that a user may give with a unit."""

from __future__ import annotations

from biro.errors import InputError


def in_unit(value: str | float, unit: str, name: str) -> float:
    """A quantity as a plain number in a unit.

    Parameters
    ----------
    value : text with a unit ("30 s", "10 arcmin"), or float
        A float is in `unit` already.
    unit : str
        As astropy writes it.
    name : str
        What the quantity is called, for errors.

    Raises
    ------
    InputError
        Text that is not a quantity of this kind.
    """
    if not isinstance(value, str):
        return float(value)
    from astropy import units

    try:
        return float(units.Quantity(value).to_value(unit))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} {value!r} is not a quantity in units like {unit!r}") from error
