"""Beams by formula, by Zernike polynomials, by functions and by everybeam, against closed forms."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from astropy.io import fits
from scipy.special import j1

import biro
from biro.beams.dish import ACCURACY, dish_extent, dish_function
from biro.beams.loading import beam_of
from biro.beams.sampled import sample_antenna_beams, sample_beam
from biro.beams.zernike import noll, osa, read_zernike, zernike
from biro.errors import InputError
from biro.models import (
    DishBeam,
    EveryBeam,
    FitsBeam,
    FunctionBeam,
    ModelError,
    PointSource,
    SkyModel,
    Uniform,
    ZernikeBeam,
)
from biro.models.components.antenna_terms.feeds import Feeds
from biro.models.files.toml import from_toml
from biro.simulation.prediction import predict

C = 299792458.0
DEG = np.pi / 180.0
FREQ = np.array([1.0e9, 1.4e9])


@pytest.fixture(scope="module")
def observation(measurement_set) -> biro.Observation:
    return biro.read_ms(measurement_set("sim_7_lin"))


def sampled(beam: DishBeam):
    return sample_beam(dish_function(beam), FREQ, dish_extent(beam, FREQ[0]), accuracy=ACCURACY[beam.pattern])


def places(reach: float) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.random.default_rng(5).uniform(-reach, reach, (2, 40)))


# ---- dishes


def test_ellipses_of_two_widths_with_squint() -> None:
    beam = DishBeam(
        fwhm={"x": "1 deg", "y": "0.9 deg"}, ref_freq="1.2 GHz", ratio={"x": 0.8, "y": 1.1},
        pa={"x": "30 deg", "y": "-50 deg"}, squint="6 arcmin", squint_pa="70 deg",
    )  # fmt: skip
    cube, (x, y) = sampled(beam), places(1.0 * DEG)
    for freq in FREQ:
        found = cube(x, y, freq)
        for i, (sign, fwhm, ratio, pa) in enumerate([(1, 1.0, 0.8, 30.0), (-1, 0.9, 1.1, -50.0)]):
            moved = sign * 0.05 * DEG * 1.2e9 / freq
            dx, dy = x - moved * math.sin(70 * DEG), y - moved * math.cos(70 * DEG)
            a = dx * math.sin(pa * DEG) + dy * math.cos(pa * DEG)
            b = dx * math.cos(pa * DEG) - dy * math.sin(pa * DEG)
            # Power is half at fwhm / 2 along pa, and at ratio fwhm / 2 across it.
            square = (a**2 + (b / ratio) ** 2) * (freq / (fwhm * DEG * 1.2e9)) ** 2
            # The accuracy that grids have by default.
            np.testing.assert_allclose(found[..., i, i], np.exp(-2 * math.log(2) * square), atol=1e-6)
        assert not found[..., 0, 1].any()
        assert not found[..., 1, 0].any()


def test_airy_and_cos3_patterns() -> None:
    x, y = places(0.5 * DEG)
    r = np.hypot(x, y)
    z = math.pi * 25.0 * FREQ[1] * r / C
    found = sampled(DishBeam(pattern="airy", diameter="25 m"))(x, y, FREQ[1])
    np.testing.assert_allclose(found[..., 0, 0], 2 * j1(z) / z, atol=1e-6)
    held = np.cos(np.minimum(65e-9 * FREQ[1] * r, 1.0881)) ** 3
    # The kink where it is held: the slope jumps by 0.57 for each unit of the argument.
    np.testing.assert_allclose(
        sampled(DishBeam(pattern="cos3", extent="0.6 deg"))(x, y, FREQ[1])[..., 1, 1], held, atol=2e-3
    )


@pytest.mark.parametrize("basis", ["linear", "circular"])
def test_a_dish_in_a_model_file(observation, basis) -> None:
    """A source of 2 Jy through two widths: XX and YY are I times the power of each feed."""
    one, other = ("x", "y") if basis == "linear" else ("r", "l")
    model = from_toml(f"""
