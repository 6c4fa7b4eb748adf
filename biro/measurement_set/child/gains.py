"""Read a calibration table of CASA in the child process."""

from __future__ import annotations

import os

import numpy as np

from biro.files.child_messages import ParentConnection, RefusalError
from biro.measurement_set.child.casacore_table import CasaTable, open_subtable, open_table
from biro.measurement_set.child.columns import GAINS, SUBTABLES, check_kinds

KINDS = ("G Jones", "T Jones", "B Jones")
"""Calibration tables whose numbers are complex gains."""
COLUMNS = ("TIME", "ANTENNA1", "SPECTRAL_WINDOW_ID", "CPARAM", "FLAG")
CHUNK_ROWS = 1 << 14


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
