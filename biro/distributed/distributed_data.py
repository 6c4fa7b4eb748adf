"""Visibilities and weights of a partition of which each rank holds those of its shards."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.distributed.ranks import MpiRanks
from biro.distributed.this_rank import PLACE
from biro.errors import BackendError
from biro.observation.distributed_data import Vis, Weight
from rime_kernels import device
from rime_kernels.arrays.mapped import in_folder
from rime_kernels.device import Backend
from rime_kernels.engine.device_threads import workers_of
from rime_kernels.engine.sharded import OnShardDone

T = TypeVar("T")
Shards = dict[int, tuple[Any, ...]]
"""Visibilities and weights by the number of the shard; or what else `DataOnRanks.made` has made of them."""
SUM_BITS = 60
"""Sums over shards are of integers, of which the largest has so many bits."""


@dataclass
class _Store:
    """What this process holds of each partition, by a number that all ranks know it by.

    Attributes
    ----------
    shards : dict
    """

    shards: dict[int, Shards] = field(default_factory=dict)


STORE = _Store()


def kept_in(folder: str | None, arrays: tuple[Any, ...], there: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """What is held of a shard, its arrays in files of a folder where one is given, if not `there` already."""
    return tuple(
        in_folder(each, folder)
        if isinstance(each, np.ndarray) and not any(each is own for own in there)
        else each
        for each in arrays
    )


class ShardOnRank(NamedTuple):
    """Data of one shard that this rank holds; see `rime_kernels.engine.sharded.DataOf`."""

    number: int
    shard: int

    def __call__(self) -> tuple[Any, ...]:
        return STORE.shards[self.number][self.shard]


@dataclass(frozen=True)
class _Keep:
    """Keeps what was found for a shard in the store of its process; see `rime_kernels.engine.sharded.End`."""

    number: int
    firsts: Sequence[int]  # shards of each rank, which are neighbours
    folder: str | None

    def __call__(self, i: int, found: Any, /) -> None:
        kept = kept_in(self.folder, (found[0],))
        STORE.shards.setdefault(self.number, {})[self.firsts[PLACE.rank] + i] = kept


class DataOnRanks:
    """Data of a partition that ranks hold.

    It is a `DistributedData` and a `rime_kernels.engine.sharded.HeldData`.

    Parameters
    ----------
    ranks : MpiRanks
    number : int
        Of the partition in the store of each rank.
    shares : sequence of sequence of int
        The shards of each rank.
    rows : sequence of int64 (n_row,), optional
        Of each shard; by default those that follow from the rows alone (`Partition.shards`).
    folder : str, optional
        Where each rank keeps the data in files, and what is made of them; by default they are in memory.
    """

    def __init__(
        self,
        ranks: MpiRanks,
        number: int,
        shares: Sequence[Sequence[int]],
        rows: Sequence[NDArray[np.int64]] | None = None,
        folder: str | None = None,
    ) -> None:
        self.ranks, self._number, self.shares, self.rows = ranks, number, shares, rows
        self.folder = folder
        weakref.finalize(self, _drop, ranks, number).atexit = False

    @classmethod
    def of_nothing(cls, ranks: MpiRanks, shares: Sequence[Sequence[int]]) -> DataOnRanks:
        """No data yet, of these shards of each rank: `made` has functions that see none."""
        return cls(ranks, ranks.number(), shares)

    def of(self, shard: int) -> ShardOnRank:
        """What gives a shard in the process that holds it."""
        return ShardOnRank(self._number, shard)

    def by_shard(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """What a function makes of each shard; see `DistributedData`."""
        return self._joined(self.ranks.do(_applied, self._number, function, arguments, given=self._own(each)))

    def replaced(
        self,
        function: Callable[..., tuple[Vis, Weight, T]],
        *arguments: object,
        each: Sequence[Any] | None = None,
    ) -> tuple[DataOnRanks, list[T]]:
        """What a function makes of each shard, held in the same way.

        See `DistributedData`.
        """
        made, given = self._alike(), self._own(each)
        parts = self.ranks.do(
            _replaced, self._number, made._number, self.folder, function, arguments, given=given
        )
        return made, self._joined(parts)

    def made(
        self, function: Callable[..., tuple[Any, ...]], *arguments: object, each: Sequence[Any] | None = None
    ) -> DataOnRanks:
        """Any tuple that a function makes of each shard; see `DistributedData`."""
        made, given = self._alike(), self._own(each)
        self.ranks.do(_made, self._number, made._number, self.folder, function, arguments, given=given)
        return made

    def together(
        self,
        function: Callable[..., Sequence[tuple[Any, ...]]],
        *arguments: object,
        each: Sequence[Any],
    ) -> DataOnRanks:
        """What a function makes of items of all shards of a rank in one call.

        See `DistributedData`.
        """
        made, given = self._alike(), self._own(each)
        self.ranks.do(_made_together, made._number, self.folder, function, arguments, given=given)
        return made

    def kept(self, run: Callable[[OnShardDone], None]) -> DataOnRanks:
        """What a computation finds for each shard; see `DistributedData`."""
        made = self._alike()
        run(_Keep(made._number, [shards[0] if shards else 0 for shards in self.shares], self.folder))
        return made

    def total(
        self,
        function: Callable[..., Sequence[NDArray[np.float64]]],
        *arguments: object,
        most: Sequence[float],
        each: Sequence[Any] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Sums over shards, as integers, whose sums depend on no order.

        See `DistributedData`.
        """
        bits = [SUM_BITS - math.frexp(bound)[1] for bound in most]
        given = self._own(each)
        parts = self.ranks.do(_summed, self._number, function, arguments, bits, given=given)
        sums = [sum(arrays[1:], arrays[0]) for arrays in zip(*(part for part in parts if part), strict=True)]
        return [np.ldexp(total.astype(np.float64), -n_bit) for total, n_bit in zip(sums, bits, strict=True)]

    def _alike(self) -> DataOnRanks:
        """Room for what is held in the same way."""
        return DataOnRanks(self.ranks, self.ranks.number(), self.shares, self.rows, self.folder)

    def _own(self, each: Sequence[Any] | None) -> list[dict[int, tuple[Any, ...]]]:
        """For each rank the items of its shards; empty tuples where no items are given."""
        return [{shard: () if each is None else (each[shard],) for shard in shards} for shards in self.shares]

    @staticmethod
    def _joined(parts: Sequence[Mapping[int, T]]) -> list[T]:
        found: dict[int, T] = {}
        for part in parts:
            found |= part
        return [found[shard] for shard in sorted(found)]


