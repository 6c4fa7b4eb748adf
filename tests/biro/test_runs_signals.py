"""SIGTERM and Ctrl-C in the middle of a run of every sampler, behind the guard of the command line."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAUNCHER = Path(__file__).parent / "launcher.py"
STATE = {"emcee": "chain.bin", "dynesty": "checkpoint.bin", "nuts": "draws.npz"}
NO_NUTPIE = importlib.util.find_spec("nutpie") is None
SAMPLERS = [
    pytest.param(
        name, marks=pytest.mark.skipif(name == "nuts" and NO_NUTPIE, reason="nutpie is not installed")
    )
    for name in (*STATE, "none")
]


def stopped(folder: Path, sampler: str, number: signal.Signals, how: str) -> dict[str, Any]:
    words = [sys.executable, str(LAUNCHER), "signals", sampler, str(folder), str(int(number)), how]
    places = {"XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | places)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "nobody prints to stdout, where the answer of a command goes"
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_sigterm_saves_says_one_line_and_exits_130(tmp_path: Path, sampler: str) -> None:
    found = stopped(tmp_path, sampler, signal.SIGTERM, "once")
    assert found["code"] == 130
    (line,) = found["said"]
    assert line.startswith("biro: stopped by SIGTERM; ")
    assert line.endswith(("the same command goes on from there", "the same command begins again"))
    if sampler in STATE and "goes on" in line:
        assert STATE[sampler] in found["left"]
    assert "posterior.nc" not in found["left"]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path, sampler: str) -> None:
    """Although a likelihood call has ten seconds to go."""
    found = stopped(tmp_path, sampler, signal.SIGINT, "twice")
    assert found["code"] == 130
    assert found["said"] == ["biro: interrupted"]
    assert found["seconds"] < 8.0
