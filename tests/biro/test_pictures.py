"""Pictures as facts: what is in view, on which scale, what lines join, and closure phases in closed form."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy.constants import c
from test_plots import ARCSEC, Sky, posterior

from biro import plots
from biro.errors import InputError
from biro.imaging.fit_images import draw_fit_images, fit_images
from biro.imaging.pictures import Panel, draw_panel
from biro.models.quantities.parameter import Column
from biro.observation.observation import Observation
from biro.plots.labels import chosen_columns, parameter_text
from biro.plots.report import write_report
from biro.plots.standard import standard_pictures
from biro.plots.stokes_i import stokes_i
from biro.plots.time_series import baseline_curves, quadrangle_curves, triangle_curves

FREQ = 1e9
POSITIONS = np.array([[0.0, 0.0], [300.0, 20.0], [-150.0, 410.0], [90.0, -250.0]])
"""East and north of four antennas, m."""


class Double:
    """A point of 1 Jy at the phase centre and one of `ratio` at `offset` rad, seen by four antennas.

    There are two windows and two scans, of 20 times each, an hour apart. `spoil` turns each antenna's phase;
    the model has the second source or not.
    """

    def __init__(self, ratio=0.0, offset=(0.0, 0.0), *, sigma=0.0, spoil=False, model_ratio=None):
        rng = np.random.default_rng(3)
        self.ratio, self.offset = ratio, np.asarray(offset)
        pairs = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])
        times = 5e9 + np.concatenate([10.0 * np.arange(20), 3600.0 + 10.0 * np.arange(20)])
        first, second = (np.tile(pairs[:, k], len(times)) for k in (0, 1))
        time = np.repeat(times, len(pairs))
        turn = 1.0 + 0.2 * (time - 5e9) / 3600.0  # stretches baselines, so that phases change in time
        uv = (POSITIONS[second] - POSITIONS[first]) * turn[:, None]
        uvw = np.concatenate([uv, np.zeros((len(uv), 1))], axis=1)
        phases = rng.uniform(-np.pi, np.pi, (4, len(time))) if spoil else np.zeros((4, len(time)))
        # One phase of an antenna at each time, the same on all of its baselines.
        phases = phases[:, np.searchsorted(times, time)]
        rows = np.arange(len(time))
        gain = np.exp(1j * (phases[first, rows] - phases[second, rows]))
        parts, self.models = [], []
        for freq in (FREQ, 1.3 * FREQ):
            shape = (len(time), 1, 2)
            noise = sigma * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
            vis = (self.vis(uv, freq, ratio) * gain)[:, None, None] + noise
            weight = 1.0 / (sigma or 1e-3) ** 2
            parts.append(
                Observation.from_arrays(
                    vis, uvw, first, second, time, [freq], ["XX", "YY"], weight=weight, interval=10.0
                ).partitions[0]
            )
            model = self.vis(uv, freq, ratio if model_ratio is None else model_ratio)
            self.models.append(np.repeat(model[:, None, None], 2, axis=2))
        made = Observation.from_arrays(
            vis, uvw, first, second, time, [freq], ["XX", "YY"], weight=weight, interval=10.0
        )
        parts[1] = replace(parts[1], spw="1", spw_id=1, data_desc_id=1)
        self.observation = replace(made, partitions=tuple(parts), antenna_names=("A", "B", "C", "D"))

    def vis(self, uv, freq, ratio):
        """1 + ratio exp(2 pi i (u l + v m) f / c), as conventions.md has it."""
        return 1.0 + ratio * np.exp(2j * np.pi * (uv @ self.offset) * freq / c)

    def predict(self, theta):
        return self.models

    def noise_factor(self, theta):
        return np.ones(2)

    def noise_dof(self, theta):
        return None


def closure(likelihood, triangle=(0, 1, 2)):
    (found,) = triangle_curves(stokes_i(likelihood, np.zeros(0)), [triangle], 1)
    (curve,) = found.curves
    return curve


def test_closure_phases_of_a_point_are_zero_whatever_antennas_do():
    curve = closure(Double(spoil=True))
    assert np.abs(np.angle(curve.data)).max() < 1e-5  # the data are complex64 or complex128
    assert len(curve.time) == 40


def test_closure_phases_of_a_double_are_those_of_the_formula():
    """arg (1 + r e^ia)(1 + r e^ib)(1 + r e^ic), the sides a + b + c = 0, whatever antennas do."""
    ratio, offset = 0.4, np.array([40.0, -25.0]) * ARCSEC
    likelihood = Double(ratio, offset, spoil=True)
    for triangle in ((0, 1, 2), (2, 0, 3)):
        curve = closure(likelihood, triangle)
        sides = [POSITIONS[triangle[(k + 1) % 3]] - POSITIONS[triangle[k]] for k in range(3)]
        turn = 1.0 + 0.2 * (curve.time - 5e9) / 3600.0
        mean = np.zeros(len(curve.time), complex)
        for freq in (FREQ, 1.3 * FREQ):  # of equal weight
            phases = [2 * np.pi * (side @ offset) * turn * freq / c for side in sides]
            mean += np.prod([1 + ratio * np.exp(1j * phase) for phase in phases], axis=0)
        assert np.abs(np.angle(mean)).max() > 0.1
        np.testing.assert_allclose(np.angle(curve.data), np.angle(mean), atol=1e-5)
        np.testing.assert_allclose(np.angle(curve.model), np.angle(mean), atol=1e-5)


@pytest.mark.parametrize("sigma", [0.05, 0.5])
def test_errors_of_closure_phases_are_their_scatter(sigma):
    """Of two hands and two windows: data - truth over the error has an rms of 1, of 160 values to 6 %."""
    likelihood = Double(0.4, np.array([40.0, -25.0]) * ARCSEC, sigma=sigma)
    pulls = []
    for triangle in ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)):
        curve = closure(likelihood, triangle)
        away = np.angle(curve.data / curve.model)
        pulls.append(away / np.radians(curve.phase_err))
    # The fourth triangle follows from the others where noise is small; at low signal to noise phases wrap.
    low, high = (0.8, 1.2) if sigma < 0.1 else (0.6, 1.3)
    assert low < np.sqrt(np.mean(np.concatenate(pulls) ** 2)) < high


def closure_amplitude(likelihood, quadrangle):
    (found,) = quadrangle_curves(stokes_i(likelihood, np.zeros(0)), [quadrangle], 1)
    (curve,) = found.curves
    return curve


def test_closure_amplitudes_of_a_double_are_those_of_the_formula():
    """ln |1 + r e^ia| of the sides ab and cd less those of ad and bc, the mean of two windows."""
    ratio, offset = 0.4, np.array([40.0, -25.0]) * ARCSEC
    likelihood = Double(ratio, offset, spoil=True)
    for a, b, c_, d in ((0, 1, 2, 3), (0, 1, 3, 2), (2, 0, 1, 3)):
        curve = closure_amplitude(likelihood, (a, b, c_, d))
        turn = 1.0 + 0.2 * (curve.time - 5e9) / 3600.0
        wanted = np.zeros(len(curve.time))
        total = np.zeros(len(curve.time))
        for freq in (FREQ, 1.3 * FREQ):
            side = {
                (i, j): np.abs(likelihood.vis((POSITIONS[j] - POSITIONS[i]) * turn[:, None], freq, ratio))
                for i, j in ((a, b), (c_, d), (a, d), (b, c_))
            }
            weight = 1.0 / sum(1.0 / value**2 for value in side.values())
            logs = {pair: np.log(value) for pair, value in side.items()}
            wanted += weight * (logs[a, b] + logs[c_, d] - logs[a, d] - logs[b, c_])
            total += weight
        assert np.abs(wanted / total).max() > 0.1
        np.testing.assert_allclose(curve.data.real, wanted / total, atol=1e-5)  # complex64 data
        np.testing.assert_allclose(curve.model.real, wanted / total, atol=1e-5)


def test_errors_of_closure_amplitudes_are_their_scatter_and_faint_sides_are_left_out():
    likelihood = Double(0.4, np.array([40.0, -25.0]) * ARCSEC, sigma=0.05)
    curve = closure_amplitude(likelihood, (0, 1, 2, 3))
    pulls = (curve.data - curve.model).real / curve.sigma
    # 40 independent values: the rms is known to 11 %, four of these.
    assert np.sqrt(np.mean(pulls**2)) == pytest.approx(1.0, abs=0.45)
    with pytest.raises(InputError, match="no such four antennas have four sides above 3 sigma"):
        plots.closure_amplitudes(Double(sigma=100.0), np.zeros(0), [("A", "B", "C", "D")])


def test_baselines_are_averaged_over_windows_and_turned_as_asked():
    likelihood = Double(0.4, np.array([40.0, -25.0]) * ARCSEC)
    groups = stokes_i(likelihood, np.zeros(0))
    (there,), (back,) = (baseline_curves(groups, [pair], 1) for pair in ((0, 1), (1, 0)))
    np.testing.assert_allclose(there.curves[0].data, np.conj(back.curves[0].data))
    assert there.reduced_chi2 == pytest.approx(0.0, abs=1e-6)


def test_no_line_crosses_a_gap_in_time_nor_joins_windows_in_uv():
    likelihood = Double(0.4, np.array([40.0, -25.0]) * ARCSEC, sigma=0.1, model_ratio=0.0)
    for figure in (
        plots.baselines(likelihood, np.zeros(0)),
        plots.closure_phases(likelihood, np.zeros(0)),
        plots.closure_amplitudes(likelihood, np.zeros(0)),
        plots.baseline(likelihood, np.zeros(0), ("A", "C")),
    ):
        lines = [
            line
            for ax in figure.axes
            for line in ax.lines
            if line.get_linestyle() == "-" and np.any(line.get_ydata())  # not the line at zero
        ]
        drawn = [np.asarray(line.get_xdata(), float) for line in lines if len(line.get_xdata()) > 1]
        assert drawn
        for x in drawn:
            steps = np.diff(x)  # NaN where a line ends
            assert np.nanmax(steps) < 0.1, "hours; the scans are one hour apart"
    for ax in plots.uv(likelihood, np.zeros(0)).axes[:1]:
        assert all(line.get_linestyle() in ("None", "none") for line in ax.lines)


def test_panels_are_named_and_chosen():
    likelihood = Double(sigma=0.1)
    figure = plots.baselines(likelihood, np.zeros(0))
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert [title.split()[0] for title in titles] == ["A–B", "A–C", "A–D", "B–C", "B–D", "C–D"]
    chosen = plots.closure_phases(likelihood, np.zeros(0), [("A", "C", "D")])
    assert [ax.get_title().split()[0] for ax in chosen.axes] == ["A–C–D"]
    four = plots.closure_amplitudes(likelihood, np.zeros(0))
    assert [ax.get_title().split()[0] for ax in four.axes if ax.get_title()] == [
        "A–B–C–D",
        "A–B–D–C",
        "A–C–B–D",
    ]
    with pytest.raises(InputError, match="no antenna 'X'; there are A, B, C, D"):
        plots.baselines(likelihood, np.zeros(0), [("A", "X")])


@pytest.mark.parametrize("factor", [1e-6, 1e9])
def test_pictures_of_absurd_noise_warn_of_nothing(factor):
    """Noise factors of LOFAR data with weights in arbitrary units made the phase's error overflow."""
    likelihood = Double(0.4, np.array([40.0, -25.0]) * ARCSEC, sigma=0.1)
    likelihood.noise_factor = lambda theta: np.full(2, factor)
    likelihood.models = [np.zeros_like(model) for model in likelihood.models]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for draw in (plots.uv, plots.residuals, plots.baselines, plots.closure_phases):
            draw(likelihood, np.zeros(0)).draw_without_rendering()


