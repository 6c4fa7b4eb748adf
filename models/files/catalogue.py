"""Catalogues of PyBDSF and AEGEAN: tables of fitted Gaussians, from the columns that these programs name.

PyBDSF (`write_catalog`, Gaussians or sources): RA, DEC (deg), Total_flux (Jy), and the sizes without the beam
DC_Maj, DC_Min, DC_PA (full widths at half maximum in deg, from the north at the source through east); it may
have Total_Q, Total_U, Total_V (Jy) and Spec_Indx, at the frequency that the file states.

AEGEAN (components): ra, dec (deg), int_flux (Jy), the sizes as seen a, b (FWHM, arcsec), pa (deg), and the
beam there, psf_a, psf_b (arcsec), psf_pa (deg), which is taken out of the size.
"""

from __future__ import annotations

import csv
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from biro.models.components.sky import MAX_SOURCES
from biro.models.errors import ModelError
from biro.models.files.components import ListComponent, as_ellipse, to_model, within_turn
from biro.models.files.text import naming, read_text
from biro.models.quantities import units
from biro.models.quantities.parameter import read_entry
from biro.models.quantities.strict import short_repr
from biro.models.quantities.units import ANGLE, FLUX, NUMBER, Dimension
from biro.models.sky import SkyModel

_log = logging.getLogger("biro.models")
PYBDSF, AEGEAN = ("RA", "DEC", "Total_flux"), ("ra", "dec", "int_flux", "peak_flux")
_HEAD_LINES = 200
_FREQUENCY = re.compile(r"Reference frequency of the detection .{0,40}?:\s*([-+.\deE]{1,30}) Hz")
_EQUINOX = re.compile(r"Equinox\s*:\s*([-+.\deE]{1,30})")


@dataclass(frozen=True)
class CatalogueColumns:
    """A table as its columns.

    Attributes
    ----------
    values : mapping of name to sequence of float, int or str
    units : mapping of name to str
        Of columns that state one.
    ref_freq : float or None, Hz
    equinox : float
    """

    values: Mapping[str, Sequence[object]]
    units: Mapping[str, str] = field(default_factory=dict)
    ref_freq: float | None = None
    equinox: float = 2000.0


def is_catalogue(names: Sequence[str]) -> bool:
    """Whether a table has the columns of a catalogue of PyBDSF or AEGEAN."""
    return any(set(known) <= set(names) for known in (PYBDSF, AEGEAN))


def is_text_catalogue(text: str) -> bool:
    """Whether a text is such a catalogue, with commas or, as PyBDSF's ASCII, white space between columns."""
    return _head(text.splitlines()) is not None


def read_catalogue(path: str | Path) -> SkyModel:
    """The sources of a text catalogue of PyBDSF or AEGEAN, as a model without priors.

    Columns stand between commas, or between white space as in PyBDSF's ASCII lists (.gaul, .srl).

    Raises
    ------
    ModelError
        Names the file, the row, the column and what was found.
    """
    text = read_text(path)
    with naming(path):
        lines = text.splitlines()
        head = _head(lines)
        if head is None:
            raise ModelError(f"no line names the columns {', '.join(PYBDSF)}, or {', '.join(AEGEAN)}")
        number, names, has_commas = head
        values: dict[str, list[object]] = {name: [] for name in names}
        for i, row in enumerate(_split_rows(lines[number + 1 :], has_commas), start=number + 2):
            if not "".join(row).strip() or row[0].lstrip().startswith("#"):
                continue
            if len(row) != len(names):
                raise ModelError(f"line {i}: expected {len(names)} columns, found {len(row)}")
            for name, item in zip(names, row, strict=True):
                values[name].append(item.strip())
        comments = "\n".join(line for line in lines[:number] if line.startswith("#"))
        frequency, equinox = _FREQUENCY.search(comments), _EQUINOX.search(comments)
        return from_columns(
            CatalogueColumns(
                values,
                ref_freq=_as_float(frequency[1]) if frequency else None,
                equinox=_as_float(equinox[1]) if equinox else 2000.0,
            )
        )


