"""NUTS: closed forms, ends of priors, angles, interruption, refusals; and the gate that joins its chains."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gaussian_likelihood import Flat, SmoothGaussian
from scipy import integrate, stats
from test_likelihood import FIXED_NOISE, sky
from test_maximum import PLACES, design, normal, point, simulated, uniform

import biro
from biro.errors import InputError, LikelihoodError, RunError
from biro.inference.samplers import array_file, nuts, nuts_draws
from biro.inference.samplers.chains import unwound
from biro.inference.samplers.coordinates.walls import Walls
from biro.inference.samplers.coordinates.whitened import Whitened, WhitenedFrame
from biro.inference.samplers.gate import BatchGate, ClosedError
from biro.run.interrupt import RunInterrupted

pytest.importorskip("nutpie", reason="nutpie is not installed")
QUICK: dict[str, Any] = {"seed": 3, "progress": False, "n_tune": 150}


def fluxes(tmp_path: Path) -> tuple[biro.Likelihood, np.ndarray, np.ndarray]:
    """Three fluxes with normal priors; mean and covariance of the posterior."""
    obs = simulated((1.0, 0, 0), (0.5, 3, -2), (0.2, -4, 5))
    means, sds = np.array([0.8, 0.4, 0.3]), np.array([0.5, 0.3, 0.2])
    text = "".join(
        point(f"s{i}", f'"{x} arcsec"', f'"{y} arcsec"', normal(m, s, "Jy"))
        for i, ((x, y), m, s) in enumerate(zip(PLACES, means, sds, strict=True))
    )
    columns, data = design(obs, PLACES)
    precision = columns.T @ columns + np.diag(sds**-2.0)
    mean = np.linalg.solve(precision, columns.T @ data + means / sds**2)
    return biro.Likelihood(obs, sky(text + FIXED_NOISE, tmp_path)), mean, np.linalg.inv(precision)


def test_a_linear_problem_has_its_closed_form(tmp_path: Path) -> None:
    likelihood, mean, covariance = fluxes(tmp_path)
    posterior = biro.sample(likelihood, "nuts", n_draw=1000, **QUICK)
    sigma, effective = np.sqrt(np.diag(covariance)), posterior.effective
    # The mean of ESS independent samples is off by sigma / sqrt(ESS): four of them for three means.
    assert (np.abs(posterior.samples.mean(axis=0) - mean) / sigma < 4.0 / np.sqrt(effective)).all()
    # Relative error of a covariance: sqrt(2 / ESS), with ESS of squares of at least a quarter; 4.5 of them.
    error = np.abs(np.cov(posterior.samples.T) - covariance) / np.outer(sigma, sigma)
    assert error.max() < 4.5 * np.sqrt(2.0 / (0.25 * effective.min()))
    assert effective.min() > 1000
    assert posterior.n_walker == 4
    assert len(posterior.samples) == 4000
    facts = posterior.diagnostics
    assert facts["r_hat"] < 1.01
    assert facts["converged"] == 1.0
    assert facts["n_divergent"] == 0.0
    assert facts["rows_per_call"] > 2.0  # chains are worked on together
    assert "R-hat" in str(posterior.summary())


def test_trajectories_may_be_shorter(tmp_path: Path) -> None:
    likelihood, mean, covariance = fluxes(tmp_path)
    posterior = biro.sample(likelihood, "nuts", n_draw=500, max_depth=1, **QUICK)
    # One step a draw, one gradient a step; more are the first of each chain, and for the first step size.
    assert posterior.diagnostics["depth"] == 1.0
    assert 4 * 650 <= posterior.diagnostics["n_gradient"] < 4 * 700
    # As above: four errors of the mean of ESS samples.
    pulls = (posterior.samples.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / posterior.effective)
    assert (np.abs(pulls) < 4.0).all()


def test_an_end_of_a_prior_and_a_noise_factor(tmp_path: Path) -> None:
    """A flux whose best value lies below its prior: half a bell; s as its inverse-gamma distribution."""
    obs = simulated((-0.004, 0, 0), noise=0.2, seed=4)
    likelihood = biro.Likelihood(
        obs, sky(point("s", '"0 arcsec"', '"0 arcsec"', uniform(0, 2, "Jy")), tmp_path)
    )
    posterior = biro.sample(likelihood, "nuts", n_draw=1000, **QUICK)
    assert posterior.diagnostics["n_divergent"] < 10  # of 4000; hundreds from a wrong start
    assert posterior.diagnostics["r_hat"] < 1.02
    columns, data = design(obs, PLACES[:1])
    best = float(columns[:, 0] @ data / (columns[:, 0] @ columns[:, 0]))
    assert best < 0
    s = np.sqrt(np.sum((data - best * columns[:, 0]) ** 2) / data.size)  # known to 2 %
    sd = s / np.linalg.norm(columns)
    cut = stats.truncnorm(-best / sd, np.inf, best, sd)
    # Quantiles of ESS draws: within 4 sqrt(p (1 - p) / ESS) in probability; 2 % for the unknown s.
    for p in (0.1, 0.5, 0.9):
        found = cut.cdf(np.quantile(posterior.samples[:, 0], p))
        assert abs(found - p) < 4 * np.sqrt(p * (1 - p) / posterior.effective[0]) + 0.02
    assert posterior.samples[:, 0].min() >= 0.0


PLACES_AT_AN_END = {"at the end": 0.0, "beside it": 1e-4, "at the other": 0.999}
# Each place and each width, and the widest, which is flattest, at either end.
QUICKEST = [("at the end", 0.05), ("at the end", 3.0), ("beside it", 0.5), ("at the other", 3.0)]


@pytest.mark.parametrize(
    ("at", "sigma"),
    [
        pytest.param(
            place, sigma, id=f"{sigma}-{name}",
            marks=() if (name, sigma) in QUICKEST else pytest.mark.thorough,
        )
        for name, place in PLACES_AT_AN_END.items()
        for sigma in (0.05, 0.5, 3.0)
    ],
)  # fmt: skip
def test_a_maximum_at_an_end_where_the_density_is_flat(at: float, sigma: float) -> None:
    """There y of the maximum is far out, and its curvature says nothing of the spread of y."""
    covariance = np.array([[sigma**2, 0.6 * sigma * 1e-3], [0.6 * sigma * 1e-3, 1e-6]])
    likelihood = SmoothGaussian([Flat(0, 0.999, "ratio"), Flat(-2, 2, "east")], [at, 0.3], covariance)
    posterior = biro.sample(likelihood, "nuts", n_draw=1000, **QUICK)
    assert posterior.diagnostics["n_divergent"] < 20  # of 4000
    assert posterior.diagnostics["r_hat"] < 1.02
    cut = stats.truncnorm(-at / sigma, (0.999 - at) / sigma, at, sigma)  # `east` is nowhere near an end
    for p in (0.1, 0.5, 0.9):  # as above
        found = cut.cdf(np.quantile(posterior.samples[:, 0], p))
        assert abs(found - p) < 4 * np.sqrt(p * (1 - p) / posterior.effective[0])


@pytest.mark.parametrize("a", [0.0, 0.001, 0.1])
@pytest.mark.parametrize("unknown", [0.6, 1e4], ids=["a - b to 0.6", "a - b unknown"])
def test_those_that_depend_on_what_is_moved_in_follow_it(a: float, unknown: float) -> None:
    """a + b is known to 0.001: one alone would leave the ridge at once."""
    both, apart = np.array([1.0, 1.0]), np.array([1.0, -1.0])
    precision = np.outer(both, both) / 1e-6 + np.outer(apart, apart) / unknown**2
    priors = [Flat(0, 1, "a"), Flat(0, 10, "b")]
    likelihood = SmoothGaussian(priors, [a, 1.0 - a], np.linalg.inv(precision))
    maximum = biro.maximise(likelihood, seed=1)
    density = Whitened.about(likelihood, maximum.laplace)
    lost = maximum.log_posterior - float(likelihood.log_posterior(density.theta(np.zeros((1, 2))))[0])
    # One sigma of one parameter, the other on the ridge, as the curvature has it; a rounding below 0.
    assert -1e-12 < lost < 0.51
    if a == 0.0 and unknown < 1.0:
        assert density.theta(np.zeros((1, 2)))[0, 0] > 0.05  # moved in, and by a part of its sigma, 0.3


def test_the_same_seed_gives_the_same_draws(tmp_path: Path) -> None:
    likelihood, _, _ = fluxes(tmp_path)
    one, two = (biro.sample(likelihood, "nuts", n_draw=100, **QUICK) for _ in range(2))
    # Batches differ with the timing of threads; a row's answer does not.
    assert np.array_equal(one.samples, two.samples)


def test_a_run_that_is_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood, mean, covariance = fluxes(tmp_path)
    options = {**QUICK, "n_draw": 1000, "run_dir": tmp_path / "run"}
    inner, calls = likelihood.log_posterior_and_gradient, [0]

    def slowly(theta: Any) -> Any:
        calls[0] += 1
        time.sleep(0.002)
        if calls[0] == 1500:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return inner(theta)

    monkeypatch.setattr(likelihood, "log_posterior_and_gradient", slowly)
    with pytest.raises(RunInterrupted, match=r"stopped by SIGTERM; \d+ draws of each chain saved"):
        biro.sample(likelihood, "nuts", **options)
    with np.load(tmp_path / "run" / nuts_draws.FILE) as found:
        before = found["z"]
    assert 0 < before.shape[1] < 1000
    monkeypatch.setattr(likelihood, "log_posterior_and_gradient", inner)
    posterior = biro.sample(likelihood, "nuts", **options)
    assert len(posterior.samples) == 4000
    with np.load(tmp_path / "run" / nuts_draws.FILE) as found:
        assert np.array_equal(found["z"][:, : before.shape[1]], before)
    sigma = np.sqrt(np.diag(covariance))
    away = np.abs(posterior.samples.mean(axis=0) - mean) / sigma
    assert (away < 4.0 / np.sqrt(posterior.effective)).all()
    again = biro.sample(likelihood, "nuts", **options)  # read from there
    assert np.array_equal(again.samples, posterior.samples)
    more = biro.sample(likelihood, "nuts", **{**options, "n_draw": 1100})
    assert np.array_equal(more.samples[:4000], posterior.samples)
    assert len(more.samples) == 4400


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What nutpie itself says of each process, whether it came to its end or was aborted."""
    found: list[Any] = []
    package = nuts.nutpie_modules()
    inner = package.sample

    def sample(*args: Any, **kwargs: Any) -> Any:
        sampler = inner(*args, **kwargs)
        wait, abort = sampler.wait, sampler.abort

        def kept(call: Any) -> Any:
            def caught(*args: Any, **kwargs: Any) -> Any:
                tables = call(*args, **kwargs).get_arrow_trace()  # which gives them once
                found.append(tables[1])
                return SimpleNamespace(get_arrow_trace=lambda: tables)

            return caught

        sampler.wait, sampler.abort = kept(wait), kept(abort)
        return sampler

    monkeypatch.setattr(package, "sample", sample)
    return found


