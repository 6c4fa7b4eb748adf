"""Component lists of WSClean, BBS and Tigger; lines typed from the formats' descriptions."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from astropy.coordinates import Angle
from hypothesis import given, settings
from hypothesis import strategies as st

from biro.models import ModelError, Noise, PartitionView, PointSource, SkyModel, Uniform, read_sky
from biro.models.components.spectrum import STOKES
from biro.models.files import read_bbs, write_bbs, write_tigger
from biro.models.files.components import ListComponent, from_model, to_model

ARCSEC = np.pi / 648000

WSCLEAN = """Format = Name, Type, Ra, Dec, I, SpectralIndex, LogarithmicSI, \
ReferenceFrequency='125584411.621094', MajorAxis, MinorAxis, Orientation
s0c0,POINT,08:28:05.152,39.35.08.511,0.5,[-0.07,-0.08],false,125584411.621094,,,
s0c1,POINT,-00:22:27.658,-00.37.38.353,-0.25,[-0.8,0.2],true,,,,
s1c0,GAUSSIAN,08:31:10.37,+41.47.17.131,2,[],false,125584411.621094,83.5,40.25,-30
"""
BBS = """# (Name, Type, Patch, Ra, Dec, I='1.5', Orientation='10', Q, U, V, MajorAxis, \
MinorAxis, ReferenceFrequency='60e6', SpectralIndex='[0.0]') = format
# a comment

 , , CygA, 19:59:27.0, +40.44.02
 , , Other, 19:59:27.0, +40.44.02
CygA 1, POINT, CygA, 19h59m28.5s, +40d44m02.1s, 4e3, , 12.5, -1, 0.5, , , 73.8e6, [-0.7, -0.1]
CygA_2, GAUSSIAN, CygA, 299.87 deg, -40.75 deg, , , , , , 20, 10, , -0.85
CygA_2, GAUSSIAN, CygA, 5.2 rad, 0.7 rad, 1, 20, , , , 10, 20
zero,GAUSSIAN, , 01:02:03, -00.00.01, 1, , , , , 0, 0
"""
TIGGER = """#format: name ra_h ra_m ra_s dec_d dec_m dec_s i q u v spi spi2 rm emaj_s emin_s pa_d freq0 tag
a 12 29 6.7 -0 03 08.6 2.5 0.1 0.2 -0.3 -0.7 0.1 0 0 0 0 1.4e9 bright,+typ=pnt
b 1 0 0 30 0 0 1   0 0 0 0 0 0 10 4 30 # the last column falls back
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def by_name(path: Path) -> dict[str, ListComponent]:
    return {component.name: component for component in from_model(read_sky(path))}


def flux(component: ListComponent, stokes: str, freq: float) -> float:
    """As Component documents its terms."""
    i = STOKES.index(stokes)
    if not component.terms[i]:
        return component.stokes[i]
    x = freq / component.ref_freq
    terms = component.terms[i]
    if component.log_spectrum:
        return component.stokes[i] * x ** sum(t * np.log(x) ** k for k, t in enumerate(terms))
    return component.stokes[i] * (1 + sum(t * (x - 1) ** (k + 1) for k, t in enumerate(terms)))


def test_wsclean_lines(tmp_path: Path) -> None:
    found = by_name(write(tmp_path / "sources.txt", WSCLEAN))
    first, second, third = found["s0c0"], found["s0c1"], found["s1c0"]
    assert first.ra == pytest.approx(Angle("8h28m5.152s").rad, rel=4e-16)
    assert first.dec == pytest.approx(Angle("39d35m8.511s").rad, rel=4e-16)
    assert second.ra == pytest.approx(Angle("-0h22m27.658s").rad, rel=4e-16)
    assert second.dec == pytest.approx(Angle("-0d37m38.353s").rad, rel=4e-16)
    nu0 = 125584411.621094
    x = 1.3
    # ordinary polynomial: terms in Jy
    assert flux(first, "I", x * nu0) == pytest.approx(0.5 - 0.07 * 0.3 - 0.08 * 0.09, rel=1e-14)
    # logarithmic: S = S0 x^(c0 + c1 log10 x)
    assert flux(second, "I", x * nu0) == pytest.approx(-0.25 * x ** (-0.8 + 0.2 * np.log10(x)), rel=1e-14)
    assert flux(third, "I", x * nu0) == 2
    assert third.shape == pytest.approx((83.5 * ARCSEC, 40.25 * ARCSEC, np.deg2rad(-30)), rel=1e-15)
    assert first.shape is None


