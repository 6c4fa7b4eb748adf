"""Flag interference in a Measurement Set, keep the flags as they were, and bring them back."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from biro.display.arguments import PATH, takes
from biro.display.formatting import check_names
from biro.errors import MeasurementSetError
from biro.files.memory import byte_text, check_memory, free_memory
from biro.flagging.find import BYTES, FlaggedData, causes_text, find_interference
from biro.flagging.report import SHOWN, FlagCounts, FlagReport
from biro.flagging.strategy import StrategyLike, read_strategy
from biro.io.data_set.assembly import Described, ObservationAssembly, assemble
from biro.io.data_set.exclusion import samples_of
from biro.io.data_set.index import PartitionRows
from biro.io.data_set.intervals import of_all_baselines
from biro.io.data_set.request import ReadingOptions, ReadRequest
from biro.io.data_set.stored_data import StoredVisibilities
from biro.io.measurement_set.backup import restore_backup
from biro.io.measurement_set.column import check_writable
from biro.io.measurement_set.opened import OpenedColumn, TableOptions, opened_columns
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.storage import ask_storage, existing_set, full_disk
from biro.observation.averaging import Averaging
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.selection import Channels, Items, Length, Moment, Selection
from biro.observation.weighting import Weighting
from rime_kernels import device
from rime_kernels.choices import Backend
from rime_kernels.engine.device_threads import Devices, threads_of

log = logging.getLogger(__name__)

MODEL_BYTES = 16
"""Of memory for the model of each visibility."""
MEMORY_SHARE = 0.8
"""Of the memory that is free, what visibilities that are looked at together may take."""
CHUNK_FLAGS = 1 << 24
"""Flags that are sent to the child at a time."""
Vis = NDArray[np.complexfloating]
ModelsOf = Callable[[Observation], Iterable[Vis]]
"""Model visibilities of the partitions of an observation."""
Masks = list[tuple[PartitionRows, NDArray[np.uint8]]]
"""Rows of partitions, and their flags as bits."""


class FlagOptions(TypedDict, total=False):
    """Which visibilities `biro.flag` looks at; `biro.read_ms` says what each means."""

    column: str | None
    weight_column: str | None
    fields: Items | None
    spws: Items | None
    scans: int | list[int] | None
    antennas: Items | None
    time_range: tuple[Moment | None, Moment | None] | None
    uv_range: str | tuple[Length | None, Length | None] | None
    channels: Channels | None
    correlations: str | list[str] | None
    time_limit: float


def flag_set(
    path: str | os.PathLike[str],
    strategy: StrategyLike = "meerkat",
    *,
    dry_run: bool = False,
    models: ModelsOf | None = None,
    backend: Backend = "auto",
    devices: Devices | None = None,
    **options: Unpack[FlagOptions],
) -> FlagReport:
    """Find interference in a Measurement Set, and write it into FLAG.

    Parameters
    ----------
    path, strategy, dry_run, backend, devices, **options
        As of `biro.flag`.
    models : function, optional
        Of an observation of what is looked at, whose visibilities do not count, to the model visibilities of
        its partitions, one after the other: what they leave of the data is looked at.

    Returns
    -------
    FlagReport

    Raises
    ------
    MeasurementSetError, DataError, InputError
        As `biro.flag` raises them.
    """
    check_names(options, list(FlagOptions.__annotations__), "flag")
    wanted, chosen = read_strategy(strategy), device.resolve(backend)[0]
    workers = () if devices is None else threads_of(chosen, devices)
    own = dict(options)
    limit = cast(float, own.pop("time_limit", 30.0))
    table = TableOptions(
        cast("str | None", own.pop("column", None)), cast("str | None", own.pop("weight_column", None)), limit
    )
    selection = Selection(**own, autocorrelations=True)  # type: ignore[arg-type]
    folder = existing_set(path, limit).resolve()  # one folder of versions, whatever path names the set
    if not dry_run:
        ask_storage(folder, limit, "looking whether it can be written", lambda: check_writable(folder))
    tally, masks = FlagCounts(), cast(Masks, [])
    with opened_columns(path, table, (table.column,)) as (data,):
        n_row, names = data.index.n_row, data.index.antenna_names
        for part, samples, goes_on in _looked_at(data, selection, models):
            found = find_interference(samples, wanted, chosen, workers)
            label = f"{data.index.field_names[part.field_id]}/spw{part.spw_id}"
            tally.add(label, samples, found, len(names), chosen, goes_on=goes_on)
            masks.append((part, np.packbits(found.flag)))
            del samples, found  # before the next ones are read
    version = ""
    if not dry_run and _any(masks):
        of = " of residuals" if models is not None else ""
        n_found = sum(tally.counts[cause] for cause in SHOWN)
        reason = f"{n_found} visibilities of {tally.counts['total']}: {causes_text(tally.counts)}{of}"
        command = f"biro flag {shlex.quote(str(folder))} --strategy {shlex.quote(wanted.name)}"
        version = write_masks(folder, masks, command, reason, n_row, limit)
    return tally.report(str(path), wanted.name, version, names)


@takes(path=PATH)
def undo_flags(path: str | os.PathLike[str], *, time_limit: float = 30.0) -> str:
    """Bring the flags back that were there before the last `biro.flag`, and remove that version.

    Parameters
    ----------
    path : path of the Measurement Set
    time_limit : float, s
        How long to wait for a lock, or for a storage that does not answer.

    Returns
    -------
    str
        Name of the version.

    Raises
    ------
    MeasurementSetError
        There is no version of biro, it is damaged or has other rows, or the set cannot be written.

    Notes
    -----
    An undo that was interrupted is finished by the next one, or by the next `biro.flag`.
    """
    folder = existing_set(path, time_limit).resolve()
    ask_storage(folder, time_limit, "looking whether it can be written", lambda: check_writable(folder))
    command = f"biro flag {shlex.quote(str(path))} --undo"
    with (
        _saying(folder, "Repeat the command to finish") as begun,
        MeasurementSetProcess(folder, time_limit) as child,
    ):
        prepared = child.call("prepare_flags", path=str(folder), undo=True)
        begun(child)
        child.call("undo_flags", command=command)
    return str(prepared["version"])


@contextmanager
def _saying(folder: Path, remedy: str) -> Iterator[Callable[[MeasurementSetProcess], None]]:
    """Say in errors and interruptions how to go on from what they leave, once writing has begun.

    Yields a function, which is to be called with the child when writing begins.
    """
    begun: list[bool] = []

    def begin(child: MeasurementSetProcess) -> None:
        child.writing = True
        begun.append(True)

    try:
        yield begin
    except (MeasurementSetError, KeyboardInterrupt) as error:
        if not begun and isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt("no flags were written") from None
        if not begun:
            raise
        with contextlib.suppress(OSError):
            restore_backup(folder)
        left = f"{full_disk(folder)}FLAG may be incomplete, but the previous flags are saved. {remedy}"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(left) from None
        raise MeasurementSetError(f"{error}; {left}") from None


def _looked_at(
    data: OpenedColumn, selection: Selection, models: ModelsOf | None
) -> Iterator[tuple[PartitionRows, FlaggedData, bool]]:
    """What is looked at together, less the visibilities of models where there are some.

    Without these, partitions that memory has no room for come in groups of their baselines; true stands for
    groups that are not the first of their partition.
    """
    if models is None:
        for part in data.index.select(selection):
            whole = of_all_baselines(data.index, part)
            for i, group in enumerate(_groups(data, part)):
                # In no variable, which would keep it while the next one is read.
                yield group, _samples(data, group, data.visibilities(group))._replace(**whole), i > 0
        return
    parts, samples = [], []

    def keep(assembly: ObservationAssembly, described: Described) -> list[Partition]:
        """Partitions with their weights: models need no visibilities, which are kept for flagging."""
        needed = (BYTES + MODEL_BYTES) * sum(header.size for _, header in described)
        assembly.check_memory(needed, remedy="select a part of it at a time, or flag it without a model")
        filled = []
        for part, header in described:
            read = data.visibilities(part)
            parts.append(part)
            samples.append(_samples(data, part, read._replace(vis=read.vis.copy())))
            assembly.excluded.apply(part, read)
            none = np.broadcast_to(read.vis.dtype.type(0), read.vis.shape)
            filled.append(
                Partition.of(header, vis=none, weight=read.weight, weight_origin=read.weight_origin)
            )
        return filled

    request = ReadRequest(selection, Weighting(), Averaging(), ReadingOptions(allow_unusable=True))
    observation = assemble(data, request, fill=keep)
    for part, each, model in zip(parts, samples, models(observation), strict=True):
        yield part, each._replace(model=model), False


def _groups(data: OpenedColumn, part: PartitionRows) -> list[PartitionRows]:
    """A partition, or groups of its baselines, so that each fits into memory.

    Raises
    ------
    InputError
        There is no room for a single baseline.
    """
    columns, per_row = data.index.columns, BYTES * len(part.chan) * len(part.corr)
    needed, free = per_row * len(part.rows), int(MEMORY_SHARE * free_memory())
    if needed <= free:
        return [part]
    pairs = np.sort(np.stack([columns.antenna1[part.rows], columns.antenna2[part.rows]], axis=1), axis=1)
    _, baseline, n_row = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    check_memory(
        per_row * int(n_row.max()) / MEMORY_SHARE,
        f"{data.index.source}: flagging the longest of its baselines",
        "select fewer channels, correlations or scans at a time",
    )
    group_of, used = np.zeros(len(n_row), np.int64), 0
    for i, n in enumerate(n_row.tolist()):
        used += per_row * n
        group_of[i] = group_of[i - 1] if i else 0
        if used > free:
            group_of[i], used = group_of[i] + 1, per_row * n
    n_group = int(group_of[-1]) + 1
    log.warning(
        "%s: flagging %s/spw%d needs %s of memory, of which %s are free. biro reads the data in %d groups of"
        " baselines: the flags are the same, but percentiles of amplitudes are left out",
        data.index.source, data.index.field_names[part.field_id], part.spw_id, byte_text(needed),
        byte_text(free), n_group,
    )  # fmt: skip
    own = group_of[baseline.ravel()]
    return [replace(part, rows=part.rows[own == i], inside=part.inside[own == i]) for i in range(n_group)]


def _samples(data: OpenedColumn, part: PartitionRows, read: StoredVisibilities) -> FlaggedData:
    """Visibilities as stored; those that are not finite count as usable, so that they are flagged."""
    vis, weight, flag, missing, _ = read
    left_out = missing | data.index.columns.flag_row[part.rows]
    with np.errstate(invalid="ignore"):
        usable = (weight > 0) & np.isfinite(weight) & part.inside[:, :, None] & ~left_out[:, None, None]
    if flag is not None:
        usable &= ~flag
    return samples_of(data.index, part, vis, usable)


def _any(masks: Masks) -> bool:
    return any(bits.any() for _, bits in masks)


def write_masks(folder: Path, masks: Masks, command: str, reason: str, n_row: int, limit: float) -> str:
    """Write the flags; the name of the version that keeps those before.

    Parameters
    ----------
    folder : Path
        The Measurement Set, without links.
    masks : list of (PartitionRows, uint8 array)
    command, reason : str
        For FLAG_CMD and HISTORY.
    n_row : int
        Rows of the set when it was read.
    limit : float, s
        How long to wait for a lock.
    """
    path = str(folder)
    remedy = f"Restore them with biro flag {shlex.quote(path)} --undo"
    with _saying(folder, remedy) as begun, MeasurementSetProcess(folder, limit) as child:
        prepared = child.call("prepare_flags", path=path, undo=False)
        if prepared["n_row"] != n_row:
            raise MeasurementSetError(f"{path}: rows were added or removed while it was read; try again")
        if prepared["is_half"]:
            log.warning(
                "%s: a biro flag was interrupted, and the flags before it are no longer saved. biro uses"
                " FLAG as it is", path,
            )  # fmt: skip
        begun(child)
        child.call("begin_flags", comment=f"before {command}")
        for part, bits in masks:
            _send(child, part, bits)
        child.call("finish_flags", command=command, reason=reason)
    return str(prepared["version"])


def _send(child: MeasurementSetProcess, part: PartitionRows, bits: NDArray[np.uint8]) -> None:
    """Send the rows of a partition in which something was found."""
    shape = len(part.rows), len(part.chan), len(part.corr)
    found = np.unpackbits(bits, count=int(np.prod(shape))).reshape(shape).astype(bool)
    rows = np.flatnonzero(found.any(axis=(1, 2)))
    size = max(1, CHUNK_FLAGS // (shape[1] * shape[2]))
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        options = {"chan": part.chan.tolist(), "corr": part.corr.tolist()}
        child.send({"operation": "select_flags", **options}, part.rows[chunk].astype(np.int64))
        child.call("write_flags", found[chunk])
