"""A process that does one task after the other, and the connection to it."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from tqdm import tqdm

from biro.errors import BiroError, DataNote

T = TypeVar("T")
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Worker(Generic[T]):
    """One process, and the connection to it."""

    def __init__(self, path: str, threads: int) -> None:
        self.task: str | None = None
        self.connection, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(theirs, path), daemon=True
        )
        with _environment(threads), _ignoring_interrupts():
            self.process.start()
        theirs.close()

    def give(self, name: str, argument: object) -> None:
        """Hand it the argument of a task, which has this name."""
        self.task = name
        with contextlib.suppress(OSError):  # it has died: the next look sees that
            self.connection.send(argument)

    def receive(self) -> list[T]:
        """The result of its task, or nothing where it says only that it is ready.

        Raises
        ------
        EOFError, OSError
            The process has died.
        BiroError
            What the task raised.
        RuntimeError
            The task raised something else.
        """
        kind, value = self.connection.recv()
        if kind == "error":
            raise value
        if kind == "fault":
            raise RuntimeError(f"{self.task} failed in its process:\n{value}")
        return [value] if kind == "result" else []

    def end(self) -> str:
        """End the process, unless it ends by itself at once, and say how it ended."""
        self.process.join(0.2)
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return "was killed (out of memory?)"
        return f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _work(connection: Connection, path: str) -> None:
    """What a worker process does: it receives arguments and sends results, until it is killed."""
    os.setsid()  # Ctrl-C reaches our parent alone, which ends us
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    warnings.simplefilter("ignore", DataNote)  # our parent has warned of these data, or writes it into a log
    logger = logging.getLogger("biro")
    logger.setLevel(logging.ERROR)
    logger.addHandler(logging.NullHandler())  # what is said is in log files alone: a terminal would mix it up
    tqdm.set_lock(threading.RLock())  # its own is a semaphore that a killed process leaves behind
    with open(path, "rb") as file:
        task = pickle.load(file)  # written by our parent into a file that is its own
    connection.send(("ready", None))
    while True:
        argument = connection.recv()
        try:
            connection.send(("result", task(argument)))
        except BiroError as error:
            connection.send(("error", type(error)(str(error))))
        except Exception:
            connection.send(("fault", traceback.format_exc()))


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent ends."""
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Set the variables that tell a process that is started now how many threads it may use."""
    new = dict.fromkeys(_THREADS, "1") | {"NUMBA_NUM_THREADS": str(threads)}
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ignore SIGINT, as a process that is started now does, too: no trace is printed while it imports."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
