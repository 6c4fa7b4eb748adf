"""Commands whose work ranks of MPI share: what they write is what one process writes."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from casacore.tables import table
from started_ranks import mpiexec

from biro.errors import MeasurementSetError
from biro.io.measurement_set import read_ms, write_column
from biro.models.files.toml import from_toml
from biro.sbc.procedure import load
from biro.simulation.prediction import predict

SBC_PROGRAM = Path(__file__).with_name("ranks_sbc_program.py")
KILLED_PROGRAM = Path(__file__).with_name("ranks_killed_program.py")
SKY = """
[[source]]
name = "a"
type = "point"
east = "3 arcsec"
north = "-5 arcsec"
I = "1.5 Jy"
Q = "0.2 Jy"
[[source]]
name = "b"
type = "gaussian"
east = "-8 arcsec"
north = "2 arcsec"
I = "0.7 Jy"
emaj = "4 arcsec"
emin = "2 arcsec"
pa = "30 deg"
"""

TWO_TIMES = ("--spws", "0,1", "--time-range", "2010-12-24T04:56:10..2010-12-24T04:56:30")


def biro(n: int, *words: str | Path, printed: bool = False) -> str:
    """What the command says, or prints, on n ranks; 0 stands for no MPI."""
    command = ("-m", "biro", *words)
    if n:
        done = mpiexec(n, *command)
    else:
        line = [sys.executable, *map(str, command)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout if printed else done.stderr


def column(path: Path, name: str) -> np.ndarray:
    with table(str(path), ack=False) as main:
        assert main.getcolkeyword(name, "BIRO_COMPLETE") is True
        return np.asarray(main.getcol(name))


@pytest.mark.parametrize(
    ("name", "ranks", "options"),
    [
        ("vla_3c273_x", (2,), ()),
        pytest.param(
            "vlba_j1033p6051_ku", (3,), ("--smearing", "off", *TWO_TIMES), marks=pytest.mark.thorough
        ),
    ],
)
def test_predict_by_ranks(
    tmp_path: Path,
    measurement_set: Callable[[str], Path],
    name: str,
    ranks: tuple[int, ...],
    options: tuple[str, ...],
) -> None:
    """One window, and two of several with fewer shards than ranks; a new column, and what a model leaves."""
    sky = tmp_path / "sky.toml"
    sky.write_text(SKY)
    columns = {}
    for n in (0, *ranks):
        path = Path(shutil.copytree(measurement_set(name), tmp_path / f"{n}.ms"))
        words = ("predict", path, sky, "--backend", "cpu", *options, "--column")
        assert biro(n, *words, "MODEL").count("MODEL (made)") == 1
        columns[n] = [column(path, "MODEL")]
        if n < 3:
            biro(n, *words, "LEFT", "--subtract", "--from", "DATA")
            columns[n].append(column(path, "LEFT"))
    model, left = columns[0]
    assert np.abs(model).max() > 1.0
    selected = model != 0
    np.testing.assert_array_equal(left[selected], (column_of_data(path) - model)[selected])
    for n in ranks:
        for found, alone in zip(columns[n], columns[0], strict=n < 3):
            np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_a_rank_that_is_killed_while_it_writes(
    tmp_path: Path, measurement_set: Callable[[str], Path], rank: int
) -> None:
    """The set can be read, its other columns are as before, and the same command gives the whole column."""
    sky = tmp_path / "sky.toml"
    sky.write_text(SKY)
    killed, whole = (
        Path(shutil.copytree(measurement_set("wsrt_3c343.1"), tmp_path / name)) for name in ("a.ms", "b.ms")
    )
    options = (sky, "--backend", "cpu", "--column", "LEFT", "--subtract", "--from", "DATA")
    observation = read_ms(whole, column="DATA", autocorrelations=True, allow_unusable=True)
    models = predict(observation, from_toml(SKY), backend="cpu")
    write_column(whole, "LEFT", observation, models, mode="subtract", source_column="DATA")
    done = mpiexec(2, KILLED_PROGRAM, str(rank), "3", "predict", killed, *options)
    assert done.returncode != 0
    wait_until_closed(killed)
    before = columns_but("LEFT", whole)
    after = columns_but("LEFT", killed)
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values, err_msg=name)
    with table(str(killed), ack=False) as main:
        assert main.getcolkeyword("LEFT", "BIRO_COMPLETE") is False
    assert read_ms(killed, column="DATA").digest() == read_ms(whole, column="DATA").digest()
    with pytest.raises(MeasurementSetError, match="LEFT is incomplete"):
        read_ms(killed, column="LEFT")
    biro(2, "predict", killed, *options)
    np.testing.assert_array_equal(column(killed, "LEFT"), column(whole, "LEFT"))
    assert np.abs(column(killed, "LEFT") - column_of_data(killed)).max() > 1.0


def wait_until_closed(path: Path) -> None:
    """The process that writes for a rank ends a moment after it, and leaves the set as a whole then."""
    end = time.monotonic() + 30.0
    while any(held_by(process, path) for process in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < end, "a process still has the set open"
        time.sleep(0.1)


def held_by(process: Path, path: Path) -> bool:
    """Whether a process has a file of a set open; one that has ended, or is another user's, has not."""
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith(str(path)):
                    return True
    return False


