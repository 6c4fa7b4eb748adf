"""Tempering: closed-form evidences and modes, honest errors, exact resumption, remarks and refusals."""

from __future__ import annotations

import signal
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gaussian_likelihood import Flat, GaussianLikelihood, five_parameters
from scipy import stats

from biro.errors import InputError, LikelihoodError, RunError
from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers.options import parse_options
from biro.inference.samplers.sampling import sample
from biro.inference.samplers.tempering.evidence import stepping_stone
from biro.inference.samplers.tempering.ladder import equalised, log_acceptance, rungs_of, swap
from biro.inference.samplers.tempering.mixture import Mixtures
from biro.inference.samplers.tempering.moves import CubeMoves
from biro.inference.samplers.tempering.state_file import FILE
from biro.run.interrupt import RunInterrupted

QUICK = {"seed": 5, "progress": False, "n_walker": 8, "n_effective": 300}


class Several(GaussianLikelihood):
    """Normal peaks far from each other and from the ends of the prior, with these parts of the evidence.

    L = sum_k part_k N(theta; centre_k, sigma_k^2), so that Z = 1 / V for a uniform prior of volume V.
    """

    def __init__(self, centres: list[float], sigmas: list[float], parts: list[float], n_param: int) -> None:
        priors = [Flat(-10, 10, f"p{i}") for i in range(n_param)]
        super().__init__(priors, np.zeros(n_param), np.eye(n_param))
        self._of = list(zip(centres, sigmas, parts, strict=True))

    @property
    def log_evidence(self) -> float:
        return -float(np.log(self.span).sum())

    def log_likelihood(self, theta: np.ndarray) -> np.ndarray:
        self.n_call += 1

        def normal(centre: float, sigma: float) -> np.ndarray:
            squared = (((theta - centre) / sigma) ** 2).sum(axis=1)
            return -0.5 * squared - theta.shape[1] * np.log(sigma * np.sqrt(2.0 * np.pi))

        each = [np.log(part) + normal(centre, sigma) for centre, sigma, part in self._of]
        return np.asarray(np.logaddexp.reduce(each, axis=0))


def two(n_param: int = 2) -> Several:
    return Several([4.0, -4.0], [0.3, 0.15], [0.7, 0.3], n_param)


def interrupting(likelihood: GaussianLikelihood, n_call: int) -> GaussianLikelihood:
    """The likelihood sends a signal to this process at its n-th call."""
    inner = likelihood.log_likelihood

    def log_likelihood(theta: np.ndarray) -> np.ndarray:
        if likelihood.n_call == n_call:
            signal.raise_signal(signal.SIGTERM)
        return inner(theta)

    likelihood.log_likelihood = log_likelihood  # type: ignore[method-assign]
    return likelihood


def test_posterior_and_evidence_in_closed_form() -> None:
    likelihood = five_parameters()
    found = sample(likelihood, "tempering", seed=11, progress=False, n_effective=1000)
    sigma = np.sqrt(np.diag(likelihood.covariance))
    # The mean of ESS independent samples is off by sigma / sqrt(ESS); 4 of those for five means.
    away = np.abs(found.samples.mean(axis=0) - likelihood.mean) / sigma
    assert (away < 4.0 / np.sqrt(found.effective)).all()
    # Covariances of normals: relative error below sqrt(2 / ESS) of sigma_i sigma_j; 4.5 of those for 15.
    error = np.abs(np.cov(found.samples.T) - likelihood.covariance) / np.outer(sigma, sigma)
    assert error.max() < 4.5 * np.sqrt(2.0 / found.effective.min())
    assert found.log_evidence_err < 0.15
    assert abs(found.log_evidence - likelihood.log_evidence) < 4.0 * found.log_evidence_err
    assert found.diagnostics["converged"] == 1.0
    assert np.allclose(found.log_prior, -5 * np.log(20.0))
    text = " ".join(str(found.summary()).split())
    assert "round trips between prior and posterior, R-hat" in text
    assert "NOT CONVERGED" not in text


def test_errors_of_evidence_and_of_modes_are_honest() -> None:
    """Pulls over 30 seeds: the rms of 30 unit normals is 1 +- 0.13, so that 0.65 to 1.35 is 2.7 sigma."""
    likelihood, pulls, parts = two(), [], []
    for seed in range(30):
        found = sample(likelihood, "tempering", **{**QUICK, "seed": seed})
        pulls.append((found.log_evidence - likelihood.log_evidence) / found.log_evidence_err)
        wide = found.samples[:, 0] > 0.0
        parts.append((wide.mean() - 0.7) / np.sqrt(0.21 / found.effective[0]))
    for of in (pulls, parts):
        assert 0.65 < np.sqrt(np.mean(np.square(of))) < 1.35
        assert abs(np.mean(of)) < 4.0 / np.sqrt(30.0)


