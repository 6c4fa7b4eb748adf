"""Start and watch the child process in which casacore runs; its crashes and silence become errors."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from biro.errors import MeasurementSetError
from biro.files.child_messages import Header, child_command, child_environment, pack, unpack
from biro.files.foreign_text import visible_line, visible_texts
from biro.files.json_value import JsonValue
from biro.io.measurement_set.locks import lock_holders
from biro.io.measurement_set.storage import in_time

PIPE_BYTES = 1 << 20
"""Size that the pipes to and from the child are given, for speed."""
START_LIMIT = 120.0
"""Seconds that a child which is at work may take to start, on a machine however busy."""
START_CHECK = 0.1
"""Seconds between two looks whether a child that starts is at work."""
END_LIMIT = 5.0
"""Seconds that a killed child may take to end; one that waits for a dead storage may never."""
HOLDERS_LIMIT = 2.0
"""Seconds that the search for processes that hold a lock may take."""


class MeasurementSetProcess:
    """A child process holding one Measurement Set; every request has a time limit.

    Parameters
    ----------
    path : Path
        The Measurement Set.
    time_limit : float, s
        Longest silence of the child that is waited for. It reports at every chunk of data, so this
        limits waiting for locks and storage, not the reading of a large set.

    Attributes
    ----------
    writing : bool
        Whether the set is being changed. Whoever changes it sets this, for the text of errors.
    """

    writing = False

    def __init__(self, path: Path, time_limit: float) -> None:
        if find_spec("casacore") is None:
            raise MeasurementSetError(
                f"{path}: Measurement Sets need casacore, which is not installed; install python-casacore "
                "(on macOS and ARM by conda install -c conda-forge python-casacore), or use UVFITS"
            )
        self.path = path
        self.time_limit = time_limit
        self._activity = "starting"
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self.process = self._start()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
                with contextlib.suppress(OSError):  # a user may be at the limit of pipe memory
                    fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._await_start()
            self.receive()
        except BaseException:
            self.close()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        """Spawn the interpreter anew: safe after CUDA and OpenMP, and without the user's __main__."""
        return subprocess.Popen(
            child_command("biro.io.measurement_set.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=child_environment(),
            bufsize=0,
            start_new_session=True,  # Ctrl-C does not reach the child; close() then ends it
        )

    def _await_start(self) -> None:
        """Wait for the first bytes of the child; as long as it is at work, the time limit is renewed.

        It cannot report while it starts, which takes long on a busy machine: the processor time that it has
        taken tells whether it is at work, or is stopped or waits for a storage.
        """
        assert self.process.stdout is not None
        poll = select.poll()
        poll.register(self.process.stdout.fileno(), select.POLLIN)
        latest = time.monotonic() + START_LIMIT
        taken = -1
        while not poll.poll(START_CHECK * 1e3):
            before, taken = taken, _processor_time(self.process.pid)
            if taken != before:
                self._deadline = min(latest, time.monotonic() + self.time_limit)
            elif time.monotonic() > self._deadline:
                raise self._silence()
        self._deadline = time.monotonic() + self.time_limit

    def __enter__(self) -> MeasurementSetProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child, whatever it is doing, and collect it."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # A child that finished sees its input end and leaves at once.
                self.process.wait(0.2 if self._activity == "idle" else 0)
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_LIMIT)
        self._stderr.close()

    def call(self, operation: str, array: NDArray[np.generic] | None = None, **options: JsonValue) -> Header:
        """Ask for an operation, with its arguments, whose answer has no array; its texts are made visible."""
        self.send({"operation": operation, **options}, array)
        answer: Header = visible_texts(self.receive()[0])
        return answer

    def send(self, header: Header, array: NDArray[np.generic] | None = None) -> None:
        """Send one message."""
        self._deadline = time.monotonic() + self.time_limit
        assert self.process.stdin is not None
        pipe = self.process.stdin.fileno()
        os.set_blocking(pipe, False)
        for buffer in pack(header, array):
            while buffer:
                self._wait(pipe, select.POLLOUT)
                try:
                    buffer = buffer[os.write(pipe, buffer) :]
                except BrokenPipeError:
                    self._raise_death()

    def receive(self) -> tuple[Header, NDArray[np.generic] | None]:
        """The next answer; reports of progress on the way renew the time limit."""
        while True:
            header, array = unpack(self._fill)
            self._deadline = time.monotonic() + self.time_limit
            if "error" in header:
                raise MeasurementSetError(f"{self.path}: {visible_line(header['error'])}")
            if "activity" not in header:
                self._activity = "idle"
                return header, array
            self._activity = visible_line(header["activity"])

    def _fill(self, buffer: memoryview) -> None:
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        while buffer:
            self._wait(pipe, select.POLLIN)
            n_read = os.readv(pipe, [buffer])
            if not n_read:
                self._raise_death()
            buffer = buffer[n_read:]

    def _wait(self, pipe: int, event: int) -> None:
        """Wait until a pipe can be read or written, at most until the deadline."""
        poll = select.poll()
        poll.register(pipe, event)
        remaining = self._deadline - time.monotonic()
        if not poll.poll(max(0.0, remaining) * 1e3):
            raise self._silence()

    def _silence(self) -> MeasurementSetError:
        """What is known about a child that was silent for too long."""
        holders = [] if self._activity == "starting" else self._holders()
        if _is_stopped(self.process.pid):
            why = f"its process {self.process.pid} was stopped from outside (SIGSTOP); try again"
        elif self._activity == "starting":
            why = (
                f"its process {self.process.pid} makes no progress; the storage that holds Python may not "
                "respond"
            )
        elif holders:
            why = f"it is locked by {', '.join(holders)}; wait for that to finish or end it"
        elif self._is_at_work():
            why = "casacore is at work and gives no answer: a file may be damaged, or a step may take longer"
        else:
            why = "it may be locked by a process on another machine, or its storage does not respond"
        return MeasurementSetError(
            f"{self.path}: gave up after {self.time_limit:g} s while {self._activity}: {why}"
            " (to wait longer: --time-limit, time_limit= in Python)"
        )

    def _is_at_work(self) -> bool:
        """Whether the child takes processor time."""
        before = _processor_time(self.process.pid)
        time.sleep(START_CHECK)
        return _processor_time(self.process.pid) > before

    def _holders(self) -> list[str]:
        """Other processes that hold a lock on the set."""
        try:
            holders = in_time(HOLDERS_LIMIT, lambda: lock_holders(self.path))
        except TimeoutError:
            return []
        return [who for pid, who in holders.items() if pid != self.process.pid]

    def _raise_death(self) -> None:
        """Say how the child ended, and what the library wrote last."""
        try:
            code = self.process.wait(self.time_limit)
        except subprocess.TimeoutExpired:  # its pipes are closed, but the library does not let it end
            self.process.kill()
            code = -signal.SIGKILL
        if code == -signal.SIGKILL:
            why = "was killed (out of memory?)"
        elif code < 0:
            why = f"died with {signal.Signals(-code).name}"
        else:
            why = f"ended with code {code}"
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        message = f" ({visible_line(last[0])})" if last else ""
        doubt = "" if self.writing else "; the set is probably truncated or corrupt, or the disk is full"
        work = "writing" if self.writing else "reading"
        raise MeasurementSetError(
            f"{self.path}: the process that was {work} it {why} while {self._activity}{message}{doubt}"
        )


def _status(process: int) -> list[str]:
    """What Linux says of a process, from its state on (proc(5)); nothing on other systems."""
    try:
        return (
            Path(f"/proc/{process}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return []


def _is_stopped(process: int) -> bool:
    return _status(process)[:1] in (["T"], ["t"])


def _processor_time(process: int) -> int:
    """Ticks of processor time that a process has taken, in its code and in the system's; 0 where unknown."""
    return sum(map(int, _status(process)[11:13]))
