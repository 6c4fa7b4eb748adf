"""Writing a column in the child process: make it, fill it in chunks, read it back, and say so."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from casacore.tables import maketabdesc
from numpy.typing import NDArray

from biro.files.child_messages import RefusalError
from biro.measurement_set.child.backup import INFO, Kept, put_back
from biro.measurement_set.child.read import (
    column_type,
    open_table,
    read_cells,
    undefined_rows,
    visibility_columns,
)

if TYPE_CHECKING:
    from biro.files.child_messages import Link

COMPLETE = "BIRO_COMPLETE"
FAITHFUL_MANAGERS = ("TiledShapeStMan", "TiledColumnStMan", "TiledCellStMan", "StandardStMan")
SPARE_BYTES = 1 << 20
ZERO_ROWS = 4096


class Writer:
    """Answers `prepare`, `begin`, `write`, `values` and `finish`, in this order."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sums: list[tuple[NDArray[np.int64], int]] = []

    def prepare(self, path: str, column: str, source: str | None, mode: str) -> None:
        """Open for writing, and refuse what cannot be; nothing is changed yet."""
        self.path, self.column, self.source, self.mode = path, column, source, mode
        self.link.step("waiting for the end of another biro that writes to it")
        put_back(Path(path), wait=True)
        self.main = self._open()
        self.created = column not in self.main.colnames()
        notes = self._check_columns()
        self.shapes = self._cell_shapes()
        if self.created:
            self._check_room()
        self.link.send({"created": self.created, "notes": notes})

    def begin(self) -> None:
        """Make the column where it is not there, and mark it as not complete."""
        self.link.step(f"making the column {self.column}")
        self.kept = Kept(self.path)
        self.kept.keep(INFO)
        if self.created:
            self._create()
        else:
            self._keep_header()
            self.main.putcolkeyword(self.column, COMPLETE, False)
        self.dtype = column_type(self.main, self.column)
        self.main.flush()
        self._keep_header()
        self.written = np.zeros(self.main.nrows(), bool)
        self.link.send({})

    def _keep_header(self) -> None:
        manager = self.main.getdminfo(self.column)
        if manager["TYPE"].startswith("Tiled"):
            self.kept.keep(f"table.f{manager['SEQNR']}")

    def _open(self) -> Any:
        self.link.step(f"waiting for the lock of {os.path.join(self.path, 'table.dat')} for writing")
        return open_table(self.path, readonly=False, lockoptions="permanentwait")

    def _check_columns(self) -> list[str]:
        """Refuse what cannot be; returns notes on what is odd but can."""
        there = visibility_columns(self.main)
        if "DATA" not in there:
            raise RefusalError("there is no DATA column that a new column could be like")
        if not self.created and self.column not in there:
            raise RefusalError(f"column {self.column} is there, but does not hold visibilities")
        if self.source is not None and self.source not in there:
            raise RefusalError(
                f"no column {self.source} to {self.mode} to or from; there are {', '.join(there)}, "
                "of which source_column (--from) may name one"
            )
        half = {name for name in there if self.main.getcolkeywords(name).get(COMPLETE) is False}
        if self.source in half:
            raise RefusalError(
                f"column {self.source} is half-written: a run that wrote it was interrupted;"
                " replace it, or take another source_column"
            )
        if self.column in half:
            return [f"column {self.column} was half-written by a run that was interrupted"]
        return []

    def _cell_shapes(self) -> dict[int, tuple[int, int]]:
        """(n_chan, n_corr) of each data description."""
        tables = {
            name: open_table(self.main.getkeyword(name).removeprefix("Table: "))
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
        rows = np.bincount(self.description_ids, minlength=len(self.shapes))
        item = column_type(self.main, "DATA").itemsize
        bare = sum(int(n) * int(np.prod(self.shapes[i])) * item for i, n in enumerate(rows))
        files = Path(self.path).glob(f"table.f{self.main.getdminfo('DATA')['SEQNR']}*")
        # Tiles are filled up to their ends: DATA's own files say how far, if DATA is stored plainly.
        need = max(bare, sum(file.stat().st_size for file in files if "_TSM" in file.name)) + SPARE_BYTES
        disk = os.statvfs(self.path)
        free = disk.f_bavail * disk.f_frsize
        if need > free:
            raise RefusalError(
                f"column {self.column} needs {need / 1e6:.1f} MB, but its disk has {free / 1e6:.1f} MB free;"
                " nothing was changed"
            )

    def _create(self) -> None:
        """A column described and stored as DATA is, unless DATA's storage would not keep values exactly."""
        about = self.main.getcoldesc("DATA")
        manager = self.main.getdminfo("DATA")
        name = f"{self.column}_manager"
        specification = dict(manager.get("SPEC", {}))
        specification.pop("HYPERCUBES", None)
        if manager["TYPE"] not in FAITHFUL_MANAGERS:
            n_chan, n_corr = next(iter(self.shapes.values()))
            tile = [n_corr, n_chan, max(1, (1 << 17) // (n_chan * n_corr))]
            manager = {"TYPE": "TiledShapeStMan"}
            specification = {"DEFAULTTILESHAPE": np.array(tile, np.int32)}
        about.update(dataManagerType=manager["TYPE"], dataManagerGroup=name, keywords={COMPLETE: False})
        about["comment"] = "model visibilities written by biro"
        description = maketabdesc({"name": self.column, "desc": about})
        self.main.addcols(description, {"TYPE": manager["TYPE"], "NAME": name, "SPEC": specification})

    def write(self, array: NDArray[np.int64], chan: list[int] | None, corr: list[int] | None) -> None:
        """Say which rows, channels and correlations the next values are of; no answer.

        `array` (3, n_row) holds the row numbers and the antennas that are expected there.
        """
        self.rows, self.chan, self.corr = array[0], chan, corr
        self.antennas = array[1:]

    def _check_antennas(self, rows: Any) -> None:
        """Refuse rows of other baselines: the observation was not read from this set, or the set changed."""
        there = np.array([rows.getcol("ANTENNA1"), rows.getcol("ANTENNA2")])
        other = (there != self.antennas).any(axis=0)
        if other.any():
            i = int(np.argmax(other))
            raise RefusalError(
                f"row {self.rows[i]} is of antennas {there[0, i]} and {there[1, i]}, but the model's is of"
                f" {self.antennas[0, i]} and {self.antennas[1, i]}: read the observation from this very set"
            )

    def values(self, array: NDArray[np.complexfloating]) -> None:
        """Write one chunk of model visibilities of one data description."""
        self.link.step(f"writing {self.column}")
        model = array.astype(self.dtype)
        if not np.isfinite(model).all():
            raise RefusalError(f"a model value is too large for the column {self.column} ({self.dtype})")
        shape = self.shapes[int(self.description_ids[self.rows[0]])]
        rows = self.main.selectrows(self.rows)
        self._check_antennas(rows)
        chan = np.arange(shape[0]) if self.chan is None else np.array(self.chan)
        corr = np.arange(shape[1]) if self.corr is None else np.array(self.corr)
        if self.source is not None:
            given = self._old(rows, self.source, shape)[:, chan][:, :, corr]
            model = given + model if self.mode == "add" else given - model
        if len(chan) < shape[0] or len(corr) < shape[1]:
            whole = self._old(rows, self.column, shape)
            whole[:, chan[:, None], corr] = model
            model = whole
        model = np.ascontiguousarray(model, self.dtype)
        rows.putcol(self.column, model)
        self.written[self.rows] = True
        self.sums.append((self.rows, zlib.crc32(model.data)))
        self.link.send({})

    def _old(self, rows: Any, column: str, shape: tuple[int, int]) -> NDArray[Any]:
        """What a column holds; 0 where it has no value, and throughout a column just made."""
        if self.created and column == self.column and not self.written[rows.rownumbers()].any():
            return np.zeros((rows.nrows(), *shape), self.dtype)
        return _whole(rows, column, np.empty((rows.nrows(), *shape), column_type(self.main, column)))

    def finish(self) -> None:
        """Zero what a new column has left, flush, read everything back, and mark it as complete."""
        if self.created:
            self._zero_rest()
        self.link.step(f"flushing {self.column}")
        self.main.flush()
        self.main.close()
        self.main = self._open()
        for rows, expected in self.sums:
            self.link.step(f"reading {self.column} back")
            shape = self.shapes[int(self.description_ids[rows[0]])]
            some = self.main.selectrows(rows)
            values = _whole(some, self.column, np.empty((len(rows), *shape), self.dtype))
            if zlib.crc32(values.data) != expected:
                raise RefusalError(
                    f"column {self.column} does not read back as it was written; it is not complete"
                )
        self.main.putcolkeyword(self.column, COMPLETE, True)
        self.main.flush()
        self.main.close()
        self.kept.drop()
        self.link.send({"n_row": len(self.written)})

    def _zero_rest(self) -> None:
        left = np.flatnonzero(~self.written)
        for description_id, shape in self.shapes.items():
            rows = left[self.description_ids[left] == description_id]
            for start in range(0, len(rows), ZERO_ROWS):
                self.link.step(f"writing {self.column}")
                some = rows[start : start + ZERO_ROWS]
                zeros = np.zeros((len(some), *shape), self.dtype)
                self.main.selectrows(some).putcol(self.column, zeros)
                self.sums.append((some, zlib.crc32(zeros.data)))


def _whole(rows: Any, column: str, values: NDArray[Any]) -> NDArray[Any]:
    """A column for all of `rows`, 0 where there is no value."""
    missing = undefined_rows(rows, column, values.shape[1:])
    return read_cells(rows, column, (0, len(values)), missing, values)[0]
