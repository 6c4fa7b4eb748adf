"""Make a new Measurement Set in the child process."""

from __future__ import annotations

import os

import numpy as np
from casacore.tables import default_ms, makearrcoldesc, maketabdesc
from numpy.typing import NDArray

from biro.files.child_messages import ParentConnection
from biro.files.json_value import JsonValue
from biro.io.measurement_set.child.casacore_table import CasaTable, open_table
from biro.io.measurement_set.metadata import FREQUENCY_FRAMES, NewMetadata

TILE_VISIBILITIES = 1 << 17
"""Visibilities of a tile, the unit in which casacore reads and writes."""


class Creator:
    """Answers `create`, `fill`, `select_rows`, `fill_cells` and `close_new`, in this order.

    Another process goes on with a set that was closed: it answers `open_new` in the place of the first two.
    """

    def __init__(self, parent: ParentConnection) -> None:
        self.parent = parent

    def create(self, path: str, metadata: NewMetadata) -> None:
        """Make the main table with empty rows, and the subtables."""
        self.parent.report(f"making {path}")
        n_chan = max(len(item["chan_freq"]) for item in metadata["descriptions"])
        n_corr = max(len(item["corr_codes"]) for item in metadata["descriptions"])
        columns = maketabdesc(
            [
                makearrcoldesc("DATA", 0j, valuetype="complex", ndim=2, comment="visibilities"),
                makearrcoldesc("WEIGHT_SPECTRUM", 0.0, valuetype="float", ndim=2, comment="1/sigma^2"),
            ]
        )
        self.main = default_ms(path, columns, _managers(n_chan, n_corr))
        self.main.addrows(metadata["n_row"])
        self._antennas(metadata)
        self._feeds(metadata)
        self._fields(metadata)
        self._pointings(metadata)
        self._windows(metadata)
        self._observation(metadata)
        self.parent.send({})

    def open_new(self, path: str) -> None:
        """Go on with a set that another process has made and closed."""
        self.parent.report(f"waiting for the lock of {path}")
        self.main = open_table(path, readonly=False, lockoptions="permanentwait")
        self.parent.send({})

    def _subtable(self, name: str, n_row: int) -> CasaTable:
        self.parent.report(f"filling the subtable {name}")
        table = open_table(os.path.join(self.main.name(), name), readonly=False)
        table.addrows(n_row)
        return table

    def _antennas(self, metadata: NewMetadata) -> None:
        n_antenna = len(metadata["antenna_names"])
        antenna = self._subtable("ANTENNA", n_antenna)
        antenna.putcol("NAME", metadata["antenna_names"])
        antenna.putcol("STATION", metadata["antenna_names"])
        antenna.putcol("POSITION", np.array(metadata["antenna_positions"], np.float64).reshape(-1, 3))
        antenna.putcol("OFFSET", np.zeros((n_antenna, 3)))
        antenna.putcol("DISH_DIAMETER", np.array(metadata["dish_diameter"], np.float64))
        antenna.putcol("TYPE", ["GROUND-BASED"] * n_antenna)
        antenna.putcol("MOUNT", metadata["mounts"])
        antenna.close()

    def _feeds(self, metadata: NewMetadata) -> None:
        n_antenna = len(metadata["antenna_names"])
        feed = self._subtable("FEED", n_antenna)
        for i in range(n_antenna):
            feed.putcell("ANTENNA_ID", i, i)
            feed.putcell("SPECTRAL_WINDOW_ID", i, -1)
            feed.putcell("NUM_RECEPTORS", i, 2)
            feed.putcell("BEAM_ID", i, -1)
            feed.putcell("BEAM_OFFSET", i, np.zeros((2, 2)))
            feed.putcell("POLARIZATION_TYPE", i, ["R", "L"] if metadata["circular"][i] else ["X", "Y"])
            feed.putcell("POL_RESPONSE", i, np.eye(2, dtype=np.complex64))
            feed.putcell("POSITION", i, np.zeros(3))
            feed.putcell("RECEPTOR_ANGLE", i, np.full(2, metadata["receptor_angles"][i]))
        feed.putcol("TIME", np.full(n_antenna, np.mean(metadata["time_range"])))
        feed.putcol("INTERVAL", np.full(n_antenna, 1e30))
        feed.close()

    def _fields(self, metadata: NewMetadata) -> None:
        field = self._subtable("FIELD", len(metadata["fields"]))
        for i, item in enumerate(metadata["fields"]):
            field.putcell("NAME", i, item["name"])
            field.putcell("PHASE_DIR", i, np.array([item["direction"]]))
            for column in ("DELAY_DIR", "REFERENCE_DIR"):
                field.putcell(column, i, np.array([item["pointing"]]))
            field.putcell("SOURCE_ID", i, -1)
            field.putcell("TIME", i, metadata["time_range"][0])
        field.close()

    def _pointings(self, metadata: NewMetadata) -> None:
        rows = np.array(metadata["pointings"], np.float64).reshape(-1, 5)
        pointing = self._subtable("POINTING", len(rows))
        if len(rows):
            pointing.putcol("ANTENNA_ID", rows[:, 0].astype(np.int32))
            pointing.putcol("TIME", rows[:, 1])
            pointing.putcol("INTERVAL", rows[:, 2])
            pointing.putcol("NUM_POLY", np.zeros(len(rows), np.int32))
            pointing.putcol("TIME_ORIGIN", rows[:, 1])
            pointing.putcol("TRACKING", np.ones(len(rows), bool))
            for column in ("DIRECTION", "TARGET"):
                pointing.putcol(column, rows[:, None, 3:])
        pointing.close()

    def _windows(self, metadata: NewMetadata) -> None:
        number = len(metadata["descriptions"])
        window, polarization, description = (
            self._subtable(name, number) for name in ("SPECTRAL_WINDOW", "POLARIZATION", "DATA_DESCRIPTION")
        )
        for i, item in enumerate(metadata["descriptions"]):
            width = np.array(item["chan_width"])
            frame = item["frame"]
            window.putcell("NAME", i, item["name"])
            window.putcell("NUM_CHAN", i, len(width))
            window.putcell("CHAN_FREQ", i, np.array(item["chan_freq"]))
            for column in ("CHAN_WIDTH", "EFFECTIVE_BW", "RESOLUTION"):
                window.putcell(column, i, width)
            window.putcell("REF_FREQUENCY", i, item["chan_freq"][0])
            window.putcell("TOTAL_BANDWIDTH", i, float(width.sum()))
            window.putcell(
                "MEAS_FREQ_REF", i, FREQUENCY_FRAMES.index(frame) if frame in FREQUENCY_FRAMES else 64
            )
            window.putcell("NET_SIDEBAND", i, 1)
            polarization.putcell("NUM_CORR", i, len(item["corr_codes"]))
            polarization.putcell("CORR_TYPE", i, np.array(item["corr_codes"], np.int32))
            polarization.putcell("CORR_PRODUCT", i, np.array(item["receptors"], np.int32))
            description.putcell("SPECTRAL_WINDOW_ID", i, i)
            description.putcell("POLARIZATION_ID", i, i)
        for table in (window, polarization, description):
            table.close()

    def _observation(self, metadata: NewMetadata) -> None:
        observation = self._subtable("OBSERVATION", 1)
        observation.putcell("TELESCOPE_NAME", 0, metadata["telescope"])
        observation.putcell("OBSERVER", 0, "biro")
        observation.putcell("PROJECT", 0, "biro")
        observation.putcell("TIME_RANGE", 0, np.array(metadata["time_range"]))
        observation.close()

    def fill(self, array: NDArray[np.generic], column: str) -> None:
        """Fill a whole column that has one value a row."""
        self.parent.report(f"filling {column}")
        self.main.putcol(column, array)
        if column == "TIME":
            self.main.putcol("TIME_CENTROID", array)
        self.parent.send({})

    def select_rows(self, array: NDArray[np.int64]) -> None:
        """Say which rows the next cells belong to."""
        self.rows = self.main.selectrows(array)
        self.parent.send({})

    def fill_cells(self, array: NDArray[np.generic], column: str) -> None:
        """Fill DATA or WEIGHT_SPECTRUM of some rows; the latter brings WEIGHT, SIGMA and FLAG along."""
        self.parent.report(f"filling {column}")
        self.rows.putcol(column, array)
        if column == "WEIGHT_SPECTRUM":
            weight = array.mean(axis=1, dtype=np.float64).astype(np.float32)
            sigma = np.divide(1, np.sqrt(weight), out=np.zeros_like(weight), where=weight > 0)
            flag = array == 0
            self.rows.putcol("WEIGHT", weight)
            self.rows.putcol("SIGMA", sigma)
            self.rows.putcol("FLAG", flag)
            self.rows.putcol("FLAG_ROW", flag.all(axis=(1, 2)))
        self.parent.send({})

    def close_new(self) -> None:
        """Write everything out."""
        self.parent.report(f"flushing {self.main.name()}")
        self.main.flush(True)
        self.main.close()
        self.parent.send({})


def _managers(n_chan: int, n_corr: int) -> dict[str, JsonValue]:
    """Tiled storage for what is large; the shape of a tile runs fastest axis first, as casacore has it."""
    rows = max(1, TILE_VISIBILITIES // (n_chan * n_corr))
    tiles = {
        "DATA": [n_corr, n_chan, rows],
        "WEIGHT_SPECTRUM": [n_corr, n_chan, rows],
        "FLAG": [n_corr, n_chan, rows],
        "WEIGHT": [n_corr, rows],
        "SIGMA": [n_corr, rows],
    }
    managers = {}
    for i, (column, tile) in enumerate(tiles.items()):
        managers[f"*{i + 1}"] = {
            "TYPE": "TiledShapeStMan",
            "NAME": f"Tiled{column}",
            "SEQNR": i,
            "COLUMNS": [column],
            "SPEC": {"DEFAULTTILESHAPE": np.array(tile, np.int32)},
        }
    return managers
