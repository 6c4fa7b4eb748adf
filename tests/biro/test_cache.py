"""Data that lie in files of a folder: the same results, found again, read anew where the set has changed."""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import works
from ranks_read_program import MODEL, found
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.distributed.data_on_ranks import STORE
from biro.errors import InputError
from biro.files import memory
from biro.io.data_set.assembly import ObservationAssembly
from biro.io.data_set.cache import open_cache
from biro.models.files.toml import from_toml
from biro.observation import noise
from biro.observation.selection import Selection
from biro.plots import report, standard
from rime_kernels.arrays import mapped as arrays_in_files
from rime_kernels.arrays.mapped import in_folder, mapped

OF_SHARDS = ("value", "gradient", "fisher", "product", "scatter")


@pytest.fixture
def path(measurement_set: Callable[[str], Path], tmp_path: Path) -> Path:
    """A set that a test may change."""
    return Path(shutil.copytree(measurement_set("vla_3c273_x"), tmp_path / "obs.ms"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir()
    return made


def lies_in_files(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def of_one(folder: Path) -> Path:
    """The only cache in a folder."""
    (found,) = folder.iterdir()
    return found


def no_reading(*_: object) -> None:
    raise AssertionError("the set is read, though the cache has all of it")


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"stokes": "I", "average_time": "30 s"}, marks=pytest.mark.thorough)]
)
def test_a_likelihood_is_that_of_data_in_memory(
    path: Path, folder: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays_in_files, "LEAST_BYTES", 0)
    alone = found(biro.Likelihood(biro.read(path, **options), from_toml(MODEL), backend="cpu"))  # type: ignore[arg-type]
    observation = biro.read(path, cache=folder, **options)  # type: ignore[arg-type]
    likelihood = biro.Likelihood(observation, from_toml(MODEL), backend="cpu")
    kept = found(likelihood)
    data = [each for shards in STORE.shards.values() for of_one in shards.values() for each in of_one]
    assert data
    assert all(map(lies_in_files, data))
    for rime in likelihood._engines.rimes:
        engines = [shard.engine for _, made in rime.engine.local_shards.by_device for shard in made]  # type: ignore[attr-defined]
        data = [engine.lanes.data for engine in engines]  # type: ignore[attr-defined]
        assert data
        assert all(map(lies_in_files, data))
    for name, values in alone.items():
        if name not in OF_SHARDS:
            np.testing.assert_array_equal(kept[name], values, err_msg=name)
            continue
        # Sums of a million terms in double precision, in another order.
        largest = np.abs(values).max()
        np.testing.assert_allclose(kept[name], values, rtol=0, atol=1e-11 * largest, err_msg=name)
    assert f"in files of {of_one(folder)}" in likelihood.plan()


