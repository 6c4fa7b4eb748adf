"""Outputs that name the root, a file in the place of a folder, or a folder in the place of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from biro.cli.guard import make_folder, refuse_existing
from biro.errors import InputError


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
