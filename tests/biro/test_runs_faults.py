"""What can go wrong in a run: likelihoods and priors of every bad kind, directories, clocks, devices."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import SOURCE
from gaussian_likelihood import Flat, SmoothGaussian
from rights import DROP_RIGHTS
from test_cli_faults import opened
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.errors import BackendError, LikelihoodError, RunError
from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers.sampling import sample
from biro.run.directory import RunDirectory

OPTIONS: dict[str, dict[str, Any]] = {
    "emcee": {"n_tau": 30.0},
    "dynesty": {"n_live": 60, "batch": 16, "walks": 10, "dlogz": 0.1},
    "nuts": {"n_draw": 250, "n_tune": 100},
    "tempering": {"n_walker": 8, "n_effective": 500},
    "none": {"n_sample": 500},
}
NO_NUTPIE = importlib.util.find_spec("nutpie") is None
SAMPLERS = [
    pytest.param(
        name, marks=pytest.mark.skipif(name == "nuts" and NO_NUTPIE, reason="nutpie is not installed")
    )
    for name in OPTIONS
]
DRAWING = SAMPLERS[:4]
PRIORS = [Flat(-5, 5, "a"), Flat(-5, 5, "b")]
MEAN, COVARIANCE = np.array([1.0, -1.0]), np.array([[0.09, 0.05], [0.05, 0.25]])


@pytest.fixture(autouse=True)
def key_of_this_test(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(likelihood: Any, sampler: str, **more: Any) -> Posterior:
    return sample(likelihood, sampler, **{"seed": 3, "progress": False, **OPTIONS[sampler], **more})


def moments(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    weight = posterior.weight
    mean = weight @ posterior.samples
    return mean, np.sqrt(weight @ (posterior.samples - mean) ** 2)


def check_moments(posterior: Posterior, mean: Any, sigma: Any) -> None:
    """Means and widths of ESS independent samples, within five sigma / sqrt(ESS), the error of the mean."""
    found_mean, found_sigma = moments(posterior)
    error = np.asarray(sigma) / np.sqrt(np.minimum(posterior.effective, len(posterior.samples)))
    assert (np.abs(found_mean - mean) < 5 * error).all()
    assert (np.abs(found_sigma - sigma) < 5 * error).all()


def known_by(inverse: Any) -> SmoothGaussian:
    """Data that say as much as this inverse covariance, which may be singular."""
    likelihood = SmoothGaussian(PRIORS, MEAN, COVARIANCE)
    likelihood.inverse = np.array(inverse, float)
    return likelihood


# --- Likelihoods and priors


class NanInACorner(SmoothGaussian):
    """As `Likelihood` has it: what is not a number is -inf, and counted."""

    nan_count = 0

    def log_likelihood(self, theta: np.ndarray) -> np.ndarray:
        value = super().log_likelihood(theta)
        bad = (theta > MEAN).all(axis=1)
        self.nan_count += int(bad.sum())
        return np.where(bad, -np.inf, value)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nan_in_a_corner_of_the_prior(sampler: str, caplog: pytest.LogCaptureFixture) -> None:
    posterior = run(NanInACorner(PRIORS, MEAN, COVARIANCE), sampler)
    assert not (posterior.samples > MEAN).all(axis=1).any()
    if sampler != "none":
        assert "likelihood values were NaN and counted as impossible" in caplog.text
    # What is left of the normal distribution: its samples in the other three quadrants.
    draws = np.random.default_rng(1).multivariate_normal(MEAN, COVARIANCE, 200_000)
    left = draws[~(draws > MEAN).all(axis=1)]
    if sampler != "none":  # whose draws are of a normal distribution
        check_moments(posterior, left.mean(axis=0), left.std(axis=0))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_prior_that_excludes_everything(sampler: str, tmp_path: Path) -> None:
    def nothing(theta: np.ndarray) -> np.ndarray:
        return np.zeros(len(theta), bool)

    likelihood = SmoothGaussian(PRIORS, MEAN, COVARIANCE, allowed=nothing)
    with pytest.raises(LikelihoodError, match=r"none of \d+ draws|could not find a single point") as error:
        run(likelihood, sampler, run_dir=tmp_path / "run")
    assert re.search(r"; check the priors$|\. Check the model and its priors$", str(error.value))
    assert not (tmp_path / "run" / "posterior.nc").exists()


@pytest.mark.parametrize("sampler", DRAWING)
def test_a_constant_likelihood_gives_the_prior(sampler: str, caplog: pytest.LogCaptureFixture) -> None:
    posterior = run(known_by(np.zeros((2, 2))), sampler)
    check_moments(posterior, 0.0, 10.0 / np.sqrt(12.0))
    from_prior = sampler in ("dynesty", "tempering")
    words = "the same everywhere" if from_prior else "not constrained by the data: a"
    assert words in caplog.text
    if from_prior:
        assert posterior.log_evidence == pytest.approx(0.0, abs=4 * posterior.log_evidence_err + 0.05)


@pytest.mark.parametrize("sampler", DRAWING)
def test_a_parameter_that_does_nothing_keeps_its_prior(sampler: str) -> None:
    posterior = run(known_by([[4.0, 0.0], [0.0, 0.0]]), sampler)
    check_moments(posterior, [1.0, 0.0], [0.5, 10.0 / np.sqrt(12.0)])


@pytest.mark.parametrize("sampler", DRAWING)
def test_of_two_sources_in_one_place_the_sum_is_known(sampler: str) -> None:
    posterior = run(known_by(np.full((2, 2), 4.0)), sampler)
    total = posterior.samples.sum(axis=1)
    mean, width = (
        posterior.weight @ total,
        np.sqrt(posterior.weight @ (total - posterior.weight @ total) ** 2),
    )
    # Their sum is that of the data, 0 +- 0.5; the effective numbers are of the sources, far more correlated.
    error = 0.5 / np.sqrt(posterior.effective.min())
    assert abs(mean) < 5 * error
    assert abs(width - 0.5) < 5 * error
    assert moments(posterior)[1].min() > 2.0


@pytest.mark.parametrize(
    ("inverse", "words"),
    [
        (np.zeros((2, 2)), "the data do not constrain a or b. Fix or tie a parameter"),
        ([[4.0, 0.0], [0.0, 0.0]], "the data do not constrain b. Fix or tie a parameter"),
        (np.full((2, 2), 4.0), "the data do not constrain b - 1 a. Fix or tie a parameter"),
    ],
)
def test_without_a_sampler_the_error_names_what_is_not_determined(inverse: Any, words: str) -> None:
    with pytest.raises(LikelihoodError, match=words):
        run(known_by(inverse), "none")


# --- Directories


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_two_runs_in_one_directory(sampler: str, tmp_path: Path) -> None:
    likelihood = SmoothGaussian(PRIORS, MEAN, COVARIANCE)
    code = (
        "import sys; from biro.run.directory import RunDirectory\n"
        "with RunDirectory(sys.argv[1], {}): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(
            RunError, match=f"in use by process {other.pid} on .*; wait for it or give another"
        ):
            run(likelihood, sampler, run_dir=tmp_path / "run")
        other.kill()
    assert likelihood.n_call == 0


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_data_or_model_that_changed(sampler: str, tmp_path: Path) -> None:
    run(SmoothGaussian(PRIORS, MEAN, COVARIANCE), sampler, run_dir=tmp_path / "run")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != "log.txt"}
    other_data = SmoothGaussian(PRIORS, MEAN, COVARIANCE, label="other data")
    other_model = SmoothGaussian(PRIORS, MEAN + 1.0, COVARIANCE)
    for likelihood, words in ((other_data, "the data .* changed"), (other_model, "the model changed")):
        with pytest.raises(RunError, match=f"holds a run that differs: {words}"):
            run(likelihood, sampler, run_dir=tmp_path / "run")
        assert likelihood.n_call == 0
    assert kept == {name: (tmp_path / "run" / name).read_bytes() for name in kept}


UNWRITABLE = """
from gaussian_likelihood import Flat, SmoothGaussian
from biro.errors import RunError
from biro.inference.samplers.sampling import sample
likelihood = SmoothGaussian([Flat(-5, 5, "a")], [0.0], [[1.0]])
for sampler in sys.argv[3:]:
    try:
        sample(likelihood, sampler, progress=False, run_dir=sys.argv[2])
    except RunError as error:
        print(error)
