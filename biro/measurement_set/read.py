"""Read a Measurement Set as an observation; casacore runs in a child process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from biro.data_set.assembly import Request, Treatment, Visibilities, assemble
from biro.data_set.index import IndexColumns, PartitionRows, RowIndex
from biro.data_set.metadata import Metadata
from biro.data_set.options import SetOptions
from biro.errors import InputError, MeasurementSetError
from biro.measurement_set.metadata import Columns
from biro.measurement_set.process import MeasurementSetProcess
from biro.measurement_set.storage import existing_set
from biro.observation.averaging import Averaging
from biro.observation.join import distinct_paths, join
from biro.observation.observation import Observation
from biro.observation.partition import Convention
from biro.observation.selection import Channels, Items, Length, Moment, Selection
from biro.observation.weighting import Weighting, Weights
from biro.progress import bar

WEIGHT_COLUMNS = ("WEIGHT_SPECTRUM", "WEIGHT", "SIGMA_SPECTRUM", "SIGMA")
"""In the order in which they are looked for."""
_Cells = tuple[NDArray[np.generic], NDArray[np.bool_]]


@dataclass(frozen=True)
class TableOptions:
    """How to read the tables of a Measurement Set.

    Attributes
    ----------
    column : str or None
        Default: CORRECTED_DATA where there is one, else DATA.
    weight_column : str or None
        Default: the first that has values, in the order WEIGHT_SPECTRUM, WEIGHT, SIGMA_SPECTRUM, SIGMA.
    time_limit : float, s
    """

    column: str | None = None
    weight_column: str | None = None
    time_limit: float = 30.0


def read_ms(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    column: str | None = None,
    weight_column: str | None = None,
    fields: Items | None = None,
    spws: Items | None = None,
    scans: int | Iterable[int] | None = None,
    antennas: Items | None = None,
    time_range: tuple[Moment | None, Moment | None] | None = None,
    uv_range: str | tuple[Length | None, Length | None] | None = None,
    channels: Channels | None = None,
    correlations: str | Iterable[str] | None = None,
    stokes: str | None = None,
    autocorrelations: bool = False,
    weights: Weights = "stated",
    taper: Length | None = None,
    average_time: str | float | None = None,
    average_channels: int = 1,
    smearing_radius: str | float | None = None,
    convention: Convention = "casa",
    selection: Selection | None = None,
    allow_unusable: bool = False,
    time_limit: float = 30.0,
) -> Observation:
    """Read calibrated visibilities of a Measurement Set, or of several as one observation.

    Every field and data description is a partition of its own; rows keep the order of the set. Phase
    centres become ICRS (J2000 is taken as ICRS). A visibility that does not count gets weight 0 and is
    counted under the first cause that holds, in the order of `biro.observation.flags.CAUSES`.

    Weights (physics: section 7) come from WEIGHT_SPECTRUM, else WEIGHT, else 1/SIGMA_SPECTRUM^2, else
    1/SIGMA^2: for each partition the first of these columns with a value in any of its rows. Rows without
    a value in that column are not used ("no data"); no other column is mixed in.

    Parameters
    ----------
    path : path of the Measurement Set, or several
        Several are read with the same arguments and joined, see `biro.join`.
    column : str, optional
        Default: CORRECTED_DATA where there is one, else DATA.
    weight_column : str, optional
        WEIGHT_SPECTRUM, WEIGHT, SIGMA_SPECTRUM or SIGMA; default: the first with values, in this order.
    fields, spws : str, int, or several of them, optional
        Names or ids of fields and of spectral windows; a name that several have selects them all.
        Default: all, here and below.
    scans : int or ints, optional
    antennas : str, int, or several of them, optional
        Rows with both antennas among these. Names that begin with "!" are left out instead.
    time_range : (start, stop), optional
        Text as "2017-04-10T00:30" (UTC) or float (MJD in seconds, as the TIME column has it); None for
        an open end.
    uv_range : str "low..high" or (low, high), optional
        Projected baseline length: "100 m", "5 km", a number (metres), or in wavelengths "2 klambda".
        In wavelengths each channel is judged by itself. None or nothing beside ".." for open ends.
    channels : int, slice, str "start:stop:step" or ints, optional
        Of each spectral window, from 0, stop not included.
    correlations : str or several, optional
        "XX", "RR", ... or "XX,YY"; those that a data description lacks are passed over.
    stokes : str, optional
        "I", "IQUV", "QU", ... or "pseudoI": Stokes parameters to form of these correlations, before any
        averaging (`biro.observation.stokes.form_stokes`).
    autocorrelations : bool
        Keep rows whose two antennas are the same.
    weights : "stated", "scatter" or "equal"
        "scatter" scales the weights of each baseline and correlation so that they agree with the differences
        between neighbouring times; "equal" makes all of them 1/Jy^2.
    taper : str with a unit ("50 klambda", "2 km"), or float (m), optional
        uv distance at which the weights fall to a half: they are multiplied by 2^-(distance / taper)^2. Long
        baselines then count as noisier than they are.
    average_time : str with a unit of time ("30 s", "1 min"), or float (s), optional
        Longest time averaged together. Default: no averaging.
    average_channels : int
        Adjacent channels averaged together.
    smearing_radius : str with a unit of angle ("10 arcmin"), or float (rad), optional
        Distance from the phase centre for which the loss by averaging is stated; default: half the field
        of view, or ten times the resolution where dish diameters are not known.
    convention : "casa" or "fourier"
        Sign of the phase (physics: section 2); "fourier" negates uvw.
    selection : Selection, optional
        In place of fields, spws, scans, antennas, time_range, uv_range, channels, correlations,
        stokes and autocorrelations.
    allow_unusable : bool
        Return the rows even when no visibility among them is usable, and correlations as they are stored
        (to predict into them).
    time_limit : float, s
        How long to wait for a lock, or for a storage that does not answer.

    Returns
    -------
    Observation

    Raises
    ------
    MeasurementSetError
        No such path, not a Measurement Set, broken, locked beyond `time_limit`, or a column that is not
        there.
    DataError
        A selection that matches nothing, unknown correlations, or no usable visibility. A
        MeasurementSetError is one, too.
    InputError
        An argument that is not understood, or a set that is given twice.

    Examples
    --------
    >>> read_ms("obs.ms", column="DATA", fields="3C273", uv_range="1 klambda..", average_time="30 s")
    >>> read_ms(["day1.ms", "day2.ms"], correlations="XX,YY")
    """
    own = Selection(
        fields=fields,
        spws=spws,
        scans=scans,
        antennas=antennas,
        time_range=time_range,
        uv_range=uv_range,
        channels=channels,
        correlations=correlations,
        stokes=stokes,
        autocorrelations=autocorrelations,
    )
    if selection is not None and own.stated:
        raise InputError(f"give either selection= or {', '.join(own.stated)}, not both")
    averaging = Averaging(average_time, average_channels, smearing_radius)
    treatment = Treatment(convention, allow_unusable)
    request = Request(selection or own, Weighting(weights, taper), averaging, treatment)
    table = TableOptions(column, weight_column, time_limit)
    return join([_read_set(each, request, table, (column,))[0] for each in distinct_paths(path, "read_ms")])


def read_columns(
    path: str | os.PathLike[str], columns: Sequence[str], **options: Unpack[SetOptions]
) -> tuple[Observation, ...]:
    """Read several columns of a Measurement Set alike, as data and the model that lies beside them.

    Each as `biro.read_ms` reads it, but what they share is read once: metadata, rows, weights and flags.
    Parallel hands that are copies of one another are counted once where those of the first column are.

    Parameters
    ----------
    path : path of the Measurement Set
    columns : sequence of str
        Names of the columns.
    **options
        As those of `biro.read_ms`, without column.

    Returns
    -------
    tuple of Observation
        One for each column.

    Raises
    ------
    MeasurementSetError, DataError, InputError
        As `biro.read_ms` raises them; or no column is named.

    Examples
    --------
    >>> data, model = read_columns("obs.ms", ["DATA", "MODEL_DATA"], fields="3C273")
    """
    if isinstance(columns, str) or not columns:
        raise InputError(f"columns must be a list of names, got {columns!r}")
    own: dict[str, Any] = {**options}
    mine = [item.name for item in fields_of(TableOptions) if item.name != "column"]
    table = TableOptions(**{name: own.pop(name) for name in mine if name in own})
    request = Request.of("read_columns", cast(SetOptions, own), also=["scans"])
    return _read_set(path, request, table, columns)


def _read_set(
    path: str | os.PathLike[str], request: Request, table: TableOptions, wanted: Sequence[str | None]
) -> tuple[Observation, ...]:
    """Columns of one Measurement Set."""
    with MeasurementSetProcess(existing_set(path, table.time_limit), table.time_limit) as child:
        columns = cast(Columns, child.call("open", path=str(child.path)))
        names = [_visibility_column(child.path, columns, name) for name in wanted]
        index = RowIndex(cast(Metadata, child.call("metadata")), _index_columns(child), str(child.path))
        kept: dict[tuple[str, int, int], _Cells] | None = {} if len(names) > 1 else None
        found: list[Observation] = []
        for name in names:
            data = _MeasurementSet(child, index, columns["columns"], name, table.weight_column, kept)
            # The hands of a model without polarisation are alike: those of the first column decide.
            merge = not found or any(part.corr_type == ("I",) for part in found[0].partitions)
            found.append(assemble(data, request, merge))
        return tuple(found)


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


class _MeasurementSet:
    """Reads the partitions of one open set; `kept` is what several columns have in common, read once."""

    def __init__(
        self,
        child: MeasurementSetProcess,
        index: RowIndex,
        columns: list[str],
        column: str,
        weight_column: str | None,
        kept: dict[tuple[str, int, int], _Cells] | None,
    ) -> None:
        self.child = child
        self.index = index
        self.columns = columns
        self.column = column
        self.weight_column = weight_column
        self.kept = kept

    def notes(self) -> Iterator[str]:
        """What is odd about flags."""
        if "FLAG" not in self.columns:
            yield "there is no FLAG column: nothing but FLAG_ROW is taken as flagged"

    def visibilities(self, part: PartitionRows) -> Visibilities:
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
        return Visibilities(vis, weight, flag, missing, origin)

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

    def _weight_columns(self) -> tuple[str, ...]:
        """Columns in which weights are looked for: the one that was asked for, or all."""
        wanted = self.weight_column
        if wanted is None:
            return WEIGHT_COLUMNS
        if wanted not in WEIGHT_COLUMNS or wanted not in self.columns:
            present = [name for name in WEIGHT_COLUMNS if name in self.columns]
            raise MeasurementSetError(
                f"{self.index.source}: no weight column {wanted}; there are {', '.join(present)}"
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
