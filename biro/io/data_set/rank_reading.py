"""A data set that ranks of MPI read together, each the rows of its own shards."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.distributed.capacity import check_disk
from biro.distributed.distributed_data import STORE, DataOnRanks, Shards
from biro.distributed.messages import CallFunction
from biro.distributed.ranks import MpiRanks
from biro.distributed.this_rank import PLACE
from biro.errors import DataError, InputError
from biro.files.memory import byte_text
from biro.io.data_set.assembly import Described, ObservationAssembly, ReadRequest, assemble
from biro.io.data_set.cache import CachedShard, ReadCache, open_cache
from biro.io.data_set.index import PartitionRows
from biro.io.data_set.interference import find_by_ranks, unpacked
from biro.io.data_set.open_set import OpenSet, Place
from biro.io.data_set.options import SetOptions
from biro.observation.averaging import n_averaged_row, shards_to_average
from biro.observation.flags import empty_counts
from biro.observation.observation import Observation
from biro.observation.partition import BYTES_AS_READ, Partition
from biro.observation.stokes import PSEUDO_I, parse_stokes
from rime_kernels.engine.shards import shared_out

log = logging.getLogger(__name__)


Flags = dict[tuple[int, int], NDArray[np.uint8]]
"""Where interference is in shards, by the numbers of partition and shard; see `find_by_ranks`."""


class _RankRead(NamedTuple):
    """What a rank has read: visibilities by cause of exclusion, and the columns that weights came from."""

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


def read_by_ranks(
    open_set: OpenSet, path: Place, options: SetOptions, ranks: MpiRanks, folder: str | None = None
) -> Observation:
    """An observation whose visibilities and weights lie with the ranks that have read them.

    Rank 0 has what else is known of all rows.

    Parameters
    ----------
    open_set : OpenSet
    path : path
    options : SetOptions
        As those of `biro.read`.
    ranks : MpiRanks
    folder : str, optional
        Of caches (`biro.io.data_set.cache`), in which each rank keeps what it has read, and what is made of
        it; by default that is in memory.

    Returns
    -------
    Observation

    Raises
    ------
    DataError
        As `biro.read`; or shards that have their weights in different columns.
    """
    with open_set(path, options) as (data, request):
        cache = None if folder is None else open_cache(folder, path, options)
        place = None if cache is None else cache.folder

        def fill(assembly: ObservationAssembly, described: Described) -> list[Partition]:
            numbers = [ranks.number() for _ in described]
            rows = [shards_to_average(like, request.averaging) for _, like in described]
            work = [like.n_chan * like.n_corr for _, like in described]
            shares = shares_of_all([[own.size for own in each] for each in rows], work, ranks.n_rank)
            made = [_bytes_made(like, request) for _, like in described]
            _check_room(assembly, ranks, cache, rows, work, made, shares)
            flags = _flags_of_ranks(
                find_by_ranks(open_set, path, options, ranks, assembly, described)
                if request.treatment.flagger is not None
                else [],
                rows,
                shares,
                ranks.n_rank,
            )
            wait = ranks.ask(
                CallFunction(_read_share, (open_set, path, options, numbers, shares, place), True)
            )
            for rank in range(1, ranks.n_rank):
                ranks.send(rank, flags[rank])
            own = _read_own(flags[0], assembly, described, numbers, rows, shares, place)
            read: list[_RankRead] = [own, *wait()]
            for other in read[1:]:
                for cause, n in other.counts.items():
                    assembly.counts[cause] += n
            partitions = []
            for i, (part, like) in enumerate(described):
                if not like.n_row:
                    partitions.append(assembly.read(part, like))
                    continue
                distributed = DataOnRanks(ranks, numbers[i], shares[i], rows[i], place)
                origin = _one_of(set.union(*(each.origins[i] for each in read)), assembly)
                partitions.append(replace(like.distributed_over(distributed), weight_origin=origin))
            return partitions

        return assemble(data, request, fill=fill)


def _check_room(
    assembly: ObservationAssembly,
    ranks: MpiRanks,
    cache: ReadCache | None,
    rows: Sequence[Sequence[NDArray[np.int64]]],
    work: Sequence[int],
    made: Sequence[float],
    shares: Sequence[Sequence[Sequence[int]]],
) -> None:
    """Refuse to read what some rank has no room for, in memory or in its files.

    Of data in files, one shard at a time is in memory; `made` are bytes for each visibility of a partition
    that are written besides.

    Raises
    ------
    InputError
    """
    sizes = [[BYTES_AS_READ * n * own.size for own in each] for each, n in zip(rows, work, strict=True)]
    if cache is None:
        assembly.check_memory(of_ranks(sizes, shares, sum), ranks)
        return
    assembly.check_memory(of_ranks(sizes, shares, max), ranks)
    lacking = [
        [0 if cache.has(i, k) else size for k, size in enumerate(each)] for i, each in enumerate(sizes)
    ]
    needed = of_ranks(lacking, shares, sum)
    of_made = [
        [size * each / BYTES_AS_READ for size in of_part] for of_part, each in zip(sizes, made, strict=True)
    ]
    also = of_ranks(of_made, shares, sum)
    all_needed = [one + other for one, other in zip(needed, also, strict=True)]
    remedy = "give another directory, or select less"
    check_disk(ranks, cache.folder, all_needed, "visibilities and weights", remedy)
    if any(needed):
        text = byte_text(sum(needed))
        log.warning("%s: writing %s of visibilities and weights", cache.folder, text)


def _bytes_made(like: Partition, request: ReadRequest) -> float:
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


def of_ranks(
    sizes: Sequence[Sequence[float]],
    shares: Sequence[Sequence[Sequence[int]]],
    total: Callable[[Sequence[float]], float],
) -> list[float]:
    """The sum, or the largest, of the sizes of all shards that each rank has.

    Parameters
    ----------
    sizes : sequence of sequence of float
        Of each shard of each partition.
    shares : sequence of sequence of sequence of int
        The shards of each partition that each rank has.
    total : sum or max
    """
    pairs = list(zip(sizes, shares, strict=True))
    n_rank = len(shares[0]) if shares else 0
    return [
        total([0.0, *(of_part[shard] for of_part, share in pairs for shard in share[rank])])
        for rank in range(n_rank)
    ]


def shares_of(part: Partition, n_rank: int) -> list[list[int]]:
    """The shards of a partition that each rank has, neighbours together."""
    return shares_of_all([[rows.size for rows in part.shards]], [1], n_rank)[0]


def shares_of_all(sizes: Sequence[Sequence[int]], work: Sequence[int], n_rank: int) -> list[list[list[int]]]:
    """The shards of each partition that each rank has.

    Shards of a partition go to neighbouring ranks, in their order. Where it has fewer shards than there are
    ranks, these are the ranks that have least so far.

    Parameters
    ----------
    sizes : sequence of sequence of int
        Rows of each shard of each partition.
    work : sequence of int
        Of a row of each partition.
    n_rank : int
    """
    found, load = [], np.zeros(n_rank)
    for of_shards, of_row in zip(sizes, work, strict=True):
        own = [shards for shards in shared_out(np.cumsum([0, *of_shards]), n_rank) if shards]
        before = np.append(0.0, np.cumsum(load))
        first = int(np.argmin(before[len(own) :] - before[: n_rank + 1 - len(own)]))
        shares = [list[int]() for _ in range(n_rank)]
        shares[first : first + len(own)] = own
        load += [of_row * sum(of_shards[shard] for shard in shards) for shards in shares]
        found.append(shares)
    return found


def _flags_of_ranks(
    bits: Sequence[NDArray[np.uint8]],
    rows: Sequence[Sequence[NDArray[np.int64]]],
    shares: Sequence[Sequence[Sequence[int]]],
    n_rank: int,
) -> list[Flags]:
    """The flags of each rank's shards, from those of all rows of each partition; empty without flags."""
    return [
        {
            (i, shard): bits[i][rows[i][shard]]
            for i, of_ranks_shards in enumerate(shares if bits else ())
            for shard in of_ranks_shards[rank]
        }
        for rank in range(n_rank)
    ]


