"""Models of difmap; numbers worked out by hand from the meaning of the columns, and the fit of a peer."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biro.models import GaussianSource, ModelError, PointSource, SkyModel, read_model, read_sky
from biro.models.components.direction import lm_to_radec, radec_to_lm
from biro.models.files import read_bbs, read_difmap, write_difmap, write_sky

Refused = Callable[[str, str, str], None]

MAS = math.pi / 648e6
FILE = """! Center RA: 10 33 51.4290000,  Dec: -00 51 07.3350000 (2000.0)
! Established model.
! Flux (Jy) Radius (mas)  Theta (deg)  Major (mas)  Axial ratio   Phi (deg) T \\
! Freq (Hz)     SpecIndex
 0.5v   2.0v   30.0v
-0.25   3.0   -90.0   0.4v  0.5v  20.0v  1
 0.125  1.0   180.0   0.2   2.0   10.0   1  15.0e9  -0.5 ! the ratio is more than 1
! Tentative model.
 1.0    0.0     0.0   0.6
 2.0
 0.1    1.0     0.0   0.5   1     0      0
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "model.mod"
    place.write_text(FILE)
    return place


def value(source: PointSource | GaussianSource, key: str) -> float:
    found = getattr(source, key)
    return (found[0] if isinstance(found, tuple) else found).value


def test_columns(path: Path) -> None:
    model = read_difmap(path)
    a, b, c, d, e, f = model.sources
    ra0, dec0 = model.centre
    assert ra0 == pytest.approx(math.radians(15 * (10 + 33 / 60 + 51.429 / 3600)), rel=4e-16)
    assert dec0 == pytest.approx(-math.radians(51 / 60 + 7.335 / 3600), rel=4e-16)
    # 2 mas at 30 deg from north through east; offsets have nine decimals of a radius of one digit.
    assert (value(a, "east"), value(a, "north")) == pytest.approx((1.0, math.sqrt(3.0)), abs=0.5e-9)
    assert len(repr(value(a, "north"))) <= len("1.732050808")
    assert (value(b, "east"), value(b, "north")) == pytest.approx((-3.0, 0.0), abs=1e-15)
    assert (value(c, "east"), value(c, "north")) == pytest.approx((0.0, -1.0), abs=1e-15)
    assert [value(s, "I") for s in model.sources] == [0.5, -0.25, 0.125, 1.0, 2.0, 0.1]
    assert [type(s) for s in model.sources] == [
        PointSource,
        GaussianSource,
        GaussianSource,
        GaussianSource,
        PointSource,
        PointSource,
    ]
    assert [value(b, key) for key in ("emaj", "ratio", "pa")] == [0.4, 0.5, 20.0]
    # An axis of 0.2 mas at 10 deg and one of 0.4 mas across it: the long one lies at 100 deg.
    assert [value(c, key) for key in ("emaj", "ratio", "pa")] == [0.4, 0.5, 100.0]
    assert (c.spectral_index[0].value, value(c, "ref_freq")) == (-0.5, 15e9)
    assert a.spectral_index is None
    assert [value(d, key) for key in ("emaj", "ratio", "pa")] == [0.6, 1.0, 0.0]
    assert all(getattr(source, "fwhm", None) is None for source in (e, f))


@pytest.mark.parametrize("heading", ["", "! Center RA: 10 33 51.4,  Dec: +60 51 07.3 (1950.0)\n"])
def test_without_a_centre_of_j2000(tmp_path: Path, heading: str) -> None:
    """Told by its name where no comment tells it."""
    place = tmp_path / "model.MOD"
    place.write_text(heading + "0.5 1 0\n")
    assert read_sky(place).centre is None


def test_told_by_content(path: Path) -> None:
    other = path.with_name("any_name")
    other.write_text(FILE)
    assert len(read_sky(other).sources) == 6


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 3 4 1 0 5", r"line 2: type: one of 0 \(delta\), 1 \(Gaussian\), .*, found 5 \(rectangle\)"),
        ("1 2 3 4 1 0 9", r"line 2: type: one of .* 4 \(ring\), found 9$"),
        ("1 2 x", "line 2: theta: expected a finite number, found 'x'"),
        ("1 2 vv", "line 2: theta: expected a finite number"),
        ("1 2 3 4 5 6 1 8 9 10", "line 2: expected at most 9 columns"),
        ("1 2 3 -4 1 0 1", "line 2: axes must not be negative"),
        ("1 2 3 4 1 0 1 0 -0.7", "line 2: frequency: must be positive with a spectral index, found 0"),
        ("", "no components in the file"),
    ],
)
def test_what_is_not_understood(refused: Refused, line: str, message: str) -> None:
    refused("bad.mod", f"! a comment\n{line}\n", message)


