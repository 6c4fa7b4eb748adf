"""Data flagged by hand: lines of biro, CASA and AIPS, in Measurement Sets and copies of UVFITS files."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from casacore.tables import table, taql
from commands import works
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.diagnosis.flag_command import command_of
from biro.errors import DataError, InputError
from biro.io.flag_commands.aips import read_records
from biro.io.flag_commands.commands import AntennaPair, read_line
from biro.io.flag_commands.text import read_any, read_lines
from biro.io.measurement_set import create_ms
from biro.models import PointSource, SkyModel, Uniform

NAMES = ["FD", "HN", "K-P", "LA"]
PAIRS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
MIDNIGHT = 51544.0 * 86400  # 2000-01-01T00:00
START, STEP, N_TIME, N_CHAN = MIDNIGHT + 9 * 86400 + 3600.0, 10.0, 12, 8  # 2000-01-10T01:00, day 10
CORR = ["RR", "RL", "LR", "LL"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four antennas, 12 times of 10 s from 2000-01-10T01:00, 8 channels; baselines of 0.1 to 1 km."""
    n = N_TIME * len(PAIRS)
    first, second = (np.tile([pair[i] for pair in PAIRS], N_TIME).astype(np.int32) for i in (0, 1))
    uvw = np.zeros((n, 3))
    uvw[:, 0] = np.tile([100.0, 200.0, 400.0, 600.0, 800.0, 1000.0], N_TIME)
    observation = biro.Observation.from_arrays(
        np.ones((n, N_CHAN, 4), np.complex64), uvw, first, second,
        START + STEP * np.repeat(np.arange(N_TIME), len(PAIRS)), 1.4e9 + 1e6 * np.arange(N_CHAN), CORR,
        chan_width=1e6, interval=STEP, antenna_names=NAMES, antenna_positions=1e3 * np.eye(4)[:, :3],
    )  # fmt: skip
    path = tmp_path / "data.ms"
    create_ms(path, observation)
    return path


def flag_column(path: Path) -> np.ndarray:
    """FLAG as (time, baseline, channel, correlation)."""
    with table(str(path), ack=False) as main:
        return np.asarray(main.getcol("FLAG")).reshape(N_TIME, len(PAIRS), N_CHAN, 4)


def of_antenna(name: str) -> list[int]:
    return [i for i, pair in enumerate(PAIRS) if NAMES.index(name) in pair]


ALL = slice(None)
EXPECTED = {
    # biro's own form
    "antenna=FD": (ALL, of_antenna("FD"), ALL, ALL),
    "antennas=FD,LA": (ALL, [0, 1, 2, 4, 5], ALL, ALL),
    "antennas=!FD": (ALL, [3, 4, 5], ALL, ALL),
    "antenna=1": (ALL, of_antenna("HN"), ALL, ALL),
    "baseline=FD-K-P": (ALL, [1], ALL, ALL),
    "baselines=HN-LA, FD-*": (ALL, [0, 1, 2, 4], ALL, ALL),
    "time=2000-01-10T01:00:20": (2, ALL, ALL, ALL),
    "time=2000-01-10T01:00:23": (2, ALL, ALL, ALL),  # within the integration of 10 s
    "time_range=2000-01-10T01:00:20..2000-01-10T01:00:40": (slice(2, 5), ALL, ALL, ALL),
    "time=..2000-01-10T01:00:10": (slice(0, 2), ALL, ALL, ALL),
    "channels=2:6:2": (ALL, ALL, [2, 4], ALL),
    "spw=0, channel=3,7": (ALL, ALL, [3, 7], ALL),
    "correlations=RR,LL": (ALL, ALL, ALL, [0, 3]),
    "uv_range=150 m..500 m": (ALL, [1, 2], ALL, ALL),
    "antenna=HN, time=2000-01-10T01:01.., channel=0:2, correlation=RL": (slice(6, 12), [0, 3, 4], [0, 1], 1),
    # CASA: ends of ranges are included, a time without a date is of the first day, dates hold for both ends
    "mode='manual' antenna='FD' reason='bad'": (ALL, [0, 1, 2], ALL, ALL),
    "antenna='FD&HN;HN&LA'": (ALL, [0, 4], ALL, ALL),
    "antenna='!FD'": (ALL, [3, 4, 5], ALL, ALL),
    "timerange='2000/01/10/01:00:20~01:00:40'": (slice(2, 5), ALL, ALL, ALL),
    "timerange='01:00:20~01:00:40'": (slice(2, 5), ALL, ALL, ALL),
    "timerange='2000/01/10/01:00:20+00:00:20'": (slice(2, 5), ALL, ALL, ALL),
    "timerange='>2000/01/10/01:01:35'": (slice(10, 12), ALL, ALL, ALL),
    "spw='0:2~4;6'": (ALL, ALL, [2, 3, 4, 6], ALL),
    "spw='*:<2'": (ALL, ALL, [0, 1], ALL),
    "spw='0:0~7^3' correlation='RR,LL'": (ALL, ALL, [0, 3, 6], [0, 3]),
    "uvrange='150~500m'": (ALL, [1, 2], ALL, ALL),
    "uvrange='>0.5km'": (ALL, [3, 4, 5], ALL, ALL),
    "uvrange='<1klambda' spw='0'": (ALL, [0, 1], ALL, ALL),  # 1 klambda is 213 m at 1.4 GHz
}  # fmt: skip


