"""The run directory: what was run on what, compared with what is asked for when a run is resumed."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from biro.errors import RunError
from biro.files.atomic import remove_temporary_files, why_not_written, write_atomic
from biro.run.lock import RunLock
from biro.run.log_file import LogFile
from biro.run.record import RECORD, RunRecord, as_json, changes, new_record, now, read_record, record_bytes
from rime_kernels.arrays.whole_file import is_temporary

log = logging.getLogger(__name__)


class RunDirectory:
    """A directory that belongs to one run.

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
        What else to record; versions of packages are added to it.
    model_toml : str
        The resolved model.

    Raises
    ------
    RunError
        Another process uses the directory, something changed that decides the result, or the directory holds
        files of something else.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, object],
        *,
        may_change: tuple[str, ...] = (),
        facts: Mapping[str, object] | None = None,
        model_toml: str = "",
    ) -> None:
        self.path = Path(path)
        self._make()
        self._lock = RunLock(self.path / "lock")
        try:
            self._record = self._resume(settings, may_change) or self._begin(settings, facts or {})
            # Written after the record: a run that is killed between the two can be resumed.
            if model_toml and not (self.path / "model.toml").exists():
                self._write("model.toml", model_toml.encode())
        except BaseException:
            self._lock.release()
            raise
        self._log = LogFile(self.path / "log.txt")

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
        """The file of the result, there or not yet."""
        return self.path / "posterior.nc"

    @property
    def record(self) -> RunRecord:
        """What `run.json` says."""
        return self._record

    def finish(self) -> None:
        """Record that the posterior has been written.

        Raises
        ------
        OSError
            The disk is full, for instance.
        """
        write_atomic(self.path / RECORD, record_bytes({**self._record, "finished": now()}))
        self._record["finished"] = now()

    def reopen(self, options: Mapping[str, object]) -> None:
        """Record that the run goes on, with options that may have changed."""
        self._record["finished"] = None
        self._record["settings"]["options"] = dict(options)
        self._write(RECORD, record_bytes(self._record))

    def _make(self) -> None:
        """Make the directory, or check that one that exists can be used."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"run directory {self.path} cannot be made: {error.strerror}") from error
        if not os.access(self.path, os.W_OK):
            raise RunError(f"run directory {self.path} cannot be written to; choose another with run_dir")
        for entry in self.path.iterdir():
            # Writing to a link would change a file elsewhere; writing to a pipe would wait for ever.
            if not entry.is_dir() and not stat.S_ISREG(entry.lstat().st_mode):
                raise RunError(f"{entry} is no plain file: remove it, or give another directory")

    def _begin(self, settings: Mapping[str, object], facts: Mapping[str, object]) -> RunRecord:
        """Begin a run in a directory without a record."""
        other_files = sorted(p.name for p in self.path.iterdir() if not _is_ours(p.name))
        if other_files:
            raise RunError(
                f"{self.path} holds {other_files[0]!r} but no run.json, so it is no run directory of biro; "
                "give an empty or new directory"
            )
        record = new_record(settings, facts)
        try:
            write_atomic(self.path / RECORD, record_bytes(record))
        except OSError as error:
            raise RunError(
                f"no run can begin in {self.path}: {why_not_written(self.path / RECORD, error)}"
            ) from error
        return record

    def _resume(self, settings: Mapping[str, object], may_change: tuple[str, ...]) -> RunRecord | None:
        """Go on with the run of this directory; None where there is none."""
        record = read_record(self.path)
        if record is None:
            return None
        differences = changes(record["settings"], as_json(settings), may_change)
        if differences:
            raise RunError(
                f"{self.path} holds a run that differs: {'; '.join(differences)}. "
                "Give the same data, model and options to resume it, or another directory"
            )
        if record.get("finished") is None:
            record["resumed"].append(now())
            remove_temporary_files(self.path)
            self._write(RECORD, record_bytes(record))
        return record

    def _write(self, name: str, data: bytes) -> None:
        """Write a file of a run that has begun; where that fails, warn and let the run go on."""
        try:
            write_atomic(self.path / name, data)
        except OSError as error:
            log.warning("%s cannot be written (%s); the run continues", self.path / name, error.strerror)


def _is_ours(name: str) -> bool:
    """Whether a run that was killed before its record was written may have left a file of this name."""
    return name in ("lock", "log.txt") or (name.startswith(".run.json.") and is_temporary(name))
