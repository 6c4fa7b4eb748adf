"""UVFITS: real files against the Measurement Sets that CASA made of them, and all parts of the format."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from casacore.tables import table
from hostile import outcomes
from typer.testing import CliRunner
from uvfits_file import File, antenna_table, frequency_table, source_table

import biro
from biro.cli.app import app
from biro.errors import DataError, InputError
from biro.io.uvfits.read import read_uvfits

C = 299792458.0
Unpack = Callable[[str], Path]
REAL = ("vla_3c273_x", "vlba_j1033p6051_ku", "SR1_M87_2017_100_lo_hops_netcal_StokesI", "eht_fr_d_g_noisy")


def real_file(data_dir: Path, name: str) -> Path:
    (found,) = data_dir.rglob(f"{name}.uvfits")
    return found


# --- against CASA's importuvfits


@pytest.mark.parametrize("name", REAL)
def test_as_casa_reads_it(data_dir: Path, measurement_set: Unpack, name: str) -> None:
    """Numbers are equal to the last bit: both take the float32 of the file, and compute in double."""
    path = measurement_set(name)
    ours = read_uvfits(real_file(data_dir, name), autocorrelations=True)
    casa = biro.read_ms(path, autocorrelations=True)
    assert ours.labels == casa.labels
    assert ours.telescope == casa.telescope
    assert (ours.counts["usable"], ours.counts["total"]) == (casa.counts["usable"], casa.counts["total"])
    for mine, theirs in zip(ours.partitions, casa.partitions, strict=True):
        for item in ("uvw", "antenna1", "antenna2", "time", "time_index", "chan_freq", "chan_width"):
            np.testing.assert_array_equal(getattr(mine, item), getattr(theirs, item), item)
        for item in ("vis", "weight", "row_id", "chan_id", "corr_id"):
            np.testing.assert_array_equal(getattr(mine, item), getattr(theirs, item), item)
        assert mine.vis.dtype == theirs.vis.dtype
        for item in ("corr_type", "freq_frame", "frame", "n_antenna", "field_id", "spw_id", "data_desc_id"):
            assert getattr(mine, item) == getattr(theirs, item), item
        # The interval of the VLA is the spacing of its times here, which are exact to a microsecond.
        assert mine.interval == pytest.approx(theirs.interval, abs=1e-4)
        # casacore and astropy precess from B1950 with constants that agree to a milliarcsecond.
        np.testing.assert_allclose(mine.phase_centre, theirs.phase_centre, atol=1e-3 / 206265)
    with table(str(path / "ANTENNA"), ack=False) as antennas:
        # importuvfits puts the numbers of stations into NAME.
        assert list(ours.antenna_names) == antennas.getcol("STATION")
    # The VLA's centre is another in casacore than in the file (39 m); its longitude too: 1 cm over 12 km.
    between = [positions - positions[0] for positions in (ours.antenna_positions, casa.antenna_positions)]
    np.testing.assert_allclose(*between, atol=0.05)
    # CASA reads TIMSYS alone, and takes the TIMESYS = UTC of the EHT's files for TAI.
    scales = {"vla_3c273_x": ("TAI", -24.0)}
    assert (ours.time_scale, ours.utc_offset) == scales.get(name, ("UTC", 0.0))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vla_3c273_x", {"antennas": [0, 3, 5, 8], "uv_range": "5 klambda..100 klambda"}),
        ("vla_3c273_x", {"correlations": "RR,LL", "average_time": "60 s", "convention": "fourier"}),
        ("vlba_j1033p6051_ku", {"spws": [1, 6], "time_range": ("2010-12-24T05:00", "2010-12-24T12:00")}),
        ("vlba_j1033p6051_ku", {"fields": "J1033+6051", "channels": "0:1", "uv_range": "..4000 km"}),
    ],
)
def test_selected_as_of_a_measurement_set(
    data_dir: Path, measurement_set: Unpack, name: str, options: dict
) -> None:
    ours = biro.read(real_file(data_dir, name), **options)
    casa = biro.read(measurement_set(name), **options)
    assert 0 < ours.counts["usable"] < ours.counts["total"]
    assert ours.counts["not selected"] == casa.counts["not selected"]
    for mine, theirs in zip(ours.partitions, casa.partitions, strict=True):
        for item in ("uvw", "time", "vis", "weight", "row_id"):
            np.testing.assert_array_equal(getattr(mine, item), getattr(theirs, item), item)


def test_same_chi2(data_dir: Path, measurement_set: Unpack, tmp_path: Path) -> None:
    model = tmp_path / "sky.toml"
    model.write_text(
        "[noise]\nfactor = 1\n[[source]]\nname = 'core'\ntype = 'gaussian'\neast = '-0.0006 mas'\n"
        "north = '-0.0011 mas'\nI = '0.5236 Jy'\nemaj = '0.1375 mas'\nratio = 0.152\npa = '6.7 deg'\n"
    )
    name = "vlba_j1033p6051_ku"
    ours, casa = (
        biro.Likelihood(biro.read(path, correlations="RR,LL"), biro.read_model(model), backend="cpu").chi2([])
        for path in (real_file(data_dir, name), measurement_set(name))
    )
    assert ours.sum() == casa.sum()


def test_a_model_of_difmap(data_dir: Path, tmp_path: Path) -> None:
    """A peer's three components for J1033+6051 give chi2/2N = 1.5210 in Stokes I (README of the data)."""
    model = tmp_path / "model.mod"
    model.write_text(
        "! Flux (Jy) Radius (mas)  Theta (deg)  Major (mas)  Axial ratio   Phi (deg) T\n"
        "0.521960v 0.00139355v -151.625v 0.135110v 0.0916782v 7.03633v 1\n"
        "0.0217360v 1.06140v 170.510v 0.463192v 1.00000 0 1\n"
        "0.0176248v 3.56213v 166.636v 1.99219v 1.00000 0 1\n"
    )
    observation = biro.read(real_file(data_dir, "vlba_j1033p6051_ku"), correlations="RR,LL")
    likelihood = biro.Likelihood(observation, biro.read_sky(model), backend="cpu")
    # Both hands scatter about their mean; that is no matter of the model. Its weight is theirs together.
    scatter, n_mean = 0.0, 0
    for part in observation.partitions:
        weight = part.weight.astype(float)
        whole = weight.sum(axis=2, keepdims=True)
        mean = (weight * part.vis).sum(axis=2, keepdims=True) / np.where(whole > 0, whole, 1.0)
        scatter += float((weight * np.abs(part.vis - mean) ** 2).sum())
        n_mean += int(np.count_nonzero(whole))
    assert n_mean == 40140
    free = np.ones(likelihood.n_param)  # noise factors, which chi2 does not depend on
    assert (likelihood.chi2(free).sum() - scatter) / (2 * n_mean) == pytest.approx(1.5210, abs=5e-5)


