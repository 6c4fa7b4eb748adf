"""Each command that writes, on a full disk (a small tmpfs): one line, nothing is lost or incomplete.

`python full_disk_program.py` tries more commands and numbers of bytes left than are tried here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import works
from full_disk_program import SIMULATION
from test_runs_full_disk import namespace

PROGRAM = Path(__file__).with_name("full_disk_program.py")
SKY = '[[source]]\nname = "a"\neast = "0 arcsec"\nnorth = "0 arcsec"\n'
SPACE = r"No space left on device \(0\.0 MB are free in \S+\): make room, and give the same command again"
NO_ROOM = r"\(No space left on device\)"
FULL = r"its disk is full \(0.0 MB free\), make room; "
EXPECTED: dict[str, tuple[int, str, list[str]]] = {
    # command: (exit code, its last line, files that are new)
    "fit --cache": (
        2,
        rf"DISK/obs.ms-\w+: cannot be written: {SPACE}",
        [
            r"obs.ms-\w+/about.json",
            *(rf"obs.ms-\w+/partition0-shard0.{name}.npy" for name in ("vis", "weight")),
        ],
    ),
    "plot": (
        3,
        f"the posterior is in DISK/run/posterior.nc, but DISK/run/sky.png cannot be written {NO_ROOM}; free "
        "disk space, then: biro plot DISK/run",
        [],
    ),
    "flag --select": (
        2,
        "DISK/obs.ms: a copy of the flags needs 1.1 MB, but its disk has 0.0 MB free: make room; nothing "
        "was changed",
        [],
    ),
    "flag copy": (2, r"DISK/new.uvfits: needs 0.2 MB, but 0.0 MB are free on its disk: make room", []),
    "flag --pictures": (
        3,
        rf"nothing is flagged, but DISK/new/waterfall-0.png cannot be written {NO_ROOM}; make room, "
        r"then draw them by biro flag \S+ --dry-run --pictures DISK/new --overwrite",
        [],
    ),
    "flag --undo": (
        2,
        rf"DISK/flagged.ms: broken off .*: No space left on device; {FULL}"
        r"FLAG may be incomplete, but the previous flags are saved\. Repeat the command to finish",
        [],
    ),
    "predict column": (
        2,
        r"DISK/obs.ms: column MODEL_DATA needs \S+ MB, but its disk has 0.1 MB free: make room; nothing was "
        "changed",
        [],
    ),
    "predict npz": (2, rf"DISK/new.npz: cannot be written: {SPACE}", []),
    "solve": (
        3,
        rf"the gains are in DISK/new/gains.npz, but DISK/new/gains.G: cannot be made: {FULL}.*; the same "
        "command with --overwrite writes all",
        ["new/gains.npz"],
    ),
    "simulate, unseen": (2, rf"DISK/new.ms: cannot be made: {FULL}.*", []),
    "simulate --overwrite, unseen": (2, r"DISK/obs.ms: cannot be made: its disk is full .*", []),
    "image": (
        3,
        rf"DISK/new.fits, DISK/new-psf.fits written, but DISK/new.png: cannot be written: {SPACE}",
        ["new-psf.fits", "new.fits"],
    ),
    "image --cube": (2, rf"DISK/new-psf.fits: cannot be written: {SPACE}", []),
    "convert mod": (2, rf"DISK/new.mod: cannot be written: {SPACE}", []),
    "convert run": (2, rf"DISK/new.skymodel: cannot be written: {SPACE}", []),
    "find": (2, rf"DISK/new.toml: cannot be written: {SPACE}", []),
    "sbc": (
        2,
        rf"DISK/new/replicates.jsonl: replicate 1 cannot be written: {SPACE}",
        ["new/lock", "new/log.txt", "new/replicates.jsonl", "new/run.json"],
    ),
    "demo": (2, r"DISK/new/demo.ms: needs about 4 MB, but 0 MB are free on its disk: make room", []),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("full")
    disk = folder / "disk"
    disk.mkdir()
    words = namespace(disk)
    (folder / "sky.toml").write_text(SKY + 'I = "1 Jy"\n')
    (folder / "raw.toml").write_text(SKY + 'I = "1 Jy"\n[feeds]\nrotation = "present"\n')
    (folder / "free.toml").write_text(SKY + 'I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n')
    shutil.copyfile(data_dir / "SR1_M87_2017_100_lo_hops_netcal_StokesI.uvfits", folder / "obs.uvfits")
    obs, flagged = folder / "obs.ms", folder / "flagged.ms"
    works("simulate", obs, *(str(folder / word[3:]) if word[:3] == "IN/" else word for word in SIMULATION))
    shutil.copytree(obs, flagged)
    works("flag", flagged, "--select", "antenna=ant1")
    fit = ("--sampler", "none", "--seed", "1", "--no-pictures", "--backend", "cpu")
    works("fit", obs, folder / "free.toml", "-o", folder / "run", *fit)
    done = subprocess.run(
        [*words, sys.executable, str(PROGRAM), str(folder), str(disk), *EXPECTED],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("command", EXPECTED)
def test_a_full_disk_is_one_line_and_nothing_is_lost(found: dict[str, Any], command: str) -> None:
    (run,) = found[command]
    code, line, new = EXPECTED[command]
    assert run["crash"] == ""
    assert run["code"] == code, run["said"]
    assert re.fullmatch("biro: " + line, run["said"][-1]), run["said"][-1]
    assert sum(each.startswith("biro: ") for each in run["said"]) == 1
    assert (run["lost"], run["changed"]) == ([], [])
    assert len(run["new"]) == len(new), run["new"]
    assert all(re.fullmatch(of, name) for of, name in zip(new, run["new"], strict=True)), run["new"]
