"""Text of angles, numbers and tables; numbers with units read from text; keyword arguments by name."""

from __future__ import annotations

import difflib
import html
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from biro.errors import InputError

MOST_LISTED = 8
"""Items of a list that a message names."""
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


def given_text(value: object) -> str:
    """An argument in words, for a message that says what was given in its place: its type, or its path."""
    return f"the path {str(value)!r}" if isinstance(value, str | os.PathLike) else type(value).__name__


def first_few(texts: Iterable[str], joint: str = ", ") -> str:
    """The texts joined; where they are many, the first of them and the number of the others."""
    every = list(texts)
    if len(every) <= MOST_LISTED:
        return joint.join(every)
    return f"{joint.join(every[:MOST_LISTED])} and {len(every) - MOST_LISTED} more"


def number_of(n: int, what: str, several: str = "") -> str:
    """A number of things in words, as in "1 time" and "2 times"; `several` is an irregular plural."""
    return f"{n} {what if n == 1 else several or what + 's'}"


def plain(value: float, figures: int = 2, sign: str = "") -> str:
    """A number with so many significant figures, without an exponent from 1e-5 to 1e6; sign "+" shows it."""
    size = abs(value)
    if not 1e-5 <= size < 1e6:
        return f"{value:{sign}.{figures}g}"
    digits = max(0, figures - 1 - math.floor(math.log10(float(f"{size:.{figures}g}"))))
    return f"{value:{sign}.{digits}f}"


def percent(part: float, figures: int = 2, sign: str = "") -> str:
    """A part of 1 in per cent, as "21 %"."""
    return f"{plain(100.0 * part, figures, sign)} %"


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


def html_table(cells: Sequence[Sequence[str]]) -> str:
    """A table as HTML: a header and rows of text, whatever is in it."""
    head, *rows = cells
    lines = ["<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "<table>" + "\n".join(lines) + "</table>"


def html_text(text: str) -> str:
    """Text as HTML with its line breaks and spaces."""
    return f"<pre>{html.escape(text)}</pre>"


class Printed:
    """What prints as text of several lines, and shows the same text in a notebook."""

    def _repr_html_(self) -> str:
        return html_text(str(self))


class PrintedText(Printed, str):
    """Text that a notebook shows with its line breaks; a `str` in all else."""


class Tabular(ABC):
    """A table with warnings above it and notes below it: text for terminals, HTML for notebooks."""

    @abstractmethod
    def cells(self) -> list[list[str]]:
        """Header and rows as text."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Lines below the table."""

    def warnings(self) -> list[str]:
        """Lines above the table: why its figures may mislead, the gravest first; mostly there are none."""
        return []

    def __str__(self) -> str:
        return "\n".join([*self.warnings(), align(self.cells()), *self.notes()])

    def _repr_html_(self) -> str:
        first = "".join(f"<p><strong>{html.escape(line)}</strong></p>" for line in self.warnings())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return first + html_table(self.cells()) + notes


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


@dataclass(frozen=True)
class Unit:
    """A unit, and its size in SI units (rad, Hz, m), in Jy or in wavelengths."""

    name: str
    size: float

    def text(self, value: float, figures: int = 3) -> str:
        """A number of the unit, without its name, with so many significant figures."""
        number = value / self.size
        return plain(number, figures) if abs(number) >= 10.0**figures else f"{number:.{figures}g}"


ANGLES = (
    Unit("deg", 3600 * ARCSEC),
    Unit("arcmin", 60 * ARCSEC),
    Unit("arcsec", ARCSEC),
    Unit("mas", 1e-3 * ARCSEC),
    Unit("uas", 1e-6 * ARCSEC),
)
FREQUENCIES = (Unit("GHz", 1e9), Unit("MHz", 1e6), Unit("kHz", 1e3), Unit("Hz", 1.0))
FLUXES = (Unit("Jy", 1.0), Unit("mJy", 1e-3), Unit("uJy", 1e-6))
LENGTHS = (Unit("km", 1e3), Unit("m", 1.0))
WAVELENGTHS = (Unit("Glambda", 1e9), Unit("Mlambda", 1e6), Unit("klambda", 1e3), Unit("lambda", 1.0))


def unit_for(values: Iterable[float], units: Sequence[Unit]) -> Unit:
    """The one unit in which values of a table are shown: that of the largest, of which it is at least 1,
    rounded to four figures.

    Parameters
    ----------
    values : iterable of float
        Those that are not finite do not count.
    units : sequence of Unit
        The largest first; the last one is for what is smaller.
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    # With four figures 0.99995 is written as 1.
    return next((unit for unit in units if largest >= 0.99995 * unit.size), units[-1])


def range_text(low: float, high: float, units: Sequence[Unit], figures: int = 4) -> str:
    """Two values in one unit: "46.27 to 3728 m"; one where they are equal."""
    unit = unit_for([low, high], units)
    ends = dict.fromkeys(unit.text(value, figures) for value in (low, high))
    return f"{' to '.join(ends)} {unit.name}"


def angle_text(angle: float) -> str:
    """An angle of zero or more, in rad, with a unit in which it is readable."""
    return range_text(angle, angle, ANGLES, 3)


def frequency_text(frequency: float) -> str:
    """A frequency in Hz with a unit in which it is readable."""
    return range_text(frequency, frequency, FREQUENCIES, 6)


def in_unit(value: str | float, unit: str, name: str, unit_needed: bool = False) -> float:
    """A quantity as a plain number in a unit.

    Parameters
    ----------
    value : text with a unit ("30 s", "10 arcmin"), or float
        A number without a unit is in `unit` already; text of an angle must have one.
    unit : str
        As astropy writes it.
    name : str
        What the quantity is called, for errors.
    unit_needed : bool
        Refuse other text without a unit, too.

    Raises
    ------
    InputError
        Text that is not a quantity of this kind.
    """
    if not isinstance(value, str):
        return float(value)
    from astropy import units

    try:
        found = units.Quantity(value)
        is_bare = found.unit == units.dimensionless_unscaled and unit != "rad" and not unit_needed
        return float(found.value if is_bare else found.to_value(unit))
    except (TypeError, ValueError):
        example = "deg or arcsec" if unit == "rad" else unit
        raise InputError(
            f"{name} {value!r} is not understood; write a number with a unit such as {example}"
        ) from None
