"""Sky files of OSKAR; numbers worked out by hand from the meaning of the columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biro.models import GaussianSource, ModelError, PointSource, SkyModel, read_sky, write_sky
from biro.models.files import read_oskar, write_oskar
from biro.models.files.components import ListComponent, from_model

Refused = Callable[[str, str, str], None]

ARCSEC = np.pi / 648000
FILE = """# RA, Dec, I, Q, U, V, freq, index, RM, major, minor, pa
 60.0 -30.0 2.5
120.0, 45.0, 1.0, 0.1, -0.2, 0.3, 1.4e9, -0.7   # the rest is 0

  0.5 -89.5 3.0 0 0 0 0 0 12.0 20.0 10.0 30.0
  0.5 0.25 -1.0 0 0 0 1e9 0 0 10.0 20.0 30.0
"""


def read(place: Path) -> dict[float, ListComponent]:
    return {component.stokes[0]: component for component in from_model(read_sky(place))}


@pytest.mark.parametrize("name", ["sky.osm", "any_name"])
def test_columns(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILE)
    found = read(tmp_path / name)
    a, b, c, d = found[2.5], found[1.0], found[3.0], found[-1.0]
    assert (a.ra, a.dec) == pytest.approx((np.pi / 3, -np.pi / 6), rel=4e-16)
    assert (a.stokes, a.terms, a.shape) == ((2.5, 0, 0, 0), ((),) * 4, None)
    assert b.stokes == (1.0, 0.1, -0.2, 0.3)
    assert (b.terms, b.ref_freq) == (((-0.7,),) * 4, 1.4e9)
    assert c.shape == pytest.approx((20 * ARCSEC, 10 * ARCSEC, np.pi / 6), rel=1e-15)
    # The longer axis stands second: it lies at 30 + 90 deg.
    assert d.shape == pytest.approx((20 * ARCSEC, 10 * ARCSEC, np.pi * 2 / 3), rel=1e-15)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2", "line 3: expected 3 to 12 columns .*, found 2"),
        ("1 2 3 4 5 6 7 8 9 10 11 12 13", "line 3: expected 3 to 12 columns .*, found 13"),
        ("1 95 3", r"line 3: dec: must lie within -90 \.\. 90 deg, found 95 deg"),
        ("1 2 x", "line 3: I: expected a finite number, found 'x'"),
        ("1 2 3 0 0 0 0 -0.7", "line 3: frequency: must be positive with a spectral index, found 0"),
        ("1 2 3 0.1 0 0 0 0 5", "line 3: frequency: must be positive with a rotation measure, found 0"),
        ("1 2 3 0 0 0 0 0 0 -1 1 0", "line 3: axes must not be negative"),
    ],
)
def test_what_is_not_understood(refused: Refused, line: str, message: str) -> None:
    refused("bad.osm", f"# comment\n1 2 3\n{line}\n", message)


def test_numbers_alone_may_be_of_several_programs(refused: Refused) -> None:
    refused("numbers.txt", "0.5 1.0 30.0\n", r"only numbers, .* \.osm \(OSKAR\) or \.mod \(difmap\)")


def test_round_trip(tmp_path: Path) -> None:
    (tmp_path / "a.osm").write_text(FILE)
    model = read_oskar(tmp_path / "a.osm")
    write_sky(model, tmp_path / "b.osm")
    again = read(tmp_path / "b.osm")
    for component in from_model(model):
        other = again[component.stokes[0]]
        # Radians to degrees and back round three times.
        assert (other.ra, other.dec) == pytest.approx((component.ra, component.dec), rel=1e-15)
        assert (other.stokes, other.terms) == (component.stokes, component.terms)
        assert other.ref_freq == component.ref_freq
        assert other.shape == (component.shape and pytest.approx(component.shape, rel=1e-15))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"spectral_index": [-0.7, 0.1], "ref_freq": "1 GHz"}, "power laws only"),
        (
            {"Q": "1 Jy", "spectral_index": {"I": -0.7, "Q": 0.5}, "ref_freq": "1 GHz"},
            "Q has another spectrum than I",
        ),
    ],
)
def test_what_oskar_cannot_say(tmp_path: Path, extra: dict, message: str) -> None:
    source = PointSource("a", ra="10 deg", dec="0 deg", I="1 Jy", **extra)
    gaussian = GaussianSource("b", ra="10 deg", dec="0 deg", I="1 Jy", fwhm="1 arcsec")
    with pytest.raises(ModelError, match=message):
        write_oskar(SkyModel([gaussian, source]), tmp_path / "a.osm")
