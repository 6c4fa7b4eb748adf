"""What the columns that are read must hold; a table without them is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.files.child_messages import RefusalError
from biro.io.measurement_set.child.casacore_table import CasaTable

CORRECTED_WEIGHT = "CORRECTED_WEIGHT_SPECTRUM"
"""Weights of CORRECTED_DATA, which biro writes with it."""
_WHOLE = ("uchar", "short", "ushort", "int", "uint", "int64")
_NUMBER = ("float", "double", *_WHOLE)


class ColumnKind(NamedTuple):
    """What a column holds.

    Attributes
    ----------
    types : tuple of str
        Types of casacore that are taken.
    words : str
        What a line says that was expected.
    is_array : bool
        Whether its cells are arrays.
    """

    types: tuple[str, ...]
    words: str
    is_array: bool = False


WHOLE, NUMBER, TEXT = (
    ColumnKind(_WHOLE, "integers"),
    ColumnKind(_NUMBER, "numbers"),
    ColumnKind(("string",), "text"),
)
LOGICAL = ColumnKind(("boolean", *_WHOLE), "true or false")
NUMBERS = ColumnKind(_NUMBER, "arrays of numbers", is_array=True)
WHOLES = ColumnKind(_WHOLE, "arrays of integers", is_array=True)
LOGICALS = ColumnKind(("boolean",), "arrays of true and false", is_array=True)
COMPLEXES = ColumnKind(("complex", "dcomplex"), "arrays of complex numbers", is_array=True)
MAIN = {
    **dict.fromkeys(("ANTENNA1", "ANTENNA2", "FIELD_ID", "DATA_DESC_ID", "SCAN_NUMBER"), WHOLE),
    **dict.fromkeys(("TIME", "INTERVAL", "EXPOSURE"), NUMBER),
    **dict.fromkeys(
        ("UVW", "WEIGHT", "WEIGHT_SPECTRUM", "SIGMA", "SIGMA_SPECTRUM", CORRECTED_WEIGHT), NUMBERS
    ),
    "FLAG_ROW": LOGICAL,
    "FLAG": LOGICALS,
}
"""Columns of the main table; whether one may be missing is known to whoever reads it."""
SUBTABLES: dict[str, dict[str, ColumnKind]] = {
    "ANTENNA": {"NAME": TEXT, "POSITION": NUMBERS, "DISH_DIAMETER": NUMBER},
    "FIELD": {"NAME": TEXT, "PHASE_DIR": NUMBERS},
    "SPECTRAL_WINDOW": {"CHAN_FREQ": NUMBERS, "CHAN_WIDTH": NUMBERS},
    "POLARIZATION": {"CORR_TYPE": WHOLES},
    "DATA_DESCRIPTION": {"SPECTRAL_WINDOW_ID": WHOLE, "POLARIZATION_ID": WHOLE},
    "OBSERVATION": {"TELESCOPE_NAME": TEXT},
}
"""Columns that subtables must have."""
GAINS = {
    **dict.fromkeys(("ANTENNA1", "SPECTRAL_WINDOW_ID"), WHOLE),
    **dict.fromkeys(("TIME", "INTERVAL"), NUMBER),
    "CPARAM": COMPLEXES,
    "FLAG": LOGICALS,
}
"""Columns of a table of gains."""
TIME_SCALES = (
    *("UTC", "TAI", "IAT", "UT", "UT1", "UT2", "TT", "TDT", "ET", "TCG", "TDB", "TCB"),
    *("LAST", "LMST", "GMST", "GMST1", "GAST"),
)
"""casacore's MEpoch::Types; it takes any other name as UTC."""


def check_kinds(table: CasaTable, label: str, kinds: Mapping[str, ColumnKind]) -> None:
    """Refuse columns that hold something else; those that are not there are passed over.

    Raises
    ------
    RefusalError
    """
    for column in kinds.keys() & set(table.colnames()):
        description, kind = table.getcoldesc(column), kinds[column]
        type_, is_array = description["valueType"].lower(), "ndim" in description
        if type_ not in kind.types or is_array != kind.is_array:
            found = f"{'arrays' if is_array else 'single values'} of type {type_}"
            raise RefusalError(f"column {column} of {label} holds {found}, expected {kind.words}")


def check_subtable(table: CasaTable, name: str) -> None:
    """Refuse a subtable that lacks a column or, but for OBSERVATION, all rows.

    Raises
    ------
    RefusalError
    """
    missing = [column for column in SUBTABLES[name] if column not in table.colnames()]
    if missing:
        raise RefusalError(f"its subtable {name} has no column {', '.join(missing)}")
    check_kinds(table, f"its subtable {name}", SUBTABLES[name])
    if name != "OBSERVATION" and not table.nrows():
        raise RefusalError(f"its subtable {name} has no rows")


def check_shape(values: NDArray[np.generic], label: str, number: int) -> None:
    """Refuse a column whose cells are not of so many numbers.

    Raises
    ------
    RefusalError
    """
    if values.shape[1:] != (number,):
        raise RefusalError(f"{label} has cells of shape {values.shape[1:]}, expected ({number},)")


def measure(table: CasaTable, column: str) -> dict[str, Any]:
    """What a column says of its frame; nothing where that is no record."""
    found = table.getcolkeywords(column).get("MEASINFO", {})
    return found if isinstance(found, dict) else {}


def time_scale(table: CasaTable, default: str = "UTC") -> str:
    """The time scale of the column TIME.

    Raises
    ------
    RefusalError
        casacore knows none of that name.
    """
    scale = str(measure(table, "TIME").get("Ref", default))
    if scale.upper() not in TIME_SCALES:
        raise RefusalError(f"TIME is in the scale {scale!r}, expected one of {', '.join(TIME_SCALES)}")
    return scale