def _split_rows(lines: Sequence[str], has_commas: bool) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines) if has_commas else (line.split() for line in lines)
    except csv.Error as error:
        raise ModelError(f"not a table with commas between columns: {error}") from None


def _head(lines: Sequence[str]) -> tuple[int, list[str], bool] | None:
    """Number of the line that names the columns, a comment of PyBDSF's; names; whether there are commas."""
    for number, line in enumerate(lines[:_HEAD_LINES]):
        text = line.lstrip("# ")
        for has_commas, split in ((True, text.split(",")), (False, text.split())):
            names = [name.strip() for name in split]
            if is_catalogue(names) and len(set(names)) == len(names):
                return number, names, has_commas
        if line.strip() and not line.startswith("#"):
            return None
    return None


def from_columns(table: CatalogueColumns) -> SkyModel:
    """The sources of a catalogue as a model without priors.

    Raises
    ------
    ModelError
        Names the row, the column and what was found; or a column that is needed is not there.
    """
    if table.equinox != 2000.0:
        raise ModelError(f"positions have the equinox {table.equinox:g}; expected 2000")
    n_row = len(next(iter(table.values.values()), ()))
    if n_row > MAX_SOURCES:
        raise ModelError(f"{n_row} rows; at most {MAX_SOURCES} sources can be read")
    made = _pybdsf if set(PYBDSF) <= set(table.values) else _aegean
    rows = _CatalogueRows(table)
    components = [component for i in range(n_row) if (component := made(rows, i)) is not None]
    if len(components) < n_row:
        _log.info("%d islands without a Gaussian are left out", n_row - len(components))
    return to_model(components)


class _CatalogueRows:
    """Numbers of a table by row and column, in rad and Jy."""

    def __init__(self, table: CatalogueColumns) -> None:
        self.table = table

    def has(self, *names: str) -> bool:
        return set(names) <= set(self.table.values)

    def need(self, names: Sequence[str], why: str) -> None:
        lacking = [name for name in names if name not in self.table.values]
        if lacking:
            raise ModelError(f"no column {', '.join(lacking)}: {why}")

    def value(self, i: int, name: str, dimension: Dimension, unit: str) -> float:
        """A finite number; `unit` is that of the program, where the table states none."""
        found = _as_float(self.table.values[name][i])
        if not math.isfinite(found):
            raise ModelError(f"row {i + 1}: {name}: expected a finite number, found {found}")
        stated = self.table.units.get(name) or unit
        return found * float(read_entry(f"column {name}", units.factor, stated, dimension))

    def optional(self, i: int, name: str, dimension: Dimension, unit: str) -> float:
        """Value of a column; 0 where there is no such column, or no number in it."""
        if name not in self.table.values or math.isnan(_as_float(self.table.values[name][i])):
            return 0.0
        return self.value(i, name, dimension, unit)

    def whole(self, i: int, name: str) -> int:
        """A whole number that counts something."""
        found = _as_float(self.table.values[name][i])
        return int(found) if math.isfinite(found) else 0


def _as_float(item: object) -> float:
    """A number of a table; NaN for an empty cell, as for "nan" and "--"."""
    if isinstance(item, str):
        if item.lower() in ("", "nan", "--", "null", "none"):
            return math.nan
        try:
            return float(item)
        except ValueError:
            raise ModelError(f"expected a number, found {short_repr(item)}") from None
    return float(item)  # type: ignore[arg-type]


