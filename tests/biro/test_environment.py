"""What surrounds a command: full disks, directories that go, streams that fail, variables, limits."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import KAT_7, SOURCE, works
from matplotlib.figure import Figure
from typer.testing import CliRunner

from biro.cli.app import app, problem_of_words
from biro.files import atomic
from biro.inference.posterior.posterior import Posterior
from biro.io.measurement_set import read_ms
from biro.plots import standard
from biro.run.directory import RunDirectory
from biro.run.environment import problem_of_variables


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.toml"
    path.write_text(SOURCE + 'I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n')
    return path


@pytest.fixture
def one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of those of a run, which take seconds to draw."""
    monkeypatch.setattr(standard, "each_picture", lambda *_, **__: [("Sky", Figure())])


def fit(obs: Path, model: Path, run: Path, *more: str) -> tuple[int, list[str]]:
    """Exit code and what is said of the quickest of fits."""
    words = ["fit", obs, model, "-o", run, "--backend", "cpu", "--seed", "1", "--sampler", "none", *more]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr.splitlines()


@pytest.mark.usefixtures("one_picture")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_disk_that_is_full_when_pictures_are_drawn(
    clean: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The posterior is safe, and the exit code says that not all is written; later `biro plot` draws them."""
    write, run = atomic.write_atomic, tmp_path / "run"

    def full(path: Path, data: bytes, mode: int = 0o644) -> None:
        if path.suffix == ".png":
            raise OSError(number, os.strerror(number), str(path))
        write(path, data, mode)

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "write_atomic", full)
        code, said = fit(clean, model, run)
    assert code == 3
    assert said[-1] == (
        f"biro: the posterior is in {run}/posterior.nc, but {run}/sky.png cannot be written "
        f"({os.strerror(number)}); free disk space, then: biro plot {run}"
    )
    assert Posterior.load(run / "posterior.nc").samples.shape[1] == 2
    works("plot", run)
    assert {"sky.png", "report.html"} <= {path.name for path in run.iterdir()}


@pytest.mark.usefixtures("one_picture")
@pytest.mark.parametrize("change", [shutil.rmtree, lambda run: run.rename(run.with_name("elsewhere"))])
def test_a_run_directory_that_goes_while_it_is_sampled(
    clean: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    run, reopen = tmp_path / "run", RunDirectory.reopen

    def gone(self: RunDirectory, options: dict[str, object]) -> None:
        reopen(self, options)
        change(run)

    monkeypatch.setattr(RunDirectory, "reopen", gone)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, said = fit(clean, model, run)
    assert code == 3
    assert said[-1].startswith(f"biro: {run} could not be written, so the posterior is not there")
    (kept,) = tmp_path.glob("posterior-*.nc")
    assert Posterior.load(kept).samples.shape[1] == 2


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("NUMBA_NUM_THREADS", "0", "must be a whole number from 1 to 1024, got '0'"),
        ("NUMBA_NUM_THREADS", "x", "must be a whole number from 1 to 1024, got 'x'"),
        ("NUMBA_NUM_THREADS", "9" * 5000, "must be a whole number from 1 to 1024"),
        ("NUMBA_THREADING_LAYER", "foo", "must be one of default, safe, "),
        ("NUMBA_THREADING_LAYER_PRIORITY", "x y", "must be tbb, omp and workqueue in some order, got 'x y'"),
    ],
)
def test_variables_that_numba_refuses(name: str, value: str, text: str) -> None:
    said = problem_of_variables({name: value})
    assert said is not None
    assert said.startswith(f"the variable {name} {text}")


def test_compiled_code_that_is_switched_off() -> None:
    said = problem_of_variables({"NUMBA_DISABLE_JIT": "1"})
    assert said == "the variable NUMBA_DISABLE_JIT is set, but biro needs compiled code; unset it"
    assert problem_of_variables({"NUMBA_DISABLE_JIT": "0"}) is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fit", "a.ms", "m.toml", "-o", ""], "the argument after -o is empty"),
        (["solve", "a.ms", "", "--output="], "the argument after a.ms is empty"),
        (["solve", "a.ms", "--output="], "the argument of --output is empty"),
    ],
)
def test_empty_words_are_one_line(words: list[str], text: str) -> None:
    """Empty words come from variables of a shell that are not set; "" would else be the working directory."""
    said = problem_of_words(words)
    assert said is not None
    assert said.startswith(text)
    assert problem_of_words(["info", "a.ms"]) is None


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    done = shell("mkdir gone; cd gone; rmdir ../gone; $BIRO info a.ms", tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("biro: the working directory cannot be used")


def test_no_home(clean: Path, tmp_path: Path) -> None:
    """casacore opens nothing without one."""
    done = shell(f"env -u HOME $BIRO info {clean}", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("limit", ["nan", "1e400", "0"])
def test_time_limits_without_bounds(clean: Path, limit: str) -> None:
    for words in (["info", str(clean)], ["predict", str(clean), "m.toml"], ["flag", str(clean), "--undo"]):
        done = CliRunner().invoke(app, [*words, "--time-limit", limit])
        assert done.exit_code == 2
        assert "time_limit must be positive seconds" in done.stderr


@pytest.mark.parametrize(
    "words", [["image", "{set}", "-o", "/", "--size", "64"], ["simulate", "/", "{model}", *KAT_7]]
)
def test_names_of_folders_in_place_of_files(clean: Path, model: Path, words: list[str]) -> None:
    words = [word.format(set=clean, model=model) for word in words]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2, done.output
    assert "biro: /: a directory, expected the name of" in done.stderr


def test_a_threading_layer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba.np.ufunc.tbbpool", None)  # as if there were none
    said = problem_of_variables({"NUMBA_THREADING_LAYER": "tbb"})
    assert said is not None
    assert "NUMBA_THREADING_LAYER is tbb, which is not installed" in said
    assert problem_of_variables({"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"}) is None


def shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a shell says of a command in which $BIRO stands for `biro`."""
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=folder,
        env=os.environ | {"BIRO": f"{sys.executable} -m biro"} | variables,
    )


