"""Pictures show what they say: known positions, angles, amplitudes and residuals."""

import html
import re
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from gaussian_likelihood import Flat, GaussianLikelihood
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy.constants import c
from test_imaging import observe

import biro
from biro import plots
from biro.display.style import TRUTH
from biro.errors import InputError
from biro.imaging.fit_images import before_and_after, fit_images, image_rows
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.posterior.statistics import mean_and_sd
from biro.models.quantities.parameter import Column
from biro.observation.observation import Observation
from biro.plots.report import write_report

ARCSEC = np.pi / 180 / 3600
FREQ = 1e9


class Told(Observation):
    """An observation that says the same of itself always."""

    labels = ("field/0",)

    def summary(self, sky=None):
        return "<summary> & more"


class Sky(GaussianLikelihood):
    """A source of 4 Jy at the phase centre with noise of 0.5 sigma, and a Gaussian with PA 30 deg."""

    dof = None

    def __init__(self):
        super().__init__([Flat(-1, 1, "x", "arcsec"), Flat(-1, 1, "y", "arcsec")], [0, 0], np.eye(2))
        rng = np.random.default_rng(1)
        shape = (3000, 1, 2)
        noise = 0.1 * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
        uvw = np.stack([rng.uniform(0, 1000, 3000) * c / FREQ, np.zeros(3000), np.zeros(3000)], axis=1)
        antennas = np.zeros(3000, int), np.ones(3000, int)
        made = Observation.from_arrays(
            4.0 + noise, uvw, *antennas, 5e9 + np.arange(3000.0), [FREQ], ["XX", "YY"], weight=25.0
        )
        self.observation = self.described = Told(
            **{item.name: getattr(made, item.name) for item in fields(made)}
        )
        self.model = SimpleNamespace(
            sources=self._sources, source_names=("point", "blob"), has_fitted_gains=False
        )

        self.image_outlines = [{}]
        self.sky, self.gains = None, "sample"

    def predict(self, theta):
        return [np.full((3000, 1, 2), 4.0 + 0j)]

    def corrected(self, theta):
        return self.observation

    def noise_factor(self, theta):
        return np.array([0.5])

    def noise_dof(self, theta):
        return self.dof

    def _sources(self, theta, i_partition):
        n = len(theta)
        lm = np.stack([theta, np.tile([20.0, 10.0], (n, 1))], axis=1) * ARCSEC
        shape = np.tile([6 * ARCSEC, 2 * ARCSEC, np.radians(30.0)], (n, 1, 1))
        return SimpleNamespace(lm=lm, shape=shape, stokes=np.full((n, 1, 2, 4), 4.0), n_point=1)


def posterior(n_walker=1):
    rng = np.random.default_rng(2)
    samples = rng.normal([0.0, 0.0], [0.2, 0.1], (640, 2))
    columns = (Column("x", "arcsec", "", "p"), Column("y", "arcsec", "", "p"))
    logs = -0.5 * np.sum(samples**2, axis=1)
    origin = Provenance("emcee", 1, model_toml="# <model>")
    return Posterior(columns, samples, logs, logs, origin, np.full(2, 640.0), n_walker=n_walker)


def test_parts_of_a_source_are_one_entry_of_the_sky():
    """A polarised m-ring has rings of its own for Q and U at one place; a core and a halo are two."""
    likelihood = Sky()
    for second, n_entry in (("point:Q", 1), ("point:halo", 2)):
        likelihood.model.source_names = ("point", second)
        figure = plots.sky(likelihood, posterior())
        (legend,) = figure.legends
        assert len(legend.get_texts()) == n_entry


def test_amplitude_without_noise_bias_and_phase_of_data_against_model():
    figure = plots.uv(Sky(), np.zeros(2), n_bin=5)
    upper, lower = figure.axes
    amplitude = upper.containers[0].lines[0].get_ydata()
    # 600 samples of sigma 0.07 in a bin of 4 Jy: the mean amplitude is known to 0.003; four of them.
    assert amplitude == pytest.approx(np.full(5, 4.0), abs=0.012)
    assert np.abs(lower.containers[0].lines[0].get_ydata()).max() < 0.2
    assert "kλ" in lower.get_xlabel() or "λ" in lower.get_xlabel()
    assert "Jy" in upper.get_ylabel()


def test_residuals_in_units_of_the_fitted_noise():
    ax = plots.residuals(Sky(), np.zeros(2)).axes[0]
    label = ax.get_legend().get_texts()[0].get_text()
    # sigma 0.2 by the weights, 0.1 true, factor 0.5: rms 1 to 1 / sqrt(2 x 12000) = 0.6 %.
    rms = float(label.split("rms ")[1].split(",")[0])
    assert rms == pytest.approx(1.0, abs=0.03)