class Plane(Sky):
    """As `Sky`, with baselines in two directions, so that there is a beam."""

    def __init__(self):
        super().__init__()
        (part,) = self.observation.partitions
        uvw = part.uvw.copy()
        uvw[:, 1] = np.random.default_rng(5).permutation(uvw[:, 0])
        uvw[::2, 0] *= -1.0
        self.observation = replace(self.observation, partitions=(replace(part, uvw=uvw),))


@pytest.fixture(scope="module")
def seen():
    """A likelihood, its images, and their figure as it is drawn."""
    likelihood = Plane()
    rows = fit_images(likelihood, np.zeros(2), size=400)
    figure = draw_fit_images(rows, likelihood, np.zeros(2))
    figure.draw_without_rendering()
    return likelihood, rows, figure


def test_images_have_one_scale_residuals_one_about_zero_and_the_beam_inside(seen):
    *_, figure = seen
    panels = [ax for ax in figure.axes if ax.images]
    data, model, residual = (ax.images[0].norm for ax in panels[:3])
    assert (data.vmin, data.vmax) == (model.vmin, model.vmax)
    assert residual.vmin == -residual.vmax
    for ax in panels:
        frame = ax.get_window_extent()
        assert len(ax.patches) == 2, "the beam and its edge"
        for patch in ax.patches:
            box = patch.get_window_extent()
            assert frame.x0 < box.x0 < box.x1 < frame.x1
            assert frame.y0 < box.y0 < box.y1 < frame.y1


