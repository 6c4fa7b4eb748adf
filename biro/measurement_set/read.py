"""Reading Measurement Sets. casacore runs in a child process; here are the rules for what counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError, MeasurementSetError
from biro.formatting import check_names
from biro.measurement_set.layout import Layout, Part
from biro.measurement_set.process import MeasurementSetProcess, existing_set
from biro.measurement_set.write import WriteReport, create_ms, write_column
from biro.observation.averaging import Averaging, average
from biro.observation.flags import apply_flags, describe_causes, empty_counts
from biro.observation.observation import Observation
from biro.observation.partition import Convention, Partition, typical_interval
from biro.observation.selection import Selection

__all__ = ["Selection", "WriteReport", "create_ms", "read_ms", "write_column"]

WEIGHT_COLUMNS = ("WEIGHT_SPECTRUM", "WEIGHT", "SIGMA_SPECTRUM", "SIGMA")


@dataclass(frozen=True)
class Reading:
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
    path: str | os.PathLike[str], *, selection: Selection | None = None, **options: Any
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
        uv_range, channels, correlations, autocorrelations; of `Reading`: column, weight_column, convention,
        allow_unusable, time_limit; and of `biro.observation.averaging.Averaging`: average_time,
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
    reading, chosen, averaging = _sort_options(options)
    if selection is not None and chosen:
        raise InputError(f"give either selection= or {', '.join(chosen)}, not both")
    selection = selection or Selection(**chosen)
    if reading.convention not in ("casa", "fourier"):
        raise InputError(f"convention must be 'casa' or 'fourier', got {reading.convention!r}")
    with MeasurementSetProcess(existing_set(path, reading.time_limit), reading.time_limit) as child:
        columns = child.call("open", path=str(child.path))
        column = _choose_column(child.path, columns, reading.column)
        layout = Layout(child)
        return _Reader(child, layout, columns["columns"], replace(reading, column=column)).read(
            selection, averaging
        )


def _sort_options(options: dict[str, Any]) -> tuple[Reading, dict[str, Any], Averaging]:
    kinds: tuple[type, ...] = (Selection, Reading, Averaging)
    names = {kind: [item.name for item in fields(kind)] for kind in kinds}
    check_names(options, [name for kind in kinds for name in names[kind]], "read_ms")
    mine = {kind: {k: v for k, v in options.items() if k in names[kind]} for kind in kinds}
    return Reading(**mine[Reading]), mine[Selection], Averaging(**mine[Averaging])


def _choose_column(path: Path, columns: dict[str, Any], wanted: str | None) -> str:
    there = columns["visibility"]
    column = wanted or ("CORRECTED_DATA" if "CORRECTED_DATA" in there else "DATA")
    if column not in there:
        raise MeasurementSetError(
            f"{path}: no visibility column {column}; there are {', '.join(there) or 'none at all'}"
        )
    if column in columns["incomplete"]:
        raise MeasurementSetError(
            f"{path}: column {column} is half-written: a run that wrote it was interrupted; write it again "
            "(biro predict --column), or read another (column=, --column)"
        )
    return column


class _Reader:
    """Reads the partitions of one open set."""

    def __init__(
        self, child: MeasurementSetProcess, layout: Layout, columns: list[str], reading: Reading
    ) -> None:
        self.child = child
        self.layout = layout
        self.columns = columns
        self.reading = reading
        self.counts = empty_counts()

    def read(self, selection: Selection, averaging: Averaging) -> Observation:
        layout = self.layout
        parts = layout.parts(selection)
        notes = [*self._notes(parts), *layout.doubtful_uvw(parts)]
        partitions = [self._partition(part, selection) for part in parts]
        counts = self.counts
        counts["not selected"] += layout.n_visibilities - counts["total"]
        counts["total"] = layout.n_visibilities
        if not self.reading.allow_unusable:
            if not counts["usable"]:
                raise MeasurementSetError(
                    f"{layout.source}: 0 of {counts['total']} visibilities usable: {describe_causes(counts)}"
                )
            partitions = [part for part in partitions if part.n_usable]
        else:
            partitions = [part for part in partitions if part.n_row]
        diameter = np.array(layout.meta["dish_diameter"], np.float64)
        partitions, averaged = average(partitions, averaging, diameter)
        return Observation(
            partitions=tuple(partitions),
            antenna_names=tuple(layout.meta["antenna_names"]),
            antenna_positions=np.array(layout.meta["antenna_positions"], np.float64).reshape(-1, 3),
            telescope=layout.meta["telescope"],
            source=layout.source,
            column=str(self.reading.column),
            weight_origin=_weight_origin(partitions),
            counts=counts,
            time_scale=layout.meta["time_scale"],
            utc_offset=layout.meta["utc_offset"],
            dish_diameter=diameter,
            convention=self.reading.convention,
            averaged=averaged,
            notes=tuple(notes),
        )

    def _notes(self, parts: list[Part]) -> Iterator[str]:
        for field_id in sorted({part.field_id for part in parts}):
            about, name = self.layout.meta["fields"][field_id], self.layout.field_names[field_id]
            if about["problem"]:
                raise MeasurementSetError(f"{self.layout.source}: field {name}: {about['problem']}")
            if about["note"]:
                yield f"field {name}: {about['note']}"
        if "FLAG" not in self.columns:
            yield "there is no FLAG column: nothing but FLAG_ROW is taken as flagged"

    def _partition(self, part: Part, selection: Selection) -> Partition:
        """Read one partition; autocorrelations are counted here and not read."""
        index = self.layout.index
        if not selection.autocorrelations:
            same = index["ANTENNA1"][part.rows] == index["ANTENNA2"][part.rows]
            dropped = int(np.count_nonzero(same)) * len(part.chan) * len(part.corr)
            self.counts["autocorrelation"] += dropped
            self.counts["total"] += dropped
            part = replace(part, rows=part.rows[~same], inside=part.inside[~same])
        vis, weight, origin = self._settled(part)
        rows = part.rows
        uvw = np.nan_to_num(index["UVW"][rows], nan=0.0, posinf=0.0, neginf=0.0)
        time = index["TIME"][rows]
        times, time_index = np.unique(time, return_inverse=True)
        spw = self.layout.meta["spws"][part.spw_id]
        place = self.layout.meta["fields"][part.field_id]
        corr_type = self.layout.corr_type(part.data_desc_id)
        return Partition(
            field=self.layout.field_names[part.field_id],
            spw=self.layout.spw_names[part.spw_id],
            field_id=part.field_id,
            spw_id=part.spw_id,
            data_desc_id=part.data_desc_id,
            phase_centre=(place["direction"][0], place["direction"][1]),
            uvw=-uvw if self.reading.convention == "fourier" else uvw,
            antenna1=index["ANTENNA1"][rows],
            antenna2=index["ANTENNA2"][rows],
            time=time,
            time_index=time_index.astype(np.int32),
            chan_freq=np.array(spw["chan_freq"])[part.chan],
            chan_width=np.abs(np.array(spw["chan_width"])[part.chan]),
            freq_frame=spw["frame"],
            corr_type=tuple(corr_type[i] for i in part.corr),
            vis=vis,
            weight=weight,
            row_id=rows.astype(np.int64),
            n_antenna=len(self.layout.meta["antenna_names"]),
            interval=_interval(index.get("INTERVAL", np.zeros(self.layout.n_row))[rows], times),
            chan_id=part.chan,
            corr_id=part.corr,
            weight_origin=origin,
            frame=place["frame"],
        )

    def _settled(self, part: Part) -> tuple[NDArray[np.complexfloating], NDArray[np.floating], str]:
        """Visibilities and weights, 0 for what does not count, and the column of the weights."""
        index = self.layout.index
        vis, missing = self._column(str(self.reading.column), part)
        weight, without, origin = self._weights(part, vis.dtype)
        missing |= without
        flag: NDArray[np.bool_] | None = None
        if "FLAG" in self.columns:
            flag, without = self._column("FLAG", part)
            missing |= without
        missing |= ~np.isfinite(index["UVW"][part.rows]).all(axis=1)
        excluded = [("not selected", ~part.inside[:, :, None]), ("no data", missing[:, None, None])]
        excluded.append(("FLAG_ROW", index["FLAG_ROW"][part.rows][:, None, None]))
        if flag is not None:
            excluded.append(("FLAG", flag))
        apply_flags(vis, weight, excluded, self.counts)
        return vis, weight, origin

    def _weights(
        self, part: Part, dtype: np.dtype[Any]
    ) -> tuple[NDArray[np.floating], NDArray[np.bool_], str]:
        """Weights like the visibilities, the rows without, and the column; see `read_ms` for the rule."""
        wanted = self.reading.weight_column
        names = WEIGHT_COLUMNS if wanted is None else (wanted,)
        if wanted is not None and (wanted not in WEIGHT_COLUMNS or wanted not in self.columns):
            there = [name for name in WEIGHT_COLUMNS if name in self.columns]
            raise MeasurementSetError(
                f"{self.layout.source}: no weight column {wanted}; there are {', '.join(there)}"
            )
        real = np.float32 if dtype == np.complex64 else np.float64
        n_row, n_chan = len(part.rows), len(part.chan)
        for name in names:
            if name not in self.columns:
                continue
            given, undefined = self._column(name, part)
            if undefined.all() and n_row:
                continue
            if given.ndim == 2:
                given = given[:, None, :]
            if name.startswith("SIGMA"):
                # A negative sigma is kept as a negative weight, so that it is counted as one.
                with np.errstate(divide="ignore", over="ignore"):
                    given = (1.0 / (np.abs(given.astype(np.float64)) * given)).astype(real)
            if given.shape[1] != n_chan:
                given = np.repeat(given, n_chan, axis=1)
            return given.astype(real, copy=False), undefined, name
        raise MeasurementSetError(
            f"{self.layout.source}: no weights: none of {', '.join(names)} has a value in the rows selected"
        )

    def _column(self, name: str, part: Part) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """One column of a partition, and the rows that have no value in it."""
        shape = part.shape[1:] if name in ("WEIGHT", "SIGMA") else part.shape
        chan = None if len(part.chan) == part.shape[0] else part.chan.tolist()
        corr = None if len(part.corr) == part.shape[1] else part.corr.tolist()
        self.child.send(
            {"operation": "read", "column": name, "shape": shape, "chan": chan, "corr": corr}, part.rows
        )
        values: NDArray[Any] | None = None
        undefined = np.zeros(len(part.rows), bool)
        got = 0
        while True:
            head, chunk = self.child.receive()
            if chunk is None:
                break
            if values is None:
                values = np.empty((len(part.rows), *chunk.shape[1:]), chunk.dtype)
            start = head["start"]
            values[start : start + len(chunk)] = chunk
            undefined[np.array(head["undefined"], int) + start] = True
            got += len(chunk)
        if got != len(part.rows):
            raise MeasurementSetError(f"{self.layout.source}: {name} gave {got} rows of {len(part.rows)}")
        if values is None:
            whole = (len(part.chan), len(part.corr))
            values = np.empty((0, *whole), np.complex64 if name.endswith("DATA") else np.float32)
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
