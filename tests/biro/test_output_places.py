"""Outputs that name the root, a file in the place of a folder or the reverse; sets with files of the user."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from biro.cli.demo import run_demo
from biro.cli.guard import make_folder, refuse_existing
from biro.errors import InputError, MeasurementSetError
from biro.io.measurement_set import create_ms, read_ms


def test_folders_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is the root of the file system"):
        make_folder(Path("/"))
    with pytest.raises(InputError, match="is a file, expected a folder"):
        make_folder(tmp_path / "file")
    with pytest.raises(InputError, match="the folder cannot be made: Not a directory"):
        make_folder(tmp_path / "file" / "below")
    make_folder(tmp_path / "new" / "below")
    assert (tmp_path / "new" / "below").is_dir()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_is_never_replaced_by_a_file(tmp_path: Path, overwrite: bool) -> None:
    with pytest.raises(InputError, match="is a folder, and biro never replaces folders"):
        refuse_existing([tmp_path], overwrite)


def _text(place: Path) -> Path:
    place.parent.mkdir(exist_ok=True)
    place.write_text("years of work")
    return place


def _set(place: Path) -> Path:
    """A table of the user, whose name no keyword of the set has."""
    shutil.copytree(place.parent / "ANTENNA", place)
    return place


KEPT: dict[str, Callable[[Path], Path]] = {
    "a file": lambda ms: _text(ms / "notes.txt"),
    "a file of a name like casacore's": lambda ms: _text(ms / "table.dat.backup"),
    "a folder": lambda ms: _text(ms / "plots" / "a.png").parent,
    "a file in a subtable": lambda ms: _text(ms / "ANTENNA" / "positions.txt"),
    "another table": lambda ms: _set(ms / "ANTENNA.backup"),
    "a table whose name begins as a subtable's": lambda ms: _set(ms / "ANT"),
    "a file among versions of flags": lambda ms: _text(Path(f"{ms}.flagversions") / "why.txt"),
}


@pytest.mark.parametrize("kind", KEPT)
def test_a_set_with_files_of_the_user_is_not_replaced(
    measurement_set: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    path = Path(shutil.copytree(measurement_set("sim_7_circ"), tmp_path / "copy.ms"))
    observation = read_ms(path, column="DATA")
    kept = KEPT[kind](path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(MeasurementSetError, match=f"would be lost with it: {re.escape(str(kept))}; move it"):
        refuse_existing([path], overwrite=True)
    with pytest.raises(MeasurementSetError, match=re.escape(str(kept))):
        create_ms(path, observation, overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "name",
    ["lofar_3c48", "vla_3c273_x", "wsrt_3c343.1_tNDPPP_tmp", "SR1_M87_2017_100_lo_hops_netcal_StokesI"],
)
def test_all_that_other_programs_put_into_a_set_is_part_of_it(
    measurement_set: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Sets of CASA, DP3 and LOFAR, with tables of statistics and of a sky."""
    path = measurement_set(name)
    if (path / ".ipynb_checkpoints").exists():  # lies in the archive, and is no part of the set
        with pytest.raises(MeasurementSetError, match="ipynb_checkpoints; move it elsewhere"):
            refuse_existing([path], overwrite=True)
        path = Path(shutil.copytree(path, tmp_path / "copy", ignore=lambda *_: [".ipynb_checkpoints"]))
    refuse_existing([path], overwrite=True)


@pytest.mark.parametrize("name", ["gaussian.toml", "point.toml", "demo.ms", "report.html"])
def test_a_demo_replaces_nothing_but_a_demo(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("years of work")
    with pytest.raises(InputError, match=f"{name}: exists and is of no demo"):
        run_demo(tmp_path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["years of work"]