def test_the_next_call_finds_what_was_read(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = biro.read(path, cache=folder, correlations="RR")
    digest, cache = first.digest(), of_one(folder)
    about = json.loads((cache / "about.json").read_text())
    assert about["path"] == str(path)
    vis = [np.load(each) for each in cache.glob("*.vis.npy")]  # any program of the field reads these
    assert sum(each.size for each in vis) == sum(part.vis.size for part in first.partitions)
    with monkeypatch.context() as patched:
        patched.setattr(ObservationAssembly, "read", no_reading)
        again = biro.read(path, cache=folder, correlations="RR")
    assert (again.digest(), again.counts) == (digest, first.counts)

    # Files that are damaged or not there are read again.
    damaged = sorted(cache.glob("*.weight.npy"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x7f")
    sorted(cache.glob("*-shard1.json"))[0].unlink()
    read, whole = [], ObservationAssembly.read

    def counted(self: ObservationAssembly, part: Any, *more: Any) -> Any:
        read.append(part)
        return whole(self, part, *more)

    with monkeypatch.context() as patched:
        patched.setattr(ObservationAssembly, "read", counted)
        mended = biro.read(path, cache=folder, correlations="RR")
    assert len(read) == 2
    assert (mended.digest(), mended.counts) == (digest, first.counts)
    assert "reading block 0 again: other content than was written" in caplog.text

    # A set that has changed is read anew, and what is left of it is named.
    (table,) = path.glob("table.dat")
    os.utime(table)
    caplog.clear()
    biro.read(path, cache=folder, correlations="RR")
    assert f"{cache}: outdated cache of {path}, which has changed since; delete it" in caplog.text
    assert len(list(folder.iterdir())) == 2


def test_weights_from_the_scatter_are_those_of_data_in_memory(
    measurement_set: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where baselines are taken by and by: 18 times of 16 channels and four correlations each."""
    path = measurement_set("wsrt_3c343.1")
    alone = biro.read(path, weights="scatter")
    monkeypatch.setattr(noise, "BLOCK_VISIBILITIES", 2 * 18 * 16 * 4)
    kept = biro.read(path, weights="scatter", cache=folder)
    assert kept.is_distributed
    assert kept.digest() == alone.digest() != biro.read(path).digest()


def test_selections_that_look_alike_have_caches_of_their_own(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of an array leaves out the middle of more than a thousand elements."""
    one, other = (np.r_[0:middle, middle + 100 : 1400] for middle in (600, 500))
    assert repr(one) == repr(other)
    opened = [open_cache(str(folder), path, {"channels": each}).folder for each in (one, other, one)]  # type: ignore[typeddict-item]
    assert opened[0] == opened[2] != opened[1]
    by_selection = [Selection(channels=each) for each in (one, other)]  # type: ignore[arg-type]
    assert len({open_cache(str(folder), path, {"selection": each}).folder for each in by_selection}) == 2


def test_replicates_are_not_fitted_to_data_in_files(path: Path, folder: Path) -> None:
    observation = biro.read(path, cache=folder, correlations="RR")
    likelihood = biro.Likelihood(observation, from_toml(MODEL), backend="cpu", smearing="off")
    with pytest.raises(InputError, match="the data of this likelihood are in files"):
        biro.sbc.run(likelihood, "none", replicates=2)


def test_what_cannot_be_is_one_line(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"none: --cache \(cache=\) needs an existing, writable directory"):
        biro.read(path, cache=folder / "none")
    with pytest.raises(InputError, match=r"--cache \(cache=\) and --flagger \(flagger=\) cannot be combined"):
        biro.read(path, cache=folder, flagger="meerkat")
    usage = shutil.disk_usage(folder)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match=r"visibilities and weights need \S+ [MG]B, 0.001 MB are free; give"):
        biro.read(path, cache=folder)
    shown = CliRunner().invoke(
        app, ["fit", str(path), str(path), "-o", str(folder / "run"), "--each", "--cache", str(folder)]
    )
    assert shown.exit_code == 2


def test_what_memory_has_no_room_for_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observation = biro.read(path)
    size = sum(part.vis.size for part in observation.partitions)
    stated = observation.counts["total"]
    monkeypatch.setattr(memory, "free_in_system", lambda: 6 * stated)
    with pytest.raises(
        InputError,
        match=r"reading it needs .*--cache DIR, cache= in Python\), share them among MPI processes",
    ):
        biro.read(path)
    monkeypatch.setattr(memory, "free_in_system", lambda: 40 * size)
    with pytest.raises(InputError, match=r"to compute with these data needs .*; average 2 times more"):
        biro.Likelihood(observation, from_toml(MODEL), backend="cpu", smearing="off")
    # In single precision there is room for it.
    monkeypatch.setattr(memory, "free_in_system", lambda: 50 * size)
    with pytest.raises(InputError, match='precision="single"'):
        biro.Likelihood(observation, from_toml(MODEL), backend="cpu", smearing="off")
    biro.Likelihood(observation, from_toml(MODEL), backend="cpu", smearing="off", precision="single")


def test_what_needs_all_data_in_memory_is_refused_where_they_have_no_room(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A visibility and its weight are a complex64 and a float32: 12 bytes."""
    observation = biro.read(path, cache=folder)
    needed = 12 * sum(part.vis.size for part in observation.partitions)
    monkeypatch.setattr(memory, "free_in_system", lambda: needed - 1)
    with pytest.raises(InputError, match="noise of hands needs all data in the memory of one process"):
        observation.whole("noise of hands")
    monkeypatch.setattr(memory, "free_in_system", lambda: needed)
    assert not observation.whole("noise of hands").is_distributed


def test_sources_are_found_in_data_in_memory(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SearchedError(Exception):
        """With the observation that a search begins with."""

    def search(observation: biro.Observation, *_: object, **__: object) -> None:
        raise SearchedError(observation.is_distributed)

    monkeypatch.setattr("biro.source_finding.find.Search", search)
    with pytest.raises(SearchedError, match="False"):
        biro.find_sources(biro.read(path, cache=folder))


def test_arrays_in_files_have_no_names(tmp_path: Path) -> None:
    made = mapped((3, 5000), np.float64, str(tmp_path))
    assert not list(tmp_path.iterdir())
    assert made.ctypes.data % 64 == 0
    assert not made.any()
    made[2, 7] = 1.5
    copy = in_folder(made, str(tmp_path))
    made[2, 7] = 0.0
    assert copy[2, 7] == 1.5
    assert lies_in_files(copy)
    assert in_folder(made, None) is made
    small = np.ones(3)
    assert in_folder(small, str(tmp_path)) is small
    assert mapped((0, 3), np.float32, str(tmp_path)).shape == (0, 3)
    with pytest.raises(InputError, match=r"no room for 0.00012 GB of data: No such file"):
        mapped((3, 5000), np.float64, str(tmp_path / "none"))


def test_commands_keep_data_in_files(
    path: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "sky.toml"
    model.write_text(MODEL)
    words = [str(path), "--correlations", "RR", "--cache", str(folder)]
    run = ["fit", *words, str(model), "-o", str(tmp_path / "run"), "--sampler", "none", "--backend", "cpu"]
    shown = works(*run, "--smearing", "off", "--no-pictures")
    assert f"in files of {of_one(folder)}" in " ".join(shown.output.split())
    drawn = []
    monkeypatch.setattr(standard, "each_picture", lambda _, likelihood: drawn.append(likelihood) or [])
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "page")
    works("plot", tmp_path / "run", "--cache", folder)
    assert not drawn[0].observation.is_distributed  # pictures need visibilities: they are of some of them
    images = {}
    for name, more in {"files": words, "memory": words[:3]}.items():
        shown = CliRunner().invoke(
            app, ["image", *more, "-o", str(tmp_path / name), "--backend", "cpu", "--size", "128"]
        )
        assert shown.exit_code == 0, shown.output
        images[name] = biro.read_image(tmp_path / f"{name}.fits").pixels
    # The accuracy asked for, 1e-4 of the image; each shard has a plan of its own.
    largest = np.abs(images["memory"]).max()
    np.testing.assert_allclose(images["files"], images["memory"], rtol=0, atol=1e-4 * largest)