def columns_but(name: str, path: Path) -> dict[str, np.ndarray]:
    """Every other column of the main table that has values, as casacore reads it."""
    with table(str(path), ack=False) as main:
        names = [each for each in main.colnames() if each != name and main.iscelldefined(each, 0)]
        return {each: np.asarray(main.getcol(each)) for each in names}


def column_of_data(path: Path) -> np.ndarray:
    with table(str(path), ack=False) as main:
        return np.asarray(main.getcol("DATA"))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--weighting", "briggs"), marks=pytest.mark.thorough),
        ("--stokes", "IQUV", "--what", "residual"),
    ],
)
def test_image_by_ranks(
    tmp_path: Path, measurement_set: Callable[[str], Path], options: tuple[str, ...]
) -> None:
    """The same bits for any number of ranks; without them the same image, within the error of the gridder."""
    sky, path = tmp_path / "sky.toml", measurement_set("vla_3c273_x")
    sky.write_text(SKY)
    words = ("image", path, "--size", "128", "--cell", "0.3 arcsec", "--backend", "cpu", "--json", *options)
    if "residual" in options:
        words = (*words, "--model", sky)
    images, figures = {}, {}
    for n in (0, 2, 3):
        said = biro(n, *words, "-o", tmp_path / f"{n}", printed=True)
        figures[n] = json.loads(said)
        images[n] = [fits.getdata(tmp_path / f"{n}{end}.fits") for end in ("", "-psf")]
    for one, two, three in zip(images[0], images[2], images[3], strict=True):
        np.testing.assert_array_equal(two, three)
        # The accuracy asked for, 1e-4 of the image; each shard has a plan of its own.
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-4 * np.abs(one).max())
        assert not np.array_equal(two, one)  # or ranks were not used
    for name in ("n_vis", "freq", "noise"):
        # Sums of as many terms in double precision, in another order.
        assert figures[2][name] == figures[3][name] == pytest.approx(figures[0][name], rel=1e-12)


def test_replicates_of_sbc_by_ranks(tmp_path: Path) -> None:
    """Each depends on its number and the seed alone, whoever works on it."""
    rows = {}
    for n in (1, 3):
        done = mpiexec(n, SBC_PROGRAM, tmp_path / f"{n}.json")
        assert done.returncode == 0, done.stdout + done.stderr
        rows[n] = sorted(json.loads((tmp_path / f"{n}.json").read_text()), key=lambda row: row["replicate"])
    assert [row["replicate"] for row in rows[1]] == list(range(12))
    assert rows[3] == rows[1]


def test_an_error_in_a_replicate_of_a_rank_is_that_of_the_run(tmp_path: Path) -> None:
    """What rank 0 works on meanwhile is finished and kept."""
    done = mpiexec(2, "-m", "mpi4py", SBC_PROGRAM, tmp_path / "rows.json", "raises")
    assert done.returncode != 0
    assert re.search(r"MPI process 1 \(.+\): ZeroDivisionError: division by zero", done.stderr), done.stderr
    assert not (tmp_path / "rows.json").exists()
    assert load(tmp_path / "rows.run").rows


def test_simulate_by_ranks(tmp_path: Path) -> None:
    """The same set, to the bit, with gains, noise and interference."""
    sky = tmp_path / "sky.toml"
    sky.write_text(SKY)
    options = (
        "--telescope KAT-7 --start 2026-03-01 --duration 5min --integration 30s --freq 1.4GHz "
        "--chan-width 1MHz --n-chan 3 --noise 50mJy --seed 4 --gain-amplitude 0.1 --backend cpu "
        "--rfi line,burst --rfi-strength 2Jy"
    )
    found = {}
    for n in (0, 3):
        path = tmp_path / f"{n}.ms"
        centre = ("--phase-centre", "05h00m00s -45d00m00s")
        said = biro(n, "simulate", path, sky, *options.split(), *centre)
        assert "210 rows, 10 times, 3 channels" in said
        with table(str(path), ack=False) as main:
            names = ("DATA", "WEIGHT_SPECTRUM", "WEIGHT", "FLAG", "UVW", "TIME", "ANTENNA2")
            found[n] = {name: np.asarray(main.getcol(name)) for name in names}
        with np.load(tmp_path / f"{n}.rfi.npz") as file:
            found[n]["interference"] = file["interference"]
        assert "gathers" not in said
    assert 0 < found[0]["interference"].mean() < 1
    for name, values in found[0].items():
        np.testing.assert_array_equal(found[3][name], values, err_msg=name)
