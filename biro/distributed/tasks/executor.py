"""Tasks over an executor of the user's: processes, threads, ranks of MPI, machines of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import TypeVar

from biro.distributed.tasks.lost import CHECK_EVERY, LostTask
from biro.errors import BiroError, InputError, RunError
from biro.run.interrupt import StopFlag

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")


def in_executor(
    task: Callable[[A], T], todo: Mapping[str, A], executor: Executor, stop: StopFlag
) -> Iterator[T | LostTask]:
    """Run tasks on an executor (`run_tasks`); tasks not yet begun are taken back where this ends early."""
    if not isinstance(executor, Executor):
        raise InputError(
            "executor must be a concurrent.futures.Executor, such as mpi4py.futures.MPIPoolExecutor() or "
            f"client.get_executor() of dask.distributed, got {type(executor).__name__}"
        )
    futures: dict[Future[T], str] = {}
    try:
        for name, argument in todo.items():
            futures[executor.submit(task, argument)] = name
        while futures and not stop:
            done = wait(futures, CHECK_EVERY, FIRST_COMPLETED).done
            for future in sorted(done, key=_is_broken):
                lost = _lost(future, futures[future])
                yield future.result() if lost is None else lost
                del futures[future]
    except RuntimeError as error:  # of `submit` after a shutdown, too
        if isinstance(error, BiroError):
            raise
        raise RunError(
            f"the executor does not accept more tasks ({str(error) or type(error).__name__}); finished "
            "tasks are kept, and the same call with a new executor continues"
        ) from error
    finally:
        for future in futures:
            future.cancel()


def _is_broken(future: Future[T]) -> bool:
    """Whether a task has no result because its executor has broken down, which is looked at last."""
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor)


def _lost(future: Future[T], name: str) -> LostTask | None:
    """None where a task has a result; an executor that lost the process of this one alone has an exception.

    Raises
    ------
    RuntimeError
        The executor has broken down.
    BiroError
        What the task raised.
    """
    if future.cancelled():
        raise RuntimeError("it was shut down")
    error = future.exception()
    if error is None:
        return None
    if isinstance(error, BiroError | BrokenExecutor):
        raise error
    log.info("%s", name, exc_info=error)
    words = " ".join(f"{type(error).__name__}: {error}".split())  # in one line
    return LostTask(name, f"{name} was lost by the executor: {words}")