@pytest.mark.parametrize("line", EXPECTED)
def test_a_line_names_what_it_says(data: Path, line: str) -> None:
    """Each against the cells counted by hand; nothing is written in a dry run."""
    time, baseline, chan, corr = EXPECTED[line]
    expected = np.zeros((N_TIME, len(PAIRS), N_CHAN, 4), bool)
    chosen = zip(expected.shape, (time, baseline, chan, corr), strict=True)
    expected[np.ix_(*(np.arange(n)[item].reshape(-1) for n, item in chosen))] = True
    report = biro.flag_selected(data, line)
    assert report.n_flagged == expected.sum()
    np.testing.assert_array_equal(flag_column(data), expected)


CASA_BASELINES = ("FD", "FD&HN;LA", "!FD", "0~1&*", "FD,HN&", "HN&LA,K-P", "*", "FD&&*", "0,2")


def test_antennas_of_casa_are_those_of_casacore(data: Path) -> None:
    """casacore's own parser of these expressions selects the rows, by way of TaQL."""
    with table(str(data), ack=False) as main:  # noqa: F841 (taql finds it by its name)
        for text in CASA_BASELINES:
            rows = taql(f"select from $main where mscal.baseline('{text}')").nrows()
            report = biro.flag_selected(data, f"antenna='{text}'", dry_run=True)
            assert report.counts[0].n_named == rows * N_CHAN * 4, text


def test_lengths_of_casa_are_those_of_casacore(data: Path) -> None:
    """In metres; casacore takes wavelengths at one frequency of a window, biro at that of each channel."""
    with table(str(data), ack=False) as main:  # noqa: F841 (taql finds it by its name)
        for text in ("150~500m", ">0.5km", "<200m", "100~200"):
            rows = taql(f"select from $main where mscal.uvdist('{text}')").nrows()
            report = biro.flag_selected(data, f"uvrange='{text}'", dry_run=True)
            assert report.counts[0].n_named == rows * N_CHAN * 4, text


AIPS = """! a priori flags
opcode = 'FLAG'
dtimrang = 1  timeoff = 0
ant_name='LA' timerang= 10,01,00,20, 10,01,00,40 bif=0 eif=0 Reason='slewing! off source' /
ant_name='la', timerang=010,01,01,39, 010,01,01,40 bchan=1 echan=2
   stokes='RRLL' /   ! on two lines
ANTENNAS=1,2 BASELINE=3 TIMERANG=0 /
ant_name='PT' timerang=0,0,0,0, 400,0,0,0 reason='not there' /
"""


def test_records_of_aips(data: Path, tmp_path: Path) -> None:
    """Days of the year, whole seconds widened by one, numbers from 1, and a station that is not there."""
    file = tmp_path / "flags.txt"
    file.write_text(AIPS)
    expected = np.zeros((N_TIME, len(PAIRS), N_CHAN, 4), bool)
    of_la = of_antenna("LA")
    expected[np.ix_(np.arange(2, 5), of_la, np.arange(N_CHAN), np.arange(4))] = True
    expected[np.ix_([10], of_la, [0, 1], [0, 3])] = True
    expected[:, [1, 3]] = True
    report = biro.flag_selected(data, from_file=file)
    np.testing.assert_array_equal(flag_column(data), expected)
    assert report.n_flagged == expected.sum()
    assert [count.line.number for count in report.counts] == [4, 5, 7, 8]
    assert "0 flagged by 8: ant_name='PT'" in str(report)
    assert "no antenna 'PT'" in str(report)
    # Days counted from the first of the data.
    relative = AIPS.replace(" 10,", " 0,").replace("010,", "0,")
    file.write_text(relative)
    assert biro.flag_selected(data, from_file=file, dry_run=True).counts[0].n_named == 3 * 3 * N_CHAN * 4


