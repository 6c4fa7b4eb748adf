"""Write the weights that go with CORRECTED_DATA, in the child process."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np
from casacore.tables import makearrcoldesc, maketabdesc
from numpy.typing import NDArray

from biro.files.child_messages import RefusalError
from biro.io.measurement_set.child.casacore_table import (
    COMPLETE,
    CasaTable,
    column_type,
    read_cells,
    undefined_rows,
)
from biro.io.measurement_set.child.write import Writer

OF_DATA = "BIRO_OF_DATA"
"""Keyword: `mark_of` the visibilities that the weights were made for."""
_MARKED = 1024
"""Rows whose visibilities are in the mark."""


class WeightWriter(Writer):
    """Writes weights in a column of their own: those of another column times a factor for each visibility.

    Rows without a factor have the weights of the other column. The steps are those of `Writer`.
    """

    data = "CORRECTED_DATA"

    def finish(self) -> None:
        """Mark the visibilities that the weights belong to, and end as a column of visibilities ends."""
        self.main.putcolkeyword(self.target, OF_DATA, mark_of(self.main, self.data))
        super().finish()

    def _check_columns(self) -> list[str]:
        if self.source not in self.main.colnames():
            raise RefusalError(f"there is no column {self.source} with the weights of the data")
        return []

    def _create(self) -> None:
        taken = {each["NAME"] for each in self.main.getdminfo().values()}
        names = (f"{self.column}_manager{n or ''}" for n in itertools.count())
        name = next(each for each in names if each not in taken)
        n_chan, n_corr = next(iter(self.shapes.values()))
        tile = [n_corr, n_chan, max(1, (1 << 17) // (n_chan * n_corr))]
        column = makearrcoldesc(
            self.target, 0.0, valuetype="float", ndim=2, comment=f"1/sigma^2 of {self.data}, written by biro",
            datamanagertype="TiledShapeStMan", datamanagergroup=name,
        )  # fmt: skip
        column["desc"]["keywords"] = {COMPLETE: False}
        manager = {
            "TYPE": "TiledShapeStMan",
            "NAME": name,
            "SPEC": {"DEFAULTTILESHAPE": np.array(tile, np.int32)},
        }
        self.main.addcols(maketabdesc(column), manager)

    def _combined(self, source: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(source * values)

    def _values(self, rows: CasaTable, column: str, shape: tuple[int, int]) -> NDArray[np.generic]:
        """Weights (n_row, n_chan, n_corr), of a column of weights or of standard deviations."""
        of_row = column in ("WEIGHT", "SIGMA")
        cells = np.empty((rows.nrows(), *(shape[1:] if of_row else shape)), column_type(self.main, column))
        read_cells(rows, column, (0, len(cells)), undefined_rows(rows, column, cells.shape[1:]), cells)
        weight = cells.astype(np.float64)
        if column.startswith("SIGMA"):
            weight = np.divide(1.0, weight**2, out=np.zeros_like(weight), where=weight > 0.0)
        if of_row:
            weight = np.repeat(weight[:, None, :], shape[0], axis=1)
        return np.asarray(weight.astype(self.dtype))


def mark_of(main: CasaTable, column: str) -> str:
    """A checksum of some rows of a column, spread over the set; it differs when others write the column."""
    total = 0
    for row in np.unique(np.linspace(0, main.nrows() - 1, _MARKED).astype(np.int64)).tolist():
        if main.iscelldefined(column, row):
            total = zlib.crc32(np.ascontiguousarray(main.getcell(column, row)).data, total)
    return f"{total:08x}"


def belongs(main: CasaTable, weights: str, column: str) -> bool:
    """Whether a column of weights is complete and was made for the visibilities that a column has now."""
    keywords = main.getcolkeywords(weights)
    return bool(keywords.get(COMPLETE)) and keywords.get(OF_DATA) == mark_of(main, column)
