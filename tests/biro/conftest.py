"""A small simulated Measurement Set, and copies of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import KAT_7, SOURCE, works


@pytest.fixture(scope="session")
def clean(tmp_path_factory) -> Path:
    """A small simulated set: 63 rows, 1 channel, XX XY YX YY."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "sky.toml").write_text(SOURCE + 'I = "1 Jy"\n')
    place = folder / "obs.ms"
    works("simulate", place, folder / "sky.toml", *KAT_7, "--seed", "1", "--noise", "1 Jy")
    return place


@pytest.fixture
def ms(clean: Path, tmp_path: Path) -> Path:
    """A copy of it to be damaged."""
    return Path(shutil.copytree(clean, tmp_path / "copy.ms"))
