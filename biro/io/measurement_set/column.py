"""Write model visibilities into a column of a Measurement Set."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.distributed.remote_data import RemoteArray
from biro.distributed.turns import Turn, Turns
from biro.errors import BiroError, InputError, MeasurementSetError
from biro.files.json_value import JsonValue
from biro.io.data_set.writable_models import Mode, check_as_stored, check_mode, checked_models
from biro.io.measurement_set.backup import NEW, OLD, restore_backup
from biro.io.measurement_set.opened import CORRECTED_WEIGHT, WEIGHT_COLUMNS
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.storage import ask_storage, existing_set, full_disk
from biro.observation.observation import Observation
from biro.observation.partition import Partition

CHUNK_VISIBILITIES = 1 << 21
"""Visibilities that are sent to the child at a time."""
PROTECTED = ("DATA", "FLOAT_DATA")
"""Columns that are never written."""
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class WriteReport:
    """What was written.

    Attributes
    ----------
    column : str
    created : bool
        The column was not there before.
    rows_written, rows_kept : int
        Rows that got new values, and those that kept theirs.
    rest : str
        What the latter hold.
    notes : tuple of str
    """

    column: str
    created: bool
    rows_written: int
    rows_kept: int
    rest: str = "as they were"
    notes: tuple[str, ...] = ()

    @property
    def rows_text(self) -> str:
        """How many rows were written, and how many were not, in words."""
        kept = f", {self.rows_kept} left {self.rest}" if self.rows_kept else ""
        return f"{self.rows_written} rows written{kept}"


def write_column(
    path: str | os.PathLike[str],
    column: str,
    observation: Observation,
    models: Iterable[NDArray[np.generic] | RemoteArray],
    *,
    mode: Mode = "replace",
    source_column: str | None = None,
    rest_column: str | None = None,
    time_limit: float = 30.0,
) -> WriteReport:
    """Write model visibilities into a column, made like DATA where it is not there.

    Before the first model is asked for, it is checked that the set can be written and that its disk has room.
    Nothing is changed before the first model has come, so that a prediction which fails leaves the set as it
    was. While the column is written its keyword BIRO_COMPLETE is False; it becomes True only after everything
    was written, flushed, read back and found equal. DATA itself is never written.

    Processes that share the models write theirs, one after the other; all see the set at the same path.

    Parameters
    ----------
    path : path of the Measurement Set
    column : str
    observation : Observation
        As read from this set without averaging. It says to which rows, channels and correlations the models
        belong.
    models : iterable of complex (n_row, n_chan, n_corr), Jy
        One for each partition, in its order; may be a generator.
    mode : "replace", "add" or "subtract"
        Written is the model, `source_column` + model, or `source_column` - model.
    source_column : str, optional
        Default: the column itself.
    rest_column : str, optional
        What a column that is made holds where there is no model; default: 0.
    time_limit : float, s
        How long to wait for a lock, or for a storage that does not answer.

    Returns
    -------
    WriteReport

    Raises
    ------
    MeasurementSetError
        The set is read-only or locked, its disk has no room, a column that is needed was written in
        part only, rows are of other antennas than the observation's, or the column does not read back as it
        was written.
    InputError
        A model of wrong shape, kind, or with values that are not finite; an observation that is averaged,
        joined, or of Stokes parameters that the set does not store.
    """
    source_column = _check_request(column, observation, mode, source_column)
    folder = existing_set(path, time_limit)
    ask_storage(folder, time_limit, "looking whether it can be written", lambda: check_writable(folder))
    job: dict[str, JsonValue] = {
        "path": str(folder),
        "column": column,
        "source": source_column,
        "mode": mode,
        "rest": rest_column,
    }
    left = f"{column}, if it exists, is marked as incomplete: write it again"
    if source_column == column:
        left = f"{column} is unchanged"
    with _restoring(folder, left) as begun, MeasurementSetProcess(folder, time_limit) as child:
        prepared = child.call("prepare", None, **job)
        turns = Turns()
        for number, (part, model) in enumerate(
            checked_models(observation.partitions, models, prepared["dtype"])
        ):
            if number == 0:
                begun.append(True)
                child.writing = True
                child.call("begin")
            if isinstance(model, RemoteArray):
                turns.add(model.distributed, [ModelRows.of(part, rows) for rows in part.block_rows])
                continue
            ModelRows.of(part).write(child, model)
        _write_in_turn(child, folder, turns, job | {"created": prepared["created"]})
        finished = child.call("finish")
    written = sum(len(part.row_id) for part in observation.partitions)
    return WriteReport(
        column=column,
        created=prepared["created"],
        rows_written=written,
        rows_kept=finished["n_row"] - written,
        rest=_rest(prepared["created"], rest_column),
        notes=tuple(prepared["notes"]),
    )


def write_corrected_weights(
    path: str | os.PathLike[str],
    observation: Observation,
    factors: Iterable[NDArray[np.floating]],
    *,
    time_limit: float = 30.0,
) -> bool:
    """Write CORRECTED_WEIGHT_SPECTRUM: the weights of the data times factors.

    These are the weights of CORRECTED_DATA as it is now. Fits of it read them, until another program changes
    it. The weights of the data stay as they are. Rows that are not in the observation have these. The weights
    are those of the stored column, before they were rescaled or tapered for the observation.

    Parameters
    ----------
    path : path of the Measurement Set
    observation : Observation
        As `write_column` takes it.
    factors : iterable of float (n_row, n_chan, n_corr)
        One for each partition, in its order.
    time_limit : float, s

    Returns
    -------
    bool
        False where nothing is written, because the weights of the observation are of no stored column.

    Raises
    ------
    MeasurementSetError
        As `write_column`.
    """
    folder = existing_set(path, time_limit)
    origins = {part.weight_origin.split(",")[0] for part in observation.partitions}
    if len(origins) > 1:
        raise MeasurementSetError(
            f"{folder}: the partitions have their weights in different columns "
            f"({', '.join(sorted(origins))}), so {CORRECTED_WEIGHT} is not written; solve them one at a time "
            "(--fields, --spws)"
        )
    (source,) = origins
    if source not in (*WEIGHT_COLUMNS, CORRECTED_WEIGHT):
        return False
    left = f"{CORRECTED_WEIGHT}, if it exists, is not used"
    with _restoring(folder, left) as begun, MeasurementSetProcess(folder, time_limit) as child:
        job = {"column": CORRECTED_WEIGHT, "source": source, "mode": "scale", "rest": source}
        child.call("prepare_weights", None, path=str(folder), **job)
        begun.append(True)
        child.writing = True
        child.call("begin_weights")
        for part, factor in zip(observation.partitions, factors, strict=True):
            ModelRows.of(part).write(child, factor, "_weights")
        child.call("finish_weights")
    return True


def _rest(created: bool, rest_column: str | None) -> str:
    """What rows without a model hold, in words."""
    if not created:
        return "as they were"
    return f"as in {rest_column}" if rest_column else "at 0"


@contextmanager
def _restoring(folder: Path, left: str) -> Iterator[list[bool]]:
    """Leave the set whole, however the writing ends, and say in errors what is left of it.

    Yields a list; whoever writes appends to it when the first change of the set begins. `left` says what is
    left of the column.
    """
    begun: list[bool] = []
    try:
        yield begun
    except BaseException as error:
        if begun:
            with contextlib.suppress(OSError):
                restore_backup(folder)
        if not begun and isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt("nothing was written") from None
        if not begun or not isinstance(error, BiroError | KeyboardInterrupt):
            raise
        text = f"{full_disk(folder)}the other columns are unchanged, {left}"
        line = text if isinstance(error, KeyboardInterrupt) else f"{error}; {text}"
        raise type(error)(line) from None


def _check_request(column: str, observation: Observation, mode: str, source_column: str | None) -> str | None:
    """The column to add to or subtract from, None where there is none."""
    check_mode(mode)
    if mode == "replace" and source_column is not None:
        raise InputError("source_column is only for mode 'add' or 'subtract'")
    is_reserved = column in PROTECTED or column.endswith((NEW, OLD))
    if is_reserved or not column.replace("_", "").isalnum() or not column[0].isalpha():
        raise InputError(
            f"cannot write column {column!r}: choose a name of letters, digits and _ other than DATA"
        )
    check_as_stored(observation, "a column")
    return None if mode == "replace" else source_column or column


class ModelRows(NamedTuple):
    """Where model visibilities belong.

    Attributes
    ----------
    numbers : int64 (3, n_row)
        Rows of the set, and the two antennas that are expected there.
    chan, corr : list of int, or None
        Channels and correlations of a stored cell; None for all.
    """

    numbers: NDArray[np.int64]
    chan: list[int] | None
    corr: list[int] | None

    @classmethod
    def of(cls, part: Partition, rows: NDArray[np.int64] | slice = slice(None)) -> ModelRows:
        """Model visibilities of some rows of a partition."""
        numbers = np.stack([part.row_id[rows], part.antenna1[rows], part.antenna2[rows]])
        chan, corr = (None if each is None else each.tolist() for each in (part.chan_id, part.corr_id))
        return cls(numbers, chan, corr)

    def write(self, child: MeasurementSetProcess, model: NDArray[np.inexact], what: str = "") -> None:
        """Have the child write a model (n_row, n_chan, n_corr) there; `what` ends the names of operations."""
        size = max(1, CHUNK_VISIBILITIES // int(np.prod(model.shape[1:])))
        for start in range(0, len(model), size):
            chunk = slice(start, start + size)
            axes = {"chan": self.chan, "corr": self.corr}
            child.send({"operation": f"select{what}", **axes}, self.numbers[:, chunk])
            child.call(f"write{what}", model[chunk])


def _write_in_turn(
    child: MeasurementSetProcess, folder: Path, turns: Turns, job: Mapping[str, JsonValue]
) -> None:
    """Have each process write the models that it has, this one first, and one after the other."""
    if turns.is_empty:
        return
    for rows, data in turns.own:
        rows.write(child, data()[0])
    child.call("pause")
    turns.let_others_write(_take_turn, folder, job, child.time_limit)
    child.call("resume", np.concatenate([rows.numbers[0] for rows in turns.of_others] or [_NO_ROWS]))


def _take_turn(turn: Turn, folder: Path, job: Mapping[str, JsonValue], time_limit: float) -> None:
    """What another process writes while no other has the set."""
    with MeasurementSetProcess(folder, time_limit) as child:
        child.writing = True
        child.call("join", None, **job)
        for rows, data in turn:
            rows.write(child, data()[0])
        child.call("leave")


def check_writable(path: Path) -> None:
    """Try to open every file of the main table for writing; nothing is changed.

    Raises
    ------
    MeasurementSetError
    """
    if not os.access(path, os.W_OK | os.X_OK):
        raise MeasurementSetError(f"{path}: read-only: no permission to create files in this directory")
    for file in sorted(path.glob("table.*")):
        try:
            os.close(os.open(file, os.O_RDWR))
        except OSError as error:
            raise MeasurementSetError(f"{path}: read-only: {file.name}: {error.strerror}") from error
