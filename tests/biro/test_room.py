"""Room in memory and on disks of all ranks: who lacks it, what is needed and what is there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from ranks_program import MODEL, made

import biro
from biro.distributed.capacity import check_disk, check_memory
from biro.distributed.placement import Placement
from biro.distributed.ranks import MpiRanks
from biro.errors import InputError
from biro.files import memory
from biro.files.memory import FreeMemory
from biro.models.files.toml import from_toml

GB = 10**9
PLENTY = 1000 * GB


class Hosts:
    """Ranks on hosts of these names, which answer what is given here."""

    def __init__(self, hosts: list[str], answers: list[Any]) -> None:
        self.hosts, self.n_rank, self._answers = hosts, len(hosts), answers

    def do(self, *_: object) -> list[Any]:
        return self._answers

    def where(self, rank: int) -> str:
        return f"rank {rank} ({self.hosts[rank]})"


def ranks_of(hosts: list[str], answers: list[Any]) -> MpiRanks:
    return cast(MpiRanks, Hosts(hosts, answers))


def advice(times: int, n_machine: int) -> str:
    return f"{times} times, {n_machine} machines"


def test_ranks_of_a_host_share_its_memory() -> None:
    """Ranks 1 and 2 need 4 + 5 GB of the 6 GB of their host, 1.5 times as much: two such hosts for each."""
    hosts = ["one", "two", "two"]
    free = [FreeMemory(PLENTY, 6 * GB), FreeMemory(PLENTY, 6 * GB), FreeMemory(PLENTY, 6 * GB)]
    check_memory(ranks_of(hosts, free), [6 * GB, 2 * GB, 4 * GB], "it", advice)
    with pytest.raises(InputError) as refused:
        check_memory(ranks_of(hosts, free), [6 * GB, 4 * GB, 5 * GB], "it", advice)
    assert str(refused.value) == (
        "rank 2 (two): it needs 5 GB (9 GB with 1 more on its host) of memory, 6 GB are free; "
        "2 times, 4 machines"
    )


def test_a_rank_has_a_limit_of_its_own() -> None:
    free = [FreeMemory(PLENTY, PLENTY), FreeMemory(GB, PLENTY)]
    with pytest.raises(InputError) as refused:
        check_memory(ranks_of(["one", "one"], free), [3 * GB, 2.5 * GB], "it", advice)
    line = "rank 1 (one): it needs 2.5 GB of memory, 1 GB are free; 3 times, 3 machines"
    assert str(refused.value) == line


def test_ranks_that_see_the_same_files_share_a_disk(tmp_path: Path) -> None:
    """Rank 1 is on another host, but has the folder of rank 0; ranks 2 and 3 have disks of their own host."""
    hosts = ["one", "two", "three", "three"]
    found = [(True, 5 * GB), (True, 5 * GB), (False, 3 * GB), (False, 3 * GB)]
    check_disk(ranks_of(hosts, found), str(tmp_path), [2 * GB, 3 * GB, GB, 2 * GB], "data", "less")
    with pytest.raises(InputError, match=re.escape("rank 1 (two): ")) as refused:
        check_disk(ranks_of(hosts, found), str(tmp_path), [2 * GB, 4 * GB, GB, GB], "data", "less")
    assert "data need 4 GB (6 GB with 1 more on its host), 5 GB are free; less" in str(refused.value)
    with pytest.raises(InputError, match=r"rank 3 \(three\): .* data need 2.5 GB \(4 GB with"):
        check_disk(ranks_of(hosts, found), str(tmp_path), [0, 0, 1.5 * GB, 2.5 * GB], "data", "less")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="none: cannot be written: No such file"):
        check_disk(ranks_of(hosts, found), str(tmp_path / "none"), [0, 0, 0, 0], "data", "less")


def test_what_ranks_have_of_shards() -> None:
    """Rows of 1 byte in one partition and of 4 in the other."""
    n_row, shares = [[1, 2, 4], [2, 4]], [[[0, 1], [2], []], [[], [0, 1], []]]
    placement = Placement(ranks_of(["one"] * 3, []), shares, n_row)
    assert placement.totals([1.0, 4.0]) == [3.0, 28.0, 0.0]
    assert placement.largest([1.0, 4.0]) == [2.0, 16.0, 0.0]
    left = placement.without([[False, True, False], [True, False]])
    assert left.totals([1.0, 4.0]) == [1.0, 20.0, 0.0]


def test_memory_is_looked_at_once_for_a_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    now = memory.free_now
    monkeypatch.setattr(memory, "free_now", lambda: (calls.append(1), now())[1])
    biro.Likelihood(made(), from_toml(MODEL), backend="cpu", smearing="off")
    assert len(calls) == 1


def test_a_memory_limit_of_the_cpu_counts_data() -> None:
    """A visibility takes 16 + 8 bytes as it was given, 24 as it is computed with, and 39 on the way."""
    observation = made()
    (part,) = observation.partitions
    needed = part.vis.nbytes + part.weight.nbytes + (24 + 39) * part.vis.size
    make: Callable[..., biro.Likelihood] = lambda limit: biro.Likelihood(  # noqa: E731
        observation, from_toml(MODEL), backend="cpu", smearing="off", memory_limit=limit
    )
    with pytest.raises(InputError, match=r"these data need .* MB of memory in one process, .* memory_limit"):
        make(needed - 1)
    theta = np.array([[1.0, 1.0]])
    without = biro.Likelihood(observation, from_toml(MODEL), backend="cpu", smearing="off")
    assert make(needed).log_likelihood(theta) == without.log_likelihood(theta)


def test_weights_of_images_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bytes for each row and channel, and 8 n_corr + 40 n_stokes for those of a partition at a time."""
    observation = made()
    (part,) = observation.partitions
    needed = part.n_row * part.n_chan * (16 + 8 * 2 + 40)
    monkeypatch.setattr(memory, "free_now", lambda: FreeMemory(PLENTY, needed - 1))
    with pytest.raises(InputError, match="an image has weights in double precision, which needs"):
        biro.image(observation, stokes="I", backend="cpu", size=32)


def test_room_for_what_is_made_of_data(
    tmp_path: Path, measurement_set: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 channels, 4 correlations: as read, weights, I, 4 channels of I, averages of these in time."""
    path = measurement_set("wsrt_3c343.1")
    options: dict[str, Any] = {
        "weights": "equal", "stokes": "I", "average_channels": 4, "average_time": "120 s", "cache": tmp_path
    }  # fmt: skip
    n_vis = biro.read(path).partitions[0].vis.size
    n_averaged = biro.read(path, average_time="120 s").partitions[0].vis.size
    needed = n_vis * (12 + 4 + 12 / 4 + 12 / 16) + 12 * n_averaged / 16
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=int(needed) - 1))
    with pytest.raises(InputError, match=r"visibilities and weights need .* are free; give another"):
        biro.read(path, **options)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=int(needed) + 1))
    biro.read(path, **options)
