"""Pictures for a paper: all antennas, continuous phases, limits of priors, labels apart, text of PDFs."""

import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
from astropy.io import fits
from matplotlib.figure import Figure
from test_pictures import ARCSEC, many
from test_plots import posterior

from biro import plots
from biro.display.stages import Stages
from biro.display.style import COLUMN, WIDTH
from biro.imaging.cubes import pictures as cube_pictures
from biro.imaging.cubes.axis import SpectralAxis
from biro.imaging.cubes.figures import CubeLayout, PlaneFigures, SavedCube
from biro.imaging.cubes.interpolation import Unused
from biro.imaging.cubes.pictures import draw_channel_maps, draw_cube, moments
from biro.imaging.dirty_image import Peak
from biro.imaging.pictures import Panel, draw_panel, window_about
from biro.imaging.psf import RestoringBeam
from biro.models.quantities.parameter import Column
from biro.plots.gains import GainTrack, continuous, draw_gains
from biro.plots.report import pdf
from biro.plots.standard import of_posterior
from biro.plots.time_axis import TimeAxis


def tracks(n_antenna, n_feed=2):
    """Gains whose phases drift through three turns, wrapped to 180 degrees, and an amplitude per antenna."""
    hours = np.linspace(0.0, 5.0, 60)
    error = np.full((2, 60), 0.01)
    found = {}
    for k in range(n_antenna):
        phase = (40.0 * k + 1080.0 * hours / 5.0 + 180.0) % 360.0 - 180.0
        track = GainTrack(hours, np.full(60, 1.0 + k), error, phase, error)
        found[f"A{k}"] = dict.fromkeys(("R", "L")[:n_feed], track)
    return found


@pytest.mark.parametrize(("n_antenna", "width"), [(5, COLUMN), (27, WIDTH)])
def test_gains_of_all_antennas_are_drawn_with_continuous_phases(n_antenna, width):
    figure = draw_gains(tracks(n_antenna))
    assert figure.get_size_inches()[0] == width
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == 2 * n_antenna
    names = {ax.get_ylabel() for ax in shown} - {""}
    assert names == {f"A{k}" for k in range(n_antenna)}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["feed R", "feed L"]
    for name in names:
        amplitude = next(ax for ax in shown if ax.get_ylabel() == name)
        phase = shown[shown.index(amplitude) + 1]
        for bars in phase.containers:
            drawn = bars.lines[0].get_ydata()
            # The drift is 18.3 degrees a point: a turn that is left would be a step of 340.
            assert np.abs(np.diff(drawn)).max() == pytest.approx(1080.0 / 59.0, rel=1e-6)
        low, high = phase.get_ylim()
        assert 1080.0 < high - low < 1300.0, "the scale is that of the antenna, with a margin"
        low, high = amplitude.get_ylim()
        assert low < 1.0 + int(name[1:]) < high
        assert high - low < 0.1


def test_phases_are_continuous_about_a_mean():
    assert continuous(np.array([170.0, -170.0, -150.0])) == pytest.approx([-190.0, -170.0, -150.0])
    assert continuous(np.array([170.0, -170.0]), about=360.0) == pytest.approx([170.0, 190.0])
    assert continuous(np.zeros(0)).size == 0


def labels_that_overlap(figure):
    """Pairs of tick labels of one axis, or of axes side by side, whose boxes overlap."""
    figure.draw_without_rendering()
    boxes = [
        (text.get_text(), text.get_window_extent())
        for ax in figure.axes
        for axis, sides in ((ax.yaxis, True), (ax.xaxis, False))
        for text in axis.get_ticklabels()
        if text.get_text() and text.get_visible() and (sides or text.get_rotation() == 0.0)
    ]
    boxes += [(ax.get_title(), ax.title.get_window_extent()) for ax in figure.axes if ax.get_title()]
    return [(a, b) for i, (a, one) in enumerate(boxes) for b, other in boxes[i + 1 :] if one.overlaps(other)]


@pytest.mark.parametrize("n", [3, 8, 14])
def test_ticks_and_titles_of_a_corner_do_not_collide(n):
    """Also of values far from zero, whose ticks are long."""
    base = many(6)
    offsets = 10.0 ** np.arange(-3.0, 11.0)
    scaled = replace(base, samples=offsets + base.samples * 1e-3 * np.sqrt(offsets))
    figure = plots.corner(scaled, base.names[:n])
    assert not labels_that_overlap(figure)
    titles = [ax.get_title().replace("\n[", "[").split("\n")[0] for ax in figure.axes if ax.get_title()]
    assert titles == list(base.names[:n])


