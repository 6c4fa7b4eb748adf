"""Commands that write onto a disk, a small tmpfs, which is full: what they say, and what is left.

    python full_disk_program.py INPUTS DISK [COMMAND ...]

INPUTS has what the commands below name with IN. It prints a JSON
document: for each command and number of bytes left, `code`, `said`, and the files of the disk that are
`lost` or `changed`, and those that are `new`. To be called in a mount namespace of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from launcher import fill
from matplotlib.figure import Figure
from typer.testing import CliRunner

from biro.cli.app import app
from biro.io.measurement_set import new_set
from biro.io.measurement_set.new_set import SPARE_BYTES
from biro.plots import standard


class Case(NamedTuple):
    """A command, what is copied onto the disk for it, and numbers of bytes that are left there."""

    words: tuple[str, ...]
    left: tuple[int, ...] = (0,)
    copied: tuple[str, ...] = ()


SET, FLAGGED = ("obs.ms",), ("flagged.ms", "flagged.ms.flagversions")
RUN = ("--sampler", "none", "--seed", "1", "--backend", "cpu")
FIT = ("fit", "IN/obs.ms", "IN/free.toml", "-o")
SIMULATION = (
    *("IN/sky.toml", "--telescope", "KAT-7", "--seed", "1", "--phase-centre", "05h00m00s -45d00m00s"),
    *("--start", "2026-03-01", "--duration", "3 min", "--integration", "60 s", "--freq", "1.8 GHz"),
    *("--chan-width", "1 MHz", "--noise", "1 Jy"),
)
PREDICT = ("predict", "IN/obs.ms", "IN/sky.toml")
SBC = ("sbc", "IN/obs.ms", "IN/free.toml", "-o", "DISK/new", "--replicates", "10", "--workers", "1")
CASES = {
    "fit": Case((*FIT, "DISK/new", "--no-pictures", *RUN), (0, 12_000)),
    "fit --cache": Case((*FIT, "IN/new", "--no-pictures", *RUN, "--cache", "DISK"), (0, 16_000)),
    "fit --each": Case((*FIT, "DISK/new", "--each", "--workers", "1", *RUN)),
    "plot": Case(("plot", "DISK/run"), copied=("run",)),
    "plot --format pdf": Case(("plot", "DISK/run", "--format", "pdf"), copied=("run",)),
    "flag": Case(("flag", "DISK/wide.ms"), (0, 65_536), ("wide.ms",)),
    "flag --select": Case(("flag", "DISK/obs.ms", "--select", "antenna=ant1"), copied=SET),
    "flag copy": Case(
        ("flag", "IN/obs.uvfits", "--select", "channels=0", "-o", "DISK/new.uvfits"), (0, 9000)
    ),
    "flag --pictures": Case(("flag", "IN/obs.ms", "--dry-run", "--pictures", "DISK/new"), (0, 8192)),
    "flag --undo": Case(("flag", "DISK/flagged.ms", "--undo"), (0, 4096), FLAGGED),
    "predict column": Case(
        ("predict", "DISK/obs.ms", "IN/sky.toml", "--column", "MODEL_DATA"), (0, 65_536), SET
    ),
    "predict in place": Case(
        ("predict", "DISK/flagged.ms", "IN/sky.toml", "--column", "MODEL_DATA", "--subtract"), copied=FLAGGED
    ),
    "predict npz": Case((*PREDICT, "--out", "DISK/new.npz"), (0, 4096)),
    "predict uvfits": Case(
        ("predict", "IN/obs.uvfits", "IN/sky.toml", "--out", "DISK/new.uvfits"), (0, 9000)
    ),
    "solve": Case(("solve", "IN/obs.ms", "IN/raw.toml", "-o", "DISK/new"), (0, 12_288, 65_536)),
    "solve --corrected": Case(
        ("solve", "DISK/obs.ms", "IN/sky.toml", "-o", "IN/gains", "--corrected", "--overwrite"), copied=SET
    ),
    "simulate": Case(("simulate", "DISK/new.ms", *SIMULATION), (0, 1_500_000)),
    "simulate, unseen": Case(("simulate", "DISK/new.ms", *SIMULATION), (1_500_000, 2_300_000)),
    "simulate gains": Case(("simulate", "IN/new.ms", *SIMULATION, "--gain-amplitude", "0.1", "--overwrite")),
    "simulate --overwrite": Case(("simulate", "DISK/obs.ms", *SIMULATION, "--overwrite"), (0,), SET),
    "simulate --overwrite, unseen": Case(
        ("simulate", "DISK/obs.ms", *SIMULATION, "--overwrite"), (1_500_000,), SET
    ),
    "image": Case(("image", "IN/obs.ms", "-o", "DISK/new", "--size", "64"), (0, 16_384, 28_672, 53_248)),
    "image --cube": Case(("image", "IN/obs.ms", "-o", "DISK/new", "--size", "64", "--cube"), (0, 32_768)),
    "convert mod": Case(("convert", "IN/sky.toml", "DISK/new.mod")),
    "convert toml": Case(("convert", "IN/sky.toml", "DISK/new.toml")),
    "convert run": Case(("convert", "IN/run", "DISK/new.skymodel")),
    "find": Case(("find", "IN/obs.ms", "-o", "DISK/new.toml")),
    "sbc": Case((*SBC, "--sampler", "none"), (0, 8192)),
    "demo": Case(("demo", "-o", "DISK/new")),
}


def files(folder: Path) -> dict[str, str]:
    """Digests of all files."""
    return {
        str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and each.name != "filler"
    }


def attempt(inputs: Path, disk: Path, name: str, left: int) -> dict[str, Any]:
    """One command on a disk with so many bytes left."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    case = CASES[name]
    for each in case.copied:
        shutil.copytree(inputs / each, disk / each)
    before = files(disk)
    fill(disk / "filler")
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - left)
    new_set.SPARE_BYTES = -(1 << 30) if "unseen" in name else SPARE_BYTES
    line = [re.sub("^IN", str(inputs), re.sub("^DISK", str(disk), word)) for word in case.words]
    begun = time.process_time() + sum(os.times()[2:4])
    result = CliRunner().invoke(app, line)
    seconds = time.process_time() + sum(os.times()[2:4]) - begun
    (disk / "filler").unlink()
    after = files(disk)
    crash = result.exception if not isinstance(result.exception, SystemExit | None) else None
    found = {
        "left": left,
        "seconds": seconds,
        "code": result.exit_code,
        "crash": repr(crash) if crash else "",
        "said": result.stderr.replace(str(disk), "DISK").splitlines(),
        "lost": sorted(before.keys() - after.keys()),
        "changed": sorted(key for key in before.keys() & after.keys() if before[key] != after[key]),
        "new": sorted(after.keys() - before.keys()),
    }
    subprocess.run(["umount", str(disk)], check=True)
    return found


def main(inputs: str, disk: str, *names: str) -> dict[str, Any]:
    """All commands, or those that are named with the last of their numbers of bytes."""
    standard.each_picture = lambda *_, **__: [("Sky", Figure())]  # type: ignore[assignment]
    return {
        name: [
            attempt(Path(inputs), Path(disk), name, left) for left in CASES[name].left[-1 if names else 0 :]
        ]
        for name in names or CASES
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