def test_counts_and_undo(data: Path, tmp_path: Path) -> None:
    """What a line finds flagged already is said apart; versions are those of biro.flag."""
    file = tmp_path / "lines"
    file.write_text("# mine\nantenna=FD\nbaseline=FD-HN\n\nscan=99\nmode='manual' spw='0:0'\n")
    before = flag_column(data)
    result = works("flag", data, "--from", file)
    lines = {line.split("  ")[0]: line.split()[-3:] for line in result.output.splitlines()}
    of_pair = N_TIME * N_CHAN * 4
    assert lines["2: antenna=FD"] == [str(3 * of_pair), "0", str(3 * of_pair)]
    assert lines["3: baseline=FD-HN"] == [str(of_pair), str(of_pair), "0"]
    assert lines["5: scan=99"] == ["0", "0", "0"]
    assert lines["6: mode='manual' spw='0:0'"] == [
        str(6 * N_TIME * 4),
        str(3 * N_TIME * 4),
        str(3 * N_TIME * 4),
    ]
    assert "0 flagged by 3: baseline=FD-HN: all already flagged" in result.output
    assert "0 flagged by 5: scan=99: no visibility matches" in result.output
    assert "saved as before_biro_1" in result.output
    with table(f"{data}/HISTORY", ack=False) as rows:
        assert "--select antenna=FD" in rows.getcell("MESSAGE", rows.nrows() - 1)
    assert biro.undo_flags(data) == "before_biro_1"
    np.testing.assert_array_equal(flag_column(data), before)
    nothing = CliRunner().invoke(app, ["flag", str(data), "--select", "scans=99", "--json"])
    assert json.loads(nothing.stdout)["written"] is False
    assert not (Path(f"{data}.flagversions") / "flags.before_biro_1").exists()


REFUSED = {
    "antenna=XX": "no antenna 'XX'",
    "antena=FD": "no key 'antena'",
    "FD": "is not a selection",
    "time=2000-01-10T01:30..2000-01-10T01:00": "start is after the stop",
    "antenna=FD, antenna=HN": "given twice",
    "channels=80:90": "no such channels",
    "channels=a": "not understood",
    "correlations=XX": "no correlation XX in the data",
    "mode='clip' clipminmax='0,5'": "mode 'clip' is not supported",
    "mode='manual' intent='CAL*'": "key 'intent' is not supported",
    "antenna='FD' timerange='yesterday'": "not understood",
    "antenna='FD' spw='0:1.4GHz'": "not understood",
    "antenna='FD' reason='two words": "not understood",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_understood_is_refused(data: Path, line: str) -> None:
    before = flag_column(data)
    with pytest.raises((InputError, DataError), match=re.escape(REFUSED[line])):
        biro.flag_selected(data, ["antenna=FD", line])
    np.testing.assert_array_equal(flag_column(data), before)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ant_name='FD' elev=3 /", "keyword elev is not supported"),
        ("opcode='UFLG' ant_name='FD' /", "OPCODE = 'UFLG' is not supported"),
        ("ant_name='FD' timerang=1,2,3 /", "TIMERANG has 3 numbers"),
        ("ant_name='FD' /\nant_name='HN'", "does not end with /"),
        ("ant_name='FD' stokes='Q' /", "STOKES = 'Q' is not supported"),
    ],
)
def test_what_is_not_supported_of_aips_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_lines(text)


def test_forms_are_told_apart() -> None:
    """A name with "=" in it, as fields of the VLA have, stays whole; left-out stations of AIPS stay so."""
    assert read_line("field=0137+331=3C48, antenna=FD").fields == ("0137+331=3C48",)
    assert read_any("antenna='FD&HN'").pairs == (AntennaPair(("FD",), ("HN",), "without"),)
    (line,) = read_records("ANTENNAS=-1,-2 /")
    assert line.pairs[0].is_left_out