def test_round_trip(path: Path, tmp_path: Path) -> None:
    """Through right ascension and declination in rad, which hold 1e-7 mas."""
    model = read_difmap(path)
    write_difmap(model, tmp_path / "again.mod")
    again = read_difmap(tmp_path / "again.mod")
    # 12 decimals of seconds of time: 1e-11 arcsec.
    np.testing.assert_allclose(again.centre, model.centre, atol=1e-16)
    mine = {value(source, "I"): source for source in model.sources}
    for source in again.sources:
        for key in ("east", "north"):
            assert value(source, key) == pytest.approx(value(mine[value(source, "I")], key), abs=2e-7)
        if isinstance(source, GaussianSource):
            for key in ("emaj", "ratio", "pa"):
                assert value(source, key) == pytest.approx(value(mine[value(source, "I")], key), rel=1e-14)


def test_offsets_without_a_centre(tmp_path: Path) -> None:
    model = SkyModel([PointSource("a", east="-3 mas", north="4 mas", I="1 Jy")])
    write_sky(model, tmp_path / "a.mod")
    text = (tmp_path / "a.mod").read_text()
    assert "Center" not in text
    (source,) = read_difmap(tmp_path / "a.mod").sources
    # 2 pi - 3 mas rounds at 9e-16 rad.
    assert (value(source, "east"), value(source, "north")) == pytest.approx((-3, 4), abs=1e-6)


def test_directions_there_and_back() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        origin = (rng.uniform(0, 2 * np.pi), rng.uniform(-1.5, 1.5))
        lm = rng.uniform(-0.6, 0.6, 2) * 10.0 ** rng.uniform(-9, 0)
        # Directions hold 9e-16 rad at 2 pi, and near a pole right ascension costs no more.
        np.testing.assert_allclose(radec_to_lm(*lm_to_radec(*lm, origin), origin), lm, atol=3e-15)
    with pytest.raises(ModelError, match="90 deg or more"):
        radec_to_lm(np.pi, 0.0, (0.0, 0.0))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"Q": "1 Jy"}, "Stokes I only"),
        ({"spectral_index": [-0.7, 0.1], "ref_freq": "1 GHz"}, "power laws only"),
        ({"polynomial": -0.7, "ref_freq": "1 GHz"}, "power laws only"),
    ],
)
def test_what_a_difmap_model_cannot_say(tmp_path: Path, extra: dict, message: str) -> None:
    model = SkyModel([PointSource("a", east="0 mas", north="0 mas", I="1 Jy", **extra)])
    with pytest.raises(ModelError, match=message):
        write_difmap(model, tmp_path / "a.mod")
    absolute = SkyModel([PointSource("a", ra="10 deg", dec="0 deg", I="1 Jy")])
    with pytest.raises(ModelError, match=r"offsets; give \[sky\] centre"):
        write_difmap(absolute, tmp_path / "a.mod")


def test_formats_by_the_end_of_a_name(path: Path, tmp_path: Path) -> None:
    model = read_sky(path)
    write_sky(model, tmp_path / "a.toml")
    write_sky(model, tmp_path / "a.skymodel")
    assert read_model(tmp_path / "a.toml") == model
    (first, *_) = read_bbs(tmp_path / "a.skymodel").sources
    expected = lm_to_radec(1.0 * MAS, math.sqrt(3.0) * MAS, model.centre)
    # Seconds with 12 decimals.
    np.testing.assert_allclose((value(first, "ra"), value(first, "dec")), expected, atol=1e-15)
    with pytest.raises(ModelError, match=r"unknown format; the name must end in one of \.toml"):
        write_sky(model, tmp_path / "a.xyz")


def test_disks_spheres_and_rings(tmp_path: Path) -> None:
    (tmp_path / "a.mod").write_text(
        "! shapes\n1 2 90 4 0.5 30 2\n1 2 90 4 1 0 3\n1 2 90 4 2 30 4\n1 2 90 0 1 0 2\n"
    )
    disc, sphere, ring, point = read_difmap(tmp_path / "a.mod").sources
    assert [source.type for source in (disc, sphere, ring, point)] == ["disc", "sphere", "ring", "point"]
    assert (disc.emaj.value, disc.ratio.value, disc.pa.value) == (4.0, 0.5, 30.0)
    # An axial ratio above 1 turns the ellipse.
    assert (ring.emaj.value, ring.ratio.value, ring.pa.value) == (8.0, 0.5, 120.0)
