"""Runs of samplers in processes that are killed for real, and on disks that are full for real.

`python launcher.py WHAT ARGUMENTS` prints one JSON document. Everything is imported once; each run is a
child that is forked from here, because to start Python takes longer than such a run. The likelihood is
a Gaussian, nothing is compiled.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads do not survive a fork
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from gaussian_likelihood import Flat, SmoothGaussian
from typer import Exit

from biro.cli.guard import guard
from biro.errors import InputError, RunError
from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers import (
    array_file,
    dynesty_checkpoint,
    emcee_chain,
    normal_approximation,
    nuts,
    nuts_draws,
)
from biro.inference.samplers.sampling import sample
from biro.inference.samplers.tempering import state_file

OPTIONS: dict[str, dict[str, Any]] = {
    "emcee": {"n_tau": 150.0},
    "dynesty": {"n_live": 250, "batch": 16, "walks": 10, "dlogz": 0.1},
    "nuts": {"n_draw": 2500, "n_tune": 100},
    "tempering": {"n_walker": 4, "n_effective": 20000},
    "none": {"n_sample": 500},
}
FILE = {
    "emcee": emcee_chain.FILE,
    "dynesty": dynesty_checkpoint.FILE,
    "nuts": nuts_draws.FILE,
    "tempering": state_file.FILE,
    "none": normal_approximation.FILE,
}
CALLS_PER_SAVE = 20
"""Checkpoints are due after so many likelihood calls: time, as samplers see it, is counted in calls."""


class Counted(SmoothGaussian):
    """Counts its calls in a file that outlives the process, and may be slow."""

    def __init__(self, journal: int | None = None, pause: float = 0.0) -> None:
        super().__init__([Flat(-5, 5, "a"), Flat(-5, 5, "b")], [1.0, -1.0], [[0.09, 0.05], [0.05, 0.25]])
        self._journal, self._pause = journal, pause

    def log_likelihood(self, theta: np.ndarray) -> np.ndarray:
        if self._journal is not None:
            os.write(self._journal, b"c")
        if self._pause:
            time.sleep(self._pause)
        return super().log_likelihood(theta)


def count_time_in_calls(likelihood: Counted, journal: int) -> None:
    """A checkpoint interval is `CALLS_PER_SAVE` calls, however busy the machine; saves go to the journal."""
    _set_clock(likelihood)

    def noted(write: Any) -> Any:
        def written(*given: Any) -> None:
            write(*given)
            os.write(journal, b"s")

        return written

    emcee_chain.ChainFile._write = noted(emcee_chain.ChainFile._write)
    dynesty_checkpoint.write_signed = noted(dynesty_checkpoint.write_signed)
    array_file.write_atomic = noted(array_file.write_atomic)


def _set_clock(likelihood: Counted) -> None:
    clock = SimpleNamespace(monotonic=lambda: likelihood.n_call / CALLS_PER_SAVE, time=time.time)
    for module in (emcee_chain, dynesty_checkpoint, array_file):
        module.time, module.SAVE_EVERY = clock, 1.0
    array_file.SAVE_SHARE = np.inf  # other chains make calls meanwhile
    nuts.CHECK_EVERY = 0.01


def child(sampler: str, run_dir: str, journal: str, pause: float) -> int:
    """Process number of a run that has begun."""
    number = os.fork()
    if number:
        return number
    try:
        file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        likelihood = Counted(file, pause)
        count_time_in_calls(likelihood, file)
        sample(likelihood, sampler, seed=5, progress=False, run_dir=run_dir, **OPTIONS[sampler])
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _text(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def wait_for(path: str, n_byte: int = 0) -> None:
    """Until a file is there, and as long as that; or for a minute."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        if Path(path).exists() and Path(path).stat().st_size >= n_byte:
            return
        time.sleep(0.002)


def warm_up(sampler: str) -> None:
    """Import all that a run imports when it begins. NUTS has threads that do not survive a fork: no run."""
    quick = {"emcee": {"max_steps": 3}, "dynesty": {"n_live": 10, "dlogz": 100.0}, "none": {"n_sample": 3}}
    quick["tempering"] = {"max_steps": 3}
    sample(Counted(), "emcee", seed=1, progress=False, **quick["emcee"])
    if sampler in quick:
        sample(Counted(), sampler, seed=1, progress=False, **quick[sampler])
    else:
        import arviz  # noqa: F401
        import nutpie.compiled_pyfunc  # noqa: F401


