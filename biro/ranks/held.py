"""Visibilities and weights of a partition of which each rank holds those of its shards."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from biro.held import Vis, Weight
from biro.ranks.ranks import Ranks

T = TypeVar("T")
Shards = dict[int, tuple[Vis, Weight]]
"""Visibilities and weights by the number of the shard."""


@dataclass
class _Store:
    """What this process holds of each partition, by a number that all ranks know it by.

    Attributes
    ----------
    rank : int
        Of this process.
    """

    rank: int = 0
    shards: dict[int, Shards] = field(default_factory=dict)


STORE = _Store()


class HeldShard(NamedTuple):
    """See `rime_kernels.engine.sharded.DataOf`."""

    number: int
    shard: int

    def __call__(self) -> tuple[Vis, Weight]:
        return STORE.shards[self.number][self.shard]


class HeldByRanks:
    """See `biro.held.Held` and `rime_kernels.engine.sharded.HeldData`.

    Parameters
    ----------
    ranks : Ranks
    number : int
        Of the partition in the store of each rank.
    shares : sequence of sequence of int
        The shards of each rank.
    """

    def __init__(self, ranks: Ranks, number: int, shares: Sequence[Sequence[int]]) -> None:
        self._ranks, self._number, self.shares = ranks, number, shares
        weakref.finalize(self, _drop, ranks, number).atexit = False

    def of(self, shard: int) -> HeldShard:
        """What gives a shard in the process that holds it."""
        return HeldShard(self._number, shard)

    def by_shard(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """What a function makes of each shard; see `biro.held.Held`."""
        found: dict[int, T] = {}
        for part in self._ranks.do(_applied, self._number, function, arguments, each):
            found |= part
        return [found[shard] for shard in sorted(found)]

    def replaced(
        self, function: Callable[..., tuple[Vis, Weight, T]], *arguments: object
    ) -> tuple[HeldByRanks, list[T]]:
        """What a function makes of each shard, held in the same way; see `biro.held.Held`."""
        number, found = self._ranks.number(), dict[int, T]()
        for part in self._ranks.do(_replaced, self._number, number, function, arguments):
            found |= part
        return HeldByRanks(self._ranks, number, self.shares), [found[shard] for shard in sorted(found)]


def _applied(
    number: int, function: Callable[..., T], arguments: Sequence[object], each: Sequence[Any] | None
) -> Mapping[int, T]:
    own = STORE.shards.get(number, {})
    items = {shard: () if each is None else (each[shard],) for shard in own}
    return {shard: function(*data, *items[shard], *arguments) for shard, data in own.items()}


def _replaced(
    number: int, to: int, function: Callable[..., tuple[Vis, Weight, T]], arguments: Sequence[object]
) -> Mapping[int, T]:
    also, made = dict[int, T](), Shards()
    for shard, data in STORE.shards.get(number, {}).items():
        vis, weight, also[shard] = function(*data, *arguments)
        made[shard] = (vis, weight)
    STORE.shards[to] = made
    return also


def _drop(ranks: Ranks, number: int) -> None:
    STORE.shards.pop(number, None)
    ranks.drop(number)
