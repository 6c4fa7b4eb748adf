"""The file of arrays in which a sampler keeps a run, written now and then."""

from __future__ import annotations

import io
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

from biro.files.atomic import write_atomic

log = logging.getLogger(__name__)

SAVE_EVERY, SAVE_SHARE = 5.0, 0.03
"""Seconds between writes, and the part of the time that they may take: what a kill can cost."""


class ArrayFile:
    """Where arrays of a run are kept.

    Parameters
    ----------
    path : path
    run_id : str
        Written into the file.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path, self._run_id = path, run_id
        self._due, self._failed = time.monotonic() + SAVE_EVERY, False

    @property
    def is_due(self) -> bool:
        """Whether it has not been written for a while, a longer one where that takes long."""
        return time.monotonic() >= self._due

    def write(self, arrays: dict[str, Any]) -> None:
        """Write arrays and numbers by name. A full disk is reported once and tried again."""
        begun, data = time.monotonic(), io.BytesIO()
        np.savez(data, allow_pickle=False, run_id=np.array(self._run_id), **arrays)
        try:
            write_atomic(self._path, data.getbuffer())
        except OSError as error:
            if not self._failed:
                log.warning(
                    "%s cannot be written (%s); sampling continues in memory", self._path, error.strerror
                )
            self._failed = True
            return
        finally:
            ended = time.monotonic()
            self._due = ended + max(SAVE_EVERY, (ended - begun) / SAVE_SHARE)
        if self._failed:
            log.warning("%s can be written again", self._path)
        self._failed = False
