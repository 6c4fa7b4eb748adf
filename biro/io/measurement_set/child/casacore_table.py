"""Open casacore tables, and read cells that may have no value."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from casacore.tables import table
from numpy.typing import NDArray

from biro.files.child_messages import RefusalError
from biro.io.measurement_set.backup import FOLDER, INFO, restore_backup

# python-casacore has no types. A table, a subtable and a selection of rows all are casacore.tables.table.
CasaTable: TypeAlias = Any

COMPLETE = "BIRO_COMPLETE"
"""Keyword of a column that biro writes: whether everything was written."""
# How often a table is opened for writing before it is given up.
_ATTEMPTS = 5
NUMPY_TYPES = {
    "complex": np.complex64,
    "dcomplex": np.complex128,
    "float": np.float32,
    "double": np.float64,
    "boolean": np.bool_,
    "int": np.int32,
}


def open_table(path: str, **options: str | bool) -> CasaTable:
    """A casacore table, without messages about its opening; the options are casacore's."""
    return table(path, ack=False, **options)


def open_for_writing(path: str) -> CasaTable:
    """The main table of a set, locked; what a writer that has ended left broken is restored before.

    Whoever had the lock may have been killed while this one waited for it, with a backup, and with table.info
    empty. A table that was opened then would write back that it is of no type: it is opened anew.
    """
    for _ in range(_ATTEMPTS):
        restore_backup(Path(path), wait=True)
        main = open_table(path, readonly=False, lockoptions="permanentwait")
        # A table of no type is closed before anything is restored: it may write that as it is closed.
        if (main.info()["type"] or not _has_type(Path(path))) and not restore_backup(Path(path)):
            return main
        main.close()
    raise RefusalError(f"{INFO} of the set could not be read: others wrote to it all the time; try again")


def _has_type(path: Path) -> bool:
    """Whether table.info, or the backup of it, names a type."""
    path = path / FOLDER if (path / FOLDER / INFO).exists() else path
    try:
        first = (path / INFO).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except FileNotFoundError:
        return False
    return bool(first.removeprefix("Type =").strip())


def open_subtable(main: CasaTable, name: str) -> CasaTable:
    """The subtable that a keyword of the main table names."""
    return open_table(main.getkeyword(name).removeprefix("Table: "))


def visibility_columns(main: CasaTable) -> list[str]:
    """Columns of complex numbers."""
    types = {name: main.getcoldesc(name)["valueType"].lower() for name in main.colnames()}
    return [name for name, value_type in types.items() if value_type in ("complex", "dcomplex")]


def incomplete_columns(main: CasaTable) -> list[str]:
    """Visibility columns of which a run that was interrupted wrote only a part."""
    names = visibility_columns(main)
    return [name for name in names if main.getcolkeywords(name).get(COMPLETE) is False]


def is_half_flagged(main: CasaTable) -> bool:
    """Whether a run that wrote flags was interrupted."""
    return "FLAG" in main.colnames() and main.getcolkeywords("FLAG").get(COMPLETE) is False


def column_type(main: CasaTable, column: str) -> np.dtype[np.generic]:
    """Type of a column's elements."""
    return np.dtype(NUMPY_TYPES[main.getcoldesc(column)["valueType"].lower()])


def undefined_rows(rows: CasaTable, column: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows whose cell has no value, counted within `rows`.

    This is to be asked before reading: casacore 3.8 dies with SIGSEGV when a span of a tiled column has cells
    without a value.

    Parameters
    ----------
    rows : table
    column : str
    shape : (n_chan, n_corr) or (n_corr,)
        Of every cell that has a value.

    Returns
    -------
    int64 (n_undefined,)

    Raises
    ------
    RefusalError
        A cell has another shape.
    """
    if not rows.nrows():  # a query of no rows ends casacore 3.8 with SIGSEGV where cells have a fixed shape
        return np.zeros(0, np.int64)
    # The number of elements and the length of the first axis together give the shape. They are asked in the
    # order of their cost. The whole shape is never asked: that takes longer than reading a narrow column.
    size = int(np.prod(shape))
    condition = f"!isdefined({column}) || nelements({column}) != {size} || ndim({column}) != {len(shape)}"
    if len(shape) > 1:
        condition += f" || shape({column})[0] != {shape[0]}"
    odd = rows.query(condition)
    if not odd.nrows():
        return np.zeros(0, np.int64)
    wrong = odd.query(f"isdefined({column}) && nelements({column}) > 0", limit=1)
    if wrong.nrows():
        raise RefusalError(
            f"{column} of row {wrong.rownumbers()[0]} has shape {np.shape(wrong.getcell(column, 0))},"
            f" but its data description says {shape}"
        )
    return np.array(odd.rownumbers(rows), np.int64)


def read_cells(
    rows: CasaTable,
    column: str,
    span: tuple[int, int],
    missing: NDArray[np.int64],
    values: NDArray[np.generic],
) -> NDArray[np.int64]:
    """Fill an array with a span of rows, 0 where there is no value.

    Parameters
    ----------
    rows : table
    column : str
    span : (int, int)
        First row and number of rows, counted within `rows`.
    missing : int64 (n_undefined,)
        As `undefined_rows` gives it.
    values : array (number of rows, ...)
        Written to; of the column's type and the shape of its cells.

    Returns
    -------
    int64
        Rows without a value, counted within the span.
    """
    start, number = span
    undefined = missing[(missing >= start) & (missing < start + number)] - start
    if undefined.size:
        values[...] = 0
        defined = np.setdiff1d(np.arange(number), undefined)
        if defined.size:
            cells = np.empty((len(defined), *values.shape[1:]), values.dtype)
            rows.selectrows(start + defined).getcolnp(column, cells)
            values[defined] = cells
    else:
        rows.getcolnp(column, values, start, number)
    return undefined
