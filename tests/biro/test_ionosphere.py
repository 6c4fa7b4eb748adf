"""The ionosphere in likelihoods: the same as a source's rotation measure, fitted, read, asked of spinifex."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import biro
from biro.errors import DataError, InputError
from biro.io.ionosphere import read_ionosphere
from biro.models.files.toml import from_toml

FREQ = [1.3e9, 1.6e9]
SOURCE = """
[[source]]
name = "a"
east = "3 mas"
north = "-2 mas"
I = "2 Jy"
Q = "0.5 Jy"
U = "-0.3 Jy"
"""
NOISE = "[noise]\nfactor = 1\n"
START = 59000 * 86400.0


def observation(corr_type: list[str]) -> biro.Observation:
    rng = np.random.default_rng(5)
    vis = rng.normal(size=(24, 2, 4)) + 1j * rng.normal(size=(24, 2, 4))
    uvw, row = rng.normal(0, 1.5e6, (24, 3)), np.arange(24)
    return biro.Observation.from_arrays(
        vis,
        uvw,
        row % 3,
        row % 3 + 1,
        START + 60.0 * (row // 6),
        FREQ,
        corr_type,
        weight=4.0,
        antenna_names=list("ABCD"),
        antenna_positions=np.array([[4e6, 1e3 * k, 5e6] for k in range(4)]),
    )


def likelihood(text: str, corr_type: str = "RR,RL,LR,LL") -> biro.Likelihood:
    data = observation(corr_type.split(","))
    return biro.Likelihood(data, from_toml(SOURCE + text + NOISE), precision="double")


@pytest.mark.parametrize("corr_type", ["RR,RL,LR,LL", "XX,XY,YX,YY"])
def test_one_ionosphere_above_all_is_the_rotation_measure_of_the_source(corr_type: str) -> None:
    above = likelihood('[ionosphere]\nrm = "7 rad/m2"\ntec = 30\n', corr_type)
    of_source = likelihood('rm = "7 rad/m2"\n', corr_type)
    (found,), (expected,) = (each.predict(np.zeros(0)) for each in (above, of_source))
    # Double precision, and equal electron contents cancel.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert np.abs(found - likelihood("", corr_type).predict(np.zeros(0))[0]).max() > 0.1


def test_fitted_with_exact_gradients() -> None:
    fitted = likelihood(
        '[ionosphere]\ntec = { prior = "normal", mean = 0, sd = 0.1 }\n'
        'rm = { prior = "normal", mean = 0, sd = 5, unit = "rad/m2" }\n'
    )
    assert fitted.n_param == 8
    theta = fitted.prior_transform(np.full((1, 8), 0.6))
    slope = fitted.log_posterior_and_gradient(theta)[1][0]
    for i in range(8):
        h = (1e-4 if i < 4 else 1e-2) * np.eye(8)[i]
        p, m, pp, mm = (fitted.log_posterior(theta + s * h)[0] for s in (1, -1, 2, -2))
        expected = (8 * (p - m) - (pp - mm)) / (12 * h.max())
        # Log-posteriors of 1e3 have 1e-13 of rounding over steps of 1e-4 or 1e-2.
        assert slope[i] == pytest.approx(expected, rel=1e-7, abs=1e-5 if i < 4 else 1e-7)


def test_a_file(tmp_path: Path) -> None:
    time, rm = START + np.array([0.0, 240.0]), np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 2.0, 3.0, 4.0]])
    np.savez(tmp_path / "iono.npz", time=time, antenna_names=np.array(list("ABCD")), rm=rm)
    path = str(tmp_path / "iono.npz")
    read = likelihood(f"[ionosphere]\nfile = {path!r}\n").predict(np.zeros(0))[0]
    plain = likelihood("").predict(np.zeros(0))[0]
    row = np.arange(24)
    of_a = np.interp(60.0 * (row // 6), [0.0, 240.0], [1.0, 5.0])
    each = np.stack([of_a, np.full(24, 2.0), np.full(24, 3.0), np.full(24, 4.0)])
    both = each[row % 3, row] + each[row % 3 + 1, row]
    turn = np.exp(1j * both[:, None] * (299792458.0 / np.array(FREQ)) ** 2)
    np.testing.assert_allclose(read[..., 1], plain[..., 1] * turn, rtol=0, atol=1e-12)
    np.savez(tmp_path / "none.npz", time=time, antenna_names=np.array(list("ABCD")))
    np.savez(tmp_path / "days.npz", time=time / 86400, antenna_names=np.array(list("ABCD")), rm=rm)
    np.savez(tmp_path / "square.npz", time=time, antenna_names=np.array([list("AB"), list("CD")]), rm=rm)
    np.savez(tmp_path / "objects.npz", time=time, antenna_names=np.array(list("ABCD"), object), rm=rm)
    np.savez(tmp_path / "nameless.npz", time=time, rm=rm)
    for name, message in (
        ("none.npz", "has neither tec nor rm"),
        ("missing.npz", "not a file of an ionosphere, or damaged .No such file"),
        ("", "is a directory, expected a file"),
        ("days.npz", "times must be MJD in seconds, found 59000; multiply days by 86400"),
        ("square.npz", "names must have one axis"),
        ("objects.npz", "not a file of an ionosphere, or damaged .*pickle"),
        ("nameless.npz", "it lacks 'antenna_names'"),
    ):
        with pytest.raises(DataError, match=message):
            read_ionosphere(tmp_path / name)


TABLE = f"""# made by hand
time, antenna, rm  # MJD in s, UTC; rad/m2
{START + 240}, A, 5
{START}, B, 2
{START}, A, 1e0

