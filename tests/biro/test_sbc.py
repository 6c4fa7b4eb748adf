"""SBC of real likelihoods: small data, real samplers, kills, and what is refused."""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tasks_of_tests import LOBE, POINT, likelihood, too_much_weight

import biro
from biro.errors import InputError, LikelihoodError, RunError
from biro.models.files.toml import from_toml
from biro.sbc.procedure import LINES, RESULT, load
from biro.sbc.procedure import run as run_sbc
from biro.sbc.replicate import Replicates, independent, prior_draw, reduced_chi2, simulated

QUICK = {"sampler": "none", "seed": 5, "workers": 1, "progress": False}
"""Draws about the maximum: a twentieth of a second each, and right enough for a point."""


@pytest.fixture(scope="module")
def point() -> biro.Likelihood:
    return likelihood()


def flagged(like: biro.Likelihood) -> biro.Likelihood:
    """Some samples without weight, and weights that differ."""
    (part,) = like.observation.partitions
    weight = part.weight * np.linspace(0.5, 2.0, part.n_row)[:, None, None]
    weight[:5] = 0.0
    parts = (replace(part, weight=weight, vis=np.where(weight > 0, part.vis, 0)),)
    return biro.Likelihood(replace(like.observation, partitions=parts), like.model.model, backend="cpu")


def test_simulated_data_have_the_noise_of_the_weights_and_its_factor(point) -> None:
    like = flagged(point)
    theta = np.array([2.0, 1.7])
    residuals = []
    for seed in range(40):
        (part,) = simulated(like, theta, np.random.default_rng(seed)).partitions
        used = part.weight > 0
        assert np.all(part.vis[~used] == 0)
        away = (part.vis - like.predict(theta)[0])[used] * np.sqrt(part.weight[used]) / 1.7
        residuals.append(away)
    x = np.concatenate([r.view(float) for r in residuals])
    assert abs(x.mean()) < 3.5 / math.sqrt(x.size)
    assert abs(x.var() - 1) < 3.5 * math.sqrt(2 / x.size)
    assert stats.kstest(x, "norm").pvalue > 1e-3
    # chi2 of the truth is chi-squared with 2 N degrees of freedom: its mean over 40
    again = like.observation.digest()
    values = [_chi2_of_truth(like, theta, seed) for seed in range(40)]
    n = 2 * int(like.n_vis.sum())
    assert abs(np.mean(values) - 1) < 3.5 * math.sqrt(2 / n / 40)
    assert like.observation.digest() == again


def _chi2_of_truth(like: biro.Likelihood, theta: np.ndarray, seed: int) -> float:
    observation = simulated(like, theta, np.random.default_rng(seed))
    fitted = biro.Likelihood(observation, like.model.model, backend="cpu")
    (value,) = reduced_chi2(fitted, theta[None])
    return float(value)


def test_noise_of_student_is_that_of_the_model() -> None:
    """Two-dimensional t: |n|^2 / (2 sigma^2) follows Fisher's F with 2 and dof degrees of freedom."""
    text = POINT.replace("[noise]", '[noise]\ndistribution = "student-t"\ndof = 3')
    like, theta = likelihood(text), np.array([1.5, 2.0])
    (model,), factor = like.predict(theta), like.model.noise_factor(theta[None])[0, 0]
    rng, found = np.random.default_rng(1), []
    for _ in range(20):
        (part,) = simulated(like, theta, rng).partitions
        noise = (part.vis - model) * np.sqrt(part.weight) / factor
        found.append(np.abs(noise.ravel()) ** 2 / 2)
    assert stats.kstest(np.concatenate(found), "f", args=(2, 3)).pvalue > 1e-3
    assert reduced_chi2(like, np.ones((1, 2))) is None


