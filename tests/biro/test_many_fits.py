"""Many fits: each is what a fit alone is, and what happens to one costs no other."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import works
from tasks_of_tests import POINT, likelihood
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.errors import InputError, RunError
from biro.io.measurement_set import create_ms
from biro.many_fits.fit_each import SUMMARY, named
from biro.many_fits.models import split_models
from biro.models.files.toml import from_toml

SKY = from_toml(POINT)
QUICK = {"sampler": "none", "progress": False, "likelihood": {"backend": "cpu"}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of a point of 1 Jy, with noise of 1 and 2 Jy, one that is none, and models."""
    folder = tmp_path_factory.mktemp("files")
    create_ms(folder / "quiet.ms", likelihood(noise=1.0).observation)
    create_ms(folder / "loud.ms", likelihood(noise=2.0).observation)
    (folder / "broken.ms").mkdir()
    (folder / "sky.toml").write_text(POINT)
    return folder


def posterior_of(fit) -> biro.Posterior:
    return biro.Posterior.load(fit.run_dir / "posterior.nc")


def test_each_fit_is_that_of_its_data_alone(files, tmp_path) -> None:
    paths = [files / "quiet.ms", files / "loud.ms", files / "broken.ms"]
    fits = biro.fit_each(paths, SKY, run_dir=tmp_path / "all", seed=3, workers=2, **QUICK)
    assert [fit.name for fit in fits] == ["quiet", "loud", "broken"]
    for fit, path in zip(fits, paths[:2], strict=False):
        whole = posterior_of(fit)
        alone = biro.sample(
            biro.Likelihood(biro.read(path), SKY, backend="cpu"),
            "none",
            seed=whole.provenance.seed,
            progress=False,
        )
        np.testing.assert_array_equal(whole.samples, alone.samples)
    assert len({posterior_of(fit).provenance.seed for fit in [*fits][:2]}) == 2
    assert [fit.name for fit in fits.failed] == ["broken"]
    assert "broken: FAILED: " in str(fits)
    assert "quiet: log-evidence" in str(fits)
    record = json.loads((tmp_path / "all" / SUMMARY).read_text())
    assert record["failed"] == ["broken"]
    assert record["fits"]["loud"]["result"]["parameters"]["core.I"]["median"] > 1.0
    facts = json.loads((tmp_path / "all" / "loud" / "run.json").read_text())["facts"]
    assert facts["observation"] == str(files / "loud.ms")
    assert "smearing" in (tmp_path / "all" / "loud" / "log.txt").read_text()  # said before sampling begins
    assert "no table.dat" in (tmp_path / "all" / "broken" / "log.txt").read_text()


def test_several_models_over_an_executor(tmp_path) -> None:
    """Observations in memory, as epochs are; the right model has the better evidence."""
    fixed = from_toml(POINT.replace('{ prior = "uniform", low = 1, high = 5, unit = "Jy" }', '"3 Jy"'))
    data = {"day": likelihood(noise=0.5).observation}
    with ThreadPoolExecutor(1) as executor:
        fits = biro.fit_each(
            data, {"free": SKY, "wrong": fixed}, run_dir=tmp_path, executor=executor, **QUICK
        )
    assert [fit.name for fit in fits] == ["day/free", "day/wrong"]
    assert fits["day/free"].summary.log_evidence > fits["day/wrong"].summary.log_evidence
    assert (tmp_path / "day" / "free" / "posterior.nc").is_file()
    with pytest.raises(InputError, match="no fit 'day'; there are day/free, day/wrong"):
        fits["day"]


