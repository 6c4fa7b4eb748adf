"""The ionosphere in likelihoods: the same as a source's rotation measure, fitted, read, asked of spinifex."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import biro
from biro.errors import DataError, InputError
from biro.ionosphere import read_ionosphere
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
    for name, message in (
        ("none.npz", "has neither tec nor rm"),
        ("missing.npz", "no file of an ionosphere"),
    ):
        with pytest.raises(DataError, match=message):
            read_ionosphere(tmp_path / name)


def test_spinifex(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the documented call: get_rm_from_skycoord(loc, times, source) gives a tuple with rm."""
    monkeypatch.setitem(sys.modules, "spinifex", None)
    monkeypatch.setitem(sys.modules, "spinifex.get_rm", None)
    text = '[ionosphere]\nkind = "spinifex"\n'
    with pytest.raises(InputError, match="needs the package spinifex: pip install spinifex"):
        likelihood(text)
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