def kills(sampler: str, folder: str, n_kill: str, pause: str, most_calls: str) -> dict[str, Any]:
    """Kill -9 a run at random moments, after so many calls at most; the same run without kills beside it."""
    warm_up(sampler)
    journals, ends, rng = [], [], np.random.default_rng()
    for i in range(int(n_kill)):
        journals.append(f"{folder}/{i}")
        number = child(sampler, f"{folder}/killed", journals[-1], float(pause))
        if i % 5:
            wait_for(journals[-1], int(rng.integers(1, int(most_calls))))
        time.sleep(rng.uniform(0.0, 0.02 if i % 5 else 0.2))  # the latter while it begins, maybe
        os.kill(number, signal.SIGKILL)
        ends.append(os.waitpid(number, 0)[1])
    last = os.waitpid(child(sampler, f"{folder}/killed", f"{folder}/last", 0.0), 0)[1]
    if sampler == "nuts":  # which goes on with other random numbers
        whole = 0
    else:
        whole = os.waitpid(child(sampler, f"{folder}/whole", f"{folder}/journal", 0.0), 0)[1]
    texts = [_text(path) for path in journals]
    return {
        "killed_by": [os.WTERMSIG(end) if os.WIFSIGNALED(end) else 0 for end in ends],
        "last": last,
        "whole": whole,
        "calls": [text.count("c") for text in texts],
        "saves": [text.count("s") for text in texts],
        "calls_of_the_last": _text(f"{folder}/last").count("c"),
        "calls_of_the_whole": _text(f"{folder}/journal").count("c"),
        "calls_after_the_last_save": [text.rpartition("s")[2].count("c") for text in texts],
    }


def signals(folder: str, *samplers: str) -> dict[str, Any]:
    """Of each sampler, a run that gets SIGTERM in mid-run, one that gets Ctrl-C twice, and more at random."""
    for sampler in samplers:
        warm_up(sampler)
    found = {}
    for sampler in samplers:
        for number, how in ((signal.SIGTERM, "once"), (signal.SIGINT, "twice")):
            place = Path(folder, f"{sampler} {how}")
            place.mkdir()
            found[place.name] = _signalled(sampler, str(place), number, how)
        found[f"{sampler} at random"] = _interrupted(
            sampler, folder, 12 if sampler in ("dynesty", "nuts") else 4
        )
    return found