class Loses(Executor):
    """An executor that loses the process of the first task, and says so as dask does."""

    def submit(self, fn: Callable, /, *args: Any, **kwargs: object) -> Future:
        future: Future = Future()
        if args[0].name == "quiet":
            future.set_exception(MemoryError("its worker was killed"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_a_fit_that_is_lost_costs_itself_and_is_tried_again(files, tmp_path) -> None:
    paths = [files / "quiet.ms", files / "loud.ms"]
    fits = biro.fit_each(paths, SKY, run_dir=tmp_path, seed=3, executor=Loses(), **QUICK)
    assert [fit.failure for fit in fits] == [
        "quiet was lost by the executor: MemoryError: its worker was killed",
        "",
    ]
    before = (tmp_path / "loud" / "posterior.nc").stat().st_mtime_ns
    with ThreadPoolExecutor(1) as executor:
        fits = biro.fit_each(paths, SKY, run_dir=tmp_path, seed=3, executor=executor, **QUICK)
    assert not fits.failed
    assert (tmp_path / "loud" / "posterior.nc").stat().st_mtime_ns == before


def test_a_worker_that_is_killed_costs_nothing_but_time(files, tmp_path) -> None:
    """kill -9 of the only worker in the middle of the first fit."""
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60.0
        while not (tmp_path / "quiet" / "run.json").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        killed.extend(_children())
        for process in killed:
            os.kill(process, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    paths = [files / "quiet.ms", files / "loud.ms"]
    quick = QUICK | {"sampler": "emcee", "max_steps": 200}
    fits = biro.fit_each(paths, SKY, run_dir=tmp_path, workers=1, **quick)
    killer.join()
    assert len(killed) == 1
    assert not fits.failed
    resumed = [json.loads((fit.run_dir / "run.json").read_text())["resumed"] for fit in fits]
    assert [len(each) for each in resumed] == [1, 0]


def _children() -> list[int]:
    """Worker processes of this one."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b"spawn_main" in words:
            found.append(int(place.name))
    return found


def command(files: Path, run: Path, *words: str) -> list[str]:
    start = [sys.executable, "-m", "biro", "fit", str(files / "quiet.ms"), str(files / "loud.ms")]
    return [*start, str(files / "sky.toml"), "-o", str(run), "--each", "--backend", "cpu", *words]


def test_the_command_stops_and_goes_on(files, tmp_path) -> None:
    run = tmp_path / "run"
    long = command(files, run, "--workers", "1", "--set", "max_steps=3000", "--seed", "4")
    child = subprocess.Popen(long, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 90
    while not (run / "quiet" / "chain.bin").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to everybody
    _, said = child.communicate(timeout=20)
    assert child.returncode == 130, said
    assert said.splitlines()[-1].startswith("biro: stopped by SIGINT; 0 of 2 fits are done. The same command")
    done = subprocess.run([*long, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [*found["fits"]] == ["quiet", "loud"]
    assert json.loads((run / "quiet" / "run.json").read_text())["resumed"]


def test_a_failed_fit_is_named_and_the_exit_code_says_so(files, tmp_path) -> None:
    words = command(files, tmp_path, "--sampler", "none")
    words.insert(5, str(files / "broken.ms"))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last == "biro: 1 of 3 fits failed (broken). The same command tries them again"
    assert re.search(r"^loud +core.I ", done.stdout, flags=re.MULTILINE)


def test_a_fault_of_one_fit_is_named_with_its_place(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("biro.many_fits.one_fit.Likelihood", lambda *_, **__: 1 / 0)
    data = {"a": likelihood().observation}
    with ThreadPoolExecutor(1) as executor:
        (fit,) = biro.fit_each(data, SKY, run_dir=tmp_path, executor=executor, **QUICK)
    assert re.match(r"a fault: ZeroDivisionError: division by zero \(.*test_many_fits.py:\d+\)", fit.failure)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"data": []}, "needs the path of a data set"),
        ({"data": {}}, "fit_each needs data sets and a sky model"),
        ({"data": {"a/b": "a.ms"}}, "'a/b' cannot be the name of a fit"),
        ({"data": ["a.ms", "a.ms"]}, "is given twice"),
        ({"sampler": "magic"}, "unknown sampler 'magic'"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": 2, "executor": Loses()}, "give either workers=2 or an executor"),
        ({"seed": -1}, "seed must be from 0"),
        ({"reading": {"fieds": "1"}}, "read has no argument 'fieds'; did you mean 'fields'"),
        ({"likelihood": {"comm": 1}}, "Likelihood of fit_each has no argument 'comm'"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong, words, tmp_path) -> None:
    with pytest.raises(InputError, match=words):
        biro.fit_each(**{"data": ["a.ms"], "sky": SKY, "run_dir": tmp_path, **QUICK} | wrong)


def test_the_directory_of_a_single_fit_is_refused(tmp_path) -> None:
    biro.sample(likelihood(), "none", run_dir=tmp_path, progress=False)
    with pytest.raises(RunError, match="is the run directory of a single fit"):
        biro.fit_each(["a.ms"], SKY, run_dir=tmp_path, **QUICK)


def test_names_of_fits_are_ends_of_paths() -> None:
    assert [*named(["/x/day1.ms", "/x/day2.uvfits"])] == ["day1", "day2"]
    assert [*named(["/x/obs.ms", "/y/obs.ms"])] == ["x_obs", "y_obs"]
    assert [*named(["/x/obs.ms", "/x/obs.uvfits"])] == ["obs#1", "obs#2"]


def test_several_models_are_fitted_and_compared_in_one_command(files, tmp_path) -> None:
    """Each run is that of the model alone, the table that of biro compare; finished runs are read."""
    (tmp_path / "one.toml").write_text(POINT)
    (tmp_path / "fixed.toml").write_text(re.sub(r"I = .*", 'I = "3 Jy"', POINT))
    words = ["fit", str(files / "quiet.ms"), str(tmp_path / "one.toml"), str(tmp_path / "fixed.toml")]
    words += [
        "-o",
        str(tmp_path / "runs"),
        "--sampler",
        "none",
        "--seed",
        "3",
        "--no-pictures",
        "--backend",
        "cpu",
    ]
    result = works(*words, "--compare", "--json")
    answer = json.loads(result.stdout)
    runs = {name: tmp_path / "runs" / name for name in ("one", "fixed")}
    assert list(answer["fits"]) == list(runs)
    posteriors = {name: biro.Posterior.load(run / "posterior.nc") for name, run in runs.items()}
    assert answer["comparison"] == json.loads(json.dumps(biro.compare(posteriors).to_dict()))
    assert answer["comparison"]["best"] == "one"
    works(*words[:3], "-o", tmp_path / "alone", *words[6:])
    np.testing.assert_array_equal(
        biro.Posterior.load(tmp_path / "alone" / "posterior.nc").samples, posteriors["one"].samples
    )
    before = (runs["one"] / "posterior.nc").read_bytes()
    works(*words)
    assert (runs["one"] / "posterior.nc").read_bytes() == before


def test_data_and_models_of_a_command_are_told_apart(data_dir, files, tmp_path) -> None:
    """A UVFITS file begins with text, but is no model."""
    (uvfits,) = data_dir.rglob("vla_3c273_x.uvfits")
    one, two = tmp_path / "one.toml", tmp_path / "two.mod"
    for path in (one, two):
        path.write_text("text")
    assert split_models([uvfits, one]) == ([uvfits], {"one": one})
    assert split_models([uvfits, files / "quiet.ms", one, two])[0] == [uvfits, files / "quiet.ms"]
    assert list(split_models([uvfits, one, two])[1]) == ["one", "two"]
    for words, message in (
        ([one, two], "write the data before the models"),
        ([uvfits, one, uvfits, two], "a model between the data"),
        ([uvfits, one, one], "given twice"),
    ):
        with pytest.raises(InputError, match=message):
            split_models(words)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["sky.toml", "--compare"], "--compare needs several models"),
        (["sky.toml", "other.toml", "--compare", "--sampler", "emcee"], "--compare needs evidences"),
        (["sky.toml", "other.toml", "--compare", "--each"], "exclude each other"),
    ],
)
def test_what_cannot_be_compared_is_refused(files, tmp_path, more, message) -> None:
    (tmp_path / "other.toml").write_text(POINT)
    (tmp_path / "sky.toml").write_text(POINT)
    words = [str(tmp_path / word) if word.endswith(".toml") else word for word in more]
    result = CliRunner().invoke(app, ["fit", str(files / "quiet.ms"), *words, "-o", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "runs").exists()
