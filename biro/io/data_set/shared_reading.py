"""A data set that is read block by block: by several processes together, or into files.

Each process reads its own blocks of rows (`biro.distributed.placement`).
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.distributed.filling import Filled, filled
from biro.distributed.placement import Placement, ProcessGroup
from biro.errors import DataError, InputError
from biro.files.memory import byte_text
from biro.io.data_set.assembly import Described, ObservationAssembly, assemble
from biro.io.data_set.cache import CachedBlock, ReadCache, open_cache
from biro.io.data_set.index import PartitionRows
from biro.io.data_set.open_set import OpenSet, Place
from biro.io.data_set.options import SetOptions
from biro.io.data_set.request import ReadRequest
from biro.io.data_set.shared_flagging import find_together, unpacked
from biro.observation.averaging import blocks_to_average, n_averaged_row
from biro.observation.flags import empty_counts
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.partition_header import BYTES_AS_READ, PartitionHeader
from biro.observation.stokes import PSEUDO_I, parse_stokes

log = logging.getLogger(__name__)

Flags = dict[tuple[int, int], NDArray[np.uint8]]
"""Where interference is, by the numbers of partition and block; see `find_together`."""
BlockRows = Sequence[Sequence[NDArray[np.int64]]]
"""Rows of each block of each partition."""


class _WasRead(NamedTuple):
    """What a process has read: visibilities by cause of exclusion, and the columns that weights came from."""

    counts: dict[str, int]
    origins: list[set[str]]  # of each partition


def folder_for(cache: Place, options: SetOptions) -> str:
    """The folder of data that are read with these options, which exists and can be written.

    Raises
    ------
    InputError
        There is none, or an option needs all data in memory.
    """
    if options.get("flagger") is not None:
        raise InputError(
            "--cache (cache=) and --flagger (flagger=) cannot be combined, because the flagger needs all "
            "data "
            "at once; flag the set first with `biro flag`"
        )
    folder = os.path.abspath(cache)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{cache}: --cache (cache=) needs an existing, writable directory")
    return folder


def read_together(
    open_set: OpenSet, path: Place, options: SetOptions, processes: ProcessGroup, folder: str | None = None
) -> Observation:
    """An observation whose visibilities and weights lie with the processes that have read them.

    This process has what else is known of all rows.

    Parameters
    ----------
    open_set : OpenSet
    path : path
    options : SetOptions
        As those of `biro.read`.
    processes : ProcessGroup
    folder : str, optional
        Of caches (`biro.io.data_set.cache`), in which each process keeps what it has read, and what is made
        of it; by default that is in memory.

    Returns
    -------
    Observation

    Raises
    ------
    DataError
        As `biro.read`; or blocks that have their weights in different columns.
    """
    with open_set(path, options) as (data, request):
        cache = None if folder is None else open_cache(folder, path, options)
        place = None if cache is None else cache.folder

        def fill(assembly: ObservationAssembly, described: Described) -> list[Partition]:
            headers = [header for _, header in described]
            rows = [blocks_to_average(header, request.averaging) for header in headers]
            placement = processes.placement(
                [[own.size for own in each] for each in rows], [each.n_chan * each.n_corr for each in headers]
            )
            _check_room(assembly, placement, cache, headers)
            bits = (
                find_together(open_set, path, options, placement, assembly, described)
                if request.treatment.flagger is not None
                else []
            )
            blocks, read = filled(
                placement,
                rows,
                place,
                partial(_read_own, assembly=assembly, described=described, rows=rows, folder=place),
                _read_share,
                open_set,
                path,
                options,
                place,
                given=_flags_by_process(bits, rows, placement),
            )
            for other in read[1:]:
                for cause, n in other.counts.items():
                    assembly.excluded.counts[cause] += n
            return [
                _partition(assembly, part, header, blocks[i], set.union(*(each.origins[i] for each in read)))
                for i, (part, header) in enumerate(described)
            ]

        return assemble(data, request, fill=fill)


def _partition(
    assembly: ObservationAssembly,
    part: PartitionRows,
    header: PartitionHeader,
    blocks: Any,
    origins: set[str],
) -> Partition:
    """A partition with what processes have read of it."""
    if not header.n_row:
        return Partition.of(header, **assembly.read(part)._asdict())
    return Partition.of(header, **blocks.fields(header.n_row), weight_origin=_one_of(origins, assembly))


def _check_room(
    assembly: ObservationAssembly,
    placement: Placement,
    cache: ReadCache | None,
    headers: Sequence[PartitionHeader],
) -> None:
    """Refuse to read what some process has no room for, in memory or in its files.

    Of data in files, one block at a time is in memory; what is made of them is written besides.

    Raises
    ------
    InputError
    """
    per_row = [BYTES_AS_READ * each.n_chan * each.n_corr for each in headers]
    if cache is None:
        assembly.check_room(placement, placement.totals(per_row))
        return
    assembly.check_room(placement, placement.largest(per_row))
    is_there = [[cache.has(i, k) for k in range(len(each))] for i, each in enumerate(placement.n_row)]
    needed = placement.without(is_there).totals(per_row)
    made = [
        size * _bytes_made(each, assembly.request) / BYTES_AS_READ
        for size, each in zip(per_row, headers, strict=True)
    ]
    all_needed = [one + other for one, other in zip(needed, placement.totals(made), strict=True)]
    remedy = "give another directory, or select less"
    placement.check_disk(cache.folder, all_needed, "visibilities and weights", remedy)
    if any(needed):
        text = byte_text(sum(needed))
        log.warning("%s: writing %s of visibilities and weights", cache.folder, text)


def _bytes_made(like: PartitionHeader, request: ReadRequest) -> float:
    """Bytes that weighting, forming Stokes parameters and averaging make of each visibility as it is read."""
    weighting, averaging = request.weighting, request.averaging
    total = 4.0 * ((weighting.weights != "stated") + (weighting.taper is not None))
    left, stokes = 1.0, request.selection.stokes
    if stokes is not None and not request.treatment.allow_unusable:
        left *= (1 if parse_stokes(stokes) == PSEUDO_I else len(parse_stokes(stokes))) / like.n_corr
        total += BYTES_AS_READ * left
    if averaging.average_channels > 1:
        left *= -(-like.n_chan // int(averaging.average_channels)) / like.n_chan
        total += BYTES_AS_READ * left
    if averaging.seconds:
        total += BYTES_AS_READ * left * n_averaged_row(like, averaging) / max(1, like.n_row)
    return total


def _flags_by_process(
    bits: Sequence[NDArray[np.uint8]], rows: BlockRows, placement: Placement
) -> list[Flags]:
    """The flags of each process's blocks, from those of all rows of each partition; empty without flags."""
    return [
        {(i, block): bits[i][rows[i][block]] for i, own in enumerate(shares if bits else ()) for block in own}
        for shares in placement.by_process()
    ]


