"""Kill what writes files at each moment, one after the other, and look what is left.

A moment is just before each rename, unlink, rmdir, link and fsync that Python makes. Each writer runs in a
fork which ends with SIGKILL: no code of its runs afterwards. After each kill the file is the old one or the
new one, bit by bit; the same writer then writes the new one, and no temporary file is left.

    python killed_file_program.py WRITER FOLDER [UVFITS]
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from killed_writer_program import in_fork, kill_at

from biro.files.atomic import atomic_path
from biro.imaging.cubes.cube_file import cube_file
from biro.io.gain_files import write_gains
from biro.io.measurement_set.temporary import clean_up, made_beside
from biro.io.reading import read
from biro.io.uvfits.write import write_uvfits
from biro.models import PointSource, SkyModel, write_sky
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.run.directory import RunDirectory


class Kind(NamedTuple):
    """A writer of one file: `write(path, n)` writes the content n."""

    name: str
    write: Callable[[Path, int], None]


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by name."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def try_file(kind: Kind, folder: Path) -> int:
    """Kill a writer that replaces a file; how many moments there were."""
    place = folder / kind.name
    kind.write(place, 1)
    old = place.read_bytes()
    kind.write(place, 2)
    new = place.read_bytes()
    assert old != new
    for moment in itertools.count():
        place.write_bytes(old)

        def killed(moment: int = moment) -> None:
            kill_at(moment)
            kind.write(place, 2)

        status = in_fork(killed)
        assert status in (0, -signal.SIGKILL), (moment, status)
        assert place.read_bytes() in ((new,) if status == 0 else (old, new)), moment
        if status == 0:
            assert sorted(each.name for each in folder.iterdir()) == [kind.name], moment
            return moment
        assert in_fork(lambda: kind.write(place, 2)) == 0, moment
        assert place.read_bytes() == new, moment
        assert sorted(each.name for each in folder.iterdir()) == [kind.name], moment
    raise AssertionError


def sky(path: Path, n: int) -> None:
    source = PointSource("a", ra="10 deg", dec="20 deg", I=f"{n} Jy")
    write_sky(SkyModel([source], centre=("10 deg", "20 deg")), path)


def gains(path: Path, n: int) -> None:
    shape = (1, 2, 1, 2)
    solved = GainSolutions(
        "", np.ones(1), np.ones(1), ("A", "B"), np.full(shape, n + 0j), np.ones(shape, bool)
    )
    write_gains(path, solved)


def cube(path: Path, n: int) -> None:
    with cube_file(path, {}, [], (2, 1, 4)) as file:
        for _ in range(2):
            file.write(np.full((1, 4, 4), float(n)))
        file.write_beams([None, None])


def half_of_a_large_file(path: Path, n: int) -> None:
    """A writer in parts that flushes and removes files of its own meanwhile."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(bytes([n]) * 1000)
        with open(temporary, "ab") as file:
            os.fsync(file.fileno())
            file.write(b"end")


def uvfits_copy(source: str) -> Callable[[Path, int], None]:
    observation = read(source, allow_unusable=True, autocorrelations=True)

    def write(path: Path, n: int) -> None:
        models = [np.full(part.vis.shape, n, np.complex64) for part in observation.partitions]
        write_uvfits(source, path, observation, models)

    return write


def try_run(folder: Path) -> int:
    """Kill a run that begins and finishes: it can be resumed, and ends as the one that was not killed."""

    def whole() -> None:
        with RunDirectory(folder / "run", {"seed": 1}, model_toml="# model\n") as run:
            if not run.finished:
                run.write_whole_for_test()
                run.finish()

    def write(self: RunDirectory) -> None:
        from biro.files.atomic import write_atomic

        for name in ("checkpoint.bin", "report.html", "posterior.nc"):
            write_atomic(self.path / name, name.encode())

    RunDirectory.write_whole_for_test = write  # type: ignore[attr-defined]
    for moment in itertools.count():
        shutil.rmtree(folder / "run", ignore_errors=True)

        def killed(moment: int = moment) -> None:
            kill_at(moment)
            whole()

        status = in_fork(killed)
        assert status in (0, -signal.SIGKILL), (moment, status)
        assert status == 0 or in_fork(whole) == 0, moment
        names = {each.name for each in (folder / "run").iterdir()} - {"lock", "log.txt"}
        assert names == {"run.json", "model.toml", "checkpoint.bin", "report.html", "posterior.nc"}, names
        if status == 0:
            return moment
    raise AssertionError


def try_folder(folder: Path) -> int:
    """Kill the replacement of a table (a set, gains): the old one or the new one, with all of its files."""
    target = folder / "gains.G"

    def make(place: Path, text: str) -> None:
        place.mkdir()
        (place / "sub").mkdir()
        for name in ("table.dat", "table.f0", "sub/table.dat"):
            (place / name).write_text(text)

    def replace() -> None:
        clean_up(target)
        with made_beside(target, target) as new:
            shutil.rmtree(new, ignore_errors=True)
            make(new, "new")

    for moment in itertools.count():
        shutil.rmtree(folder)
        folder.mkdir()
        make(target, "old")

        def killed(moment: int = moment) -> None:
            kill_at(moment)
            replace()

        status = in_fork(killed)
        assert status in (0, -signal.SIGKILL), (moment, status)
        if not target.exists():
            clean_up(target)  # as the next one that makes a table here begins
        assert set(contents(target).values()) in ({b"old"}, {b"new"}), moment
        assert len(contents(target)) == 3, moment
        if status == 0:
            assert [each.name for each in folder.iterdir()] == ["gains.G"], moment
            return moment
        assert in_fork(replace) == 0, moment
        assert set(contents(target).values()) == {b"new"}, moment
        left = [each.name for each in folder.iterdir() if each.name.startswith(".")]
        assert not left, (moment, left)
    raise AssertionError


def main(words: list[str]) -> int:
    """Try the writers that are named, and give the number of moments."""
    writer, folder = words[0], Path(words[1])
    if writer == "run":
        return try_run(folder)
    if writer == "table":
        return try_folder(folder)
    kinds = {
        "sky": [Kind(f"sky{end}", sky) for end in (".toml", ".mod")],
        "gains": [Kind("gains.npz", gains)],
        "cube": [Kind("cube.fits", cube), Kind("large.bin", half_of_a_large_file)],
    }
    chosen = kinds[writer] if writer in kinds else [Kind("copy.uvfits", uvfits_copy(words[2]))]
    total = 0
    for kind in chosen:
        place = folder / kind.name.replace(".", "_")
        place.mkdir()
        total += try_file(kind, place)
    return total


if __name__ == "__main__":
    print(main(sys.argv[1:]))