def _interrupted(sampler: str, folder: str, n_run: int) -> dict[str, Any]:
    """Exit codes of runs that get Ctrl-C twice at random moments, and the longest time that one took."""
    rng = np.random.default_rng()
    codes, longest = [], 0.0
    pause = 0.02 if sampler == "none" else 0.001  # of 25 calls; others make thousands
    for i in range(n_run):
        place = Path(folder, f"{sampler} {i}")
        place.mkdir()
        process = os.fork()
        if not process:
            os.dup2(os.open(f"{place}/said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            try:
                _guarded(sampler, str(place), f"{place}/journal", stuck=False, pause=pause)
            except SystemExit as end:
                os._exit(int(end.code or 0))  # Python takes longer to end than such a run
        wait_for(f"{place}/journal", int(rng.integers(1, 60 if sampler != "none" else 5)))
        for longest_wait in (0.002, 0.01):
            time.sleep(rng.uniform(0.0, longest_wait))
            os.kill(process, signal.SIGINT)
        sent = time.monotonic()
        while not (ended := os.waitpid(process, os.WNOHANG))[0] and time.monotonic() < sent + 30.0:
            time.sleep(0.01)
        if not ended[0]:
            os.kill(process, signal.SIGKILL)
            ended = os.waitpid(process, 0)
        codes.append(os.waitstatus_to_exitcode(ended[1]))
        longest = max(longest, time.monotonic() - sent)
    return {"codes": codes, "longest": longest}


def _signalled(sampler: str, folder: str, number: int, twice: str) -> dict[str, Any]:
    """A run that gets a signal in mid-run, or two while a call takes long, behind biro's own guard.

    What it says, its exit code, and how long it took to end after the last signal.
    """
    journal, said = f"{folder}/journal", f"{folder}/said"
    process = os.fork()
    if not process:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        _guarded(sampler, folder, journal, stuck=twice == "twice")
    wait_for(f"{folder}/stuck" if twice == "twice" else journal)
    time.sleep(0.2)
    sent = time.monotonic()
    os.kill(process, number)
    if twice == "twice":
        time.sleep(0.5)
        sent = time.monotonic()
        os.kill(process, number)
    status = os.waitpid(process, 0)[1]
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - sent,
        "said": [line for line in _text(said).splitlines() if line.startswith("biro: ")],
        "left": sorted(path.name for path in Path(folder, "run").iterdir()),
    }


def _guarded(sampler: str, folder: str, journal: str, *, stuck: bool, pause: float = 0.01) -> None:
    """As `biro fit` runs a sampler; a likelihood that is stuck takes ten seconds for its 60th call."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    likelihood = Counted(os.open(journal, os.O_WRONLY | os.O_CREAT), pause)
    if stuck:
        inner = likelihood.log_likelihood

        def log_likelihood(theta: np.ndarray) -> np.ndarray:
            if likelihood.n_call == (60 if sampler != "none" else 5):
                Path(folder, "stuck").touch()
                time.sleep(10.0)
            return inner(theta)

        likelihood.log_likelihood = log_likelihood  # type: ignore[method-assign]
    run = guard(lambda: sample(likelihood, sampler, seed=5, progress=False, run_dir=f"{folder}/run"))
    try:
        run()
    except Exit as leave:
        sys.stderr.flush()
        sys.exit(leave.exit_code)
    sys.exit(0)


class Filling(Counted):
    """Fills the disk at one of its calls, and frees it at a later one."""

    def __init__(self, folder: Path, full_at: int, free_at: int) -> None:
        super().__init__()
        self._filler, self._full_at, self._free_at = folder / "filler", full_at, free_at

    def log_likelihood(self, theta: np.ndarray) -> np.ndarray:
        if self.n_call == self._full_at:
            fill(self._filler)
        if self.n_call == self._free_at:
            self._filler.unlink()
        return super().log_likelihood(theta)


def fill(path: Path) -> None:
    """Write a file until the disk is full, to the last byte."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


class Heard(logging.Handler):
    """What is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def on_full_disk(folder: Path, sampler: str, full_at: int, free_at: int) -> dict[str, Any]:
    """A run on a small disk that is full for a while, or to the end; then the same command again."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)], check=True)
    heard, run = Heard(), folder / "run"
    logging.getLogger().addHandler(heard)
    likelihood = Filling(folder, full_at, free_at)
    _set_clock(likelihood)
    short = {"emcee": {"n_tau": 50.0}, "dynesty": {"n_live": 60}, "nuts": {"n_draw": 150}, "none": {}}
    short["tempering"] = {"n_effective": 2000}
    options: dict[str, Any] = {"seed": 5, "progress": False, "run_dir": run}
    options |= OPTIONS[sampler] | short[sampler]
    first = sample(likelihood, sampler, **options)
    logging.getLogger().removeHandler(heard)
    log_text = (run / "log.txt").read_text()
    result = {
        "heard": [line.replace(str(folder), "DISK") for line in heard.lines],
        "finished": json.loads((run / "run.json").read_text())["finished"] is not None,
        "log": log_text,
        "spare": [bool(np.array_equal(Posterior.load(path).samples, first.samples)) for path in _spare()],
    }
    if sampler == "emcee" and result["finished"]:
        saved = emcee_chain.ChainFile(
            run / emcee_chain.FILE, json.loads((run / "run.json").read_text())["run_id"]
        ).restore()
        result["saved_steps"] = saved.iteration / first.diagnostics["n_step"]
    (folder / "filler").unlink(missing_ok=True)
    for path in _spare():
        path.unlink()
    likelihood.n_call = -(10**9)
    again = sample(likelihood, sampler, **options)
    result["same"] = bool(np.array_equal(first.samples, again.samples))
    result["calls_again"] = likelihood.n_call + 10**9
    result["left"] = sorted(path.name for path in run.iterdir())
    return result


def _spare() -> list[Path]:
    return list(Path(os.environ["TMPDIR"]).glob("*.nc"))


def begun_on_full_disk(folder: Path, sampler: str) -> str:
    """What is said where not even a beginning can be written."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    (folder / "run").mkdir()
    fill(folder / "filler")
    try:
        sample(Counted(), sampler, seed=5, progress=False, run_dir=folder / "run", **OPTIONS[sampler])
    except RunError as error:
        return str(error).replace(str(folder), "DISK")
    return ""


def full_disks(folder: str) -> dict[str, Any]:
    """Each sampler on a disk that is full for a while, and to the end; and one that is full to begin with.

    To be called in a mount namespace of its own, where mounting harms nobody and ends with the process.
    """
    result: dict[str, Any] = {}
    for sampler in OPTIONS:
        try:
            for word, free_at in (("for a while", 400), ("to the end", 10**9)):
                place = Path(folder, f"{sampler} {word}")
                place.mkdir()
                result[place.name] = on_full_disk(place, sampler, 40 if sampler != "none" else 5, free_at)
        except InputError as error:  # nutpie is not installed
            result[sampler] = str(error)
    (Path(folder) / "begun").mkdir()
    result["begun"] = begun_on_full_disk(Path(folder) / "begun", "emcee")
    return result


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    result = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(result))