def _read_share(
    flags: Flags,
    shares: Sequence[Sequence[int]],
    open_set: OpenSet,
    path: Place,
    options: SetOptions,
    folder: str | None,
) -> tuple[Filled, _WasRead]:
    """What a process other than the first does."""
    with open_set(path, options) as (data, request):
        assembly = ObservationAssembly(data, request)
        described = assembly.described()
        assembly.excluded.counts = empty_counts()  # the first process has counted what is not read
        rows = [blocks_to_average(header, request.averaging) for _, header in described]
        return _read_own(flags, shares, assembly=assembly, described=described, rows=rows, folder=folder)


def _read_own(
    flags: Flags,
    shares: Sequence[Sequence[int]],
    *,
    assembly: ObservationAssembly,
    described: Described,
    rows: BlockRows,
    folder: str | None,
) -> tuple[Filled, _WasRead]:
    """Read the blocks of this process, those that a cache has from there."""
    origins: list[set[str]] = []
    read_blocks: list[dict[int, tuple[Any, ...]]] = []
    cache, counts = None if folder is None else ReadCache(folder), assembly.excluded.counts
    for i, ((part, header), of_blocks, own) in enumerate(zip(described, rows, shares, strict=True)):
        made, found = dict[int, tuple[Any, ...]](), set[str]()
        for block in own if header.n_row else ():
            shape = of_blocks[block].size, header.n_chan, header.n_corr
            kept = None if cache is None else cache.find(i, block, shape)
            if kept is None:
                before = Counter(counts)
                bits = flags.get((i, block))
                flag = None if bits is None else unpacked(bits, header)
                read = assembly.read(_some(part, of_blocks[block]), flag)
                lost = {cause: n - before[cause] for cause, n in counts.items()}
                kept = CachedBlock(read.vis, read.weight, lost, read.weight_origin)
                kept = kept if cache is None else cache.keep(i, block, kept)
            else:
                for cause, n in kept.counts.items():
                    counts[cause] += n
            made[block] = kept.vis, kept.weight
            found.add(kept.weight_origin)
        read_blocks.append(made)
        origins.append(found)
    return read_blocks, _WasRead(counts, origins)


def _some(part: PartitionRows, rows: NDArray[np.int64]) -> PartitionRows:
    return replace(part, rows=part.rows[rows], inside=part.inside[rows])


def _one_of(origins: set[str], assembly: ObservationAssembly) -> str:
    """The column of the weights of all blocks."""
    if len(origins) > 1:
        columns = " or ".join(sorted(origins))
        raise DataError(
            f"{assembly.index.source}: some times have their weights in one column, others in another "
            f"({columns}). Select times with one weight column (--time-range, time_range= in Python), or "
            "read "
            "the set without MPI"
        )
    return next(iter(origins))
