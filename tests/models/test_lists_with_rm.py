"""Rotation measures of component lists, against the formulas of the programs that the lists belong to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from biro.models import ModelError, PartitionView, SkyModel, read_sky
from rime_kernels import Rime, Rows, stokes_to_corr

C = 299792458.0
FREQ = np.array([1.3e8, 1.5e8, 1.71e8])
BBS = (
    "Format = Name, Type, Ra, Dec, I, {}, RotationMeasure, "
    "SpectralIndex='[-0.8, 0.1]', ReferenceFrequency='150e6'\n"
)


def stokes_of(place: Path) -> np.ndarray:
    """I, Q, U, V (channel, 4) of a source at the phase centre of (ra, dec) = (1, 0.5) rad."""
    sky: SkyModel = read_sky(place)
    view = PartitionView("f/s", "f", "s", (1.0, 0.5), np.zeros(1), FREQ, ("A", "B"))
    bound = sky.bind([view])
    zero = np.zeros(1, np.int32)
    of = stokes_to_corr(["I", "Q", "U", "V"])
    rows = Rows(np.zeros((1, 3)), zero, zero + 1, zero, FREQ, of, 2, 1)
    rime = Rime(rows, backend="cpu", extent=0.1)
    found = rime.predict(bound.sources(np.ones((1, bound.n_param)), 0))
    return np.asarray(found).reshape(FREQ.size, 4).real


def in_degrees() -> str:
    return f"{float(np.rad2deg(1.0))!r} deg, {float(np.rad2deg(0.5))!r} deg"


def test_bbs_as_dp3(tmp_path: Path) -> None:
    """PointSource of DP3: Q = I p cos 2 chi, U = I p sin 2 chi, chi = chi0 + RM lambda^2."""
    place = tmp_path / "sky.model"
    place.write_text(
        BBS.format("PolarizedFraction, PolarizationAngle") + f"a, POINT, {in_degrees()}, 2.5, 0.2, 0.3, 1.7\n"
    )
    x = FREQ / 150e6
    intensity = 2.5 * x ** (-0.8 + 0.1 * np.log10(x))
    turned = 2 * (0.3 + 1.7 * (C / FREQ) ** 2)
    expected = [intensity, 0.2 * intensity * np.cos(turned), 0.2 * intensity * np.sin(turned), 0 * x]
    # Double precision.
    np.testing.assert_allclose(stokes_of(place), np.transpose(expected), rtol=0, atol=1e-13)


@pytest.mark.parametrize("wave", ["", "2.1"])
def test_bbs_with_q_and_u_at_a_wavelength(tmp_path: Path, wave: str) -> None:
    """At the reference wavelength they are what the list says; elsewhere p stays and chi turns."""
    place = tmp_path / "sky.model"
    head = BBS.format("Q, U, ReferenceWavelength")
    place.write_text(head + f"a, POINT, {in_degrees()}, 2.5, 0.3, -0.4, {wave}, 1.7\n")
    given = float(wave) if wave else C / 150e6

    def intensity(freq: np.ndarray) -> np.ndarray:
        x = freq / 150e6
        return 2.5 * x ** (-0.8 + 0.1 * np.log10(x))

    turn = np.exp(2j * 1.7 * ((C / FREQ) ** 2 - given**2))
    expected = (0.3 - 0.4j) * turn * intensity(FREQ) / intensity(np.array(C / given))
    found = stokes_of(place)
    np.testing.assert_allclose(found[:, 1] + 1j * found[:, 2], expected, rtol=0, atol=1e-13)


def test_oskar_and_tigger_turn_from_their_frequency(tmp_path: Path) -> None:
    x = FREQ / 1.5e8
    turn = np.exp(2j * 1.7 * ((C / FREQ) ** 2 - (C / 1.5e8) ** 2))
    expected = (0.3 - 0.4j) * turn * x**-0.7
    (tmp_path / "a.osm").write_text(
        f"# \n{float(np.rad2deg(1.0))!r} {float(np.rad2deg(0.5))!r} 2.5 0.3 -0.4 0 1.5e8 -0.7 1.7\n"
    )
    (tmp_path / "a.lsm.txt").write_text(
        "#format: ra_rad dec_rad i q u spi rm freq0\n1.0 0.5 2.5 0.3 -0.4 -0.7 1.7 1.5e8\n"
    )
    for name in ("a.osm", "a.lsm.txt"):
        found = stokes_of(tmp_path / name)
        np.testing.assert_allclose(found[:, 1] + 1j * found[:, 2], expected, rtol=0, atol=1e-13)
    (tmp_path / "b.lsm.txt").write_text("#format: ra_rad dec_rad i q u rm\n1.0 0.5 2.5 0.3 -0.4 1.7\n")
    found = stokes_of(tmp_path / "b.lsm.txt")
    expected = (0.3 - 0.4j) * np.exp(2j * 1.7 * (C / FREQ) ** 2)
    np.testing.assert_allclose(found[:, 1] + 1j * found[:, 2], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        ("V", "0", "rotationmeasure: needs Q and U, or PolarizedFraction and PolarizationAngle"),
        ("PolarizedFraction", "0.1", "rotationmeasure: needs Q and U, or PolarizedFraction"),
        ("Q, ReferenceFrequency", "1, 0", "rotationmeasure: needs a ReferenceWavelength, or a positive"),
    ],
)
def test_bbs_that_says_too_little(tmp_path: Path, columns: str, values: str, message: str) -> None:
    place = tmp_path / "sky.model"
    place.write_text(
        f"Format = Name, Ra, Dec, I, {columns}, RotationMeasure\na, {in_degrees()}, 2.5, {values}, 1.7\n"
    )
    with pytest.raises(ModelError, match=message):
        read_sky(place)