def test_colour_bars_run_into_nothing(seen):
    *_, figure = seen
    panels = [ax for ax in figure.axes if ax.images]
    # Data and model have one scale and one bar, beside the model.
    assert [len(ax.child_axes) for ax in panels] == [0, 1, 1]
    owners = panels[1:]
    boxes = [ax.child_axes[0].get_tightbbox() for ax in owners]
    width, height = figure.canvas.get_width_height()
    # What is blank above and below the panels is less than a tenth of their height.
    assert height - figure.get_tightbbox().height * figure.dpi < 0.1 * panels[0].get_window_extent().height
    for box, own in zip(boxes, owners, strict=True):
        assert 0 <= box.x0 < box.x1 <= width
        assert 0 <= box.y0 < box.y1 <= height
        for ax in panels:
            others = [ax.get_window_extent(), ax.yaxis.get_tightbbox()] if ax is not own else []
            assert not any(box.overlaps(other) for other in others if other is not None)


def test_sources_are_in_view_of_image_and_sky(seen):
    """The sources of `Sky` are at (0, 0) and at (20, 10) arcsec."""
    likelihood, rows, figure = seen
    sky = plots.sky(likelihood, posterior(), image=rows[0][0])
    for ax in (*(ax for ax in figure.axes if ax.images), sky.axes[0]):
        scale = {"arcsec": 1.0, "arcmin": 1 / 60, "deg": 1 / 3600}[
            re.search(r"\[(\w+)\]", ax.get_xlabel())[1]
        ]
        for east, north in ((0.0, 0.0), (20.0 * scale, 10.0 * scale)):
            assert ax.get_xlim()[0] > east > ax.get_xlim()[1]
            assert ax.get_ylim()[0] < north < ax.get_ylim()[1]


