"""Tables of a FITS file of others as plain columns, with nothing taken on trust that a header says."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from biro.errors import DataError
from biro.files.fits_vetting import vet
from biro.files.memory import free_memory

if TYPE_CHECKING:
    from astropy.io.fits import BinTableHDU

_SCALAR = re.compile(r"1?[LBIJKED]\Z|\d{0,5}A\Z")
"""Forms of columns that hold one number or one text in each row."""


@dataclass(frozen=True)
class FitsTable:
    """A table of a FITS file.

    Attributes
    ----------
    values : dict of str to list of float, int or str
    units : dict of str to str
        Of columns that state one.
    header : dict of str to float or str
    """

    values: dict[str, list[object]]
    units: dict[str, str]
    header: dict[str, object]


def check_whole(file: Path | io.BytesIO, tables: Iterable[BinTableHDU]) -> None:
    """Refuse tables longer than the file, or with less than no rows, before astropy makes room for them.

    Raises
    ------
    DataError
        Names the table and its length.
    """
    size = file.stat().st_size if isinstance(file, Path) else len(file.getbuffer())
    for table in tables:
        header = table.header
        name = f"table {str(header.get('EXTNAME', '')).strip()}".rstrip()
        length, n_row = int(header["NAXIS1"]), int(header["NAXIS2"])
        if length < 0 or n_row < 0:  # which astropy takes for as many rows as there is room for
            raise DataError(f"{name} has {n_row} rows of {length} bytes")
        end = table.fileinfo()["datLoc"] + length * n_row
        if size < end:
            raise DataError(f"{name} ends at byte {end}, but the file has {size}; it is cut off")


def read_table(place: Path, wanted: Callable[[Sequence[str]], bool]) -> FitsTable | None:
    """The first table of a FITS file that is wanted, without columns that hold more than one number a row.

    Parameters
    ----------
    place : Path
        May be compressed by gzip.
    wanted : function
        Gets the names of a table's columns and says whether it is the one.

    Raises
    ------
    DataError
        The table is cut off.
    InputError
        A header that cannot be meant.
    """
    from astropy.io import fits

    file = vet(place, free_memory())
    with fits.open(file, mode="readonly", memmap=False, lazy_load_hdus=True) as hdus:
        for hdu in hdus:
            if not isinstance(hdu, fits.BinTableHDU) or not wanted(hdu.columns.names):
                continue
            check_whole(file, [hdu])
            scalar = [column for column in hdu.columns if _SCALAR.match(str(column.format))]
            return FitsTable(
                {column.name: hdu.data[column.name].tolist() for column in scalar},
                {column.name: str(column.unit) for column in scalar if column.unit},
                dict(hdu.header),
            )
    return None