# --- every part of the format, with numbers worked out by hand


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "small.uvfits"


def test_every_number_is_in_its_place(path: Path) -> None:
    found = read_uvfits(File().write(path))
    assert (found.antenna_names, found.telescope) == (("A", "B", "C"), "UNKNOWN")
    assert found.dish_diameter.tolist() == [12.0] * 3
    low, high = found.partitions
    # The reference pixel of FREQ is 2; IF 2 is 100 MHz higher and has channels of 2 MHz.
    np.testing.assert_array_equal(low.chan_freq, [1.399e9, 1.4e9, 1.401e9])
    np.testing.assert_array_equal(high.chan_freq, [1.498e9, 1.5e9, 1.502e9])
    assert high.chan_width.tolist() == [2e6] * 3
    assert low.corr_type == ("RR", "LL")
    np.testing.assert_allclose(low.phase_centre, np.radians([187.5, 12.25]), rtol=1e-15)
    # Seconds of light to metres; products of double precision, which may round twice.
    expected = np.array([[1, 0.5, 0], [2, 0.5, 0.25], [3, 0.5, 0], [4, -0.5, 0]]) * 1e-6 * C
    np.testing.assert_allclose(high.uvw, expected, rtol=4e-16)
    assert (low.antenna1.tolist(), low.antenna2.tolist()) == ([0, 0, 1, 0], [1, 2, 2, 1])
    # JD 2455197.625 is MJD 55197.125; the fourth group is a quarter of a day later.
    assert low.time.tolist() == [55197.125 * 86400] * 3 + [55197.375 * 86400]
    assert high.row_id.tolist() == [1, 3, 5, 7]
    assert high.vis[2, 1, 1] == (2 + 10 + 100 + 1000) * (1 - 1j)
    assert (low.weight[1:].min(), high.weight.min(), high.weight.max()) == (1, 2, 2)
    assert (low.weight[0, 0, 0], low.vis[0, 0, 0]) == (0, 0)
    assert {cause: n for cause, n in found.counts.items() if n} == {"FLAG": 1, "usable": 47, "total": 48}


