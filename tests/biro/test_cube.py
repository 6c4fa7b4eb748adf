"""Spectral cubes: a line in LSRK where astropy says, frames as casacore has them, weights, flags, files."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
from types import SimpleNamespace
from typing import get_type_hints

import numpy as np
import pytest
from astropy import units
from astropy.coordinates import EarthLocation, SkyCoord, SpectralCoord
from astropy.io import fits
from astropy.time import Time
from astropy.wcs import WCS
from casacore.measures import measures
from scipy.constants import c
from test_cli import biro as command

import biro
from biro.distributed import in_order
from biro.errors import BiroError
from biro.imaging.cubes.axis import Planes
from biro.imaging.cubes.cube import CubeOptions
from biro.imaging.imager import Imager, Imaging
from biro.observation.feeds.doppler import doppler_factors
from biro.observation.observation import Observation
from rime_kernels import device
from rime_kernels.engine.device_threads import Devices, DeviceThread

VLA = np.array([-1601185.4, -5041977.5, 3554875.9])
CENTRE = (1.4628, -0.0942)  # Orion
REST = 1.42040575e9
STEP = -5e3  # Hz, 1.06 km/s; descending, as some receivers have it
OPTIONS = {"cell": "10 arcsec", "size": 64}
NIGHT = 5e9 + np.arange(0.0, 8.0, 2.0) * 3600.0  # April 2017
N_BASELINE = 60
AWAY = 10 * np.deg2rad(10 / 3600)  # ten pixels to the east

pytestmark = pytest.mark.filterwarnings(
    "ignore::astropy.coordinates.spectral_coordinate.NoVelocityWarning",
    "ignore::astropy.wcs.FITSFixedWarning",
)


def lsrk_over_topo(time):
    """Frequencies in LSRK over those at the telescope, by astropy."""
    place = EarthLocation.from_geocentric(*VLA, unit="m")
    still = {"distance": 1e6 * units.kpc, "radial_velocity": 0 * units.km / units.s}
    still |= {"pm_ra_cosdec": 0 * units.mas / units.yr, "pm_dec": 0 * units.mas / units.yr}
    target = SkyCoord(*(CENTRE * units.rad), **still)
    factors = []
    for moment in Time(time / 86400.0, format="mjd", scale="utc"):
        seen = SpectralCoord(1.0, units.Hz, observer=place.get_itrs(moment), target=target)
        factors.append(seen.with_observer_stationary_relative_to("lsrk").value)
    return np.array(factors)


def observe(time=NIGHT, *, flux=None, n_chan=64, step=STEP, sigma=0.0, corr=("I",), **options):
    """A source ten pixels to the east whose flux depends on the frequency in LSRK; 60 baselines at each time.

    The middle channel is at rest in LSRK at the first time.
    """
    rng = np.random.default_rng(1)
    n_row, n_corr = N_BASELINE * len(time), len(corr)
    uvw = np.column_stack([rng.uniform(-900, 900, (n_row, 2)), rng.uniform(-300, 300, n_row)])
    factor = lsrk_over_topo(time)
    freq = REST / factor[0] + step * (np.arange(n_chan) - n_chan // 2)
    vis = np.zeros((n_row, n_chan, n_corr), complex)
    if flux is not None:
        path = uvw[:, :1] * AWAY + uvw[:, 2:] * (np.sqrt(1 - AWAY**2) - 1)
        received = flux(np.repeat(factor, N_BASELINE)[:, None] * freq)
        vis += (received * np.exp(2j * np.pi * path * freq / c))[..., None]
    vis += sigma * (rng.standard_normal(vis.shape) + 1j * rng.standard_normal(vis.shape))
    antennas = 1 + np.arange(N_BASELINE)
    return Observation.from_arrays(
        vis, uvw, np.zeros(n_row, int), np.tile(antennas, len(time)), np.repeat(time, N_BASELINE), freq, corr,
        phase_centre=CENTRE, chan_width=np.full(n_chan, abs(step)),
        antenna_positions=VLA + rng.uniform(-1.0, 1.0, (N_BASELINE + 1, 3)), **options,
    )  # fmt: skip


def changed(observation, **arrays):
    """The same with other arrays of its partition."""
    part = dataclasses.replace(observation.partitions[0], **arrays)
    return dataclasses.replace(observation, partitions=(part,))


def channels_of(observation, chosen):
    """The same with some of the channels."""
    part = observation.partitions[0]
    arrays = {"chan_freq": part.chan_freq[chosen], "chan_width": part.chan_width[chosen]}
    return changed(observation, **arrays, vis=part.vis[:, chosen], weight=part.weight[:, chosen])


def line(velocity):
    """2 Jy at a radio velocity, m/s, and a Gaussian about it with a standard deviation of five channels."""
    return lambda freq: 2.0 * np.exp(-0.5 * ((c * (1 - freq / REST) - velocity) / 5278.0) ** 2)


@pytest.mark.parametrize(
    ("axis", "time"), [("frequency", np.append(NIGHT[:2], NIGHT[:2] + 1.8e6)), ("velocity", NIGHT)]
)
def test_a_line_is_where_astropy_says_with_its_flux(tmp_path, axis, time):
    """In one night the line drifts by half a channel; in two, three weeks apart, by ten."""
    flux = line(1234.0)
    cube = biro.image(observe(time, flux=flux), cube=True, frame="LSRK", axis=axis, rest_freq=REST, **OPTIONS)
    cube.save(tmp_path / "line")
    with fits.open(tmp_path / "line.fits") as hdus:
        header, spectrum = hdus[0].header, hdus[0].data[:, 0, 32, 22].astype(float)
    assert (header["SPECSYS"], header["VELREF"], header["RESTFRQ"]) == ("LSRK", 257, REST)
    n, nothing = np.arange(len(spectrum)), np.zeros(len(spectrum))
    world = WCS(header).all_pix2world(nothing + 22, nothing + 32, nothing, n, 0)[3]
    velocity = world if axis == "velocity" else c * (1 - world / REST)
    np.testing.assert_allclose(velocity, cube.layout.axis.velocity, atol=1e-3)
    # astropy and casacore differ by 0.2 m/s, and gridding errs by 1e-4 of the flux.
    assert (spectrum * velocity).sum() / spectrum.sum() == pytest.approx(1234.0, abs=1.0)
    # Linear interpolation between channels lowers the peak by up to (1/5)^2/8 = 0.5 %.
    np.testing.assert_allclose(spectrum, flux(REST * (1 - velocity / c)), atol=0.006 * 2.0)
    assert spectrum.sum() == pytest.approx(flux(REST * (1 - velocity / c)).sum(), rel=1e-3)


@pytest.mark.parametrize("frame", ["GEO", "BARY", "LSRK"])
def test_frames_are_those_of_casacore(frame):
    time, direction = 86400.0 * np.array([45000.2, 55555.7, 60000.9]), (3.5, -0.75)
    found = 1.4e9 * doppler_factors(time, direction, VLA, "TOPO", frame)
    for moment, freq in zip(time, found, strict=True):
        tool = measures()
        tool.do_frame(tool.position("ITRF", *(f"{x} m" for x in VLA)))
        tool.do_frame(tool.epoch("UTC", f"{moment} s"))
        tool.do_frame(tool.direction("ICRS", *(f"{angle} rad" for angle in direction)))
        expected = tool.measure(tool.frequency("TOPO", "1.4e9 Hz"), frame)["m0"]["value"]
        # Velocities of the Earth differ by 0.2 m/s between casacore and astropy.
        assert (freq / expected - 1) * c == pytest.approx(0.0, abs=0.4)
    there = doppler_factors(time, direction, VLA, "TOPO", frame)
    back = doppler_factors(time, direction, VLA, frame, "TOPO")
    np.testing.assert_allclose(there * back, 1.0, rtol=1e-15)


@pytest.mark.parametrize("weighting", ["natural", "briggs"])
def test_a_plane_is_the_image_of_its_channels(weighting):
    given = observe(sigma=1.0, n_chan=7, corr=("XX", "XY", "YX", "YY"))
    options = {**OPTIONS, "weighting": weighting, "stokes": "IQUV"}
    cube = biro.image(given, cube=True, channels_per_plane=2, **options)
    assert cube.layout.axis.n_plane == 3
    # Channels are stored in descending order: plane 1 has the third and fourth from the end.
    plane, expected = cube.plane(1), biro.image(channels_of(given, [3, 4]), **options)
    np.testing.assert_allclose(plane.dirty, expected.dirty, atol=1e-4 * expected.dirty.max())
    assert plane.noise == pytest.approx(expected.noise)
    assert plane.freq == pytest.approx(expected.freq, rel=1e-12)
    assert plane.bandwidth == pytest.approx(2 * abs(STEP))


def test_weights_may_follow_from_the_density_of_the_whole_cube():
    """W / w = 1 / (sum of weights in the cell), and the noise is sqrt(sum W^2 / w) / sum W."""
    given = observe(n_chan=5, step=-5e6)
    part, field = given.partitions[0], 64 * np.deg2rad(10 / 3600)
    cells = np.rint(part.uvw[:, None, :2] * part.chan_freq[:, None] / c * field).astype(int)
    sign = np.where((cells[..., 1] < 0) | ((cells[..., 1] == 0) & (cells[..., 0] < 0)), -1, 1)
    _, where, count = np.unique(
        (cells * sign[..., None]).reshape(-1, 2), axis=0, return_inverse=True, return_counts=True
    )
    weight = 1.0 / count[where].reshape(part.n_row, 5)
    cube = biro.image(given, cube=True, weighting="uniform", density="cube", **OPTIONS)
    expected = np.sqrt((weight**2).sum(axis=0)) / weight.sum(axis=0)
    noise = [cube.plane(i).noise for i in range(5)]
    np.testing.assert_allclose(noise, expected[::-1], rtol=1e-9)


def test_noise_of_interpolated_planes_is_as_counted():
    given = observe(sigma=1.0)
    cube = biro.image(given, cube=True, frame="LSRK", **OPTIONS)
    planes = [cube.plane(i) for i in range(20, 40)]
    # Each image has some 400 independent beams: 20 of them give rms to 1 / sqrt(2 x 20 x 400) = 0.8 %, 1.1 %
    # where neighbours share noise; this is three times that.
    scatter = np.mean([plane.dirty.std() / plane.noise for plane in planes])
    assert scatter == pytest.approx(1.0, abs=0.04)
    # Of the mean (1 - a) V_k + a V_k+1 of unit noise the variance is (1 - a)^2 + a^2.
    freq = np.array([plane.freq for plane in planes])
    a = (freq[:, None] / lsrk_over_topo(NIGHT) - given.partitions[0].chan_freq.min()) / abs(STEP) % 1.0
    weight = N_BASELINE / ((1 - a) ** 2 + a**2)
    # Velocities agree to 0.2 m/s of 1056 m/s, of which the noise is the square root of a parabola.
    np.testing.assert_allclose([plane.noise for plane in planes], weight.sum(axis=1) ** -0.5, rtol=2e-4)


def test_flags_make_blank_planes_and_are_counted(tmp_path):
    given = observe(flux=line(0.0), n_chan=16)
    weight = given.partitions[0].weight.copy()
    weight[:, 4:7] = 0.0
    weight[: N_BASELINE // 2, 10] = 0.0
    given = changed(given, weight=weight)
    saved = biro.image(given, cube=True, **OPTIONS).save(tmp_path / "own")
    counts = [plane.n_vis for plane in saved.planes]
    n_row = N_BASELINE * len(NIGHT)
    assert counts[::-1] == [n_row] * 4 + [0] * 3 + [n_row] * 3 + [n_row - N_BASELINE // 2] + [n_row] * 5
    assert (saved.n_blank, saved.n_without_beam, vars(saved.unused)) == (
        3,
        0,
        {"outside": 0, "beside_gap": 0},
    )
    data = fits.getdata(tmp_path / "own.fits")
    assert np.isnan(data).all(axis=(1, 2, 3)).tolist() == [n == 0 for n in counts]
    assert np.isnan(fits.getdata(tmp_path / "own-psf.fits")).all(axis=(1, 2, 3)).sum() == 3
    assert "blank planes  3 of 16" in str(saved)


def test_channels_with_no_neighbour_are_counted(tmp_path):
    """Each second channel is flagged: there is nothing to interpolate with, but at the first time."""
    given = observe(n_chan=17)
    weight = given.partitions[0].weight.copy()
    weight[:, 1::2] = 0.0
    cube = biro.image(changed(given, weight=weight), cube=True, frame="LSRK", **OPTIONS)
    unused = cube.save(tmp_path / "gaps").unused
    # Of three later times, those of an outermost channel that drifts out of the cube are outside.
    assert unused.outside + unused.beside_gap == 9 * N_BASELINE * 3
    assert unused.outside == N_BASELINE * 3


def test_nothing_is_interpolated_across_missing_channels():
    """Channels 6 to 9 are not there. After the first time, planes lie between a channel and the next."""
    given = channels_of(observe(n_chan=16), [*range(6), *range(10, 16)])
    cube = biro.image(given, cube=True, frame="LSRK", **OPTIONS)
    counts = [0 if (plane := cube.plane(i)) is None else plane.n_vis for i in range(16)]
    first, all_times = N_BASELINE, N_BASELINE * (1 + 2 * 3)
    assert counts == [*[all_times] * 5, first, 0, 0, 0, 0, *[all_times] * 5, first]


def test_windows_share_a_cube_with_blank_planes_between_them():
    first, second = (observe(n_chan=4, flux=lambda freq: 1.0 + 0 * freq) for _ in range(2))
    part = second.partitions[0]
    moved = dataclasses.replace(
        part, spw="1", spw_id=1, data_desc_id=1, chan_freq=part.chan_freq + 6 * abs(STEP)
    )
    both = dataclasses.replace(first, partitions=(first.partitions[0], moved))
    cube = biro.image(both, cube=True, **OPTIONS)
    seen = [cube.plane(i) for i in range(cube.layout.axis.n_plane)]
    assert [plane is None for plane in seen] == [False] * 4 + [True] * 2 + [False] * 4
    assert seen[0].peak.value == pytest.approx(1.0, abs=1e-3)


def test_devices_share_planes_and_write_the_same_bits(tmp_path, monkeypatch):
    """Of 1, 2 and 3 threads of pretended devices; blank planes, and stages of all planes."""
    monkeypatch.setattr(device, "select", lambda _: None)
    monkeypatch.setattr(in_order, "threads_of", lambda _, n: [DeviceThread(i, "CPU") for i in range(n)])
    made_by, made = [], Imager.image

    def image(self, *arguments):
        made_by.append(threading.current_thread().name)
        return made(self, *arguments)

    monkeypatch.setattr(Imager, "image", image)
    given = observe(sigma=1.0, n_chan=7)
    part = given.partitions[0]
    weight = part.weight.copy()
    weight[:, 2] = 0.0
    given = dataclasses.replace(given, partitions=(dataclasses.replace(part, weight=weight),))
    plain = biro.image(given, cube=True, **OPTIONS).save(tmp_path / "plain")
    assert len(set(made_by)) == 1
    for n in (1, 2, 3):
        made_by.clear()
        saved = biro.image(given, cube=True, devices=n, **OPTIONS).save(tmp_path / f"by{n}")
        # Planes in turn, of which the third from the end is blank.
        assert len(set(made_by)) == n
        assert len(made_by) == 6
        for name in ("{}.fits", "{}-psf.fits"):
            one, other = (fits.getdata(tmp_path / name.format(prefix)) for prefix in ("plain", f"by{n}"))
            np.testing.assert_array_equal(one, other)
        ours, theirs = saved.stages.to_dict(), plain.stages.to_dict()
        assert {key: stage["amount"] for key, stage in ours.items()} == {
            key: stage["amount"] for key, stage in theirs.items()
        }


def test_a_device_that_fails_ends_the_cube(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "select", lambda _: None)
    monkeypatch.setattr(in_order, "threads_of", lambda _, n: [DeviceThread(i, "CPU") for i in range(n)])

    def lost(*_):
        raise biro.errors.BackendError("the device is lost")

    monkeypatch.setattr(Imager, "image", lost)
    with pytest.raises(biro.errors.BackendError, match="the device is lost"):
        biro.image(observe(), cube=True, devices=2, **OPTIONS).save(tmp_path / "cube")
    assert not list(tmp_path.glob("*.fits"))


def test_devices_that_are_none_are_refused():
    for devices in (0, "some", [0, 0]):
        with pytest.raises(BiroError, match="devices must be"):
            biro.image(observe(), cube=True, devices=devices, **OPTIONS)
    with pytest.raises(BiroError, match="are GPUs: they need"):
        biro.image(observe(), cube=True, devices=2, backend="cpu", **OPTIONS)
    with pytest.raises(BiroError, match="devices"):
        biro.image(observe(), devices=2, **OPTIONS)


def test_the_file_has_axes_beams_and_units_as_casa_writes_them(tmp_path):
    given = observe(flux=lambda freq: 1.0 + 0 * freq, n_chan=8, corr=("RR", "RL", "LR", "LL"))
    saved = biro.image(given, cube=True, stokes="IQUV", **OPTIONS).save(tmp_path / "cube.fits")
    assert [path.name for path in saved.files] == ["cube.fits", "cube-psf.fits"]
    with fits.open(tmp_path / "cube.fits") as hdus:
        hdus.verify("exception")
        header, data, beams = hdus[0].header, hdus[0].data, hdus["BEAMS"]
        table, units_of = beams.data.copy(), beams.columns.units
        assert (beams.header["NCHAN"], beams.header["NPOL"]) == (8, 4)
    assert data.shape == (8, 4, 64, 64)
    assert [header[f"CTYPE{i}"] for i in (1, 2, 3, 4)] == ["RA---SIN", "DEC--SIN", "STOKES", "FREQ"]
    assert (header["BUNIT"], header["CASAMBM"], header["SPECSYS"]) == ("Jy/beam", True, "TOPOCENT")
    assert "RESTFRQ" not in header
    assert [header[f"OBSGEO-{x}"] for x in "XYZ"] == pytest.approx(VLA, abs=1.0)
    wcs = WCS(header)
    place = wcs.pixel_to_world_values(32, 32, 0, 3)
    assert place == pytest.approx([*np.rad2deg(CENTRE), 1.0, np.sort(given.partitions[0].chan_freq)[3]])
    assert units_of[:3] == ["arcsec", "arcsec", "deg"]
    np.testing.assert_array_equal(table["CHAN"], np.repeat(np.arange(8), 4))
    np.testing.assert_array_equal(table["POL"], np.tile(np.arange(4), 8))
    beam = saved.planes[5].beam
    assert np.deg2rad(table["BMAJ"][20] / 3600) == pytest.approx(beam.major, rel=1e-6)  # float32
    assert table["BPA"][20] == pytest.approx(np.rad2deg(beam.pa), rel=1e-6)
    psf = fits.getdata(tmp_path / "cube-psf.fits")
    np.testing.assert_allclose(psf[:, 0, 32, 32], 1.0, atol=1e-3)  # accuracy of the gridder, 1e-4
    # Read back as a model: 1 Jy/beam over the beam's pixels.
    model = biro.read_image(tmp_path / "cube.fits")
    per_pixel = model.cell**2 / np.array([plane.beam.area for plane in saved.planes])
    np.testing.assert_allclose(model.pixels[0, :, 32, 22], per_pixel, rtol=1e-3)


def test_a_cube_is_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    cube = biro.image(observe(n_chan=4), cube=True, **OPTIONS)
    visibilities = cube._visibilities

    def interrupted(i):
        if i == 2:
            raise KeyboardInterrupt
        return visibilities(i)

    monkeypatch.setattr(cube, "_visibilities", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cube.save(tmp_path / "cube")
    assert not [*tmp_path.iterdir()]
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(BiroError, match=r"needs .* GB on the disk, 0 GB are free"):
        cube.save(tmp_path / "cube")
    monkeypatch.undo()
    with pytest.raises(BiroError, match=r"cube.fits: cannot be written"):
        cube.save(tmp_path / "no" / "where" / "cube")
    cube.save(tmp_path / "cube")
    with pytest.raises(BiroError, match=r"cube.fits: exists already; .* --overwrite"):
        cube.save(tmp_path / "cube")
    cube.save(tmp_path / "cube", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cube-psf.fits", "cube.fits"]


def test_model_and_residual_planes():
    given = observe(flux=line(0.0), n_chan=4)
    model = [0.25 * given.partitions[0].vis]
    peaks = {
        what: biro.image(given, what, model=model, cube=True, frame="LSRK", **OPTIONS).plane(1).peak.value
        for what in ("data", "model", "residual")
    }
    assert peaks["model"] == pytest.approx(0.25 * peaks["data"], rel=1e-3)
    assert peaks["residual"] == pytest.approx(0.75 * peaks["data"], rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frame": "LSRD"}, "frame must be TOPO, GEO, BARY or LSRK, got 'LSRD'"),
        ({"channels_per_plane": 0}, "channels_per_plane must be an integer of 1 or more, got 0"),
        ({"channels_per_plane": 65}, "a plane of 65 channels is too large, because the data have 64"),
        ({"axis": "wavelength"}, "axis must be frequency or velocity, got 'wavelength'"),
        ({"axis": "velocity"}, r"a velocity axis needs the rest frequency of the line \(rest_freq="),
        (
            {"rest_freq": "21 cm"},
            "rest_freq '21 cm' is not understood; write a number with a unit such as Hz",
        ),
        ({"rest_freq": -1.0}, "rest_freq must be a frequency above 0 Hz, got -1.0"),
        ({"density": "all"}, "density must be plane or cube, got 'all'"),
        ({"frames": "LSRK"}, "image has no argument 'frames'; did you mean 'frame'"),
        ({"cell": 0.01}, "pixels of 34.4 arcmin are too coarse"),
        ({"robust": 3.0, "weighting": "briggs"}, "robust must lie in -2"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    with pytest.raises(BiroError, match=message):
        biro.image(observe(), cube=True, **{**OPTIONS, **options})


def test_frames_that_cannot_be_reached_are_refused():
    given = observe()
    part = given.partitions[0]
    for other, message in (
        (changed(given, freq_frame="REST"), "cannot convert the frequencies of spw .* from REST to LSRK"),
        (channels_of(given, [3]), "has one channel"),
        (
            dataclasses.replace(given, antenna_positions=np.zeros((61, 3))),
            "need ITRF positions of the antennas",
        ),
        (changed(given, time=part.time - 5e9), "need times between 1900 and 2100"),
    ):
        with pytest.raises(BiroError, match=message):
            biro.image(other, cube=True, frame="LSRK", **OPTIONS)
    # In its own frame, whatever that is, nothing needs to be known of it.
    assert biro.image(changed(given, freq_frame="REST"), cube=True, **OPTIONS).layout.axis.frame == "REST"


def test_channels_of_one_frequency_are_refused():
    with pytest.raises(BiroError, match="has two channels at the same frequency"):
        biro.image(channels_of(observe(), [1, 2, 2]), cube=True, **OPTIONS)


def test_windows_that_share_no_axis_are_refused():
    given = observe(n_chan=4)
    part = given.partitions[0]
    other = {"spw": "1", "spw_id": 1, "data_desc_id": 1}
    for change, message in (
        (
            {"chan_freq": part.chan_freq[0] - 2 * STEP * np.arange(4)},
            r"differs between spectral windows \(.*: 5 kHz, 1: 10 kHz\)",
        ),
        ({"chan_freq": part.chan_freq + 1e6}, "the cube would have 204 planes, most of them blank"),
    ):
        parts = (part, dataclasses.replace(part, **other, **change))
        with pytest.raises(BiroError, match=message):
            biro.image(dataclasses.replace(given, partitions=parts), cube=True, **OPTIONS)


def test_the_command_makes_cubes_and_says_what_each_stage_took(measurement_set, tmp_path):
    wsrt = measurement_set("wsrt_3c343.1_tNDPPP_tmp")
    words = (
        "--cube",
        "--frame",
        "LSRK",
        "--channels-per-plane",
        "4",
        "--rest-freq",
        "1.42040575 GHz",
        "--size",
        "64",
    )
    code, out, said = command("image", wsrt, "-o", tmp_path / "cube", *words, "--axis", "velocity", "--json")
    assert code == 0, said
    figures = json.loads(out)
    assert (figures["frame"], len(figures["planes"]), figures["n_blank"]) == ("LSRK", 4, 0)
    # 3C343.1 in the middle, 2.92 Jy, and what the sidelobes of 3C343 add.
    assert [plane["peak"]["value"] for plane in figures["planes"]] == pytest.approx([2.9] * 4, abs=0.3)
    stages = figures["stages"]
    assert [*stages] == ["reading", "sorting", "gridding", "transform", "writing"]
    assert (stages["reading"]["amount"], stages["writing"]["amount"]) == (108 * 16, 4 * 4 * 2 * 64**2)
    assert all(stage["per_second"] == stage["amount"] / stage["seconds"] for stage in stages.values())
    header = fits.getheader(tmp_path / "cube.fits")
    assert (header["CTYPE4"], header["CUNIT4"]) == ("VRAD", "m/s")
    code, _, said = command("image", wsrt, "-o", tmp_path / "image", "--frame", "LSRK")
    assert (code, said.splitlines()[-1]) == (2, "biro: --frame: for spectral cubes only; add --cube")


def test_keyword_arguments_are_the_fields_of_the_settings() -> None:
    expected = get_type_hints(Imaging) | get_type_hints(Planes) | {"devices": Devices | None}
    expected["n_pixel"] = int | None  # the earlier name of size
    assert get_type_hints(CubeOptions) == expected