Items = Mapping[int, tuple[Any, ...]]
"""The shards of a rank, each with the item that a call gives for it, or none."""


def _applied(
    items: Items, number: int, function: Callable[..., T], arguments: Sequence[object]
) -> dict[int, T]:
    return dict(_each(items, number, function, arguments))


def _each(
    items: Items, number: int, function: Callable[..., T], arguments: Sequence[object]
) -> Iterator[tuple[int, T]]:
    """Each shard with what a function makes of it, one after the other."""
    own = STORE.shards.get(number, {})
    for shard, item in items.items():
        yield shard, function(*own.get(shard, ()), *item, *arguments)


def _replaced(
    items: Items,
    number: int,
    to: int,
    folder: str | None,
    function: Callable[..., tuple[Vis, Weight, T]],
    arguments: Sequence[object],
) -> dict[int, T]:
    also, made = dict[int, T](), Shards()
    for shard, (vis, weight, more) in _each(items, number, function, arguments):
        made[shard] = kept_in(folder, (vis, weight), STORE.shards[number][shard])
        also[shard] = more
    STORE.shards[to] = made
    return also


def _made(
    items: Items,
    number: int,
    to: int,
    folder: str | None,
    function: Callable[..., tuple[Any, ...]],
    arguments: Sequence[object],
) -> None:
    made = _each(items, number, function, arguments)
    STORE.shards[to] = {shard: kept_in(folder, found) for shard, found in made}


def _made_together(
    items: Items,
    to: int,
    folder: str | None,
    function: Callable[..., Sequence[tuple[Any, ...]]],
    arguments: Sequence[object],
) -> None:
    own = [item for (item,) in items.values()]
    found = function(own, *arguments) if own else ()
    STORE.shards[to] = {shard: kept_in(folder, each) for shard, each in zip(items, found, strict=True)}


def _summed(
    items: Items,
    number: int,
    function: Callable[..., Sequence[NDArray[np.float64]]],
    arguments: Sequence[object],
    bits: Sequence[int],
) -> list[NDArray[np.int64]]:
    """Sums over the shards of this rank, each array times 2^bits and rounded; empty where it has none."""
    sums: list[NDArray[np.int64]] = []
    for shard, item in items.items():
        found = function(*STORE.shards[number][shard], *item, *arguments)
        scaled = [np.ldexp(array, n_bit) for array, n_bit in zip(found, bits, strict=True)]
        if not all((np.abs(each) <= 2.0**SUM_BITS).all() for each in scaled):
            raise BackendError("a sum over shards has values beyond their bound: NaN, or a fault of biro")
        whole = [np.rint(each).astype(np.int64) for each in scaled]
        sums = [one + other for one, other in zip(sums, whole, strict=True)] if sums else whole
    return sums


def on_own_device(backend: Backend, work: Callable[[], T]) -> T:
    """Do it in the thread of the GPU that belongs to this rank; at once where the backend is the CPU."""
    resolved, _ = device.resolve(backend)
    return workers_of(resolved, None, PLACE.number)[0].submit(work).result()


def _drop(ranks: MpiRanks, number: int) -> None:
    STORE.shards.pop(number, None)
    ranks.drop(number)
