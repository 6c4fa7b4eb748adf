"""Gains in H5parm files, written by h5py in the layout of LoSoTo's cookbook (section H5parm) and of DP3.

What they mean is a closed form here: g = amplitude exp(i phase), V = g_p V g_q^* (DP3, applycal with
`invert=false`, which agrees with `read_gains` to 2e-7 on its own gaincal's file of LOFAR data).
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import biro
from biro.errors import BiroError, DataError
from biro.files import hdf5, hdf5_child
from biro.io.gain_files import read_gains, tables, with_gains_read
from biro.models import Gain, PointSource, SkyModel
from biro.models.errors import ModelError
from biro.models.files.toml import from_toml, to_toml

TIME = 4.87e9 + np.array([5.0, 15.0, 25.0])
FREQ = np.array([120e6, 130e6])
ANT = ("CS001HBA0", "RS106HBA")
POL = ("XX", "YY")
ALL = {"time": TIME, "freq": FREQ, "ant": ANT, "pol": POL, "dir": ("[POINTING]",)}
WITH_CHILD = ("test_files_that_are_something_else", "test_names_may_stand_in_the_solution_set_alone")
"""Tests that read as `biro` does, in a process of its own."""
Axes = Sequence[str]


def value(kind: str, along: dict[str, Sequence[object]], axes: Axes) -> np.ndarray:
    """Values that tell where they stand: a sum of what each axis adds."""
    step = {"time": 0.1, "freq": 0.02, "ant": 0.5, "pol": 0.25, "dir": 2.0}
    sizes = [len(along[axis]) for axis in axes]
    total = sum(step.get(axis, 0.0) * index for axis, index in zip(axes, np.indices(sizes), strict=True))
    return np.asarray(total + 1.0 if kind == "amplitude" else 0.7 - total)


def gain(t: int, f: int, a: int, p: int) -> complex:
    """The gain at these places of the axes time, freq, ant, pol, as `value` has it."""
    total = 0.1 * t + 0.02 * f + 0.5 * a + 0.25 * p
    return (1.0 + total) * np.exp(1j * (0.7 - total))


def write(
    path: Path,
    axes: Axes = ("time", "freq", "ant", "dir", "pol"),
    kinds: Sequence[str] = ("amplitude", "phase"),
    solset: str = "sol000",
    text: str = "bytes",
    weight: np.ndarray | None = None,
    weight_axes: Axes | None = None,
    compression: str | None = None,
    **changed: Sequence[object],
) -> Path:
    """An H5parm file; `changed` replaces values of axes."""
    along = {**ALL, **changed}
    with h5py.File(path, "a") as file:
        group = file.create_group(solset)
        group.attrs["h5parm_version"] = np.bytes_("1.0")
        antenna = np.zeros(len(along["ant"]), [("name", "S16"), ("position", "f4", 3)])
        antenna["name"] = along["ant"]
        group["antenna"] = antenna
        group["source"] = np.zeros(1, [("name", "S128"), ("dir", "f4", 2)])
        for kind in kinds:
            table = group.create_group(f"{kind}000")
            table.attrs["TITLE"] = np.bytes_(kind)
            for axis in axes:
                values = along[axis]
                is_text = isinstance(values[0], str)
                table[axis] = values if text == "str" or not is_text else np.array(values, "S")
            chunks = {"compression": compression} if compression else {}
            values = value(kind, along, axes)
            table.create_dataset("val", data=values, **chunks)
            order = weight_axes or axes
            weights = np.ones(values.shape) if weight is None else weight
            table["weight"] = np.transpose(weights, [axes.index(axis) for axis in order]).astype("f4")
            table["val"].attrs["AXES"] = np.bytes_(",".join(axes))
            table["weight"].attrs["AXES"] = np.bytes_(",".join(order))
    return path


@pytest.fixture(autouse=True)
def without_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in this process, as a child takes 0.4 s to start; but for two tests."""

    def answer(path: Path, task: str, names: Sequence[str]) -> bytes:
        out = io.BytesIO()
        hdf5_child.answer(out, task, str(path), names)
        return out.getvalue()

    if request.node.name not in WITH_CHILD:
        monkeypatch.setattr(hdf5, "_answer", answer)


