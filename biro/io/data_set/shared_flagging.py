"""Interference that processes find together while data are read: each in baselines of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.distributed.placement import ProcessGroup
from biro.flagging.find import BYTES
from biro.io.data_set.assembly import Described, ObservationAssembly
from biro.io.data_set.index import PartitionRows
from biro.io.data_set.open_set import OpenSet, Place
from biro.io.data_set.options import SetOptions
from biro.observation.partition_header import PartitionHeader

MOST_VISIBILITIES = 1 << 25
"""Visibilities of some baselines that are read at a time."""


class _Flags(NamedTuple):
    """Where interference is in some rows of a partition.

    Attributes
    ----------
    rows : int64 (n_row,)
    bits : uint8 (n_row, n_byte)
        Channels and correlations of each row, a bit for each.
    """

    rows: NDArray[np.int64]
    bits: NDArray[np.uint8]


def find_together(
    open_set: OpenSet,
    path: Place,
    options: SetOptions,
    processes: ProcessGroup,
    assembly: ObservationAssembly,
    described: Described,
) -> list[NDArray[np.uint8]]:
    """Where interference is in each partition, as `_Flags.bits` of all rows.

    A baseline is looked at by itself, over all times, so that it does not matter who looks at it. The files
    of the set are gone through once for each block of baselines, and once more for all blocks.

    Parameters
    ----------
    open_set, path, options
        As those of `biro.io.data_set.shared_reading.read_together`.
    processes : ProcessGroup
    assembly : ObservationAssembly
        Is told the causes.
    described : Described

    Raises
    ------
    InputError
        A process has no room for the baselines that it looks at together.
    """
    shares: list[list[list[NDArray[np.int64]]]] = [[] for _ in range(processes.n_process)]
    for _, like in described:
        for own, blocks in zip(shares, _shared_out(like, processes.n_process), strict=True):
            own.append(blocks)
    cells = [like.n_chan * like.n_corr for _, like in described]
    sizes = [[n * len(rows) for n, part in zip(cells, own, strict=True) for rows in part] for own in shares]
    needed = [BYTES * max(each, default=0) for each in sizes]
    assembly.check_room(processes, needed)
    found = processes.do(_find, open_set, path, options, given=shares)
    whole = [np.zeros((like.n_row, _n_byte(like)), np.uint8) for _, like in described]
    for flags, causes in found:
        assembly.excluded.interference.update(causes)
        for bits, of_part in zip(whole, flags, strict=True):
            for each in of_part:
                bits[each.rows] = each.bits
    return whole


def unpacked(bits: NDArray[np.uint8], like: PartitionHeader) -> NDArray[np.bool_]:
    """Flags (n_row, n_chan, n_corr) from their bits."""
    n = like.n_chan * like.n_corr
    flag = np.unpackbits(bits, axis=1, count=n).astype(np.bool_)
    return flag.reshape(-1, like.n_chan, like.n_corr)


def _shared_out(like: PartitionHeader, n_process: int) -> Iterator[list[NDArray[np.int64]]]:
    """Blocks of rows for each process, ascending: all those of some baselines, about equally many."""
    low = np.minimum(like.antenna1, like.antenna2).astype(np.int64)
    baseline = low * like.n_antenna + np.maximum(like.antenna1, like.antenna2)
    order = np.argsort(baseline, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(baseline[order])) + 1, len(order)) if len(order) else order
    most = max(1, MOST_VISIBILITIES // max(1, like.n_chan * like.n_corr))
    first = 0
    for process in range(n_process):
        own = ends[(ends > first) & (ends <= max(first, round((process + 1) * len(order) / n_process)))]
        if process == n_process - 1:
            own = ends[ends > first]
        blocks, start = [], first
        for i, end in enumerate(own):
            if i + 1 == len(own) or own[i + 1] - start > most:
                blocks.append(np.sort(order[start:end]))
                start = int(end)
        yield blocks
        first = start


def _find(
    shares: Sequence[Sequence[NDArray[np.int64]]], open_set: OpenSet, path: Place, options: SetOptions
) -> tuple[list[list[_Flags]], Counter[str]]:
    """What a process finds in its blocks of rows of each partition, and the causes."""
    with open_set(path, options) as (data, request):
        assembly = ObservationAssembly(data, request)
        flags = []
        for (part, _), blocks in zip(assembly.described(), shares, strict=True):
            flags.append([_found(assembly, part, rows) for rows in blocks])
        return flags, assembly.excluded.interference


def _found(assembly: ObservationAssembly, part: PartitionRows, rows: NDArray[np.int64]) -> _Flags:
    found = assembly.excluded.found_in(part, rows)
    return _Flags(rows, np.packbits(found.flag.reshape(rows.size, -1), axis=1))


def _n_byte(like: PartitionHeader) -> int:
    return -(-like.n_chan * like.n_corr // 8)