def _pybdsf(rows: _CatalogueRows, i: int) -> ListComponent | None:
    """The Gaussian or source of a row; None for an island in which no Gaussian was fitted."""
    if rows.has("Source_id") and rows.whole(i, "Source_id") < 0:
        return None
    rows.need(
        ("DC_Maj", "DC_Min", "DC_PA"), "without it the sizes are those of the image, with the beam in them"
    )
    stokes = (
        rows.value(i, "Total_flux", FLUX, "Jy"),
        *(rows.optional(i, f"Total_{key}", FLUX, "Jy") for key in "QUV"),
    )
    index = rows.optional(i, "Spec_Indx", NUMBER, "")
    if index and not (rows.table.ref_freq or 0.0) > 0:
        raise ModelError("there are spectral indices (Spec_Indx), but no reference frequency (FREQ0)")
    shape = tuple(rows.value(i, name, ANGLE, "deg") for name in ("DC_Maj", "DC_Min", "DC_PA"))
    kinds = (("Gaus_id", "g"), ("Source_id", "s"))
    name = next((f"{letter}{rows.whole(i, key)}" for key, letter in kinds if rows.has(key)), f"s{i}")
    if rows.has("Source_Name"):
        name = str(rows.table.values["Source_Name"][i])
    ra, dec = _place(rows, i, "RA", "DEC")
    return ListComponent(
        name=name,
        ra=ra,
        dec=dec,
        stokes=stokes,
        terms=((index,) if index else (),) * 4,
        ref_freq=rows.table.ref_freq if index else None,
        shape=read_entry(f"row {i + 1}", as_ellipse, *shape),
    )


def _aegean(rows: _CatalogueRows, i: int) -> ListComponent:
    """The component of a row."""
    rows.need(
        ("a", "b", "pa"), "this is a catalogue of islands; write that of components (its name ends in _comp)"
    )
    rows.need(("psf_a", "psf_b", "psf_pa"), "without it biro cannot deconvolve the beam from the sizes")
    seen, beam = (
        (
            rows.value(i, f"{prefix}a", ANGLE, "arcsec"),
            rows.value(i, f"{prefix}b", ANGLE, "arcsec"),
            rows.value(i, f"{prefix}pa", ANGLE, "deg"),
        )
        for prefix in ("", "psf_")
    )
    if not (beam[0] > 0 and beam[1] > 0):
        raise ModelError(f"row {i + 1}: psf_a and psf_b are 0, so that the beam is not known")
    number = f"_{rows.whole(i, 'source')}" if rows.has("source") else ""
    ra, dec = _place(rows, i, "ra", "dec")
    return ListComponent(
        name=f"s{rows.whole(i, 'island')}{number}" if rows.has("island") else f"s{i}",
        ra=ra,
        dec=dec,
        stokes=(rows.value(i, "int_flux", FLUX, "Jy"), 0.0, 0.0, 0.0),
        shape=without_beam(seen, beam),
    )


def _place(rows: _CatalogueRows, i: int, ra: str, dec: str) -> tuple[float, float]:
    place = rows.value(i, ra, ANGLE, "deg"), rows.value(i, dec, ANGLE, "deg")
    if not abs(place[1]) <= math.pi / 2:
        raise ModelError(
            f"row {i + 1}: {dec}: must lie within -90 .. 90 deg, found {math.degrees(place[1]):g} deg"
        )
    return read_entry(f"row {i + 1}", within_turn, place[0]), place[1]


def without_beam(
    seen: tuple[float, float, float], beam: tuple[float, float, float]
) -> tuple[float, float, float] | None:
    """The Gaussian that a beam widens to the one that is seen.

    Squares of widths add as matrices, M = R(pa) diag(emaj^2, emin^2) R(pa)^T, for a convolution adds
    covariances. What is left of M without the beam's has emaj^2 and emin^2 as eigenvalues; a negative one
    counts as 0.

    Parameters
    ----------
    seen, beam : (float, float, float), rad
        Major and minor axis (FWHM), position angle.

    Returns
    -------
    (emaj, emin, pa), rad, or None for a point
    """

    def moments(major: float, minor: float, pa: float) -> tuple[float, float, float]:
        """Half the trace of M, and half the difference of its eigenvalues with cos and sin of 2 pa."""
        mean, half = 0.5 * (major**2 + minor**2), 0.5 * (major**2 - minor**2)
        return mean, half * math.cos(2 * pa), half * math.sin(2 * pa)

    mean, cos, sin = (one - other for one, other in zip(moments(*seen), moments(*beam), strict=True))
    half = math.hypot(cos, sin)
    # What is below the rounding of the squares is nothing.
    least = 1e-12 * seen[0] ** 2
    if mean + half <= least:
        return None
    minor = math.sqrt(mean - half) if mean - half > least else 0.0
    return math.sqrt(mean + half), minor, 0.5 * math.atan2(sin, cos)
