"""Blocks of several partitions that each process makes for itself, as when it reads its own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from biro.distributed.blocks import Rows
from biro.distributed.data_on_ranks import STORE, DataOnRanks
from biro.distributed.messages import CallFunction
from biro.distributed.placement import Placement
from biro.distributed.this_rank import PLACE

R = TypeVar("R")
Filled = Sequence[Mapping[int, tuple[Any, ...]]]
"""The blocks of a process by their numbers, of each partition: visibilities and weights."""


def filled(
    placement: Placement,
    rows: Sequence[Sequence[Rows]],
    folder: str | None,
    own: Callable[[Any, Sequence[Sequence[int]]], tuple[Filled, R]],
    others: Callable[..., tuple[Filled, R]],
    *arguments: object,
    given: Sequence[Any],
) -> tuple[list[DataOnRanks], list[R]]:
    """Data whose blocks each process makes at the same time as the others.

    Parameters
    ----------
    placement : Placement
        Which process makes which blocks.
    rows : sequence of sequence of int64 (n_row,)
        Of each block of each partition.
    folder : str, optional
        Where the blocks lie in files.
    own, others : function
        Make the blocks of this process, and of each of the others, of the item of `given`, the numbers of the
        blocks of each partition and, for others, `arguments`. They return the blocks, and what else is to be
        known. `others` is a function of a module.
    given : sequence
        An item for each process.

    Returns
    -------
    list of DataOnRanks
        Of each partition.
    list
        What else each process returned.
    """
    ranks = placement.ranks
    assert ranks is not None, "otherwise a partition is whole"
    numbers = [ranks.number() for _ in rows]
    wait = ranks.ask(CallFunction(_fill, (numbers, placement.shares, others, arguments), True))
    for rank in range(1, ranks.n_rank):
        ranks.send(rank, given[rank])
    blocks, found = own(given[0], [share[0] for share in placement.shares])
    _keep(numbers, blocks)
    reports = [found, *wait()]
    places = zip(numbers, placement.shares, rows, strict=True)
    return [DataOnRanks(ranks, *place, folder) for place in places], reports


def _fill(
    given: Any,
    numbers: Sequence[int],
    shares: Sequence[Sequence[Sequence[int]]],
    function: Callable[..., tuple[Filled, R]],
    arguments: Sequence[object],
) -> R:
    blocks, found = function(given, [share[PLACE.rank] for share in shares], *arguments)
    _keep(numbers, blocks)
    return found


def _keep(numbers: Sequence[int], blocks: Filled) -> None:
    for number, own in zip(numbers, blocks, strict=True):
        STORE.shards[number] = dict(own)