def test_an_angle_goes_round_and_a_constraint_is_counted() -> None:
    """sigma = 40 of 180 deg across the ends: sums over the circle; half of the prior is forbidden."""
    priors = [Flat(0, 180, "pa", "deg", period=180.0), Flat(-5, 5, "b")]
    likelihood = GaussianLikelihood(
        priors, [175.0, 0.0], np.diag([400.0, 1.0]), allowed=lambda t: t[:, 1] > 0.0,
        log_constraint_mass=float(np.log(0.5)),
    )  # fmt: skip
    found = sample(likelihood, "tempering", **{**QUICK, "n_effective": 1000})
    # Within half a turn of the centre the angle is normal: 90 deg are 4.5 sigma.
    low = stats.norm(175.0, 20.0)
    part = low.cdf(270.0) - low.cdf(180.0)
    error = np.sqrt(part * (1 - part) / found.effective[0])
    assert np.mean(found["pa"] < 90.0) == pytest.approx(part, abs=4.0 * error)
    assert found.samples[:, 1].min() > 0.0
    # Z = int L pi / mass = (2 pi 20 / 2) / (180 x 10 x 0.5).
    exact = np.log(2.0 * np.pi * 20.0 / 2.0 / 900.0)
    assert found.log_evidence == pytest.approx(exact, abs=4.0 * found.log_evidence_err)


def test_interrupted_and_resumed_is_the_same_run(tmp_path: Path) -> None:
    likelihood = two()
    whole = sample(likelihood, "tempering", **QUICK, run_dir=tmp_path / "whole")
    n_call = likelihood.n_call
    for at, words in ((30, "no step was saved"), (n_call - 50, r"steps? saved"), (20, r"steps? saved")):
        with pytest.raises(RunInterrupted, match=f"stopped by SIGTERM; .*{words}"):
            sample(interrupting(two(), at), "tempering", **QUICK, run_dir=tmp_path / "parts")
    parts = sample(two(), "tempering", **QUICK, run_dir=tmp_path / "parts")
    assert np.array_equal(whole.samples, parts.samples)
    assert np.array_equal(whole.log_likelihood, parts.log_likelihood)
    assert (whole.log_evidence, whole.log_evidence_err) == (parts.log_evidence, parts.log_evidence_err)
    assert np.array_equal(Posterior.load(tmp_path / "parts" / "posterior.nc").samples, whole.samples)
    more = sample(two(), "tempering", **{**QUICK, "n_effective": 3000}, run_dir=tmp_path / "parts")
    assert more.diagnostics["n_step"] > whole.diagnostics["n_step"]
    assert more.effective.min() > 2500


