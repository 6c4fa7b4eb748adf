"""Read and make calibration tables of CASA in the child process."""

from __future__ import annotations

import os

import numpy as np
from casacore.tables import makearrcoldesc, makescacoldesc, maketabdesc
from casacore.tables import table as new_table
from numpy.typing import NDArray

from biro.files.child_messages import ParentConnection, RefusalError
from biro.io.measurement_set.child.casacore_table import CasaTable, open_subtable, open_table
from biro.io.measurement_set.child.columns import GAINS, SUBTABLES, check_kinds
from biro.io.measurement_set.metadata import GainMetadata

KINDS = ("G Jones", "T Jones", "B Jones")
"""Calibration tables whose numbers are complex gains."""
COLUMNS = ("TIME", "ANTENNA1", "SPECTRAL_WINDOW_ID", "CPARAM", "FLAG")
CHUNK_ROWS = 1 << 14
COPIED = ("OBSERVATION", "ANTENNA", "FIELD", "SPECTRAL_WINDOW", "HISTORY")
INTEGERS = ("FIELD_ID", "SPECTRAL_WINDOW_ID", "ANTENNA1", "ANTENNA2", "SCAN_NUMBER", "OBSERVATION_ID")
ARRAYS = {"CPARAM": "complex", "PARAMERR": "float", "FLAG": "boolean", "SNR": "float", "WEIGHT": "float"}


class GainReader:
    """Answers `gains`."""

    def __init__(self, parent: ParentConnection) -> None:
        self.parent = parent

    def gains(self, path: str) -> None:
        """Answer with the names of antennas and frequencies, then with each column.

        The columns of each spectral window are sent apart, for windows may differ in their channels.
        """
        self.parent.report(f"opening {os.path.join(path, 'table.dat')} and the data files beside it")
        main = open_table(path, lockoptions="permanentwait")
        kind = main.info().get("subType", "") or main.info().get("type", "") or "of no stated type"
        missing = [name for name in COLUMNS if name not in main.colnames()]
        missing += [f"subtable {n}" for n in ("ANTENNA", "SPECTRAL_WINDOW") if n not in main.keywordnames()]
        if missing or kind not in KINDS:
            lacks = f": it has no {', '.join(missing)}" if missing else ""
            raise RefusalError(
                f"a casacore table ({kind}), but not one of gains ({', '.join(KINDS)}){lacks}; solve with "
                "gaincal or bandpass"
            )
        check_kinds(main, "the table of gains", GAINS)
        antenna, window = open_subtable(main, "ANTENNA"), open_subtable(main, "SPECTRAL_WINDOW")
        check_kinds(antenna, "its subtable ANTENNA", SUBTABLES["ANTENNA"])
        check_kinds(window, "its subtable SPECTRAL_WINDOW", SUBTABLES["SPECTRAL_WINDOW"])
        of_window = np.asarray(main.getcol("SPECTRAL_WINDOW_ID")) if main.nrows() else np.zeros(0, int)
        windows = np.unique(of_window).tolist()
        if windows and not (windows[0] >= 0 and windows[-1] < window.nrows()):
            raise RefusalError(
                f"SPECTRAL_WINDOW_ID runs from {windows[0]} to {windows[-1]}, but its subtable "
                f"SPECTRAL_WINDOW has {window.nrows()} rows"
            )
        self.parent.send(
            {
                "kind": kind,
                "antennas": list(antenna.getcol("NAME")),
                "stations": list(antenna.getcol("STATION")) if "STATION" in antenna.colnames() else [],
                "freq": [np.ravel(window.getcell("CHAN_FREQ", i)).tolist() for i in windows],
            }
        )
        for i in windows:
            self._window(main.selectrows(np.flatnonzero(of_window == i)))

    def _window(self, rows: CasaTable) -> None:
        for name in ("TIME", "ANTENNA1", "INTERVAL", "CPARAM", "FLAG"):
            self.parent.report(f"reading {name}")
            is_there = name in rows.colnames()  # INTERVAL need not be
            self.parent.send(
                {}, np.ascontiguousarray(rows.getcol(name) if is_there else np.zeros(rows.nrows()))
            )


class GainWriter:
    """Answers `create_gains`, `fill_gains` and `close_gains`, in this order.

    It makes a table with the subtables of the Measurement Set.
    """

    def __init__(self, parent: ParentConnection) -> None:
        self.parent = parent

    def create_gains(self, path: str, source: str, metadata: GainMetadata) -> None:
        """Make the main table with empty rows, and copy the subtables of the set."""
        self.parent.report(f"making {path}")
        columns = [makescacoldesc(name, 0) for name in INTEGERS]
        columns += [makescacoldesc(name, 0.0) for name in ("TIME", "INTERVAL")]
        columns += [makearrcoldesc(n, 0, valuetype=kind, ndim=-1) for n, kind in ARRAYS.items()]
        self.main = new_table(path, maketabdesc(columns), nrow=metadata["n_row"], ack=False)
        for name in ("TIME", "INTERVAL"):
            self.main.putcolkeyword(name, "QuantumUnits", ["s"])
        self.main.putcolkeyword("TIME", "MEASINFO", {"type": "epoch", "Ref": metadata["time_scale"]})
        self.main.putinfo({"type": "Calibration", "subType": metadata["kind"], "readme": "written by biro"})
        self.main.putkeyword("ParType", "Complex")
        self.main.putkeyword("MSName", os.path.basename(source))
        self.main.putkeyword("VisCal", metadata["kind"])
        self.main.putkeyword("PolBasis", metadata["basis"])
        given = open_table(source)
        for name in COPIED:
            if name not in given.keywordnames():
                raise RefusalError(f"no subtable {name}, which a calibration table needs")
            place = os.path.join(path, name)
            open_subtable(given, name).copy(place, deep=True, valuecopy=True).close()
            self.main.putkeyword(name, f"Table: {place}")
        self._windows(os.path.join(path, "SPECTRAL_WINDOW"), metadata)
        self.parent.send({})

    def _windows(self, path: str, metadata: GainMetadata) -> None:
        """The frequencies that the solutions are of."""
        windows = open_table(path, readonly=False)
        for i in range(windows.nrows()):
            stated = metadata["windows"].get(str(i))
            freq = np.ravel(windows.getcell("CHAN_FREQ", i)) if stated is None else np.array(stated["freq"])
            width = (
                np.ravel(windows.getcell("CHAN_WIDTH", i)) if stated is None else np.array(stated["width"])
            )
            if stated is None and metadata["kind"] == "G Jones":
                freq, width = np.array([freq.mean()]), np.array([width.sum()])
            windows.putcell("NUM_CHAN", i, len(freq))
            windows.putcell("CHAN_FREQ", i, freq)
            for column in ("CHAN_WIDTH", "EFFECTIVE_BW", "RESOLUTION"):
                windows.putcell(column, i, width)
            windows.putcell("TOTAL_BANDWIDTH", i, float(np.abs(width).sum()))
        windows.close()

    def fill_gains(self, array: NDArray[np.generic], column: str, start: int) -> None:
        """Fill some rows of a column."""
        self.parent.report(f"filling {column}")
        self.main.putcol(column, array, startrow=start, nrow=len(array))
        self.parent.send({})

    def close_gains(self) -> None:
        """Write everything out."""
        self.parent.report(f"flushing {self.main.name()}")
        self.main.flush(True)
        self.main.close()
        self.parent.send({})