@pytest.mark.parametrize(
    ("axes", "compression", "text"),
    [
        (("time", "freq", "ant", "dir", "pol"), None, "bytes"),  # DP3's ddecal
        (("pol", "dir", "ant", "freq", "time"), "gzip", "bytes"),  # LoSoTo
        (("time", "freq", "ant", "pol"), None, "bytes"),  # DP3's gaincal
        (("ant", "pol", "time", "freq"), "gzip", "str"),
    ],
)
def test_axes_in_any_order(tmp_path: Path, axes: Axes, compression: str | None, text: str) -> None:
    """Axes of values and of weights have any order, each its own."""
    path = write(tmp_path / "cal.h5", axes, compression=compression, text=text, weight_axes=axes[::-1])
    found = read_gains(path)
    assert found.antenna_names == ANT
    assert np.array_equal(found.time, TIME)
    assert np.array_equal(found.freq, FREQ)
    assert found.interval.tolist() == [10.0, 10.0, 10.0]
    wanted = [[[[gain(t, f, a, p) for p in (0, 1)] for f in (0, 1)] for a in (0, 1)] for t in range(3)]
    assert np.allclose(found.gain, wanted, rtol=1e-14)  # a product of two numbers
    assert found.usable.all()


def observation(time: np.ndarray = TIME, offset: float = 0.0) -> biro.Observation:
    """A point source of 1 Jy at the phase centre, corrupted by the gains of the file."""
    jones = np.array(
        [[[np.diag([gain(t, f, a, p) for p in (0, 1)]) for f in (0, 1)] for a in (0, 1)] for t in range(3)]
    )
    vis = np.einsum("tfij,tfkj->tfik", jones[:, 0], jones[:, 1].conj()).reshape(3, 2, 4)
    return biro.Observation.from_arrays(
        vis,
        np.tile([100.0, 20.0, 3.0], (3, 1)),
        np.zeros(3, int),
        np.ones(3, int),
        time,
        FREQ,
        ("RR", "RL", "LR", "LL"),  # DP3 writes XX and YY for these, too
        antenna_names=ANT,
    )


SKY = """
[[source]]
name = "p"
type = "point"
east = "0 rad"
north = "0 rad"
I = "1 Jy"
[gain]
table = {table}
"""


@pytest.mark.parametrize("inside", ["", ":sol000", ":sol000/{}000", ":sol000/{}000/POINTING"])
def test_gains_of_a_model_file_undo_what_corrupted_the_data(tmp_path: Path, inside: str) -> None:
    path = write(tmp_path / "cal.h5")
    tables = [f"{path}{inside.format(kind)}" for kind in (("amplitude", "phase") if "{" in inside else ("",))]
    sky = from_toml(SKY.format(table=tables))
    data = observation()
    chi2 = biro.Likelihood(data, sky).chi2(np.ones(1))
    assert chi2 < 1e-24 * 24  # 24 visibilities of about 1, rounded
    assert biro.Likelihood(data, SkyModel(sky.sources)).chi2(np.ones(1)) > 1.0
    again = from_toml(to_toml(with_gains_read(sky, data)))
    assert biro.Likelihood(data, again).chi2(np.ones(1)) == chi2


def test_solutions_of_weight_0_are_none(tmp_path: Path) -> None:
    weight = np.ones((3, 2, 2, 2))
    weight[1, 0, 1, 0] = 0.0
    path = write(tmp_path / "cal.h5", ("time", "freq", "ant", "pol"), weight=weight)
    found = read_gains(path)
    assert np.argwhere(~found.usable).tolist() == [[1, 1, 0, 0]]
    assert found.n_flagged == 1
    # Along frequency the other channel stands in, as the nearest one that has a solution.
    assert found.at(ANT[1], TIME[1:2], FREQ[:1], "linear")[0, 0, 0] == found.gain[1, 1, 1, 0]


@pytest.mark.parametrize("axes", [("ant", "pol"), ("ant",), ("time", "ant"), ("freq", "ant")])
def test_axes_that_are_missing_hold_for_all(tmp_path: Path, axes: Axes) -> None:
    """A table without times holds for all of them, and one without polarizations for both feeds."""
    sky = from_toml(SKY.format(table=[str(write(tmp_path / "cal.h5", axes))]))
    data = observation(time=TIME)
    (found,) = with_gains_read(sky, data).gains[0].solutions
    for t in range(3):
        for f in range(2):
            for a in range(2):
                at = found.at(ANT[a], TIME[t : t + 1], FREQ[f : f + 1], "linear")[0, 0]
                place = (t * ("time" in axes), f * ("freq" in axes), a)
                wanted = [gain(*place, p * ("pol" in axes)) for p in range(2)]
                assert np.allclose(at, wanted, rtol=1e-13)


def test_one_time_and_times_out_of_order(tmp_path: Path) -> None:
    found = read_gains(write(tmp_path / "one.h5", ("time", "ant"), time=TIME[:1]))
    assert found.interval.tolist() == [0.0]
    found = read_gains(write(tmp_path / "back.h5", ("time", "ant"), time=TIME[::-1]))
    assert np.array_equal(found.time, TIME)
    # Values are counted in the order of the file: its last time is the first one here.
    assert np.allclose(found.gain[:, 0, 0, 0], [gain(t, 0, 0, 0) for t in (2, 1, 0)], rtol=1e-14)


