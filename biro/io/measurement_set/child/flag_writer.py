"""Write flags in the child process, keep the old ones as a named version, and bring them back."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from casacore.tables import makearrcoldesc, makescacoldesc, maketabdesc
from casacore.tables import table as new_table
from numpy.typing import NDArray

from biro.files.child_messages import ParentConnection, RefusalError
from biro.io.measurement_set.backup import INFO, Backup
from biro.io.measurement_set.child.casacore_table import (
    COMPLETE,
    CasaTable,
    is_half_flagged,
    open_for_writing,
    open_subtable,
    open_table,
    read_cells,
    undefined_rows,
)

PREFIX = "before_biro_"
"""Names of the versions that biro makes begin so."""
LIST = "FLAG_VERSION_LIST"
UNDONE = "BIRO_UNDONE"
"""Keyword of FLAG with the version that was brought back, until that version is removed."""
REMOVED = ".removed"
"""Name of a version while it is being removed."""
SPARE_BYTES = 1 << 20
"""Room that is left on the disk beyond what a version needs."""
CHUNK_SAMPLES = 1 << 24
"""Flags that are read or written at a time."""
MJD_OF_UNIX = 40587.0 * 86400.0
"""The epoch of Unix' clock, MJD in s."""


class FlagWriter:
    """Answers `prepare_flags`; then `undo_flags`, or `begin_flags`, `select_flags` up to `finish_flags`."""

    def __init__(self, parent: ParentConnection) -> None:
        self.parent = parent
        self.checksums: list[tuple[NDArray[np.int64], int]] = []

    def prepare_flags(self, path: str, undo: bool) -> None:
        """Open for writing, and refuse what cannot be; nothing is changed yet. Answers with the version."""
        self.path, self.versions = path, Path(f"{path}.flagversions")
        self.parent.report("waiting for the end of others that write to it")
        self.main = open_for_writing(path)
        if "FLAG" not in self.main.colnames():
            raise RefusalError("there is no FLAG column to write to")
        self.shapes = self._cell_shapes()
        self.undone = self.main.getcolkeywords("FLAG").get(UNDONE, "")
        names, is_half = self._names(), is_half_flagged(self.main)
        if undo:
            self._check_versions()
            self._choose_version(names)
        elif is_half and names:
            raise RefusalError(
                "FLAG is incomplete, because a biro flag was interrupted. Restore the previous flags first"
                " (biro flag --undo, biro.undo_flags in Python)"
            )
        else:
            self._check_versions()
            self.name = f"{PREFIX}{1 + max((int(name.removeprefix(PREFIX)) for name in names), default=0)}"
            self._check_room()
        self.parent.send({"version": self.name, "n_row": self.main.nrows(), "is_half": is_half})

    def begin_flags(self, comment: str) -> None:
        """Keep the flags as they are as a version, and mark FLAG as not complete."""
        self._back_up()
        if self.undone:
            self._remove_undone()
        self._save_version(comment)
        self._mark()
        self.parent.send({})

    def _check_versions(self) -> None:
        """Refuse a folder of versions in which nothing can be made or removed, before anything is changed."""
        if not self.versions.exists() and not self.versions.is_symlink():
            return
        place = self.versions / LIST
        if not self.versions.is_dir() or (place.exists() and not place.is_file()):
            wrong, kind = (place, "a file") if self.versions.is_dir() else (self.versions, "a directory")
            raise RefusalError(f"{wrong} is not {kind}, which biro needs for versions of flags. Move it away")
        if not os.access(self.versions, os.W_OK | os.X_OK):
            raise RefusalError(f"no permission to change {self.versions}, where biro saves versions of flags")

    def _choose_version(self, names: list[str]) -> None:
        """Take the version to bring back: one whose removal was interrupted, or the newest if it is whole."""
        if self.undone:  # its flags are back already
            self.name = self.undone
            return
        if not names:
            raise RefusalError(f"no flags to restore: {self.versions} has no version that biro saved")
        self.name = names[-1]
        place = self.versions / f"flags.{self.name}"
        try:
            self._read_version(place)
        except RuntimeError as error:  # casacore's; RefusalError says itself what is wrong
            raise RefusalError(
                f"{place} is damaged or not a version of flags ({' '.join(str(error).split())[:200]}). "
                "Nothing"
                " was changed. Move it away, and --undo restores the version before it"
            ) from None

    def _read_version(self, place: Path) -> None:
        """Read a version from end to end, so that nothing is written of one that is damaged."""
        self.parent.report(f"reading the version {place}")
        with open_table(str(place)) as kept:
            missing = {"FLAG", "FLAG_ROW"} - set(kept.colnames())
            if missing:
                raise RuntimeError(f"it has no {' and no '.join(sorted(missing))}")
            if kept.nrows() != self.main.nrows():
                raise RuntimeError(
                    f"it has {kept.nrows()} rows, but the set has {self.main.nrows()}: rows were added or"
                    " removed since"
                )
            try:
                for _ in self._blocks(kept):
                    pass
            except RefusalError as error:
                raise RuntimeError(str(error)) from None
            kept.getcol("FLAG_ROW")

    def _open(self) -> CasaTable:
        self.parent.report(f"waiting for the lock of {os.path.join(self.path, 'table.dat')} for writing")
        return open_table(self.path, readonly=False, lockoptions="permanentwait")

    def _names(self) -> list[str]:
        """Versions that biro has made, the oldest first."""
        try:
            found = [path.name.removeprefix("flags.") for path in self.versions.iterdir()]
        except FileNotFoundError:
            return []
        mine = [name for name in found if name.startswith(PREFIX) and name.removeprefix(PREFIX).isdecimal()]
        return sorted(mine, key=lambda name: int(name.removeprefix(PREFIX)))

    def _cell_shapes(self) -> dict[int, tuple[int, int]]:
        """(n_chan, n_corr) of each data description, as FLAG has it."""
        description, ids = open_subtable(self.main, "DATA_DESCRIPTION"), self.main.getcol("DATA_DESC_ID")
        self.description_ids = np.asarray(ids)
        window, polarization = (
            open_subtable(self.main, "SPECTRAL_WINDOW"),
            open_subtable(self.main, "POLARIZATION"),
        )
        shapes = {}
        for i in range(description.nrows()):
            freq = window.getcell("CHAN_FREQ", int(description.getcell("SPECTRAL_WINDOW_ID", i)))
            corr = polarization.getcell("CORR_TYPE", int(description.getcell("POLARIZATION_ID", i)))
            shapes[i] = (np.size(freq), np.size(corr))
        return shapes

    def _check_room(self) -> None:
        need = SPARE_BYTES + sum(
            int(np.count_nonzero(self.description_ids == i)) * (int(np.prod(shape)) // 8 + 64)
            for i, shape in self.shapes.items()
        )
        disk = os.statvfs(self.path)
        free = disk.f_bavail * disk.f_frsize
        if need > free:
            raise RefusalError(
                f"a copy of the flags needs {need / 1e6:.1f} MB, but its disk has {free / 1e6:.1f} MB free:"
                " make room; nothing was changed"
            )

    def _blocks(self, table: CasaTable) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Rows whose FLAG has a value, in blocks of one data description, and their flags."""
        for i, shape in self.shapes.items():
            rows = np.flatnonzero(self.description_ids == i)
            size = max(1, CHUNK_SAMPLES // int(np.prod(shape)))
            for start in range(0, len(rows), size):
                self.parent.report(f"reading FLAG of {table.name()}")
                block = rows[start : start + size]
                selected = table.selectrows(block)
                missing = undefined_rows(selected, "FLAG", shape)
                if missing.size:
                    block = np.delete(block, missing)
                    selected = table.selectrows(block)
                if block.size:
                    yield block, selected.getcol("FLAG")

    def _save_version(self, comment: str) -> None:
        """Copy FLAG and FLAG_ROW into a table of their own, as CASA's flagmanager does."""
        self.versions.mkdir(exist_ok=True)
        draft = self.versions / ".draft"
        shutil.rmtree(draft, ignore_errors=True)
        n_chan, n_corr = next(iter(self.shapes.values()))
        tile = [n_corr, n_chan, max(1, (1 << 20) // (n_chan * n_corr))]
        manager = {"TYPE": "TiledShapeStMan", "NAME": "FLAG_manager", "COLUMNS": ["FLAG"]}
        manager["SPEC"] = {"DEFAULTTILESHAPE": np.array(tile, np.int32)}  # type: ignore[assignment]
        columns = [
            makearrcoldesc("FLAG", False, ndim=2, valuetype="boolean", datamanagertype="TiledShapeStMan",
                           datamanagergroup="FLAG_manager"),
            makescacoldesc("FLAG_ROW", False),
        ]  # fmt: skip
        kept = new_table(
            str(draft), maketabdesc(columns), nrow=self.main.nrows(), dminfo={"*1": manager}, ack=False
        )
        for rows, flag in self._blocks(self.main):
            kept.selectrows(rows).putcol("FLAG", flag)
        kept.putcol("FLAG_ROW", self.main.getcol("FLAG_ROW"))
        kept.flush()
        kept.close()
        draft.rename(self.versions / f"flags.{self.name}")
        self._write_list(lambda lines: [*lines, f"{self.name} : {comment}"])

    def _write_list(self, change: Callable[[list[str]], list[str]]) -> None:
        """Rewrite CASA's list of versions."""
        place = self.versions / LIST
        text = place.read_bytes().decode(errors="surrogateescape") if place.is_file() else ""
        draft = self.versions / f".{LIST}"
        new = "".join(f"{line}\n" for line in change(text.splitlines()))
        draft.write_bytes(new.encode(errors="surrogateescape"))
        draft.rename(place)

    def _back_up(self) -> None:
        """Back up what casacore rewrites in place."""
        self.backup = Backup(self.path)
        self.backup.save(INFO)
        for column in ("FLAG", "FLAG_ROW"):
            manager = self.main.getdminfo(column)
            if manager["TYPE"].startswith("Tiled"):
                self.backup.save(f"table.f{manager['SEQNR']}")

    def _mark(self) -> None:
        """Mark FLAG as not complete."""
        self.main.putcolkeyword("FLAG", COMPLETE, False)
        self.main.flush()

    def select_flags(self, array: NDArray[np.int64], chan: list[int] | None, corr: list[int] | None) -> None:
        """Take these rows, channels and correlations for the next write; sends nothing."""
        self.rows, self.chan, self.corr = array, chan, corr

    def write_flags(self, array: NDArray[np.bool_]) -> None:
        """Add flags (n_row, n_chan, n_corr) of one data description, and of rows that are flagged whole."""
        self.parent.report("writing FLAG")
        shape = self.shapes[int(self.description_ids[self.rows[0]])]
        chan = np.arange(shape[0]) if self.chan is None else np.array(self.chan)
        corr = np.arange(shape[1]) if self.corr is None else np.array(self.corr)
        selected = self.main.selectrows(self.rows)
        flag = np.empty((len(self.rows), *shape), bool)
        read_cells(selected, "FLAG", (0, len(flag)), undefined_rows(selected, "FLAG", shape), flag)
        flag[:, chan[:, None], corr] |= array
        self._put(self.rows, flag)
        whole = self.rows[flag.all(axis=(1, 2))]
        if whole.size:
            self.main.selectrows(whole).putcol("FLAG_ROW", np.ones(len(whole), bool))
        self.main.flush()  # columns may share buckets with FLAG_ROW, which its index must fit at any time
        self.parent.send({})

    def _put(self, rows: NDArray[np.int64], flag: NDArray[np.bool_]) -> None:
        flag = np.ascontiguousarray(flag)
        self.main.selectrows(rows).putcol("FLAG", flag)
        self.checksums.append((rows, zlib.crc32(flag.data)))

    def finish_flags(self, command: str, reason: str) -> None:
        """Flush, read everything back, say in FLAG_CMD and HISTORY what was done, and end."""
        self._check_back()
        now = time.time() + MJD_OF_UNIX
        self._add_row("FLAG_CMD", {
            "TIME": now, "TYPE": "FLAG", "REASON": reason, "APPLIED": True, "COMMAND": command,
        })  # fmt: skip
        self._say_in_history(command, reason)
        self.main.removecolkeyword("FLAG", COMPLETE)
        self._end()

    def _check_back(self) -> None:
        self.parent.report("flushing FLAG")
        self.main.flush()
        self.main.close()
        self.main = self._open()
        for rows, expected in self.checksums:
            self.parent.report("reading FLAG back")
            flag = np.ascontiguousarray(self.main.selectrows(rows).getcol("FLAG"))
            if zlib.crc32(flag.data) != expected:
                raise RefusalError("FLAG does not read back as it was written; it is not complete")

    def _say_in_history(self, command: str, message: str) -> None:
        self._add_row("HISTORY", {
            "TIME": time.time() + MJD_OF_UNIX, "OBSERVATION_ID": 0, "MESSAGE": f"{command}: {message}",
            "PRIORITY": "NORMAL", "ORIGIN": "biro flag", "APPLICATION": "biro",
        })  # fmt: skip

    def _end(self) -> None:
        self.main.flush()
        self.main.close()
        self.backup.remove()
        self.parent.send({})

    def _add_row(self, name: str, cells: dict[str, object]) -> None:
        """Add a row to a subtable, where there is one."""
        if name not in self.main.keywordnames():
            return
        self.parent.report(f"writing {name}")
        place = self.main.getkeyword(name).removeprefix("Table: ")
        with open_table(place, readonly=False, lockoptions="permanentwait") as subtable:
            subtable.addrows(1)
            for column, value in cells.items():
                if column in subtable.colnames():
                    subtable.putcell(column, subtable.nrows() - 1, value)

    def undo_flags(self, command: str) -> None:
        """Bring the flags of the version back, and remove it.

        The version is removed only after FLAG is whole and a keyword of it says that its flags are back. An
        undo that was interrupted before that is done again from the version, and one that was interrupted
        after it is finished: no state in between takes the flags of an earlier version for these.
        """
        self._back_up()
        if not self.undone:
            self._bring_back(self.versions / f"flags.{self.name}")
            self._say_in_history(command, f"the flags {self.name} were restored")
            self.main.putcolkeyword("FLAG", UNDONE, self.name)
            self.main.removecolkeyword("FLAG", COMPLETE)
            self.main.flush()  # one new table.dat: both keywords change together
            self.undone = self.name
        self._remove_undone()
        self._end()

    def _bring_back(self, place: Path) -> None:
        """Write the flags of a version into FLAG and FLAG_ROW, and read them back."""
        self._mark()
        kept = open_table(str(place))
        for rows, flag in self._blocks(kept):
            self.parent.report("writing FLAG")
            self._put(rows, flag)
        before, now = kept.getcol("FLAG_ROW"), self.main.getcol("FLAG_ROW")
        changed = np.flatnonzero(before != now)
        if changed.size:
            self.main.selectrows(changed).putcol("FLAG_ROW", before[changed])
        kept.close()
        self._check_back()

    def _remove_undone(self) -> None:
        """Remove the version whose flags are back, and then the keyword that says so."""
        self.parent.report(f"removing the version {self.undone}")
        place, removed = self.versions / f"flags.{self.undone}", self.versions / REMOVED
        if self.versions.is_dir():
            _remove(removed)
            if place.exists() or place.is_symlink():
                place.rename(removed)
            self._write_list(lambda lines: [line for line in lines if line.split(" : ")[0] != self.undone])
            _remove(removed)
        self.main.removecolkeyword("FLAG", UNDONE)
        self.main.flush()
        self.undone = ""


def _remove(path: Path) -> None:
    """Remove a folder, a file or a link, but nothing that a link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