def test_axes_in_another_order(path: Path) -> None:
    file = File()
    swapped = [file.axes[i] for i in (0, 2, 4, 3, 1, 5)]  # COMPLEX FREQ RA IF STOKES DEC
    given = file.values().transpose(0, 1, 5, 3, 2, 4, 6)
    ours = read_uvfits(File(axes=swapped, data=given).write(path))
    plain = read_uvfits(file.write(path))
    for mine, theirs in zip(ours.partitions, plain.partitions, strict=True):
        np.testing.assert_array_equal(mine.vis, theirs.vis)
        np.testing.assert_array_equal(mine.weight, theirs.weight)


@pytest.mark.parametrize(
    ("axis", "names"),
    [
        ((-1.0, -1.0), ("RR", "RL", "LR", "LL")),
        ((-5.0, -1.0), ("XX", "XY", "YX", "YY")),
        ((1.0, 1.0), ("I", "Q", "U", "V")),
        ((-4.0, 1.0), ("RR", "RL", "LR", "LL")),
    ],
)
def test_correlations(path: Path, axis: tuple[float, float], names: tuple[str, ...]) -> None:
    """AIPS counts RR LL RL LR from -1 down, XX YY XY YX from -5 down, and I Q U V from 1 up."""
    file = File()
    file.axes[1] = ("STOKES", 4, axis[0], 1.0, axis[1])
    (part, _) = read_uvfits(file.write(path)).partitions
    assert part.corr_type == names
    codes = {"RR": -1, "LL": -2, "RL": -3, "LR": -4, "XX": -5, "YY": -6, "XY": -7, "YX": -8}
    codes |= {"I": 1, "Q": 2, "U": 3, "V": 4}
    places = [round((codes[name] - axis[0]) / axis[1]) for name in names]
    assert part.vis[1, 0].real.tolist() == [1 + 1000 * place for place in places]


@pytest.mark.parametrize(
    "baseline",
    [
        [
            (
                "BASELINE",
                1.0,
                0.0,
                [65536.0 + 2048 + 2, 65536.0 + 2048 + 3, 65536.0 + 4096 + 3, 65536.0 + 2050],
            )
        ],
        [
            ("ANTENNA1", 1.0, 0.0, [1.0, 1.0, 2.0, 1.0]),
            ("ANTENNA2", 1.0, 0.0, [2.0, 3.0, 3.0, 2.0]),
            ("SUBARRAY", 1.0, 0.0, [1.0] * 4),
        ],
    ],
)
def test_other_numbers_of_baselines(path: Path, baseline: list) -> None:
    part = read_uvfits(File().replace("BASELINE", *baseline).write(path)).partitions[0]
    assert (part.antenna1.tolist(), part.antenna2.tolist()) == ([0, 0, 1, 0], [1, 2, 2, 1])


def test_subarrays(path: Path) -> None:
    """The second subarray has two of the antennas of the first, under other numbers, and one of its own."""
    second = antenna_table(2, "C A D")
    first = antenna_table(1)
    second.data["STABXYZ"][:2] = first.data["STABXYZ"][[2, 0]]
    file = File(antennas=[second, first]).replace(
        "BASELINE", ("BASELINE", 1.0, 0.0, [258.0, 258.01, 259.01, 515.01])
    )
    found = read_uvfits(file.write(path))
    assert found.antenna_names == ("A", "B", "C", "D")
    part = found.partitions[0]
    assert (part.antenna1.tolist(), part.antenna2.tolist()) == ([0, 2, 2, 0], [1, 0, 3, 3])


def test_names_that_several_antennas_have(path: Path) -> None:
    found = read_uvfits(File(antennas=[antenna_table(names="EA EA X")]).write(path))
    assert found.antenna_names == ("1", "2", "X")


def test_names_that_do_not_print(path: Path) -> None:
    text = File(antennas=[antenna_table(names="A BELL C")]).write(path).read_bytes()
    path.write_bytes(text.replace(b"BELL", b"B\a\nL"))
    assert read_uvfits(path).antenna_names == ("A", r"B\x07\nL", "C")


