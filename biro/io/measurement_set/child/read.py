"""Read in the child process: what the subtables say, index columns, and chunks of data columns."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.files.child_messages import ParentConnection, RefusalError
from biro.io.data_set.metadata import FieldMetadata, Metadata, SpectralWindow
from biro.io.data_set.plausible import is_time
from biro.io.measurement_set.backup import restore_backup
from biro.io.measurement_set.child.beam_offset import BeamOffsets, FeedRows, move_beams
from biro.io.measurement_set.child.casacore_table import (
    CasaTable,
    column_type,
    incomplete_columns,
    is_half_flagged,
    open_subtable,
    open_table,
    read_cells,
    undefined_rows,
    visibility_columns,
)
from biro.io.measurement_set.child.columns import (
    MAIN,
    SUBTABLES,
    check_kinds,
    check_shape,
    check_subtable,
    measure,
    time_scale,
)
from biro.io.measurement_set.child.directions import FieldDirections
from biro.io.measurement_set.child.feeds import mounts, receptor_angles
from biro.io.measurement_set.child.phase_centres import PhaseCentres, utc_offset
from biro.io.measurement_set.child.pointing import (
    ObservedTimes,
    PointingTable,
    beam_widths,
    is_station,
    of_field,
    of_table,
)
from biro.io.measurement_set.child.weight_writer import belongs
from biro.io.measurement_set.metadata import FREQUENCY_FRAMES, STOKES, MainTableColumns

CHUNK_BYTES = 32 << 20
"""Bytes of a column that are read and sent at a time."""
QUERY_ROWS = 1 << 22
"""Rows that one query is about: it takes some seconds, well within the time limit."""
SIGNAL_ROWS = 1 << 16
"""Rows in which a visibility that differs from 0 is looked for at a time."""
INDEX_COLUMNS = {
    "ANTENNA1": np.int32,
    "ANTENNA2": np.int32,
    "FIELD_ID": np.int32,
    "DATA_DESC_ID": np.int32,
    "SCAN_NUMBER": np.int32,
    "FLAG_ROW": np.bool_,
    "TIME": np.float64,
    "INTERVAL": np.float64,
    "EXPOSURE": np.float64,
    "UVW": np.float64,
}
"""Columns that rows are selected by, and the types in which they are sent."""


class Reader:
    """Answers `open`, `metadata`, `index` and `read`."""

    def __init__(self, parent: ParentConnection) -> None:
        self.parent = parent

    def open(self, path: str) -> None:
        """Open the set and check that it is one; answers with its column names."""
        self.path = path
        self.parent.report(f"opening {os.path.join(path, 'table.dat')} and the data files beside it")
        main = self._opened(path)
        needed = [name for name in INDEX_COLUMNS if name not in ("INTERVAL", "EXPOSURE")]
        missing = [name for name in needed if name not in main.colnames()]
        missing += [f"subtable {name}" for name in SUBTABLES if name not in main.keywordnames()]
        if missing:
            type_ = main.info().get("type") or "of no stated type"
            raise RefusalError(
                f"a casacore table ({type_}), but not a Measurement Set: it has no {', '.join(missing)}"
            )
        check_kinds(main, "the main table", MAIN)
        self.main = main
        self.files = {}
        for manager in main.getdminfo().values():
            for column in manager["COLUMNS"]:
                self.files[column] = f"table.f{manager['SEQNR']}"
        visibility = visibility_columns(main)
        columns: MainTableColumns = {
            "columns": main.colnames(),
            "visibility": visibility,
            "incomplete": incomplete_columns(main),
            "half_flagged": is_half_flagged(main),
        }
        self.parent.send({**columns})

    def _opened(self, path: str) -> CasaTable:
        """The main table; a process that was writing to it may be killed while its lock is waited for."""
        try:
            return open_table(path, lockoptions="permanentwait")
        except RuntimeError:
            if not restore_backup(Path(path), wait=True):
                raise
        return open_table(path, lockoptions="permanentwait")

    def metadata(self) -> None:
        """Answer with what the subtables say."""
        tables = {}
        for name in SUBTABLES:
            self._report_subtable(name)
            tables[name] = open_subtable(self.main, name)
            check_subtable(tables[name], name)
        times = self._column("TIME").astype(np.float64) if self.main.nrows() else np.zeros(1)
        time = next(iter(times[is_time(times)]), 0.0)  # whoever selects rows of other times is told so
        scale = time_scale(self.main)
        antenna, description = tables["ANTENNA"], tables["DATA_DESCRIPTION"]
        self._report_subtable("ANTENNA")
        positions = np.asarray(antenna.getcol("POSITION"))
        check_shape(positions, "POSITION of its subtable ANTENNA", 3)
        telescopes = tables["OBSERVATION"].getcol("TELESCOPE_NAME") if tables["OBSERVATION"].nrows() else []
        metadata: Metadata = {
            "antenna_names": list(antenna.getcol("NAME")),
            "antenna_positions": positions.tolist(),
            "dish_diameter": list(map(float, antenna.getcol("DISH_DIAMETER"))),
            "fields": self._fields(
                tables, times, scale, FieldDirections(tables["FIELD"], time, scale, positions)
            ),
            "spws": self._spectral_windows(tables["SPECTRAL_WINDOW"]),
            "corr_types": self._correlation_names(tables["POLARIZATION"]),
            "data_descriptions": self._descriptions(description),
            "telescope": ", ".join(dict.fromkeys(telescopes)) or "UNKNOWN",
            "time_scale": scale,
            "utc_offset": utc_offset(time, scale),
            "uvw_frame": str(measure(self.main, "UVW").get("Ref", "")),
            "mounts": mounts(antenna),
            "receptor_angles": self._receptor_angles(antenna.nrows(), tables["SPECTRAL_WINDOW"].nrows()),
        }
        self.parent.send({**metadata})

    def _descriptions(self, description: CasaTable) -> list[list[int]]:
        """Spectral window and polarization of each data description."""
        self._report_subtable("DATA_DESCRIPTION")
        names = ("SPECTRAL_WINDOW_ID", "POLARIZATION_ID")
        return [[int(description.getcell(name, i)) for name in names] for i in range(description.nrows())]

    def _correlation_names(self, polarization: CasaTable) -> list[list[str]]:
        self._report_subtable("POLARIZATION")
        codes = (np.ravel(polarization.getcell("CORR_TYPE", i)).tolist() for i in range(polarization.nrows()))
        return [
            [STOKES[code] if 0 <= code < len(STOKES) else f"code {code}" for code in row] for row in codes
        ]

    def _spectral_windows(self, window: CasaTable) -> list[SpectralWindow]:
        self._report_subtable("SPECTRAL_WINDOW")
        names = window.getcol("NAME") if "NAME" in window.colnames() else [""] * window.nrows()
        windows: list[SpectralWindow] = []
        for i, name in enumerate(names):
            code = int(window.getcell("MEAS_FREQ_REF", i)) if "MEAS_FREQ_REF" in window.colnames() else 5
            freq, width = (
                np.ravel(window.getcell(column, i)).tolist() for column in ("CHAN_FREQ", "CHAN_WIDTH")
            )
            if len(freq) != len(width):
                raise RefusalError(
                    f"spectral window {i} has {len(freq)} frequencies in CHAN_FREQ and {len(width)} widths "
                    "in CHAN_WIDTH of its subtable SPECTRAL_WINDOW"
                )
            windows.append(
                {
                    "name": str(name),
                    "chan_freq": freq,
                    "chan_width": width,
                    "frame": FREQUENCY_FRAMES[code] if 0 <= code < len(FREQUENCY_FRAMES) else "undefined",
                }
            )
        return windows

    def _report_subtable(self, name: str) -> None:
        self.parent.report(f"reading subtable {os.path.join(self.path, name)}")

    def _fields(
        self,
        tables: dict[str, CasaTable],
        times: NDArray[np.float64],
        scale: str,
        directions: FieldDirections,
    ) -> list[FieldMetadata]:
        """Phase centres, and where the dishes pointed."""
        self._report_subtable("FIELD")
        fields = PhaseCentres(directions).fields()
        telescopes = tables["OBSERVATION"].getcol("TELESCOPE_NAME") if tables["OBSERVATION"].nrows() else []
        telescope = next(iter(telescopes), "")
        middle = float(np.median(times[is_time(times)])) if is_time(times).any() else 0.0
        table = None if is_station(telescope) else self._pointing_table(middle, scale, directions.positions)
        observed = {} if table is None else self._observed(tables, times)
        for i, field in enumerate(fields):
            if field["problem"]:
                continue
            ra, dec = field["direction"]
            found, note = of_field(directions, i, (ra, dec), telescope, middle)
            if table is not None and i in observed and not directions.moves(i):
                self._report_subtable("POINTING")
                better, why = of_table(table, observed[i], found["centre"])
                found, note = better or found, why if better else "; ".join(filter(None, (note, why)))
            field["pointing"] = found
            field["note"] = "; ".join(filter(None, (field["note"], note))) or None
        self._move_beams(fields, times, mounts(tables["ANTENNA"]), telescope)
        return fields

    def _move_beams(
        self, fields: list[FieldMetadata], times: NDArray[np.float64], mounts: list[str], telescope: str
    ) -> None:
        """Take in BEAM_OFFSET of FEED, where beams are off."""
        offsets = self._beam_offsets()
        if offsets is None or not offsets.is_needed():
            return
        names = ("ANTENNA1", "ANTENNA2", "FEED1", "FEED2")
        antenna1, antenna2, feed1, feed2 = (self._column(name).astype(np.int64) for name in names)
        of_row = self._column("FIELD_ID")
        inside = (np.maximum(antenna1, antenna2) < len(mounts)) & (np.minimum(antenna1, antenna2) >= 0)
        for i, field in enumerate(fields):
            rows = np.flatnonzero((of_row == i) & is_time(times) & inside)
            if rows.size and not field["problem"]:
                antenna, feed = np.stack([antenna1, antenna2])[:, rows], np.stack([feed1, feed2])[:, rows]
                move_beams(field, offsets, FeedRows(times[rows], antenna, feed), mounts, telescope)

    def _beam_offsets(self) -> BeamOffsets | None:
        """BEAM_OFFSET, where FEED and the rows have what belongs to it."""
        if "FEED" not in self.main.keywordnames() or "FEED1" not in self.main.colnames():
            return None
        self.parent.report(f"reading subtable {os.path.join(self.path, 'FEED')}")
        try:
            feed = open_subtable(self.main, "FEED")
            needed = {"BEAM_OFFSET", "ANTENNA_ID", "FEED_ID", "TIME", "INTERVAL"}
            return BeamOffsets(feed) if needed <= set(feed.colnames()) else None
        except RuntimeError:  # casacore's; a damaged FEED is told of by what needs its angles
            return None

    def _observed(self, tables: dict[str, CasaTable], times: NDArray[np.float64]) -> dict[int, ObservedTimes]:
        """When and with which antennas each field was observed."""
        windows, antenna = tables["SPECTRAL_WINDOW"], tables["ANTENNA"]
        freq = [np.ravel(windows.getcell("CHAN_FREQ", i)) for i in range(windows.nrows())]
        beams = beam_widths(np.asarray(antenna.getcol("DISH_DIAMETER")), np.concatenate([*freq, np.zeros(0)]))
        of_row = self._column("FIELD_ID")
        pairs = np.stack([self._column("ANTENNA1"), self._column("ANTENNA2")]).astype(np.int64)
        found = {}
        for field in np.unique(of_row).tolist():
            rows = np.flatnonzero((of_row == field) & is_time(times))
            used = np.unique(pairs[:, rows])
            used = used[(used >= 0) & (used < antenna.nrows())]
            if rows.size and used.size:
                found[field] = ObservedTimes(np.unique(times[rows]), used, *beams)
        return found

    def _pointing_table(
        self, time: float, scale: str, positions: NDArray[np.float64]
    ) -> PointingTable | None:
        """POINTING, where it has rows and can be read."""
        if "POINTING" not in self.main.keywordnames():
            return None
        self._report_subtable("POINTING")
        try:
            table = open_subtable(self.main, "POINTING")
            if not table.nrows():
                return None
            own = time_scale(table, scale)
            return PointingTable(table, positions, scale, utc_offset(time, own) - utc_offset(time, scale))
        except (RuntimeError, RefusalError):  # a set without it is as good
            return None

    def _receptor_angles(self, n_antenna: int, n_window: int) -> list[list[float | None]]:
        if "FEED" not in self.main.keywordnames():
            return [[None] * n_antenna for _ in range(n_window)]
        self._report_subtable("FEED")
        try:
            return receptor_angles(open_subtable(self.main, "FEED"), n_antenna, n_window)
        except RuntimeError:  # casacore's; few models need these angles, and they say that FEED lacks them
            return [[None] * n_antenna for _ in range(n_window)]

    def index(self) -> None:
        """Answer with the columns that rows are selected by, one message each."""
        names = [name for name in INDEX_COLUMNS if name in self.main.colnames()]
        self.parent.send({"columns": names})
        for name in names:
            values = self._column(name)
            if name == "UVW" and len(values):
                check_shape(values, name, 3)
            self.parent.send({}, values.astype(INDEX_COLUMNS[name], copy=False))

    def read(
        self,
        array: NDArray[np.int64],
        column: str,
        shape: list[int],
        chan: list[int] | None,
        corr: list[int] | None,
    ) -> None:
        """Answer with chunks of a column; the last message says {"end": True}.

        Each chunk's header has "start" and "undefined", the rows (within the chunk) that have no value.

        Parameters
        ----------
        array : int64 (n_row,)
            Row numbers.
        column : str
        shape : [n_chan, n_corr] or [n_corr]
            Of a stored cell.
        chan, corr : indices of the channels and correlations that are wanted; None means all.
        """
        self._report(column)
        rows = self.main if len(array) == self.main.nrows() else self.main.selectrows(array)
        dtype = column_type(self.main, column)
        missing = self.undefined_in_blocks(rows, column, tuple(shape))
        size = max(1, CHUNK_BYTES // (dtype.itemsize * int(np.prod(shape))))
        for start in range(0, len(array), size):
            self._report(column)
            n_row = min(size, len(array) - start)
            values = np.empty((n_row, *shape), dtype)
            undefined = read_cells(rows, column, (start, n_row), missing, values)
            self.parent.send({"start": start, "undefined": undefined.tolist()}, _pick(values, chan, corr))
        self.parent.send({"end": True})

    def find_signal(self, column: str) -> None:
        """Answer whether any visibility of a column differs from 0; cells without a value do not."""
        number = self.main.nrows()
        for start in range(0, number, SIGNAL_ROWS):
            self._report(column)
            block = self.main.selectrows(np.arange(start, min(start + SIGNAL_ROWS, number)))
            if block.query(f"isdefined({column}) && any({column} != 0)", limit=1).nrows():
                self.parent.send({"found": True})
                return
        self.parent.send({"found": False})

    def weights_there(self, column: str, data: str, field: int, description: int) -> None:
        """Answer how a column of weights is filled in the rows of a field and a data description.

        "undefined" is the number of rows that have data and no weight, "positive" whether any weight is
        above 0.
        """
        self._report(column)
        rows = self.main.query(f"FIELD_ID == {field} && DATA_DESC_ID == {description}")
        undefined = positive = 0
        if rows.nrows():
            self._report(column)
            undefined = rows.query(f"!isdefined({column}) && isdefined({data})").nrows()
            self._report(column)
            condition = f"isdefined({column}) && any({column} > 0)"
            positive = rows.query(condition, limit=1).nrows()
        self.parent.send({"rows": rows.nrows(), "undefined": undefined, "positive": bool(positive)})

    def weights_belong(self, column: str, data: str) -> None:
        """Answer whether weights that biro wrote for a column of visibilities still belong to it."""
        self._report(column)
        self.parent.send({"belong": belongs(self.main, column, data)})

    def undefined_in_blocks(self, rows: CasaTable, column: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """`undefined_rows` in blocks, each reported: a large set has hundreds of them."""
        number = rows.nrows()
        if number <= QUERY_ROWS:
            return undefined_rows(rows, column, shape)
        blocks = []
        for start in range(0, number, QUERY_ROWS):
            self._report(column)
            block = rows.selectrows(np.arange(start, min(start + QUERY_ROWS, number)))
            blocks.append(start + undefined_rows(block, column, shape))
        return np.concatenate(blocks)

    def _report(self, column: str) -> None:
        file = os.path.join(self.path, self.files.get(column, "table.dat"))
        self.parent.report(f"reading {column} from {file}*")

    def _column(self, name: str) -> NDArray[np.generic]:
        """A whole column that has one value a row."""
        self._report(name)
        try:
            values = self.main.getcol(name)
        except RuntimeError:
            without = sum(not self.main.iscelldefined(name, i) for i in range(self.main.nrows()))
            if without:
                raise RefusalError(f"{name} has no value in {without} of {self.main.nrows()} rows") from None
            raise
        if len(values) != self.main.nrows():
            raise RefusalError(f"{name} gave {len(values)} rows of {self.main.nrows()}; the set is truncated")
        return np.asarray(values)


def _pick(values: NDArray[np.generic], chan: list[int] | None, corr: list[int] | None) -> NDArray[np.generic]:
    """The channels and correlations that are wanted, of (n_row, n_chan, n_corr) or (n_row, n_corr)."""
    if chan is not None and values.ndim == 3:
        values = values[:, chan]
    return values if corr is None else values[..., corr]
