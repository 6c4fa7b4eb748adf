"""The child process in which casacore runs, seen from ours: crashes, locks and silence become errors."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from biro._ms_wire import Head, pack, unpack
from biro.errors import InputError, MeasurementSetError

PIPE_BYTES = 1 << 20
START_LIMIT = 120.0
"""Seconds that the child may take to start, on a machine however busy; apart from the user's limit."""


def existing_set(path: str | os.PathLike[str]) -> Path:
    """The path, absolute, of what looks like a casacore table.

    Raises
    ------
    MeasurementSetError
    """
    place = Path(path).expanduser().absolute()
    if not place.exists():
        raise MeasurementSetError(f"{path}: no such file or folder")
    if not place.is_dir():
        raise MeasurementSetError(
            f"{path}: a file, but a Measurement Set is a folder (unpack an archive; convert UVFITS with"
            " CASA's importuvfits)"
        )
    if not (place / "table.dat").is_file():
        raise MeasurementSetError(f"{path}: a folder, but not a Measurement Set: it has no table.dat")
    return place


class MeasurementSetProcess:
    """A child process holding one Measurement Set; every request has a time limit.

    Parameters
    ----------
    path : Path
        The Measurement Set.
    time_limit : float, s
        Longest silence of the child that is waited for. It reports at every chunk of data, so this
        limits waiting for locks and storage, not the reading of a large set.
    """

    def __init__(self, path: Path, time_limit: float) -> None:
        if not time_limit > 0:
            raise InputError(f"time_limit must be positive seconds, got {time_limit}")
        self.path = path
        self.time_limit = time_limit
        self._step = "starting"
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self._process = self._start()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
                with contextlib.suppress(OSError):  # a user may be at the limit of pipe memory
                    fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._deadline = time.monotonic() + START_LIMIT
            self.receive()
        except BaseException:
            self.close()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        """Spawn the interpreter anew: safe after CUDA and OpenMP, and without the user's __main__."""
        room = str(Path(__file__).parents[1])
        known = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": f"{room}{os.pathsep}{known}" if known else room}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "biro._ms_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            bufsize=0,
            start_new_session=True,  # Ctrl-C reaches us alone; close() then ends the child
        )

    def __enter__(self) -> MeasurementSetProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child, whatever it is doing, and collect it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # A child that finished sees its input end and leaves at once.
                self._process.wait(0.2 if self._step == "idle" else 0)
            self._process.kill()
        self._process.wait()
        self._stderr.close()

    def call(self, operation: str, array: NDArray[Any] | None = None, **options: Any) -> Head:
        """Ask for something whose answer has no array."""
        self.send({"operation": operation, **options}, array)
        return self.receive()[0]

    def send(self, head: Head, array: NDArray[Any] | None = None) -> None:
        """Send one message."""
        self._deadline = time.monotonic() + self.time_limit
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        for part in pack(head, array):
            while part:
                self._wait(pipe, select.POLLOUT)
                try:
                    part = part[os.write(pipe, part) :]
                except BrokenPipeError:
                    self._raise_death()

    def receive(self) -> tuple[Head, NDArray[Any] | None]:
        """The next answer; reports of progress on the way renew the time limit."""
        while True:
            head, array = unpack(self._fill)
            self._deadline = time.monotonic() + self.time_limit
            if "error" in head:
                raise MeasurementSetError(f"{self.path}: {head['error']}")
            if "step" not in head:
                self._step = "idle"
                return head, array
            self._step = head["step"]

    def _fill(self, buffer: memoryview) -> None:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while buffer:
            self._wait(pipe, select.POLLIN)
            got = os.readv(pipe, [buffer])
            if not got:
                self._raise_death()
            buffer = buffer[got:]

    def _wait(self, pipe: int, event: int) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        left = self._deadline - time.monotonic()
        if not poll.poll(max(0.0, left) * 1e3):
            holders = lock_holders(self.path)
            why = (
                f"it is locked by {', '.join(holders)}; wait for that to finish or end it"
                if holders
                else "it may be locked by a process on another machine, or its storage does not answer"
            )
            raise MeasurementSetError(
                f"{self.path}: gave up after {self.time_limit:g} s while {self._step}: {why}"
                " (time_limit sets how long to wait)"
            )

    def _raise_death(self) -> None:
        try:
            code = self._process.wait(self.time_limit)
        except subprocess.TimeoutExpired:  # its pipes are closed, but the library does not let it end
            self._process.kill()
            code = self._process.wait()
        if code == -signal.SIGKILL:
            why = "was killed (out of memory?)"
        elif code < 0:
            why = f"died with {signal.Signals(-code).name}"
        else:
            why = f"ended with code {code}"
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        said = f" ({last[0].strip()})" if last else ""
        raise MeasurementSetError(
            f"{self.path}: the process reading or writing it {why} while {self._step}{said};"
            " the set is probably truncated or corrupt, or the disk is full"
        )


def lock_holders(path: Path) -> list[str]:
    """Processes of this machine that hold a lock on the main table or a subtable: "process 12 (casa)".

    casacore locks byte 0 of table.lock while it reads or writes; the bytes behind only say that a table
    is open.
    """
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return []
    inodes = set()
    for file in (path / "table.lock", *path.glob("*/table.lock")):
        with contextlib.suppress(OSError):
            inodes.add(str(file.stat().st_ino))
    holders = {}
    for line in locks.splitlines():
        word = line.split()
        # "1: POSIX  ADVISORY  WRITE 4242 08:01:123456 0 1"; one who waits has "->" as second word.
        if len(word) >= 8 and word[1] != "->" and word[6] == "0" and word[5].rsplit(":", 1)[-1] in inodes:
            holders[word[4]] = f"process {word[4]}{_command(word[4])}"
    return list(holders.values())


def _command(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return f" ({' '.join(words).strip()[:80]})" if words[0] else ""
