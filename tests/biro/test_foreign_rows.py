"""Sets of others: times that differ by rounding, zeros, repeated rows, empty columns, signs of UVW."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from casacore.tables import makearrcoldesc, makecoldesc, maketabdesc, table
from typer.testing import CliRunner
from uvfits_file import File, antenna_table

import biro
from biro.cli.app import app
from biro.errors import DataError
from biro.io.measurement_set import create_ms
from biro.models.bound.antenna_terms.segments import cut
from biro.observation.noise import measure_noise
from biro.simulation.simulator import Channels, Track, simulate
from biro.simulation.telescopes import telescope
from biro.simulation.uvw import earth_orientation

N_TIME, N_BASELINE, N_CHAN, NOISE = 6, 21, 2, 0.01
N_VIS = N_TIME * N_BASELINE * N_CHAN * 4
SKY = """[sky]
centre = "05h00m00s -30d00m00s"
[[source]]
name = "a"
east = "40 arcmin"
north = "-6 arcmin"
I = """
FREE = '{ prior = "uniform", low = 0, high = 5, unit = "Jy" }\n'
Change = Callable[[Callable[[Any], None]], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of 2 Jy seen by KAT-7: base.ms, sky.toml, and fit.toml with a free flux."""
    place = tmp_path_factory.mktemp("foreign")
    (place / "sky.toml").write_text(SKY + '"2 Jy"\n')
    (place / "fit.toml").write_text(SKY + FREE)
    observation = simulate(
        "KAT-7",
        biro.read_model(place / "sky.toml"),
        phase_centre="05h00m00s -30d00m00s",
        times=Track("2026-03-01", 60.0 * N_TIME, 60.0),
        channels=Channels(1.4e9, 1e6, N_CHAN),
        noise=NOISE,
        seed=1,
    )
    create_ms(place / "base.ms", observation)
    return place


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Change:
    """A copy of the set, changed by a function of its main table."""

    def make(change: Callable[[Any], None]) -> Path:
        path = tmp_path / "changed.ms"
        shutil.copytree(folder / "base.ms", path)
        main = table(str(path), readonly=False, ack=False)
        change(main)
        main.close()
        return path

    return make


def times_of_one_antenna(seconds: float) -> Callable[[Any], None]:
    """Move TIME of the baselines of the first antenna."""

    def change(main: Any) -> None:
        is_first = main.getcol("ANTENNA1") == 0
        main.putcol("TIME", main.getcol("TIME") + np.where(is_first, seconds, 0.0))

    return change


@pytest.mark.parametrize("seconds", [1e-5, 1e-3, 5.0])
def test_times_within_a_part_of_an_integration_are_one_slot(
    folder: Path, changed: Change, seconds: float
) -> None:
    """Nothing that a fit, closures or gains can see changes: the same likelihood, to rounding."""
    base, moved = biro.read(folder / "base.ms"), biro.read(changed(times_of_one_antenna(seconds)))
    (part,) = moved.partitions
    assert (part.interval, len(part.times)) == (60.0, N_TIME)
    assert np.unique(part.time).size == 2 * N_TIME  # rows keep their own times
    assert cut("integration", moved.partition_views).middle.size == N_TIME
    sky = biro.read_model(folder / "fit.toml")
    for gains in ("sample", "closures"):
        pair = [biro.Likelihood(each, sky, gains=gains, smearing="on") for each in (base, moved)]
        theta = np.array([[1.9, 1.0]])
        one, other = (each.log_likelihood(theta)[0] for each in pair)
        assert other == pytest.approx(one, rel=1e-9)  # sums of 1e3 terms in another order


def test_offsets_by_design_keep_the_interval(changed: Change) -> None:
    """Two sorts of baselines whose integrations begin 20 s apart: gains are solved for once in each."""
    moved = biro.read(changed(times_of_one_antenna(20.0)))
    assert moved.partitions[0].interval == 60.0
    assert moved.partitions[0].spacing == pytest.approx(60.0)
    assert len(moved.partitions[0].times) == 2 * N_TIME
    assert cut("integration", moved.partition_views).middle.size == N_TIME
    assert cut(120.0, moved.partition_views).middle.size == N_TIME // 2


def test_blocks_of_a_length_do_not_split_an_integration(changed: Change) -> None:
    """Times that rounding puts 10 us before the end of a block belong to the next one."""

    def late_first(main: Any) -> None:
        time = main.getcol("TIME")
        main.putcol("TIME", time + np.where(time == time.min(), 1e-5, 0.0))

    moved = biro.read(changed(late_first))
    assert cut(60.0, moved.partition_views).middle.size == N_TIME


