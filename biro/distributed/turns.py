"""Processes that write what they have into one set, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from biro.distributed.data_on_ranks import DataOnRanks
from biro.distributed.ranks import MpiRanks
from biro.distributed.remote_data import DistributedData
from rime_kernels.engine.sharded import DataOf

Turn = list[tuple[Any, DataOf]]
"""What a process writes: an item for each of its blocks, and what gives the data of that in this process."""


class Turns:
    """What is written of data that are not in the memory of this process alone, by those who have them."""

    def __init__(self) -> None:
        self._of: dict[int, Turn] = {}
        self._ranks: MpiRanks | None = None

    def add(self, data: DistributedData, items: Sequence[Any]) -> None:
        """Add data, with an item for each of their blocks, which says where that is written."""
        assert isinstance(data, DataOnRanks), "there are no others"
        self._ranks = data.ranks
        for rank, shards in enumerate(data.shares):
            self._of.setdefault(rank, []).extend((items[shard], data.of(shard)) for shard in shards)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not self._of

    @property
    def own(self) -> Turn:
        """What this process writes."""
        return self._of.get(0, [])

    @property
    def of_others(self) -> list[Any]:
        """The items that other processes write."""
        return [item for rank, turn in self._of.items() if rank for item, _ in turn]

    def let_others_write(self, function: Callable[..., None], *arguments: object) -> None:
        """Have each other process call a function of a module with its `Turn`, one after the other."""
        for rank, turn in self._of.items():
            if rank and turn and self._ranks is not None:
                self._ranks.do_on(rank, function, turn, *arguments)