def test_a_corner_ends_where_the_prior_does_and_contours_reach_its_end():
    """A half normal distribution, whose density is highest at the end of its prior."""
    base = posterior()
    half = np.abs(base.samples) + 1.0
    columns = tuple(Column(name, "Jy", low=1.0, high=50.0) for name in ("a.I", "b.I"))
    figure = plots.corner(replace(base, columns=columns, samples=half))
    for ax in figure.axes:
        assert ax.get_xlim()[0] == 1.0
    pair = figure.axes[1]
    lowest = min(
        path.vertices[:, 0].min() for kind in pair.collections for path in kind.get_paths() if len(path)
    )
    # Contours are drawn between the middles of bins, of which the first is half a bin from the end.
    assert 1.0 <= lowest < 1.0 + 0.05 * np.ptp(pair.get_xlim())


def test_the_window_is_that_of_the_source_and_of_all_others_above_sidelobes():
    plane = np.random.default_rng(0).normal(size=(512, 512))
    plane[300, 200] = 100.0
    panel = Panel(plane, ARCSEC, RestoringBeam(4 * ARCSEC, 3 * ARCSEC, 0.0), 1.0, "one", sidelobe=0.3)
    window = window_about([panel], np.zeros((0, 2)))
    # Pixel (200, 300) of 512 is 56 east and 44 north; six beams of 4 arcsec on either side.
    assert np.divide(window, ARCSEC) == pytest.approx([56.0, 44.0, 24.0])
    plane[100, 200] = 35.0  # above the sidelobes of the peak: 44 north to 156 south
    wider = window_about([panel], np.zeros((0, 2)))
    assert np.divide(wider, ARCSEC) == pytest.approx([56.0, -56.0, 124.0])
    plane[100, 500] = 35.0
    assert window_about([panel], np.zeros((0, 2))) is None
    assert draw_panel(panel).get_size_inches()[0] == COLUMN


def test_of_a_residual_the_peak_alone_widens_the_window():
    """Sidelobes of several sources add up to more than that of one, 5 rms and 0.3 of the peak."""
    plane = np.random.default_rng(0).normal(size=(512, 512))
    plane[256, 256], plane[100, 100] = 100.0, 60.0
    beam = RestoringBeam(4 * ARCSEC, 4 * ARCSEC, 0.0)
    panel = Panel(plane, ARCSEC, beam, 1.0, "one", is_residual=True, sidelobe=0.3)
    window = window_about([panel], np.array([[10 * ARCSEC, 0.0]]))
    # The source of the model is in the middle, the peak 10 west of it; six beams of 4 arcsec on either side.
    assert np.divide(window, ARCSEC) == pytest.approx([10.0, 0.0, 34.0])
    # Two sources, and a peak far from them: they stay in the middle.
    plane[100, 100], plane[256 + 80, 256] = 0.0, 60.0
    seen = replace(panel, is_residual=False)
    both = window_about([seen], np.array([[10 * ARCSEC, 0.0], [-10 * ARCSEC, 4 * ARCSEC]]))
    assert np.divide(both, ARCSEC)[:2] == pytest.approx([0.0, 2.0])


def test_pauses_are_short_where_scans_would_be_lines():
    """Three scans of 6 minutes, 3 and 5 hours later: 0.3 h of 5.1; a pause is 0.15 of them, 0.045 h."""
    scan = np.linspace(0.0, 0.1, 7)
    times = TimeAxis(np.concatenate([scan, 3.0 + scan, 5.0 + scan]))
    assert times.is_shortened
    assert np.diff(times.of(3.0 + scan)) == pytest.approx(np.diff(scan))
    assert times.of(np.array([0.0, 0.1, 3.0, 5.1])) == pytest.approx([0.0, 0.1, 0.145, 0.39])
    ax = Figure().add_subplot()
    times.finish([ax])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "3", "5"]


@pytest.mark.parametrize("hours", [np.linspace(0, 5, 50), np.array([0.0, 2.0, 4.0]), np.zeros(0), np.ones(3)])
def test_times_without_pauses_between_scans_stay_as_they_are(hours):
    times = TimeAxis(hours)
    assert not times.is_shortened
    if hours.size:
        assert times.of(hours) == pytest.approx(hours)


