"""Writers of Measurement Sets that are killed at each moment: there is a way forward that loses nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from killed import moments

import biro
from biro.errors import MeasurementSetError
from biro.flagging.strategy import Mask, Strategy
from biro.io.measurement_set import create_ms, read_ms, write_column

PROGRAM = Path(__file__).parent / "killed_writer_program.py"


@pytest.fixture
def ms(measurement_set: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a small set (63 rows, 4 channels, RR RL LR LL)."""
    return Path(shutil.copytree(measurement_set("sim_7_circ"), tmp_path / "set.ms"))


def flags(path: Path) -> np.ndarray:
    with table(str(path), ack=False) as main:
        return np.asarray(main.getcol("FLAG"))


def flag_twice(ms: Path) -> tuple[np.ndarray, np.ndarray]:
    """Flag a channel, then all others; the flags before, and those between."""
    freq = read_ms(ms, column="DATA").partitions[0].chan_freq
    original = flags(ms)
    low, high = freq[0] - 1.0, freq[0] + 1.0
    biro.flag(ms, Strategy("one", masks=(Mask.of(f"{low} Hz..{high} Hz"),)))
    first = flags(ms)
    biro.flag(ms, Strategy("all", masks=(Mask.of("1 Hz..99 GHz"),)))
    assert flags(ms).all()
    assert original.sum() < first.sum() < first.size
    return original, first


def test_an_undo_that_is_killed_loses_no_flags(ms: Path, tmp_path: Path) -> None:
    """Whatever is done next, the first flags are reached by as many undos as there were flaggings."""
    original, first = flag_twice(ms)
    np.savez(tmp_path / "flags.npz", original=original, first=first)
    assert moments(PROGRAM, "undo", ms, tmp_path / "flags.npz") > 20


def test_a_change_in_place_that_is_killed_loses_no_values(ms: Path) -> None:
    """The column holds the old values or all of the new ones, and can be read without any repair."""
    observation = read_ms(ms, column="DATA")
    write_column(ms, "CORRECTED_DATA", observation, [observation.partitions[0].vis])
    assert moments(PROGRAM, "in-place", ms) > 20


def test_one_folder_of_versions_for_all_paths_of_a_set(ms: Path, tmp_path: Path) -> None:
    (tmp_path / "link.ms").symlink_to(ms)
    original = flags(ms)
    biro.flag(tmp_path / "link.ms", Strategy("all", masks=(Mask.of("1 Hz..99 GHz"),)))
    assert sorted(each.name for each in tmp_path.glob("*.flagversions")) == ["set.ms.flagversions"]
    assert biro.undo_flags(ms) == "before_biro_1"
    assert np.array_equal(flags(ms), original)


def test_a_version_that_is_a_link(ms: Path, tmp_path: Path) -> None:
    """Its flags come back; the link goes, and what it leads to stays."""
    _, first = flag_twice(ms)
    version = Path(f"{ms}.flagversions") / "flags.before_biro_2"
    version.rename(tmp_path / "elsewhere")
    version.symlink_to(tmp_path / "elsewhere")
    assert biro.undo_flags(ms) == "before_biro_2"
    assert np.array_equal(flags(ms), first)
    assert (tmp_path / "elsewhere" / "table.dat").exists()
    assert not version.is_symlink()


@pytest.mark.parametrize("damage", ["file", "empty", "no column", "cut short", "other rows", "list"])
def test_a_damaged_version_changes_nothing(ms: Path, tmp_path: Path, damage: str) -> None:
    """It is refused before FLAG is marked, and the version before it is the way forward."""
    original, _ = flag_twice(ms)
    versions = Path(f"{ms}.flagversions")
    version = versions / "flags.before_biro_2"
    match damage:
        case "file":
            shutil.rmtree(version)
            version.write_text("x")
        case "empty":
            shutil.rmtree(version)
            version.mkdir()
        case "no column":
            with table(str(version), readonly=False, ack=False) as kept:
                kept.removecols("FLAG_ROW")
        case "cut short":
            for file in version.glob("table.f*"):
                with open(file, "r+b") as opened:
                    opened.truncate(10)
        case "other rows":
            version.rename(tmp_path / "whole")
            with table(str(tmp_path / "whole"), ack=False) as kept:
                kept.selectrows(range(9)).copy(str(version), deep=True).close()
        case "list":
            (versions / "FLAG_VERSION_LIST").unlink()
            (versions / "FLAG_VERSION_LIST").mkdir()
    with pytest.raises(MeasurementSetError, match=r"Move it away|reading the version"):
        biro.undo_flags(ms)
    with table(str(ms), ack=False) as main:
        assert not main.getcolkeywords("FLAG")
    assert flags(ms).all()
    if damage == "list":
        (versions / "FLAG_VERSION_LIST").rmdir()
        biro.undo_flags(ms)
    else:
        version.rename(tmp_path / "damaged")
    assert biro.undo_flags(ms) == "before_biro_1"
    assert np.array_equal(flags(ms), original)


def test_half_written_flags_whose_version_is_gone(ms: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No version brings them back: the next run takes them as they are, and says so."""
    with table(str(ms), readonly=False, ack=False) as main:
        main.putcolkeyword("FLAG", "BIRO_COMPLETE", False)
    biro.flag(ms, Strategy("all", masks=(Mask.of("1 Hz..99 GHz"),)))
    assert "biro uses FLAG as it is" in caplog.text
    assert flags(ms).all()


def test_a_set_that_is_replaced_takes_its_versions_along(ms: Path) -> None:
    """An undo never brings back flags of another set of the same rows."""
    observation = read_ms(ms, column="DATA")
    flag_twice(ms)
    create_ms(ms, observation, overwrite=True)
    assert not Path(f"{ms}.flagversions").exists()
    with pytest.raises(MeasurementSetError, match="no flags to restore"):
        biro.undo_flags(ms)
