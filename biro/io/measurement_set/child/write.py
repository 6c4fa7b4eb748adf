"""Write a column in the child process: make it, fill it in chunks, read it back, and mark it as complete."""

from __future__ import annotations

import itertools
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from casacore.tables import maketabdesc
from numpy.typing import NDArray

from biro.files.child_messages import ParentConnection, RefusalError
from biro.io.measurement_set.backup import INFO, NEW, OLD, Backup
from biro.io.measurement_set.child.casacore_table import (
    COMPLETE,
    CasaTable,
    column_type,
    incomplete_columns,
    open_for_writing,
    open_subtable,
    open_table,
    read_cells,
    undefined_rows,
    visibility_columns,
)

FAITHFUL_MANAGERS = ("TiledShapeStMan", "TiledColumnStMan", "TiledCellStMan", "StandardStMan")
"""casacore's storage managers that give values back exactly."""
SPARE_BYTES = 1 << 20
"""Room that is left on the disk beyond what the column needs."""
REST_ROWS = 4096
"""Rows to which no model belongs that are written at a time."""


class Writer:
    """Answers `prepare`, `begin`, `select`, `write` and `finish`, in this order.

    Between `pause` and `resume` others write, one after the other: each answers `join`, `select`, `write` and
    `leave`.

    Values that are changed in place, by adding or subtracting, are written into a new column beside theirs.
    It takes that column's name when it is whole and was read back, by one new table.dat: a process that is
    killed leaves all values as they were, or all of the new ones.
    """

    def __init__(self, parent: ParentConnection) -> None:
        self.parent = parent
        self.checksums: list[tuple[NDArray[np.int64], int]] = []

    def prepare(self, path: str, column: str, source: str | None, mode: str, rest: str | None = None) -> None:
        """Open for writing, and refuse what cannot be; nothing is changed yet."""
        self._take_job(path, column, source, mode, rest)
        self.parent.report("waiting for the end of others that write to it")
        self.main = open_for_writing(path)
        self._remove_litter()
        self.created = column not in self.main.colnames()
        notes = self._check_columns()
        self.shapes = self._cell_shapes()
        if self._is_new:
            self._check_room()
        like = "DATA" if self.created else self.column
        self.parent.send(
            {"created": self.created, "notes": notes, "dtype": str(column_type(self.main, like))}
        )

    def _take_job(self, path: str, column: str, source: str | None, mode: str, rest: str | None) -> None:
        self.path, self.column, self.source, self.mode = path, column, source, mode
        self.in_place = source == column
        self.rest = column if self.in_place else rest
        self.target = column + NEW if self.in_place else column

    @property
    def _is_new(self) -> bool:
        """Whether the column that is written was made for it."""
        return self.created or self.in_place

    def begin(self) -> None:
        """Make the column where it is not there, and mark it as not complete."""
        self.parent.report(f"making the column {self.target}")
        self.backup = Backup(self.path)
        self.backup.save(INFO)
        if self._is_new:
            self._create()
        else:
            self._save_header(self.column)
            self.main.putcolkeyword(self.column, COMPLETE, False)
        self.dtype = column_type(self.main, self.target)
        self.main.flush()
        self._save_header(self.target)
        self.written = np.zeros(self.main.nrows(), bool)
        self.parent.send({})

    def pause(self) -> None:
        """Let others have the table."""
        self.parent.report(f"flushing {self.column}")
        self.main.flush()
        self.main.close()
        self.parent.send({})

    def resume(self, array: NDArray[np.int64]) -> None:
        """Have the table again; `array` are the rows that others have written."""
        self.main = self._open()
        self.written[array] = True
        self.parent.send({})

    def join(
        self, path: str, column: str, source: str | None, mode: str, rest: str | None, created: bool
    ) -> None:
        """Write to a column that another process has begun, and has paused to write."""
        self._take_job(path, column, source, mode, rest)
        self.created, self.main = created, self._open()
        if self.target not in incomplete_columns(self.main):
            raise RefusalError(
                f"column {self.target} is not being written: do all MPI processes see the same files?"
            )
        self.shapes, self.dtype = self._cell_shapes(), column_type(self.main, self.target)
        self.written = np.zeros(self.main.nrows(), bool)
        self.parent.send({})

    def leave(self) -> None:
        """Flush, and read back what was written."""
        self._check_written()
        self.main.close()
        self.parent.send({})

    def _save_header(self, column: str) -> None:
        """Back up the header of a column's storage, if casacore rewrites it in place."""
        manager = self.main.getdminfo(column)
        if manager["TYPE"].startswith("Tiled"):
            self.backup.save(f"table.f{manager['SEQNR']}")

    def _open(self) -> CasaTable:
        self.parent.report(f"waiting for the lock of {os.path.join(self.path, 'table.dat')} for writing")
        return open_table(self.path, readonly=False, lockoptions="permanentwait")

    def _check_columns(self) -> list[str]:
        """Refuse columns that cannot be read or written; returns notes on what is odd but can be done."""
        columns = visibility_columns(self.main)
        if "DATA" not in columns:
            raise RefusalError("there is no DATA column that a new column could be like")
        if not self.created and self.column not in columns:
            raise RefusalError(f"column {self.column} is there, but does not hold visibilities")
        if self.source is not None and self.source not in columns:
            raise RefusalError(
                f"no column {self.source} to {self.mode} to or from; there are {', '.join(columns)}, "
                "of which source_column (--from) may name one"
            )
        together = self._stored_with(self.column) if self.in_place else []
        if len(together) > 1:
            raise RefusalError(
                f"columns {', '.join(together)} share one storage manager, so {self.column} cannot be"
                f" changed in place. Write another column from it (--from {self.column}, source_column= in "
                "Python)"
            )
        incomplete = incomplete_columns(self.main)
        if self.source in incomplete:
            raise RefusalError(
                f"column {self.source} is incomplete, because the run that wrote it was interrupted."
                " Write it again, or use another column (--from, source_column= in Python)"
            )
        if self.column in incomplete:
            return [f"column {self.column} was left incomplete by a run that was interrupted"]
        return []

    def _stored_with(self, column: str) -> list[str]:
        """The columns that have one storage with a column, itself included."""
        managers = self.main.getdminfo().values()
        return next((list(each["COLUMNS"]) for each in managers if column in each["COLUMNS"]), [])

    def _remove_litter(self) -> None:
        """Remove columns that a process which was killed has left beside the one it was to change."""
        left = [name for name in self.main.colnames() if name.endswith((NEW, OLD))]
        if not left:
            return
        backup = Backup(self.path)
        backup.save(INFO)
        for name in left:
            self.parent.report(f"removing the column {name}, left by a run that was interrupted")
            self._remove_column(name, backup)
        backup.remove()

    def _remove_column(self, name: str, backup: Backup) -> None:
        """Remove a column that has a storage of its own.

        casacore deletes the files at once, and says in table.dat later that the column is gone: a process
        that is killed in between would leave a set that cannot be opened. So the files keep a second name.
        """
        backup.link(self.main.getdminfo(name)["SEQNR"])
        self.main.removecols(name)
        self.main.flush()

    def _cell_shapes(self) -> dict[int, tuple[int, int]]:
        """(n_chan, n_corr) of each data description."""
        tables = {
            name: open_subtable(self.main, name)
            for name in ("DATA_DESCRIPTION", "SPECTRAL_WINDOW", "POLARIZATION")
        }
        description = tables["DATA_DESCRIPTION"]
        shapes = {}
        for i in range(description.nrows()):
            spw = int(description.getcell("SPECTRAL_WINDOW_ID", i))
            polarization = int(description.getcell("POLARIZATION_ID", i))
            n_chan = np.size(tables["SPECTRAL_WINDOW"].getcell("CHAN_FREQ", spw))
            shapes[i] = (n_chan, np.size(tables["POLARIZATION"].getcell("CORR_TYPE", polarization)))
        self.description_ids = np.asarray(self.main.getcol("DATA_DESC_ID"))
        return shapes

    def _check_room(self) -> None:
        """Refuse a new column that its disk has no room for."""
        rows = np.bincount(self.description_ids, minlength=len(self.shapes))
        like = self.column if self.in_place else "DATA"
        item = column_type(self.main, like).itemsize
        unpadded = sum(int(n) * int(np.prod(self.shapes[i])) * item for i, n in enumerate(rows))
        files = Path(self.path).glob(f"table.f{self.main.getdminfo(like)['SEQNR']}_*")
        # Tiles are stored whole: the size of the files of the column it is like shows with how much padding.
        need = max(unpadded, sum(file.stat().st_size for file in files if "_TSM" in file.name)) + SPARE_BYTES
        disk = os.statvfs(self.path)
        free = disk.f_bavail * disk.f_frsize
        if need > free:
            raise RefusalError(
                f"column {self.target} needs {need / 1e6:.1f} MB, but its disk has {free / 1e6:.1f} MB free:"
                " make room; nothing was changed"
            )

    def _create(self) -> None:
        """Make a column like DATA, or like the one it replaces.

        It has another storage than that one, if that does not give values back exactly.
        """
        like = self.column if self.in_place else "DATA"
        column = self.main.getcoldesc(like)
        manager = self.main.getdminfo(like)
        taken = {each["NAME"] for each in self.main.getdminfo().values()}
        names = (f"{self.column}_manager{n or ''}" for n in itertools.count())
        name = next(each for each in names if each not in taken)
        specification = dict(manager.get("SPEC", {}))
        specification.pop("HYPERCUBES", None)
        if manager["TYPE"] not in FAITHFUL_MANAGERS:
            n_chan, n_corr = next(iter(self.shapes.values()))
            tile = [n_corr, n_chan, max(1, (1 << 17) // (n_chan * n_corr))]
            manager = {"TYPE": "TiledShapeStMan"}
            specification = {"DEFAULTTILESHAPE": np.array(tile, np.int32)}
        column.update(dataManagerType=manager["TYPE"], dataManagerGroup=name)
        column["keywords"] = (dict(column["keywords"]) if self.in_place else {}) | {COMPLETE: False}
        if not self.in_place:
            column["comment"] = "model visibilities written by biro"
        description = maketabdesc({"name": self.target, "desc": column})
        self.main.addcols(description, {"TYPE": manager["TYPE"], "NAME": name, "SPEC": specification})

    def select(self, array: NDArray[np.int64], chan: list[int] | None, corr: list[int] | None) -> None:
        """Say which rows, channels and correlations the next values are of; no answer.

        `array` (3, n_row) holds the row numbers and the antennas that are expected there.
        """
        self.rows, self.chan, self.corr = array[0], chan, corr
        self.antennas = array[1:]

    def _check_antennas(self, rows: CasaTable) -> None:
        """Refuse rows of other baselines: the observation was not read from this set, or the set changed."""
        stored = np.array([rows.getcol("ANTENNA1"), rows.getcol("ANTENNA2")])
        other = (stored != self.antennas).any(axis=0)
        if other.any():
            i = int(np.argmax(other))
            raise RefusalError(
                f"row {self.rows[i]} is of antennas {stored[0, i]} and {stored[1, i]}, but the model's is of"
                f" {self.antennas[0, i]} and {self.antennas[1, i]}: read the observation from this very set"
            )

    def write(self, array: NDArray[np.complexfloating]) -> None:
        """Write one chunk of model visibilities of one data description."""
        self.parent.report(f"writing {self.column}")
        model = array.astype(self.dtype)
        if not np.isfinite(model).all():
            raise RefusalError(f"a model value is too large for the column {self.column} ({self.dtype})")
        shape = self.shapes[int(self.description_ids[self.rows[0]])]
        rows = self.main.selectrows(self.rows)
        self._check_antennas(rows)
        chan = np.arange(shape[0]) if self.chan is None else np.array(self.chan)
        corr = np.arange(shape[1]) if self.corr is None else np.array(self.corr)
        if self.source is not None:
            source = self._values(rows, self.source, shape)[:, chan][:, :, corr]
            with np.errstate(over="ignore"):
                model = self._combined(source, model).astype(self.dtype)
            if not np.isfinite(model[np.isfinite(source)]).all():
                raise RefusalError(f"a sum with the model is too large for {self.column} ({self.dtype})")
        if len(chan) < shape[0] or len(corr) < shape[1]:
            cells = self._distributed(rows, shape)
            cells[:, chan[:, None], corr] = model
            model = cells
        model = np.ascontiguousarray(model, self.dtype)
        rows.putcol(self.target, model)
        self.written[self.rows] = True
        self.checksums.append((self.rows, zlib.crc32(model.data)))
        self.parent.send({})

    def _combined(self, source: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
        """What is written, of stored values and of those that were sent."""
        return np.asarray(source + values if self.mode == "add" else source - values)

    def _values(self, rows: CasaTable, column: str, shape: tuple[int, int]) -> NDArray[np.generic]:
        """What a column holds of rows, (n_row, n_chan, n_corr), 0 where there is no value."""
        return _read_column(rows, column, np.empty((rows.nrows(), *shape), column_type(self.main, column)))

    def _distributed(self, rows: CasaTable, shape: tuple[int, int]) -> NDArray[np.generic]:
        """What the written column holds of rows; before it has values of its own, what it begins with."""
        cells = np.zeros((rows.nrows(), *shape), self.dtype)
        written = self.written[rows.rownumbers()] if self._is_new else np.ones(rows.nrows(), bool)
        for which, column in ((~written, self.rest), (written, self.target)):
            if column and which.any():
                some = rows.selectrows(np.flatnonzero(which))
                cells[which] = self._values(some, column, shape)
        return cells

    def finish(self) -> None:
        """Fill the other rows of a new column, flush, read everything back, and mark it as complete."""
        if self._is_new:
            self._write_rest()
        self._check_written()
        if self.in_place:
            self._save_header(self.column)
            self.main.renamecol(self.column, self.column + OLD)
            self.main.renamecol(self.target, self.column)
        self.main.putcolkeyword(self.column, COMPLETE, True)
        self.main.flush()  # one new table.dat: names and keyword change together
        if self.in_place:
            self._remove_column(self.column + OLD, self.backup)
        self.main.close()
        self.backup.remove()
        self.parent.send({"n_row": len(self.written)})

    def _check_written(self) -> None:
        """Flush, open the table anew, and compare what it holds with what this process has written."""
        self.parent.report(f"flushing {self.column}")
        self.main.flush()
        self.main.close()
        self.main = self._open()
        for rows, expected in self.checksums:
            self.parent.report(f"reading {self.column} back")
            shape = self.shapes[int(self.description_ids[rows[0]])]
            selected = self.main.selectrows(rows)
            values = _read_column(selected, self.target, np.empty((len(rows), *shape), self.dtype))
            if zlib.crc32(values.data) != expected:
                raise RefusalError(
                    f"column {self.column} does not read back as it was written; it is not complete"
                )

    def _write_rest(self) -> None:
        """Write the rows of a new column without a model: what they have in the column `rest`, or 0."""
        left = np.flatnonzero(~self.written)
        for description_id, shape in self.shapes.items():
            rows = left[self.description_ids[left] == description_id]
            for start in range(0, len(rows), REST_ROWS):
                self.parent.report(f"writing {self.column}")
                block = rows[start : start + REST_ROWS]
                selected = self.main.selectrows(block)
                cells = self._distributed(selected, shape)
                selected.putcol(self.target, cells)
                self.checksums.append((block, zlib.crc32(cells.data)))


def _read_column(rows: CasaTable, column: str, values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Fill `values` (n_row, n_chan, n_corr) with a column of all of `rows`, 0 where there is no value."""
    missing = undefined_rows(rows, column, values.shape[1:])
    read_cells(rows, column, (0, len(values)), missing, values)
    return values