class Walled(SmoothGaussian):
    """Two dimensions, normal, and nothing beyond 1.5 standard deviations of the first."""

    def __init__(self) -> None:
        super().__init__([Flat(-50, 50, "a"), Flat(-50, 50, "b")], [0.0, 0.0], np.eye(2))
        self.n_asked, self.stop_at = 0, np.inf

    def log_posterior_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.n_asked += len(theta)
        if self.n_asked >= self.stop_at:
            self.stop_at = np.inf
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        value, slope = super().log_posterior_and_gradient(theta)
        beyond = theta[:, 0] > 1.5
        return np.where(beyond, -np.inf, value), np.where(beyond[:, None], np.nan, slope)


def test_what_is_said_of_a_run_is_of_all_its_processes(
    tmp_path: Path, traces: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended outside and energies as nutpie's own traces have them; gradients as counted."""
    options: dict[str, Any] = {"seed": 3, "progress": False, "n_tune": 50, "n_draw": 400}
    # The climb from the best draw asks for gradients as well.
    monkeypatch.setattr("biro.inference.samplers.sampling.with_peak", lambda target, posterior: posterior)
    alone = Walled()
    biro.maximise(alone, seed=3)
    likelihood = Walled()
    likelihood.stop_at = 6000
    with pytest.raises(RunInterrupted):
        biro.sample(likelihood, "nuts", run_dir=tmp_path / "run", **options)
    first = nuts_draws.NutsDrawsFile(tmp_path / "run" / nuts_draws.FILE, run_id(tmp_path / "run")).read(4, 2)
    assert first is not None
    n_before = first[1].z.shape[1]
    assert 50 < n_before < 350
    # A call of four rows was under way when the signal came; until all chains have ended, more are made.
    n_gradient, n_asked = first[1].n_gradient, likelihood.n_asked
    assert 6000 - 4 <= n_gradient + alone.n_asked <= n_asked
    posterior = biro.sample(likelihood, "nuts", run_dir=tmp_path / "run", **options)
    assert len(traces) == 2
    columns = {name: [[said.column(name).to_numpy() for said in process] for process in traces]
               for name in ("tuning", "diverging")}  # fmt: skip
    drawn = [
        [diverging[~tuning] for diverging, tuning in zip(*pair, strict=True)]
        for pair in zip(columns["diverging"], columns["tuning"], strict=True)
    ]
    expected = sum(each[:n_before].sum() for each in drawn[0]) + sum(each.sum() for each in drawn[1])
    of_the_last = sum(each.sum() for each in drawn[1])
    facts = posterior.diagnostics
    assert facts["n_outside"] == expected > of_the_last > 0
    assert facts["n_divergent"] == 0.0  # none of a step that was too long
    assert facts["n_gradient"] == n_gradient + likelihood.n_asked - n_asked
    with np.load(tmp_path / "run" / nuts_draws.FILE) as found:
        z, said, frame = found["z"], found["stats"], WhitenedFrame.of(found)
    import arviz

    assert facts["bfmi"] == pytest.approx(float(arviz.bfmi(said["energy"]).min()), rel=1e-12)
    # Each energy is that of its draw: what is left without the potential is kinetic, chi-squared(2) / 2.
    density = Whitened(likelihood, frame)
    kinetic = said["energy"] + density.value_and_gradient(z.reshape(-1, 2))[:, 0].reshape(z.shape[:2])
    assert kinetic.min() > -1e-9
    assert stats.kstest(kinetic[:, ::4].ravel(), stats.gamma(1.0).cdf).pvalue > 1e-4
    # All there is was drawn: the same is said without another process.
    (tmp_path / "run" / "posterior.nc").unlink()
    again = biro.sample(likelihood, "nuts", run_dir=tmp_path / "run", **options)
    for name in ("n_outside", "bfmi", "depth", "n_gradient"):
        assert again.diagnostics[name] == facts[name]


def plain_frame(n: int) -> WhitenedFrame:
    """Coordinates of n parameters without bounds."""
    none = np.zeros(0, np.int64)
    return WhitenedFrame(np.zeros(n), np.eye(n), np.zeros(n, np.int64), np.full(n, -1), none, Walls.none())


def run_id(path: Path) -> str:
    return str(json.loads((path / "run.json").read_text())["run_id"])


class TwoModes(SmoothGaussian):
    """Normal distributions about -200 and 200: no step goes so far, not even the first of tuning."""

    def __init__(self) -> None:
        super().__init__([Flat(-1000, 1000, "a")], [0.0], np.eye(1))

    def log_posterior_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside = np.isfinite(self.log_prior(theta))
        away = theta - np.where(theta < 0.0, -200.0, 200.0)
        value = np.where(inside, -0.5 * away[:, 0] ** 2, -np.inf)
        return value, np.where(inside[:, None], -away, np.nan)


def test_each_chain_goes_on_from_its_own_last_draw(tmp_path: Path) -> None:
    """Two chains begin in either mode. Two are moved to the other mode, and stay there."""
    likelihood, options = TwoModes(), {**QUICK, "run_dir": tmp_path / "run"}
    biro.sample(likelihood, "nuts", n_draw=50, **options)
    path = tmp_path / "run" / nuts_draws.FILE
    with np.load(path) as found:
        arrays = dict(found)
    density = Whitened(likelihood, WhitenedFrame.of(arrays))
    change = likelihood.model.unconstrained

    def mirrored(z: np.ndarray) -> np.ndarray:
        y = change.of_theta(-density.theta(z))
        return np.asarray((y - arrays["middle"]) @ np.linalg.inv(arrays["factor"]).T)

    for k in (1, 2):
        arrays["z"][k], arrays["last"][k] = mirrored(arrays["z"][k]), mirrored(arrays["last"][k : k + 1])[0]
    expected = np.sign(density.theta(arrays["last"]))[:, 0]
    assert sorted(expected) == [-1, -1, 1, 1]
    for n_draw in (80, 110, 140):
        np.savez(path, **arrays)  # with the scale of one mode
        posterior = biro.sample(likelihood, "nuts", n_draw=n_draw, **options)
        signs = np.sign(posterior.samples[:, 0]).reshape(-1, 4)  # step after step
        assert (signs == signs[0]).all()
        assert signs[0].tolist() == expected.tolist()


class Spike(SmoothGaussian):
    """ln p = d - sqrt(d^2 + x^2): of curvature 1 / d in the middle, and falling like exp(-|x|)."""

    d = 0.01

    def __init__(self) -> None:
        super().__init__([Flat(-500, 500, "x")], [0.0], np.eye(1))
        self.n_call_left = 10**9

    def log_posterior_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.n_call_left -= 1
        if self.n_call_left == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        root = np.sqrt(self.d**2 + theta**2)
        value = self.d - root[:, 0] + self.log_prior(theta)
        return value, np.where(np.isfinite(value)[:, None], -theta / root, np.nan)


def test_a_run_stopped_while_it_tunes_goes_on_in_units_of_the_spread(tmp_path: Path) -> None:
    """Which is 14 times what the curvature at the maximum says."""
    likelihood = Spike()
    likelihood.n_call_left = 3000  # a draw takes some ten
    options = {**QUICK, "n_tune": 3000, "n_draw": 300, "run_dir": tmp_path / "run"}
    with pytest.raises(RunInterrupted, match=r"[1-9]\d* steps of tuning of each chain saved"):
        biro.sample(likelihood, "nuts", **options)
    path = tmp_path / "run"
    found = nuts_draws.NutsDrawsFile(path / nuts_draws.FILE, run_id(path)).read(4, 1)
    assert found is not None
    (_, factor, *_), before = found
    assert 100 < before.n_tuned < 3000
    density = lambda x: np.exp(-np.hypot(x, Spike.d))  # noqa: E731
    moments = [integrate.quad(lambda x, k=k: x**k * density(x), -60, 60, points=[0.0])[0] for k in (0, 2)]
    spread = np.sqrt(moments[1] / moments[0])
    # theta = 250 w, a quarter of the width of the prior; of some 50 draws: 10 to 20 %.
    assert 250.0 * factor[0, 0] * before.scale[0] == pytest.approx(spread, rel=0.4)
    assert 250.0 * factor[0, 0] < 0.1 * spread
    likelihood.n_call_left = 10**9
    posterior = biro.sample(likelihood, "nuts", **options)
    assert posterior.samples.std() == pytest.approx(spread, rel=0.4)


def test_all_was_drawn_but_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood, _, _ = fluxes(tmp_path)
    options = {**QUICK, "n_draw": 100, "run_dir": tmp_path / "run"}

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(biro.Posterior, "save", full)
        first = biro.sample(likelihood, "nuts", **options)
    again = biro.sample(likelihood, "nuts", **options)
    assert np.array_equal(again.samples, first.samples)
    assert str(again.summary()) == str(first.summary())
    assert "divergences, energy (BFMI)" in str(again.summary())


@pytest.mark.parametrize("look", [0.2, 600.0])
def test_what_goes_wrong_in_a_chain_is_said(
    look: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late somebody looks: chains without answers stay where they are, and soon are at the end."""
    monkeypatch.setattr(nuts, "CHECK_EVERY", look)
    likelihood, _, _ = fluxes(tmp_path)
    inner, calls = likelihood.log_posterior_and_gradient, [0]

    def fails(theta: Any) -> Any:
        calls[0] += 1
        if calls[0] > 1500:  # the maximum takes some 50, a draw about three
            raise LikelihoodError("the device is lost")
        return inner(theta)

    monkeypatch.setattr(likelihood, "log_posterior_and_gradient", fails)
    with pytest.raises(LikelihoodError, match="the device is lost"):
        biro.sample(likelihood, "nuts", n_draw=1000, run_dir=tmp_path / "run", **QUICK)
    with np.load(tmp_path / "run" / nuts_draws.FILE) as found:
        kept = found["z"]
    assert 100 < kept.shape[1] < 900
    # NUTS leaves a place with nearly every draw; those of chains without answers stay.
    assert (np.abs(np.diff(kept[:, -20:], axis=1)).max(axis=2) > 0).mean() > 0.8


def test_draws_are_written_less_often_where_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 3 % of the time, as stated; after 5 s where it takes less."""
    clock = SimpleNamespace(now=0.0, took=0.0)
    monkeypatch.setattr(array_file, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def write(path: Path, data: bytes) -> None:
        clock.now += clock.took

    monkeypatch.setattr(array_file, "write_atomic", write)
    file = nuts_draws.NutsDrawsFile(tmp_path / "draws.npz", "run")
    draws = nuts_draws.NutsDraws(10, nuts_draws.NutsProgress.none(2, 3))
    for clock.took, pause in ((0.01, 5.0), (3.0, 100.0)):
        file.save(plain_frame(3), draws)
        end = clock.now
        for clock.now, is_due in ((end + 0.999 * pause, False), (end + 1.001 * pause, True)):
            assert file.is_due == is_due


def test_a_broken_file_of_draws_is_said(tmp_path: Path) -> None:
    path = tmp_path / nuts_draws.FILE
    path.write_bytes(b"no archive")
    with pytest.raises(RunError, match=r"cannot be read .* remove it to start again"):
        nuts_draws.NutsDrawsFile(path, "this").read(4, 3)
    begun = nuts_draws.NutsDraws(0, nuts_draws.NutsProgress.none(4, 3))
    nuts_draws.NutsDrawsFile(path, "other").save(plain_frame(3), begun)
    assert nuts_draws.NutsDrawsFile(path, "other").read(4, 3) is not None
    with pytest.raises(RunError, match="another run's draws"):
        nuts_draws.NutsDrawsFile(path, "this").read(4, 3)


def test_what_is_missing_or_meaningless_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood, _, _ = fluxes(tmp_path)
    with pytest.raises(InputError, match="target_accept must be below 1"):
        biro.sample(likelihood, "nuts", target_accept=1.5, **QUICK)
    with pytest.raises(InputError, match="n_chain must be at least 2"):
        biro.sample(likelihood, "nuts", n_chain=1, **QUICK)
    with pytest.raises(InputError, match="max_depth must be above 0"):
        biro.sample(likelihood, "nuts", max_depth=0, **QUICK)
    with pytest.raises(InputError, match="n_draw must be at least 4"):
        biro.sample(likelihood, "nuts", n_draw=1, **QUICK)
    monkeypatch.setitem(sys.modules, "nutpie.compiled_pyfunc", None)
    with pytest.raises(InputError, match=r"pip install '.\[nuts\]'"):
        biro.sample(likelihood, "nuts", **QUICK)


# --- The gate


def test_threads_are_answered_together() -> None:
    def evaluate(rows: np.ndarray) -> np.ndarray:
        time.sleep(0.001)
        return np.asarray(np.column_stack([rows.sum(axis=1), rows**2]))

    gate, found = BatchGate(evaluate), dict[int, list[np.ndarray]]()

    def chain(k: int) -> None:
        found[k] = [gate(np.array([k, i], dtype=float)) for i in range(50 * (k + 1))]

    threads = [threading.Thread(target=chain, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    for k in range(4):
        assert [answer.tolist() for answer in found[k]] == [
            [k + i, k * k, i * i] for i in range(50 * (k + 1))
        ]
    assert gate.n_row == 50 * (1 + 2 + 3 + 4)
    # 200 if every call had all who still ask; a few more where a thread came late.
    assert gate.n_call < 300


def test_threads_that_asked_alone_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once while the other did not ask; from then on both are waited for."""
    monkeypatch.setattr("biro.inference.samplers.gate.PATIENCE", 20.0)
    sizes, has_asked = list[int](), threading.Event()

    def evaluate(rows: np.ndarray) -> np.ndarray:
        sizes.append(len(rows))
        return rows

    gate = BatchGate(evaluate)

    def chain() -> None:
        gate(np.ones(1))
        has_asked.set()
        gate(np.ones(1))

    other = threading.Thread(target=chain)
    gate(np.zeros(1))
    other.start()
    has_asked.wait(timeout=30)
    assert gate(np.zeros(1)).tolist() == [0.0]
    other.join(timeout=30)
    assert sizes == [1, 1, 2]


def test_a_closed_gate_lets_all_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who wait for an answer, and who come later."""
    monkeypatch.setattr("biro.inference.samplers.gate.PATIENCE", 20.0)
    gate, said = BatchGate(lambda rows: rows), list[str]()
    gate(np.zeros(1))
    other = threading.Thread(target=gate, args=(np.zeros(1),))
    other.start()
    other.join(timeout=30)

    def chain() -> None:
        try:
            gate(np.zeros(1))
        except ClosedError:
            said.append("closed")

    waits = threading.Thread(target=chain)  # for a second one
    waits.start()
    while not gate._waiting:
        time.sleep(0.001)
    gate.close()
    waits.join(timeout=10)
    assert said == ["closed"]
    chain()
    assert said == ["closed"] * 2
    assert not gate.busy


def test_an_error_reaches_all_who_ask() -> None:
    def evaluate(rows: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    gate, said = BatchGate(evaluate), []

    def chain() -> None:
        try:
            gate(np.zeros(1))
        except ValueError as error:
            said.append(str(error))

    threads = [threading.Thread(target=chain) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert said == ["no"] * 3


def test_chains_that_went_round_are_the_same() -> None:
    """An angle about the ends of its range: with its turns taken out it is normal, as it was drawn."""
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(1)
    straight = rng.normal(178.0, 5.0, size=(4, 500, 2))
    turns = np.zeros_like(straight)
    turns[..., 0] = 180.0 * np.array([0, 1, -2, 0])[:, None] - 180.0 * (straight[..., 0] > 180.0)
    found = unwound(straight + turns, np.array([True, False]), np.array([180.0, 1.0]))
    # Equal but for a whole number of periods of all chains together.
    np.testing.assert_allclose(np.ptp(found[..., 0] - straight[..., 0]), 0.0, atol=1e-9)
    np.testing.assert_array_equal(found[..., 1], straight[..., 1])
    assert float(arviz.rhat(arviz.convert_to_dataset(found))["x"].max()) < 1.01