print(likelihood.n_call)
"""


@pytest.mark.parametrize("name", ["run", "run/within"])
def test_a_directory_that_cannot_be_written_to(tmp_path: Path, name: str) -> None:
    """With the rights of an ordinary user, whoever runs the test: said before anything is evaluated."""
    (tmp_path / "run").mkdir(mode=0o555)
    code = DROP_RIGHTS + "sys.path.insert(0, sys.argv[1])\n" + UNWRITABLE
    words = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / name), *OPTIONS]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    *lines, calls = done.stdout.splitlines()
    assert calls == "0", done.stderr
    assert len(lines) == len(OPTIONS), done.stdout
    for line in lines:
        assert line.startswith(f"run directory {tmp_path / name} cannot be ")


# --- Clocks


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_clock_that_goes_backwards(
    sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour each time somebody looks, as an administrator might set it; progress is shown by it."""
    whole = run(SmoothGaussian(PRIORS, MEAN, COVARIANCE), sampler)
    now = [time.time()]

    def earlier() -> float:
        now[0] -= 3600.0
        return now[0]

    monkeypatch.setattr(time, "time", earlier)
    back = run(SmoothGaussian(PRIORS, MEAN, COVARIANCE), sampler, run_dir=tmp_path / "run", progress=True)
    assert np.array_equal(whole.samples, back.samples)
    again = run(SmoothGaussian(PRIORS, MEAN, COVARIANCE), sampler, run_dir=tmp_path / "run")
    assert np.array_equal(whole.samples, again.samples)


