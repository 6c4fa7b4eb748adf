"""Lists as other programs write them: named columns of OSKAR, HTML of Tigger, ASCII of PyBDSF."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biro.models import GaussianSource, Noise, PartitionView, PointSource, SkyModel, read_sky, write_sky
from biro.models.components.direction import parse_direction
from biro.models.errors import ModelError
from biro.models.files.components import ListComponent, from_model
from biro.models.files.difmap import read_difmap, read_marks
from biro.models.files.toml import from_toml

Refused = Callable[[str, str, str], None]
DEG, ARCSEC = np.pi / 180, np.pi / 648000


def components(tmp_path: Path, name: str, text: str) -> dict[str, ListComponent]:
    (tmp_path / name).write_text(text)
    return {one.name: one for one in from_model(read_sky(tmp_path / name))}


# After the examples of OSKAR's documentation of sky models.
NAMED = """#(RaD, DecD, I, RefFreq, SpectralIndex, LogarithmicSI, Spec_Curv, Maj, Min, PA='30', Name) = format

# A comment
0.00, 10.0, 1.0,      ,                   ,      ,     ,    ,    ,    , "a"
0.02, 10.2, 1.2, 102e6, [-0.7, 0.05]      , true ,     , 60 , 30 ,    , 'b c'
0.03, 10.3, 1.3, 103e6, [0.08, 0.07, 0.02], false,     , 60 , 30 , -10, c
0.04  10.4  1.4  104e6  -0.6              ,      , 0.1 , 0  , 30 ,    , d
"""


@pytest.mark.parametrize("name", ["sky.osm", "any_name"])
def test_named_columns_of_oskar(tmp_path: Path, name: str) -> None:
    found = components(tmp_path, name, NAMED)
    a, b, c, d = (found[key] for key in ("a", "b_c", "c", "d"))
    assert (a.ra, a.dec, a.stokes, a.terms[0], a.shape) == (0.0, 10 * DEG, (1.0, 0, 0, 0), (), None)
    # log10 polynomials: a0 + a1 log10(x), with log10(x) = ln(x) / ln(10).
    assert (b.terms[0], b.ref_freq) == (pytest.approx((-0.7, 0.05 / np.log(10))), 102e6)
    assert b.shape == pytest.approx((60 * ARCSEC, 30 * ARCSEC, 30 * DEG))
    assert b.frame == "source"
    assert (c.log_spectrum, c.terms[0]) == (False, pytest.approx(np.array([0.08, 0.07, 0.02]) / 1.3))
    assert c.shape[2] == pytest.approx(-10 * DEG)
    # x^a exp(q ln(x)^2); one axis is no Gaussian.
    assert (d.terms[0], d.shape) == ((-0.6, 0.1), None)


def test_polarisation_and_units_of_named_columns(tmp_path: Path) -> None:
    text = """format = Ra Dec StokesI q_jy U pol_ang pol_frac RM ReferenceFrequency='1e9'
 0.5 -0.25 2 0.1 0.2 , , , 5 ,
 30deg 12d30m00s 2 , , , 15 0.1 5 ,
 02:00:00 -12:30:00 2 , , , 15 0.1 , ,