def test_residuals_stand_against_the_noise_of_the_model():
    """Densities of the tables, at 2: the normal distribution, and Student's t with 3 degrees of freedom."""
    likelihood = Sky()
    for dof, words, density in ((None, "unit Gaussian", 0.05399), ([3.0], "Student's t, 3 degrees", 0.06751)):
        likelihood.dof = dof
        (line,) = plots.residuals(likelihood, np.zeros(2)).axes[0].lines
        assert words in line.get_label()
        assert np.interp(2.0, *line.get_data()) == pytest.approx(density, rel=1e-3)  # points 0.015 apart


def test_sky_has_east_to_the_left_and_pa_from_north_through_east():
    ax = plots.sky(Sky(), posterior()).axes[0]
    assert ax.get_xlim()[0] > ax.get_xlim()[1]
    assert ax.get_ylim()[0] < ax.get_ylim()[1]
    outline = next(p for p in ax.patches if isinstance(p, Ellipse) and not p.get_fill())
    assert (outline.width, outline.height) == pytest.approx((6.0, 2.0))
    # The major axis points to (sin 30, cos 30) in (east, north): 60 deg from the east axis.
    assert outline.angle == pytest.approx(60.0)
    filled = [p for p in ax.patches if p.get_fill()][1]
    # One sigma of the position: 0.2 east, 0.1 north, as full widths, from 200 draws (5 %); four of those.
    assert sorted((filled.width, filled.height)) == pytest.approx([0.2, 0.4], rel=0.2)
    assert "arcsec" in ax.get_xlabel()


def test_sky_shows_where_images_are():
    likelihood = Sky()
    box = np.array([(1, -1), (-1, -1), (-1, 1), (1, 1)]) * ARCSEC
    likelihood.image_outlines = [{"small": box, "wide": 100 * box, "far": box + 300 * ARCSEC}]
    ax = plots.sky(likelihood, posterior()).axes[0]
    plain = plots.sky(Sky(), posterior()).axes[0]
    assert (ax.get_xlim(), ax.get_ylim()) == (plain.get_xlim(), plain.get_ylim())
    (legend,) = ax.figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[2:] == ["small (image)", "wide (image, wider than the view)", "far (image, outside)"]
    line = next(line for line in ax.lines if line.get_label() == "small (image)")
    assert (min(line.get_xdata()), max(line.get_ydata())) == pytest.approx((-1.0, 1.0))


def test_sky_has_whole_numbers_far_from_the_centre():
    """Not "+3e4" above an axis."""
    far = Sky()
    near = far.model.sources

    def moved(theta, i_partition):
        sources = near(theta, i_partition)
        sources.lm = sources.lm * 1e-3 + 30000 * ARCSEC
        sources.shape = sources.shape * 1e-3
        return sources

    far.model.sources = moved
    ax = plots.sky(far, posterior()).axes[0]
    ax.figure.draw_without_rendering()
    assert ax.xaxis.get_offset_text().get_text() == ""
    low, high = sorted(ax.get_xlim())
    shown = [float(text.get_text()) for text in ax.get_xticklabels()]
    assert len([value for value in shown if low <= value <= high]) >= 2


@pytest.mark.parametrize("n_walker", [1, 32])
def test_corner_and_traces_have_names_and_units(n_walker):
    figure = plots.corner(posterior(n_walker), truth={"x": 0.0})
    assert "x\n[arcsec]" in {ax.get_xlabel() for ax in figure.axes}
    traces = plots.traces(posterior(n_walker))
    assert len(traces.axes) == 2
    assert isinstance(traces, Figure)
    with pytest.raises(InputError, match="no parameter 'z'"):
        plots.corner(posterior(), ["z"])


def test_a_true_angle_is_marked_beside_the_samples_that_wrap():
    base = posterior()
    around = np.mod(base.samples * 10.0, 180.0)  # about 0, which is 180
    columns = (Column("x", "deg", period=180.0), Column("y", "deg", period=180.0))
    figure = plots.corner(replace(base, columns=columns, samples=around), truth={"x": 179.0})
    ax = figure.axes[0]
    (mark,) = (line for line in ax.lines if line.get_color() == TRUTH)
    # The median of the samples, in their range of 0 to 180, is just below 180 or just above 0.
    at = mark.get_xdata()[0]
    assert np.mod(at, 180.0) == pytest.approx(179.0)
    assert ax.get_xlim()[0] < at < ax.get_xlim()[1]


