"""The log file of a run: what the loggers of this project say from INFO on."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

NOTICE = 25
"""Level of what a command says without -v, though nothing is wrong: between INFO and WARNING."""
logging.addLevelName(NOTICE, "NOTICE")
LOGGERS = ("biro", "rime_kernels")
"""Roots of the loggers of this project."""


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
            log.warning("%s cannot be written (%s); the run continues", self.baseFilename, error.strerror)

    def close(self) -> None:
        with suppress(OSError):  # what it still holds back cannot be written either
            super().close()


class LogFile:
    """Writes messages of our loggers from INFO on into a file as well, until it is closed.

    Parameters
    ----------
    path : Path
        Messages are appended.
    """

    def __init__(self, path: Path) -> None:
        self._file = _FileHandler(path, encoding="utf-8", delay=True)
        self._file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._file.setLevel(logging.INFO)
        self._before: list[tuple[logging.Logger, int, logging.Handler]] = []
        for name in LOGGERS:
            logger = logging.getLogger(name)
            # Python prints warnings by itself, but only of loggers that have no handler. Ours gets one here,
            # so it also gets the one that would have printed.
            console = None if logger.hasHandlers() else logging.lastResort
            self._before.append((logger, logger.level, console or logging.NullHandler()))
            logger.addHandler(self._before[-1][2])
            logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
            logger.addHandler(self._file)

    def close(self) -> None:
        """Close the file and leave the loggers as they were."""
        for logger, level, console in self._before:
            logger.removeHandler(self._file)
            logger.setLevel(level)
            logger.removeHandler(console)
        self._file.close()
