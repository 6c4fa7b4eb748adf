"""`biro fit` of a population: files, a run that SIGTERM stops and that goes on, absurd settings."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import biro, works

import biro as package
from biro.errors import InputError
from biro.inference.samplers.tempering.state_file import TemperedState
from biro.models.files.toml import from_toml
from biro.run.interrupt import RunInterrupted
from biro.source_finding.populations.posterior import PopulationPosterior

MODEL = """
[noise]
factor = 1.0
[[population]]
name = "field"
types = ["point"]
number = { prior = "uniform", high = 2 }
I = { prior = "log-uniform", low = "0.1 Jy", high = "4 Jy" }
place = { prior = "uniform", low = "-8 arcmin", high = "8 arcmin" }
"""
SHORT = ("--set", "n_effective=40", "--set", "max_steps=150", "--set", "n_walker=4")
OPTIONS: dict[str, Any] = {
    "seed": 3,
    "progress": False,
    "n_effective": 40,
    "max_steps": 150,
    "n_walker": 4,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "pop.toml"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, clean: Path, model: Path) -> tuple[Path, dict[str, Any]]:
    """A finished run of the command, and what it printed."""
    place = tmp_path_factory.mktemp("runs") / "run"
    said = works("fit", clean, model, "-o", place, "--seed", "3", "--json", *SHORT)
    return place, json.loads(said.stdout)


def test_a_run_has_its_files_and_figures(run: tuple[Path, dict[str, Any]]) -> None:
    place, printed = run
    files = {path.name for path in place.iterdir()}
    assert {"run.json", "log.txt", "model.toml", "posterior.nc", "population.npz", "number.png"} <= files
    number = printed["sources"]["number"]["probability"]
    assert len(number) == 3
    assert sum(number) == pytest.approx(1.0)
    assert number[0] == 0.0, "a source of 11 sigma is there"
    entry = printed["sources"]["catalogue"]["entries"][0]
    # The true flux is 1 Jy; one sigma is 1 Jy / sqrt(126).
    assert entry["values"]["I"]["median"] == pytest.approx(1.0, abs=4.0 * 0.09)
    found = PopulationPosterior.load(place)
    assert found.posterior.log_evidence is not None
    assert "field.number" in str(found)
    assert json.loads((place / "run.json").read_text())["finished"]


def test_a_finished_run_is_read(run: tuple[Path, dict[str, Any]], clean: Path, model: Path) -> None:
    place, printed = run
    before = (place / "posterior.nc").stat().st_mtime_ns
    again = works("fit", clean, model, "-o", place, "--seed", "3", "--json", "--no-pictures", *SHORT)
    assert json.loads(again.stdout) == printed
    assert (place / "posterior.nc").stat().st_mtime_ns == before


def test_pictures_and_comparison_of_runs(
    run: tuple[Path, dict[str, Any]], clean: Path, model: Path, tmp_path: Path
) -> None:
    place, _ = run
    drawn = place / "number.png"
    drawn.unlink()
    works("plot", place)
    assert drawn.stat().st_size > 1000
    other = tmp_path / "other.toml"
    other.write_text(MODEL.replace("high = 2", "low = 1, high = 2"))
    works("fit", clean, other, "-o", tmp_path / "run2", "--seed", "4", "--no-pictures", *SHORT)
    table = json.loads(works("compare", place, tmp_path / "run2", "--json").stdout)
    text = json.dumps(table)
    assert str(place) in text
    # Three numbers are equally probable in the first, of which none is out of question: ln Z lacks ln 1.5.
    first, second = (PopulationPosterior.load(of).posterior for of in (place, tmp_path / "run2"))
    error = np.hypot(first.log_evidence_err, second.log_evidence_err)
    assert second.log_evidence - first.log_evidence == pytest.approx(np.log(1.5), abs=3.5 * error)


def test_sigterm_and_resume_give_the_draws_of_a_run_that_was_not_stopped(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, sky = package.read(clean), from_toml(MODEL)
    whole = package.fit_population(data, sky, run_dir=tmp_path / "whole", **OPTIONS)
    keep = TemperedState.keep

    def stopped_at_70(self: TemperedState) -> None:
        keep(self)
        if len(self) == 70:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(TemperedState, "keep", stopped_at_70)
    with pytest.raises(RunInterrupted, match="70 steps saved"):
        package.fit_population(data, sky, run_dir=tmp_path / "stopped", **OPTIONS)
    assert not (tmp_path / "stopped" / "posterior.nc").exists()
    monkeypatch.undo()
    found = package.fit_population(data, sky, run_dir=tmp_path / "stopped", **OPTIONS)
    assert np.array_equal(found.posterior.samples, whole.posterior.samples)
    assert found.posterior.log_evidence == whole.posterior.log_evidence
    for key, of in whole.sources.draws.values.items():
        assert np.array_equal(found.sources.draws.values[key], of), key


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "n_walker=1"), "n_walker must be at least 4"),
        (("--sampler", "emcee"), "has a fixed number of sources"),
        (("--gains", "solve"), "has no evidence for a number of sources"),
        (("--set", "n_live=50"), "n_live"),
        (("--set", "n_effective=0"), "n_effective"),
    ],
)
def test_absurd_settings_are_refused_in_one_line(
    clean: Path, model: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    code, out, err = biro("fit", clean, model, "-o", tmp_path / "run", *words)
    lines = [line for line in err.splitlines() if line.startswith("biro: ")]
    assert (code, out, len(lines)) == (2, "", 1)
    assert said in lines[0]
    assert not (tmp_path / "run" / "posterior.nc").exists()


def test_another_model_does_not_go_on_with_a_run(
    run: tuple[Path, dict[str, Any]], clean: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text(MODEL.replace("4 Jy", "5 Jy"))
    code, _, err = biro("fit", clean, other, "-o", run[0], "--seed", "3", *SHORT)
    assert code == 2
    assert "model" in err


def test_several_populations_are_refused(clean: Path) -> None:
    two = MODEL + MODEL[MODEL.index("[[population]]") :].replace('"field"', '"more"')
    with pytest.raises(InputError, match="the model has 2 populations, expected one"):
        package.fit_population(package.read(clean), from_toml(two))
