"""Ranks begin: they find each other alike, rank 0 goes on with its program, and the others serve it."""

from __future__ import annotations

import logging
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from biro._version import __version__
from biro.distributed.ranks import MpiRanks
from biro.distributed.service import serve
from biro.distributed.this_rank import PLACE
from biro.distributed.watch import be_watched, end_signs, watch
from biro.errors import InputError
from rime_kernels.compile.sources import source_digest

if TYPE_CHECKING:
    from mpi4py import MPI

log = logging.getLogger(__name__)

_RANKS: dict[int, MpiRanks] = {}
"""Those that have begun, by the handle of the communicator."""


class HasDigest(Protocol):
    """An observation."""

    def digest(self) -> str:
        """Hash of all data."""
        ...


class ProcessFacts(NamedTuple):
    """What must be the same on all ranks.

    Attributes
    ----------
    host : str
        Of the rank; it may differ.
    versions : dict of str to str
        Of biro, and of the packages that results depend on.
    data : str or None
        Hash of the observation that this rank was given; None without one.
    """

    host: str
    versions: dict[str, str]
    data: str | None


def start(comm: MPI.Intracomm, observation: HasDigest | None = None) -> MpiRanks:
    """Let the ranks of a communicator work together; returns on rank 0 alone.

    The other ranks stay here until rank 0 is done, and then leave by `SystemExit`. Called again on rank 0, it
    returns what it returned before.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    observation : Observation, optional
        What this rank has read; where a rank other than 0 has one, it must be that of rank 0.

    Returns
    -------
    MpiRanks

    Raises
    ------
    InputError
        On rank 0: something else than a communicator; versions or data that differ between ranks; ranks that
        were told to stop before.
    """
    check_communicator(comm)
    if (known := _RANKS.get(comm.handle)) is not None:
        known.check_open()
        return known
    from mpi4py import MPI

    from biro.distributed.link import Link

    own = ProcessFacts(
        MPI.Get_processor_name(), versions(), None if observation is None else observation.digest()
    )
    link = Link(comm.Dup())
    facts = link.gather(own)
    problem: str | None = link.bcast(None if facts is None else difference(facts))
    if comm.rank:
        if problem is None:
            of_host = comm.Split_type(MPI.COMM_TYPE_SHARED)
            be_watched(link)
            serve(link, f"MPI process {comm.rank} ({own.host})", of_host.rank)
            end_signs()
        sys.exit(0)
    if problem is not None:
        raise InputError(problem)
    assert facts is not None, "rank 0 has those of all"
    hosts, number = [each.host for each in facts], comm.Split_type(MPI.COMM_TYPE_SHARED).rank
    PLACE.number = number
    watching, remark = watch(link, hosts)
    if remark:
        log.warning("%s", remark)
    ranks = MpiRanks(link, hosts, number, watching)
    _RANKS[comm.handle] = ranks
    return ranks


def check_communicator(comm: Any) -> None:
    """Refuse what is no communicator of mpi4py.

    Raises
    ------
    InputError
    """
    module = sys.modules.get("mpi4py.MPI")  # whoever has a communicator has imported it
    if module is None or not isinstance(comm, module.Intracomm):
        raise InputError(
            f"comm must be a communicator of mpi4py, such as MPI.COMM_WORLD, got {type(comm).__name__}"
        )


def versions() -> dict[str, str]:
    """The versions that must be the same on all ranks, and a hash of what they compute with."""
    others = {name: metadata.version(name) for name in ("numba", "llvmlite", "numpy")}
    own = {"biro": __version__, "code of rime_kernels": source_digest()[:12]}
    return {**own, "Python": ".".join(map(str, sys.version_info[:2])), **others}


def difference(facts: list[ProcessFacts]) -> str | None:
    """In what a rank differs from rank 0 as it must not, in one line; None where all are alike."""
    first = facts[0]
    for rank, each in enumerate(facts[1:], 1):
        where = f"MPI process {rank} ({each.host})"
        for name, version in first.versions.items():
            if each.versions.get(name) != version:
                return (
                    f"{where} has {name} {each.versions.get(name)}, MPI process 0 ({first.host}) has "
                    f"{version}; install the same versions on all hosts"
                )
        if each.data is not None and each.data != first.data:
            return (
                f"{where} has other data than MPI process 0 ({first.host}). Read the same data with the "
                "same options "
                "in all processes, or give an observation to process 0 alone, and None to the others"
            )
    return None