def test_averages_and_joined_sets_share_slots(folder: Path, changed: Change) -> None:
    path = changed(times_of_one_antenna(1e-5))
    averaged = biro.read(path, average_time="2 min").partitions[0]
    assert (averaged.n_row, averaged.interval) == (N_BASELINE * N_TIME // 2, pytest.approx(120.0))
    early, late = biro.read(folder / "base.ms", channels=[0]), biro.read(path, channels=[1])
    joined = biro.join([early, late])
    assert np.array_equal(joined.partitions[0].times, joined.partitions[1].times)


def zeros(main: Any) -> None:
    """7 rows of zeros, and one correlation of a further row."""
    data = main.getcol("DATA")
    data[3:10] = 0
    data[20, 0, 1] = 0
    main.putcol("DATA", data)


def test_exact_zeros_are_no_data(folder: Path, changed: Change) -> None:
    path = changed(zeros)
    found = biro.read(path)
    n_zero = 7 * N_CHAN * 4 + 1
    assert (found.counts["exactly zero"], found.counts["usable"]) == (n_zero, N_VIS - n_zero)
    assert biro.read(path, allow_unusable=True).counts["usable"] == N_VIS  # nothing is lost to predict
    result = CliRunner().invoke(
        app, ["fit", str(path), str(folder / "fit.toml"), "-o", str(path.parent / "run"), "--sampler", "none",
              "--no-pictures"],
    )  # fmt: skip
    assert result.exit_code == 0
    assert result.output.count(f"{n_zero} exactly zero") == 1


def test_a_set_of_nothing_but_zeros_is_an_empty_sky(changed: Change) -> None:
    found = biro.read(changed(lambda main: main.putcol("DATA", 0 * main.getcol("DATA"))))
    assert found.counts["usable"] == N_VIS


def test_rows_without_uvw_are_left_out(changed: Change) -> None:
    def change(main: Any) -> None:
        uvw = main.getcol("UVW")
        uvw[:5] = 0
        main.putcol("UVW", uvw)

    found = biro.read(changed(change))
    assert found.counts["UVW is zero"] == 5 * N_CHAN * 4
    assert "UVW is zero in 5 rows" in found.reading_lines[0]


@pytest.mark.parametrize("flagged", ["neither", "first", "second"])
def test_repeated_rows_count_once(folder: Path, changed: Change, flagged: str) -> None:
    def change(main: Any) -> None:
        n = main.nrows()
        main.copyrows(main)
        flag = np.zeros(2 * n, bool)
        flag[:n], flag[n:] = flagged == "first", flagged == "second"
        main.putcol("FLAG_ROW", flag)

    found = biro.read(changed(change))
    cause = "repeated row" if flagged == "neither" else "FLAG_ROW"
    assert (found.counts["usable"], found.counts[cause]) == (N_VIS, N_VIS)
    assert "rows are duplicates (antennas, time and UVW of another row)" in found.reading_lines[0]
    noise = [measure_noise(each.partitions, "XY").measured
             for each in (found, biro.read(folder / "base.ms"))]  # fmt: skip
    assert noise[0] == noise[1]


def test_rows_of_antennas_in_reversed_order_repeat_the_others(changed: Change) -> None:
    def change(main: Any) -> None:
        n = main.nrows()
        main.copyrows(main)
        first, second = main.getcol("ANTENNA1")[:n], main.getcol("ANTENNA2")[:n]
        main.putcol("ANTENNA1", second, n, n)
        main.putcol("ANTENNA2", first, n, n)
        main.putcol("UVW", -main.getcol("UVW")[:n], n, n)
        vis = main.getcol("DATA")[:n]
        matrix = vis.reshape(*vis.shape[:2], 2, 2)  # V_qp = V_pq^H (physics: section 6)
        main.putcol("DATA", matrix.conj().swapaxes(2, 3).reshape(vis.shape), n, n)

    found = biro.read(changed(change))
    assert (found.counts["usable"], found.counts["repeated row"]) == (N_VIS, N_VIS)


def test_rows_that_repeat_all_but_the_visibilities_count(changed: Change) -> None:
    def change(main: Any) -> None:
        n = main.nrows()
        main.copyrows(main)
        data = main.getcol("DATA")
        data[n:] += 1.0
        main.putcol("DATA", data)

    assert biro.read(changed(change)).counts["usable"] == 2 * N_VIS


@pytest.mark.parametrize("kind", ["zero", "empty"])
def test_an_empty_corrected_column_hides_no_data(changed: Change, kind: str) -> None:
    def change(main: Any) -> None:
        data = main.getcol("DATA")
        if kind == "zero":
            main.addcols(maketabdesc(makecoldesc("CORRECTED_DATA", main.getcoldesc("DATA"))))
            main.putcol("CORRECTED_DATA", 0 * data)
        else:
            main.addcols(maketabdesc(makearrcoldesc("CORRECTED_DATA", 0j, ndim=2, valuetype="complex")))

    path = changed(change)
    found = biro.read(path)
    assert (found.column, found.counts["usable"]) == ("DATA", N_VIS)
    assert "CORRECTED_DATA is empty or 0" in found.reading_lines[0]
    if kind == "empty":
        with pytest.raises(DataError, match=r"usable: no data .*CORRECTED_DATA was read .*--column, .*DATA"):
            biro.read(path, column="CORRECTED_DATA")


@pytest.mark.parametrize("kind", ["zero", "half"])
def test_weights_come_from_a_column_that_has_them(changed: Change, kind: str) -> None:
    def change(main: Any) -> None:
        main.putcol("WEIGHT", np.full((main.nrows(), 4), 3e4, np.float32))
        values = main.getcol("WEIGHT_SPECTRUM")
        if kind == "zero":
            main.putcol("WEIGHT_SPECTRUM", 0 * values)
            return
        main.removecols("WEIGHT_SPECTRUM")
        main.addcols(maketabdesc(makearrcoldesc("WEIGHT_SPECTRUM", 0.0, ndim=2, valuetype="float")))
        for row in range(main.nrows() // 2):
            main.putcell("WEIGHT_SPECTRUM", row, values[row])

    found = biro.read(changed(change))
    assert (found.weight_origin, found.counts["usable"]) == ("WEIGHT", N_VIS)
    assert np.all(found.partitions[0].weight == np.float32(3e4))
    assert "biro uses WEIGHT instead" in found.reading_lines[0]


@pytest.mark.parametrize("manager", ["StandardStMan", "TiledColumnStMan"])
def test_a_field_of_autocorrelations_with_cells_of_one_shape(changed: Change, manager: str) -> None:
    """A query of no rows ends casacore 3.8 with SIGSEGV."""

    def change(main: Any) -> None:
        for name, kind, zero in (("DATA", "complex", 0j), ("FLAG", "boolean", False)):
            values = main.getcol(name)
            main.removecols(name)
            described = makearrcoldesc(
                name, zero, ndim=2, shape=list(values.shape[1:]), valuetype=kind, options=5,
                datamanagertype=manager, datamanagergroup=name,
            )  # fmt: skip
            main.addcols(maketabdesc(described))
            main.putcol(name, values)
        fields = table(main.getkeyword("FIELD"), readonly=False, ack=False)
        fields.copyrows(fields)
        fields.close()
        half = np.arange(main.nrows()) >= main.nrows() // 2
        main.putcol("FIELD_ID", half.astype(np.int32))
        main.putcol("ANTENNA2", np.where(half, main.getcol("ANTENNA1"), main.getcol("ANTENNA2")))

    found = biro.read(changed(change))
    assert (found.counts["usable"], found.counts["autocorrelation"]) == (N_VIS // 2, N_VIS // 2)


def test_signs_of_uvw_are_told_apart(changed: Change) -> None:
    """The opposite sign is named, with the way out; rows of both signs in one set are named as wrong."""
    path = changed(lambda main: main.putcol("UVW", -main.getcol("UVW")))
    (line,) = biro.read(path).reading_lines
    assert "sign of UVW is opposite to that of antenna 1 minus antenna 2" in line
    assert "--convention fourier" in line
    assert not biro.read(path, convention="fourier").reading_lines


def test_rows_of_the_other_sign_are_found(changed: Change) -> None:
    def change(main: Any) -> None:
        uvw = main.getcol("UVW")
        uvw[[4, 17, 30]] *= -1
        main.putcol("UVW", uvw)

    (line,) = biro.read(changed(change)).reading_lines
    assert "the opposite sign to the others" in line
    assert "row 4" in line


@pytest.mark.parametrize(
    "name",
    ["vla_3c273_x", "vlba_j1033p6051_ku", "wsrt_3c343.1_tNDPPP_tmp", "lofar_3c48",
     "SR1_M87_2017_100_lo_hops_netcal_StokesI"],
)  # fmt: skip
def test_real_sets_of_either_sign_raise_no_alarm(measurement_set: Callable[[str], Path], name: str) -> None:
    found = biro.read(measurement_set(name), column="DATA")
    words = ("antenna 2 minus", "opposite sign", "exactly zero", "repeat", "UVW is zero")
    assert not [line for line in found.reading_lines if any(word in line for word in words)]


def test_names_of_antennas_end_at_nul(tmp_path: Path) -> None:
    """Writers leave what their memory held behind the NUL that ends a name."""
    path = File(antennas=[antenna_table(names="A~qq B~zz C~AB")]).write(tmp_path / "nul.uvfits")
    path.write_bytes(path.read_bytes().replace(b"~", b"\0"))
    assert biro.read(path).antenna_names == ("A", "B", "C")


def test_one_line_for_each_reason_of_an_empty_selection(folder: Path) -> None:
    path = folder / "base.ms"
    for options, words in (
        ({"time_range": ("2030-01-01", None)}, "in the time range; the data run from 2026-03-01"),
        ({"antennas": ["ant1"]}, "both antennas in the selection; the antennas are ant1, ant2"),
        ({"correlations": "RR"}, "these correlations; the set has XX, XY"),
        ({"uv_range": "900 km.."}, r"in the uv range; baselines are 2\d"),
        ({"fields": "simulate"}, "did you mean 'simulated'"),
        ({"column": "DATTA"}, "did you mean 'DATA'"),
    ):
        with pytest.raises(DataError, match=words):
            biro.read(path, **options)


OUTPUTS = {"fit": ["-o", "{0}/run"], "sbc": ["-o", "{0}/sbc"], "solve": ["-o", "{0}/g"]}
"""Options that commands of data and a model must have."""


def said_of(words: list[str], tmp_path: Path) -> str:
    """What a command says in its last line as it is refused, and that it leaves nothing."""
    options = [word.format(tmp_path) for word in OUTPUTS.get(words[0], [])]
    result = CliRunner().invoke(app, [*words, *options])
    assert result.exit_code == 2, result.output
    assert not list(tmp_path.iterdir())
    return result.output.splitlines()[-1]


@pytest.mark.parametrize("command", ["fit", "sbc", "solve", "predict", "simulate"])
def test_data_and_model_swapped(folder: Path, tmp_path: Path, command: str) -> None:
    sky, obs = str(folder / "sky.toml"), str(folder / "base.ms")
    words = ["simulate", sky, obs, "--telescope", "KAT-7", "--phase-centre", "0d 0d", "--start", "2026-03-01"]
    words += ["--duration", "1 min", "--integration", "60 s", "--freq", "1 GHz", "--chan-width", "1 MHz"]
    said = said_of(words if command == "simulate" else [command, sky, obs], tmp_path)
    assert re.search("(data come|the data:|OUT comes first|write the data before the model)", said), said


@pytest.mark.parametrize("command", ["fit", "sbc", "solve", "predict"])
def test_data_or_model_missing(folder: Path, tmp_path: Path, command: str) -> None:
    """The line says which, also of names of which nothing is there."""
    for data in (str(folder / "base.ms"), "none.ms", "none.UVFITS"):
        said = said_of([command, data], tmp_path)
        assert ("MODEL is missing" if command in ("fit", "sbc") else "SKY is missing") in said
        assert data in said
    for model in (str(folder / "sky.toml"), "none.toml"):
        said = said_of([command, model], tmp_path)
        assert "OBS is missing" in said
        assert model in said


@pytest.mark.parametrize("command", ["fit", "sbc"])
def test_data_and_model_missing(tmp_path: Path, command: str) -> None:
    assert "OBS and MODEL are missing" in said_of([command], tmp_path)
    assert "OBS or MODEL is missing: only something is given" in said_of([command, "something"], tmp_path)


def test_subarrays_that_aips_sets_five_days_apart(tmp_path: Path) -> None:
    """UVW of two integrations, the second of a subarray whose DATE is five days late, or right."""
    positions = telescope("KAT-7").positions[:3]
    for late, moved in ((5.0, True), (0.0, False)):
        day = np.array([0.125, 0.125, 0.126, 0.126])
        seconds = (2455197.5 - 2400000.5 + day) * 86400.0
        of_antenna = earth_orientation(seconds, (np.radians(187.5), np.radians(12.25))).antenna_uvw(positions)
        first, second = np.array([0, 0, 0, 0]), np.array([1, 2, 1, 2])
        uvw = (of_antenna[np.arange(4), first] - of_antenna[np.arange(4), second]) / 299792458.0
        tables = [antenna_table(version) for version in (1, 2)]
        for each in tables:
            each.data["STABXYZ"] = positions
        file = File(antennas=tables)
        for k, letter in enumerate("UVW"):
            file = file.replace(
                f"{letter * 2}---SIN", (f"{letter * 2}---SIN", 1e-6, 0.0, (uvw[:, k] * 1e6).tolist())
            )
        file = file.replace("BASELINE", ("BASELINE", 1.0, 0.0, [258.0, 259.0, 258.01, 259.01]))
        file.parameters[-2:] = [
            ("DATE", 1.0, 2455197.5, [0.0, 0.0, late, late]),
            ("DATE", 1.0, 0.0, day.tolist()),
        ]
        found = biro.read(file.write(tmp_path / "subarrays.uvfits"))
        # DATE is in float32 here: 0.6 s.
        assert found.partitions[0].times == pytest.approx(np.unique(seconds), abs=1.0)
        assert any("of subarray 2 5 days late" in note for note in found.notes) == moved