def test_bbs_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="biro.models"):
        found = by_name(write(tmp_path / "sky.model", BBS))
    assert "2 patches" in caplog.text
    assert set(found) == {"CygA_1", "CygA_2", "CygA_2_2", "zero"}
    first, second, third = found["CygA_1"], found["CygA_2"], found["CygA_2_2"]
    assert first.ra == pytest.approx(Angle("19h59m28.5s").rad, rel=4e-16)
    assert first.stokes == (4000, 12.5, -1, 0.5)
    x = 2.0
    assert flux(first, "I", x * 73.8e6) == pytest.approx(4000 * x ** (-0.7 - 0.1 * np.log10(2)), rel=1e-14)
    assert flux(first, "Q", x * 73.8e6) == 12.5  # terms act on I alone
    assert second.stokes[0] == 1.5
    assert second.ra == pytest.approx(np.deg2rad(299.87), rel=4e-16)
    assert second.dec == pytest.approx(np.deg2rad(-40.75), rel=4e-16)
    assert second.shape == pytest.approx((20 * ARCSEC, 10 * ARCSEC, np.deg2rad(10)), rel=1e-15)
    assert flux(second, "I", 120e6) == pytest.approx(1.5 * 2**-0.85, rel=1e-14)
    # the longer axis is the major one: turned by 90 degrees
    assert third.shape == pytest.approx((20 * ARCSEC, 10 * ARCSEC, np.deg2rad(110)), rel=1e-15)
    assert found["zero"].shape is None
    assert found["zero"].dec == pytest.approx(-ARCSEC, rel=1e-15)


def test_a_patch_line_stays_one_where_type_has_a_default(tmp_path: Path) -> None:
    text = (
        "Format = Name, Type='POINT', Patch, Ra, Dec, I\n"
        ", , A, 1:0:0, 2.0.0\n, , B, 1:0:0, 2.0.0\nx, , A, 1:0:0, 2.0.0, 3\n"
    )
    assert set(by_name(write(tmp_path / "sky.model", text))) == {"x"}


def test_a_polarised_fraction_is_not_passed_over(tmp_path: Path) -> None:
    text = "Format = Name, Ra, Dec, I, PolarizedFraction, PolarizationAngle\nx, 1:0:0, 2.0.0, 3, {}, 0.3\n"
    assert by_name(write(tmp_path / "sky.model", text.format("0")))["x"].stokes == (3, 0, 0, 0)
    with pytest.raises(
        ModelError, match=r"line 2: polarizedfraction: is not supported without RotationMeasure"
    ):
        read_sky(write(tmp_path / "sky.model", text.format("0.1")))


def test_tigger_lines(tmp_path: Path) -> None:
    found = by_name(write(tmp_path / "sky.lsm.txt", TIGGER))
    a, b = found["a"], found["b"]
    assert a.ra == pytest.approx(Angle("12h29m6.7s").rad, rel=4e-16)
    assert a.dec == pytest.approx(Angle("-0d3m8.6s").rad, rel=4e-16)
    assert a.stokes == (2.5, 0.1, 0.2, -0.3)
    x = 1.5
    for stokes, value in zip("IQUV", a.stokes, strict=True):
        expected = value * x ** (-0.7 + 0.1 * np.log(x))
        assert flux(a, stokes, x * 1.4e9) == pytest.approx(expected, rel=1e-14)
    assert b.shape == pytest.approx((10 * ARCSEC, 4 * ARCSEC, np.deg2rad(30)), rel=1e-15)


