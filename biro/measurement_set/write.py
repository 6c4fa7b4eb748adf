"""Writing Measurement Sets: a column of model visibilities, or a whole new set."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError, MeasurementSetError
from biro.measurement_set import drafts
from biro.measurement_set.child.backup import put_back
from biro.measurement_set.layout import STOKES
from biro.measurement_set.process import MeasurementSetProcess, ask_storage, existing_set
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Mode = Literal["replace", "add", "subtract"]
CHUNK_VISIBILITIES = 1 << 21
PROTECTED = ("DATA", "FLOAT_DATA")
SPARE_BYTES = 1 << 20
SECOND_RECEPTORS = "LY"


@dataclass(frozen=True)
class WriteReport:
    """What was written.

    Attributes
    ----------
    column : str
    created : bool
        The column was not there before.
    rows_written, rows_kept : int
        Rows that got new values, and those that kept theirs (zero in a new column).
    notes : tuple of str
    """

    column: str
    created: bool
    rows_written: int
    rows_kept: int
    notes: tuple[str, ...] = ()


def write_column(
    path: str | os.PathLike[str],
    column: str,
    observation: Observation,
    models: Iterable[NDArray[Any]],
    *,
    mode: Mode = "replace",
    source_column: str | None = None,
    time_limit: float = 30.0,
) -> WriteReport:
    """Write model visibilities into a column, made like DATA where it is not there.

    Before the first model is asked for, the set is known to be writable and its disk to have room. Nothing is
    changed before the first model is there: a prediction that fails leaves the set as it was. Then the
    column's keyword BIRO_COMPLETE says False; it says True only after everything was written, flushed, read
    back and found equal. DATA itself is never written.

    Parameters
    ----------
    path : path of the Measurement Set
    column : str
    observation : Observation
        As read from this set without averaging: says which rows, channels and correlations the models are of.
    models : iterable of complex (n_row, n_chan, n_corr), Jy
        One for each partition, in its order; may be a generator.
    mode : "replace", "add" or "subtract"
        The model; `source_column` + model; `source_column` - model.
    source_column : str, optional
        Default: the column itself.
    time_limit : float, s
        Longest silence of the set (a lock, a storage that does not answer) that is waited for.

    Returns
    -------
    WriteReport

    Raises
    ------
    MeasurementSetError
        Read-only, locked, no room, half-written before (and needed now), rows of other antennas than the
        observation's, or not equal when read back.
    InputError
        A model of wrong shape, kind, or with values that are not finite; an averaged observation.
    """
    source_column = _check_request(column, observation, mode, source_column)
    place = existing_set(path, time_limit)
    ask_storage(place, time_limit, "looking whether it can be written", lambda: _check_writable(place))
    shapes = [(part.row_id, part) for part in observation.partitions]
    with _mending(place, column) as begun, MeasurementSetProcess(place, time_limit) as child:
        prepared = child.call("prepare", path=str(place), column=column, source=source_column, mode=mode)
        written = 0
        remaining = iter(models)
        for number, (rows, part) in enumerate(shapes):
            model = next(remaining, None)
            if model is None:
                raise InputError(f"models has {number} arrays for {len(shapes)} partitions")
            model = _checked_model(model, part, number)
            if number == 0:
                begun.append(True)
                child.writing = True
                child.call("begin")
            _write_part(child, part, model)
            written += len(rows)
        if next(remaining, None) is not None:
            raise InputError(f"models has more arrays than the {len(shapes)} partitions")
        finished = child.call("finish")
    return WriteReport(
        column=column,
        created=prepared["created"],
        rows_written=written,
        rows_kept=finished["n_row"] - written,
        notes=tuple(prepared["notes"]),
    )


@contextmanager
def _mending(place: Path, column: str) -> Iterator[list[bool]]:
    """Leave the set whole, however the writing ends, and say what is left; the list says if it began."""
    begun: list[bool] = []
    try:
        yield begun
    except BaseException as error:
        if begun:
            with contextlib.suppress(OSError):
                put_back(place)
        if not begun or not isinstance(error, MeasurementSetError):
            raise
        free = shutil.disk_usage(place).free
        full = f"its disk is full ({free / 1e6:.1f} MB free), make room; " if free < SPARE_BYTES else ""
        raise MeasurementSetError(
            f"{error}; {full}the other columns are as they were, {column} is marked as half-written if it is"
            " there: write it again"
        ) from None


def _check_request(column: str, observation: Observation, mode: str, source_column: str | None) -> str | None:
    """The column to add to or subtract from, None where there is none."""
    if mode not in ("replace", "add", "subtract"):
        raise InputError(f"mode must be 'replace', 'add' or 'subtract', got {mode!r}")
    if mode == "replace" and source_column is not None:
        raise InputError("source_column has a meaning only with mode 'add' or 'subtract'")
    if column in PROTECTED or not column.replace("_", "").isalnum() or not column[0].isalpha():
        raise InputError(
            f"cannot write column {column!r}: choose a name of letters, digits and _ other than DATA"
        )
    if observation.averaged is not None:
        raise InputError("cannot write a column from averaged data: read the set again without averaging")
    return None if mode == "replace" else source_column or column


def _checked_model(model: NDArray[Any], part: Partition, number: int) -> NDArray[np.complexfloating]:
    model = np.asarray(model)
    if model.shape != part.vis.shape:
        raise InputError(
            f"model {number} must have shape {part.vis.shape} (row, chan, corr), got {model.shape}"
        )
    if not np.iscomplexobj(model):
        raise InputError(f"model {number} must be complex, got {model.dtype}")
    if not np.isfinite(model).all():
        raise InputError(f"model {number} has values that are not finite; nothing of it was written")
    return model


def _write_part(child: MeasurementSetProcess, part: Partition, model: NDArray[np.complexfloating]) -> None:
    options = {
        "chan": None if part.chan_id is None else part.chan_id.tolist(),
        "corr": None if part.corr_id is None else part.corr_id.tolist(),
    }
    size = max(1, CHUNK_VISIBILITIES // (part.n_chan * part.n_corr))
    for start in range(0, part.n_row, size):
        some = slice(start, start + size)
        rows = np.stack([part.row_id[some], part.antenna1[some], part.antenna2[some]])
        child.send({"operation": "write", **options}, rows)
        child.call("values", model[some])


def _check_writable(path: Path) -> None:
    """Try to open every file of the main table for writing; nothing is changed.

    Raises
    ------
    MeasurementSetError
    """
    if not os.access(path, os.W_OK | os.X_OK):
        raise MeasurementSetError(f"{path}: read-only: no permission to make files in this folder")
    for file in sorted(path.glob("table.*")):
        try:
            os.close(os.open(file, os.O_RDWR))
        except OSError as error:
            raise MeasurementSetError(f"{path}: read-only: {file.name}: {error.strerror}") from error


def create_ms(
    path: str | os.PathLike[str],
    observation: Observation,
    *,
    overwrite: bool = False,
    time_limit: float = 30.0,
) -> None:
    """Make a new Measurement Set that holds an observation; `read_ms` gives it back.

    DATA holds the visibilities, FLAG what has weight 0, WEIGHT_SPECTRUM the weights, WEIGHT their mean over
    channels and SIGMA = 1/sqrt(WEIGHT). Rows are written in the order of `row_id`. It is made beside its
    place and moved there when it is whole.

    Parameters
    ----------
    path : path
    observation : Observation
        UVW is written with the signs of a Measurement Set, whatever convention it was read with.
    overwrite : bool
        Replace a Measurement Set that is there (never another kind of file or folder).
    time_limit : float, s

    Raises
    ------
    MeasurementSetError
        Something is there already, no room, or it cannot be written.
    """
    place = Path(path).expanduser().absolute()
    if not place.parent.is_dir():
        raise MeasurementSetError(f"{path}: there is no folder {place.parent}")
    if not os.access(place.parent, os.R_OK | os.W_OK | os.X_OK):
        raise MeasurementSetError(f"{path}: no permission to make files in {place.parent}")
    drafts.clear(place)
    if place.exists():
        if not overwrite:
            raise MeasurementSetError(f"{path}: exists already; choose another name or overwrite=True")
        existing_set(place, time_limit)
    need = 3 * sum(part.vis.nbytes for part in observation.partitions) + SPARE_BYTES
    free = shutil.disk_usage(place.parent).free
    if need > free:
        raise MeasurementSetError(
            f"{path}: needs about {need / 1e6:.0f} MB, but {free / 1e6:.0f} MB are free"
        )
    draft, old = drafts.names(place)
    try:
        with MeasurementSetProcess(draft, time_limit) as child:
            child.writing = True
            for head, array in _creation(observation, draft):
                child.send(head, array)
                child.receive()
        if place.exists():
            place.rename(old)
        draft.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise MeasurementSetError(f"{path}: cannot be made: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft)


ROW_COLUMNS = ("TIME", "ANTENNA1", "ANTENNA2", "UVW", "FIELD_ID", "DATA_DESC_ID", "INTERVAL", "SCAN_NUMBER")


def _creation(observation: Observation, path: Path) -> Iterator[tuple[dict[str, Any], NDArray[Any] | None]]:
    """The requests that make a set, in order."""
    yield {"operation": "create", "path": str(path), "about": _describe(observation)}, None
    rows, order = _row_columns(observation)
    for name in ROW_COLUMNS:
        yield {"operation": "fill", "column": name}, rows[name]
    place = np.argsort(order)  # row of the new set for each row of the partitions, joined
    done = 0
    for part in observation.partitions:
        size = max(1, CHUNK_VISIBILITIES // (part.n_chan * part.n_corr))
        for start in range(0, part.n_row, size):
            some = slice(start, start + size)
            yield {"operation": "place"}, place[done + start : done + start + len(part.vis[some])]
            yield {"operation": "fill_cells", "column": "DATA"}, part.vis[some].astype(np.complex64)
            yield (
                {"operation": "fill_cells", "column": "WEIGHT_SPECTRUM"},
                part.weight[some].astype(np.float32),
            )
        done += part.n_row
    yield {"operation": "close_new"}, None


def _row_columns(observation: Observation) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Columns of the main table in the order of row_id, and that order of the joined partitions."""
    parts = observation.partitions
    sign = -1.0 if observation.convention == "fourier" else 1.0
    descriptions = _descriptions(parts)
    field_ids = sorted({part.field_id for part in parts})
    order = np.argsort(np.concatenate([part.row_id for part in parts]), kind="stable")
    time = np.concatenate([part.time for part in parts])[order] + observation.utc_offset
    field = np.concatenate([np.full(part.n_row, field_ids.index(part.field_id), np.int32) for part in parts])[
        order
    ]
    dd = [np.full(part.n_row, descriptions.index(part.data_desc_id), np.int32) for part in parts]
    columns = {
        "TIME": time,
        "ANTENNA1": np.concatenate([part.antenna1 for part in parts])[order],
        "ANTENNA2": np.concatenate([part.antenna2 for part in parts])[order],
        "UVW": sign * np.concatenate([part.uvw for part in parts])[order],
        "FIELD_ID": field,
        "DATA_DESC_ID": np.concatenate(dd)[order],
        "INTERVAL": np.concatenate([np.full(part.n_row, part.interval) for part in parts])[order],
        # A new scan where the field changes from row to row.
        "SCAN_NUMBER": np.cumsum(np.diff(field, prepend=field[:1]) != 0).astype(np.int32) + 1,
    }
    return columns, order


