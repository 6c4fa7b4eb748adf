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
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from numpy.typing import NDArray

from biro.errors import InputError, MeasurementSetError
from biro.files.child_messages import Head, pack, unpack
from biro.measurement_set.child.backup import put_back

PIPE_BYTES = 1 << 20
START_LIMIT = 120.0
"""Seconds that the child may take to start, on a machine however busy; apart from the user's limit."""
END_LIMIT = 5.0
"""Seconds that a killed child may take to end; one that waits for a dead storage may never."""
HOLDERS_LIMIT = 2.0
LONGEST = 1e6

Found = TypeVar("Found")


def in_time(limit: float, what: Callable[[], Found]) -> Found:
    """What a function gives that asks a storage which may never answer.

    Raises
    ------
    TimeoutError
        It took longer than `limit` seconds; the function is left to wait in its thread.
    """
    answer: list[Found] = []
    failure: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(what())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(limit)
    if failure:
        raise failure[0]
    if not answer:
        raise TimeoutError
    return answer[0]


def ask_storage(path: str | os.PathLike[str], limit: float, doing: str, what: Callable[[], Found]) -> Found:
    """`in_time`, for what is asked about a set; `doing` says it in errors.

    Raises
    ------
    MeasurementSetError
        No answer within `limit` seconds.
    """
    try:
        return in_time(limit, what)
    except TimeoutError:
        raise MeasurementSetError(
            f"{path}: gave up after {limit:g} s while {doing}: its storage does not answer"
            " (time_limit sets how long to wait)"
        ) from None


def existing_set(path: str | os.PathLike[str], time_limit: float) -> Path:
    """The path, absolute, of what looks like a casacore table; what a killed run left broken is put back.

    Raises
    ------
    MeasurementSetError
        There is none, or its storage does not answer within `time_limit` seconds.
    """
    if not isinstance(time_limit, int | float) or not 0 < time_limit <= LONGEST:
        raise InputError(f"time_limit must be positive seconds, at most {LONGEST:g}, got {time_limit!r}")
    try:
        return ask_storage(path, time_limit, "looking for table.dat", lambda: _existing_set(path))
    except OSError as error:
        raise MeasurementSetError(f"{path}: cannot be looked at: {error.strerror}") from None


def _existing_set(path: str | os.PathLike[str]) -> Path:
    place = Path(path).expanduser().absolute()
    try:
        str(place).encode()
    except UnicodeEncodeError:
        raise MeasurementSetError(
            f"{path}: not a name in UTF-8, which casacore needs; rename it, or make a link to it"
        ) from None
    if not place.exists():
        raise MeasurementSetError(f"{path}: no such file or folder")
    if not place.is_dir():
        raise MeasurementSetError(
            f"{path}: a file, but a Measurement Set is a folder (unpack an archive; convert UVFITS with"
            " CASA's importuvfits)"
        )
    if not (place / "table.dat").is_file():
        raise MeasurementSetError(f"{path}: a folder, but not a Measurement Set: it has no table.dat")
    try:
        put_back(place)
    except OSError as error:
        raise MeasurementSetError(
            f"{path}: a run that wrote to it was interrupted, and left it broken; what mends it cannot be"
            f" written ({error.strerror}): do anything with it once as a user who may write to it"
        ) from None
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

    Attributes
    ----------
    writing : bool
        The set is being changed: set by who changes it, for the words of errors.
    """

    writing = False

    def __init__(self, path: Path, time_limit: float) -> None:
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
        room = str(Path(__file__).parents[2])
        known = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": f"{room}{os.pathsep}{known}" if known else room}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "biro.measurement_set.child"],
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
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_LIMIT)
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
            holders = self._holders()
            why = (
                f"it is locked by {', '.join(holders)}; wait for that to finish or end it"
                if holders
                else "it may be locked by a process on another machine, or its storage does not answer"
            )
            raise MeasurementSetError(
                f"{self.path}: gave up after {self.time_limit:g} s while {self._step}: {why}"
                " (time_limit sets how long to wait)"
            )

    def _holders(self) -> list[str]:
        try:
            holders = in_time(HOLDERS_LIMIT, lambda: lock_holders(self.path))
        except TimeoutError:
            return []
        return [who for pid, who in holders.items() if pid != self._process.pid]

    def _raise_death(self) -> None:
        try:
            code = self._process.wait(self.time_limit)
        except subprocess.TimeoutExpired:  # its pipes are closed, but the library does not let it end
            self._process.kill()
            code = -signal.SIGKILL
        if code == -signal.SIGKILL:
            why = "was killed (out of memory?)"
        elif code < 0:
            why = f"died with {signal.Signals(-code).name}"
        else:
            why = f"ended with code {code}"
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        said = f" ({last[0].strip()})" if last else ""
        doubt = "" if self.writing else "; the set is probably truncated or corrupt, or the disk is full"
        work = "writing" if self.writing else "reading"
        raise MeasurementSetError(f"{self.path}: the process {work} it {why} while {self._step}{said}{doubt}")


def lock_holders(path: Path) -> dict[int, str]:
    """Processes of this machine that hold a lock on the main table or a subtable: {12: "process 12 (casa)"}.

    casacore locks byte 0 of table.lock while it reads or writes; the bytes behind only say that a table
    is open.
    """
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return {}
    inodes = set()
    for file in (path / "table.lock", *path.glob("*/table.lock")):
        with contextlib.suppress(OSError):
            inodes.add(str(file.stat().st_ino))
    holders = {}
    for line in locks.splitlines():
        word = line.split()
        # "1: POSIX  ADVISORY  WRITE 4242 08:01:123456 0 1"; one who waits has "->" as second word.
        if len(word) >= 8 and word[1] != "->" and word[6] == "0" and word[5].rsplit(":", 1)[-1] in inodes:
            holders[int(word[4])] = f"process {word[4]}{_command(word[4])}"
    return holders


def _command(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return f" ({' '.join(words).strip()[:80]})" if words[0] else ""