def test_sources_and_frequency_ids(path: Path) -> None:
    file = File(others=[frequency_table([4, 9], sideband=-1), source_table(offset=1e3)])
    file.parameters += [("SOURCE", 1.0, 0.0, [7, 7, 3, 7]), ("FREQSEL", 1.0, 0.0, [4, 4, 4, 9])]
    file.axes[4], file.axes[5] = ("RA", 1, 0.0, 1.0, 1.0), ("DEC", 1, 0.0, 1.0, 1.0)
    found = read_uvfits(file.write(path))
    assert [(p.field, p.spw_id, p.row_id.tolist()) for p in found.partitions] == [
        ("3C84", 0, [0, 2]),
        ("3C84", 1, [1, 3]),
        ("3C84", 2, [6]),
        ("3C84", 3, [7]),
        ("3C286", 0, [4]),
        ("3C286", 1, [5]),
    ]
    # SIDEBAND = -1: frequencies of IF 2 fall.
    np.testing.assert_array_equal(found.partitions[1].chan_freq, [1.502e9, 1.5e9, 1.498e9])
    np.testing.assert_array_equal(found.partitions[3].chan_freq, [1.512e9, 1.51e9, 1.508e9])
    np.testing.assert_allclose(found.partitions[4].phase_centre, np.radians([202.8, 30.5]), rtol=1e-15)
    assert found.partitions[3].vis[0, 1, 0] == 113 * (1 - 1j)
    assert any("FREQOFF" in note and "3C84" in note for note in found.notes)
    (one,) = read_uvfits(path, fields="3C286", spws=1).partitions
    assert one.row_id.tolist() == [5]


def test_integers_with_a_scale(path: Path) -> None:
    """value = stored * BSCALE + BZERO, weights times WTSCAL too; BLANK stands for no value."""
    file = File(bitpix=16, cards={"BSCALE": 0.5, "BZERO": 3.0, "BLANK": -9999, "EQUINOX": 2000.0})
    file.history = ["AIPS   WTSCAL =  9.0", "AIPS   WTSCAL =  2.5D-01 / CMPLX WTS=WTSCAL*(TAPE*BSCALE+BZERO)"]
    file.parameters = [
        *((f"{c * 2}", 1e-8, 0.0, [100.0, 200.0, 300.0, 400.0]) for c in "UVW"),
        ("BASELINE", 0.01, 0.0, [25800.0, 25900.0, 25800.0, 25900.0]),
        ("DATE", 0.125, 2455197.5, [1.0, 1.0, 1.0, 3.0]),
    ]
    values = file.values()
    values[..., 2] = 10
    values[3, 0, 0, 1, 2, 1, 0] = -9999
    found = read_uvfits(File(**{**vars(file), "data": values}).write(path))
    low, high = found.partitions
    assert low.vis[1, 2, 1] == (1201 * 0.5 + 3) + (-1201 * 0.5 + 3) * 1j
    assert (low.weight == (10 * 0.5 + 3) * 0.25).all()
    assert (high.weight[3, 2, 1], found.counts["non-finite data"]) == (0, 1)
    np.testing.assert_allclose(low.uvw[:, 0], np.array([1, 2, 3, 4]) * 1e-6 * C, rtol=4e-16)
    assert low.time.tolist() == [55197.125 * 86400] * 3 + [55197.375 * 86400]


def test_double_precision_stays(path: Path) -> None:
    part = read_uvfits(File(bitpix=-64).write(path)).partitions[0]
    assert (part.vis.dtype, part.weight.dtype) == (np.complex128, np.float64)


def test_antenna_positions(path: Path) -> None:
    """On the surface x points to the local meridian, here at 90 deg east; left-handed y points west."""
    east = antenna_table(ARRAYY=6e6, ARRAYZ=1e5)
    stored = np.asarray(east.data["STABXYZ"], float)
    found = read_uvfits(File(antennas=[east]).write(path)).antenna_positions
    expected = np.stack([-stored[:, 1], 6e6 + stored[:, 0], 1e5 + stored[:, 2]], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)  # a rotation in double precision of 6e6 m
    left = read_uvfits(File(antennas=[antenna_table(XYZHAND="LEFT")]).write(path)).antenna_positions
    np.testing.assert_array_equal(left, stored * (1, -1, 1))