def _read_share(
    flags: Flags,
    open_set: OpenSet,
    path: Place,
    options: SetOptions,
    numbers: Sequence[int],
    shares: Sequence[Sequence[Sequence[int]]],
    folder: str | None,
) -> _RankRead:
    """What a rank other than 0 does."""
    with open_set(path, options) as (data, request):
        assembly = ObservationAssembly(data, request)
        described = assembly.described()
        assembly.counts = empty_counts()  # rank 0 has counted what is not read
        rows = [shards_to_average(like, request.averaging) for _, like in described]
        return _read_own(flags, assembly, described, numbers, rows, shares, folder)


def _read_own(
    flags: Flags,
    assembly: ObservationAssembly,
    described: Described,
    numbers: Sequence[int],
    rows: Sequence[Sequence[NDArray[np.int64]]],
    shares: Sequence[Sequence[Sequence[int]]],
    folder: str | None,
) -> _RankRead:
    """Read the shards of this rank into its store, those that a cache has from there."""
    origins: list[set[str]] = []
    cache = None if folder is None else ReadCache(folder)
    for (part, like), number, of_shards, of_rank in zip(described, numbers, rows, shares, strict=True):
        made, found = Shards(), set[str]()
        for shard in of_rank[PLACE.rank] if like.n_row else ():
            shape = of_shards[shard].size, like.n_chan, like.n_corr
            kept = None if cache is None else cache.find(len(origins), shard, shape)
            if kept is None:
                before = Counter(assembly.counts)
                bits = flags.get((len(origins), shard))
                flag = None if bits is None else unpacked(bits, like)
                read = assembly.read(_some(part, of_shards[shard]), like, flag)
                counts = {cause: n - before[cause] for cause, n in assembly.counts.items()}
                kept = CachedShard(read.vis, read.weight, counts, read.weight_origin)
                kept = kept if cache is None else cache.keep(len(origins), shard, kept)
            else:
                for cause, n in kept.counts.items():
                    assembly.counts[cause] += n
            made[shard] = kept.vis, kept.weight
            found.add(kept.weight_origin)
        STORE.shards[number] = made
        origins.append(found)
    return _RankRead(assembly.counts, origins)


def _some(part: PartitionRows, rows: NDArray[np.int64]) -> PartitionRows:
    return replace(part, rows=part.rows[rows], inside=part.inside[rows])


def _one_of(origins: set[str], assembly: ObservationAssembly) -> str:
    """The column of the weights of all shards."""
    if len(origins) > 1:
        columns = " or ".join(sorted(origins))
        raise DataError(
            f"{assembly.index.source}: some times have their weights in one column, others in another "
            f"({columns}). Select times with one weight column (--time-range, time_range= in Python), or "
            "read "
            "the set without MPI"
        )
    return next(iter(origins))
