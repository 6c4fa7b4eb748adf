"""Readers of files run in a child with little memory: what they say, and how long that takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PROGRAM = """
import json, resource, sys, time, traceback
from biro.errors import BiroError
from biro.imaging.fits import read_image
from biro.models.files import read_bbs, read_model, read_tigger
from biro.io.sky_files import read_sky
from biro.inference.posterior.posterior import Posterior
from biro.run.record import read_record
from biro.inference.samplers.emcee_chain import ChainFile
from biro.inference.samplers.nuts_draws import NutsDrawsFile
from biro.files.signed import read_signed
from biro.simulation.telescopes import read_antennas
from biro.io.uvfits.read import read_uvfits
from pathlib import Path

read = {
    "toml": read_model, "bbs": read_bbs, "tigger": read_tigger, "sky": read_sky, "fits": read_image,
    "posterior": lambda path: str(Posterior.load(path).summary()),
    "record": lambda path: read_record(Path(path)),
    "chain": lambda path: ChainFile(Path(path), "run").restore(),
    "draws": lambda path: NutsDrawsFile(Path(path), "run").read(2, 2),
    "checkpoint": lambda path: read_signed(Path(path), "run"),
    "antennas": read_antennas,
    "uvfits": read_uvfits,
}[sys.argv[1]]
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
for path in json.loads(sys.stdin.read()):
    begin = time.process_time()
    try:
        read(path)
        said = ["read", ""]
    except BiroError as error:
        said = ["refused", str(error)]
    except BaseException as error:
        said = ["FAILED", traceback.format_exc()]
    print(json.dumps([*said, time.process_time() - begin]), flush=True)
"""
SECONDS = 20.0
"""Of processor time for one file: what is quadratic takes minutes."""


def outcomes(reader: str, paths: Iterable[Path | str]) -> list[str]:
    """What a reader says about each file: "read", or the one line of its error.

    Raises
    ------
    AssertionError
        Another kind of exception, a crash, more than 1 GiB, more than 20 s, or an error of several lines.
    """
    files = [str(path) for path in paths]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, reader],
        input=json.dumps(files),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{files[len(answers)]}: {done.returncode} {done.stderr[-2000:]}"
    for file, (kind, said, seconds) in zip(files, answers, strict=True):
        assert kind != "FAILED", f"{file}: {said}"
        assert seconds < SECONDS, f"{file}: {seconds:.0f} s"
        assert "\n" not in said.replace(file, ""), f"{file}: {said}"
        assert len(said) < 700 + 2 * len(file), f"{file}: {said[:2000]}"
    return ["read" if kind == "read" else said for kind, said, _ in answers]
