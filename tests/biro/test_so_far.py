"""What a run that goes on has saved so far is a posterior of the same distribution."""

import json

import pytest
from gaussian_likelihood import Flat, SmoothGaussian

from biro.errors import RunError
from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers.sampling import sample
from biro.plots.progress_state import posterior_in_progress

OPTIONS = {
    "emcee": {"n_walker": 16, "max_steps": 400},
    "dynesty": {"n_live": 100, "dlogz": 0.5},
    "nuts": {"n_chain": 2, "n_draw": 200, "n_tune": 100},
    "tempering": {"n_walker": 8, "n_effective": 200},
}


def gaussian():
    priors = [Flat(-10, 10, "x"), Flat(-10, 10, "y")]
    return SmoothGaussian(priors, [1.0, -2.0], [[0.25, 0.1], [0.1, 0.16]])


@pytest.mark.parametrize("sampler", OPTIONS)
def test_the_samples_so_far_have_the_mean_of_the_closed_form(tmp_path, sampler):
    if sampler == "nuts":
        pytest.importorskip("nutpie")
    likelihood = gaussian()
    sample(likelihood, sampler, run_dir=tmp_path, seed=1, progress=False, **OPTIONS[sampler])
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(record | {"finished": None}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = posterior_in_progress(tmp_path, likelihood)
    assert isinstance(found, Posterior)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, "nothing is changed"
    mean = found.weight @ found.samples
    # At least 60 effective samples of sigma 0.5 and 0.4: 0.06; four of them.
    assert mean == pytest.approx([1.0, -2.0], abs=0.25)
    assert "converged" not in found.diagnostics
    assert not any("CONVERGED" in line for line in found.summary().warnings())


def test_where_no_run_began_and_where_too_little_is_saved(tmp_path):
    with pytest.raises(RunError, match=r"not a run directory \(no run\.json\)"):
        posterior_in_progress(tmp_path, gaussian())
    likelihood = gaussian()
    sample(likelihood, "emcee", run_dir=tmp_path, seed=1, progress=False, n_walker=16, max_steps=5)
    assert posterior_in_progress(tmp_path, likelihood) is None
