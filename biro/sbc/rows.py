"""The file of finished replicates: one line of JSON for each, appended and flushed to disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypedDict

from biro.errors import RunError
from biro.files.atomic import why_not_written


class ReplicateRecord(TypedDict, total=False):
    """One replicate, as plain values: either an error or ranks."""

    replicate: int
    """Its number."""
    truth: list[float]
    """The parameters that were simulated."""
    error: str
    """Why it could not be fitted."""
    ranks: list[int]
    """Of each parameter and of the log-likelihood: how many draws lie below the truth."""
    effective: float
    """Smallest effective sample size of the fit."""
    converged: bool
    """Whether the sampler says that it has converged."""
    reduced_chi2: list[float]
    """Mean over the draws, and that of one draw; absent where the noise is not Gaussian."""
    seconds: float
    """What it took."""


class ReplicateRecords:
    """Finished replicates, in memory and on disk.

    Parameters
    ----------
    path : Path or None
        None: in memory only. Of what is there, a last line that a kill cut short does not count.

    Raises
    ------
    RunError
        The file cannot be read, or was not written by this class.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[int, ReplicateRecord] = {}
        self._whole = 0
        if path is not None and path.exists():
            self._read(path)

    @property
    def done(self) -> list[ReplicateRecord]:
        """By number."""
        return [self._rows[k] for k in sorted(self._rows)]

    def missing(self, n: int) -> list[int]:
        """Which of the first n are not there."""
        return [k for k in range(n) if k not in self._rows]

    def add(self, row: ReplicateRecord) -> None:
        """Put a row on disk.

        Raises
        ------
        RunError
            It cannot be written.
        """
        self._rows[row["replicate"]] = row
        if self._path is None:
            return
        try:
            self._append(self._path, (json.dumps(row) + "\n").encode())
        except OSError as error:
            raise RunError(
                f"{self._path}: replicate {len(self._rows)} cannot be written: "
                f"{why_not_written(self._path, error)}"
            ) from None

    def _append(self, path: Path, line: bytes) -> None:
        """Write after the last whole line."""
        with open(path, "r+b" if path.exists() else "xb") as file:
            file.seek(self._whole)
            file.write(line)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._whole += len(line)

    def _read(self, path: Path) -> None:
        try:
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            for line in whole.splitlines():
                row: ReplicateRecord = json.loads(line)
                self._rows[int(row["replicate"])] = row
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{path} cannot be read ({error}); give another directory") from None
        self._whole = len(whole)
