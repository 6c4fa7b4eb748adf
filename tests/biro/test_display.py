"""How results show themselves: a line in a terminal, HTML in a notebook, where text of others is escaped."""

from __future__ import annotations

import importlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import biro
from biro.models.files.toml import from_toml
from biro.simulation import telescope

FIELD = "<script>alert(1)</script>&"
MODEL = """
[[source]]
name = "a"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = 0, high = 5, unit = "Jy" }
"""


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An observation of 1 Jy, a model, and what comes of them."""
    rng = np.random.default_rng(1)
    first, second = np.triu_indices(5, 1)
    uvw = np.concatenate([rng.normal(0.0, 500.0, (10, 2)), np.zeros((10, 1))], axis=1)
    observation = biro.Observation.from_arrays(
        vis=1.0 + 0.01 * (rng.normal(size=(10, 1, 1)) + 1j * rng.normal(size=(10, 1, 1))),
        uvw=uvw,
        antenna1=first,
        antenna2=second,
        time=np.zeros(10),
        chan_freq=np.array([1.4e9]),
        weight=1e4,
        corr_type=("I",),
        phase_centre=(0.0, 0.5),
        field=FIELD,
    )
    model = from_toml(MODEL)
    likelihood = biro.Likelihood(observation, model, backend="cpu")
    posterior = biro.sample(likelihood, "none", seed=1, progress=False, n_sample=100)
    return {
        "observation": observation,
        "model": model,
        "maximum": biro.maximise(likelihood, seed=1),
        "posterior": posterior,
        "table": posterior.summary(),
        "comparison": biro.compare({FIELD: posterior, "other": posterior}),
        "image": biro.image(observation, size=64),
        "summary": observation.summary(),
        "likelihood": likelihood,
        "plan": likelihood.plan(),
        "partition": observation.partitions[0],
        "telescope": telescope("KAT-7"),
        "fit": posterior.fits[0],
    }


NAMES = (
    "partition",
    "telescope",
    "observation",
    "model",
    "maximum",
    "posterior",
    "table",
    "comparison",
    "image",
)


RESULTS = (
    *("observation.observation.Observation", "observation.partition.Partition"),
    *("observation.summary.Summary", "models.SkyModel", "models.ImageModel"),
    *("models.GainSolutions", "simulation.telescopes.Telescope"),
    *("likelihood.likelihood.Likelihood", "inference.maximum.maximum.Maximum"),
    *("inference.posterior.posterior.Posterior", "inference.posterior.table.PosteriorTable"),
    *("inference.posterior.comparison.Comparison", "diagnosis.partition_fit.PartitionFit"),
    *("imaging.dirty_image.DirtyImage", "imaging.cubes.cube.Cube"),
    *("imaging.cubes.figures.SavedCube", "imaging.cubes.figures.CubeLayout"),
    *("source_finding.found_sources.FoundSources", "sbc.result.SBCResult"),
    *("calibration.SolvedGains", "flagging.report.FlagReport", "flagging.strategy.Strategy"),
    *("display.stages.Stages", "io.flag_commands.report.SelectedFlags", "many_fits.results.FitResults"),
    *("display.formatting.PrintedText",),
)
"""Classes of what public functions give, and of what these hold."""


@pytest.mark.parametrize("name", RESULTS)
def test_what_a_user_gets_has_an_html_form(name) -> None:
    module, _, kind = f"biro.{name}".rpartition(".")
    assert callable(getattr(getattr(importlib.import_module(module), kind), "_repr_html_", None))


@pytest.mark.parametrize("name", NAMES)
def test_a_line_in_a_terminal(shown, name) -> None:
    line = repr(shown[name])
    assert line.startswith("<")
    assert "\n" not in line
    assert len(line) < 150


@pytest.mark.parametrize("name", [*NAMES, "summary", "likelihood", "plan", "fit"])
def test_html_in_a_notebook(shown, name) -> None:
    page = Page(shown[name]._repr_html_())
    assert page.tags <= {"table", "tr", "th", "td", "p", "pre", "img"}
    assert page.text.strip()


def test_text_of_others_is_escaped(shown) -> None:
    for name in ("observation", "comparison", "summary"):
        assert FIELD in Page(shown[name]._repr_html_()).text


def test_tables_say_in_html_what_they_say_in_text(shown) -> None:
    for name in ("table", "maximum", "comparison"):
        page = Page(shown[name]._repr_html_())
        for cell in (cell for row in shown[name].cells() for cell in row):
            assert cell in page.text
        for note in shown[name].notes():
            assert note in page.text


def test_an_image_is_a_picture(shown) -> None:
    assert "img" in Page(shown["image"]._repr_html_()).tags


def test_every_result_has_html() -> None:
    """Also those that take long to make."""
    from biro.calibration.solved_gains import SolvedGains
    from biro.flagging.report import FlagReport
    from biro.imaging.cubes.cube import Cube
    from biro.imaging.cubes.figures import SavedCube
    from biro.many_fits.results import FitResults
    from biro.sbc.result import SBCResult
    from biro.source_finding.found_sources import FoundSources

    for kind in (SolvedGains, FlagReport, Cube, SavedCube, FitResults, SBCResult, FoundSources):
        assert hasattr(kind, "_repr_html_"), kind


def test_a_model_is_its_file(shown, tmp_path: Path) -> None:
    text = Page(shown["model"]._repr_html_()).text
    assert from_toml(text) == shown["model"]