# --- Devices


def _raised_by(module: str) -> Exception:
    return type("CudaAPIError", (RuntimeError,), {"__module__": module})(
        "[719] Call to cuCtxSynchronize results in CUDA_ERROR_LAUNCH_FAILED\nmore"
    )


NUMBA = _raised_by("numba.cuda.cudadrv.driver")


class Failing(SmoothGaussian):
    """Its device fails after so many calls."""

    def __init__(self, n_call: int, error: Exception) -> None:
        super().__init__(PRIORS, MEAN, COVARIANCE)
        self._last, self._error = n_call, error

    def log_likelihood(self, theta: np.ndarray) -> np.ndarray:
        if self.n_call >= self._last:
            raise self._error
        return super().log_likelihood(theta)


@pytest.mark.parametrize(
    ("sampler", "error"),
    [
        *(pytest.param(*each.values, NUMBA, marks=each.marks) for each in SAMPLERS),
        ("none", _raised_by("cupy_backends.cuda.api.runtime")),
        ("none", BackendError("the CUDA driver said CUDA_ERROR_LAUNCH_FAILED")),
    ],
)
def test_a_device_that_fails_in_mid_run(
    sampler: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from biro.inference.samplers import dynesty_checkpoint

    ticks = itertools.count()  # a second whenever somebody looks, however fast the machine
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)), time=time.time)
    monkeypatch.setattr(dynesty_checkpoint, "time", clock)
    n_call = {"none": 10, "tempering": 320}.get(sampler, 150)  # tempering keeps nothing of its warm-up
    said = r"the device failed \(.*CUDA_ERROR_LAUNCH_FAILED\); .*run has the samples so far\. The same call "
    with pytest.raises(BackendError, match=said):
        run(Failing(n_call, error), sampler, run_dir=tmp_path / "run")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left & {"chain.bin", "checkpoint.bin", "draws.npz", "tempering.npz"} or sampler == "none"
    likelihood = SmoothGaussian(PRIORS, MEAN, COVARIANCE)
    posterior = run(likelihood, sampler, run_dir=tmp_path / "run")
    if sampler in ("emcee", "dynesty", "tempering"):
        whole_calls = SmoothGaussian(PRIORS, MEAN, COVARIANCE)
        whole = run(whole_calls, sampler)
        assert np.array_equal(posterior.samples, whole.samples)
        assert likelihood.n_call < whole_calls.n_call - 20
    check_moments(posterior, MEAN, np.sqrt(np.diag(COVARIANCE)))


def test_without_a_directory_a_device_that_fails_says_so() -> None:
    with pytest.raises(BackendError, match=r"the device failed \(.*\); nothing was saved, because"):
        run(Failing(50, NUMBA), "emcee")


def test_errors_of_a_program_are_not_taken_for_a_device() -> None:
    with pytest.raises(ZeroDivisionError):
        run(Failing(50, ZeroDivisionError()), "emcee")