"""
    (tmp_path / "sky.osm").write_text(text)
    a, b, c = read_sky(tmp_path / "sky.osm").sources

    def values(source: PointSource, *keys: str) -> list[float]:
        found = [getattr(source, key) for key in keys]
        return [(one[0] if isinstance(one, tuple) else one).value for one in found]

    assert values(a, "ra", "dec", "Q", "U", "rm") == [0.5, -0.25, 0.1, 0.2, 5.0]
    assert a.rm_reference == "ref_freq"
    angle = 30 * DEG
    expected = [30 * DEG, 12.5 * DEG, 0.2 * np.cos(angle), 0.2 * np.sin(angle), 5.0]
    assert values(b, "ra", "dec", "Q", "U", "rm") == pytest.approx(expected)
    assert b.rm_reference == "zero"
    assert values(c, "ra", "dec", "Q") == pytest.approx([30 * DEG, -12.5 * DEG, expected[2]])
    assert c.rm is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0, 1, [1, 2], 1e8,", r"line 2: i: has several values, which are not read"),
        ("0, 1, 1, 1e8, 1e5", r"line 2: linewidth: a spectral line is not read"),
        ("0, 91, 1, 1e8,", r"line 2: dec: must lie within -90 \.\. 90 deg"),
        ("400, 1, 1, 1e8,", r"line 2: ra: must lie within 0 \.\. 24 h"),
        ("0, 1, x, 1e8,", r"line 2: i: expected a finite number, found 'x'"),
        ("0, 1, 1", r"line 2: expected 5 columns, as the format has, found 3"),
    ],
)
def test_named_columns_that_are_refused(refused: Refused, line: str, message: str) -> None:
    refused("sky.osm", f"Format = RaD, DecD, I, RefFreq, LineWidth\n{line}\n", message)


HTML = """<HTML><BODY mdltype=SkyModel>
<H1>Source list</H1>
<TABLE BORDER=1>
<TR mdltype=Source ><TD mdltype=str mdlval="'B290G'"><A>name</A></TD> <TD mdltype=Position >
<A mdltype=float mdlval="1.492"><A>ra</A> </A> <A mdltype=float mdlval="0.8708"><A>dec</A> </A> </TD>
<TD mdltype=Polarization ><A mdltype=float mdlval="0.038"><A>I</A></A> <A mdltype=float mdlval="0.0"></A>
<A mdltype=float mdlval="0.001"></A> <A mdltype=float mdlval="-0.002"></A> </TD>
<TD mdltype=Gaussian mdlattr="shape" ><A>shape:</A> <A mdltype=float mdlval="3e-05"></A>
<A mdltype=float mdlval="2e-06"></A> <A mdltype=float mdlval="2.5"></A> </TD>
<TD mdltype=SpectralIndex mdlattr="spectrum" ><A mdltype=list><A mdltype=float mdlval="-0.8"></A>
<A mdltype=float mdlval="0.1"></A></A> <A mdltype=float mdlval="1424500000.0"></A> </TD>
<TD mdltype=float mdlattr="Iapp" mdlval="0.033559"><A>Iapp</A> </TD> </TR>
<TR mdltype=Source ><TD mdltype=str mdlval="'A0'"></TD> <TD mdltype=Position >
<A mdltype=float mdlval="1.4"></A> <A mdltype=float mdlval="0.87"></A> </TD>
<TD mdltype=PolarizationWithRM ><A mdltype=float mdlval="2.0"></A> <A mdltype=float mdlval="0.1"></A>
<A mdltype=float mdlval="0.2"></A> <A mdltype=float mdlval="0.0"></A> <A mdltype=float mdlval="5.0"></A>
<A mdltype=float mdlval="1.4e9"></A> </TD> </TR>
</TABLE></BODY></HTML>
"""


def test_html_of_tigger(tmp_path: Path) -> None:
    (tmp_path / "sky.lsm.html").write_text(HTML)
    point, gaussian = sorted(read_sky(tmp_path / "sky.lsm.html").sources, key=lambda source: source.name)
    assert isinstance(gaussian, GaussianSource)
    assert [gaussian.ra.value, gaussian.dec.value] == [1.492, 0.8708]
    assert [getattr(gaussian, key)[0].value for key in "IUV"] == [0.038, 0.001, -0.002]
    assert [getattr(gaussian, key).value for key in ("emaj", "emin", "pa")] == [3e-5, 2e-6, 2.5]
    assert [term.value for term in gaussian.spectral_index] == [-0.8, 0.1]
    assert gaussian.ref_freq.value == 1424500000.0
    assert (gaussian.frame, point.name) == ("source", "A0")
    assert (point.rm.value, point.rm_reference, point.ref_freq.value) == (5.0, "ref_freq", 1.4e9)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "mdltype=Gaussian",
            "mdltype=FITSImage",
            "source 1: its shape is FITSImage, which biro does not read",
        ),
        ('mdlval="0.8708"', 'mdlval="1.7"', r"source 1: dec: must lie within -90 \.\. 90 deg"),
        ('mdlval="0.038"', "mdlval=\"__import__('os')\"", "source 1: Polarization: I: expected"),
        ("mdltype=SpectralIndex", "mdltype=Line", "source 1: its spectrum is Line"),
    ],
)
def test_html_that_is_refused(refused: Refused, old: str, new: str, message: str) -> None:
    refused("sky.lsm.html", HTML.replace(old, new, 1), message)


def test_ascii_of_pybdsf(tmp_path: Path) -> None:
    """With the heading of PyBDSF 1.6, as in a list of Tigger's tests."""
    text = """# Gaussian list for deep4_s1.restored.fits
# Generated by PyBDSM version 1.6 (LOFAR revision 23087)
# Reference frequency of the detection ("ch0") image: 1.82259e+09 Hz
# Equinox : 2000.0

# Gaus_id Source_id RA E_RA DEC E_DEC Total_flux Maj Min PA DC_Maj DC_Min DC_PA S_Code
   0    0  72.543361   0.000187 -81.016783   0.000189   0.046954   0.03 0.03 46.1 0.0 0.0 30.8  S
   1    1  72.106453   0.000952 -80.250596   0.001035   0.005157   0.04 0.03 9.6 0.019282 0.008807 8.5 S
"""
    found = components(tmp_path, "deep4.gaul", text)
    assert found["g0"].shape is None
    assert found["g1"].shape == pytest.approx((0.019282 * DEG, 0.008807 * DEG, 8.5 * DEG))
    assert found["g1"].frame == "source"
    assert (found["g1"].ra, found["g1"].stokes[0]) == (pytest.approx(72.106453 * DEG), 0.005157)


