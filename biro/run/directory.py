"""The run directory: what was run on what, held against what is asked for when a run is resumed."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import re
import signal
import socket
import stat
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from biro.errors import RunError

log = logging.getLogger(__name__)

FORMAT = 1
DIGESTS = {
    "data": "the data (or their selection) changed",
    "model": "the model changed",
    "likelihood": "the precision, the frame of Gaussians or an image changed",
}
"""Settings that are hashes, and what it means when one differs."""
LOGGERS = ("biro", "rime_kernels")
"""Roots of our loggers."""
_LITTER = re.compile(r"\.[a-z]+\.(json|toml|bin|npz|nc)\.\d+\.tmp")
"""Temporary files of `write_atomic`."""
_MAX_RECORD = 16 << 20
PACKAGES = (
    "numpy", "scipy", "numba", "emcee", "dynesty", "nutpie", "astropy", "h5py", "python-casacore",
    "numba-cuda",
)  # fmt: skip


class RunInterrupted(RunError):  # noqa: N818 - a stop that was asked for
    """A run was stopped by a signal after its state was saved; the same command goes on with it."""


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in ("biro-rime", *PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file as a whole or not at all (temporary file, flush to disk, rename)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class RunDirectory:
    """A directory that one run owns.

    It holds `run.json`, `model.toml`, `log.txt`, the sampler's own file, and at the end `posterior.nc`.

    Parameters
    ----------
    path : path
        Made when missing. An existing run there is resumed if everything that decides the result is
        as it was.
    settings : mapping
        Everything that decides the result, as plain JSON values; "options" may be a mapping.
    may_change : collection of str
        Options that may differ on resuming, because what was sampled already does not depend on them.
    facts : mapping
        More for the record (versions are added here).
    model_toml : str
        The resolved model.

    Raises
    ------
    RunError
        Another process runs there, something changed, or the directory holds other things.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        may_change: tuple[str, ...] = (),
        facts: Mapping[str, Any] | None = None,
        model_toml: str = "",
    ) -> None:
        self.path = Path(path)
        self._make()
        self._lock = _Lock(self.path / "lock")
        try:
            self._record = self._resume(settings, may_change) or self._begin(settings, facts or {})
            # After the record, so that a run killed between the two is still ours.
            if model_toml and not (self.path / "model.toml").exists():
                self._write("model.toml", model_toml)
        except BaseException:
            self._lock.release()
            raise
        self._log = _LogFile(self.path / "log.txt")

    def __enter__(self) -> RunDirectory:
        settings = self._record["settings"]
        word = "goes on" if self._record["resumed"] else "begins"
        log.info("%s, seed %s: %s", settings.get("sampler"), settings.get("seed"), word)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        log.info("ends" if error is None else f"ends: {error or type(error).__name__}")
        self._log.close()
        self._lock.release()

    @property
    def run_id(self) -> str:
        """A random name that this run was given when it began."""
        return self._record["run_id"]

    @property
    def finished(self) -> bool:
        """Whether the posterior has been written."""
        return self._record.get("finished") is not None and self.posterior_path.is_file()

    @property
    def posterior_path(self) -> Path:
        return self.path / "posterior.nc"

    @property
    def record(self) -> Mapping[str, Any]:
        """What `run.json` says."""
        return self._record

    def finish(self) -> None:
        """Note that the posterior is there.

        Raises
        ------
        OSError
            The disk is full, for instance.
        """
        write_atomic(self.path / "run.json", _record_text({**self._record, "finished": _now()}).encode())
        self._record["finished"] = _now()

    def reopen(self, options: Mapping[str, Any]) -> None:
        """Note that the run goes on, with options that may have changed."""
        self._record["finished"] = None
        self._record["settings"]["options"] = dict(options)
        self._write("run.json", _record_text(self._record))

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"run directory {self.path} cannot be made: {error.strerror}") from error
        if not os.access(self.path, os.W_OK):
            raise RunError(f"run directory {self.path} cannot be written to; choose another with run_dir")
        for entry in self.path.iterdir():
            # Written to, a link would change a file elsewhere, and a pipe waits for ever.
            if not entry.is_dir() and not stat.S_ISREG(entry.lstat().st_mode):
                raise RunError(f"{entry} is no plain file: remove it, or give another directory")

    def _begin(self, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        strangers = sorted(p.name for p in self.path.iterdir() if not _is_ours(p.name))
        if strangers:
            raise RunError(
                f"{self.path} holds {strangers[0]!r} but no run.json, so no run of ours began there; "
                "give an empty or new directory"
            )
        self._record = {
            "format": FORMAT,
            "run_id": uuid.uuid4().hex,
            "settings": _plain(settings),
            "facts": _plain(facts),
            "versions": versions(),
            "platform": {"system": platform.system(), "machine": platform.machine(), "cpus": os.cpu_count()},
            "started": _now(),
            "resumed": [],
            "finished": None,
        }
        try:
            write_atomic(self.path / "run.json", _record_text(self._record).encode())
        except OSError as error:
            raise RunError(
                f"no run can begin in {self.path}: {error.strerror}; make room or give another directory"
            ) from error
        return self._record

    def _resume(self, settings: Mapping[str, Any], may_change: tuple[str, ...]) -> dict[str, Any] | None:
        record = read_record(self.path)
        if record is None:
            return None
        changes = list(_changes(record["settings"], _plain(settings), may_change))
        if {DIGESTS["data"], DIGESTS["model"]} & {*changes}:
            changes = [change for change in changes if change != DIGESTS["likelihood"]]  # follows from these
        if changes:
            raise RunError(
                f"{self.path} holds a run that differs: {'; '.join(changes)}. "
                "Give the same data, model and options to resume it, or another directory"
            )
        self._record = record
        if record.get("finished") is None:
            record["resumed"].append(_now())
            self._sweep()
            self._write("run.json", _record_text(record))
        return record

    def _write(self, name: str, text: str) -> None:
        """Write a file of a run that has begun: it goes on where that cannot be done."""
        try:
            write_atomic(self.path / name, text.encode())
        except OSError as error:
            log.warning("%s cannot be written (%s); the run goes on", self.path / name, error.strerror)

    def _sweep(self) -> None:
        """Remove what processes that were killed in the middle of a write have left."""
        for path in self.path.iterdir():
            if _LITTER.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()


def _record_text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2) + "\n"