def test_a_sky_has_the_image_below_its_sources_and_the_beam(seen):
    likelihood, rows, _ = seen
    plain = plots.sky(likelihood, posterior()).axes[0]
    with_image = plots.sky(likelihood, posterior(), image=rows[0][0]).axes[0]
    assert len(with_image.images) == 1
    assert with_image.images[0].get_zorder() < min(line.get_zorder() for line in with_image.lines)
    ellipses = [sum(isinstance(p, Ellipse) for p in ax.patches) for ax in (plain, with_image)]
    assert ellipses[1] - ellipses[0] == 2


def test_a_source_of_one_pixel_is_seen_in_a_wide_image():
    """Of 2050 x 2050 pixels no more are drawn than a picture has; none of the 600 hides a source."""
    plane = np.random.default_rng(1).normal(size=(2050, 2050))
    plane[1501, 333] = -50.0  # x = 333: 692 pixels east; y = 1501: 476 north
    panel = Panel(plane, ARCSEC, None, 1.0, "wide", is_residual=True)
    (ax,) = draw_panel(panel).axes
    (drawn,) = ax.images
    values = drawn.get_array()
    assert max(values.shape) <= 600
    assert values.min() == -50.0
    y, x = np.unravel_index(values.argmin(), values.shape)
    left, right, bottom, top = drawn.get_extent()
    east = left + (x + 0.5) / values.shape[1] * (right - left)
    north = bottom + (y + 0.5) / values.shape[0] * (top - bottom)
    # To half a block of four pixels.
    assert (60.0 * east, 60.0 * north) == pytest.approx((692.0, 476.0), abs=2.0)
    assert sorted(np.multiply(ax.get_xlim(), 60.0)) == pytest.approx([-1024.5, 1025.5], abs=1e-6)


def many(n_noise=3):
    """A posterior of eight parameters of two sources, and of noise factors."""
    rng = np.random.default_rng(4)
    names = [f"{s}.{k}" for s in ("core", "jet") for k in ("east", "north", "I", "spectral_index")]
    names += [f"noise.factor[f/spw{i}]" for i in range(n_noise)]
    columns = tuple(Column(name, "", f"$x_\\mathrm{{{name.split('.')[0]}}}$") for name in names)
    return replace(
        posterior(),
        columns=columns,
        samples=rng.normal(size=(640, len(names))),
        effective=np.full(len(names), 640.0),
    )