# --- What killed processes leave


def test_half_written_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, {"seed": 1}):
        pass
    litter = [".run.json.7.tmp", ".checkpoint.bin.12.tmp", ".draws.npz.3.tmp", ".posterior.nc.4.tmp"]
    others = [".hidden", "notes.tmp", ".mine.txt.tmp"]
    for name in litter + others:
        (tmp_path / name).write_bytes(b"half")
    with RunDirectory(tmp_path, {"seed": 1}):
        left = {path.name for path in tmp_path.iterdir()}
    assert not left & {*litter}
    assert left >= {*others}
    assert len(json.loads((tmp_path / "run.json").read_text())["resumed"]) == 1


def test_a_log_that_cannot_be_written_ends_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run" / "log.txt").mkdir(parents=True)  # nothing can be written there, whoever tries
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from gaussian_likelihood import Flat, SmoothGaussian\n"
        "from biro.inference.samplers.sampling import sample\n"
        "likelihood = SmoothGaussian([Flat(-5, 5, 'a')], [0.0], [[1.0]])\n"
        "sample(likelihood, 'none', progress=False, run_dir=sys.argv[2])\n"
    )
    words = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "run")]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | {"HOME": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be written") == 1
    assert "log.txt cannot be written (Is a directory); the run continues" in done.stderr
    assert (tmp_path / "run" / "posterior.nc").exists()


# --- From the command line, on files


def test_files_that_changed_between_two_fits(ms: Path, tmp_path: Path) -> None:
    """The model's file is edited, then a row of the set flagged; with both put back, the run is read."""
    model, run_dir = tmp_path / "model.toml", tmp_path / "run"
    text = SOURCE + 'I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n'
    model.write_text(text)
    words = ["fit", ms, model, "-o", run_dir, "--sampler", "none", "--backend", "cpu", "--no-pictures"]

    def fit() -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(word) for word in words])
        return done.exit_code, done.stderr.splitlines()[-1] if done.exit_code else ""

    assert fit() == (0, "")
    before = (run_dir / "posterior.nc").read_bytes()
    model.write_text(text.replace("high = 3", "high = 4"))
    code, said = fit()
    assert code == 2
    assert "holds a run that differs: the model changed. Give the same data, model and options" in said
    model.write_text(text)
    with opened(ms) as main:
        flags = main.getcol("FLAG")
        main.putcol("FLAG", np.concatenate([np.ones_like(flags[:1]), flags[1:]]))
    code, said = fit()
    assert code == 2
    assert "holds a run that differs: the data or their selection changed. Give the same data" in said
    with opened(ms) as main:
        main.putcol("FLAG", flags)
    assert fit() == (0, "")
    assert (run_dir / "posterior.nc").read_bytes() == before


# --- Threads and processes

WORKQUEUE = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numba, numpy as np
from test_likelihood import ONE_SOURCE, observation, sky
import biro
likelihood = biro.Likelihood(observation(), sky(ONE_SOURCE, Path(sys.argv[2])), backend="cpu")
theta = likelihood.prior_transform(np.random.default_rng(1).uniform(size=(50, likelihood.n_param)))
expected, wrong = likelihood.log_likelihood(theta), []

def work():
    for i in range(300):
        if not np.allclose(likelihood.log_likelihood(theta), expected, rtol=1e-12):
            wrong.append(i)

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(numba.threading_layer(), len(wrong))
"""


def test_two_threads_on_numbas_simplest_layer(tmp_path: Path) -> None:
    """Which ends the process when two threads of Python meet in it; ours take turns."""
    environment = os.environ | {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"}
    words = [sys.executable, "-c", WORKQUEUE, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["workqueue", "0"]


def test_no_process_is_forked() -> None:
    """Neither CUDA nor OpenMP survives a fork: every process that is started is a new program."""
    root = Path(biro.__file__).parents[1]
    for room in ("biro", "models", "rime_kernels"):
        for path in (root / room).rglob("*.py"):
            text = path.read_text()
            forks = re.findall(
                r"os\.fork\w*|\"fork(?:server)?\"|multiprocessing\.(?:Pool|Process)\b|ProcessPoolExecutor",
                text,
            )
            assert not forks, f"{path} uses {forks[0]}"
