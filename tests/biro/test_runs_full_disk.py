"""Runs on a disk (a small tmpfs) that is full for a while, to the end, or to begin with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAUNCHER = Path(__file__).parent / "launcher.py"
FILE = {"emcee": "chain.bin", "dynesty": "checkpoint.bin", "nuts": "draws.npz", "tempering": "tempering.npz"}
FULL = "No space left on device"


def namespace(folder: Path) -> list[str]:
    """Words before a command that let it mount; the mounts are its own and end with it."""
    for words in (["unshare", "-m"], ["unshare", "-rm"]):
        trial = [*words, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
        try:
            if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
                return words
        except OSError:
            continue
    pytest.skip("nothing can be mounted here: neither as root nor in a user namespace")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("full")
    for name in ("disks", "temporary"):
        (folder / name).mkdir()
    places = {"XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder / "temporary")}
    words = [*namespace(folder / "disks"), sys.executable, str(LAUNCHER), "full_disks", str(folder / "disks")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | places)
    assert done.returncode == 0, done.stderr
    assert "Logging error" not in done.stderr
    assert "Traceback" not in done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("sampler", FILE)
def test_space_returns(found: dict[str, Any], sampler: str) -> None:
    """The run goes on in memory, says so once, tries again, and its files are whole."""
    if sampler in found:
        pytest.skip(found[sampler])
    run = found[f"{sampler} for a while"]
    first, again = run["heard"]
    assert (
        first == f"WARNING DISK/run/{FILE[sampler]} cannot be written ({FULL}); sampling continues in memory"
    )
    assert again == f"WARNING DISK/run/{FILE[sampler]} can be written again"
    assert run["finished"]
    assert run.get("saved_steps", 1.0) == 1.0
    assert run["log"].endswith("INFO biro.run.directory: ends\n")
    assert run["same"]
    assert run["calls_again"] == 0, "a finished run is read"


@pytest.mark.parametrize("sampler", FILE)
def test_it_stays_full(found: dict[str, Any], sampler: str) -> None:
    """The posterior is returned, and kept elsewhere; the same command goes on from the last good file."""
    if sampler in found:
        pytest.skip(found[sampler])
    run = found[f"{sampler} to the end"]
    first, last = run["heard"]
    assert first.startswith(f"WARNING DISK/run/{FILE[sampler]} cannot be written ({FULL})")
    assert last.startswith(f"ERROR DISK/run/posterior.nc cannot be written ({FULL}); it is in ")
    assert run["spare"] == [True]
    assert not run["finished"]
    assert run["same"] or sampler == "nuts", "NUTS goes on with other random numbers"
    assert run["calls_again"] > 0
    files = {FILE[sampler], "lock", "log.txt", "model.toml", "posterior.nc", "run.json"}
    # emcee and NUTS keep the maximum from which they begin.
    assert set(run["left"]) == files | ({"maximum.json"} if sampler in ("emcee", "nuts") else set())


def test_a_maximum_is_returned_all_the_same(found: dict[str, Any]) -> None:
    run = found["none to the end"]
    assert f"WARNING DISK/run/maximum.json cannot be written ({FULL}); the run continues" in run["heard"]
    assert run["heard"][-1].startswith(f"ERROR DISK/run/posterior.nc cannot be written ({FULL}); it is in ")
    assert run["same"]
    assert {"maximum.json", "posterior.nc"} < set(run["left"])


def test_nothing_can_begin(found: dict[str, Any]) -> None:
    assert found["begun"] == (
        "no run can begin in DISK/run: No space left on device (0.0 MB are free in DISK/run): make room, and "
        "give the same command again"
    )
