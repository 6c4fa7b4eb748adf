"""The ranks that mpiexec or srun has started a command on, told by the variables that these set."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mpi4py import MPI

_VARIABLES = (
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, srun --mpi=pmi2
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),  # srun --mpi=pmix
)


class Launch(NamedTuple):
    """This process among those that were started together: its rank, and how many there are."""

    rank: int = 0
    n_rank: int = 1

    @property
    def n_process(self) -> int:
        """How many processes were started together."""
        return self.n_rank

    @property
    def is_first(self) -> bool:
        """Whether this one speaks for all."""
        return not self.rank

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Launch:
        """Told by variables of the environment; one process alone where they say nothing."""
        for rank, n_rank in _VARIABLES:
            if variables.get(rank, "").isdigit() and variables.get(n_rank, "").isdigit():
                return cls(int(variables[rank]), int(variables[n_rank]))
        return cls()


def world() -> MPI.Intracomm | None:
    """The communicator of all ranks on rank 0; None where this process is alone.

    The other ranks stay here until rank 0 is done, see `biro.distributed.start.start`.

    Raises
    ------
    InputError
        On rank 0: mpi4py is not installed, or belongs to another MPI than what has started the ranks; or
        ranks that differ.
    """
    from biro.errors import InputError

    launch = Launch.of(os.environ)
    if launch.n_rank == 1:
        return None
    problem = _problem(launch)
    if problem is None:
        from mpi4py import MPI

        from biro.distributed.start import start

        start(MPI.COMM_WORLD)
        return MPI.COMM_WORLD
    if launch.rank:
        sys.exit(0)
    raise InputError(problem)


def _problem(launch: Launch) -> str | None:
    """Why these ranks cannot work together."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return (
            f"{launch.n_rank} MPI processes were started, but mpi4py cannot be used ({error}): "
            "pip install '.[mpi]', and an MPI if the machine has none (pip install mpich)"
        )
    if launch.n_rank != MPI.COMM_WORLD.size:
        return (
            f"{launch.n_rank} MPI processes were started, but mpi4py finds {MPI.COMM_WORLD.size}. It was "
            "installed "
            "for another MPI than the one that started them; install mpi4py with this MPI"
        )
    return None
