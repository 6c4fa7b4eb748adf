"""Gains that are known: numbers, tables of CASA, files of simulations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import makearrcoldesc, makescacoldesc, maketabdesc, table

import biro
from biro.errors import BiroError, DataError, InputError, MeasurementSetError
from biro.io.gain_files import read_gains, with_gains_read, write_gains
from biro.models import (
    Feeds,
    Gain,
    GainSolutions,
    Leakage,
    ModelError,
    Normal,
    PartitionView,
    PointSource,
    SkyModel,
)
from biro.models.files.toml import from_toml
from biro.simulation.gains import GainScatter
from tests.biro.test_antenna_terms import noisy

POINT = PointSource("p", east="0 rad", north="0 rad", I="1 Jy")
RR_LL = ("RR", "RL", "LR", "LL")
TIMES = 5e9 + np.array([0.0, 10.0, 30.0])


def view_of(names: tuple[str, ...], time: np.ndarray, freq: np.ndarray) -> PartitionView:
    return PartitionView("f/spw0", "f", "spw0", (1.0, 0.5), time, freq, names, RR_LL)


def gains_of(sky: SkyModel, view: PartitionView) -> np.ndarray:
    """Gains of the feeds at each time, antenna and channel, (n_time, n_antenna, n_chan, 2)."""
    terms = sky.bind([view]).sources(np.ones(1), 0).antenna_terms
    assert terms is not None
    assert terms.diagonal
    diagonal = np.diagonal(terms.jones[0], axis1=-2, axis2=-1)
    return diagonal[terms.time_block][:, :, terms.chan_block]


def solutions(**changed: object) -> GainSolutions:
    gain = np.ones((3, 2, 1, 2), complex)
    gain[:, 0, 0, 0] = [1.0, 2.0 * np.exp(3.0j), 4.0 * np.exp(-3.0j)]
    given = {
        "source": "",
        "time": TIMES,
        "freq": np.array([1.4e9]),
        "antenna_names": ("A", "B"),
        "gain": gain,
        "usable": np.ones(gain.shape, bool),
    }
    return GainSolutions(**(given | changed))


def make_table(
    path: Path, kind: str = "G Jones", n_chan: int = 1, n_par: int = 2, **cells: np.ndarray
) -> None:
    """A calibration table with the columns that CASA gives it, as far as gains are in them."""
    scalars = [makescacoldesc(name, 0.0 if name == "TIME" else 0) for name in cells if cells[name].ndim == 1]
    arrays = [
        makearrcoldesc("CPARAM", 0j, valuetype="complex", ndim=2),
        makearrcoldesc("FLAG", False, ndim=2),
    ]
    with table(str(path), maketabdesc(scalars + arrays), nrow=len(cells["TIME"]), ack=False) as main:
        for name, values in cells.items():
            main.putcol(name, values)
        main.putinfo({"type": "Calibration", "subType": kind, "readme": ""})
        for name, columns in (
            ("ANTENNA", [makescacoldesc("NAME", ""), makescacoldesc("STATION", "")]),
            ("SPECTRAL_WINDOW", [makearrcoldesc("CHAN_FREQ", 0.0, ndim=1)]),
        ):
            with table(str(path / name), maketabdesc(columns), nrow=2, ack=False) as part:
                if name == "ANTENNA":
                    part.putcol("NAME", ["A", "B"])
                else:
                    for i in range(2):
                        part.putcell("CHAN_FREQ", i, 1.4e9 + 1e8 * i + 1e6 * np.arange(4))
                main.putkeyword(name, part)


def columns(n_chan: int = 1, n_par: int = 2) -> dict[str, np.ndarray]:
    """Two times, two antennas, two spectral windows: gains that tell where they came from."""
    time, antenna, window = (a.ravel() for a in np.meshgrid(TIMES[:2], [0, 1], [0, 1], indexing="ij"))
    rows = len(time)
    value = 1.0 + antenna + 10.0 * window + 100.0 * (time > TIMES[0])
    gain = value[:, None, None] * (1.0 + np.arange(n_chan)[None, :, None]) * np.array([1.0, 1.0j])[:n_par]
    return {
        "TIME": time,
        "ANTENNA1": antenna.astype(np.int32),
        "SPECTRAL_WINDOW_ID": window.astype(np.int32),
        "CPARAM": gain.astype(np.complex64),
        "FLAG": np.zeros((rows, n_chan, n_par), bool),
    }


def test_gains_are_interpolated_in_amplitude_and_phase_apart() -> None:
    """A closed form: the phase goes the shorter way, over 180 deg, from 3 to -3 rad."""
    at = TIMES[0] + np.array([-5.0, 5.0, 20.0, 99.0])
    found = gains_of(
        SkyModel([POINT], gain=Gain(table=solutions())), view_of(("A", "B"), at, np.array([1e9]))
    )
    wanted = [1.0, 1.5 * np.exp(1.5j), 3.0 * np.exp(1j * np.pi), 4.0 * np.exp(-3.0j)]
    assert np.allclose(found[:, 0, 0, 0], wanted, atol=1e-14)  # roundings of numbers up to 4
    assert (found[:, 1] == 1).all()
    near = Gain(table=solutions(), interpolation="nearest")
    found = gains_of(SkyModel([POINT], gain=near), view_of(("A", "B"), at, np.array([1e9])))
    assert np.allclose(found[[0, 2, 3], 0, 0, 0], [1.0, 2.0 * np.exp(3j), 4.0 * np.exp(-3.0j)], atol=1e-14)


def test_a_solution_holds_within_its_interval(tmp_path: Path) -> None:
    """Solved per scan of 20 s: no interpolation inside scans, and between two scans as before."""
    cells = columns() | {"INTERVAL": np.full(8, 20.0)}
    cells["TIME"] = np.where(cells["TIME"] > TIMES[0], TIMES[0] + 100.0, TIMES[0])
    make_table(tmp_path / "cal.G0", **cells)
    read = read_gains(tmp_path / "cal.G0")
    assert read.interval.tolist() == [20.0, 20.0]
    at = TIMES[0] + np.array([-40.0, -10.0, 0.0, 10.0, 50.0, 90.0, 110.0, 140.0])
    found = read.at("A", at, np.array([1.4e9]), "linear")[:, 0, 0].real
    # Gains are 1 and 101; half-way between the middles of the scans is their mean.
    assert np.allclose(found, [1.0, 1.0, 1.0, 1.0, 51.0, 101.0, 101.0, 101.0], atol=1e-12)
    near = read.at("A", at, np.array([1.4e9]), "nearest")[:, 0, 0].real
    assert near[[0, 3, 5, 7]].tolist() == [1.0, 1.0, 101.0, 101.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t / 86400.0, "MJD in days: multiply them by 86400"),
        (lambda t: t - 40587.0 * 86400.0, "Unix times: add 3506716800"),
        (lambda t: t / 86400.0 + 2400000.5, "JD in days: subtract 2400000.5 and multiply by 86400"),
        (lambda t: t + 1e9, "Use gains that were solved from these data"),
    ],
)
def test_gains_of_another_time_are_refused(change: Callable[[np.ndarray], np.ndarray], said: str) -> None:
    """31 years away, or in another unit or epoch; a day away is a line, and an hour is none."""
    observation = small_observation()
    times = observation.partitions[0].times
    gain = np.ones((len(times), 2, 1, 2), complex)
    known = solutions(time=change(times), gain=gain, usable=np.ones(gain.shape, bool))
    with pytest.raises(DataError, match=said):
        with_gains_read(SkyModel([POINT], gain=Gain(table=known)), observation)


def test_gains_of_a_few_days_before_are_said(caplog: pytest.LogCaptureFixture) -> None:
    observation = small_observation()
    for away, n_line in ((3600.0, 0), (3 * 86400.0, 1)):
        caplog.clear()
        known = solutions(time=TIMES - away)
        with_gains_read(SkyModel([POINT], gain=Gain(table=known)), observation)
        assert len(caplog.records) == n_line


def small_observation() -> biro.Observation:
    one = np.array([0, 0, 0])
    vis = np.ones((3, 1, 1), complex)
    return biro.Observation.from_arrays(vis, np.ones((3, 3)), one, one + 1, TIMES, [1.4e9], ["RR"])


def test_gains_that_are_no_numbers_are_not_used() -> None:
    """0, NaN and infinity, though marked as usable; and an antenna of two rows is refused."""
    gain = np.full((3, 2, 1, 2), 2.0 + 0.0j)
    gain[0], gain[1] = np.nan, 0.0
    found = solutions(gain=gain).at("A", TIMES, np.array([1.4e9]), "linear")
    assert (found == 2.0).all()
    with pytest.raises(ModelError, match="several antennas 'A'"):
        solutions(antenna_names=("A", "A")).at("A", TIMES, np.array([1.4e9]), "linear")
    for wrong in ({"freq": np.array([-1.0])}, {"window": np.zeros(7, int)}, {"interval": np.zeros(7)}):
        with pytest.raises(ModelError, match="gains: "):
            solutions(**wrong)


def test_numbers_of_antennas_that_are_not_there(tmp_path: Path) -> None:
    """-1 is not the last antenna."""
    for number in (-1, 99):
        cells = columns()
        cells["ANTENNA1"] = np.where(cells["ANTENNA1"] == 0, number, 1).astype(np.int32)
        make_table(tmp_path / f"cal{number}.G0", **cells)
        with pytest.raises(MeasurementSetError, match=f"ANTENNA1 has {number}, but there are 2 antennas"):
            read_gains(tmp_path / f"cal{number}.G0")


@pytest.mark.parametrize("size", [10, 300])
def test_a_table_that_is_cut_short_is_said_to_be(tmp_path: Path, size: int) -> None:
    """casacore says of some lengths that the file is not writable."""
    make_table(tmp_path / "cal.G0", **columns())
    with open(tmp_path / "cal.G0/table.f0", "r+b") as file:
        file.truncate(size)
    with pytest.raises(MeasurementSetError, match="is cut short or damaged"):
        read_gains(tmp_path / "cal.G0")


def test_numbers_and_tables_multiply() -> None:
    gain = Gain(
        amplitude={"r": 2.0, "l": 3.0},
        phase="90 deg",
        antenna={"B": {"amplitude": 0.5}},
        table=[solutions(), solutions()],
    )
    found = gains_of(SkyModel([POINT], gain=gain), view_of(("A", "B"), TIMES, np.array([1e9])))
    own = solutions().gain[:, :, 0] ** 2
    assert np.allclose(found[:, 0, 0], own[:, 0] * [2j, 3j], atol=1e-13)
    assert np.allclose(found[:, 1, 0], own[:, 1] * [0.5j, 0.5j], atol=1e-13)


def test_all_terms_are_those_of_eht_imaging(data_dir: Path) -> None:
    """G D P for the gains, leakages and angles of eht-imaging, which multiplied them itself."""
    with np.load(data_dir / "truth/jones/eht.npz") as file:
        eht = dict(file)
    names = tuple(map(str, eht["stations"]))
    gains = GainSolutions(
        "", eht["times"], eht["chan_freq"], names, eht["gain"][:, :, None], np.ones((30, 8, 1, 2), bool)
    )
    pairs = zip(names, eht["d_r"], eht["d_l"], strict=True)
    leakage = Leakage(antenna={name: {"d_r": complex(r), "d_l": complex(left)} for name, r, left in pairs})
    sky = SkyModel([POINT], feeds=Feeds(rotation=True), leakage=leakage, gain=Gain(table=gains))
    observation = noisy(eht)
    terms = sky.bind(observation.partition_views).sources(np.ones(1), 0).antenna_terms
    assert terms is not None
    found = terms.jones[0, terms.time_block][:, :, 0]
    used = observation.partitions[0].used_antennas
    up = np.zeros((30, 8), bool)
    up[eht["time_index"], eht["antenna1"]] = up[eht["time_index"], eht["antenna2"]] = True
    assert used.all()
    # eht-imaging's pi has 13 digits; gains are up to 1.5.
    assert np.abs((found - eht["jones_fr_d_g"])[up]).max() < 3e-12


@pytest.mark.parametrize("n_par", [1, 2])
def test_a_gain_table_of_casa(tmp_path: Path, n_par: int) -> None:
    cells = columns(n_par=n_par)
    cells["FLAG"][0] = True  # antenna A, window 0, first time
    make_table(tmp_path / "cal.G0", "G Jones" if n_par == 2 else "T Jones", n_par=n_par, **cells)
    read = read_gains(tmp_path / "cal.G0")
    assert read.n_flagged == n_par
    assert f"14 solutions, {n_par} flagged, 2 antennas, 2 times, 2 frequencies" in str(read)
    middle = TIMES[:2].mean()
    at = np.array([TIMES[0], middle, TIMES[1]])
    sky = SkyModel([POINT], gain=Gain(table=read))
    for window, freq in ((0, 1.4e9), (1, 1.5e9)):
        found = gains_of(sky, view_of(("A", "B"), at, freq + 1e6 * np.arange(4)))
        second = 1.0j if n_par == 2 else 1.0
        amplitude_a = [101.0] * 3 if window == 0 else [11.0, 61.0, 111.0]
        amplitude_b = np.array([2.0, 52.0, 102.0]) + 10 * window
        # CASA's numbers are in single precision.
        assert np.allclose(found[:, 0], np.array(amplitude_a)[:, None, None] * [1.0, second], rtol=1e-6)
        assert np.allclose(found[:, 1], amplitude_b[:, None, None] * [1.0, second], rtol=1e-6)


def test_a_bandpass_table_of_casa(tmp_path: Path) -> None:
    make_table(tmp_path / "cal.B0", "B Jones", n_chan=4, **columns(n_chan=4))
    found = gains_of(
        SkyModel([POINT], gain=Gain(table=read_gains(tmp_path / "cal.B0"))),
        view_of(("A", "B"), TIMES[:1], 1.4e9 + 1e6 * np.array([0.0, 0.5, 3.0, 4.0])),
    )
    assert np.allclose(found[0, 1, :, 0], 2.0 * np.array([1.0, 1.5, 4.0, 4.0]), rtol=1e-6)


def test_what_is_no_table_of_gains_is_refused_in_one_line(tmp_path: Path) -> None:
    make_table(tmp_path / "cal.K0", "K Jones", **columns())
    with pytest.raises(MeasurementSetError, match=r"a casacore table \(K Jones\), but not one of gains"):
        read_gains(tmp_path / "cal.K0")
    with pytest.raises(DataError, match="no such gain table"):
        read_gains(tmp_path / "none")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(DataError, match="not a file of gains, or damaged"):
        read_gains(tmp_path / "text.npz")
    cells = columns()
    cells["FLAG"][cells["ANTENNA1"] == 1] = True
    make_table(tmp_path / "cal.G0", **cells)
    sky = SkyModel([POINT], gain=Gain(table=read_gains(tmp_path / "cal.G0")))
    with pytest.raises(ModelError, match="no solution of antenna 'B' that is not flagged; leave the antenna"):
        sky.bind([view_of(("A", "B"), TIMES, np.array([1.4e9]))])
    with pytest.raises(ModelError, match="has no antenna 'C'"):
        sky.bind([view_of(("A", "C"), TIMES, np.array([1.4e9]))])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"amplitude": Normal(1, 0.1)}, "amplitude: an amplitude is above 0, so its prior must be, too"),
        ({"phase": 3}, "phase: 3 has no unit"),
        ({"amplitude": {"q": 1}}, "unknown feed 'q'; expected r and l, or x and y"),
        ({"amplitude": {"x": 1}}, "gain: amplitude: 'x' is not a feed of the data, which have r, l"),
        ({"interpolation": "cubic"}, "interpolation: one of linear, nearest, found 'cubic'"),
        ({"table": 3}, "table: expected the path of a gain table, found 3"),
        ({"table": "here"}, "was not read; biro.read_gains reads it"),
        ({"antenna": {"Z": {"amplitude": 2}}}, "gain: no antenna is called 'Z'"),
    ],
)
def test_gains_that_cannot_be_are_refused_in_one_line(given: dict[str, object], message: str) -> None:
    view = view_of(("A", "B"), TIMES, np.array([1.4e9]))
    with pytest.raises(ModelError, match=message) as caught:
        SkyModel([POINT], gain=Gain(**given)).bind([view])
    assert "\n" not in str(caught.value)


def test_model_files_name_tables_of_gains(tmp_path: Path) -> None:
    make_table(tmp_path / "cal.G0", **columns())
    text = """