def test_a_state_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunInterrupted):
        sample(interrupting(two(), 330), "tempering", **QUICK, run_dir=tmp_path)
    state = tmp_path / FILE
    whole = state.read_bytes()
    for spoilt in (whole[: len(whole) // 2], b"", whole[:200] + b"\0" * 50 + whole[250:]):
        state.write_bytes(spoilt)
        with pytest.raises(RunError, match=r"remove it to start again"):
            sample(two(), "tempering", **QUICK, run_dir=tmp_path)


def test_too_few_round_trips_are_said_above_the_table() -> None:
    found = sample(two(), "tempering", **{**QUICK, "max_steps": 10})
    first = found.summary().warnings()[0]
    assert first.startswith("NOT CONVERGED: round trips between prior and posterior: ")
    assert first.endswith("To converge, raise n_effective and max_steps and resume")
    assert not found.summary().evidence_is_trusted


def test_refusals() -> None:
    with pytest.raises(InputError, match="n_walker must be at least 4"):
        sample(two(), "tempering", n_walker=3)
    with pytest.raises(InputError, match="tempering does not converge with 201 parameters"):
        parse_options("tempering", {}, 201)
    nowhere = two()
    nowhere.log_likelihood = lambda theta: np.full(len(theta), -np.inf)  # type: ignore[method-assign]
    with pytest.raises(LikelihoodError, match="has a finite likelihood; check the priors"):
        sample(nowhere, "tempering", progress=False)


def test_stepping_stones_of_independent_draws() -> None:
    """ln L = -x^2 / 2 and a prior N(0, s^2): Z_b = 1 / sqrt(1 + b s^2), each rung a normal distribution."""
    rng, s, beta = np.random.default_rng(1), 30.0, np.array([0.0, 1e-3, 1e-2, 0.1, 1.0])
    pulls = []
    for _ in range(100):
        x = rng.normal(size=(200, 5, 4)) * (1.0 / np.sqrt(beta + s**-2))[:, None]
        log_z, deviation = stepping_stone(beta, -0.5 * x**2)
        pulls.append((log_z + 0.5 * np.log(1.0 + s**2)) / np.sqrt(deviation.var() / deviation.size))
    # The rms of a hundred unit normals is 1 +- 0.07.
    assert np.sqrt(np.mean(np.square(pulls))) == pytest.approx(1.0, abs=0.21)


def test_a_ladder_is_equalised_and_swaps_take_turns() -> None:
    beta, rejection = np.array([0.0, 0.1, 1.0]), np.array([0.6, 0.2])
    # 0.8 in four steps of 0.2: three of them in the first interval.
    assert np.allclose(equalised(beta, rejection, 5), [0.0, 0.1 / 3, 0.2 / 3, 0.1, 1.0])
    assert rungs_of(4.0) == 10
    height = np.array([[-np.inf, 5.0], [1.0, 2.0], [3.0, 1.0]])
    alpha = log_acceptance(beta, height)
    assert np.allclose(np.exp(alpha), [[0.0, 1.0], [np.exp(-1.8), 1.0]])
    state = height.copy()
    swapped = swap(np.random.default_rng(0), np.zeros((2, 2)), True, (state,))
    assert swapped.tolist() == [[False, False], [True, True]]
    assert np.array_equal(state, height[[0, 2, 1]])


def test_moves_leave_a_density_as_it_is() -> None:
    """Metropolis-Hastings in the unit cube and round a circle, with an archive that does not fit."""
    rng = np.random.default_rng(3)
    beta_law = stats.beta(2.0, 5.0)
    archive = rng.random((1, 512, 2)) * [0.5, 0.3]
    target = SimpleNamespace(wraps=np.array([False, True]))
    moves = CubeMoves(target, archive, np.array([0.5]))  # type: ignore[arg-type]
    log_density = lambda u: beta_law.logpdf(u[..., 0]) + np.cos(2 * np.pi * u[..., 1])  # noqa: E731
    x = np.stack(
        [beta_law.rvs(4000, random_state=rng), rng.vonmises(0.0, 1.0, 4000) / (2 * np.pi) % 1.0], -1
    )[None]
    for _ in range(30):
        new, log_ratio, _ = moves.propose(rng, x)
        inside = ((new >= 0.0) & (new < 1.0)).all(axis=2)
        gain = log_density(np.where(inside[..., None], new, x)) - log_density(x) + log_ratio
        take = inside & (np.log(rng.random(gain.shape)) < gain)
        x = np.where(take[..., None], new, x)
    angle = stats.vonmises(1.0)
    assert stats.kstest(x[0, :, 0], beta_law.cdf).pvalue > 1e-3
    assert stats.kstest((x[0, :, 1] * 2 * np.pi + np.pi) % (2 * np.pi) - np.pi, angle.cdf).pvalue > 1e-3


def test_a_mixture_finds_two_clouds_and_is_normalised() -> None:
    rng = np.random.default_rng(2)
    points = np.concatenate([rng.normal(-3.0, 0.2, (300, 1)), rng.normal(2.0, 1.0, (200, 1))])[None]
    found = Mixtures.fitted(points)
    assert sorted(found.weight[0].round(2)) == pytest.approx([0.4, 0.6], abs=0.02)
    grid = np.linspace(-10.0, 10.0, 4001)
    density = np.exp(found.log_density(grid[None, :, None]))[0]
    assert density.sum() * 0.005 == pytest.approx(1.0, abs=1e-6)
    drawn = found.draws(rng, 20_000)[0, :, 0]
    # The part below -1: 0.6 and a tail of 0.3 % of the other cloud.
    assert np.mean(drawn < -1.0) == pytest.approx(density[grid < -1.0].sum() * 0.005, abs=0.015)


@pytest.mark.parametrize("fraction", [0.1, 0.001])
def test_a_constraint_that_forbids_most_of_the_prior(fraction: float) -> None:
    """Swaps with impossible draws of the prior are no fault of the ladder; few possible ones are enough."""
    likelihood = GaussianLikelihood(
        [Flat(0, 1, "a"), Flat(-5, 5, "b")], [fraction / 2, 0.0], np.diag([(fraction / 10) ** 2, 0.04]),
        allowed=lambda t: t[:, 0] < fraction, log_constraint_mass=float(np.log(fraction)),
    )  # fmt: skip
    found = sample(likelihood, "tempering", **{**QUICK, "n_effective": 2000, "max_steps": 400})
    assert found.diagnostics["most_rejected"] < 0.9
    # All of the normal distribution but 6e-7 is allowed: Z = 2 pi s_a s_b / (10 fraction).
    exact = np.log(2.0 * np.pi * 0.1 * 0.2 / 10.0)
    assert found.log_evidence == pytest.approx(exact, abs=4.0 * found.log_evidence_err)
    sigma = np.array([fraction / 10, 0.2])
    assert (
        np.abs(found.samples.mean(axis=0) - likelihood.mean) / sigma < 4.0 / np.sqrt(found.effective)
    ).all()


def test_a_flat_likelihood_converges_and_few_steps_give_no_traces() -> None:
    flat = two()
    flat.log_likelihood = lambda theta: np.zeros(len(theta))  # type: ignore[method-assign]
    found = sample(flat, "tempering", **QUICK)
    assert found.log_evidence == pytest.approx(0.0, abs=1e-12)
    assert found.diagnostics["converged"] == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = sample(two(), "tempering", **{**QUICK, "max_steps": 1})
    assert few.diagnostics["r_hat"] == np.inf
    assert few.summary().warnings()[0].startswith("NOT CONVERGED: ")


def test_rungs_too_far_apart_are_said() -> None:
    found = sample(two(), "tempering", **{**QUICK, "max_steps": 10})
    apart = replace(found, diagnostics={**found.diagnostics, "most_rejected": 0.95})
    assert "Swaps of two temperatures are rejected in 95 % of the cases" in apart.summary().warnings()[0]
