"""A Measurement Set that is open: its rows, and its columns read partition by partition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from biro.display.progress import bar
from biro.errors import MeasurementSetError
from biro.io.data_set.index import IndexColumns, PartitionRows, RowIndex
from biro.io.data_set.metadata import Metadata
from biro.io.data_set.stored_data import StoredVisibilities
from biro.io.measurement_set.metadata import MainTableColumns
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.storage import existing_set
from biro.models.quantities.strict import did_you_mean

CORRECTED = "CORRECTED_DATA"
WEIGHT_COLUMNS = ("WEIGHT_SPECTRUM", "WEIGHT", "SIGMA_SPECTRUM", "SIGMA")
"""In the order in which they are looked for."""
CORRECTED_WEIGHT = "CORRECTED_WEIGHT_SPECTRUM"
"""Weights that biro wrote for CORRECTED_DATA, and that no other column of visibilities has."""
_Cells = tuple[NDArray[np.generic], NDArray[np.bool_]]


@dataclass(frozen=True)
class TableOptions:
    """How to read the tables of a Measurement Set.

    Attributes
    ----------
    column : str or None
        Default: CORRECTED_DATA where there is one, else DATA.
    weight_column : str or None
        Default: the first that has values, in the order WEIGHT_SPECTRUM, WEIGHT, SIGMA_SPECTRUM, SIGMA; for
        CORRECTED_DATA before them CORRECTED_WEIGHT_SPECTRUM, if it was written for these values.
    time_limit : float, s
    """

    column: str | None = None
    weight_column: str | None = None
    time_limit: float = 30.0


@contextmanager
def opened_columns(
    path: str | os.PathLike[str], table: TableOptions, wanted: Sequence[str | None]
) -> Iterator[list[OpenedColumn]]:
    """Open a Measurement Set, for the columns that are wanted; None is the usual one.

    Raises
    ------
    MeasurementSetError
        As `biro.read_ms` raises it.
    """
    with MeasurementSetProcess(existing_set(path, table.time_limit), table.time_limit) as child:
        columns = cast(MainTableColumns, child.call("open", path=str(child.path)))
        chosen = [_visibility_column(child, columns, name) for name in wanted]
        index = RowIndex(cast(Metadata, child.call("metadata")), _index_columns(child), str(child.path))
        kept: dict[tuple[str, int, int], _Cells] | None = {} if len(chosen) > 1 else None
        yield [OpenedColumn(child, index, columns, name, table.weight_column, kept) for name in chosen]


def _index_columns(child: MeasurementSetProcess) -> IndexColumns:
    """Ask the child for the columns that rows are selected by."""
    child.send({"operation": "index"})
    arrays: dict[str, NDArray[np.generic]] = {}
    for name in child.receive()[0]["columns"]:
        array = child.receive()[1]
        assert array is not None
        arrays[name] = array
    time = arrays["TIME"].astype(np.float64, copy=False)
    interval = arrays.get("INTERVAL", np.zeros(len(time))).astype(np.float64, copy=False)
    return IndexColumns(
        antenna1=arrays["ANTENNA1"].astype(np.int32, copy=False),
        antenna2=arrays["ANTENNA2"].astype(np.int32, copy=False),
        field_id=arrays["FIELD_ID"].astype(np.int32, copy=False),
        data_desc_id=arrays["DATA_DESC_ID"].astype(np.int32, copy=False),
        scan_number=arrays["SCAN_NUMBER"].astype(np.int32, copy=False),
        flag_row=arrays["FLAG_ROW"].astype(np.bool_, copy=False),
        time=time,
        interval=interval,
        exposure=arrays.get("EXPOSURE", interval).astype(np.float64, copy=False),
        uvw=arrays["UVW"].astype(np.float64, copy=False),
    )


class _Chosen(NamedTuple):
    """A column of visibilities, and a note about its choice; empty where there is nothing to say."""

    name: str
    note: str = ""


def _visibility_column(
    child: MeasurementSetProcess, columns: MainTableColumns, wanted: str | None
) -> _Chosen:
    """The column to read; a column of which a run wrote only a part is refused.

    Without one that is wanted, it is CORRECTED_DATA, unless that has no visibility but 0, as it is made by
    programs that fill it later.
    """
    visibility, path, note = columns["visibility"], child.path, ""
    column = wanted or (CORRECTED if CORRECTED in visibility else "DATA")
    if column not in visibility:
        raise MeasurementSetError(
            f"{path}: no visibility column {column}{did_you_mean(column, visibility)}; there are "
            f"{', '.join(visibility) or 'none at all'}"
        )
    if wanted is None and column == CORRECTED and "DATA" in visibility and not _has_signal(child, column):
        column, note = (
            "DATA",
            f"biro reads DATA, which may not be calibrated, because {CORRECTED} is empty or 0 in all rows",
        )
    if column in columns["incomplete"]:
        raise MeasurementSetError(
            f"{path}: column {column} is incomplete, because the run that wrote it was interrupted. Write "
            "it again "
            "(biro predict --column), or read another column (--column, column= in Python)"
        )
    return _Chosen(column, note)


def _has_signal(child: MeasurementSetProcess, column: str) -> bool:
    """Whether a visibility of a column differs from 0."""
    return bool(child.call("find_signal", column=column)["found"])


class OpenedColumn:
    """One column of a set that is open; `kept` is what several columns have in common, read once."""

    def __init__(
        self,
        child: MeasurementSetProcess,
        index: RowIndex,
        columns: MainTableColumns,
        chosen: _Chosen,
        weight_column: str | None,
        kept: dict[tuple[str, int, int], _Cells] | None,
    ) -> None:
        self.child = child
        self.index = index
        self.columns = columns["columns"]
        self.is_half_flagged = columns["half_flagged"]
        self.column, self.note = chosen
        self.visibility_columns = columns["visibility"]
        self.weight_column = weight_column
        self.kept = kept
        self.weights_of: dict[tuple[int, int], tuple[Sequence[str], list[str]]] = {}

    @cached_property
    def is_blank(self) -> bool:
        """Whether no visibility of the column differs from 0."""
        return not _has_signal(self.child, self.column)

    @cached_property
    def _has_own_weights(self) -> bool:
        """Whether there are weights that were written for the visibilities of this column as they are."""
        if self.column != CORRECTED or CORRECTED_WEIGHT not in self.columns:
            return False
        return bool(self.child.call("weights_belong", column=CORRECTED_WEIGHT, data=CORRECTED)["belong"])

    @property
    def other_columns(self) -> Sequence[str]:
        """Visibility columns that could be read in place of this one."""
        return [name for name in self.visibility_columns if name != self.column]

    def notes(self, parts: Sequence[PartitionRows]) -> Iterator[str]:
        """What is odd about the choice of columns, and about flags."""
        if self.note:
            yield self.note
        yield from dict.fromkeys(note for part in parts for note in self._weights_of(part)[1])
        is_usual = self.column == CORRECTED and self.weight_column is None
        if is_usual and CORRECTED_WEIGHT in self.columns and not self._has_own_weights:
            yield (
                f"{CORRECTED_WEIGHT} was written for other values of {CORRECTED}, so biro uses the weights "
                "of DATA"
            )
        if "FLAG" not in self.columns:
            yield "there is no FLAG column; biro uses FLAG_ROW alone"
        if self.is_half_flagged:
            yield (
                "FLAG is incomplete, because a biro flag was interrupted. Restore the previous flags with "
                "biro flag --undo"
            )

    def visibilities(self, part: PartitionRows) -> StoredVisibilities:
        """Read the visibilities, weights and flags of a partition."""
        values, missing = self._column(self.column, part)
        vis = cast(NDArray[np.complexfloating], values)
        weight, undefined, origin = self._weights(part, vis.dtype)
        missing |= undefined
        flag = None
        if "FLAG" in self.columns:
            stored, undefined = self._common("FLAG", part)
            missing |= undefined
            flag = cast(NDArray[np.bool_], stored)
        return StoredVisibilities(vis, weight, flag, missing, origin)

    def flags(self, part: PartitionRows) -> NDArray[np.bool_]:
        """FLAG or FLAG_ROW, bool (n_row, n_chan, n_corr); FLAG without a value is no flag."""
        flag = np.zeros((len(part.rows), len(part.chan), len(part.corr)), bool)
        if "FLAG" in self.columns:
            stored, undefined = self._common("FLAG", part)
            flag |= cast(NDArray[np.bool_], stored) & ~undefined[:, None, None]
        return flag | self.index.columns.flag_row[part.rows][:, None, None]

    def _weights(
        self, part: PartitionRows, vis_type: np.dtype[np.complexfloating]
    ) -> tuple[NDArray[np.floating], NDArray[np.bool_], str]:
        """Weights; see `read_ms` for the rule.

        Returns
        -------
        weight : float32 or float64 as the visibilities are (n_row, n_chan, n_corr), 1/Jy^2
        undefined : bool (n_row,)
            Rows without a value.
        column : str
        """
        real: type[np.floating] = np.float32 if vis_type == np.complex64 else np.float64
        names = self._weight_columns()
        for name in self._weights_of(part)[0]:
            values, undefined = self._common(name, part)
            if undefined.all() and len(part.rows):
                continue
            weight = cast(NDArray[np.floating], values)
            if weight.ndim == 2:
                weight = weight[:, None, :]
            if name.startswith("SIGMA"):
                # A negative sigma is kept as a negative weight, so that it is counted as one.
                with np.errstate(divide="ignore", over="ignore"):
                    weight = (1.0 / (np.abs(weight.astype(np.float64)) * weight)).astype(real)
            if weight.shape[1] != len(part.chan):
                weight = np.repeat(weight, len(part.chan), axis=1)
            return weight.astype(real, copy=False), undefined, name
        raise MeasurementSetError(
            f"{self.index.source}: no weights: none of {', '.join(names)} has a value in the rows selected"
        )

    def _weights_of(self, part: PartitionRows) -> tuple[Sequence[str], list[str]]:
        """Columns of weights in the order in which they are tried for a partition, and notes about it.

        A column without a value in some rows, or without a weight above 0, comes after one that has them.
        """
        names = [name for name in self._weight_columns() if name in self.columns]
        key = part.field_id, part.data_desc_id
        if len(names) < 2:
            return names, []
        if key not in self.weights_of:
            self.weights_of[key] = self._ordered_weights(names, *key)
        return self.weights_of[key]

    def _ordered_weights(
        self, names: list[str], field: int, description: int
    ) -> tuple[Sequence[str], list[str]]:
        lacking: list[str] = []
        for i, name in enumerate(names):
            there = self.child.call(
                "weights_there", column=name, data=self.column, field=field, description=description
            )
            if there["positive"] and not there["undefined"]:
                note = f"{', '.join(lacking)}: biro uses {name} instead"
                return [name, *names[:i], *names[i + 1 :]], [note] if lacking else []
            undefined = there["undefined"]
            what = f"has no value in {undefined} of {there['rows']} rows" if undefined else "is 0 in all rows"
            place = f"field {self.index.field_names[field]}, data description {description}"
            lacking.append(f"{name} {what} of {place}")
        return names, []

    def _weight_columns(self) -> tuple[str, ...]:
        """Columns in which weights are looked for: the one that was asked for, or all."""
        wanted = self.weight_column
        if wanted is None:
            return (CORRECTED_WEIGHT, *WEIGHT_COLUMNS) if self._has_own_weights else WEIGHT_COLUMNS
        if wanted not in WEIGHT_COLUMNS or wanted not in self.columns:
            present = [name for name in WEIGHT_COLUMNS if name in self.columns]
            raise MeasurementSetError(
                f"{self.index.source}: no weight column {wanted}{did_you_mean(wanted, present)}; there are "
                f"{', '.join(present)}"
            )
        return (wanted,)

    def _common(self, name: str, part: PartitionRows) -> _Cells:
        """A column that goes with every column of visibilities, as `_column` reads it."""
        if self.kept is None:
            return self._column(name, part)
        key = name, part.field_id, part.data_desc_id
        if key not in self.kept:
            self.kept[key] = self._column(name, part)
        values, undefined = self.kept[key]
        return values.copy(), undefined.copy()  # whoever asks changes them in place

    def _column(self, name: str, part: PartitionRows) -> _Cells:
        """One column of a partition, and the rows that have no value in it.

        Returns
        -------
        values : of the column's type (n_row, n_chan, n_corr), or (n_row, n_corr) of WEIGHT and SIGMA
        undefined : bool (n_row,)
        """
        shape = part.shape[1:] if name in ("WEIGHT", "SIGMA") else part.shape
        chan = None if len(part.chan) == part.shape[0] else part.chan.tolist()
        corr = None if len(part.corr) == part.shape[1] else part.corr.tolist()
        self.child.send(
            {"operation": "read", "column": name, "shape": shape, "chan": chan, "corr": corr}, part.rows
        )
        values: NDArray[np.generic] | None = None
        undefined = np.zeros(len(part.rows), bool)
        n_read = 0
        with bar(f"reading {name}", "rows", total=len(part.rows)) as shown:
            while True:
                header, chunk = self.child.receive()
                if chunk is None:
                    break
                if values is None:
                    values = np.empty((len(part.rows), *chunk.shape[1:]), chunk.dtype)
                start = header["start"]
                values[start : start + len(chunk)] = chunk
                undefined[np.array(header["undefined"], int) + start] = True
                n_read += len(chunk)
                shown.update(len(chunk))
        if n_read != len(part.rows):
            raise MeasurementSetError(f"{self.index.source}: {name} gave {n_read} rows of {len(part.rows)}")
        if values is None:
            dtype = np.complex64 if name.endswith("DATA") else np.float32
            values = np.empty((0, len(part.chan), len(part.corr)), dtype)
        return values, undefined