def test_the_corner_has_the_parameters_that_are_asked_for():
    assert len(plots.corner(many()).axes) == 8 * 9 // 2, "more than eight: noise factors are left out"
    assert len(plots.corner(many(0)).axes) == 8 * 9 // 2
    for names, n in ((["jet"], 4), (["*.I"], 2), (["core.I", "noise.factor[f/spw1]"], 2), (["noise"], 3)):
        assert len(chosen_columns(many(), names)) == n
        assert len(plots.corner(many(), names).axes) == n * (n + 1) // 2
    with pytest.raises(InputError, match=r"no parameter 'knot'; there are core\.east"):
        plots.corner(many(), ["knot"])


def test_parameters_have_the_names_of_the_table():
    index = Column("jet.spectral_index", "", r"$a_\mathrm{jet}$")
    assert parameter_text(index) == "jet.spectral_index"
    assert parameter_text(Column("jet.ra", "deg", r"$\alpha_\mathrm{jet}$")) == "jet.ra\n[deg]"


def test_errors_that_cannot_be_trusted_have_question_marks_as_in_the_table():
    """The noise factor is highest at the end of its prior: table, corner and sky say so alike."""
    noisy = many(1)
    cut = replace(noisy.columns[-1], low=0.5, high=1.0)
    samples = noisy.samples.copy()
    samples[:, -1] = 1.0 - 0.01 * np.abs(samples[:, -1])
    columns = (*noisy.columns[:-1], cut)
    doubtful = replace(noisy, columns=columns, samples=samples)
    assert doubtful.summary().noise_is_cut_off
    assert "?" in plots.corner(doubtful, ["jet.I"]).axes[0].get_title()
    assert "?" not in plots.corner(noisy, ["jet.I"]).axes[0].get_title()


def test_pictures_are_drawn_on_axes_that_are_given(seen):
    likelihood, rows, _ = seen
    double = Double(sigma=0.1)
    figure = Figure()
    axes = figure.subplots(2, 4).ravel()
    plots.residuals(likelihood, np.zeros(2), ax=axes[0])
    plots.sky(likelihood, posterior(), ax=axes[1])
    plots.marginal(posterior(), "x", ax=axes[2])
    plots.baseline(double, np.zeros(0), ("A", "B"), "phase", ax=axes[3])
    rows[0][0].plot(ax=axes[4])
    plots.uv(likelihood, np.zeros(2), axes=axes[5:7])
    assert all(ax.has_data() for ax in axes[:7])
    assert figure.axes == list(axes)


def test_the_style_is_biro_s_whatever_a_matplotlibrc_says(monkeypatch):
    import matplotlib

    with matplotlib.rc_context({"xtick.direction": "out", "font.size": 30.0}):
        figure = plots.residuals(Sky(), np.zeros(2))
    figure.draw_without_rendering()
    tick = figure.axes[0].xaxis.get_major_ticks()[0]
    assert tick.get_tickdir() == "in"
    assert figure.axes[0].xaxis.label.get_size() == 8.0
    matplotlib.style.use("biro.plots.biro")
    assert matplotlib.rcParams["xtick.direction"] == "in"
    matplotlib.rcdefaults()


def test_a_report_has_no_python_in_it_nothing_empty_and_is_small(tmp_path):
    likelihood = Sky()
    likelihood.description = lambda: {
        "form": ["row", "row"], "smearing": ["on", "on"], "memory_limit": None, "images": {"a": "b"},
        "n_vis": [1, 2], "gpu": True,
    }  # fmt: skip
    base = posterior(32)
    about = replace(base.provenance, sampler="none", options={"starts": None, "names": ("a", "b")})
    said = {"overlap": 0.9, "pareto_k": 0.1}
    at_maximum = replace(base, provenance=about, effective=np.zeros(2), n_walker=1, diagnostics=said)
    pictures = standard_pictures(at_maximum, likelihood)
    assert not any(caption.startswith("Traces") for caption in pictures), "draws about a maximum are no run"
    path = write_report(tmp_path, at_maximum, likelihood, pictures=pictures)
    assert path.stat().st_size < 2e6
    text = re.sub(r'src="data:[^"]*"', "", path.read_text())
    for bad in ("None", "nan", "NaN", "{'", "['", "('", "<td></td><td></td>", "<td>-</td>", "array("):
        assert bad not in text.partition("</style>")[2], bad
    assert "smearing: on (2 times)" in text
    assert "form:" not in text  # how sums are computed is for -v
    assert '<meta name="viewport"' in text
    assert "<th>ESS</th>" not in text
