"""Samplers of others, as the page on them has them: each block is run where its package is installed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.models import PointSource, SkyModel, Uniform

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "own_sampler.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture(scope="module")
def likelihood() -> biro.Likelihood:
    """The problem of the page."""
    truth = SkyModel([PointSource("a", east="3 arcsec", north="0 arcsec", I="0.2 Jy")])
    observation = biro.simulate(
        "VLA-C",
        truth,
        phase_centre="12h00m00s +40d00m00s",
        times=biro.simulation.Track("2026-03-01", 1200.0, 600.0),
        channels=biro.simulation.Channels(1.4e9, 2e6),
        noise=0.3,
        seed=1,
    )
    places = {name: Uniform(-20, 20, "arcsec") for name in ("east", "north")}
    return biro.Likelihood(observation, SkyModel([PointSource("a", **places, I=Uniform(0, 1, "Jy"))]))


@pytest.mark.parametrize("package", ["ultranest", "nautilus", "zeus", "pocomc", "bilby"])
def test_a_sampler_of_others_finds_the_same(package: str, request, tmp_path, monkeypatch) -> None:
    """The mean within a third of the posterior's width, the evidence within 1.5: see below."""
    pytest.importorskip(package)
    likelihood = request.getfixturevalue("likelihood")
    monkeypatch.chdir(tmp_path)
    (block,) = [text for text in BLOCKS if f"import {package}\n" in text]
    found: dict = {"biro": biro, "likelihood": likelihood}
    exec(block, found)
    best = biro.maximise(likelihood, seed=1)
    width = np.sqrt(np.diag(best.covariance))
    # 300 effective samples leave a sixth of the width at three errors, and the posterior is not quite normal.
    assert np.all(np.abs(found["mean"] - best.best_fit) < 0.33 * width)
    if "log_evidence" in found:
        # Nested samplers of 200 points have errors of 0.2 to 0.37 here: four of these.
        assert found["log_evidence"] == pytest.approx(best.log_evidence, abs=1.5)


def test_names_of_parameters_are_a_list(likelihood: biro.Likelihood) -> None:
    """UltraNest concatenates them with a list."""
    assert type(likelihood.parameter_names) is list
    assert len(BLOCKS) == 5
