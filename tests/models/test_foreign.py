"""Files of others are read with limits of kind, size and time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from biro.models import ModelError
from biro.models.files import foreign
from biro.models.files.foreign import read_file, read_text_file, start_of
from biro.models.files.text import read_text, write_text


def test_pipes_and_devices_are_refused_unread(tmp_path: Path) -> None:
    """A pipe without a writer, and a device without end, would keep whoever reads them for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        begun = time.monotonic()
        with pytest.raises(OSError, match="is a pipe or a device, expected a file"):
            read_file(path)
        assert time.monotonic() - begun < 1.0
        assert start_of(path, 4) == b""
    with pytest.raises(IsADirectoryError, match="is a directory"):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none")


def test_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A file of 1 TB that takes no room; of one that is within its limit all is read."""
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="is larger than 256 MiB"):
        read_file(tmp_path / "large")
    assert read_file(tmp_path / "large", only=3) == b"\0\0\0"
    (tmp_path / "small").write_bytes(b"abcd")
    assert read_file(tmp_path / "small", 4) == b"abcd"
    with pytest.raises(OSError, match="is larger than"):
        read_file(tmp_path / "small", 3)
    assert read_file("/proc/self/status")  # which states a size of 0


def test_a_storage_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"abcd")
    monkeypatch.setattr(foreign, "_read", lambda *_: time.sleep(1.0))
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.1 s"):
        read_file(tmp_path / "file", limit=0.1)


def test_text_is_read_as_python_reads_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_text_file(tmp_path / "file") == "a\nb\nc\n"
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(ModelError, match="not a text file in UTF-8"):
        read_text(tmp_path / "file")


def test_text_is_written_whole_and_never_through_a_link(tmp_path: Path) -> None:
    """What a link leads to stays as it was; a write that fails leaves the old file, and no litter."""
    (tmp_path / "precious").write_text("years")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "precious").read_text() == "years"
    assert (tmp_path / "link").read_text() == "new"
    with pytest.raises(ModelError, match="cannot be written"):
        write_text(tmp_path / "link", "\udcff")
    assert (tmp_path / "link").read_text() == "new"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "precious"]