def saved_cube(folder, monkeypatch):
    """A cube of four planes of velocity 30, 20, 10, 0 km/s, the third blank; which planes were read.

    At pixel (x, y) = (20, 40): 1, 3, -, 2 Jy/beam; noise of 0.01 elsewhere.
    """
    n, rest = 64, 1420.40575e6
    step = 1e4 / 299792458.0 * rest  # 10 km/s
    pixels = np.random.default_rng(0).normal(scale=0.01, size=(4, n, n))
    pixels[:, 40, 20] = [1.0, 3.0, 0.0, 2.0]
    fits.writeto(folder / "cube.fits", pixels.astype(np.float32))
    axis = SpectralAxis(rest - 3 * step, step, 4, 1, "LSRK", rest, "velocity")
    layout = CubeLayout("data", "I", "natural", ARCSEC, n, (0.0, 0.0), axis)
    beam = RestoringBeam(3 * ARCSEC, 3 * ARCSEC, 0.0)
    planes = [
        PlaneFigures(9, 0.01, 0.01, Peak(value, 12 * ARCSEC, 8 * ARCSEC, 0.0, 0.0), beam)
        if value
        else PlaneFigures()
        for value in (1.0, 3.0, 0.0, 2.0)
    ]
    read = []
    each = cube_pictures.each_plane
    monkeypatch.setattr(
        cube_pictures, "each_plane", lambda *args: (read.append(found[0]) or found for found in each(*args))
    )
    return SavedCube(layout, [folder / "cube.fits"], planes, Unused(0, 0), Stages()), read


def test_moments_and_spectrum_of_a_cube_read_each_plane_once(tmp_path, monkeypatch):
    """Moment 0 is 10 km/s times 1 + 3 + 2 Jy/beam; moment 1 (30 + 60 + 0) / 6 = 15 km/s."""
    saved, read = saved_cube(tmp_path, monkeypatch)
    found = moments(saved)
    assert found.pixel == (40, 20)
    # To float32, which the file holds, and to what noise above 5 rms would add: none is.
    assert found.zeroth[40, 20] == pytest.approx(60.0, rel=1e-6)
    assert found.first[40, 20] == pytest.approx(15.0, rel=1e-6)
    assert found.spectrum == pytest.approx([1.0, 3.0, np.nan, 2.0], nan_ok=True)
    assert read == [0, 1, 3]
    read.clear()
    figure = draw_cube(saved)
    assert read == [0, 1, 3]
    # The window is that of the source, 12 east and 8 north: six beams of 3 arcsec would be more than half.
    assert "[Jy/beam km/s]" in figure.axes[3].get_ylabel()
    assert figure.axes[2].get_title() == "spectrum at the peak, 12 east, 8 north [arcsec]"


def test_channel_maps_have_labels_outside_and_one_bar(tmp_path, monkeypatch):
    saved, _ = saved_cube(tmp_path, monkeypatch)
    panels = [ax for ax in draw_channel_maps(saved).axes if ax.images]
    # To the digits that are drawn.
    titles = [ax.get_title().replace("−", "-").split() for ax in panels]
    assert [float(value) for value, _ in titles] == pytest.approx([30.0, 20.0, 0.0], abs=0.05)
    assert {unit for _, unit in titles} == {"km/s"}
    assert [len(ax.child_axes) for ax in panels] == [0, 0, 1]
    assert [bool(ax.get_ylabel()) for ax in panels] == [True, False, False]


def test_text_of_a_pdf_is_text():
    """TrueType fonts (type 42), no outlines of letters: editors of journals ask for it."""
    data = pdf(plots.corner(posterior(), ["x"]))
    texts = [data]
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.S):
        try:
            texts.append(zlib.decompress(stream))
        except zlib.error:
            continue
    whole = b"".join(texts)
    assert b"/FontFile2" in whole
    assert b"/Type3" not in whole


def test_pictures_of_a_posterior_are_those_that_are_asked_for():
    captions = [caption.split()[0] for caption, _ in of_posterior(many(), ["jet"])]
    assert captions == ["Posterior:", "Traces;"]


def test_a_cube_of_velocities_says_kilometres_a_second():
    """Velocities of the line of hydrogen: 1420.40575 MHz less 1 MHz is 211.061 km/s."""
    axis = SpectralAxis(1419.40575e6, 0.5e6, 3, 1, "LSRK", 1420.40575e6, "velocity")
    assert "211.061 to 0 km/s" in str(axis).replace("211.0612", "211.061").replace("211.0611", "211.061")
    assert "km/s" not in str(replace(axis, kind="frequency"))
