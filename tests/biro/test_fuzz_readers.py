"""Every reader of files gives something of a mutated file, or one line: the short form of `tests/fuzz.py`."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_readers import READERS, with_other_bytes, with_other_words

from biro.errors import BiroError

COUNTS = {"fits": 80, "uvfits": 80, "catalogue": 100, "toml": 240, "sky": 200, "zernike": 60, "posterior": 0}
"""Mutated files by reader, fewer of those that take long; a posterior is read in a process of its own."""
OTHERS = 124
SLOWEST = 5.0
"""Seconds that a file may take: a hundred times what the slowest of them take alone."""


def test_there_are_two_thousand() -> None:
    assert sum(COUNTS.get(name, OTHERS) for name in READERS) >= 2000


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    """A reader that hangs fails its test."""

    def ring(*_: object) -> None:
        raise TimeoutError("a reader hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in READERS if COUNTS.get(name, OTHERS)])
def test_mutated_files_are_read_or_refused_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of the key that signs checkpoints
    file, read, seeds = READERS[name]
    rng, known, n_read = random.Random(name), seeds(), 0
    lines: list[str] = []
    path = tmp_path / "f" / file
    path.parent.mkdir()
    for number in range(COUNTS.get(name, OTHERS)):
        data = rng.choice(known)
        if rng.random() < 0.6:
            data = with_other_words(data, rng, keep_lengths=file.endswith("fits"))
        else:
            data = with_other_bytes(data, rng)
        path.write_bytes(data)
        begun = time.monotonic()
        try:
            read(path)
            n_read += 1
        except BiroError as error:
            lines.append(str(error))
        except Exception as error:
            raise AssertionError(f"file {number}: {type(error).__name__}: {data[:3000]!r}") from error
        assert time.monotonic() - begun < SLOWEST, number
        for left in path.parent.iterdir():
            left.unlink()
    assert n_read or name in ("gains", "draws", "checkpoint"), (
        "each mutation is refused: are the seeds right?"
    )
