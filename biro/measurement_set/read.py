"""Read a Measurement Set as an observation; casacore runs in a child process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError, MeasurementSetError
from biro.formatting import check_names
from biro.measurement_set.index import PartitionRows, SetIndex
from biro.measurement_set.metadata import Columns
from biro.measurement_set.process import MeasurementSetProcess
from biro.measurement_set.storage import existing_set
from biro.observation.averaging import Averaging, average
from biro.observation.flags import apply_flags, describe_causes, empty_counts
from biro.observation.observation import Observation
from biro.observation.partition import Convention, Partition, typical_interval
from biro.observation.selection import Selection

WEIGHT_COLUMNS = ("WEIGHT_SPECTRUM", "WEIGHT", "SIGMA_SPECTRUM", "SIGMA")
"""In the order in which they are looked for."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read, apart from what to select.

    Attributes
    ----------
    column : str or None
        Default: CORRECTED_DATA where there is one, else DATA.
    weight_column : str or None
        Default: the first that has values, in the order WEIGHT_SPECTRUM, WEIGHT, SIGMA_SPECTRUM, SIGMA.
    convention : "casa" or "fourier"
    allow_unusable : bool
        Return the rows even when no visibility among them is usable (to predict into them).
    time_limit : float, s
    """

    column: str | None = None
    weight_column: str | None = None
    convention: Convention = "casa"
    allow_unusable: bool = False
    time_limit: float = 30.0


def read_ms(
    path: str | os.PathLike[str], *, selection: Selection | None = None, **options: object
) -> Observation:
    """Read calibrated visibilities of a Measurement Set.

    Every field and data description is a partition of its own; rows keep the order of the set. Phase
    centres become ICRS (J2000 is taken as ICRS). A visibility that does not count gets weight 0 and is
    counted under the first cause that holds, in the order of `biro.observation.flags.CAUSES`.

    Weights (physics: section 7) come from WEIGHT_SPECTRUM, else WEIGHT, else 1/SIGMA_SPECTRUM^2, else
    1/SIGMA^2: for each partition the first of these columns with a value in any of its rows. Rows without
    a value in that column are not used ("no data"); no other column is mixed in.

    Parameters
    ----------
    path : path of the Measurement Set
    selection : Selection, optional
        In place of its fields as keywords.
    **options
        Fields of `biro.observation.selection.Selection`: fields, spws, scans, antennas, time_range,
        uv_range, channels, correlations, autocorrelations; of `ReadOptions`: column, weight_column,
        convention, allow_unusable, time_limit; and of `biro.observation.averaging.Averaging`: average_time,
        average_channels, smearing_radius.

    Returns
    -------
    Observation

    Raises
    ------
    MeasurementSetError
        No such path, not a Measurement Set, broken, locked beyond `time_limit`, a column that is not there,
        a selection that matches nothing, unknown correlations, or no usable visibility.
    InputError
        An option that is not understood.

    Examples
    --------
    >>> read_ms("obs.ms", column="DATA", fields="3C273", uv_range="1 klambda..", average_time="30 s")
    """
    read_options, selected, averaging = _sort_options(options)
    if selection is not None and selected:
        raise InputError(f"give either selection= or {', '.join(selected)}, not both")
    selection = selection or Selection(**selected)  # type: ignore[arg-type]  # it checks them itself
    if read_options.convention not in ("casa", "fourier"):
        raise InputError(f"convention must be 'casa' or 'fourier', got {read_options.convention!r}")
    limit = read_options.time_limit
    with MeasurementSetProcess(existing_set(path, limit), limit) as child:
        columns = cast(Columns, child.call("open", path=str(child.path)))
        column = _visibility_column(child.path, columns, read_options.column)
        reader = _Reader(child, columns["columns"], replace(read_options, column=column))
        return reader.read(selection, averaging)


def _sort_options(options: dict[str, object]) -> tuple[ReadOptions, dict[str, object], Averaging]:
    """The options that are fields of `ReadOptions`, of `Selection` and of `Averaging`."""
    names = {type_: [item.name for item in fields(type_)] for type_ in (Selection, ReadOptions, Averaging)}
    check_names(options, [name for group in names.values() for name in group], "read_ms")
    groups = {type_: {k: v for k, v in options.items() if k in group} for type_, group in names.items()}
    return (
        ReadOptions(**groups[ReadOptions]),  # type: ignore[arg-type]  # looked at where they are used
        groups[Selection],
        Averaging(**groups[Averaging]),  # type: ignore[arg-type]  # it checks them itself
    )


def _visibility_column(path: Path, columns: Columns, wanted: str | None) -> str:
    """The column to read; a column of which a run wrote only a part is refused."""
    visibility = columns["visibility"]
    column = wanted or ("CORRECTED_DATA" if "CORRECTED_DATA" in visibility else "DATA")
    if column not in visibility:
        raise MeasurementSetError(
            f"{path}: no visibility column {column}; there are {', '.join(visibility) or 'none at all'}"
        )
    if column in columns["incomplete"]:
        raise MeasurementSetError(
            f"{path}: column {column} is half-written: a run that wrote it was interrupted; write it again "
            "(biro predict --column), or read another (column=, --column)"
        )
    return column


class _Reader:
    """Reads the partitions of one open set, and counts why visibilities are left out."""

    def __init__(self, child: MeasurementSetProcess, columns: list[str], options: ReadOptions) -> None:
        self.child = child
        self.index = SetIndex(child)
        self.columns = columns
        self.options = options
        self.counts = empty_counts()

    def read(self, selection: Selection, averaging: Averaging) -> Observation:
        index, metadata, counts = self.index, self.index.metadata, self.counts
        selected = index.select(selection)
        notes = [*self._notes(selected), *index.uvw_notes(selected)]
        partitions = [self._partition(part, selection) for part in selected]
        counts["not selected"] += index.n_visibilities - counts["total"]
        counts["total"] = index.n_visibilities
        if not self.options.allow_unusable:
            if not counts["usable"]:
                raise MeasurementSetError(
                    f"{index.source}: 0 of {counts['total']} visibilities usable: {describe_causes(counts)}"
                )
            partitions = [part for part in partitions if part.n_usable]
        else:
            partitions = [part for part in partitions if part.n_row]
        diameter = np.array(metadata["dish_diameter"], np.float64)
        partitions, averaged = average(partitions, averaging, diameter)
        return Observation(
            partitions=tuple(partitions),
            antenna_names=tuple(metadata["antenna_names"]),
            antenna_positions=np.array(metadata["antenna_positions"], np.float64).reshape(-1, 3),
            telescope=metadata["telescope"],
            source=index.source,
            column=str(self.options.column),
            weight_origin=_weight_origin(partitions),
            counts=counts,
            time_scale=metadata["time_scale"],
            utc_offset=metadata["utc_offset"],
            dish_diameter=diameter,
            convention=self.options.convention,
            averaged=averaged,
            notes=tuple(notes),
        )

    def _notes(self, selected: list[PartitionRows]) -> Iterator[str]:
        """What is odd about fields and flags; a field whose phase centre cannot be used is refused."""
        for field_id in sorted({part.field_id for part in selected}):
            field, name = self.index.metadata["fields"][field_id], self.index.field_names[field_id]
            if field["problem"]:
                raise MeasurementSetError(f"{self.index.source}: field {name}: {field['problem']}")
            if field["note"]:
                yield f"field {name}: {field['note']}"
        if "FLAG" not in self.columns:
            yield "there is no FLAG column: nothing but FLAG_ROW is taken as flagged"

    def _partition(self, part: PartitionRows, selection: Selection) -> Partition:
        """Read one partition; autocorrelations that are not selected are counted here and not read."""
        index, columns = self.index, self.index.columns
        if not selection.autocorrelations:
            part = self._without_autocorrelations(part)
        vis, weight, origin = self._visibilities(part)
        rows = part.rows
        uvw = np.nan_to_num(columns.uvw[rows], nan=0.0, posinf=0.0, neginf=0.0)
        time = columns.time[rows]
        times, time_index = np.unique(time, return_inverse=True)
        spw = index.metadata["spws"][part.spw_id]
        field = index.metadata["fields"][part.field_id]
        corr_type = index.corr_type(part.data_desc_id)
        return Partition(
            field=index.field_names[part.field_id],
            spw=index.spw_names[part.spw_id],
            field_id=part.field_id,
            spw_id=part.spw_id,
            data_desc_id=part.data_desc_id,
            phase_centre=(field["direction"][0], field["direction"][1]),
            uvw=-uvw if self.options.convention == "fourier" else uvw,
            antenna1=columns.antenna1[rows],
            antenna2=columns.antenna2[rows],
            time=time,
            time_index=time_index.astype(np.int32),
            chan_freq=np.array(spw["chan_freq"])[part.chan],
            chan_width=np.abs(np.array(spw["chan_width"])[part.chan]),
            freq_frame=spw["frame"],
            corr_type=tuple(corr_type[i] for i in part.corr),
            vis=vis,
            weight=weight,
            row_id=rows.astype(np.int64),
            n_antenna=len(index.metadata["antenna_names"]),
            interval=_interval(columns.interval[rows], times),
            chan_id=part.chan,
            corr_id=part.corr,
            weight_origin=origin,
            frame=field["frame"],
        )

    def _without_autocorrelations(self, part: PartitionRows) -> PartitionRows:
        """The rows of two different antennas; the others are counted."""
        columns = self.index.columns
        same = columns.antenna1[part.rows] == columns.antenna2[part.rows]
        n_left_out = int(np.count_nonzero(same)) * len(part.chan) * len(part.corr)
        self.counts["autocorrelation"] += n_left_out
        self.counts["total"] += n_left_out
        return replace(part, rows=part.rows[~same], inside=part.inside[~same])

    def _visibilities(
        self, part: PartitionRows
    ) -> tuple[NDArray[np.complexfloating], NDArray[np.floating], str]:
        """Visibilities and weights, 0 for what does not count, and the column of the weights."""
        columns = self.index.columns
        values, missing = self._column(str(self.options.column), part)
        vis = cast(NDArray[np.complexfloating], values)
        weight, undefined, origin = self._weights(part, vis.dtype)
        missing |= undefined
        excluded = []
        if "FLAG" in self.columns:
            flag, undefined = self._column("FLAG", part)
            missing |= undefined
            excluded.append(("FLAG", cast(NDArray[np.bool_], flag)))
        missing |= ~np.isfinite(columns.uvw[part.rows]).all(axis=1)
        excluded.append(("not selected", ~part.inside[:, :, None]))
        excluded.append(("no data", missing[:, None, None]))
        excluded.append(("FLAG_ROW", columns.flag_row[part.rows][:, None, None]))
        apply_flags(vis, weight, excluded, self.counts)
        return vis, weight, origin

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
        for name in names:
            if name not in self.columns:
                continue
            values, undefined = self._column(name, part)
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

    def _weight_columns(self) -> tuple[str, ...]:
        """Columns in which weights are looked for: the one that was asked for, or all."""
        wanted = self.options.weight_column
        if wanted is None:
            return WEIGHT_COLUMNS
        if wanted not in WEIGHT_COLUMNS or wanted not in self.columns:
            present = [name for name in WEIGHT_COLUMNS if name in self.columns]
            raise MeasurementSetError(
                f"{self.index.source}: no weight column {wanted}; there are {', '.join(present)}"
            )
        return (wanted,)

    def _column(self, name: str, part: PartitionRows) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
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
        if n_read != len(part.rows):
            raise MeasurementSetError(f"{self.index.source}: {name} gave {n_read} rows of {len(part.rows)}")
        if values is None:
            dtype = np.complex64 if name.endswith("DATA") else np.float32
            values = np.empty((0, len(part.chan), len(part.corr)), dtype)
        return values, undefined


def _interval(interval: NDArray[np.float64], times: NDArray[np.float64]) -> float:
    """INTERVAL where it fits the spacing of the times (some sets hold rubbish), else that spacing, s."""
    spacing = typical_interval(times)
    stated = float(np.median(interval)) if interval.size else 0.0
    return stated if stated > 0 and (spacing == 0 or stated <= 1.01 * spacing) else spacing


def _weight_origin(partitions: list[Partition]) -> str:
    origins = {part.weight_origin for part in partitions}
    if len(origins) == 1:
        return origins.pop()
    return ", ".join(f"{part.weight_origin} ({part.field}/spw{part.spw_id})" for part in partitions)
