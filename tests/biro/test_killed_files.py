"""Writers of files that are killed at each rename, unlink and flush to disk: the old file or the new one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from killed import moments

from biro.files.atomic import write_atomic
from rime_kernels.arrays.whole_file import ABANDONED_AFTER, machine, temporary_beside

PROGRAM = Path(__file__).parent / "killed_file_program.py"


@pytest.mark.parametrize(
    ("writer", "least"), [("sky", 6), ("gains", 3), ("cube", 6), ("run", 15), ("table", 6)]
)
def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path, writer: str, least: int) -> None:
    """Formats of `convert`, gains, cubes of images, a run directory, sets and tables of gains.

    Each file has three moments at least: removal of the temporary file, flush, rename.
    """
    assert moments(PROGRAM, writer, tmp_path) >= least


def test_a_uvfits_copy_that_is_killed(data_dir: Path, tmp_path: Path) -> None:
    assert moments(PROGRAM, "copy", tmp_path, data_dir / "eht_cena_2017.uvfits") >= 3


def test_whose_temporary_files_are_removed(tmp_path: Path) -> None:
    """Files of ended processes of this machine, and old ones of others; never those of living writers."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    other = f"{int(machine(), 16) ^ 1:08x}"
    names = {
        "dead": f".a.toml.{machine()}-{ended.pid}.tmp",
        "alive": f".a.toml.{machine()}-{os.getppid()}.tmp",
        "elsewhere": f".a.toml.{other}-{ended.pid}.tmp",
        "old elsewhere": f".a.toml.{other}-1.tmp",
        "another file": f".b.toml.{machine()}-{ended.pid}.tmp",
        "the user's": ".a.toml.notes.tmp",
    }
    for name in names.values():
        (tmp_path / name).write_text("half")
    long_ago = (tmp_path / names["dead"]).stat().st_mtime - 2.0 * ABANDONED_AFTER
    os.utime(tmp_path / names["old elsewhere"], (long_ago, long_ago))
    temporary_beside(tmp_path / "a.toml")
    left = {name for name, file in names.items() if (tmp_path / file).exists()}
    assert left == {"alive", "elsewhere", "another file", "the user's"}


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    """The temporary file beside it is nothing that a user has named."""
    with pytest.raises(OSError, match="No such file") as caught:
        write_atomic(tmp_path / "no" / "a.json", b"")
    assert caught.value.filename == str(tmp_path / "no" / "a.json")