def test_tigger_columns_of_other_kinds(tmp_path: Path) -> None:
    text = "#format: i ra_rad dec_d name pol_frac pol_pa_d junk ra_err_d\n2 0.5 -30 x 10% 15 ? ?\n"
    found = by_name(write(tmp_path / "a.txt", text))
    assert found["x"].ra == 0.5
    assert found["x"].dec == pytest.approx(-np.pi / 6, rel=1e-15)
    expected = (2, 0.2 * np.cos(np.pi / 6), 0.2 * np.sin(np.pi / 6), 0)
    assert found["x"].stokes == pytest.approx(expected, rel=1e-14)


def test_a_list_binds(tmp_path: Path) -> None:
    model = read_sky(write(tmp_path / "sources.txt", WSCLEAN))
    field = PartitionView("f", "f", "s", (1.06, 0.5), np.zeros(1), np.array([1e9]), ("A",))
    with pytest.raises(ModelError, match="below the horizon"):
        model.bind([PartitionView("f", "f", "s", (2.2 + np.pi, -0.7), np.zeros(1), np.array([1e9]), ("A",))])
    bound = model.bind([field])
    assert bound.source_names == ("s0c0", "s0c1", "s1c0")
    assert bound.parameter_names == ("noise.factor",)


@st.composite
def components(draw: st.DrawFn, tigger: bool) -> ListComponent:
    number = st.floats(-1e4, 1e4, allow_nan=False).map(lambda x: 0.0 if abs(x) < 1e-8 else x)
    stokes = tuple(draw(st.lists(number, min_size=4, max_size=4)))
    log = tigger or draw(st.booleans())
    terms = tuple(draw(st.lists(number, max_size=3)))
    terms = terms if terms and terms[-1] != 0 and stokes[0] != 0 else ()
    axes = sorted(draw(st.tuples(*[st.floats(1e-9, 1e-2)] * 2)), reverse=True)
    return ListComponent(
        name="s",
        ra=draw(st.floats(0, 6.283)),
        dec=draw(st.floats(-1.5707, 1.5707)),
        stokes=stokes,
        terms=(terms,) * 4 if tigger else (terms, (), (), ()),
        log_spectrum=log or not terms,
        ref_freq=draw(st.floats(1e6, 1e12)) if terms else None,
        shape=(*axes, draw(st.floats(-7, 7))) if draw(st.booleans()) else None,
    )


def numbers(component: ListComponent) -> np.ndarray:
    values = [component.ref_freq or 0.0, *(component.shape or ()), *component.stokes]
    return np.array([*values, *(t for terms in component.terms for t in terms)])