def test_the_last_of_several_columns_counts_as_in_tigger(tmp_path: Path) -> None:
    text = "#format: name ra_d dec_d i q u v i q u v - -\nA0 85.65 49.85 0 0 0 0 9.859 0.1 0 0 x y\n"
    assert components(tmp_path, "two.lsm.txt", text)["A0"].stokes == (9.859, 0.1, 0, 0)


HOURS = "#format: name ra_h ra_m ra_s dec_d dec_m dec_s i\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.lsm.txt", HOURS + "a 1 0 0 45 -30 00 1\n", "line 2: dec_m: must be 0 or more.*found -30"),
        ("a.lsm.txt", HOURS + "a 1 90 0 45 30 00 1\n", "line 2: ra_m: must be 0 or more.*found 90"),
        ("a.lsm.txt", HOURS + "a 1 0 0 45 30 61 1\n", "line 2: dec_s: must be 0 or more"),
        ("a.lsm.txt", HOURS + "a 30 0 0 45 30 0 1\n", r"line 2: ra: must lie within 0 \.\. 24 h, found 30 h"),
        (
            "a.bbs",
            "Format = Name, Ra, Dec, I\na, 30:00:00, 1deg, 1\n",
            "line 2: ra: hours must be 24 at most",
        ),
        ("a.bbs", "Format = Name, Ra, Dec, I\na, 1:90:00, 1deg, 1\n", "line 2: ra: minutes and seconds"),
        ("a.bbs", "Format = Name, Ra, Dec, I\na, 1deg, 45.-30.00, 1\n", "line 2: dec: "),
        ("a.bbs", "Format = Name, Ra, Dec, I\na, 400deg, 45deg, 1\n", "line 2: ra: out of range"),
        ("a.osm", "# \n400 1 1\n", r"line 2: ra: must lie within 0 \.\. 24 h"),
        ("a.mod", "! Center RA: 30 0 0.0,  Dec: +38 01 35.8 (2000.0)\n1\n", "hours must be 24 at most"),
        ("a.mod", "! Center RA: 1 90 0.0,  Dec: +38 01 35.8 (2000.0)\n1\n", "minutes and seconds must be"),
    ],
)
def test_parts_of_angles_out_of_range(refused: Refused, name: str, text: str, message: str) -> None:
    refused(name, text, message)


def test_a_full_turn_is_in_range(tmp_path: Path) -> None:
    """And seconds of 60, which rounding writes."""
    found = components(tmp_path, "a.lsm.txt", HOURS + "a 24 0 0 -45 29 60.0 1\n")["a"]
    assert (found.ra, found.dec) == pytest.approx((2 * np.pi, -45.5 * DEG))
    assert parse_direction("24:00:00 1d0m0s")[0] == pytest.approx(2 * np.pi)


HEADING = "! Center RA: 04 18 21.27724,  Dec: +38 01 35.80018 (2000.0)\n"


