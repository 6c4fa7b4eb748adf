"""One process that holds shards of its data in files, as ranks of MPI hold theirs in memory."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from biro.distributed.messages import Request
from biro.distributed.ranks import MpiRanks
from biro.distributed.remote_data import DistributedData
from biro.distributed.start import HasDigest, start
from biro.errors import InputError

if TYPE_CHECKING:
    from mpi4py import MPI


class HasData(Protocol):
    """A partition."""

    @property
    def vis(self) -> Any:
        """Visibilities."""
        ...

    @property
    def weight(self) -> Any:
        """Weights."""
        ...

    @property
    def distributed(self) -> DistributedData | None:
        """What has its data; None where they are in the memory of this process."""
        ...


class HasPartitions(HasDigest, Protocol):
    """An observation."""

    @property
    def partitions(self) -> Sequence[HasData]:
        """Its partitions."""
        ...


class SingleProcess(MpiRanks):
    """Rank 0 without any others, and without MPI."""

    def __init__(self) -> None:
        nobody: Any = None
        super().__init__(nobody, ["this process"], 0, nobody)
        # Not those of ranks that the same process may have begun.
        self._numbers = itertools.count(-1, -1)

    def ask(self, request: Request, ranks: Sequence[int] | None = None) -> Callable[[], list[Any]]:
        """Nobody answers."""
        return list

    def drop(self, number: int) -> None:
        """Nobody else holds anything."""

    def stop(self) -> None:
        """Nobody waits for an end."""


@functools.cache
def alone() -> SingleProcess:
    """This process."""
    return SingleProcess()


def ranks_of(observation: HasPartitions, comm: MPI.Intracomm | None) -> MpiRanks | None:
    """The ranks that compute for an observation: those of a communicator, or this one; None without shards.

    Raises
    ------
    InputError
        Others hold the data than the communicator has.
    """
    distributed = next(
        (part.distributed for part in observation.partitions if part.distributed is not None), None
    )
    if distributed is not None and isinstance(distributed.ranks, SingleProcess):
        if comm is not None:
            raise InputError(
                "this observation was read with cache=, but without comm=; give comm= to biro.read, too"
            )
        return distributed.ranks
    if distributed is not None and comm is None:
        raise InputError("MPI processes hold the data of this observation; give comm=, as to biro.read")
    return None if comm is None else start(comm, observation)
