"""What has other ranks at work until it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from biro.distributed.ranks import MpiRanks
from biro.distributed.single_process import HasPartitions, ranks_of

if TYPE_CHECKING:
    from mpi4py import MPI


class Closing:
    """A likelihood whose data ranks of MPI may share: a context manager that lets the others end.

    Attributes
    ----------
    ranks : MpiRanks or None
        None where this process is alone.
    """

    ranks: MpiRanks | None = None

    def share(self, observation: HasPartitions, comm: MPI.Intracomm | None) -> None:
        """Let processes of a communicator, or those that have the data, work for this likelihood.

        Raises
        ------
        InputError
            Other processes have the data than the communicator has; or they have other data or versions.
        """
        self.ranks = ranks_of(observation, comm)

    @property
    def is_shared(self) -> bool:
        """Whether data are in blocks, in several processes or in files."""
        return self.ranks is not None

    @property
    def n_process(self) -> int:
        """How many processes share the data."""
        return 1 if self.ranks is None else self.ranks.n_rank

    @property
    def sharing(self) -> dict[str, int]:
        """How many processes share the data, for a record; empty where none do and no files have them."""
        return {} if self.ranks is None else {"ranks": self.ranks.n_rank}

    def close(self) -> None:
        """Let the other ranks end, which serve all likelihoods of `comm`; none of these can be asked then."""
        if self.ranks is not None:
            self.ranks.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
