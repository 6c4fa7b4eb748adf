"""Interactive pictures: what their traces and labels hold, without a browser."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from test_pictures import many
from test_plots import Sky, posterior

from biro.errors import InputError
from biro.plots import interactive


@pytest.fixture
def plotly():
    """The package, which is an extra: `pip install '.[interactive]'`."""
    return pytest.importorskip("plotly", reason="plotly is an extra of its own")


def test_without_plotly_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(InputError, match=r"plotly .*pip install '\.\[interactive\]'"):
        interactive.corner(posterior())


def test_a_visibility_names_its_baseline_its_time_and_its_residual(plotly):
    """Data are 4 Jy and the model too, but for one visibility that is 5 Jy off."""
    likelihood = Sky()
    part = likelihood.observation.partitions[0]
    vis = part.vis.copy()
    vis[7] += 5.0
    likelihood.observation = replace(likelihood.observation, partitions=(replace(part, vis=vis),))
    figure = interactive.uv(likelihood, np.zeros(2))
    data, residual, model = figure.data
    assert len(data.x) == len(model.x) == len(part.time_of_slots)
    worst = int(np.argmax(residual.y))
    assert worst == 7
    names = likelihood.observation.antenna_names
    pair = f"{names[part.antenna1[7]]}–{names[part.antenna2[7]]}, "
    assert data.text[7].startswith(pair)
    assert data.text[7].endswith(" UTC")
    shown, fitted, in_sigma = data.customdata[7]
    # To float32, which the page holds.
    assert shown == pytest.approx(abs(vis[7].mean()), rel=1e-6)
    assert in_sigma == pytest.approx(residual.y[7])
    assert residual.y[7] > 5 * np.median(residual.y)
    assert fitted == pytest.approx(4.0, rel=1e-3)


def test_of_many_visibilities_the_worst_are_shown(plotly, monkeypatch):
    # By name the package has the function, not the module.
    monkeypatch.setattr(sys.modules["biro.plots.interactive.uv"], "MOST_POINTS", 100)
    likelihood = Sky()
    part = likelihood.observation.partitions[0]
    vis = part.vis.copy()
    vis[1234] += 100.0
    likelihood.observation = replace(likelihood.observation, partitions=(replace(part, vis=vis),))
    data, residual, _ = interactive.uv(likelihood, np.zeros(2)).data
    assert len(data.x) == 100
    assert max(residual.y) > 20 * np.median(residual.y)


def test_images_mark_sources_with_their_parameters_and_errors(plotly):
    """One source of `Sky` is at theta, the other at (20, 10) arcsec; east is to the left."""
    likelihood = Sky()
    figure = interactive.images(likelihood, posterior(), size=128)
    maps, marks = figure.data[::2], figure.data[1::2]
    assert [trace.type for trace in maps] == ["heatmap"] * 3
    scale = {"arcsec": 1.0, "arcmin": 1 / 60, "deg": 1 / 3600}[figure.layout.xaxis.title.text[13:-1]]
    east, north = posterior().best_fit
    assert np.asarray(marks[0].x, float) == pytest.approx([east * scale, 20.0 * scale])
    assert np.asarray(marks[0].y, float) == pytest.approx([north * scale, 10.0 * scale])
    assert all(text.startswith("<b>") for text in marks[0].text)
    left, right = figure.layout.xaxis.range
    assert left > right
    # At the place of the peak of the data its value is the label.
    peak = likelihood_peak(likelihood)
    arcsec = 180 / np.pi * 3600 * scale
    x, y = (
        int(np.argmin(np.abs(at))) for at in (maps[0].x - peak.east * arcsec, maps[0].y - peak.north * arcsec)
    )
    assert maps[0].customdata[y, x] == pytest.approx(peak.value, rel=1e-6)  # float32


def likelihood_peak(likelihood):
    """The peak of the dirty image of the data."""
    from biro.imaging.fit_images import fit_images

    return fit_images(likelihood, np.zeros(2), size=128)[0][0].peak


def test_a_corner_has_all_pairs_and_the_errors_of_the_table(plotly):
    base = many()
    figure = interactive.corner(base, ["core"])
    (trace,) = figure.data
    assert [part.label for part in trace.dimensions] == [
        f"core.{k}" for k in ("east", "north", "I", "spectral_index")
    ]
    row = next(row for row in base.summary().cells() if row[0] == "core.I")
    assert f"core.I = {row[2]} ({row[3]}, {row[4]})" in figure.layout.annotations[0].text
    # 1000 draws of unit variance: 5 sigma of their variance is 5 sqrt(2 / 1000).
    assert np.var(trace.dimensions[2]["values"]) == pytest.approx(np.var(base["core.I"]), rel=0.25)
    with pytest.raises(InputError, match="give up to 12 names"):
        interactive.corner(many(20), ["*"])


def test_a_figure_is_a_page_of_its_own(plotly, tmp_path):
    path = tmp_path / "corner.html"
    interactive.corner(posterior()).write_html(path, include_plotlyjs="cdn")
    # Without the library, which a browser then loads.
    assert 10_000 < path.stat().st_size < 500_000