def test_a_solution_holds_half_of_the_way_to_the_nearer_neighbour(tmp_path: Path) -> None:
    """DP3 solves one gain for each interval and applies the nearest one; gaps are interpolated."""
    found = read_gains(
        write(tmp_path / "cal.h5", ("time", "ant"), time=TIME[0] + np.array([0.0, 10.0, 60.0]))
    )
    assert found.interval.tolist() == [10.0, 10.0, 50.0]
    at = TIME[0] + np.array([-99.0, 4.0, 6.0, 14.0, 40.0, 99.0])
    amplitude = np.abs(found.at(ANT[0], at, FREQ[:1], "linear")[:, 0, 0])
    assert np.allclose(amplitude, [1.0, 1.0, 1.1, 1.1, 1.2, 1.2], rtol=1e-14)


def test_gains_of_one_polarization_alone(tmp_path: Path) -> None:
    found = read_gains(write(tmp_path / "cal.h5", ("time", "ant", "pol"), pol=("YY",)))
    assert not found.usable[..., 0].any()
    assert np.allclose(found.gain[0, 0, 0, 1], gain(0, 0, 0, 0), rtol=1e-14)


@pytest.mark.parametrize("pol", ["XX", "LL"])
def test_gains_of_the_only_feed_of_the_data(tmp_path: Path, pol: str) -> None:
    """Feeds that turn on the sky, and were turned back in the data, leave such gains as they are."""
    data = observation()
    (part,) = data.partitions
    one = replace(part, vis=part.vis[..., :1], weight=part.weight[..., :1], corr_type=(pol,))
    sky = from_toml(SKY.format(table=[str(write(tmp_path / "cal.h5", pol=(pol,)))]))
    likelihood = biro.Likelihood(replace(data, partitions=(one,)), sky, smearing="off")
    # float32 visibilities of about 1, and of an error of 0.01 or more
    assert float(np.sum(likelihood.chi2(np.zeros(likelihood.n_param)))) < 1e-4


def test_gains_of_one_feed_do_not_go_with_data_of_both(tmp_path: Path) -> None:
    sky = from_toml(SKY.format(table=[str(write(tmp_path / "cal.h5", pol=("XX",)))]))
    with pytest.raises(ModelError, match=r"solutions of one feed alone, X or R, .*--correlations XX or RR"):
        biro.Likelihood(observation(), sky, smearing="off")


@pytest.mark.parametrize("pol", [("XX", "RR"), ("XX", "LL"), ("I", "YY")])
def test_two_names_of_one_feed_are_refused(tmp_path: Path, pol: Axes) -> None:
    with pytest.raises(DataError, match=rf"polarizations {pol[0]}, {pol[1]}; biro reads XX, YY or RR, LL"):
        read_gains(write(tmp_path / "cal.h5", pol=pol))


def test_names_may_stand_in_the_solution_set_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "cal.h5")
    with h5py.File(path, "a") as file:
        for kind in ("amplitude", "phase"):
            del file[f"sol000/{kind}000/ant"]
    assert read_gains(path).antenna_names == ANT


def test_full_jones_matrices(tmp_path: Path) -> None:
    """Matrices without anything across feeds are gains; others are refused, and so are phases alone."""
    four = ("XX", "XY", "YX", "YY")
    path = write(tmp_path / "full.h5", pol=four)
    with pytest.raises(
        DataError, match=r"sol000/amplitude000 is a part of full Jones .*correction=fulljones"
    ):
        read_gains(path)
    with h5py.File(path, "a") as file:
        file["sol000/amplitude000/val"][..., 1:3] = 0.0
    assert np.allclose(read_gains(path).gain[0, 0, 0], [gain(0, 0, 0, 0), gain(0, 0, 0, 3)], rtol=1e-14)
    with pytest.raises(DataError, match="sol000/phase000 is a part of full Jones"):
        read_gains(f"{path}:sol000/phase000")


@pytest.mark.parametrize("kind", ["tec", "clock", "rotationmeasure", "rotation"])
def test_other_types_are_named_with_the_way_out(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "cal.h5", ("time", "ant"), kinds=("amplitude", kind))
    said = (
        rf"sol000/{kind}000 is of type {kind}, .*correction={kind}000.*table = \[\"{path}:sol000/amplitude000"
    )
    with pytest.raises(DataError, match=said):
        read_gains(path)
    assert read_gains(f"{path}:sol000/amplitude000").gain.imag.max() == 0.0
    with pytest.raises(DataError, match=f"is of type {kind}"):
        read_gains(f"{path}:sol000/{kind}000")