def _is_ours(name: str) -> bool:
    """Whether a run that was killed before its record was written may have left a file of this name."""
    return name in ("lock", "log.txt") or (name.startswith(".run.json.") and name.endswith(".tmp"))


def read_record(path: Path) -> dict[str, Any] | None:
    """Contents of a run directory's `run.json`; None when there is none.

    Raises
    ------
    RunError
        It is broken, or of another format.
    """
    place = path / "run.json"
    try:
        if place.exists() and not place.is_file():
            raise ValueError("not a file")
        if place.exists() and place.stat().st_size > _MAX_RECORD:
            raise ValueError(f"larger than {_MAX_RECORD >> 20} MiB")
        record = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path / 'run.json'} cannot be read ({error}); give another directory") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RunError(
            f"{path / 'run.json'} is not of format {FORMAT}; resume it with the version that began it"
        )
    if not {"run_id", "settings", "resumed"} <= record.keys():
        raise RunError(f"{path / 'run.json'} is incomplete; give another directory")
    kinds = {"run_id": str, "settings": dict, "resumed": list, "facts": dict}
    for name, kind in kinds.items():
        if not isinstance(record.setdefault(name, {}), kind):
            raise RunError(f"{path / 'run.json'} is damaged ({name}); give another directory")
    if not isinstance(record["facts"].get("likelihood") or {}, dict):
        raise RunError(f"{path / 'run.json'} is damaged (likelihood); give another directory")
    return record


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], may_change: tuple[str, ...]) -> Iterator[str]:
    for key in sorted({*old, *new} - set(may_change)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changes(before, after, may_change)
        elif before != after:
            yield DIGESTS.get(key, f"{key} was {before}, is {after}")


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _FileHandler(logging.FileHandler):
    """Says once that its file cannot be written, and lets the program go on."""

    failed = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # the file could not be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self.failed:
            self.failed = True
            log.warning("%s cannot be written (%s); the run goes on", self.baseFilename, error.strerror)

    def close(self) -> None:
        with suppress(OSError):  # what it still holds back cannot be written either
            super().close()


class _LogFile:
    """Puts what our loggers say from INFO on into a file as well."""

    def __init__(self, path: Path) -> None:
        self._file = _FileHandler(path, encoding="utf-8", delay=True)
        self._file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._file.setLevel(logging.INFO)
        self._before: list[tuple[logging.Logger, int, logging.Handler]] = []
        for name in LOGGERS:
            logger = logging.getLogger(name)
            # Python itself prints warnings, but of loggers without handlers only; ours must not silence them.
            console = None if logger.hasHandlers() else logging.lastResort
            self._before.append((logger, logger.level, console or logging.NullHandler()))
            logger.addHandler(self._before[-1][2])
            logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
            logger.addHandler(self._file)

    def close(self) -> None:
        for logger, level, console in self._before:
            logger.removeHandler(self._file)
            logger.setLevel(level)
            logger.removeHandler(console)
        self._file.close()


class _Lock:
    """A kernel lock on a file that names its holder; it ends with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(f"{path.parent} cannot be locked: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 1000).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            raise RunError(
                f"{path.parent} is in use by {holder}; wait for it or give another directory"
            ) from None
        except OSError as error:
            log.warning(
                "%s: this file system has no locks (%s); start one run at a time", path.parent, error.strerror
            )
        self._write(f"process {os.getpid()} on {socket.gethostname()}\n")

    def release(self) -> None:
        self._write("")
        os.close(self._file)

    def _write(self, holder: str) -> None:
        with suppress(OSError):  # on a full disk the lock holds without words
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, holder.encode(), 0)


class StopFlag:
    """Set by the first SIGINT or SIGTERM; samplers look at it where their state can be saved."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def raise_interrupted(self, where: str) -> None:
        """End the run with one line that says how to go on."""
        name = signal.Signals(self.signal or signal.SIGINT).name
        raise RunInterrupted(f"stopped by {name}; {where}")


@contextmanager
def stop_on_signal() -> Iterator[StopFlag]:
    """Turn the first SIGINT or SIGTERM into a flag; a second one interrupts at once.

    Outside of the main thread, where Python allows no handlers, the flag is never set.
    """
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if flag:
            raise KeyboardInterrupt
        flag.signal = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
