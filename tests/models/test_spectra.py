"""Spectra with absorption, lines and tables, and Faraday rotation, as a person writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biro.models import ModelError, PartitionView, PointSource, SkyModel, Uniform, read_model, write_model
from biro.models.files import write_bbs, write_difmap, write_oskar, write_tigger
from biro.models.files.toml import from_toml
from rime_kernels import Rime, Rows, stokes_to_corr

MakeView = Callable[..., PartitionView]
C = 299792458.0
FREQ = np.array([1.1e9, 1.4e9, 1.7e9])
HEAD = '[sky]\nref_freq = "1.4 GHz"\n'
SOURCE = '[[source]]\nname = "a"\neast = "0 rad"\nnorth = "0 rad"\nI = "2 Jy"\n'


@pytest.fixture
def stokes(view: MakeView) -> Callable[[str], np.ndarray]:
    """I, Q, U, V (3 channels, 4) of a fixed source at the phase centre: what an autocorrelation sees."""

    def seen(text: str) -> np.ndarray:
        made = view()
        frame = PartitionView(made.label, made.field, made.spw, made.phase_centre, made.time, FREQ, ("A",))
        bound = from_toml(HEAD + SOURCE + text).bind([frame])
        sources = bound.sources(bound.prior_transform(np.full((1, bound.n_param), 0.5)), 0)
        rows = Rows(np.zeros((1, 3)), [0], [0], [0], FREQ, stokes_to_corr(["I", "Q", "U", "V"]), 1, 1)
        return Rime(rows, backend="cpu", extent=0.0).predict(sources)[0, 0].real

    return seen


def test_free_free(stokes: Callable[[str], np.ndarray]) -> None:
    seen = stokes('spectral_index = [-0.7, 0.1]\nfree_free = "0.9 GHz"')[:, 0]
    x = FREQ / 1.4e9
    expected = 2 * x ** (-0.7 + 0.1 * np.log(x)) * np.exp(-((FREQ / 0.9e9) ** -2.1))
    np.testing.assert_allclose(seen, expected, rtol=1e-12)
    flat = stokes('free_free = "900 MHz"')[:, 0]
    np.testing.assert_allclose(flat, 2 * np.exp(-((FREQ / 0.9e9) ** -2.1)), rtol=1e-12)


def test_flux_is_that_of_the_synchrotron_peak(stokes: Callable[[str], np.ndarray]) -> None:
    seen = stokes('spectral_index = -0.7\nself_absorption = "1.4 GHz"')[:, 0]
    assert seen[1] == pytest.approx(2.0, rel=1e-13)
    assert seen[[0, 2]].max() < 2.0
    # Far above the peak it is thin, and the spectrum is a power law of the thin index.
    far = stokes('spectral_index = -0.7\nself_absorption = "1 MHz"\nthick_index = 2')[:, 0]
    # The optical depth there is 1e3^-2.7 of that at the peak.
    np.testing.assert_allclose(far / far[1], (FREQ / 1.4e9) ** -0.7, rtol=1e-8)


@pytest.mark.parametrize("profile", ["gaussian", "lorentzian"])
def test_lines(stokes: Callable[[str], np.ndarray], profile: str) -> None:
    d = (FREQ - 1.3e9) / 0.4e9
    shape = np.exp(-4 * np.log(2) * d**2) if profile == "gaussian" else 1 / (1 + 4 * d**2)
    line = f'line = {{ profile = "{profile}", freq = "1.3 GHz", fwhm = "400 MHz"'
    np.testing.assert_allclose(stokes(f"{line} }}")[:, 0], 2 * shape, rtol=1e-12)
    on = stokes(f"{line}, height = -0.5 }}\nlog10_spectrum = -1")[:, 0]
    np.testing.assert_allclose(on, 2 * (1.4e9 / FREQ - 0.5 * shape), rtol=1e-12)


@pytest.mark.parametrize("circular", ['V = "0.2 Jy"', "v_fraction = 0.1"])
def test_v_over_i_has_a_spectral_index(stokes: Callable[[str], np.ndarray], circular: str) -> None:
    # V/I = 0.1 (nu/1.4 GHz)^1.5 whatever the spectrum of I. Tolerance: rounding of powers.
    for spectrum in ("", "spectral_index = [-0.7, 0.1]", 'log10_spectrum = -1\nfree_free = "0.9 GHz"'):
        seen = stokes(f"{circular}\nv_index = 1.5\n{spectrum}")
        np.testing.assert_allclose(seen[:, 3] / seen[:, 0], 0.1 * (FREQ / 1.4e9) ** 1.5, rtol=1e-12)
        np.testing.assert_array_equal(seen[:, 0], stokes(f"{circular}\n{spectrum}")[:, 0])


def test_a_line_by_velocity_is_the_same_line(stokes: Callable[[str], np.ndarray]) -> None:
    # v = c (1 - nu/rest): 1.3 GHz of 1.42 GHz, a width of 0.4 GHz.
    velocity, width = C * (1 - 1.3 / 1.42) / 1e3, C * 0.4 / 1.42 / 1e3
    by = stokes(f'line = {{ velocity = "{velocity} km/s", rest_freq = "1.42 GHz", fwhm = "{width} km/s" }}')
    np.testing.assert_allclose(by, stokes('line = { freq = "1.3 GHz", fwhm = "0.4 GHz" }'), rtol=1e-12)


def test_tables(stokes: Callable[[str], np.ndarray]) -> None:
    knots, values = np.array([1.0e9, 1.3e9, 2.0e9]), np.array([0.5, 1.5, 1.0])
    table = 'freq = ["1 GHz", "1300 MHz", "2 GHz"], value = [0.5, 1.5, 1.0]'
    linear = stokes(f'table = {{ {table}, interpolation = "linear" }}')[:, 0]
    np.testing.assert_allclose(linear, 2 * np.interp(FREQ, knots, values), rtol=1e-12)
    log = np.exp(np.interp(np.log(FREQ), np.log(knots), np.log(values)))
    np.testing.assert_allclose(stokes(f"table = {{ {table} }}")[:, 0], 2 * log, rtol=1e-12)


@pytest.mark.parametrize("reference", ["zero", "ref_freq"])
def test_rotation_is_that_of_the_angle_with_wavelength_squared(
    stokes: Callable[[str], np.ndarray], reference: str
) -> None:
    seen = stokes(
        'pol_fraction = 0.1\npol_angle = "20 deg"\nV = "0.3 Jy"\nrm = "30 rad/m2"\n'
        f'rm_width = "20 rad/m2"\nrm_scatter = "6 rad/m2"\nrm_reference = "{reference}"'
    )
    wave2 = (C / FREQ) ** 2
    turned = wave2 - (0.0 if reference == "zero" else (C / 1.4e9) ** 2)
    chi = np.radians(20) + 30 * turned
    p = 0.2 * np.sin(20 * wave2) / (20 * wave2) * np.exp(-2 * 36 * wave2**2)
    np.testing.assert_allclose(seen[:, 1], p * np.cos(2 * chi), atol=1e-13)
    np.testing.assert_allclose(seen[:, 2], p * np.sin(2 * chi), atol=1e-13)
    np.testing.assert_allclose(seen[:, [0, 3]], [[2.0, 0.3]] * 3, rtol=1e-13)


def test_names_files_and_limits(view: MakeView, tmp_path: Path) -> None:
    text = (
        'line = { velocity = { prior = "normal", mean = 0, sd = 10, unit = "km/s" }, rest_freq = "1.42 GHz", '
        'fwhm = { prior = "normal", mean = 10, sd = 10, unit = "km/s" } }\n'
        'Q = "1 Jy"\nrm = { prior = "normal", mean = 0, sd = 9, unit = "rad/m2" }\n'
        'rm_width = { prior = "normal", mean = 0, sd = 9, unit = "rad/m2" }\n[noise]\nfactor = 1\n'
    )
    model = from_toml(HEAD + SOURCE + text)
    bound = model.bind([view()])
    assert bound.parameter_names == ("a.line.velocity", "a.line.fwhm", "a.rm", "a.rm_width")
    theta = np.array([[0.0, 10.0, 5.0, 5.0], [0.0, -1.0, 5.0, 5.0], [0.0, 10.0, -5.0, 5.0], [0.0, 10, 5, -5]])
    assert np.isfinite(bound.log_prior(theta)).tolist() == [True, False, True, False]
    write_model(model, tmp_path / "model.toml")
    assert read_model(tmp_path / "model.toml") == model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('free_free = "1 GHz"\nself_absorption = "1 GHz"', "one of free_free, self_absorption, line, table"),
        ('free_free = "1 GHz"\npolynomial = 1', "free_free: is only for spectral_index or log10_spectrum"),
        ('free_free = "1 Jy"', "free_free: unit 'Jy' is not a frequency"),
        ('self_absorption = "1 GHz"', "self_absorption: needs spectral_index, one number below 0"),
        ('self_absorption = "1 GHz"\nspectral_index = 0.5', "spectral_index: must be below 0 .*found 0.5"),
        ('self_absorption = "1 GHz"\nspectral_index = [-1, 1]', "needs spectral_index, one number"),
        ("thick_index = 2", "thick_index: needs self_absorption"),
        ("v_index = 1", "v_index: is the spectral index of V/I, but the source has no V"),
        ("v_fraction = 0.1\nv_index = 1\npolynomial = 1", "v_index: is only for .* found polynomial"),
        ("v_fraction = 0.1\nv_index = 1\nspectral_index = {I = 1, V = 2}", "spectrum of V is given twice"),
        ('line = "HI"', "line: expected a table such as"),
        ('line = { frq = "1 GHz" }', "line: unknown key 'frq' .did you mean 'freq'"),
        ('line = { freq = "1 GHz" }', "line: fwhm is missing"),
        ('line = { fwhm = "1 GHz" }', "line: the centre is freq, or velocity with rest_freq"),
        ('line = { velocity = "1 km/s", fwhm = "1 km/s" }', "velocity with rest_freq"),
        (
            'line = { velocity = "1 km/s", rest_freq = "1 GHz", fwhm = "1 MHz" }',
            "fwhm: unit 'MHz' is not a vel",
        ),
        ('line = { freq = "1 GHz", fwhm = "1 MHz", profile = "voigt" }', "profile: one of gaussian, lorentz"),
        (
            'line = { freq = "1 GHz", fwhm = "1 MHz" }\nspectral_index = 1',
            r"on a continuum \(spectral_index\) needs height",
        ),
        ('line = { freq = "1 GHz", fwhm = "-1 MHz" }', "a.line.fwhm must be positive"),
        ('table = { freq = ["1 GHz"], value = [1] }', "2 to 200 knots"),
        ('table = { freq = ["1 GHz", "2 GHz"], value = [1] }', "found 2 and 1"),
        ('table = { freq = ["2 GHz", "1 GHz"], value = [1, 1] }', "freq: must ascend"),
        (
            'table = { freq = ["1 GHz", "2 GHz"], value = [1, 1] }\nspectral_index = 1',
            "table and spectral_ind",
        ),
        ('table = { freq = ["1 GHz", "2 GHz"], value = [1, -1] }', r"a.table.value\[1\] must be positive"),
        (
            'table = { freq = ["1.5 GHz", "2 GHz"], value = [1, 1] }',
            "table has 1.5 .. 2 GHz, partition 'f/spw0'",
        ),
        ('rm = "3 rad/m2"', "rm: rotates Q and U, but the source has neither"),
        ('Q = "1 Jy"\nrm_reference = "zero"', "rm_reference: needs rm"),
        ('Q = "1 Jy"\nrm = "1 rad/m2"\nrm_reference = "source"', "rm_reference: one of zero, ref_freq"),
        ('Q = "1 Jy"\nrm = "1 rad"', "rm: unit 'rad' is not a rotation measure"),
        ('Q = "1 Jy"\nrm_width = "-1 rad/m2"', "a.rm_width must be 0 rad/m2 or more"),
    ],
)
def test_what_is_refused(view: MakeView, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_toml(HEAD + SOURCE + text).bind([view()])


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"free_free": "1 GHz"}, "a: a component list has polynomial spectra only"),
        ({"table": {"freq": ["1 GHz", "2 GHz"], "value": [1, 2]}}, "polynomial spectra only"),
        ({"Q": "1 Jy", "rm": "3 rad/m2"}, "a: has a rotation measure"),
    ],
)
def test_component_lists_refuse_them(tmp_path: Path, extra: dict, message: str) -> None:
    model = SkyModel([PointSource("a", ra="0 deg", dec="0 deg", I="1 Jy", **extra)], centre="0 deg 0 deg")
    for write in (write_bbs, write_difmap, write_oskar, write_tigger):
        with pytest.raises(ModelError, match=message):
            write(model, tmp_path / "sky.txt")
        assert not (tmp_path / "sky.txt").exists()


def test_what_is_not_used_is_not_there(view: MakeView) -> None:
    bound = SkyModel([PointSource("a", ra="187 deg", dec="2 deg", I=Uniform("1 Jy", "2 Jy"), Q="1 Jy")]).bind(
        [view()]
    )
    sources = bound.sources(np.ones((1, bound.n_param)), 0)
    assert sources.spectral_form is None
    assert sources.faraday is None
    assert sources.spectral_terms.shape == (1, 1, 4, 0)