[[source]]
name = "s"
east = "20 arcmin"
north = "-10 arcmin"
I = "2 Jy"
[beam]
kind = "dish"
fwhm = {{ {one} = "1 deg", {other} = "40 arcmin" }}
ref_freq = "1.4 GHz"
turns = false
[feeds]
rotation = "none"
""")
    assert from_toml(model.to_toml()) == model
    if basis == "circular":
        with pytest.raises(ModelError, match=r"numbers of circular feeds, but partition .* has linear"):
            next(iter(predict(observation, model, backend="cpu")))
        return
    part = observation.partitions[0]
    found = next(iter(predict(observation, model, precision="double", backend="cpu", smearing="off")))
    l, m = 20 / 60 * DEG, -10 / 60 * DEG
    turns = part.rows.uvw @ [l, m, math.sqrt(1 - l * l - m * m) - 1]
    expected = np.zeros(found.shape, complex)
    for c, nu in enumerate(part.chan_freq):
        for k, fwhm in ((0, 1.0), (3, 2 / 3)):
            power = np.exp(-4 * math.log(2) * (l * l + m * m) * (nu / (fwhm * DEG * 1.4e9)) ** 2)
            expected[:, c, k] = 2.0 * power * np.exp(2j * np.pi * turns * nu / C)
    np.testing.assert_allclose(found, expected, atol=1e-5)  # twice the error of E, times 2 Jy


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fwhm": "1 deg"}, "ref_freq: is missing"),
        ({"pattern": "airy"}, "diameter: pattern 'airy' needs diameter for its width; found none"),
        ({"pattern": "airy", "diameter": "25 m", "fwhm": "1 deg"}, "found fwhm and diameter"),
        ({"pattern": "gauss"}, "pattern: one of cos3, gaussian, airy, found 'gauss'"),
        ({"fwhm": Uniform("1 deg", "2 deg"), "ref_freq": "1 GHz"}, "only the width of this beam can be"),
        ({"fwhm": {"x": "1 deg"}, "ref_freq": "1 GHz"}, "numbers by feed are for x and y, or for r"),
        ({"fwhm": {"z": "1 deg"}, "ref_freq": "1 GHz"}, "unknown feed 'z'"),
        ({"fwhm": "1 deg", "ref_freq": "1 GHz", "ratio": 0.0}, "must be positive"),
    ],
)  # fmt: skip
def test_a_dish_that_cannot_be(given, message) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        DishBeam(**given)
    assert "\n" not in str(caught.value)


# ---- Zernike polynomials


def test_indices_and_polynomials() -> None:
    """The tables of Noll (1976) and of ANSI Z80.28, and closed forms of some."""
    of_noll = [(0, 0), (1, 1), (1, -1), (2, 0), (2, -2), (2, 2), (3, -1), (3, 1), (3, -3), (3, 3), (4, 0)]
    of_noll += [(4, 2), (4, -2), (4, 4), (4, -4), (5, 1), (5, -1), (5, 3), (5, -3), (5, 5), (5, -5), (6, 0)]
    assert [noll(j + 1) for j in range(22)] == of_noll
    of_osa = [(0, 0), (1, -1), (1, 1), (2, -2), (2, 0), (2, 2), (3, -3), (3, -1), (3, 1), (3, 3), (4, -4)]
    assert [osa(j) for j in range(11)] == of_osa
    x, y = places(0.7)
    rho, theta = np.hypot(x, y), np.arctan2(y, x)
    z = zernike("noll", 11, x, y)
    np.testing.assert_allclose(z[3], math.sqrt(3) * (2 * rho**2 - 1), atol=1e-14)
    np.testing.assert_allclose(z[6], math.sqrt(8) * (3 * rho**3 - 2 * rho) * np.sin(theta), atol=1e-14)
    np.testing.assert_allclose(z[10], math.sqrt(5) * (6 * rho**4 - 6 * rho**2 + 1), atol=1e-13)


@pytest.mark.parametrize("index", ["noll", "osa"])
def test_polynomials_are_orthonormal_in_the_disc(index) -> None:
    """By quadrature that is exact: Gauss in rho^2, and a circle."""
    node, weight = np.polynomial.legendre.leggauss(20)
    rho, theta = np.sqrt((node + 1) / 2), np.arange(40) * 2 * np.pi / 40
    z = zernike(index, 36, rho[:, None] * np.cos(theta), rho[:, None] * np.sin(theta))
    found = np.einsum("irt,jrt,r->ij", z, z, weight / 2 / 40)
    np.testing.assert_allclose(found, np.eye(36), atol=1e-12)


TOML = """
index = "noll"
radius = "2 deg"
[[plane]]
freq = "1.4 GHz"
xx = { real = [0.9, 0.02, 0.0, -0.3], imag = [0.0, 0.1] }
yy = { real = [0.8] }
[[plane]]
freq = "1.0 GHz"
xx = { real = [1.0, 0.0, 0.0, -0.2] }
xy = { imag = [0.0, 0.0, 0.05] }
"""


def test_a_file_of_coefficients(tmp_path) -> None:
    (tmp_path / "beam.toml").write_text(TOML)
    rows = [(1.4e9, "XX", 1, 0.9, 0), (1.4e9, "XX", 2, 0.02, 0.1), (1.4e9, "XX", 4, -0.3, 0)]
    rows += [(1.4e9, "YY", 1, 0.8, 0), (1e9, "XX", 1, 1, 0), (1e9, "XX", 4, -0.2, 0), (1e9, "XY", 3, 0, 0.05)]
    formats = {"FREQ": "D", "ELEMENT": "2A", "INDEX": "J", "REAL": "D", "IMAG": "D"}
    columns = [
        fits.Column(name, form, array=list(values))
        for (name, form), values in zip(formats.items(), zip(*rows, strict=True), strict=True)
    ]
    table = fits.BinTableHDU.from_columns(columns)
    table.header["ZINDEX"], table.header["ZRADIUS"] = "NOLL", 2.0
    table.writeto(tmp_path / "beam.fits")
    x, y = places(1.4 * DEG)
    rho2, u, v = (x * x + y * y) / (2 * DEG) ** 2, x / (2 * DEG), y / (2 * DEG)
    for name in ("beam.toml", "beam.fits"):
        cube = read_zernike(tmp_path / name)
        assert cube.direction_error < 1e-6
        high, low = cube(x, y, 1.4e9), cube(x, y, 1.0e9)
        z4 = math.sqrt(3) * (2 * rho2 - 1)
        np.testing.assert_allclose(high[..., 0, 0], 0.9 + (0.02 + 0.1j) * 2 * u - 0.3 * z4, atol=1e-6)
        np.testing.assert_allclose(high[..., 1, 1], 0.8, atol=1e-6)
        np.testing.assert_allclose(low[..., 0, 0], 1 - 0.2 * z4, atol=1e-6)
        np.testing.assert_allclose(low[..., 0, 1], 0.05j * 2 * v, atol=1e-6)
    found = beam_of(one_source(ZernikeBeam(file=tmp_path / "beam.toml")), [])
    np.testing.assert_array_equal(found.jones, read_zernike(tmp_path / "beam.toml").jones)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('index = "noll"\n', "", r'index: "noll" \(from 1\) or "osa" \(from 0\) must be stated'),
        ('"2 deg"', '"2 Hz"', "radius: "),
        ("yy =", "y =", "elements must be of xx, xy, yx, yy or of rr, rl, lr, ll, found xx, xy, y"),
        ("[0.8]", '["a"]', "yy.real: expected a list of at most 1000 finite numbers"),
        ("[0.8]", "[nan]", "yy.real: expected a list"),
        ("freq = ", "frequency = ", "freq"),
        ("[[plane]]", "[[other]]", "unknown key 'other'"),
    ],
)
def test_a_bad_file_of_coefficients(tmp_path, old, new, message) -> None:
    (tmp_path / "beam.toml").write_text(TOML.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        read_zernike(tmp_path / "beam.toml")
    assert "\n" not in str(caught.value)
    assert "beam.toml" in str(caught.value)


# ---- functions


def one_source(beam) -> SkyModel:
    return SkyModel(
        [PointSource("s", east="0.004 rad", north="-0.006 rad", I="2 Jy")],
        beam=beam,
        feeds=Feeds(rotation="none"),
    )


def voltages(antenna: str, time: float) -> tuple[complex, complex]:
    number = int(antenna[-1]) % 3
    return 1.0 + 0.1 * number, 0.5 - 0.2j * number + 1e-4 * (time % 1000.0)


def of_antenna(x, y, freq, antenna, time):
    found = np.zeros((*x.shape, 2, 2), complex)
    found[..., 0, 0], found[..., 1, 1] = voltages(antenna, time)
    found[..., 0, 0] *= 1.0 - 10.0 * x
    return found


def test_a_function_of_antenna_and_time(observation) -> None:
    """E_p of three classes of antennas, of another value at each time."""
    part, view = observation.partitions[0], observation.partition_views[0]
    model = one_source(FunctionBeam(function=of_antenna, extent="1 deg", turns=False))
    found = next(iter(predict(observation, model, precision="double", backend="cpu", smearing="off")))
    each = np.array([[voltages(name, t) for name in view.antenna_names] for t in view.time])
    each[..., 0] *= 1.0 - 10.0 * 0.004
    p, q = (each[part.rows.time_index, end] for end in (part.rows.antenna1, part.rows.antenna2))
    turns = part.rows.uvw @ [0.004, -0.006, math.sqrt(1 - 52e-6) - 1]
    phase = np.exp(2j * np.pi * turns[:, None] * part.chan_freq / C)
    for k in range(2):
        np.testing.assert_allclose(
            found[..., 3 * k], 2.0 * (p * q.conj())[:, None, k] * phase, atol=1e-10, err_msg=str(k)
        )
    model = one_source(FunctionBeam(function=of_antenna, extent="1 deg", time_step="1000 d", turns=False))
    beams = beam_of(model, observation.partition_views)
    assert beams.which.shape == (1, len(view.antenna_names))
    assert len(beams.cubes) == len({int(name[-1]) % 3 for name in view.antenna_names})


def test_a_disc_through_a_dish_is_that_through_the_scalar_beam(observation) -> None:
    """A round dish without cross-hands is a scalar beam."""
    text = """
