"""Read a Measurement Set as an observation; casacore runs in a child process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields as fields_of
from typing import Any, Unpack, cast

from biro.display.arguments import PATH, PATHS, takes
from biro.display.formatting import given_text
from biro.display.progress import showing
from biro.errors import InputError
from biro.flagging.strategy import StrategyLike
from biro.io.data_set.assembly import assemble
from biro.io.data_set.options import ColumnOptions, SetKeywords, SetOptions
from biro.io.data_set.request import ReadRequest
from biro.io.measurement_set.opened import OpenedColumn, TableOptions, opened_columns
from biro.observation.averaging import Averaging
from biro.observation.join import distinct_paths, join
from biro.observation.observation import Observation
from biro.observation.selection import Selection
from biro.observation.weighting import Weighting
from rime_kernels.choices import Convention


@takes(path=PATHS)
def read_ms(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    selection: Selection | None = None,
    weighting: Weighting | None = None,
    averaging: Averaging | None = None,
    column: str | None = None,
    weight_column: str | None = None,
    convention: Convention = "casa",
    allow_unusable: bool = False,
    flagger: StrategyLike | None = None,
    time_limit: float = 30.0,
    progress: bool = True,
    **keywords: Unpack[SetKeywords],
) -> Observation:
    """Read calibrated visibilities of a Measurement Set, or of several as one observation.

    Every field and data description is a partition of its own; rows keep the order of the set. Phase
    centres become ICRS (J2000 is taken as ICRS). A visibility that does not count gets weight 0 and is
    counted under the first cause that holds, in the order of `biro.observation.flags.CAUSES`.

    Visibilities that are exactly 0, rows of two different antennas whose UVW is 0, and rows that repeat
    another one are not data: they are left out under causes of their own (not with `allow_unusable`). Where
    nothing in the column differs from 0, as in a simulation of an empty sky, its zeros are data.

    Weights (physics: section 7) come from WEIGHT_SPECTRUM, else WEIGHT, else 1/SIGMA_SPECTRUM^2, else
    1/SIGMA^2: for each partition the first of these columns with a value in all rows that have data, and a
    weight above 0; a note says where that is not the first. Where there is none, rows without a value are
    not used ("no data"); no other column is mixed in. CORRECTED_DATA that `biro solve` wrote has
    weights of its own, CORRECTED_WEIGHT_SPECTRUM, which come first.

    Parameters
    ----------
    path : path of the Measurement Set, or several
        Several are read with the same arguments and joined, see `biro.join`.
    selection : Selection, optional
        Which visibilities are read. Default: all but autocorrelations.
    weighting : Weighting, optional
        What is done with the weights. Default: they stay as stated.
    averaging : Averaging, optional
        What is averaged. Default: nothing.
    column : str, optional
        Default: CORRECTED_DATA where there is one with a visibility other than 0, else DATA.
    weight_column : str, optional
        WEIGHT_SPECTRUM, WEIGHT, SIGMA_SPECTRUM or SIGMA; default: the first with values, in this order.
    convention : "casa" or "fourier"
        Sign of the phase (physics: section 2); "fourier" negates uvw.
    allow_unusable : bool
        Return the rows even when no visibility among them is usable, and correlations as they are stored
        (to predict into them).
    flagger : str, path or Strategy, optional
        Look for interference ("meerkat", "wsrt", "long-baseline", or a TOML file, see `biro.read_strategy`)
        before anything is averaged or formed. What is found is left out, and counted as "interference"; the
        set is not changed. Default: nothing is looked for.
    time_limit : float, s
        How long to wait for a lock, or for a storage that does not answer.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    **keywords
        The fields of `Selection`, `Weighting` and `Averaging` by name, in place of these: fields, spws,
        scans, antennas, time_range, uv_range, channels, correlations, stokes, autocorrelations; weights,
        taper; average_time, average_channels, smearing_radius.

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
    >>> read_ms(["day1.ms", "day2.ms"], averaging=Averaging("30 s"), correlations="XX,YY")
    """
    options: dict[str, Any] = {"selection": selection, "weighting": weighting, "averaging": averaging}
    options |= {"convention": convention, "allow_unusable": allow_unusable, "flagger": flagger, **keywords}
    of_sets = ("column", "weight_column", "time_limit", "progress")
    request = ReadRequest.of("read_ms", cast(SetOptions, options), also=["scans", *of_sets])
    table = TableOptions(column, weight_column, time_limit)
    with showing(progress):
        return join(
            [_read_set(each, request, table, (column,))[0] for each in distinct_paths(path, "read_ms")]
        )


@takes(path=PATH)
def read_columns(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    *,
    progress: bool = True,
    **options: Unpack[ColumnOptions],
) -> tuple[Observation, ...]:
    """Read several columns of a Measurement Set alike, as data and the model that lies beside them.

    Each as `biro.read_ms` reads it, but what they share is read once: metadata, rows, weights and flags.
    Parallel hands that are copies of one another are counted once where those of the first column are.

    Parameters
    ----------
    path : path of the Measurement Set
    columns : sequence of str
        Names of the columns.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
    **options
        As those of `biro.read_ms`, without column, and flagger only with one column. With
        `keep_values=True` flagged visibilities keep their values, with a weight of 0.

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
    if not isinstance(columns, list | tuple) or not columns or not all(isinstance(c, str) for c in columns):
        shown = repr(columns) if isinstance(columns, str | list | tuple) else given_text(columns)
        raise InputError(f"columns must be a list of names, got {shown}")
    if len(columns) > 1 and options.get("flagger") is not None:
        raise InputError("flagger needs one column, because it would flag other visibilities in each")
    request, table = _sorted_options("read_columns", options, but="column")
    with showing(progress):
        return _read_set(path, request, table, columns)


@contextmanager
def open_set(path: str | os.PathLike[str], options: SetOptions) -> Iterator[tuple[OpenedColumn, ReadRequest]]:
    """A set that is open, and its options sorted; see `biro.io.data_set.open_set.OpenSet`."""
    request, table = _sorted_options("read", options)
    with opened_columns(path, table, (table.column,)) as (data,):
        yield data, request


def _sorted_options(
    caller: str, options: ColumnOptions | SetOptions, but: str = ""
) -> tuple[ReadRequest, TableOptions]:
    """What is wanted of a set, and how to read its tables; `but` names an option that is not taken."""
    own: dict[str, Any] = {**options}
    of_table = [item.name for item in fields_of(TableOptions) if item.name in own and item.name != but]
    table = TableOptions(**{name: own.pop(name) for name in of_table})
    return ReadRequest.of(caller, cast(SetOptions, own), also=["scans", "keep_values"]), table


def _read_set(
    path: str | os.PathLike[str], request: ReadRequest, table: TableOptions, wanted: Sequence[str | None]
) -> tuple[Observation, ...]:
    """Columns of one Measurement Set."""
    with opened_columns(path, table, wanted) as columns:
        found: list[Observation] = []
        for data in columns:
            # The hands of a model without polarisation are alike: those of the first column decide.
            merge = not found or any(part.corr_type == ("I",) for part in found[0].partitions)
            found.append(assemble(data, request, merge))
        return tuple(found)
