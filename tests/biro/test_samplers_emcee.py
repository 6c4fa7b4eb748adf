"""emcee: closed-form posterior, automatic length, exact resumption, refusals."""

import errno
import itertools
import json
import signal

import numpy as np
import pytest
from gaussian_likelihood import Flat, GaussianLikelihood, five_parameters

from biro.errors import InputError, LikelihoodError, RunError
from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers import emcee_chain
from biro.inference.samplers.ensemble import chain_tau, looks
from biro.inference.samplers.sampling import sample
from biro.run.interrupt import RunInterrupted

QUICK = {"seed": 5, "progress": False, "n_tau": 20.0}


def small(**about):
    priors = [Flat(-5, 5, "a"), Flat(-5, 5, "b")]
    return GaussianLikelihood(priors, [1.0, -1.0], [[0.09, 0.05], [0.05, 0.25]], **about)


def interrupting(likelihood, n_call, number=signal.SIGTERM):
    """The likelihood sends a signal to this process at its n-th call."""
    inner = likelihood.log_likelihood

    def log_likelihood(theta):
        if likelihood.n_call == n_call:
            signal.raise_signal(number)
        return inner(theta)

    likelihood.log_likelihood = log_likelihood
    return likelihood


def test_closed_form_posterior():
    likelihood = five_parameters()
    posterior = sample(likelihood, seed=11, progress=False)
    sigma = np.sqrt(np.diag(likelihood.covariance))
    # The mean of ESS independent samples is off by sigma / sqrt(ESS); 4 of those for five means.
    away = np.abs(posterior.samples.mean(axis=0) - likelihood.mean) / sigma
    assert (away < 4.0 / np.sqrt(posterior.effective)).all()
    # Covariances of normals: relative error below sqrt(2 / ESS) of sigma_i sigma_j; 4.5 of those for 15.
    error = np.abs(np.cov(posterior.samples.T) - likelihood.covariance) / np.outer(sigma, sigma)
    assert error.max() < 4.5 * np.sqrt(2.0 / posterior.effective.min())
    assert posterior.diagnostics["converged"] == 1.0
    assert posterior.effective.min() > 1000
    # -2 ln L is chi-squared with 5 degrees of freedom: mean 5, variance 10.
    assert -2 * posterior.log_likelihood.mean() == pytest.approx(
        5.0, abs=4 * np.sqrt(10 / posterior.effective.min())
    )
    assert np.allclose(posterior.log_prior, -5 * np.log(20.0))


def test_autocorrelation_time_of_an_autoregressive_process():
    rng = np.random.default_rng(2)
    for rho in (0.0, 0.8, 0.95):
        x = np.zeros((12_000, 8, 1))
        noise = rng.standard_normal(x.shape)
        for i in range(1, len(x)):
            x[i] = rho * x[i - 1] + noise[i]
        # tau = (1 + rho) / (1 - rho); with 8 x 10000 steps its relative error is about
        # sqrt(2 (2 M + 1) / N), M = 5 tau the window: 10 % for the longest.
        assert chain_tau(x)[0] == pytest.approx((1 + rho) / (1 - rho), rel=0.3)


def test_looks_end_at_the_longest_chain_and_grow():
    found = list(looks(2000))
    assert found[:3] == [100, 200, 300]
    assert found[-1] == 2000
    assert all(b > a for a, b in itertools.pairwise(found))
    assert list(looks(50)) == [50]


@pytest.mark.parametrize(("n_walker", "words"), [(8, "at least 2 x 5 parameters = 10"), (33, "even")])
def test_too_few_or_odd_walkers_are_refused_with_numbers(n_walker, words):
    with pytest.raises(InputError, match=words) as error:
        sample(five_parameters(), n_walker=n_walker, progress=False)
    assert f"n_walker={n_walker}" in str(error.value)


def test_unknown_options_samplers_and_types_are_refused():
    with pytest.raises(InputError, match="did you mean 'n_walker'"):
        sample(small(), n_walkers=32)
    with pytest.raises(InputError, match="n_walker must be a whole number"):
        sample(small(), n_walker=32.0)
    with pytest.raises(InputError, match="unknown sampler 'hmc'"):
        sample(small(), "hmc")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda value: np.where(np.arange(len(value)) == 0, np.inf, value), "is inf at a ="),
        (lambda value: value * np.nan, "is nan at a ="),
        (lambda value: np.stack([value, value], axis=1), "must have shape"),
    ],
)
def test_what_a_likelihood_must_not_return_is_refused(spoil, words):
    likelihood = small()
    inner = likelihood.log_likelihood
    likelihood.log_likelihood = lambda theta: spoil(inner(theta))
    with pytest.raises(LikelihoodError, match=words):
        sample(likelihood, seed=1, progress=False)


