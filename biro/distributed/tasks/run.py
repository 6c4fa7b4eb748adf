"""Tasks in this process, in others, or over an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

from biro.distributed.ranks import MpiRanks
from biro.distributed.start import start
from biro.distributed.tasks.cores import refuse_both, worker_number
from biro.distributed.tasks.executor import in_executor
from biro.distributed.tasks.lost import LostTask
from biro.distributed.tasks.over_ranks import in_ranks
from biro.distributed.tasks.pool import in_processes
from biro.run.interrupt import StopFlag
from rime_kernels.choices import Backend

if TYPE_CHECKING:
    from mpi4py import MPI

A = TypeVar("A")
T = TypeVar("T")


Workers = int | Executor | MpiRanks
"""What works off tasks: a number of processes, an executor, or ranks."""


def workers_of(
    workers: int | None, executor: Executor | None, comm: MPI.Intracomm | None, backend: str
) -> Workers:
    """What works off tasks for arguments of which a caller gives one at most.

    Parameters
    ----------
    workers : int, optional
        Processes; by default as many as `biro.distributed.tasks.cores.worker_number` says.
    executor : Executor, optional
    comm : mpi4py.MPI.Intracomm, optional
        Its processes start to work together.
    backend : "cpu" or "cuda"

    Raises
    ------
    InputError
        Several are given.
    """
    refuse_both(workers, executor, comm)
    if comm is not None:
        return start(comm)
    return worker_number(workers, backend) if executor is None else executor


def run_tasks(
    task: Callable[[A], T],
    todo: Mapping[str, A],
    workers: Workers,
    stop: StopFlag,
    backend: Backend = "cpu",
) -> Iterator[T | LostTask]:
    """Results of a task for some arguments, in the order in which they come; ends early when `stop` is set.

    Parameters
    ----------
    task : function of one argument
        It, its arguments and its results are picklable, except where they stay in this process.
    todo : mapping
        Arguments, each by a name for messages.
    workers : int, Executor or MpiRanks
        1: in this process, one after the other. More: in as many spawned processes, which share the cores.
    stop : StopFlag
    backend : "auto", "cpu" or "cuda"
        Of tasks that ranks do: on a GPU, each in the thread of its own.

    Raises
    ------
    InputError
        The task cannot be sent to other processes; `workers` is neither a number nor an executor.
    RunError
        Processes die as they start; or an executor no longer takes tasks.
    BiroError
        What the task raised.
    """
    if isinstance(workers, MpiRanks):
        yield from in_ranks(task, todo, workers, stop, backend)
        return
    if not isinstance(workers, int):
        yield from in_executor(task, todo, workers, stop)
        return
    if workers > 1 and len(todo) > 1:
        yield from in_processes(task, todo, workers, stop)
        return
    for argument in todo.values():
        if stop:
            return
        yield task(argument)