def test_a_fit_of_student_noise_passes() -> None:
    """Drawn as t in two dimensions, fitted with the likelihood of it; a Gaussian fit of the same is not."""
    text = POINT.replace("[noise]", '[noise]\ndistribution = "student-t"\ndof = 3')
    like = likelihood(text)
    found = run_sbc(like, replicates=20, **QUICK)
    assert found.passed
    assert found.mean_reduced_chi2 is None
    assert len(found.tests()) == 9
    gaussian = from_toml(POINT)
    wrong = run_sbc(
        like, replicates=12, fit_with=lambda o: biro.Likelihood(o, gaussian, backend="cpu"), **QUICK
    )
    assert "noise.factor" in wrong.suspects()


def test_an_angle_is_ranked_around_its_circle() -> None:
    free = LOBE.replace('pa = "30 deg"', 'pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }')
    task = Replicates(likelihood(POINT + free), None, "none", {}, 63, 1)
    draws = np.mod(np.linspace(-10, 10, 63), 180)
    rng = np.random.default_rng(1)
    assert task.rank_of("lobe.pa", 169.0, draws, rng) == 0
    assert task.rank_of("lobe.pa", 11.0, draws, rng) == 63
    half = likelihood(POINT + free.replace("high = 180", "high = 90"))
    task = Replicates(half, None, "none", {}, 63, 1)  # does not wrap: numbers as they are
    assert task.rank_of("lobe.pa", 89.0, np.linspace(0, 10, 63), rng) == 63


@pytest.mark.parametrize("constraint", ["bounds = 'core.I'\nlow = '4.9 Jy'", "order = ['core.I', 'lobe.I']"])
def test_truths_meet_the_constraints(constraint) -> None:
    like = likelihood(POINT + LOBE + f"[[constraint]]\n{constraint}\n")
    rng = np.random.default_rng(1)
    draws = np.array([prior_draw(like, rng) for _ in range(200)])
    core, lobe = (draws[:, like.parameter_names.index(name)] for name in ("core.I", "lobe.I"))
    if "bounds" in constraint:
        assert core.min() > 4.9
        assert stats.kstest(core, "uniform", args=(4.9, 0.1)).pvalue > 1e-3
    else:
        assert np.all(core > lobe)
        # of two uniform numbers the larger has the distribution function x^2
        assert stats.kstest(((core - 1) / 4) ** 2, "uniform").pvalue > 1e-3


def test_constraints_that_nothing_meets_are_refused(point) -> None:
    class Nothing(biro.Likelihood):
        def allowed(self, theta):
            return np.zeros(len(theta), bool)

    nothing = Nothing(point.observation, from_toml(POINT), backend="cpu")
    with pytest.raises(LikelihoodError, match=r"none of \d+ draws from the prior satisfies the constraints"):
        prior_draw(nothing, np.random.default_rng(1))


def test_the_maximum_is_no_draw(point) -> None:
    posterior = biro.sample(point, "none", seed=1, progress=False)
    draws = independent(posterior, 63)
    assert len(draws.samples) == 63
    assert posterior.best_fit.tolist() not in draws.samples.tolist()


def same(rows: list) -> list:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_the_outcome_does_not_depend_on_the_number_of_processes(point, tmp_path) -> None:
    alone = run_sbc(point, replicates=10, run_dir=tmp_path / "a", **QUICK)
    both = run_sbc(point, replicates=10, run_dir=tmp_path / "b", **QUICK | {"workers": 2})
    assert same(alone.rows) == same(both.rows)
    assert {row["replicate"] for row in alone.rows} == set(range(10))
    record = json.loads((tmp_path / "a" / RESULT).read_text())
    assert record["quantities"]["core.I"]["ranks"] == [row["ranks"][0] for row in alone.rows]
    assert str(load(tmp_path / "b")) == str(both)
    assert not list(tmp_path.glob("*/*.pickle"))


def test_a_fit_with_something_else_is_caught(point) -> None:
    """Weights twice too large: a noise factor 41 % off, of which 252 samples know 3 %."""
    found = run_sbc(point, replicates=20, fit_with=too_much_weight, **QUICK)
    assert not found.passed
    assert "noise.factor" in found.suspects()
    (i,) = [i for i, name in enumerate(found.ranks.names) if name == "noise.factor"]
    assert found.ranks.shape(i).startswith("fits too high")


