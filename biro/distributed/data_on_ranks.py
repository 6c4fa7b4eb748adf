"""Visibilities and weights of a partition of which each rank holds those of its shards."""

from __future__ import annotations

import copy
import functools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.distributed.blocks import Vis, Weight
from biro.distributed.ranks import MpiRanks
from biro.distributed.remote_data import RemoteArray
from biro.distributed.this_rank import PLACE
from biro.errors import BackendError
from rime_kernels import device
from rime_kernels.arrays.mapped import in_folder
from rime_kernels.choices import Backend
from rime_kernels.engine.device_threads import workers_of
from rime_kernels.engine.sharded import ShardShares

if TYPE_CHECKING:
    from rime_kernels import Rime
    from rime_kernels.arrays import Sources

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

    It is a `DistributedData` and a `rime_kernels.engine.sharded.HeldData`. Its blocks are shards.

    Parameters
    ----------
    ranks : MpiRanks
    number : int
        Of the partition in the store of each rank.
    shares : sequence of sequence of int
        The shards of each rank.
    rows : sequence of int64 (n_row,)
        Of each shard.
    folder : str, optional
        Where each rank keeps the data in files, and what is made of them; by default they are in memory.
    """

    def __init__(
        self,
        ranks: MpiRanks,
        number: int,
        shares: Sequence[Sequence[int]],
        rows: Sequence[NDArray[np.int64]],
        folder: str | None = None,
    ) -> None:
        self.ranks, self._number, self.shares, self.rows = ranks, number, shares, rows
        self.folder = folder
        self._backend: Backend | None = None
        self._source: DataOnRanks | None = None
        weakref.finalize(self, _drop, ranks, number).atexit = False

    @classmethod
    def of_nothing(
        cls, ranks: MpiRanks, shares: Sequence[Sequence[int]], rows: Sequence[NDArray[np.int64]]
    ) -> DataOnRanks:
        """No data yet, of these shards of each rank: `made` has functions that see none."""
        return cls(ranks, ranks.number(), shares, rows)

    def of(self, shard: int) -> ShardOnRank:
        """What gives a shard in the process that holds it."""
        return ShardOnRank(self._number, shard)

    def by_block(
        self, function: Callable[..., T], *arguments: object, each: Sequence[Any] | None = None
    ) -> list[T]:
        """Call the function in the process that has each block."""
        work = self._on_device(function)
        return self._joined(self.ranks.do(_applied, self._number, work, arguments, given=self._own(each)))

    def replaced(
        self,
        function: Callable[..., tuple[Vis, Weight, T]],
        *arguments: object,
        each: Sequence[Any] | None = None,
        into: Sequence[NDArray[np.int64]] | None = None,
    ) -> tuple[DataOnRanks, list[T]]:
        """Make the arrays of each block in its process, where they stay."""
        made, given, work = self._alike(), self._own(each), self._on_device(function)
        parts = self.ranks.do(
            _replaced, self._number, made._number, self.folder, work, arguments, given=given
        )
        made.rows = self.rows if into is None else into
        return made, self._joined(parts)

    def made(
        self, function: Callable[..., tuple[Any, ...]], *arguments: object, each: Sequence[Any] | None = None
    ) -> DataOnRanks:
        """Make a tuple of each block in its process, where it stays."""
        made, given, work = self._alike(), self._own(each), self._on_device(function)
        self.ranks.do(_made, self._number, made._number, self.folder, work, arguments, given=given)
        return made

    def together(
        self,
        function: Callable[..., Sequence[tuple[Any, ...]]],
        *arguments: object,
        each: Sequence[Any],
    ) -> DataOnRanks:
        """Make the tuples of a process in one call there."""
        made, given, work = self._alike(), self._own(each), self._on_device(function)
        self.ranks.do(_made_together, made._number, self.folder, work, arguments, given=given)
        return made

    def total(
        self,
        function: Callable[..., Sequence[NDArray[np.float64]]],
        *arguments: object,
        most: Callable[[], Sequence[float]],
        each: Sequence[Any] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Add the sums of blocks as integers, rounded to 2^-60 of the largest, which depend on no order."""
        bits = [SUM_BITS - math.frexp(bound)[1] for bound in most()]
        given, work = self._own(each), self._on_device(function)
        parts = self.ranks.do(_summed, self._number, work, arguments, bits, given=given)
        sums = [sum(arrays[1:], arrays[0]) for arrays in zip(*(part for part in parts if part), strict=True)]
        return [np.ldexp(total.astype(np.float64), -n_bit) for total, n_bit in zip(sums, bits, strict=True)]

    def predicted(self, rime: Rime, sources: Sources) -> DataOnRanks:
        """Predict the visibilities in each process, where they stay."""
        made = self._alike()
        firsts = [shards[0] if shards else 0 for shards in self.shares]
        rime.predict_sharded(sources, _Keep(made._number, firsts, self.folder))
        return made

    def array(self, number: int, n_row: int) -> RemoteArray:
        """Give what stands for the array of all processes."""
        return self._arrays(n_row)[number]

    def fields(self, n_row: int) -> dict[str, Any]:
        """Give what stands for visibilities and weights of all processes."""
        vis, weight = self._arrays(n_row)
        return {"vis": vis, "weight": weight, "distributed": self}

    def rows_for_rime(self) -> dict[str, Any]:
        """Give the processes and the folder of the data."""
        return {"ranks": self.ranks, "folder": self.folder, "held": ShardShares(self.shares)}

    def on_devices(self, backend: Backend) -> DataOnRanks:
        """Give blocks whose functions use the device of each process."""
        self.ranks.check_alike(backend)
        found = copy.copy(self)
        # The data are dropped with the first of the two, which this one therefore keeps.
        found._backend, found._source = backend, self
        return found

    def _arrays(self, n_row: int) -> list[RemoteArray]:
        likes = self.by_block(_like)[0]
        return [RemoteArray((n_row, *shape), dtype, self, i) for i, (shape, dtype) in enumerate(likes)]

    def _alike(self) -> DataOnRanks:
        """Room for what is held in the same way."""
        made = DataOnRanks(self.ranks, self.ranks.number(), self.shares, self.rows, self.folder)
        made._backend = self._backend
        return made

    def _on_device(self, function: Callable[..., T]) -> Callable[..., T]:
        return function if self._backend is None else functools.partial(_with_device, self._backend, function)

    def _own(self, each: Sequence[Any] | None) -> list[dict[int, tuple[Any, ...]]]:
        """For each rank the items of its shards; empty tuples where no items are given."""
        return [{shard: () if each is None else (each[shard],) for shard in shards} for shards in self.shares]

    @staticmethod
    def _joined(parts: Sequence[Mapping[int, T]]) -> list[T]:
        found: dict[int, T] = {}
        for part in parts:
            found |= part
        return [found[shard] for shard in sorted(found)]


def _with_device(backend: Backend, function: Callable[..., T], *items: Any) -> T:
    return on_own_device(backend, functools.partial(function, *items))


def _like(*arrays: NDArray[Any]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """(n_chan, n_corr) and the type of each array."""
    return [(each.shape[1:], each.dtype) for each in arrays]


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
        yield shard, function(*own.get(shard, ()), *_values(item), *arguments)


def _values(item: Any) -> Any:
    """An item of a shard, with arrays in place of what gives them here."""
    if isinstance(item, ShardOnRank):
        return item()[0]
    return tuple(_values(each) for each in item) if type(item) in (tuple, list) else item


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
        found = function(*STORE.shards[number][shard], *_values(item), *arguments)
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
