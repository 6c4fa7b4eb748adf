"""dynesty: closed-form evidence, batches, exact resumption, and checkpoints that nobody else wrote."""

import os
import pickle
import shutil

import numpy as np
import pytest
from gaussian_likelihood import Flat, GaussianLikelihood, five_parameters
from test_samplers_emcee import interrupting, small

from biro.errors import InputError, LikelihoodError, RunError
from biro.files import signed
from biro.inference.samplers.sampling import sample
from biro.run.interrupt import RunInterrupted

FAST = {"n_live": 60, "batch": 16, "walks": 10, "dlogz": 0.1}


@pytest.fixture(autouse=True)
def key_of_this_test(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_closed_form_evidence_and_posterior():
    likelihood = five_parameters()
    posterior = sample(likelihood, "dynesty", seed=3, progress=False, n_live=100)
    assert abs(posterior.log_evidence - likelihood.log_evidence) < 3 * posterior.log_evidence_err
    assert 0.05 < posterior.log_evidence_err < 0.6
    mean = posterior.weight @ posterior.samples
    sigma = np.sqrt(np.diag(likelihood.covariance))
    # Nested samples of one run are about as good as ESS independent ones; 5 of those errors.
    assert (np.abs(mean - likelihood.mean) / sigma < 5 / np.sqrt(posterior.effective)).all()
    # rwalk proposes in batches of 64; many rows in each call.
    assert likelihood.n_row / likelihood.n_call > 30


def test_dynamic_evidence_and_number_of_samples():
    likelihood = small()
    posterior = sample(likelihood, "dynesty-dynamic", seed=3, progress=False, **FAST, n_effective=1500)
    assert abs(posterior.log_evidence - likelihood.log_evidence) < 3 * posterior.log_evidence_err
    assert posterior.effective.min() > 700


def test_evidence_is_of_the_prior_that_a_constraint_leaves():
    # a > b cuts the square of the prior in half, and the likelihood, far from the diagonal, not at all:
    # the prior density where allowed doubles, and so does the evidence.
    cut = GaussianLikelihood(
        small().parameters,
        [3.0, -3.0],
        np.diag([0.04, 0.04]),
        allowed=lambda theta: theta[:, 0] > theta[:, 1],
        log_constraint_mass=np.log(0.5),
    )
    posterior = sample(cut, "dynesty", seed=2, progress=False, **FAST)
    expected = cut.log_evidence + np.log(2.0)
    assert abs(posterior.log_evidence - expected) < 3 * posterior.log_evidence_err
    assert (posterior["a"] > posterior["b"]).all()


def test_a_parameter_that_wraps():
    priors = [Flat(0, 180, "pa", "deg", period=180.0), Flat(-5, 5, "b")]
    likelihood = GaussianLikelihood(priors, [0.5, 0.0], np.diag([16.0, 1.0]))
    posterior = sample(likelihood, "dynesty", seed=2, progress=False, **FAST)
    assert abs(posterior.log_evidence - likelihood.log_evidence) < 3 * posterior.log_evidence_err
    row = posterior.summary()["pa"]
    assert row.high_68 - row.low_68 == pytest.approx(8.0, rel=0.35)


def test_a_seed_gives_the_same_run_and_another_seed_another():
    first, again, other = (sample(small(), "dynesty", seed=s, progress=False, **FAST) for s in (7, 7, 8))
    assert np.array_equal(first.samples, again.samples)
    assert first.log_evidence == again.log_evidence
    assert first.log_evidence != other.log_evidence


@pytest.mark.parametrize("sampler", ["dynesty", "dynesty-dynamic"])
def test_interrupted_and_resumed_is_the_same_run(tmp_path, sampler):
    options = FAST | {"n_effective": 600}
    whole = sample(small(), sampler, seed=5, progress=False, **options)
    counts = small()
    sample(counts, sampler, seed=5, progress=False, **options)
    for fraction in (0.4, 0.3):
        stopped = interrupting(small(), int(fraction * counts.n_call))
        with pytest.raises(RunInterrupted, match=r"iterations saved"):
            sample(stopped, sampler, seed=5, progress=False, run_dir=tmp_path / "run", **options)
    parts = sample(small(), sampler, seed=5, progress=False, run_dir=tmp_path / "run", **options)
    assert np.array_equal(whole.samples, parts.samples)
    assert whole.log_evidence == parts.log_evidence


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def interrupted_run(run_dir):
    with pytest.raises(RunInterrupted):
        sample(interrupting(small(), 40), "dynesty", seed=5, progress=False, run_dir=run_dir, **FAST)
    return run_dir / "checkpoint.bin"


@pytest.mark.parametrize("how", ["replaced", "payload swapped", "one bit", "other run", "other key"])
def test_a_checkpoint_that_is_not_ours_is_never_loaded(tmp_path, how):
    path = interrupted_run(tmp_path / "run")
    bomb, trap = pickle.dumps(Bomb(tmp_path / "exploded")), tmp_path / "exploded"
    data = path.read_bytes()
    if how == "replaced":
        path.write_bytes(bomb)
    elif how == "payload swapped":
        path.write_bytes(data[: len(signed._MAGIC) + 32] + bomb)
    elif how == "one bit":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "other run":
        shutil.copy(interrupted_run(tmp_path / "second"), path)
    else:
        signed.key_path().unlink()
    with pytest.raises(RunError, match="was not written by this run and user"):
        sample(small(), "dynesty", seed=5, progress=False, run_dir=tmp_path / "run", **FAST)
    assert not trap.exists()


def test_the_key_is_private_or_refused():
    key = signed.user_key()
    assert len(key) == 32
    assert signed.user_key() == key
    assert signed.key_path().stat().st_mode & 0o777 == 0o600
    signed.key_path().chmod(0o644)
    with pytest.raises(RunError, match="readable by you alone"):
        signed.user_key()


def test_a_likelihood_error_comes_through_once(capsys):
    likelihood = small()
    inner = likelihood.log_likelihood
    likelihood.log_likelihood = lambda theta: inner(theta) * (np.nan if likelihood.n_call > 20 else 1.0)
    with pytest.raises(LikelihoodError, match="is nan at a ="):
        sample(likelihood, "dynesty", seed=5, progress=False, **FAST)
    # dynesty prints a trace for every thread unless it is kept from it.
    assert "Exception" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_live": 4}, "must exceed 2 x 2"),
        ({"method": "hmc"}, "method must be"),
        ({"dlogz": -1.0}, "above 0"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        sample(small(), "dynesty", progress=False, **options)
