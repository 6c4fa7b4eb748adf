"""Ranks of MPI that read a Measurement Set together: each its own rows; the bits of any number of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ranks_data_program import found as data_of
from ranks_read_program import MODEL, found
from started_ranks import mpiexec

import biro
from biro.distributed.placement import shares_of_all
from biro.io.measurement_set import create_ms
from biro.models.files.toml import from_toml
from biro.simulation.interference import Interference

PROGRAM = Path(__file__).with_name("ranks_read_program.py")
DATA_PROGRAM = Path(__file__).with_name("ranks_data_program.py")
OF_SHARDS = ("value", "gradient", "fisher", "product", "scatter")


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"stokes": "I"}, marks=pytest.mark.thorough, id="stokes")]
)
def test_ranks_read_their_own_rows(
    tmp_path: Path, measurement_set: Callable[[str], Path], options: dict[str, str]
) -> None:
    path = measurement_set("vla_3c273_x")
    observation = biro.read(path, **options)
    alone = found(biro.Likelihood(observation, from_toml(MODEL), backend="cpu"))
    runs = []
    for n in (1, 2, 3):
        words = [f"{name}={value}" for name, value in options.items()]
        done = mpiexec(n, PROGRAM, tmp_path / f"{n}.npz", path, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        runs.append(dict(np.load(tmp_path / f"{n}.npz")))
        held = runs[-1].pop("held")
        # The slots of one time decide how equal shares are.
        n_all = sum(part.vis.size for part in observation.partitions)
        assert (held.size, held.sum()) == (n, n_all)
        assert held.max() < 1.2 * n_all / n
    for one in runs[1:]:
        for name, values in one.items():
            np.testing.assert_array_equal(values, runs[0][name], err_msg=name)
    for name, values in alone.items():
        if name not in OF_SHARDS:
            np.testing.assert_array_equal(runs[0][name], values, err_msg=name)
            continue
        # Sums of a million terms in double precision, in another order.
        largest = np.abs(values).max()
        np.testing.assert_allclose(runs[0][name], values, rtol=0, atol=1e-11 * largest, err_msg=name)


def test_partitions_of_few_shards_use_all_ranks() -> None:
    """Four windows of three times on eight ranks: three shards each, and no rank has more than two."""
    shares = shares_of_all([[10, 10, 10]] * 4, [1] * 4, 8)
    held = np.array([[len(shards) for shards in of_window] for of_window in shares])
    assert held.sum() == 12
    assert held.sum(axis=0).max() == 2
    assert np.count_nonzero(held.sum(axis=0)) >= 6
    for of_window in shares:  # in their order, as engines add them up
        assert [shard for shards in of_window for shard in shards] == [0, 1, 2]
    assert shares_of_all([[4, 4, 4, 4]], [1], 2) == [[[0, 1], [2, 3]]]
    assert shares_of_all([[]], [1], 2) == [[[], []]]


@pytest.mark.parametrize(
    ("n", "options"),
    [
        pytest.param(1, {"average_time": "30 s", "average_channels": 2}, marks=pytest.mark.thorough),
        (2, {"average_time": "30 s", "average_channels": 2}),
        (3, {"average_time": "100 s", "taper": "20 klambda", "weights": "equal", "stokes": "I"}),
    ],
)
def test_ranks_average_and_weigh_their_own_rows(
    tmp_path: Path, measurement_set: Callable[[str], Path], n: int, options: dict[str, str | int]
) -> None:
    """The data of one process to the bit: means do not mix rows of two ranks."""
    path, file = measurement_set("vla_3c273_x"), tmp_path / "found.json"
    done = mpiexec(n, DATA_PROGRAM, file, path, json.dumps(options))
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = json.loads(file.read_text())
    held = ranks.pop("held")
    assert ranks.pop("is_held")
    assert len(held) == n
    assert min(held) > 0
    observation = biro.read(path, **options)  # type: ignore[arg-type]
    assert sum(held) == sum(part.vis.size for part in observation.partitions)
    assert ranks == json.loads(json.dumps(data_of(observation)))


def test_ranks_read_their_own_rows_of_uvfits(tmp_path: Path, data_dir: Path) -> None:
    path, file = data_dir / "vla_3c273_x.uvfits", tmp_path / "found.json"
    done = mpiexec(2, DATA_PROGRAM, file, path, "{}")
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = json.loads(file.read_text())
    assert min(ranks.pop("held")) > 0
    assert ranks.pop("is_held")
    assert ranks == json.loads(json.dumps(data_of(biro.read(path))))


def disturbed(path: Path) -> Path:
    """A set of four antennas, noise of 1 Jy, a line and bursts; one baseline has every fourth time alone."""
    rng = np.random.default_rng(7)
    first, second = np.triu_indices(4, k=1)
    time = np.repeat(5e9 + 8.0 * np.arange(48), first.size)
    p, q = np.tile(first, 48), np.tile(second, 48)
    kept = (q != 1) | (np.arange(48).repeat(first.size) % 4 == 0)
    shape = (int(kept.sum()), 64, 2)
    noise = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    observation = biro.Observation.from_arrays(
        0.5 + noise, rng.normal(scale=100.0, size=(shape[0], 3)), p[kept], q[kept], time[kept],
        1.4e9 + 1e6 * np.arange(64), ["XX", "YY"], phase_centre=(1.0, 0.5), weight=np.full(shape, 4.0),
    )  # fmt: skip
    changed, _ = Interference(("line", "bursts", "samples"), 30.0).add(observation, seed=3)
    create_ms(path, changed)
    return path


@pytest.mark.parametrize("n", [pytest.param(3, marks=pytest.mark.thorough), 2])
def test_ranks_look_at_whole_baselines(tmp_path: Path, n: int) -> None:
    """Interference, and the scatter of each baseline, are those that one process finds, to the bit."""
    path, file = disturbed(tmp_path / "obs.ms"), tmp_path / "found.json"
    options = {"flagger": "meerkat", "weights": "scatter"}
    done = mpiexec(n, DATA_PROGRAM, file, path, json.dumps(options))
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = json.loads(file.read_text())
    assert min(ranks.pop("held")) > 0
    assert ranks.pop("is_held")
    alone = data_of(biro.read(path, **options))  # type: ignore[arg-type]
    assert alone["counts"]["interference"] > 0  # type: ignore[index]
    assert "scaled to the scatter" in str(alone["weights"])
    assert ranks == json.loads(json.dumps(alone))