def test_time_system(path: Path) -> None:
    found = read_uvfits(File(antennas=[antenna_table(TIMSYS="IAT")]).write(path))
    # TAI was 34 s ahead of UTC from 2009 to mid 2012.
    assert (found.time_scale, found.utc_offset) == ("TAI", -34.0)
    bare = antenna_table()
    del bare.header["TIMSYS"]
    found = read_uvfits(File(antennas=[bare]).write(path))
    assert found.time_scale == "UTC"
    assert any("time system" in note for note in found.notes)


def test_one_if_needs_no_frequency_table(path: Path) -> None:
    file = File(others=[])
    file.axes[3] = ("", 1, 1.0, 1.0, 1.0)
    (part,) = read_uvfits(file.write(path)).partitions
    np.testing.assert_array_equal(part.chan_freq, [1.399e9, 1.4e9, 1.401e9])


BAD: dict[str, tuple[Callable[[], File], str]] = {
    "no w": (
        lambda: File().replace("WW---SIN"),
        "no random parameter WW or WW-- or WW---SIN; there are UU---SIN",
    ),
    "ncp": (lambda: File().replace("UU---SIN", ("UU---NCP", 1.0, 0.0, [0.0] * 4)), "no random parameter UU "),
    "no baseline": (lambda: File().replace("BASELINE"), "no random parameter BASELINE"),
    "baseline nan": (
        lambda: File().replace("BASELINE", ("BASELINE", 1.0, 0.0, [np.nan] * 4)),
        "BASELINE is not finite",
    ),
    "station": (
        lambda: File().replace("BASELINE", ("BASELINE", 1.0, 0.0, [258.0, 265.0, 258.0, 258.0])),
        "station 9 of subarray 1 is not in table AIPS AN 1",
    ),
    "no antennas": (lambda: File(antennas=[]), "no table AIPS AN"),
    "no frequencies": (lambda: File(others=[]), "2 IFs, but no table AIPS FQ"),
    "source": (
        lambda: File(
            parameters=[*File().parameters, ("SOURCE", 1.0, 0.0, [8.0] * 4)],
            others=[frequency_table([1]), source_table()],
        ),
        "source 8 of the groups is not in table AIPS SU",
    ),
    "half a source": (
        lambda: File(parameters=[*File().parameters, ("SOURCE", 1.0, 0.0, [1.5] * 4)]),
        "SOURCE has values that are no whole numbers",
    ),
    "frequency": (
        lambda: File(parameters=[*File().parameters, ("FREQSEL", 1.0, 0.0, [2.0] * 4)]),
        "frequency id 2 of the groups is not in table AIPS FQ",
    ),
    "equinox": (lambda: File(cards={"EQUINOX": 1900.0}), "equinox 1900; expected 2000 or 1950"),
    "equinox text": (lambda: File(cards={"EQUINOX": "now"}), "EQUINOX = 'now' in the header"),
    "time system": (lambda: File(antennas=[antenna_table(TIMSYS="GPS")]), "time system 'GPS'"),
    "scale": (lambda: File(cards={"BSCALE": "one"}), "BSCALE = 'one' in the header; expected a number"),
    "uvw": (
        lambda: File(
            parameters=[*((p[0], 0.0, 0.0, p[3]) for p in File().parameters[:3]), *File().parameters[3:]]
        ),
        "UVW is zero in all rows",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_refused(path: Path, case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(DataError) as caught:
        read_uvfits(make().write(path))
    assert message in str(caught.value)
    assert str(caught.value).count(str(path)) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "axis", "message"),
    [
        (0, ("COMPLEX", 2, 1.0, 1.0, 1.0), "an axis COMPLEX of 2; expected 3"),
        (1, ("STOKES", 2, -8.0, 1.0, -1.0), "code -9 on the axis STOKES"),
        (2, ("FREQ", 3, -1e9, 1.0, 1e6), "expected positive ones"),
        (3, ("BEAM", 2, 1.0, 1.0, 1.0), "axis BEAM; expected each of COMPLEX"),
        (3, ("FREQ", 2, 1.0, 1.0, 1.0), "axis FREQ; expected each of"),
        (4, ("", 1, 1.0, 1.0, 1.0), "no phase centre"),
    ],
)
def test_axes_that_are_not_understood(path: Path, number: int, axis: tuple, message: str) -> None:
    file = File()
    file.axes[number] = axis
    file.data = np.ones((4, *(a[1] for a in reversed(file.axes))))
    with pytest.raises(DataError, match=message):
        read_uvfits(file.write(path))


def test_other_fits_files(tmp_path: Path) -> None:
    image = tmp_path / "image.fits"
    fits.PrimaryHDU(np.zeros((4, 4))).writeto(image)
    with pytest.raises(DataError, match=r"image\.fits: FITS without random groups, so not UVFITS"):
        biro.read(image)
    signature = fits.PrimaryHDU().header
    signature["NAXIS"], signature["NAXIS1"], signature["NAXIS2"] = 2, 777777701, 0
    aips = tmp_path / "aips.uvfits"
    aips.write_bytes(signature.tostring().encode())
    with pytest.raises(DataError, match="visibilities in an AIPS table"):
        read_uvfits(aips)


# --- told by content, not by name


def test_read_by_content(path: Path, data_dir: Path, measurement_set: Unpack) -> None:
    plain = biro.read(File().write(path))
    packed = path.with_name("no_suffix")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for one, other in zip(biro.read(packed).partitions, plain.partitions, strict=True):
        np.testing.assert_array_equal(one.vis, other.vis)
        np.testing.assert_array_equal(one.uvw, other.uvw)
    assert biro.read(measurement_set("wsrt_3c343.1"), time_limit=60).telescope == "WSRT"
    with pytest.raises(DataError, match="neither UVFITS nor a Measurement Set"):
        biro.read(data_dir / "README.md")
    with pytest.raises(DataError, match="no such file or directory"):
        biro.read(path.with_name("nothing"))
    with pytest.raises(InputError, match="this format has no column"):
        biro.read(path, column="DATA")
    with pytest.raises(InputError, match="this format has no scans"):
        biro.read(path, scans=3)
    with pytest.raises(InputError, match="read_uvfits has no argument 'scans'"):
        read_uvfits(path, scans=3)
    joined = biro.read([path, measurement_set("wsrt_3c343.1")], correlations=("RR", "XX"))
    assert joined.labels == ("M87/spw0", "M87/spw1", "3C343.1/spw0")
    with pytest.raises(InputError, match="read has no argument 'field'; did you mean 'fields'"):
        biro.read(path, field=0)


def test_commands_take_it(path: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    File().write(path)
    said = run(app, ["info", str(path), "--spws", "1"])
    assert said.exit_code == 0, said.output
    assert "M87/spw1" in said.output
    sky = tmp_path / "sky.toml"
    sky.write_text("[[source]]\nname = 'a'\neast = '0 deg'\nnorth = '0 deg'\nI = '1 Jy'\n")
    said = run(app, ["predict", str(path), str(sky)])
    assert said.exit_code == 2
    assert "a UVFITS file has no columns; give --out" in said.output


# --- files that are cut short, or changed


def test_files_that_mean_harm(path: Path, tmp_path: Path) -> None:
    whole = File().write(path).read_bytes()
    rng = np.random.default_rng(1)
    files = []
    for i in range(80):
        changed = bytearray(whole)
        if i < 40:
            changed = changed[: int(rng.integers(len(whole) - 2880 + 44))]  # a row of the last table has 44
        else:
            for place in rng.integers(len(whole), size=int(rng.integers(1, 30))):
                changed[place] = int(rng.integers(256))
        files.append(tmp_path / f"{i}.uvfits")
        files[-1].write_bytes(changed)
    for key, value in (
        ("GCOUNT", 10**15),
        ("PCOUNT", 10**9),
        ("NAXIS4", 10**12),
        ("NAXIS3", 0),
        ("GCOUNT", -4),
    ):
        card = f"{key:<8}= "
        at = whole.index(card.encode())
        files.append(tmp_path / f"{key}{value}.uvfits")
        files[-1].write_bytes(whole[:at] + f"{card}{value:>20}".ljust(80).encode() + whole[at + 80 :])
    said = outcomes("uvfits", files)
    assert all(said[80 + i] != "read" for i in range(5))
    assert "cut off" in said[80]
    assert sum(text == "read" for text in said[:40]) == 0
    shutil.rmtree(tmp_path)
