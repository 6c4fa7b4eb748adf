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
STATE = {"emcee": "chain.bin", "dynesty": "checkpoint.bin", "nuts": "draws.npz", "tempering": "tempering.npz"}
SAMPLERS = [*STATE, "none"]
if importlib.util.find_spec("nutpie") is None:
    SAMPLERS.remove("nuts")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("signals")
    words = [sys.executable, str(LAUNCHER), "signals", str(folder), *SAMPLERS]
    places = {"XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | places)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "nobody prints to stdout, where the answer of a command goes"
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_sigterm_saves_says_one_line_and_exits_130(found: dict[str, Any], sampler: str) -> None:
    run = found[f"{sampler} once"]
    assert run["code"] == 130
    (line,) = run["said"]
    assert line.startswith("biro: stopped by SIGTERM; ")
    assert line.lower().endswith(("the same command continues from there", "the same command starts again"))
    if sampler in STATE and "continues" in line:
        assert STATE[sampler] in run["left"]
    assert "posterior.nc" not in run["left"]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_second_ctrl_c_leaves_at_once(found: dict[str, Any], sampler: str) -> None:
    """Although a likelihood call has ten seconds to go."""
    run = found[f"{sampler} twice"]
    assert run["code"] == 130
    assert run["said"] == ["biro: interrupted"]
    assert run["seconds"] < 8.0


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_two_ctrl_c_at_random_moments_end_every_run(found: dict[str, Any], sampler: str) -> None:
    """Wherever they come. What waits for something that the second one has cut short would wait for ever."""
    run = found[f"{sampler} at random"]
    # By the signal itself, if it comes with the last line or as Python ends: a shell makes 130 of that, too.
    assert set(run["codes"]) <= {130, -signal.SIGINT}
    assert run["longest"] < 25.0, "a run that is stuck is killed after 30 s"
