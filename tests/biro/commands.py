"""Commands of biro, run in the process of the test, and the words of a small simulation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from biro.cli.app import app

SOURCE = '[[source]]\nname = "a"\neast = "0 arcsec"\nnorth = "0 arcsec"\n'
KAT_7 = (
    *("--telescope", "KAT-7", "--phase-centre", "05h00m00s -45d00m00s", "--start", "2026-03-01"),
    *("--duration", "3 min", "--integration", "60 s", "--freq", "1.8 GHz", "--chan-width", "1 MHz"),
)
"""21 baselines at 3 times and 1 channel, linear feeds."""


def biro(*words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def works(*words: str | Path) -> Any:
    """What a command says that ends well."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """What another process of Python says."""
    options = {"capture_output": True, "text": True, "check": False} | options
    return subprocess.run([sys.executable, *map(str, words)], **options)