def test_a_variable_is_one_line_of_a_command(tmp_path: Path) -> None:
    done = shell("$BIRO info none.ms", tmp_path, NUMBA_NUM_THREADS="0")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith("biro: the variable NUMBA_NUM_THREADS must be")


@pytest.mark.parametrize(
    ("streams", "code", "text"),
    [
        ("2>&-", 0, "rows"),
        ("2>/dev/full", 0, "rows"),
        (">/dev/full", 3, "biro: the work is done, but the result was not printed (No space left on device)"),
    ],
)
def test_streams_that_fail(clean: Path, tmp_path: Path, streams: str, code: int, text: str) -> None:
    done = shell(f"$BIRO info {clean} {streams}", tmp_path)
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr


def test_work_is_done_without_any_stream(clean: Path, tmp_path: Path) -> None:
    """The files that are opened instead get other numbers than those of the streams."""
    copy = shutil.copytree(clean, tmp_path / "copy.ms")
    done = shell(f"$BIRO predict {copy} {clean.parent / 'sky.toml'} --backend cpu <&- >&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert read_ms(copy, column="MODEL_DATA").partitions[0].vis.real.max() == pytest.approx(1.0)  # of 1 Jy


def test_too_few_files_may_be_open(clean: Path, tmp_path: Path) -> None:
    done = shell(f"ulimit -n 8; $BIRO info {clean}", tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr == "biro: Too many open files: allow more open files (ulimit -n)\n"


def test_a_thread_that_cannot_be_started(
    clean: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: object) -> None:
        raise RuntimeError(
            "can't start new thread"
        )  # of Python's own, where the system gives no memory for it

    monkeypatch.setattr("biro.inference.target.batching._Worker.start", refused)
    words = ["fit", clean, model, "-o", tmp_path / "run", "--backend", "cpu", "--sampler", "dynesty"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("biro: no thread can be started: allow more processes")


def test_a_matplotlibrc_that_asks_for_latex(clean: Path, tmp_path: Path) -> None:
    """There may be none, and names with an underscore are no LaTeX."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    done = shell(
        f"PATH=/nowhere:$PATH $BIRO image {clean} -o image --size 64 --backend cpu",
        tmp_path,
        MPLBACKEND="none",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "image.png").stat().st_size > 1000