@pytest.mark.parametrize("tigger", [False, True])
def test_writing_and_reading(tigger: bool, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"

    @settings(max_examples=60, deadline=None)
    @given(st.lists(components(tigger), min_size=1, max_size=4))
    def check(made: list[ListComponent]) -> None:
        before = from_model(to_model(made))
        (write_tigger if tigger else write_bbs)(to_model(made), path)
        after = from_model(read_sky(path))
        assert [c.name for c in before] == [c.name for c in after]
        for one, other in zip(before, after, strict=True):
            # through arcsec and degrees, log10 and back: some roundings
            np.testing.assert_allclose(numbers(other), numbers(one), rtol=2e-15)
            assert one.log_spectrum == other.log_spectrum
            # 12 decimals of a second of time; 2e-16 of a turn of rounding
            assert other.ra == pytest.approx(one.ra, abs=3e-15)
            assert other.dec == pytest.approx(one.dec, abs=1e-15)

    check()


def test_offsets_are_written_as_directions(tmp_path: Path) -> None:
    source = PointSource("a", east="0 deg", north="1 deg", I="1 Jy", pol_fraction=0.5, pol_angle="45 deg")
    with pytest.raises(ModelError, match="states no centre"):
        write_bbs(SkyModel([source]), tmp_path / "x")
    write_bbs(SkyModel([source], centre="30 deg 0 deg"), tmp_path / "x")
    (found,) = from_model(read_bbs(tmp_path / "x"))
    assert found.ra == pytest.approx(np.pi / 6, rel=1e-15)
    assert np.sin(found.dec) == pytest.approx(np.pi / 180, rel=1e-14)  # m is the sine
    assert found.stokes[2] == pytest.approx(0.5, rel=1e-15)


def test_what_a_list_cannot_say(tmp_path: Path) -> None:
    here = {"ra": "1 deg", "dec": "2 deg", "ref_freq": "1 GHz"}

    def model(**given: object) -> SkyModel:
        return SkyModel([PointSource("a", **(here | {"I": "1 Jy"} | given))], noise=Noise(1))

    for write_list in (write_bbs, write_tigger):
        with pytest.raises(ModelError, match="has a prior"):
            write_list(model(I=Uniform(0, 1, "Jy")), tmp_path / "x")
        with pytest.raises(ModelError, match="varies in time"):
            write_list(model(I=["1 Jy", "2 Jy"]), tmp_path / "x")
        with pytest.raises(ModelError, match="Q has a spectrum"):
            write_list(model(Q="1 Jy", spectral_index={"I": 1, "Q": 2}), tmp_path / "x")
    with pytest.raises(ModelError, match="no polynomial"):
        write_tigger(model(polynomial=1), tmp_path / "x")
    with pytest.raises(ModelError, match="at most 9"):
        write_tigger(model(spectral_index=[1.0] * 10), tmp_path / "x")


HEAD = "Format = Name, Type, Ra, Dec, I, SpectralIndex, LogarithmicSI, ReferenceFrequency, MajorAxis\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Format = Name, Type, Ra, Dec, Ii", "line 1: unknown column 'Ii'"),
        ("Format = Name, Type, Ra, Dec, I, MajrAxis", "did you mean 'majoraxis'?"),
        ("Format = Name, Type, Ra, I", "the format lacks dec"),
        ("Format = Name, I, I, Ra, Dec", "occurs twice"),
        (HEAD, "no sources"),
        (HEAD + "a,POINT,1:2:3,4.5.6,x", "line 2: i: expected a finite number, found 'x'"),
        (HEAD + "a,POINT,1:2:3,4.5.6,1_0", "i: expected"),
        (HEAD + "a,POINT,1:2:3,4.5.6,inf", "i: expected"),
        (HEAD + "a,DISK,1:2:3,4.5.6,1", "type: POINT or GAUSSIAN, found 'DISK'"),
        (HEAD + "a,POINT,1:72:3,4.5.6,1", "ra: minutes and seconds"),
        (HEAD + "a,POINT,17,4.5.6,1", "ra: expected 12:29:06.7 or a number with unit, found '17'"),
        (HEAD + "a,POINT,1:2:3,94.5.6,1", "dec: out of range"),
        (HEAD + "a,POINT,,4.5.6,1", "ra: expected"),
        (HEAD + "a,POINT,1:2:3,4.5.6,0,[1],false,1e8", "i: is 0 with linear spectral terms"),
        (HEAD + "a,POINT,1:2:3,4.5.6,1,[1],true", "referencefrequency: a spectrum needs"),
        (HEAD + "a,POINT,1:2:3,4.5.6,1,[1],maybe,1e8", "logarithmicsi: true or false"),
        (HEAD + "a,POINT,1:2:3,4.5.6,1,[1,true", "brackets do not match"),
        (HEAD + "a,GAUSSIAN,1:2:3,4.5.6,1,,,,-3", "axes must not be negative"),
        ("#format: name ra_h i\n", "no column for the declination"),
        ("#format: ra_h dec_d i spi\n1 2 3 4", "freq0: a spectral index needs"),
        ("#format: ra_h dec_d i\n1 2", "line 2: i: is missing"),
        ("#format: ra_h dec_d i\n1 2 __import__('os')", "i: expected a finite number"),
        ("#format: ra_h dec_d i emaj_s\n1 2 3 4", "emaj, emin and pa go together"),
        ("#format: ra_h dec_d i\n1 92 3", "dec: must lie within"),
        ("hello", "not valid TOML"),
    ],
)
def test_errors_name_file_line_and_column(text: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", text)
    with pytest.raises(ModelError) as caught:
        read_sky(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_a_bbs_list_needs_a_format(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no format line"):
        read_bbs(write(tmp_path / "x", "a,POINT,1:2:3,4.5.6,1"))