[gain]
amplitude = { r = 1.1, l = 0.9 }
table = "cal.G0"
interpolation = "nearest"

[gain.antenna.A]
phase = "20 deg"

[[source]]
name = "p"
east = "0 rad"
north = "0 rad"
I = "1 Jy"
"""
    sky = from_toml(text, tmp_path)
    assert sky.gain.table == (str(tmp_path / "cal.G0"),)
    assert from_toml(sky.to_toml()) == sky
    read = with_gains_read(sky, scattered())
    assert isinstance(read.gain.table[0], GainSolutions)
    assert read.to_toml() == sky.to_toml()
    assert with_gains_read(read, scattered()) is read
    with pytest.raises(ModelError, match="gains in memory cannot be written"):
        SkyModel([POINT], gain=Gain(table=solutions())).to_toml()


def scattered(n_time: int = 400) -> biro.Observation:
    """Many times of two antennas, 10 s apart."""
    return biro.Observation.from_arrays(
        np.ones((n_time, 1, 4), complex),
        np.zeros((n_time, 3)),
        np.zeros(n_time, int),
        np.ones(n_time, int),
        5e9 + 10.0 * np.arange(n_time),
        [1.4e9],
        RR_LL,
    )


def test_drawn_gains_scatter_as_asked_and_stay_within_intervals() -> None:
    observation = scattered(4000)
    drawn = GainScatter(0.1, 0.2, 10.0).draw(observation, 5)
    log = np.log(drawn.gain).reshape(-1)
    # 16000 draws: a standard deviation is good to 1/sqrt(32000) = 0.56 %; five of that.
    assert log.real.std() == pytest.approx(0.1, rel=0.03)
    assert log.imag.std() == pytest.approx(0.2, rel=0.03)
    assert np.array_equal(GainScatter(0.1, 0.2, 10.0).draw(observation, 5).gain, drawn.gain)
    assert not np.array_equal(GainScatter(0.1, 0.2, 10.0).draw(observation, 6).gain, drawn.gain)
    blocks = GainScatter(0.1, 0.2, 60.0).draw(observation, 5).gain[:, 0, 0, 0]
    assert (np.diff(blocks[:6]) == 0).all()
    assert blocks[6] != blocks[5]
    assert len(np.unique(GainScatter(0.1).draw(observation, 5).gain[:, 0, 0, 0])) == 1


def test_drawn_gains_are_read_back(tmp_path: Path) -> None:
    drawn = GainScatter(0.1, 0.2, 60.0).draw(scattered(), 5)
    write_gains(tmp_path / "g.npz", drawn)
    read = read_gains(tmp_path / "g.npz")
    assert np.array_equal(read.gain, drawn.gain)
    assert read.antenna_names == drawn.antenna_names
    view = view_of(("0", "1"), scattered().partitions[0].times, np.array([1.4e9]))
    found = gains_of(SkyModel([POINT], gain=Gain(table=read)), view)
    assert np.allclose(found, drawn.gain, rtol=1e-14)  # amplitude and phase apart, and back


def test_scatter_that_cannot_be_is_refused() -> None:
    for given in ({"amplitude": -1.0}, {"phase": np.nan}, {"interval": 0.0}):
        with pytest.raises(InputError):
            GainScatter(**given)
    assert issubclass(InputError, BiroError)


def test_the_statement_names_tables_and_flagged_solutions(tmp_path: Path) -> None:
    cells = columns()
    cells["FLAG"][0] = True
    make_table(tmp_path / "cal.G0", **cells)
    sky = SkyModel([POINT], gain=Gain(table=read_gains(tmp_path / "cal.G0")))
    lines = scattered().instrument_lines(sky)
    assert lines[0].startswith(
        "feeds: mounts: 2 not stated. biro assumes that the data (arrays) are corrected"
    )
    assert lines[1].endswith(
        "14 solutions, 2 flagged, 2 antennas, 2 times, 2 frequencies; interpolated linearly in time"
    )