def test_a_parameter_that_wraps_is_sampled_across_its_ends():
    priors = [Flat(0, 180, "pa", "deg", period=180.0), Flat(-5, 5, "b")]
    likelihood = GaussianLikelihood(priors, [179.5, 0.0], np.diag([16.0, 1.0]))
    posterior = sample(likelihood, seed=4, progress=False)
    values = posterior["pa"]
    assert values.min() >= 0.0
    assert values.max() < 180.0
    # The normal 179.5 +- 4 goes on at 0: a fraction Phi(-0.5 / 4) = 0.4503 lies below 90.
    error = np.sqrt(0.25 / posterior.effective[0])
    assert np.mean(values < 90.0) == pytest.approx(0.4503, abs=4 * error)
    row = posterior.summary()["pa"]
    assert row.high_68 - row.low_68 == pytest.approx(8.0, rel=0.1)
    assert abs(row.median - 179.5) < 4 * 1.25 * 4.0 / np.sqrt(posterior.effective[0])


def test_interrupted_and_resumed_is_the_same_chain(tmp_path):
    whole = sample(small(), **QUICK, run_dir=tmp_path / "whole")
    for n_call in (400, 100):
        with pytest.raises(RunInterrupted, match=r"stopped by SIGTERM; .* steps saved"):
            sample(interrupting(small(), n_call), **QUICK, run_dir=tmp_path / "parts")
    parts = sample(small(), **QUICK, run_dir=tmp_path / "parts")
    assert np.array_equal(whole.samples, parts.samples)
    assert np.array_equal(whole.log_likelihood, parts.log_likelihood)
    record = json.loads((tmp_path / "parts" / "run.json").read_text())
    assert len(record["resumed"]) == 2
    assert record["finished"]


def test_a_finished_run_is_read_not_repeated(tmp_path):
    first = sample(small(), **QUICK, run_dir=tmp_path)
    likelihood = small()
    again = sample(likelihood, progress=False, n_tau=20.0, run_dir=tmp_path)
    assert likelihood.n_call == 0
    assert np.array_equal(first.samples, again.samples)
    assert again.provenance.seed == 5


def test_a_chain_that_was_too_short_goes_on_with_more_steps(tmp_path):
    strict = QUICK | {"n_tau": 50.0}
    short = sample(small(), **strict, run_dir=tmp_path / "a", max_steps=150)
    assert short.diagnostics["converged"] == 0.0
    assert "NOT CONVERGED" in str(short.summary())
    longer = sample(small(), **strict, run_dir=tmp_path / "a", max_steps=20_000)
    at_once = sample(small(), **strict, run_dir=tmp_path / "b", max_steps=20_000)
    assert np.array_equal(longer.samples, at_once.samples)


def test_values_that_were_not_a_number_are_told_at_the_end(caplog):
    likelihood = small()
    likelihood.nan_count = 3
    sample(likelihood, **QUICK, max_steps=50)
    assert "3 likelihood values were NaN" in caplog.text


def test_a_posterior_that_cannot_be_written_is_returned_and_written_later(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Posterior, "save", full)
        first = sample(small(), **QUICK, run_dir=tmp_path)
    assert "posterior.nc cannot be written" in caplog.text
    likelihood = small()
    again = sample(likelihood, **QUICK, run_dir=tmp_path)
    assert likelihood.n_call == 0, "nothing is sampled anew"
    assert np.array_equal(first.samples, again.samples)
    assert np.array_equal(Posterior.load(tmp_path / "posterior.nc").samples, again.samples)


@pytest.mark.parametrize("left", ["a third", "all but a byte", "one bit differs", "more", "a few bytes"])
def test_a_chain_cut_short_goes_on_from_its_last_whole_block(tmp_path, monkeypatch, left):
    monkeypatch.setattr(emcee_chain, "SAVE_EVERY", 0.02)
    whole = sample(small(), **QUICK)
    with pytest.raises(RunInterrupted):
        sample(interrupting(small(), 400), **QUICK, run_dir=tmp_path)
    path = tmp_path / "chain.bin"
    data = path.read_bytes()
    path.write_bytes(
        {
            "a third": data[: len(data) // 3],
            "all but a byte": data[:-1],
            "one bit differs": data[:-500] + bytes([data[-500] ^ 4]) + data[-499:],
            "more": data + data[-1000:],
            "a few bytes": data[:9],
        }[left]
    )
    again = sample(small(), **QUICK, run_dir=tmp_path)
    assert np.array_equal(whole.samples, again.samples)


def test_a_chain_of_an_earlier_version_is_not_passed_over(tmp_path):
    (tmp_path / "chain.h5").write_bytes(b"")
    with pytest.raises(RunError, match="from an earlier version"):
        emcee_chain.ChainFile(tmp_path / "chain.bin", "this").restore()


def test_a_chain_that_was_deleted_is_written_whole_again(tmp_path, monkeypatch):
    monkeypatch.setattr(emcee_chain, "SAVE_EVERY", 0.0)
    likelihood = small()
    inner, path = likelihood.log_likelihood, tmp_path / "chain.bin"

    def log_likelihood(theta):
        if path.exists() and likelihood.n_call == 400:
            path.unlink()
        return inner(theta)

    likelihood.log_likelihood = log_likelihood
    posterior = sample(likelihood, **QUICK, run_dir=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    saved = emcee_chain.ChainFile(path, record["run_id"]).restore()
    assert saved.iteration == posterior.diagnostics["n_step"]
