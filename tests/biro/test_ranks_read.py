"""Ranks of MPI that read a Measurement Set together: each its own rows; the bits of any number of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ranks_read_program import MODEL, found
from started_ranks import mpiexec

import biro
from biro.models.files.toml import from_toml

PROGRAM = Path(__file__).with_name("ranks_read_program.py")
OF_SHARDS = ("value", "gradient", "fisher", "product", "scatter")


@pytest.mark.parametrize("options", [{}, {"stokes": "I"}])
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
        # As read and with other weights; the slots of one time decide how equal shares are.
        n_all = 2 * sum(part.vis.size for part in observation.partitions)
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


def test_what_needs_all_rows_is_read_by_rank_0(
    tmp_path: Path, measurement_set: Callable[[str], Path]
) -> None:
    path = measurement_set("vla_3c273_x")
    done = mpiexec(2, PROGRAM, tmp_path / "2.npz", path, "average_time=30 s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 reads and holds all data, because of average_time" in done.stderr
    ranks = np.load(tmp_path / "2.npz")
    assert not ranks["is_held"]
    assert str(ranks["data"]) == biro.read(path, average_time="30 s").digest()