def test_directions(tmp_path: Path) -> None:
    path = write(tmp_path / "cal.h5", dir=("[A]", "[B]"))
    with pytest.raises(
        DataError, match=rf"gains of 2 directions \(A, B\).*table = \"{path}:sol000/amplitude000/A"
    ):
        read_gains(path)
    found = read_gains(f"{path}:sol000/amplitude000/B")
    assert np.allclose(found.gain[0, 0, 0, 0], 1.0 + 2.0, rtol=1e-14)  # what `value` adds for a direction
    with pytest.raises(DataError, match=r"no direction 'C'; it has A, B"):
        read_gains(f"{path}:sol000/amplitude000/C")


def test_several_that_may_be_meant_are_named(tmp_path: Path) -> None:
    path = write(write(tmp_path / "cal.h5"), solset="sol001")
    with pytest.raises(DataError, match=f"2 solution sets; .*{path}:sol000, {path}:sol001"):
        read_gains(path)
    assert read_gains(f"{path}:sol001").gain.shape == (3, 2, 2, 2)
    with pytest.raises(DataError, match=r"no solution set 'sol002'; it has sol000, sol001"):
        read_gains(f"{path}:sol002")
    with h5py.File(path, "a") as file:
        file.copy("sol000/phase000", "sol000/phase001")
    with pytest.raises(DataError, match=r"2 tables of phases; .*sol000/phase000, .*sol000/phase001"):
        read_gains(f"{path}:sol000")


def test_tables_on_different_times_are_two_gains(tmp_path: Path) -> None:
    """LoSoTo keeps slow amplitudes beside fast phases."""
    path = write(tmp_path / "cal.h5", ("time", "ant"), kinds=("phase",))
    write(tmp_path / "slow.h5", ("time", "ant"), kinds=("amplitude",), time=TIME[1:2])
    with h5py.File(path, "a") as file, h5py.File(tmp_path / "slow.h5") as slow:
        slow.copy("sol000/amplitude000", file["sol000"])
    with pytest.raises(DataError, match=r"have different times; give both: \[gain\] table = "):
        read_gains(path)
    both = Gain(table=[f"{path}:sol000/phase000", f"{path}:sol000/amplitude000"])
    sky = with_gains_read(
        SkyModel([PointSource("p", east="0 rad", north="0 rad", I="1 Jy")], gain=both), observation()
    )
    assert [one.time.size for one in sky.gains[0].solutions] == [3, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file["sol000/phase000/val"].attrs.__delitem__("AXES"), "its attribute AXES is None"),
        (lambda file: file["sol000/phase000"].__delitem__("time"), "lacks sol000/phase000/time"),
        (lambda file: file["sol000/phase000/time"].write_direct(np.zeros(3)), "time must ascend"),
        (
            lambda file: file["sol000/phase000"].__setitem__("weight", h5py.SoftLink("/x")),
            "link to elsewhere",
        ),
        (lambda file: file["sol000/phase000"].move("pol", "x"), "lacks sol000/phase000/pol"),
    ],
)
def test_files_that_break_the_rules(tmp_path: Path, change: object, said: str) -> None:
    path = write(tmp_path / "cal.h5", kinds=("phase",))
    with h5py.File(path, "a") as file:
        if "link" in said:
            del file["sol000/phase000/weight"]
        change(file)  # type: ignore[operator]
    with pytest.raises(DataError, match=said):
        read_gains(path)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["group/data"] = np.zeros(3)
    with pytest.raises(DataError, match="no H5parm file of gains: no group in it has a table of solutions"):
        read_gains(tmp_path / "other.h5")
    whole = write(tmp_path / "cal.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"no H5parm file of gains, or a broken one"):
        read_gains(tmp_path / "cut.h5")


def test_a_small_file_that_unpacks_to_a_lot_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "cal.h5", kinds=("phase",))
    with h5py.File(path, "a") as file:
        table = file["sol000/phase000"]
        del table["weight"]
        table.create_dataset("weight", (1 << 30,), "f4", chunks=(1 << 20,), compression="gzip")
    with pytest.raises(DataError, match="weight claims 4294967296 bytes, in a file of"):
        read_gains(path)
    assert len(hdf5.list_hdf5(path)) < 20


def test_frequencies_far_from_those_of_the_gains_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sky = from_toml(SKY.format(table=[str(write(tmp_path / "cal.h5"))]))
    with_gains_read(sky, observation())
    assert not caplog.records
    far = from_toml(SKY.format(table=[str(write(tmp_path / "far.h5", freq=FREQ + 60e6))]))
    with_gains_read(far, observation())
    assert "gains of 180 to 190 MHz are applied to field/spw0 at 125 MHz" in caplog.text


def test_a_storage_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "cal.h5")
    waiting = threading.Event()
    monkeypatch.setattr(Path, "is_dir", lambda self: waiting.wait(30.0))
    monkeypatch.setattr(tables, "TIME_LIMIT", 0.2)
    with pytest.raises(BiroError, match=r"cal\.h5: gave up after 0\.2 s while looking at it"):
        read_gains(path)
    waiting.set()
