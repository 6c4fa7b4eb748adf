"""The report leads with the verdict and the images; it is one small page that fits a narrow screen."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from biro.diagnosis.partition_fit import MISFIT, OUTLIERS, PartitionFit
from biro.diagnosis.verdict_text import HOLDS
from biro.inference.posterior.table import PosteriorTable, Row
from biro.inference.posterior.verdict import verdict_of
from biro.plots import report


def table(**changes) -> PosteriorTable:
    """The table of a sound fit of two parameters."""
    rows = tuple(Row(name, "Jy", 1.0, 0.9, 1.1, 0.8, 1.2, 1.0, 500.0, None) for name in ("a.I", "b.I"))
    fit = PartitionFit("field/spw0", 500, 1.0, 1.0, scatter=1.0, dof=998.0, thermal=1.0)
    return replace(PosteriorTable(rows, "dynesty", 900, 1, -3.0, -12.0, 0.1, {}, (fit,)), **changes)


def test_the_verdict_on_a_sound_fit() -> None:
    verdict = verdict_of(table())
    assert verdict.level == "good"
    assert verdict.fit == "The model fits the data."
    assert verdict.numbers.startswith("chi2/dof 1, ")
    assert "can be trusted" in verdict.trust
    assert "not" not in verdict.trust


@pytest.mark.parametrize(
    ("changes", "level", "fit", "trust"),
    [
        ({"remarks": (f"{MISFIT} (x): a source is missing",)}, "bad", "does not fit", "Do not trust the err"),
        (
            {"remarks": (f"{MISFIT} (x): a source is missing", HOLDS)},
            "doubt",
            "does not fit",
            "hold for this model only",
        ),
        ({"remarks": (OUTLIERS, HOLDS)}, "bad", "Outliers", "outliers bias"),
        ({"diagnostics": {"converged": 0.0}}, "bad", "The model fits", "Do not trust the evidence"),
        ({"diagnostics": {"missed_mass": 0.4}}, "bad", "The model fits", "Do not trust the error"),
        (
            {"remarks": ("UNEQUAL NOISE: on long baselines",)},
            "doubt",
            "differs from the weights",
            "with the warnings",
        ),
        ({"remarks": ("A LINE OF ANOTHER KIND",)}, "doubt", "The model fits", "with the warnings"),
        ({"fits": ()}, "good", "could not test", "can be trusted"),
    ],
)
def test_each_warning_changes_the_verdict(changes, level, fit, trust) -> None:
    verdict = verdict_of(table(**changes))
    assert (verdict.level, fit in verdict.fit, trust in verdict.trust) == (level, True, True)


def test_a_parameter_at_a_limit_is_named() -> None:
    first, second = table().rows
    verdict = verdict_of(table(rows=(replace(first, at_end="lower"), second)))
    assert "quote a.I as an upper or lower limit" in verdict.trust


class _Described:
    def summary(self, sky: object) -> str:
        return "what the data are"


class _Likelihood:
    described, sky = _Described(), None

    def description(self) -> dict[str, object]:
        return {}

    def predict(self) -> None: ...


class _Provenance:
    sampler, seed, options, versions = "none", 1, {}, {"biro": "0"}
    data_digest = model_digest = "0"
    model_toml = "\n".join(f"line {i}" for i in range(5000))


class _Posterior:
    provenance, diagnostics = _Provenance(), {}

    def summary(self) -> PosteriorTable:
        return table(rows=table().rows * 400)


def noise_picture(seed: int) -> bytes:
    """A PNG of 1800 x 1800 pixels of noise, which no compression makes small."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (1800, 1800, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="png", compress_level=0)
    return file.getvalue()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    pictures = {"Amplitude": noise_picture(1), "Images of data": noise_picture(2), "Sky": noise_picture(3)}
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write_report(path, _Posterior(), _Likelihood(), pictures=pictures)  # type: ignore[arg-type]
    return path.read_text()


def test_the_order_of_a_report(page) -> None:
    wanted = ["<h2>Verdict", "Does the model fit?", "What can be trusted?", "What to do next"]
    wanted += ['alt="Images', "<h2>Parameters", 'alt="Amplitude', 'alt="Sky', "<h2>Data", "<h2>Model"]
    places = [page.index(text) for text in wanted]
    assert places == sorted(places)


def test_a_report_stays_below_two_megabytes(page) -> None:
    """Whatever the pictures, the table (800 rows) and the model (5000 lines) are."""
    assert len(page.encode()) < 2_000_000
    assert page.count("<tr>") == report.MOST_LINES + 1
    assert "400 more rows" in page
    assert "4600 more lines are in model.toml" in page
    assert page.count("src=") == page.count('src="data:') == 3


def test_tables_and_wide_pictures_scroll_on_a_narrow_page(page) -> None:
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert re.search(r"\btable \{[^}]*overflow-x: auto", style)
    assert re.search(r"\bpre \{[^}]*overflow-x: auto", style)
    assert re.search(r"\bfigure \{[^}]*overflow-x: auto", style)
    assert 'name="viewport"' in page


def test_how_it_was_made_is_in_words_of_the_field() -> None:
    """No entry that only the code explains, and no name of a variable."""
    posterior = SimpleNamespace(
        provenance=SimpleNamespace(options={}, data_digest="d", model_digest="m", versions={}),
        diagnostics={"overlap": 0.9, "pareto_k": 0.1, "left": 1e-9, "covered": 1.0, "n_agree": 3.0},
    )
    made = {"form": ["row"], "reason": ["x"], "backend": "cpu", "gaussian_frame": "tangent"}
    text = report._origin(posterior, SimpleNamespace(description=lambda: made))
    assert "importance-sampling efficiency: 0.9" in text
    assert "plane of Gaussians: tangent" in text
    assert not re.search(r"^(left|covered|n agree|form|reason|overlap):", text, re.MULTILINE)


@pytest.mark.parametrize("layout", ["constrained", None])
def test_a_picture_is_what_matplotlib_saves(layout: str | None) -> None:
    """The layout is made without a drawing: the file is that of `savefig`, the figure is as before."""
    files = []
    for save in (report.png, _saved):
        figure = Figure(figsize=(3.0, 2.0), layout=layout)
        figure.subplots(1, 2)[0].set_ylabel("a label")
        engine, dpi = figure.get_layout_engine(), figure.dpi
        files.append(save(figure))
        assert (figure.get_layout_engine(), figure.dpi) == (engine, dpi)
    assert files[0] == files[1]


def _saved(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=report.DPI)
    return buffer.getvalue()