[feeds]
rotation = "none"
[beam]
kind = "{}"
fwhm = "1 deg"
ref_freq = "1.4 GHz"
[[source]]
name = "s"
type = "disc"
east = "20 arcmin"
north = "-10 arcmin"
I = "2 Jy"
diameter = "4 arcmin"
"""
    scalar = text.format("gaussian")
    matrices = text.format('dish"\npattern = "gaussian')
    found, expected = (
        next(iter(predict(observation, from_toml(each), precision="double", smearing="off")))
        for each in (matrices, scalar)
    )
    # Splines of the sampled beam keep 1e-6 of it.
    np.testing.assert_allclose(found, expected, atol=4e-6)


def test_what_a_function_takes(observation) -> None:
    views = observation.partition_views
    of_all = FunctionBeam(function=lambda x, y, f: of_antenna(x, y, f, "1", 0.0), extent="1 deg")
    of_each = FunctionBeam(function=lambda x, y, f, name: of_antenna(x, y, f, name, 0.0), extent="1 deg")
    plain, by_antenna = beam_of(one_source(of_all), views), beam_of(one_source(of_each), views)
    assert plain.jones[0, 0, 0, 0, 0].real == pytest.approx(1.1 * (1 + 10 * DEG))
    assert by_antenna.time.size == 1
    with pytest.raises(ModelError, match=r"function: must take \(x, y, freq\), .*; found 2 arguments"):
        FunctionBeam(function=lambda x, y: x, extent="1 deg")
    with pytest.raises(ModelError, match="used from Python only"):
        one_source(FunctionBeam(function=of_antenna, extent="1 deg")).to_toml()
    with pytest.raises(ModelError, match="used from Python only"):
        one_source(FitsBeam(file=plain)).to_toml()
    bound = one_source(FunctionBeam(function=of_antenna, extent="1 deg")).bind(views, by_antenna)
    assert 'kind = "function"' in bound.to_toml()
    with pytest.raises(ModelError, match="no beam was given for antenna 'other'"):
        by_antenna.classes(["other"], views[0].time)


def test_the_nearest_time_is_taken() -> None:
    beams = sample_antenna_beams(of_antenna, [1e9], 0.01, ["a1", "a2"], [0.0, 100.0])
    found = beams.classes(["a2", "a1"], np.array([-5.0, 49.0, 51.0, 400.0]))
    assert [len(set(column)) for column in found.T] == [2, 2]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], found[3])
    np.testing.assert_array_equal(found[:, ::-1][[0, 2]], beams.which)


# ---- everybeam


def response(l, m, time, freq, station):
    """Like nothing else: differs along l and m, and in time, frequency and station."""
    found = np.empty((*np.shape(l), 2, 2), complex)
    found[..., 0, 0] = 1 + 3 * l - 2 * m + 0.1 * station
    found[..., 0, 1] = 0.2j * l * m + freq / 1e10
    found[..., 1, 0] = l**2
    found[..., 1, 1] = 1 - 3j * m + 1e-4 * (time % 1000.0)
    return found


class Telescope:
    """The interface of everybeam's telescopes, on its grid (aocommon's XYToLM)."""

    nr_stations = 7

    def gridded_response(self, grid, time, freq, station):
        assert (grid.l_shift, grid.m_shift) == (0.0, 0.0)
        pixel_y, pixel_x = np.mgrid[: grid.height, : grid.width]
        l = (grid.width / 2 - pixel_x) * grid.dl
        m = (pixel_y - grid.height / 2) * grid.dm
        return response(l, m, time, freq, station).astype(np.complex64)


def test_everybeam_by_its_interface(observation, monkeypatch, tmp_path) -> None:
    opened = {}

    def load_telescope(name, **given):
        opened.update(given, name=name)
        return Telescope()

    monkeypatch.setitem(
        sys.modules, "everybeam", SimpleNamespace(load_telescope=load_telescope, GridSettings=SimpleNamespace)
    )
    model = one_source(EveryBeam(measurement_set=tmp_path / "a.ms", extent="2 deg", time_step="1 s"))
    views = observation.partition_views
    beams = beam_of(model, views)
    assert opened["name"] == str(tmp_path / "a.ms")
    assert opened["element_response_model"] == "default"
    x, y = places(1.9 * DEG)
    freq, time = views[0].chan_freq[1], views[0].time
    which = beams.classes(views[0].antenna_names, time)
    for t, a in ((0, 0), (len(time) - 1, 5)):
        found = beams.cubes[which[t, a]](x, y, freq)
        # Single precision.
        np.testing.assert_allclose(found, response(x, y, time[t], freq, a), atol=1e-6)
    Telescope.nr_stations = 6
    with pytest.raises(InputError, match="has 6 stations, the data have 7 antennas; give"):
        beam_of(model, views)


def test_without_everybeam_one_line_says_what_to_do(observation, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "everybeam", None)
    with pytest.raises(InputError, match=r"everybeam; in the checkout of biro: pip install '.\[e"):
        beam_of(one_source(EveryBeam(measurement_set="a.ms")), observation.partition_views)