def test_a_copy_of_uvfits_has_negative_weights(data_dir: Path, tmp_path: Path) -> None:
    """Flags of the Measurement Set that CASA made of the file: the same number is flagged; all else stays."""
    (path,) = data_dir.rglob("vlba_j1033p6051_ku.uvfits")
    before, copy = path.read_bytes(), tmp_path / "copy.uvfits"
    select = "antenna=LA, time=2010-12-24T05:00..2010-12-24T12:00, spws=2,3, correlations=RR,LR"
    result = works("flag", path, "--select", select, "-o", copy)
    assert path.read_bytes() == before
    old, new = biro.read(path), biro.read(copy)
    n_flagged, la = 0, old.antenna_names.index("LA")
    for one, other in zip(old.partitions, new.partitions, strict=True):
        rows = (one.antenna1 == la) | (one.antenna2 == la)
        hour = one.time / 3600 - 55554 * 24  # 2010-12-24
        rows &= (hour >= 5) & (hour <= 12)
        expected = np.zeros(one.vis.shape, bool)
        if one.spw_id in (2, 3):
            corr = [name in ("RR", "LR") for name in one.corr_type]
            expected[np.ix_(rows, np.ones(one.n_chan, bool), corr)] = True
        np.testing.assert_array_equal(other.weight, np.where(expected, 0, one.weight))
        np.testing.assert_array_equal(other.vis, np.where(expected, 0, one.vis))
        n_flagged += int(np.count_nonzero(expected & (one.weight > 0)))
    assert n_flagged > 100
    assert new.counts["FLAG"] == n_flagged
    assert f"{n_flagged} visibilities" in result.output
    # 4 bytes of each weight are what the copy differs in, at most.
    assert sum(a != b for a, b in zip(before, copy.read_bytes(), strict=True)) <= 4 * n_flagged


def test_options_that_do_not_go_together(data: Path, data_dir: Path, tmp_path: Path) -> None:
    (uvfits,) = data_dir.rglob("vla_3c273_x.uvfits")
    there = tmp_path / "there"
    there.write_text("")
    for words, message in (
        (["flag", data, "--select", "antenna=FD", "-o", "x"], "remove -o (output= in Python)"),
        (["flag", data, "--select", "antenna=FD", "--strategy", "wsrt"], "--strategy does not go"),
        (["flag", data, "--select", "antenna=FD", "--antennas", "FD"], "--antennas does not go"),
        (["flag", data, "-o", "x"], "--output goes with --select"),
        (["flag", data, "--undo", "--select", "antenna=FD"], "--undo restores all flags"),
        (["flag", uvfits, "--select", "antenna=1"], "name a copy"),
        (["flag", uvfits, "--select", "antenna=1", "-o", uvfits], "exists"),
        (["flag", uvfits, "--select", "antenna=1", "-o", uvfits, "--overwrite"], "is the file that is read"),
        (["flag", uvfits, "--select", "antenna=1", "-o", there], "exists"),
        (["flag", uvfits, "--undo"], "biro never changes a UVFITS file"),
        (["flag", data, "--from", tmp_path / "none"], "cannot be read"),
    ):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 2, words
        assert message in result.stderr, (words, result.stderr)


def test_the_command_of_a_diagnosis_writes_a_new_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that was flagged before is read, and never written."""
    monkeypatch.chdir(tmp_path)
    parts = [SimpleNamespace(weight_origin="UVFITS")]
    samples: Any = SimpleNamespace(target=SimpleNamespace(source="a.uvfits"), parts=parts)
    assert command_of(samples, ["antenna=A"]) == "biro flag a.uvfits --select antenna=A -o flagged.uvfits"
    (tmp_path / "flagged.uvfits").touch()
    samples.target.source = "flagged.uvfits"
    assert command_of(samples, ["antenna=A"]).endswith(
        "flagged.uvfits --select antenna=A -o flagged-2.uvfits"
    )


def test_the_command_of_a_diagnosis_flags_what_it_names(tmp_path: Path) -> None:
    """One visibility of 200 sigma: the remedy holds a command, which flags it alone."""
    truth = SkyModel([PointSource("a", east="1 arcsec", north="0 arcsec", I="1 Jy")])
    observation = biro.simulate(
        "VLA-C",
        truth,
        phase_centre="12h00m00s +40d00m00s",
        times=biro.simulation.Track("2026-03-01", 600.0, 60.0),
        channels=biro.simulation.Channels(1.4e9, 2e6, 2),
        noise=0.1,
        seed=1,
    )
    path = tmp_path / "it's one.ms"  # a name that needs quoting
    create_ms(path, observation)
    with table(str(path), readonly=False, ack=False) as main:
        cell = main.getcell("DATA", 1000)
        cell[1, 0] += 20
        main.putcell("DATA", 1000, cell)
    model = SkyModel([PointSource("a", east="1 arcsec", north="0 arcsec", I=Uniform(0, 2, "Jy"))])
    likelihood = biro.Likelihood(biro.read(path), model)
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    lines = "\n".join(posterior.summary().warnings())
    command = re.search(r"`(biro flag [^`]*)`", lines)
    assert command is not None, lines
    result = CliRunner().invoke(app, shlex.split(command[1])[1:])
    assert result.exit_code == 0, result.output
    with table(str(path), ack=False) as main:
        flag = np.asarray(main.getcol("FLAG"))
    assert flag.sum() == 1
    assert flag[1000, 1, 0]
