"""Cores, and how many processes are asked for."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from biro.errors import InputError
from biro.files.memory import check_memory

if TYPE_CHECKING:
    from mpi4py import MPI

_WORKER_BYTES = 2e8
"""Memory that a process takes at least."""


def n_core() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def refuse_both(workers: int | None, executor: Executor | None, comm: MPI.Intracomm | None = None) -> None:
    """Refuse a number of processes beside an executor or ranks, which have their own, and both of these.

    Raises
    ------
    InputError
    """
    if workers is not None and executor is not None:
        raise InputError(f"give either workers={workers} or an executor")
    if comm is not None and (workers is not None or executor is not None):
        raise InputError("MPI processes are the workers; give comm without workers and executor")


def worker_number(workers: int | None, backend: str) -> int:
    """How many processes tasks are given to, where nothing is asked for: a core each; on a GPU, one.

    Raises
    ------
    InputError
        Fewer than one, or more than there is memory for.
    """
    if workers is None:
        return 1 if backend == "cuda" else n_core()
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    check_memory(workers * _WORKER_BYTES, f"workers={workers}, a process for each,", "take fewer workers")
    return workers
