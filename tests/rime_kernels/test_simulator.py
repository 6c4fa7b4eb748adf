"""`predict`: plain arrays in, visibilities out."""

import doctest
import subprocess
import sys

import numpy as np
import pytest

import rime_kernels
from rime_kernels import Antennas, Beam, InputError, Options, Spectrum, predict
from rime_kernels import prediction as simulator

UVW = np.array([[120.0, -40.0, 15.0], [300.0, 200.0, -60.0]])
FREQ = np.array([1.0e9, 1.4e9])
LM = [[0.02, -0.03]]
FLUX = [[2.0, 0.3, -0.1, 0.2]]


def test_its_example_runs() -> None:
    found = doctest.testmod(simulator)
    assert found.attempted > 5
    assert not found.failed


def test_the_conventions_are_conjugate_for_stokes_i() -> None:
    casa = predict(UVW, FREQ, LM, [[1, 0, 0, 0]])
    np.testing.assert_allclose(
        predict(UVW, FREQ, LM, [[1, 0, 0, 0]], convention="fourier"), casa.conj(), rtol=1e-12
    )


def test_a_circular_feed() -> None:
    found = predict(UVW, FREQ, [[0.0, 0.0]], FLUX, corr="circular")
    np.testing.assert_allclose(found[1, 1], [2.2, 0.3 - 0.1j, 0.3 + 0.1j, 1.8], rtol=1e-12)


def test_antennas_change_nothing_but_the_form() -> None:
    antennas = Antennas([0, 0], [1, 2], [0.0, 0.0])
    for form in ("factored", "row"):
        found = predict(UVW, FREQ, LM, FLUX, antennas=antennas, options=Options(form=form))
        np.testing.assert_allclose(found, predict(UVW, FREQ, LM, FLUX), rtol=1e-11)


def test_gaussians_and_points_in_any_order() -> None:
    lm, flux = [[0.01, 0.0], [0.0, 0.01], [0.02, 0.01]], np.eye(4)[[0, 0, 0]]
    shape = np.array([[1e-4, 5e-5, 0.3], [0.0, 0.0, 0.0], [2e-4, 2e-4, 0.0]])
    spectrum = Spectrum([1.0e9, 1.2e9, 1.4e9], [[-0.7], [0.2], [1.0]], [True, False, True])
    found = predict(UVW, FREQ, lm, flux, spectrum=spectrum, shape=shape)
    each = [
        predict(
            UVW, FREQ, [lm[s]], [flux[s]], shape=shape[[s]],
            spectrum=Spectrum(spectrum.ref_freq[s], [spectrum.terms[s]], spectrum.log[s]),
        )
        for s in range(3)
    ]  # fmt: skip
    np.testing.assert_allclose(found, sum(each), rtol=1e-12)


def test_a_beam_multiplies_by_its_power() -> None:
    x = 65e-9 * FREQ * np.hypot(*LM[0])
    power = np.cos(np.minimum(x, 1.0881)) ** 6
    found = predict(UVW, FREQ, LM, FLUX, beam=Beam("cos3", np.array([65e-9])))
    np.testing.assert_allclose(found, predict(UVW, FREQ, LM, FLUX) * power[:, None], rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uvw": np.zeros((3, 1200))}, r"uvw must have shape \(row, 3\), got \(3, 1200\); transpose it\?"),
        ({"lm": [0.1, 0.2]}, r"lm must have shape \(source, 2\), got \(2,\)"),
        ({"lm": [[0.8, 0.7]]}, r"l\^2 \+ m\^2 must be at most 1 \(largest: 1.13\)"),
        ({"stokes": [1.0, 0.0, 0.0, 0.0]}, r"stokes must have shape \(source = 1, 4\), got \(4,\)"),
        ({"stokes": [[np.nan, 0, 0, 0]]}, "stokes must be finite"),
        ({"shape": [[1e-5, 2e-5, 0.0]]}, "shape needs emaj >= emin >= 0"),
        ({"corr": "elliptical"}, "corr must be one of 'linear', 'circular'; got 'elliptical'"),
        ({"convention": "nasa"}, "convention must be one of 'casa', 'fourier'; got 'nasa'"),
        ({"options": Options(form="factored")}, 'factored" needs antennas'),
        ({"spectrum": Spectrum(-1.0, [[0.0]])}, "ref_freq must be positive"),
        ({"spectrum": Spectrum(1e9, [[0.0], [1.0]])}, r"spectrum.terms must have shape \(source = 1, term\)"),
        ({"beam": Beam("airy", np.ones(1), np.zeros((1, 1, 2, 2)))}, "pointing errors need antennas"),
    ],
)
def test_bad_input(changes, message) -> None:
    fields = {"uvw": UVW, "chan_freq": FREQ, "lm": LM, "stokes": FLUX, **changes}
    with pytest.raises(InputError, match=message):
        predict(**fields)


def test_public_names_exist() -> None:
    assert set(rime_kernels.__all__) <= set(dir(rime_kernels))
    for name in rime_kernels.__all__:
        assert getattr(rime_kernels, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rime_kernels.nothing


def test_arrays_and_errors_import_without_numba() -> None:
    code = "import sys, rime_kernels.errors, rime_kernels.arrays; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
