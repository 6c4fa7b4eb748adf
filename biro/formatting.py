"""Text of angles, numbers and tables, and the check of keyword arguments by name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence

import numpy as np

from biro.errors import InputError

ARCSEC = np.pi / 180 / 3600


def check_names(names: Iterable[str], allowed: Sequence[str], caller: str) -> None:
    """Refuse keyword arguments that a function does not have.

    Parameters
    ----------
    names : iterable of str
        The keyword arguments of a call; a mapping gives its keys.
    allowed : sequence of str
        Those that the function has.
    caller : str
        Name of the function, for the message.

    Raises
    ------
    InputError
        Naming the argument, the nearest allowed one and all of them.
    """
    for name in names:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{caller} has no argument {name!r}{hint} (it has: {', '.join(allowed)})")


def align(cells: Sequence[Sequence[str]]) -> str:
    """A table as text: a header, a rule and rows; two columns to the left, the others to the right."""
    width = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = []
    for row in cells:
        padded = [
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, width, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def digits_after_point(spread: float) -> int:
    """Digits after the point that show `spread` with two significant figures (6 where it is not positive)."""
    if not math.isfinite(spread) or spread <= 0:
        return 6
    return max(0, 1 - math.floor(math.log10(spread)))


def sexagesimal(ra: float, dec: float) -> tuple[str, str]:
    """Right ascension as 12h29m06.700s and declination as +02d03m08.60s, from rad."""
    milli = round(ra % (2 * np.pi) * 12 / np.pi * 3600e3) % (24 * 3600000)
    centi = round(abs(dec) * 180 / np.pi * 3600e2)
    hours, minutes, seconds = milli // 3600000, milli // 60000 % 60, milli % 60000 / 1e3
    degrees, arcmin, arcsec = centi // 360000, centi // 6000 % 60, centi % 6000 / 1e2
    return (
        f"{hours:02d}h{minutes:02d}m{seconds:06.3f}s",
        f"{'-' if dec < 0 else '+'}{degrees:02d}d{arcmin:02d}m{arcsec:05.2f}s",
    )


def angle_text(angle: float) -> str:
    """An angle of zero or more, in rad, with a unit in which it is readable."""
    for unit, size in (
        ("deg", 3600 * ARCSEC),
        ("arcmin", 60 * ARCSEC),
        ("arcsec", ARCSEC),
        ("mas", 1e-3 * ARCSEC),
    ):
        if angle >= size:
            return f"{angle / size:.3g} {unit}"
    return f"{angle / (1e-6 * ARCSEC):.3g} uas"


def frequency_text(frequency: float) -> str:
    """A frequency in Hz with a unit in which it is readable."""
    for unit, size in (("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3)):
        if abs(frequency) >= size:
            return f"{frequency / size:.6g} {unit}"
    return f"{frequency:.6g} Hz"
