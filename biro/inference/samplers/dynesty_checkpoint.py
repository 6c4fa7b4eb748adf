"""The signed file in which a run of dynesty keeps its sampler."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from dynesty import DynamicNestedSampler

from biro.errors import RunError
from biro.files.signed import read_signed, write_signed
from biro.inference.target.batching import BatchingPool

log = logging.getLogger(__name__)

FILE = "checkpoint.bin"
SAVE_EVERY = 5.0
"""Seconds between checkpoints; more where writing one takes more than a twentieth of that."""


class Checkpoint:
    """The signed file of a run's sampler.

    Parameters
    ----------
    path : path
    run_id : str
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path = path
        self._run_id = run_id
        self._due = time.monotonic() + SAVE_EVERY
        self._failed = False
        self._prefix = f"biro-{run_id}-"
        with suppress(OSError):
            for litter in Path(tempfile.gettempdir()).glob(f"{self._prefix}*"):
                shutil.rmtree(litter, ignore_errors=True)  # of processes of this run that were killed

    def save(self, sampler: DynamicNestedSampler, *, now: bool = False) -> None:
        """Save if it is time to, or `now`. A full disk is reported once and tried again."""
        if not now and time.monotonic() < self._due:
            return
        begun = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix=self._prefix) as folder:
                sampler.save(f"{folder}/sampler")
                write_signed(self._path, self._run_id, Path(folder, "sampler").read_bytes())
        except OSError as error:
            if not self._failed:
                log.warning(
                    "%s cannot be written (%s); sampling continues in memory", self._path, error.strerror
                )
            self._failed = True
            return
        finally:
            ended = time.monotonic()
            self._due = ended + max(SAVE_EVERY, 20.0 * (ended - begun))
        if self._failed:
            log.warning("%s can be written again", self._path)
        self._failed = False

    def restore(self, pool: BatchingPool) -> DynamicNestedSampler | None:
        """The sampler as saved, or None when there is no file.

        Raises
        ------
        RunError
            The file is not this run's, or there is no room to unpack it.
        """
        if not self._path.exists():
            return None
        payload = read_signed(self._path, self._run_id)
        # dynesty wants a file; a private copy cannot change between check and use.
        try:
            with tempfile.TemporaryDirectory(prefix=self._prefix) as folder:
                copy = Path(folder, "sampler")
                copy.write_bytes(payload)
                return DynamicNestedSampler.restore(str(copy), pool=pool)
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be unpacked ({error}); free disk space, or set TMPDIR"
            ) from error