@pytest.mark.parametrize("low", [0.0, -90.0, -17.0])
def test_pictures_give_an_angle_in_the_range_of_its_prior(low):
    """About 169.7 deg, which is -10.3 deg for another prior: one number in table and pictures."""
    base, columns = posterior(), (Column("x", "deg", period=180.0), Column("y", "deg", period=180.0))
    # The first parameter scatters by 1, and a tenth of it wraps for the last prior.
    centred = 169.7 + 5.0 * (base.samples - base.weight @ base.samples)
    shown = replace(base, columns=columns, samples=low + np.mod(centred - low, 180.0))
    median = shown.summary()["x"].median
    assert low <= median < low + 180.0
    title = plots.corner(shown).axes[0].get_title().splitlines()[1]
    assert float(title.replace("\N{MINUS SIGN}", "-").removesuffix(" deg")) == pytest.approx(median, abs=0.06)
    mean, _ = mean_and_sd(shown)
    # 5 deg over the root of hundreds of samples, and the difference of mean and median.
    assert mean[0] == pytest.approx(median, abs=2.0)


def test_the_report_is_one_page_with_everything_escaped(tmp_path):
    path = write_report(tmp_path, posterior(32), Sky(), title="A <title>")
    text = path.read_text()
    assert path.name == "report.html"
    assert text.count("data:image/webp;base64,") == 8
    assert html.escape("<summary> & more") in text
    assert "# &lt;model&gt;" in text
    assert "A &lt;title&gt;" in text
    assert "http" not in re.sub(r"data:image[^\"]*", "", text)


def test_images_of_data_model_and_residual_with_peak_and_rms():
    """The model is the data but for noise: 0.1 Jy in each part of 6000 hands leaves 1.3 mJy in the image."""
    figure = posterior().plot_residual_image(Sky(), size=64)
    panels = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title().split(",")[0] for ax in panels] == ["data", "model", "residual"]
    peaks = [ax.images[0].get_array().max() for ax in panels]
    assert peaks == pytest.approx([4.0, 4.0, 0.0], abs=0.006)
    rows = fit_images(Sky(), np.zeros(2))
    caption = before_and_after(rows)
    assert caption.startswith("peak 3.999 before, ")
    # A strip of 1-d coverage: noise of sigma / sqrt(6000), to a fifth, for some hundred independent fringes.
    assert rows[0][2].rms == pytest.approx(0.1 / np.sqrt(6000), rel=0.3)


def test_each_field_has_a_row_of_images():
    two = Sky()
    part = two.observation.partitions[0]
    other = replace(part, field="other", field_id=1, phase_centre=(1.0, 0.5))
    two.observation = replace(two.observation, partitions=(part, other))
    two.predict = lambda theta: [np.full((3000, 1, 2), 4.0 + 0j)] * 2
    rows = fit_images(two, np.zeros(2), size=64)
    assert [[image.field for image in row] for row in rows] == [["field"] * 3, ["other"] * 3]
    assert len([ax for ax in image_rows(rows).axes if ax.images]) == 6
    assert before_and_after(rows).split("; ")[2].startswith("other: peak 3.999 before")


def test_titles_stand_beside_colour_bars_and_of_wide_fields_the_source_is_shown():
    made = biro.image(observe(n_row=2000, w=0.1), size=640, cell="15 arcsec")
    dirty = np.random.default_rng(1).normal(scale=0.01, size=made.dirty.shape)
    dirty[0, 300, 200] = 1.0
    made = replace(made, dirty=dirty, field="a field with quite a long name")
    figure = image_rows([[made, replace(made, what="residual")]])
    figure.draw_without_rendering()
    panels = [ax for ax in figure.axes if ax.images]
    assert len(panels) == 2
    assert "data, Stokes I, a field" in panels[0].get_title()
    bars = [bar for ax in panels for bar in ax.child_axes]
    for ax in panels:
        title = ax.title.get_window_extent()
        assert not any(title.overlaps(bar.get_tightbbox()) for bar in bars)
        assert not any(title.overlaps(other.title.get_window_extent()) for other in panels if other is not ax)
    # Six beams on either side of pixel (200, 300), 120 pixels east and 20 south of the middle.
    arcmin = 180 / np.pi * 60
    half = 6 * made.beam.major * arcmin
    assert panels[0].get_xlim() == pytest.approx((120 * 0.25 + half, 120 * 0.25 - half))
    assert panels[0].get_ylim() == pytest.approx((-20 * 0.25 - half, -20 * 0.25 + half))
    assert "Stokes I" in made.plot().axes[0].get_title()
