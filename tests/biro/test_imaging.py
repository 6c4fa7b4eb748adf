"""Dirty images: sources where astropy.wcs says, noise as counted, beams and weights as formulas have them."""

from __future__ import annotations

import dataclasses
import json
from typing import get_type_hints

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS
from scipy.constants import c
from test_cli import biro as command

import biro
from biro.errors import BiroError
from biro.imaging.imager import Imager, Imaging, ImagingOptions
from biro.imaging.psf import fit_beam
from biro.imaging.weights import image_weights
from biro.models import PointSource, SkyModel
from biro.observation.observation import Observation
from biro.observation.stokes import stokes_visibilities
from biro.simulation.prediction import predict

CENTRE = (1.2, -0.6)
FREQ = np.array([1.0e8, 1.2e8])
LINEAR, CIRCULAR = ("XX", "XY", "YX", "YY"), ("RR", "RL", "LR", "LL")


def observe(corr=LINEAR, *, n_row=300, longest=2000.0, w=0.7, seed=3, freq=FREQ, weight=1.0, sigma=0.0):
    """Random baselines within a disc; w up to `w` times their length; noise of sigma."""
    rng = np.random.default_rng(seed)
    radius, angle = longest * np.sqrt(rng.random(n_row)), rng.uniform(0, 2 * np.pi, n_row)
    uvw = np.stack(
        [radius * np.cos(angle), radius * np.sin(angle), w * radius * rng.uniform(-1, 1, n_row)], 1
    )
    shape = (n_row, len(freq), len(corr))
    noise = sigma * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
    columns = (uvw, np.zeros(n_row, int), 1 + np.arange(n_row) % 7, 5e9 + np.arange(n_row) // 7)
    return Observation.from_arrays(noise, *columns, freq, corr, phase_centre=CENTRE, weight=weight)


def with_source(observation, ra_deg, dec_deg, **flux):
    """The same with a point source."""
    given = {"ra": f"{ra_deg!r} deg", "dec": f"{dec_deg!r} deg", **{k: f"{v} Jy" for k, v in flux.items()}}
    models = predict(observation, SkyModel([PointSource("s", **given)]))
    parts = zip(observation.partitions, models, strict=True)
    return dataclasses.replace(
        observation, partitions=tuple(dataclasses.replace(part, vis=part.vis + vis) for part, vis in parts)
    )


def header_of(observation, tmp_path, **options):
    """Header of an image of these pixels as it is written."""
    biro.image(observation, **options).save(tmp_path / "blank")
    return fits.getheader(tmp_path / "blank.fits")


@pytest.mark.parametrize("weighting", ["natural", "uniform", "briggs"])
def test_a_source_of_1_jy_is_a_peak_of_1_jy_per_beam_where_astropy_says(tmp_path, weighting):
    """Wide field (8.8 deg) and w as long as the baselines: 60 turns at the edge."""
    options = {"cell": 6e-4, "size": 256, "accuracy": 1e-6, "weighting": weighting}
    blank = observe()
    wcs = WCS(header_of(blank, tmp_path, **options))
    x, y = 37, 190
    ra, dec, *_ = wcs.all_pix2world(x, y, 0, 0, 0)
    made = biro.image(with_source(blank, float(ra), float(dec), I=1.0), **options)
    assert np.unravel_index(made.dirty[0].argmax(), made.dirty[0].shape) == (y, x)
    # Errors of gridding alone: of the PSF, they are relative to the sum of weights.
    assert made.dirty[0, y, x] == pytest.approx(1.0, abs=3e-6)
    assert made.psf[128, 128] == pytest.approx(1.0, abs=3e-6)
    assert made.peak.value == made.dirty[0, y, x]
    np.testing.assert_allclose(np.rad2deg([made.peak.ra, made.peak.dec]), [ra, dec], atol=1e-10)


@pytest.mark.parametrize("corr", [LINEAR, CIRCULAR])
def test_stokes_parameters_come_out_as_they_went_in(corr):
    source = {"I": 1.0, "Q": 0.3, "U": -0.2, "V": 0.1}
    centre = np.rad2deg(CENTRE)
    given = with_source(observe(corr), float(centre[0]), float(centre[1]), **source)
    made = biro.image(given, stokes="IQUV", cell=6e-4, size=128, accuracy=1e-6)
    np.testing.assert_allclose(made.dirty[:, 64, 64], list(source.values()), atol=3e-6)


@pytest.mark.parametrize("engine", ["idg", "wprojection"])
def test_an_image_with_natural_weights_is_the_explicit_sum(engine):
    given = observe(n_row=40, sigma=1.0)
    made = biro.image(given, cell=5e-4, size=64, accuracy=1e-6, engine=engine)
    part = given.partitions[0]
    vis = 0.5 * (part.vis[..., 0] + part.vis[..., 3])
    l = -(np.arange(64) - 32) * 5e-4
    m = -l
    r2 = l[None, :] ** 2 + m[:, None] ** 2
    n_minus_1 = -r2 / (1 + np.sqrt(1 - r2))
    expected = np.zeros((64, 64))
    for k, nu in enumerate(FREQ):
        for (u, v, w), value in zip(part.uvw * nu / c, vis[:, k], strict=True):
            expected += (value * np.exp(-2j * np.pi * (u * l + v * m[:, None] + w * n_minus_1))).real
    expected /= vis.size
    assert np.linalg.norm(made.dirty[0] - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("weighting", ["natural", "uniform", "briggs"])
def test_noise_in_the_image_is_as_counted(weighting):
    """rms = sigma_I / sqrt(n) for natural weights, and sqrt(sum W^2 / w) / sum W for others."""
    given = observe(n_row=2000, weight=25.0, sigma=0.2, w=0.05)
    made = biro.image(given, cell=5e-4, size=256, weighting=weighting)
    if weighting == "natural":
        # XX and YY of 2000 rows and 2 channels, each with 0.2 Jy per real part.
        assert made.noise == pytest.approx(0.2 / np.sqrt(8000), rel=1e-6)
    # Some 100 x 100 independent beams: rms to 1 / sqrt(2 x 10000) = 0.7 %, robust 1 %; four of them.
    assert made.dirty[0].std() == pytest.approx(made.noise, rel=0.03)
    assert made.rms == pytest.approx(made.noise, rel=0.04)


def test_the_beam_of_a_gaussian_uv_coverage_is_gaussian():
    """Weights exp(-(a^2/s^2 + b^2/t^2)/2) have a PSF whose FWHM along a is sqrt(8 ln 2)/(2 pi s)."""
    rng = np.random.default_rng(1)
    n_row, pa = 20000, np.deg2rad(30.0)
    s, t = 80.0, 160.0  # wavelengths; narrow in uv is wide on the sky
    uv = rng.uniform(-5, 5, (n_row, 2)) * [s, t]
    weight = np.exp(-0.5 * ((uv / [s, t]) ** 2).sum(axis=1))
    # The wide axis of the beam points to (sin pa, cos pa) in (east, north), and so does the narrow one in uv.
    east = uv[:, 0] * np.sin(pa) - uv[:, 1] * np.cos(pa)
    north = uv[:, 0] * np.cos(pa) + uv[:, 1] * np.sin(pa)
    wavelength = c / 1e8
    uvw = np.stack([east, north, 0 * east], axis=1) * wavelength
    given = Observation.from_arrays(
        np.zeros((n_row, 1, 1), complex), uvw, np.zeros(n_row, int), np.ones(n_row, int), np.arange(n_row),
        [1e8], ["I"], weight=weight[:, None, None],
    )  # fmt: skip
    made = biro.image(given, cell=1.5e-4, size=256)
    fwhm = np.sqrt(8 * np.log(2)) / (2 * np.pi) / np.array([s, t])
    # 20000 random points, effectively 20000 x 0.16 / 1.6: sidelobes of 2 %, so widths to about 2 %.
    assert [made.beam.major, made.beam.minor] == pytest.approx(fwhm, rel=0.04)
    assert np.rad2deg(made.beam.pa) == pytest.approx(30.0, abs=2.0)


def test_an_exact_gaussian_is_fitted_exactly_and_a_ridge_has_no_beam():
    n, cell = 64, 2e-6
    east, north = np.meshgrid(-(np.arange(n) - 32.0), np.arange(n) - 32.0)
    pa = np.deg2rad(150.0)
    along, across = east * np.sin(pa) + north * np.cos(pa), east * np.cos(pa) - north * np.sin(pa)
    psf = np.exp(-4 * np.log(2) * ((along / 9.0) ** 2 + (across / 5.0) ** 2))
    beam = fit_beam(psf, cell)
    assert [beam.major, beam.minor] == pytest.approx([9 * cell, 5 * cell], rel=1e-6)
    assert np.rad2deg(beam.pa) == pytest.approx(150.0, abs=1e-4)
    assert beam.area == pytest.approx(psf.sum() * cell**2, rel=1e-6)
    assert fit_beam(np.exp(-4 * np.log(2) * (across / 5.0) ** 2), cell) is None
    assert fit_beam(np.where((east == 0) & (north == 0), 1.0, 0.0), cell) is None


def briggs_by_hand(uv, weight, field, robust):
    """Briggs' formula, visibility by visibility, with cells in a dictionary."""
    cells = {}
    keys = []
    for u, v in np.rint(uv * field).astype(int):
        key = (u, v) if (v, u) > (0, 0) or (u, v) == (0, 0) else (-u, -v)
        keys.append(key)
    for key, w in zip(keys, weight, strict=True):
        cells[key] = cells.get(key, 0.0) + w
    f2 = (5 * 10**-robust) ** 2 / (sum(w * w for w in cells.values()) / weight.sum())
    uniform = np.array([w / cells[key] for key, w in zip(keys, weight, strict=True)])
    return uniform, np.array([w / (1 + f2 * cells[key]) for key, w in zip(keys, weight, strict=True)])


@pytest.mark.parametrize("robust", [-2.0, 0.5, 2.0])
def test_weights_follow_the_formulas(robust):
    given = observe(["I"], n_row=500, freq=np.array([1e8]))
    part = given.partitions[0]
    natural = np.random.default_rng(2).uniform(0.5, 2.0, (500, 1))
    uniform, briggs = briggs_by_hand(part.uvw[:, :2] * 1e8 / c, natural[:, 0], 0.05, robust)
    (found,) = image_weights([part], [natural], 0.05, "uniform", 0.0)
    np.testing.assert_allclose(found[:, 0], uniform, rtol=1e-12)
    (found,) = image_weights([part], [natural], 0.05, "briggs", robust)
    np.testing.assert_allclose(found[:, 0], briggs, rtol=1e-12)
    # Every cell has the same weight: the sum is the number of cells.
    assert uniform.sum() == pytest.approx(round(uniform.sum()), rel=1e-12)
    near = uniform if robust < 0 else natural[:, 0]
    if abs(robust) == 2:
        # 5 x 10^2 squared against cells of a few samples: alike to 1e-4; 0.05^2 the other way: to some %.
        ratio = found[:, 0] / near
        assert np.ptp(ratio) / ratio.mean() < (1e-4 if robust < 0 else 0.05)


def test_conjugate_visibilities_share_a_cell():
    given = observe(["I"], n_row=50, freq=np.array([1e8]))
    part = given.partitions[0]
    both = dataclasses.replace(
        part,
        uvw=np.concatenate([part.uvw, -part.uvw]),
        **{name: np.tile(getattr(part, name), 2) for name in ("antenna1", "antenna2", "time", "time_index")},
    )
    (once,) = image_weights([part], [np.ones((50, 1))], 0.05, "uniform", 0.0)
    (twice,) = image_weights([both], [np.ones((100, 1))], 0.05, "uniform", 0.0)
    np.testing.assert_allclose(twice, np.concatenate([once, once]) / 2, rtol=1e-12)


def test_intensity_takes_the_hands_that_are_there_and_iquv_needs_all():
    given = observe(n_row=2, freq=np.array([1e8]))
    weight = np.array([[[4.0, 1.0, 1.0, 1.0]], [[2.0, 2.0, 2.0, 0.0]]])
    part = dataclasses.replace(given.partitions[0], weight=weight)
    vis = np.array([[[1.0, 0, 0, 2.0]], [[3.0, 1, 1, 9.0]]], complex)
    mean, total = stokes_visibilities(part, vis, "pseudoI")
    np.testing.assert_allclose(mean[:, 0, 0], [(4 * 1 + 1 * 2) / 5, 3.0])
    np.testing.assert_allclose(total[:, 0], [5.0, 2.0])
    solved, shared = stokes_visibilities(part, vis, "IQUV")
    np.testing.assert_allclose(solved[:, 0], [[1.5, -0.5, 0, 0], [0, 0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(shared[:, 0], [8 / (1 / 4 + 3), 0.0])


def two_windows(first, second, **change):
    part = dataclasses.replace(second.partitions[0], spw="1", spw_id=1, data_desc_id=1, **change)
    return dataclasses.replace(first, partitions=(first.partitions[0], part))


def test_windows_of_one_field_make_one_image():
    one, two = observe(seed=1, sigma=1.0), observe(seed=2, sigma=1.0, weight=3.0, freq=np.array([0.8e8]))
    options = {"cell": 6e-4, "size": 64, "accuracy": 1e-6}
    first, second = biro.image(one, **options), biro.image(two, **options)
    both = biro.image(two_windows(one, two), **options)
    # Sums of natural weights: 300 rows, 2 channels, 2 hands; 300 rows, 1 channel, 2 hands of weight 3.
    expected = (1200 * first.dirty + 1800 * second.dirty) / 3000
    np.testing.assert_allclose(both.dirty, expected, atol=1e-6 * np.abs(expected).max())
    assert both.freq == pytest.approx((600 * 1.0e8 + 600 * 1.2e8 + 1800 * 0.8e8) / 3000)


def test_fields_are_not_mixed():
    mixed = two_windows(observe(), observe(), field="other", field_id=1, phase_centre=(1.3, -0.6))
    with pytest.raises(BiroError, match="fields field, other have different phase centres"):
        biro.image(mixed)


def test_the_residual_is_data_less_model():
    given = with_source(observe(sigma=0.1), *np.rad2deg(CENTRE).tolist(), I=2.0)
    model = list(predict(given, SkyModel([PointSource("s", east="0 rad", north="0 rad", I="1.5 Jy")])))
    images = {
        what: biro.image(given, what, model=model, cell=6e-4, size=128)
        for what in ("data", "model", "residual")
    }
    difference = images["data"].dirty - images["model"].dirty
    np.testing.assert_allclose(images["residual"].dirty, difference, atol=1e-4)
    assert images["model"].peak.value == pytest.approx(1.5, abs=1e-3)
    with pytest.raises(BiroError, match="needs model="):
        biro.image(given, "residual")
    with pytest.raises(BiroError, match=r"of shapes \[\(300, 2, 4\)\], got \[\(4,\)\]"):
        biro.image(given, "residual", model=[np.zeros(4)])
    with pytest.raises(BiroError, match=r"an array of visibilities for each partition, .* got ndarray"):
        biro.image(given, "residual", model=model[0])


def test_one_imager_makes_many_images():
    given = observe(sigma=1.0)
    imager = Imager(given, cell=6e-4, size=64)
    again = biro.image(given, cell=6e-4, size=64)
    np.testing.assert_array_equal(imager.image().dirty, again.dirty)
    np.testing.assert_array_equal(imager.image().dirty, again.dirty)


def test_default_pixels_sample_the_beam_five_times():
    given = observe()
    uvw, waves = given.partitions[0].uvw[:, :2], np.array([1.0e8, 1.2e8]) / c
    longest = np.hypot(*uvw.T).max() * waves[1]
    # 0.7 / longest is the beam of a filled disc; two digits are kept, so up to 10 % below.
    sharp = biro.image(given, weighting="uniform")
    assert 0.9 * 0.705 / 5 / longest <= sharp.cell * (1 + 1e-9) <= 0.705 / 5 / longest * (1 + 1e-9)
    arcsec = sharp.cell * 180 / np.pi * 3600
    assert float(f"{arcsec:.2g}") == pytest.approx(arcsec, rel=1e-9)
    # Natural weights: baselines fill a disc, so that sigma is half of its radius and the beam 0.75 / radius.
    made = biro.image(given)
    radius = 2000.0 * np.sqrt((waves**2).mean())
    assert 0.85 * 0.75 / 5 / radius <= made.cell <= 1.05 * 0.75 / 5 / radius
    assert 4.0 < made.beam.minor / made.cell < 8.0


def test_many_short_baselines_do_not_make_pixels_too_coarse_for_the_longest():
    given = observe()
    part = given.partitions[0]
    uvw = np.where(np.arange(300)[:, None] > 3, 0.01 * part.uvw, part.uvw)
    made = biro.image(dataclasses.replace(given, partitions=(dataclasses.replace(part, uvw=uvw),)))
    longest = np.hypot(*uvw[:, :2].T).max() * 1.2e8 / c
    assert 0.9 * 0.45 / longest <= made.cell <= 0.45 / longest * (1 + 1e-9)


def test_the_default_image_covers_the_field_of_view(caplog):
    given = observe()
    assert biro.image(given).n_pixel == 1024, "nothing says how large the field of view is"
    for dish, wanted in ((300.0, 256), (20.0, 2048)):
        seen = biro.image(dataclasses.replace(given, dish_diameter=np.full(8, dish)))
        # lambda / D at 100 MHz.
        least = min(2048, max(256, 2 * c / 1e8 / dish / seen.cell))
        assert least <= seen.n_pixel <= max(256, 1.4 * least)
        assert seen.n_pixel == wanted
    assert "smaller than the field of view" not in caplog.text
    short = observe(longest=30.0)
    wide = biro.image(dataclasses.replace(short, dish_diameter=np.full(8, 2.0)))
    assert wide.n_pixel * wide.cell < np.sqrt(2), "its corners are above the horizon"
    assert "deg wide) is smaller than the field of view (85.9 deg)" in caplog.text


def test_what_has_no_weight_decides_nothing():
    given = observe(sigma=1.0)
    weight = np.ones(given.partitions[0].weight.shape)
    weight[::7] = 0.0
    far = given.partitions[0].uvw.copy()
    far[::7] *= 1e4
    flagged = dataclasses.replace(given.partitions[0], weight=weight)
    spoiled = dataclasses.replace(flagged, uvw=far)
    images = [biro.image(dataclasses.replace(given, partitions=(part,))) for part in (flagged, spoiled)]
    assert images[0].cell == images[1].cell
    np.testing.assert_array_equal(images[0].dirty, images[1].dirty)


def test_files_have_coordinates_beam_units_and_history(tmp_path):
    given = with_source(observe(), *np.rad2deg(CENTRE).tolist(), I=1.0)
    made = biro.image(given, cell="40 arcsec", size=128, weighting="briggs", robust=0.5)
    paths = made.save(tmp_path / "out")
    assert [path.name for path in paths] == ["out.fits", "out-psf.fits", "out.png"]
    assert (tmp_path / "out.png").stat().st_size > 10_000
    with fits.open(tmp_path / "out.fits") as hdus:
        hdus.verify("exception")
        head, data = hdus[0].header, hdus[0].data
    assert data.shape == (1, 1, 128, 128)
    np.testing.assert_allclose(data[0, 0], made.dirty[0], atol=1e-6)
    assert (head["BUNIT"], head["CTYPE1"], head["CTYPE2"]) == ("Jy/beam", "RA---SIN", "DEC--SIN")
    wcs = WCS(head)
    ra, dec, freq, stokes = wcs.all_pix2world(64, 64, 0, 0, 0)
    assert np.deg2rad([ra, dec]) == pytest.approx(CENTRE, abs=1e-12)
    assert (freq, stokes) == (pytest.approx(1.1e8, rel=0.02), 1.0)
    assert head["CDELT3"] == pytest.approx(0.4e8)  # two channels of 20 MHz width, 20 MHz apart
    assert [head["BMAJ"], head["BMIN"]] == pytest.approx(np.rad2deg([made.beam.major, made.beam.minor]))
    assert "briggs (robust 0.5) weights" in "".join(head["HISTORY"])
    assert fits.getheader(tmp_path / "out-psf.fits").get("BUNIT", "") == ""
    with pytest.raises(BiroError, match=r"out.fits: exists already; .* --overwrite"):
        made.save(tmp_path / "out")
    made.save(tmp_path / "out", overwrite=True)
    with pytest.raises(BiroError, match=r"out\.fits: cannot be written: No such file"):
        made.save(tmp_path / "nowhere" / "out")
    # Read back as a model: 1 Jy/beam over the beam's pixels.
    model = biro.read_image(tmp_path / "out.fits")
    assert model.pixels[0, 0, 64, 64] == pytest.approx(made.cell**2 / made.beam.area, rel=1e-4)


def test_text_and_figures(tmp_path):
    made = biro.image(with_source(observe(), *np.rad2deg(CENTRE).tolist(), I=1.0), cell=2e-4, size=64)
    text = str(made)
    assert "dirty image of the data, Stokes I: 64 x 64 pixels of" in text
    assert "peak          1 Jy/beam at 04h35m01.184s -34d22m38.88s" in text  # 1.2 rad, -0.6 rad
    figures = made.to_dict()
    assert figures["peak"]["value"] == pytest.approx(1.0, abs=1e-3)
    assert figures["beam"]["major"] == made.beam.major
    ax = made.plot().axes[0]
    left, right, bottom, top = ax.images[0].get_extent()
    # East to the left; the middle of pixel 32 is at 0: the image reaches 32.5 cells east and 31.5 west.
    scale = np.rad2deg(2e-4) * 60
    assert [left, right, bottom, top] == pytest.approx(np.array([32.5, -31.5, -32.5, 31.5]) * scale)
    assert "arcmin" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stokes": "W"}, "stokes must be letters of IQUV, .* got 'W'"),
        ({"weighting": "superuniform"}, "weighting must be natural, uniform or briggs"),
        ({"weighting": "briggs", "robust": 3.0}, "robust must lie in -2"),
        ({"robust": 0.0}, "robust is only for weighting briggs, not natural; remove it"),
        ({"cell": 0.01, "size": 64}, r"pixels of 34.4 arcmin are too coarse: .* at most [\d.]+ arcmin"),
        ({"cell": "0.2"}, "cell '0.2' has no unit; write '0.2 arcsec'"),
        (
            {"memory_limit": "20 kB"},
            r"needs [\d.]+ MB, more than the memory limit of 20 kB; an image of \d+ x \d+ pixels is not cut",
        ),
        ({"cell": "3 parsec"}, "cell '3 parsec' is not understood"),
        ({"engine": "fft"}, "engine must be"),
        ({"cell": -1.0}, "cell must be an angle of 1e-15 rad to 1 rad"),
        ({"size": 101}, "size must be an even number"),
        ({"sizes": 100}, "did you mean 'size'"),
        ({"cell": 0.01, "size": 1024}, "horizon"),
        ({"cell": 1e-7, "size": 10_000_000}, r"needs .* GB of memory, .* GB are free"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    with pytest.raises(BiroError, match=message):
        biro.image(observe(), **options)


def test_correlations_that_cannot_give_stokes_parameters():
    for corr, stokes, message in (
        (["XY", "YX"], "pseudoI", "Stokes pseudoI does not follow from XY, YX"),
        (["RR", "LL"], "IQUV", "Stokes IQUV does not follow from RR, LL"),
    ):
        with pytest.raises(BiroError, match=message):
            biro.image(observe(corr), stokes=stokes)
    half = np.ones(observe().partitions[0].weight.shape)
    half[..., 1] = 0.0
    part = dataclasses.replace(observe().partitions[0], weight=half)
    with pytest.raises(BiroError, match="no visibility has all correlations that Stokes IQUV needs"):
        biro.image(dataclasses.replace(observe(), partitions=(part,)), stokes="IQUV")
    with pytest.raises(BiroError, match="what must be data, model or residual"):
        biro.image(observe(), "fit")


@pytest.fixture(scope="module")
def vla(measurement_set):
    return measurement_set("vla_3c273_x")


MODEL = """
[[source]]
name = "core"
east = "0 arcsec"
north = "0 arcsec"
I = "29.9 Jy"
"""


def test_the_command_makes_images_of_data_and_residuals(vla, tmp_path):
    code, out, said = command("image", vla, "-o", tmp_path / "data", "--json")
    assert code == 0, said
    figures = json.loads(out)
    # The core: 29.916 Jy at the phase centre, a little less by what the jet's sidelobes take.
    assert figures["peak"]["value"] == pytest.approx(29.9, abs=0.3)
    assert figures["files"][0] == str(tmp_path / "data.fits")
    (tmp_path / "sky.toml").write_text(MODEL)
    words = (
        "--model",
        tmp_path / "sky.toml",
        "--weighting",
        "briggs",
        "--robust",
        "-0.5",
        "--stokes",
        "IQUV",
    )
    code, out, said = command(
        "image", vla, "-o", tmp_path / "rest", *words, "--cell", "0.3 arcsec", "--size", "256"
    )
    assert code == 0, said
    assert "dirty image of the residual, Stokes IQUV: 256 x 256 pixels of 300 mas" in out
    left = fits.getdata(tmp_path / "rest.fits")
    assert left.shape == (4, 1, 256, 256)
    # The jet is left: 14 arcsec west and 15.5 arcsec south (reference fit), a few Jy.
    y, x = np.unravel_index(left[0, 0].argmax(), (256, 256))
    assert [(128 - x) * 0.3, (y - 128) * 0.3] == pytest.approx([-14.0, -15.6], abs=0.6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--what", "residual"], "an image of the residual needs --model"),
        (["--what", "data", "--model", "sky.toml"], "an image of the data does not use --model"),
        (["--cell", "1 deg"], "too coarse"),
        (["--fields", "3C286"], "3C286"),
        (["-o", "{tmp}/no/where"], "cannot be written"),
    ],
)
def test_errors_of_the_command_are_one_line(vla, tmp_path, words, message):
    words = [word.format(tmp=tmp_path) for word in words]
    code, _, said = command("image", vla, "-o", tmp_path / "image", "--size", "64", *words)
    assert code == 2
    assert said.splitlines()[-1].startswith("biro: ")
    assert message in said.splitlines()[-1]


def test_the_command_does_not_overwrite_unasked(tmp_path):
    (tmp_path / "old.png").write_text("")
    for name in ("old", "old.fits"):
        code, _, said = command("image", "nowhere.ms", "-o", tmp_path / name)
    assert code == 2
    assert "old.png: exists already; choose another name or give --overwrite" in said


def test_keyword_arguments_are_the_fields_of_the_settings() -> None:
    # n_pixel is the earlier name of size, and reads as it does.
    assert (Imaging(size=64).n_pixel, Imaging().n_pixel) == (64, None)
    assert dataclasses.replace(Imaging(size=64), size=32).n_pixel == 32
    assert dataclasses.replace(Imaging(size=64), cell=1e-6).size == 64
    assert get_type_hints(ImagingOptions) == get_type_hints(Imaging) | {"n_pixel": int | None}