def _descriptions(parts: Iterable[Partition]) -> list[int]:
    return sorted({part.data_desc_id for part in parts})


def _describe(observation: Observation) -> dict[str, Any]:
    """What the subtables hold, as plain numbers and text."""
    parts = observation.partitions
    fields = {part.field_id: part for part in reversed(parts)}
    descriptions = {part.data_desc_id: part for part in reversed(parts)}
    times = np.concatenate([part.times for part in parts]) + observation.utc_offset
    diameter = observation.dish_diameter
    return {
        "antenna_names": list(observation.antenna_names),
        "antenna_positions": observation.antenna_positions.tolist(),
        "dish_diameter": (diameter if len(diameter) else np.zeros(observation.n_antenna)).tolist(),
        "telescope": observation.telescope,
        "n_row": sum(part.n_row for part in parts),
        "time_range": [float(times.min()), float(times.max())],
        "fields": [
            {"name": fields[i].field, "direction": list(fields[i].phase_centre)} for i in sorted(fields)
        ],
        "descriptions": [
            {
                "name": part.spw,
                "chan_freq": part.chan_freq.tolist(),
                "chan_width": part.chan_width.tolist(),
                "frame": part.freq_frame,
                "corr_type": list(part.corr_type),
                "corr_codes": [STOKES.index(name) for name in part.corr_type],
                "receptors": [
                    [int(hand in SECOND_RECEPTORS) for hand in (name[0], name[-1])] for name in part.corr_type
                ],
            }
            for _, part in sorted(descriptions.items())
        ],
    }
