"""Read a component list of CASA in the child process."""

from __future__ import annotations

import os

import numpy as np

from biro.files.child_messages import Header, ParentConnection, RefusalError
from biro.io.measurement_set.child.casacore_table import CasaTable, open_table

MAX_COMPONENTS = 1_000_000
COLUMNS = {
    "flux": "Flux",
    "flux_unit": "Flux_Unit",
    "polarisation": "Flux_Polarisation",
    "shape": "Shape",
    "shape_parameters": "Shape_Parameters",
    "direction": "Reference_Direction",
    "frame": "Direction_Frame",
    "spectrum": "Spectrum_Shape",
    "spectral_parameters": "Spectral_Parameters",
    "frequency": "Reference_Frequency",
    "label": "Label",
}
"""Columns of the table, by what messages call them (ComponentList.cc of CASA)."""
OPTIONAL = ("spectral_parameters", "shape_parameters")
"""Columns that may be without a value in a row."""


class ComponentReader:
    """Answers `components`."""

    def __init__(self, parent: ParentConnection) -> None:
        self.parent = parent

    def components(self, path: str) -> None:
        """Answer with all rows of the list."""
        self.parent.report(f"opening {os.path.join(path, 'table.dat')} and the data files beside it")
        main = open_table(path, lockoptions="permanentwait")
        missing = [name for name in COLUMNS.values() if name not in main.colnames()]
        if missing:
            type_ = main.info().get("type") or "of no stated type"
            if "ANTENNA1" in main.colnames():
                raise RefusalError("a Measurement Set, expected a sky model; write the data before the model")
            raise RefusalError(
                f"a casacore table ({type_}), but not a component list: it has no {', '.join(missing)}"
            )
        if main.nrows() > MAX_COMPONENTS:
            raise RefusalError(f"{main.nrows()} components; at most {MAX_COMPONENTS} can be read")
        self.parent.report("reading components")
        unit = _unit(main, "Reference_Frequency", "Hz")
        self.parent.send({"components": [_row(main, i, unit) for i in range(main.nrows())]})


def _unit(main: CasaTable, column: str, default: str) -> str:
    given = main.getcolkeywords(column).get("QuantumUnits")
    return str(given[0]) if given is not None and len(given) else default


def _row(main: CasaTable, i: int, frequency_unit: str) -> Header:
    row: Header = {"frequency_unit": frequency_unit}
    for key, column in COLUMNS.items():
        if key in OPTIONAL and not main.iscelldefined(column, i):
            row[key] = []
            continue
        value = main.getcell(column, i)
        row[key] = value if isinstance(value, str) else np.real(np.atleast_1d(value)).astype(float).tolist()
    return row
