"""Which process has, or will have, which blocks of partitions; and whether they have room for these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from biro.distributed.blocks import Blocks, LocalBlocks, Rows
from biro.distributed.capacity import Remedy, check_disk, check_memory
from biro.distributed.data_on_ranks import DataOnRanks
from biro.distributed.ranks import MpiRanks
from biro.distributed.single_process import HasData, HasPartitions, alone, ranks_of
from biro.distributed.start import start
from rime_kernels.engine.shards import shared_out

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
Shares = list[list[int]]
"""The shards of a partition that each rank has."""


class HasBlocks(Protocol):
    """A partition, or its header."""

    @property
    def n_row(self) -> int:
        """Number of rows."""
        ...

    @property
    def block_rows(self) -> Sequence[Rows]:
        """Rows of each block."""
        ...


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that share data: this one alone, or those of a communicator.

    Attributes
    ----------
    ranks : MpiRanks or None
        None for this process alone, without files.
    """

    ranks: MpiRanks | None

    @property
    def n_process(self) -> int:
        """How many processes there are."""
        return 1 if self.ranks is None else self.ranks.n_rank

    @property
    def is_shared(self) -> bool:
        """Whether data are in blocks that are worked on one at a time, in several processes or in files."""
        return self.ranks is not None

    def placement(self, n_row: list[list[int]], work: Sequence[int]) -> Placement:
        """How these processes share blocks.

        Parameters
        ----------
        n_row : list of list of int
            Rows of each block of each partition.
        work : sequence of int
            Of a row of each partition.
        """
        return Placement(self.ranks, shares_of_all(n_row, work, self.n_process), n_row)

    def do(self, function: Callable[..., T], *arguments: object, given: Sequence[Any]) -> list[T]:
        """What a function of a module gives in each process, of its item of `given` and the arguments."""
        if self.ranks is None:
            return [function(given[0], *arguments)]
        return self.ranks.do(function, *arguments, given=given)

    def empty_blocks(self, part: HasBlocks) -> Blocks:
        """Blocks without data, of which `made` makes data where they will be."""
        if self.ranks is None:
            return LocalBlocks(())
        return DataOnRanks.of_nothing(self.ranks, shares_of(part, self.n_process), part.block_rows)

    def check_memory(self, needed: Sequence[float], what: str, remedy: Remedy) -> None:
        """Refuse what needs more memory than some process has; see `biro.distributed.capacity`.

        Parameters
        ----------
        needed : sequence of float
            Bytes, of each process.
        what : str
            What needs them.
        remedy : function
            See `Remedy`.

        Raises
        ------
        InputError
        """
        check_memory(self.ranks, needed, what, remedy)

    def check_disk(self, folder: str | None, needed: Sequence[float], what: str, remedy: str) -> None:
        """Refuse what needs more room than the disk of a folder has; nothing without a folder.

        Raises
        ------
        InputError
        """
        if folder is not None and self.ranks is not None:
            check_disk(self.ranks, folder, needed, what, remedy)

    def here(self, of_processes: Sequence[float]) -> float:
        """The sum of what processes on this machine have."""
        hosts = [""] if self.ranks is None else self.ranks.hosts
        return sum(n for n, host in zip(of_processes, hosts, strict=True) if host == hosts[0])


@dataclass(frozen=True)
class Placement(ProcessGroup):
    """Where the blocks of some partitions are: in one process, or in several that share them.

    Attributes
    ----------
    shares : list of list of list of int
        The blocks of each partition that each process has.
    n_row : list of list of int
        Rows of each block of each partition.
    """

    shares: list[Shares]
    n_row: list[list[int]]

    @classmethod
    def of(cls, parts: Sequence[HasBlocks], ranks: MpiRanks | None = None) -> Placement:
        """Where blocks are, or will be if these ranks share them; all of this process are one block."""
        data = [getattr(part, "distributed", None) for part in parts]
        on_ranks = [each for each in data if isinstance(each, DataOnRanks)]
        if ranks is None and parts and len(on_ranks) == len(parts):
            ranks = on_ranks[0].ranks
        if ranks is None:
            return cls(None, [[[0]] for _ in parts], [[part.n_row] for part in parts])
        shares = [
            [list(own) for own in each.shares]
            if isinstance(each, DataOnRanks)
            else shares_of(part, ranks.n_rank)
            for part, each in zip(parts, data, strict=True)
        ]
        return cls(ranks, shares, [[rows.size for rows in part.block_rows] for part in parts])

    def data_for_rime(self, part: HasData) -> dict[str, Any]:
        """Arguments of a `Rime` with the data of a partition, whose rows these processes share."""
        if part.distributed is None:
            return {"vis": part.vis, "weight": part.weight, "ranks": self.ranks}
        return {"held": part.distributed, "ranks": self.ranks, "folder": part.distributed.folder}

    def totals(self, per_row: Sequence[float]) -> list[float]:
        """Bytes of all blocks of each process, from the bytes of a row of each partition."""
        return [float(sum(each)) for each in self._of_processes(per_row)]

    def largest(self, per_row: Sequence[float]) -> list[float]:
        """Bytes of the largest block of each process, from the bytes of a row of each partition."""
        return [float(max(each, default=0.0)) for each in self._of_processes(per_row)]

    def by_process(self) -> list[list[list[int]]]:
        """The blocks that each process has of each partition."""
        return [[share[i] for share in self.shares] for i in range(self.n_process)]

    def without(self, is_left_out: Sequence[Sequence[bool]]) -> Placement:
        """This placement with no rows in some blocks of each partition."""
        pairs = zip(self.n_row, is_left_out, strict=True)
        n_row = [[0 if left else n for n, left in zip(*each, strict=True)] for each in pairs]
        return replace(self, n_row=n_row)

    def _of_processes(self, per_row: Sequence[float]) -> list[list[float]]:
        sizes = [[each * n for n in of_part] for each, of_part in zip(per_row, self.n_row, strict=True)]
        return [
            [of_part[block] for of_part, share in zip(sizes, self.shares, strict=True) for block in share[i]]
            for i in range(self.n_process)
        ]


def processes_of(comm: MPI.Intracomm | None, *, in_files: bool = False) -> ProcessGroup:
    """This process alone, or those of a communicator, which start to work together.

    With `in_files`, data are in blocks in files also where this process is alone.

    Raises
    ------
    InputError
        As `biro.distributed.start.start`.
    """
    return ProcessGroup(start(comm) if comm is not None else alone() if in_files else None)


def placement_of(observation: HasPartitions, comm: MPI.Intracomm | None) -> Placement:
    """Where the blocks of an observation are, or will be if processes of a communicator share them.

    Raises
    ------
    InputError
        Other processes have the data than the communicator has.
    """
    parts: Sequence[Any] = observation.partitions
    return Placement.of(parts, ranks_of(observation, comm))


def shares_of(part: HasBlocks, n_rank: int) -> Shares:
    """The shards of a partition that each rank has, neighbours together."""
    return shares_of_all([[rows.size for rows in part.block_rows]], [1], n_rank)[0]


def shares_of_all(sizes: Sequence[Sequence[int]], work: Sequence[int], n_rank: int) -> list[Shares]:
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