def test_weights_wrong_by_a_tenth_show_in_the_reduced_chi2() -> None:
    """Known noise: chi2 is 10 % too large, which 30 means of 252 samples know to 1 %. Ranks do not see it."""
    known = from_toml(POINT.replace('{ prior = "log-uniform", low = 0.5, high = 2 }', "1.0"))
    like = biro.Likelihood(likelihood().observation, known, backend="cpu")

    def heavier(observation: biro.Observation) -> biro.Likelihood:
        parts = tuple(replace(part, weight=1.1 * part.weight) for part in observation.partitions)
        return biro.Likelihood(replace(observation, partitions=parts), known, backend="cpu")

    found = run_sbc(like, replicates=30, fit_with=heavier, **QUICK)
    assert found.suspects() == ["reduced chi2"]
    assert abs(found.mean_reduced_chi2.mean - 1.1) < 3.5 * 1.1 / math.sqrt(252 * 30)
    assert run_sbc(like, replicates=30, **QUICK).passed


def test_what_is_fitted_must_have_been_simulated(point) -> None:
    more = from_toml(POINT + LOBE)
    with pytest.raises(InputError, match=r"fit_with has lobe.I, which the simulated model lacks"):
        run_sbc(point, fit_with=lambda observation: biro.Likelihood(observation, more), **QUICK)
    milli = from_toml(POINT.replace('low = 1, high = 5, unit = "Jy"', 'low = 1, high = 5, unit = "mJy"'))
    with pytest.raises(InputError, match=r"core\.I is simulated in 'Jy' but fitted in 'mJy'"):
        run_sbc(point, fit_with=lambda observation: biro.Likelihood(observation, milli), **QUICK)