@pytest.mark.parametrize("shift", [-7e-6, 0.0, 7e-6])
def test_a_centre_is_that_of_the_data_within_its_rounding(
    tmp_path: Path, view: Callable[..., PartitionView], shift: float
) -> None:
    """What the heading rounds away, 7e-6 s of 1e-5 s here, would be 0.1 mas."""
    (tmp_path / "one.mod").write_text(HEADING + "1.0 0.0 0.0\n")
    sky = read_sky(tmp_path / "one.mod")
    assert from_toml(sky.to_toml()) == sky  # a model file keeps it
    ra, dec = sky.centre
    here = (ra + shift * 15 * ARCSEC, dec + 0.6 * abs(shift) * ARCSEC)
    sources = SkyModel(sky.sources, centre=sky.centre, centre_error=sky.centre_error, noise=Noise(1))
    lm = sources.bind([view("f/x", here)]).sources(np.zeros((1, 0)), 0).lm
    np.testing.assert_array_equal(lm, 0.0)
    farther = (ra + 3e-5 * 15 * ARCSEC, dec)
    l = sources.bind([view("f/x", farther)]).sources(np.zeros((1, 0)), 0).lm[0, 0, 0]
    assert l == pytest.approx(-3e-5 * 15 * ARCSEC * np.cos(dec), rel=1e-6)


def test_a_centre_error_needs_a_centre() -> None:
    source = PointSource("a", east="0 rad", north="0 rad", I="1 Jy")
    with pytest.raises(ModelError, match="centre_error: needs centre"):
        SkyModel(source, centre_error="1 mas")
    with pytest.raises(ModelError, match="centre_error: must be 0"):
        SkyModel(source, centre=(0.0, 0.0), centre_error="1 deg")


def test_marks_of_difmap(tmp_path: Path) -> None:
    place = tmp_path / "a.mod"
    place.write_text(HEADING + "1.0v 0 0\n0.5 1.0v 30v 0.4v 0.5 20v 1\n0.1 1 2\n0.1 1 2 0 1 0 0 1e9 -0.7v\n")
    assert read_marks(place) == {
        "c1": ("I",),
        "c2": ("east", "north", "emaj", "pa"),
        "c4": ("spectral_index",),
    }


def test_what_was_fitted_is_marked_for_difmap(tmp_path: Path) -> None:
    """A list keeps its marks; a quantity with an error has four digits behind the first of the error."""
    place = tmp_path / "a.mod"
    place.write_text(HEADING + "1.0v 5 30\n0.5 1.0v 30v 0.4v 0.5 20v 1\n")
    model, marks = read_difmap(place), read_marks(place)
    without_errors = {name: dict.fromkeys(keys, math.nan) for name, keys in marks.items()}
    write_sky(model, tmp_path / "b.mod", without_errors)
    assert read_marks(tmp_path / "b.mod") == marks
    mas = math.pi / 648e6
    write_sky(model, tmp_path / "c.mod", {"c1": {"I": 0.02, "east": 3e-3 * mas, "north": 0.01 * mas}})
    lines = (tmp_path / "c.mod").read_text().splitlines()
    first = next(line for line in lines if line[0] != "!").split()
    # 0.02 Jy; 0.003 mas; 0.003 mas of 5 mas are 0.034 deg.
    assert first[:3] == ["1.000000v", "5.0000000v", "30.000000v"]
    assert first[3:] == ["0", "1", "0", "0", "0", "0"]


def test_position_angles_of_difmap_are_from_the_north_of_its_centre(tmp_path: Path) -> None:
    """Written from a sky whose angles are from the source's own north, and read back."""
    shape = {"emaj": "60 arcsec", "emin": "6 arcsec", "pa": "20 deg"}
    sky = SkyModel(
        GaussianSource("g", ra="48 deg", dec="80.5 deg", I="1 Jy", **shape), centre="30 deg 80 deg"
    )
    write_sky(sky, tmp_path / "a.mod")
    (source,) = read_difmap(tmp_path / "a.mod").sources
    assert source.frame == "phase_centre"
    assert source.pa.value == pytest.approx(20 - 17.745, abs=1e-3)  # physics: section 5
    write_sky(read_difmap(tmp_path / "a.mod"), tmp_path / "a.osm")
    (again,) = read_sky(tmp_path / "a.osm").sources
    assert (again.frame, again.pa.value) == ("source", pytest.approx(20 * DEG, abs=1e-9))
    write_sky(read_difmap(tmp_path / "a.mod"), tmp_path / "a.bbs")
    (again,) = read_sky(tmp_path / "a.bbs").sources
    assert (again.frame, again.pa.value) == ("phase_centre", pytest.approx(source.pa.value * DEG, abs=1e-9))
    lost = SkyModel(GaussianSource("g", ra="48 deg", dec="80.5 deg", I="1 Jy", frame="phase_centre", **shape))
    with pytest.raises(
        ModelError, match=r"pa is measured from the north of the phase centre.*give \[sky\] centre"
    ):
        write_sky(lost, tmp_path / "b.osm")
