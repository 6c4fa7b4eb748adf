"""Runs of every sampler killed with SIGKILL ten times, at random moments, and resumed after each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biro.inference.posterior.posterior import Posterior

LAUNCHER = Path(__file__).parent / "launcher.py"
MEAN, SIGMA = np.array([1.0, -1.0]), np.array([0.3, 0.5])
N_KILL = 10


def killed(sampler: str, folder: Path, pause: float, most_calls: int) -> tuple[dict[str, Any], Posterior]:
    """What the launcher counted; every run was ended by its kill but for the last, and left no litter."""
    (folder / "temporary").mkdir()
    places = {"XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder / "temporary")}
    words = [
        sys.executable,
        str(LAUNCHER),
        "kills",
        sampler,
        str(folder),
        str(N_KILL),
        str(pause),
        str(most_calls),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | places)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed_by"] == [signal.SIGKILL] * N_KILL, done.stderr
    assert (found["last"], found["whole"]) == (0, 0), done.stderr
    assert len(json.loads((folder / "killed" / "run.json").read_text())["resumed"]) > N_KILL / 2
    assert not list((folder / "killed").glob(".*"))
    assert not list((folder / "temporary").iterdir())
    return found, Posterior.load(folder / "killed" / "posterior.nc")


@pytest.mark.parametrize(
    ("sampler", "most_lost", "pause", "most_calls"),
    [
        # Checkpoints are due every 20 calls. A step of emcee takes 2; 16 find the maximum before the first.
        ("emcee", 20 + 2 + 16, 0.002, 120),
        # Between two iterations of dynesty its queue is filled, with 10 calls, once or several times.
        ("dynesty", 20 + 100, 0.002, 120),
        # A step takes 1; some 400 adapt the temperatures, of which nothing is saved.
        pytest.param("tempering", 20 + 1 + 600, 0.0, 1200, marks=pytest.mark.slow),
    ],
)
def test_it_is_the_same_run(
    tmp_path: Path, sampler: str, most_lost: int, pause: float, most_calls: int
) -> None:
    found, posterior = killed(sampler, tmp_path, pause, most_calls)
    whole = Posterior.load(tmp_path / "whole" / "posterior.nc")
    assert np.array_equal(posterior.samples, whole.samples)
    assert np.array_equal(posterior.log_likelihood, whole.log_likelihood)
    assert posterior.log_evidence == whole.log_evidence
    assert sum(found["saves"]) > 5, "the kills came in mid-run"
    assert max(found["calls_after_the_last_save"]) <= most_lost
    # What was evaluated again is what had not been saved.
    repeated = sum(found["calls"]) + found["calls_of_the_last"] - found["calls_of_the_whole"]
    assert repeated <= N_KILL * most_lost
    assert repeated <= sum(found["calls_after_the_last_save"])


def test_nuts_goes_on_from_its_draws(tmp_path: Path) -> None:
    pytest.importorskip("nutpie", reason="nutpie is not installed")
    # Some 500 calls tune the chains, again some 200 each time they go on, and 8000 or more make their draws:
    # 1200 at most before each kill, so that draws are there, and never all of them.
    _, posterior = killed("nuts", tmp_path, 0.0, 1200)
    log = (tmp_path / "killed" / "log.txt").read_text()
    begun = [int(n) for n in re.findall(r"continuing from draw (\d+) of each chain", log)]
    assert begun == sorted(begun)
    assert begun[-1] > 0
    assert len(posterior.samples) == 4 * 2500
    # Means and variances of ESS independent draws: 4 of their errors; squares have at least a quarter of ESS.
    effective = posterior.effective
    assert (np.abs(posterior.samples.mean(axis=0) - MEAN) / SIGMA < 4 / np.sqrt(effective)).all()
    ratio = posterior.samples.var(axis=0) / SIGMA**2
    assert (np.abs(ratio - 1.0) < 4 * np.sqrt(2.0 / (0.25 * effective))).all()