{START + 240} B 2.5
"""


def test_a_table_as_text_is_what_its_arrays_are(tmp_path: Path) -> None:
    """Rows in any order, with commas or blanks; what is not there is 0."""
    (tmp_path / "iono.txt").write_text(TABLE)
    found = read_ionosphere(tmp_path / "iono.txt")
    assert found.antenna_names == ("A", "B")
    np.testing.assert_array_equal(found.time, [START, START + 240])
    np.testing.assert_array_equal(found.rm, [[1, 2], [5, 2.5]])
    np.testing.assert_array_equal(found.tec, np.zeros((2, 2)))
    time = f"{START:.1f}"
    (tmp_path / "both.txt").write_text(f"antenna rm time tec\nA 1 {time} 3.5\n")
    both = read_ionosphere(tmp_path / "both.txt")
    assert (both.rm, both.tec) == (1, 3.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a line of names and rows below it, found 0 lines"),
        (
            f"{START} A 1\n{START} B 1\n",
            "line 1: expected names of columns, for example 'time antenna tec rm', found",
        ),
        ("time antenna dtec\n1 A 2\n", "line 1: expected names of columns"),
        ("time time antenna rm\n1 1 A 2\n", "line 1: expected names of columns"),
        (f"time antenna rm\n{START} A\n", f"line 2: expected 'time antenna rm', found '{START} A'"),
        (f"time antenna rm\n{START} A 1 2\n", "line 2: expected 'time antenna rm'"),
        (f"# b\ntime antenna rm\n{START} A x\n", "line 3: expected 'time antenna rm', found .* A x'"),
        ("time antenna rm\n59000.5 A 1\n", "times must be MJD in seconds, found 59000.5; multiply days"),
        (f"time antenna\n{START} A\n", "has neither tec nor rm"),
        (f"time antenna rm\n{START} A nan\n", "rm must be finite"),
        (
            f"time antenna rm\n{START} A 1\n{START} B 1\n{START + 1} A 1\n",
            "expected one row for each of 2 times and 2 antennas, found 3 rows, 3 of them different",
        ),
        (
            f"time antenna rm\n{START} A 1\n{START} A 2\n{START + 1} B 1\n{START + 1} A 1\n",
            "expected one row for each of 2 times and 2 antennas, found 4 rows, 3 of them different",
        ),
        ("\udcff\x00", "not a file of an ionosphere, or damaged"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "iono.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=message) as caught:
        read_ionosphere(tmp_path / "iono.txt")
    assert "\n" not in str(caught.value)


def test_spinifex(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the documented call: get_rm_from_skycoord(loc, times, source) gives a tuple with rm."""
    monkeypatch.setitem(sys.modules, "spinifex", None)
    monkeypatch.setitem(sys.modules, "spinifex.get_rm", None)
    text = '[ionosphere]\nkind = "spinifex"\n'
    for each in (text, text.replace("spinifex", "spinifex-tec")):
        with pytest.raises(InputError, match="needs the package spinifex: pip install 'spinifex>=2'"):
            likelihood(each)
    asked = []

    def get_rm_from_skycoord(loc, times, source, **options):
        asked.append((loc.x.to_value("m"), float(source.dec.rad), times.scale))
        return SimpleNamespace(rm=loc.y.to_value("m") / 1e3 + (times.mjd - 59000) * 1440)

    stand_in = ModuleType("spinifex.get_rm")
    stand_in.get_rm_from_skycoord = get_rm_from_skycoord
    monkeypatch.setitem(sys.modules, "spinifex", ModuleType("spinifex"))
    monkeypatch.setitem(sys.modules, "spinifex.get_rm", stand_in)
    found = likelihood(text).predict(np.zeros(0))[0]
    assert len(asked) == 4
    assert asked[0][0] == pytest.approx(4e6)
    assert asked[0][2] == "utc"
    row = np.arange(24)
    both = row % 3 + row % 3 + 1 + 2 * (row // 6)  # a station's number and the minutes
    turn = np.exp(1j * both[:, None] * (299792458.0 / np.array(FREQ)) ** 2)
    plain = likelihood("").predict(np.zeros(0))[0]
    # Dates are good to a microsecond.
    np.testing.assert_allclose(found[..., 1], plain[..., 1] * turn, rtol=0, atol=1e-8)
    stand_in.get_rm_from_skycoord = lambda loc, times, source: SimpleNamespace(
        rm=np.full(times.shape, np.nan)
    )
    with pytest.raises(InputError, match="expected one finite number for each of 4 times"):
        likelihood(text)


def test_electron_contents_of_spinifex(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the documented call: vertical contents (time, height), and what makes them slant."""

    def get_rm_from_skycoord(loc, times, source, **options):
        return SimpleNamespace(rm=np.zeros(times.shape))

    def get_dtec_from_skycoord(loc, times, source, **options):
        station, minutes = loc.y.to_value("m") / 1e3, (times.mjd - 59000) * 1440
        vertical = np.stack([0.1 * station + 0 * minutes, 0.02 * minutes], axis=1)
        return SimpleNamespace(electron_density=vertical, airmass=np.array([[1.5, 2.0]] * len(minutes)))

    monkeypatch.setitem(sys.modules, "spinifex", ModuleType("spinifex"))
    for module, call in (("get_rm", get_rm_from_skycoord), ("get_dtec", get_dtec_from_skycoord)):
        stand_in = ModuleType(f"spinifex.{module}")
        setattr(stand_in, call.__name__, call)
        monkeypatch.setitem(sys.modules, f"spinifex.{module}", stand_in)
    found, plain, without = (
        likelihood(text).predict(np.zeros(0))[0]
        for text in ('[ionosphere]\nkind = "spinifex-tec"\n', "", '[ionosphere]\nkind = "spinifex"\n')
    )
    # Of the stations of a row, which are neighbours, 0.15 TECU apart; what changes in time is above all.
    turn = np.exp(-8.44797245e9j * -0.15 / np.array(FREQ))[:, None]
    # Their constant has nine digits, dates are good to a microsecond.
    np.testing.assert_allclose(found, plain * turn, rtol=0, atol=1e-7)
    np.testing.assert_allclose(without, plain, rtol=0, atol=1e-12)


def band(low: float, high: float, longest: float, corr_type: str = "RR,RL,LR,LL") -> biro.Observation:
    """One baseline, two channels."""
    uvw, corr = np.array([[longest, 0.0, 0.0]] * 2), corr_type.split(",")
    vis = np.ones((2, 2, len(corr)), complex)
    return biro.Observation.from_arrays(
        vis, uvw, [0, 0], [1, 1], [START, START + 10], [low, high], corr, weight=1.0
    )


@pytest.mark.parametrize(
    ("low", "high", "longest", "corr_type", "expected"),
    [
        # 8.45e9 (1/1.2e9 - 1/1.8e9) rad are 134 deg; lambda^2 is 0.0624 and 0.0277 m2, 1.99 deg apart.
        (
            1.2e9,
            1.8e9,
            2e5,
            "RR,RL,LR,LL",
            ("of 1 TECU", "by 1.3e+02 deg", "rotate the polarisation by 2 deg"),
        ),
        (1.2e9, 1.8e9, 1e4, "RR,LL", ("of 0.1 TECU", "by 13 deg")),
        (
            1.2e9,
            1.8e9,
            50.0,
            "XX,YY",
            ("1 rad/m2 of Faraday rotation would rotate the polarisation by 2 deg",),
        ),
        (8.4e9, 8.43e9, 2e5, "RR,RL,LR,LL", ()),
        (1.2e9, 1.8e9, 2e5, "I,Q,U,V", ()),
    ],
)
def test_what_is_said_where_nothing_is_known(low, high, longest, corr_type, expected) -> None:
    summary = band(low, high, longest, corr_type).summary()
    for text in expected:
        assert text in summary.ionosphere
    assert bool(summary.ionosphere) == bool(expected) == ("ionosphere    biro assumes none" in str(summary))
    assert ("rad/m2" in summary.ionosphere) == any("polarisation" in text for text in expected)
    assert ("TECU" in summary.ionosphere) == any("TECU" in text for text in expected)
    plain = biro.models.SkyModel([biro.models.PointSource("a", east="0 mas", north="0 mas", I="1 Jy")])
    line = band(low, high, longest, corr_type).ionosphere_line(plain)
    assert line == (f"ionosphere: {summary.ionosphere}" if expected else "")


def test_what_is_said_of_what_a_model_has(tmp_path: Path) -> None:
    (tmp_path / "iono.txt").write_text(
        "time antenna rm\n" + "".join(f"{START} {name} {k}.5\n" for k, name in enumerate("ABCDE"))
    )
    path = str(tmp_path / "iono.txt")
    fitted = "tec = { prior = 'normal', mean = 0, sd = 0.1 }\n"
    own = "[ionosphere.antenna.A]\ntec = 0\n"
    found = likelihood(f"[feeds]\nrotation = 'none'\n[ionosphere]\nfile = {path!r}\n{fitted}{own}")
    # Antenna E is not in the data.
    assert found.observation.ionosphere_line(found.sky) == (
        f"ionosphere: rm 0.5 .. 3.5 rad/m2 from {path}; tec of 3 antennas fitted; tec of 1 antennas fixed "
        "by the model"
    )
    summary = found.observation.summary(found.sky)
    assert summary.ionosphere.startswith("rm 0.5 .. 3.5 rad/m2 from")
    assert found.observation.summary().ionosphere != summary.ionosphere
    assert summary.feeds == 'the data have no parallactic rotation ([feeds] rotation = "none" in the model)'