def test_fewer_parameters_may_be_fitted(point) -> None:
    fixed = from_toml(POINT.replace('{ prior = "log-uniform", low = 0.5, high = 2 }', "1.0"))
    found = run_sbc(
        point, replicates=10, fit_with=lambda o: biro.Likelihood(o, fixed, backend="cpu"), **QUICK
    )
    assert found.ranks.names == ("core.I", "log-likelihood")
    assert found.mean_reduced_chi2.expected_scatter == pytest.approx(252**-0.5)  # 1 / sqrt(N)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"replicates": 9}, "10 to 1000000 replicates, got 9"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"sampler": "magic"}, "unknown sampler 'magic'"),
        ({"n_smaple": 5}, "did you mean 'n_sample'"),
        ({"n_sample": 10}, "n_sample must be at least 63 draws, got 10"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(point, wrong, words) -> None:
    with pytest.raises(InputError, match=words):
        run_sbc(point, **QUICK | wrong)


def test_replicates_that_cannot_be_fitted_are_counted(point) -> None:
    class Sometimes(biro.Likelihood):
        """No maximum where the flux is above 3.5 Jy, which half of the correlations show."""

        def log_posterior_and_gradient(self, theta):
            if np.abs(self.observation.partitions[0].vis.mean()) > 1.75:
                raise LikelihoodError("too bright")
            return super().log_posterior_and_gradient(theta)

    found = run_sbc(
        point, replicates=20, fit_with=lambda o: Sometimes(o, from_toml(POINT), backend="cpu"), **QUICK
    )
    assert 0 < len(found.failed) < 15
    assert found.ranks.n + len(found.failed) == 20
    assert "could not be fitted, so the result" in str(found)
    assert "too bright" in str(found)


def test_more_replicates_may_follow_but_nothing_else_may_change(point, tmp_path) -> None:
    first = run_sbc(point, replicates=10, run_dir=tmp_path, **QUICK)
    lines = (tmp_path / LINES).read_text().splitlines()
    more = run_sbc(point, replicates=14, run_dir=tmp_path, **QUICK | {"seed": None})
    assert (tmp_path / LINES).read_text().splitlines()[:10] == lines
    assert same(more.rows[:10]) == same(first.rows)
    assert len(run_sbc(point, replicates=10, run_dir=tmp_path, **QUICK).rows) == 10
    for change, words in [
        ({"seed": 6}, "seed was 5, is 6"),
        ({"n_sample": 500}, "n_sample was 1000, is 500"),
        ({"draws": 31}, "draws was 63, is 31"),
        ({"sampler": "emcee"}, "sampler was none, is emcee"),
        ({"fit_with": too_much_weight}, "fit with was Likelihood"),
    ]:
        with pytest.raises(RunError, match=words):
            run_sbc(point, run_dir=tmp_path, **QUICK | change)
    with pytest.raises(RunError, match=r"the data .* changed"):
        run_sbc(flagged(point), run_dir=tmp_path, **QUICK)
    with pytest.raises(RunError, match="the model changed"):
        run_sbc(likelihood(POINT.replace("high = 5", "high = 6")), run_dir=tmp_path, **QUICK)
    with pytest.raises(RunError, match="command was sbc"):
        biro.sample(point, "none", run_dir=tmp_path, seed=5, progress=False)
    with pytest.raises(RunError, match="not an SBC directory"):
        load(tmp_path / "elsewhere")


CHILD = """
import sys
from tasks_of_tests import likelihood
from biro.sbc.procedure import run as run_sbc
if __name__ == "__main__":
    run_sbc(likelihood(), "none", replicates=12, seed=5, workers=2, run_dir=sys.argv[1], progress=False)
"""


def test_a_run_that_is_killed_goes_on_and_ends_alike(point, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILD)
    run = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "NUMBA_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, str(script), str(run)], env=environment)
    lines = run / LINES
    deadline = time.monotonic() + 240
    while not (lines.exists() and lines.read_bytes().count(b"\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.wait()
    before = lines.read_bytes()
    n_done = before.count(b"\n")
    assert 3 <= n_done < 12
    lines.write_bytes(before + b'{"replicate": 11, "ran')  # as a kill in the middle of a write leaves it
    found = run_sbc(point, replicates=12, run_dir=run, **QUICK)
    after = lines.read_bytes()
    assert after.startswith(before)  # nothing that was done is done again
    assert sorted(json.loads(line)["replicate"] for line in after.splitlines()) == list(range(12))
    whole = run_sbc(point, replicates=12, **QUICK)
    assert same(found.rows) == same(whole.rows)


def test_a_broken_file_of_replicates_says_so(point, tmp_path) -> None:
    run_sbc(point, replicates=10, run_dir=tmp_path, **QUICK)
    (tmp_path / LINES).write_bytes(b"\x80\x04 not ours\n")
    with pytest.raises(RunError, match=r"cannot be read .* give another directory"):
        run_sbc(point, replicates=10, run_dir=tmp_path, **QUICK)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    from biro.io.measurement_set import create_ms

    folder = tmp_path_factory.mktemp("files")
    create_ms(folder / "obs.ms", likelihood().observation)
    (folder / "sky.toml").write_text(POINT)
    return folder


def command(folder: Path, run: Path, *words: str) -> list[str]:
    start = [sys.executable, "-m", "biro", "sbc", str(folder / "obs.ms"), str(folder / "sky.toml")]
    return [*start, "-o", str(run), "--sampler", "none", "--seed", "5", "--backend", "cpu", *words]


def test_the_command_stops_with_one_line_and_goes_on(files, tmp_path) -> None:
    run = tmp_path / "sbc"
    many = command(files, run, "--replicates", "2000", "--workers", "2")
    child = subprocess.Popen(many, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 90
    while not (run / LINES).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to everybody
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert said.count("\n") == 1
    assert "replicates are done. The same command continues from there" in said
    n_done = (run / LINES).read_bytes().count(b"\n")
    short = command(files, run, "--replicates", str(max(10, n_done)), "--json", "--workers", "1")
    done = subprocess.run(short, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["replicates"] == max(10, n_done)
    assert set(answer["quantities"]) == {"core.I", "noise.factor", "log-likelihood"}
    page = (run / "report.html").read_text()
    assert page.count("<img") == 3
    assert "Simulation-based calibration" in page
    assert {path.name for path in run.glob("*.png")} == {"ranks.png", "coverage.png", "chi2.png"}


def test_the_spoiled_fits_of_the_benchmark_are_spoiled_as_they_say(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    program = importlib.import_module("sbc")
    observation = program.SOURCES.layout()
    right = biro.Likelihood(observation, from_toml(program.SKY), backend="cpu")
    kinds = {name: make(observation) for name, make in program.SOURCES.cases.items() if make}
    unit = np.random.default_rng(1).random((2000, 6))
    theta = right.prior_transform(unit)
    s, n = theta[:5, right.parameter_names.index("noise.factor")], right.n_vis.sum()
    value, chi2 = right.log_likelihood(theta[:5]), right.chi2(theta[:5])[:, 0]
    once = kinds["complex sample counted once"].log_likelihood(theta[:5])
    assert once == pytest.approx(value + n * np.log(s), rel=1e-12)
    heavy = kinds["weights 10 % too large"].log_likelihood(theta[:5])
    assert heavy == pytest.approx(value - 0.1 * chi2 / (2 * s**2) + n * math.log(1.1), rel=1e-6)
    i_emaj, i_emin, i_pa = (right.parameter_names.index(f"lobe.{name}") for name in ("emaj", "emin", "pa"))
    drawn = kinds["order forgotten in the prior"].prior_transform(unit)
    assert abs(np.mean(drawn[:, i_emaj] < drawn[:, i_emin]) - 0.5) < 4 * math.sqrt(0.25 / 2000)
    pa = kinds["prior of the angle not uniform"].prior_transform(unit)[:, i_pa]
    assert pa.std() == pytest.approx(20, rel=0.07)  # 4.5 sigma of the scatter of 2000


@pytest.mark.thorough
def test_a_ring_seen_by_feeds_that_rotate_and_leak(monkeypatch) -> None:
    """18 parameters; the same fit is caught where it takes the data as corrected for the feeds' rotation."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    model = importlib.import_module("sbc").INSTRUMENT
    like = biro.Likelihood(model.layout(), from_toml(model.text), precision="double", backend="cpu")
    found = run_sbc(like, replicates=20, **QUICK)
    assert len(found.ranks.names) == 19
    assert not found.failed
    assert found.passed  # 1 % of runs that are right would not; this one is always the same
    # All parameters and replicates together, which are not independent: four binomial errors would be 0.1.
    assert abs(np.mean(found.ranks.coverage(0.6827)) - 0.6827) < 0.1
    corrected = from_toml(model.text.replace('"present"', '"corrected"'))
    wrong = run_sbc(
        like,
        replicates=10,
        fit_with=lambda o: biro.Likelihood(o, corrected, precision="double", backend="cpu"),
        **QUICK,
    )
    assert {"ring.Q", "noise.factor"} <= set(wrong.suspects())


# A fit of a tenth of the usual length: what is tested is whether it is right, not how fine it is.
SAMPLERS = {
    "emcee": {"n_tau": 12.0, "tau_change": 0.5},
    "dynesty": {"n_live": 50, "dlogz": 0.5, "method": "unif"},
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pytest.param("emcee", marks=pytest.mark.thorough), "dynesty"])
def test_samplers_pass(sampler) -> None:
    """Point and Gaussian, fitted noise, 32 replicates: no test fails that should not, with a fixed seed.

    Bands and errors below are those of so many; docs/trust.md has 300.
    """
    found = run_sbc(
        likelihood(POINT + LOBE), sampler, replicates=32, seed=1, progress=False, **SAMPLERS[sampler]
    )
    print(found)
    assert not found.failed
    assert found.ranks.names == ("core.I", "lobe.I", "lobe.emaj", "noise.factor", "log-likelihood")
    assert found.passed  # 1 % of runs that are right would not
    for level in (0.6827, 0.9545):
        # five quantities, each outside of its own 99.9 % once in a thousand
        low, high = found.ranks.coverage_band(level, 0.999)
        assert np.all((found.ranks.coverage(level) >= low) & (found.ranks.coverage(level) <= high))
    assert abs(found.mean_reduced_chi2.z) < 3.3  # one in a thousand
