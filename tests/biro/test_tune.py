"""`biro tune`: what it says, and where it writes. Times are made up; a device is pretended."""

from __future__ import annotations

import json

import pytest
from commands import biro

from biro.distributed.tasks import run
from biro.distributed.tasks.cores import n_core
from biro.distributed.tasks.lost import LostTask
from rime_kernels import device, tuning
from rime_kernels.cuda.launch_shapes import records
from rime_kernels.cuda.launch_shapes.candidates import all_kinds
from rime_kernels.tuning import trial


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """A GPU on which every shape takes 1 ms; and the file that remembers."""
    path = tmp_path / "tuning.json"
    monkeypatch.setenv("BIRO_TUNING", str(path))
    monkeypatch.setattr(device, "simulated", lambda: False)
    monkeypatch.setattr(device, "device_name", lambda: "GPU 1")
    monkeypatch.setattr(device, "capability", lambda: (7, 0))
    monkeypatch.setattr(device, "resolve", lambda _: ("cuda", "cuda: found GPU 1"))
    monkeypatch.setattr(trial, "milliseconds", lambda *_: 1.0)
    monkeypatch.setattr(tuning, "most_processes", lambda: 1)
    for cache in (records.on_record, records.here):
        cache.cache_clear()
    yield path
    for cache in (records.on_record, records.here):
        cache.cache_clear()


def test_without_a_device_it_says_so_in_one_line(monkeypatch) -> None:
    monkeypatch.setattr(device, "resolve", lambda _: ("cpu", "cpu: no CUDA device was found"))
    assert biro("tune") == (0, "nothing to tune: cpu: no CUDA device was found\n", "")


def test_it_prints_a_table_and_says_where_it_wrote(pretended) -> None:
    code, out, said = biro("tune", "--precision", "single", "--quick")
    assert code == 0, said
    head, *lines, last = out.splitlines()
    assert head.split() == ["kernel", "shape", "ms", "gain"]
    assert len(lines) == len(all_kinds("single"))
    assert all("single" in line and line.split()[-2:] == ["1", "1.00"] for line in lines)
    assert "nothing to tune" in last
    for kernel in ("transposition", "running median", "noise", "SumThreshold"):
        assert sum(line.startswith(f"{kernel}, single  ") for line in lines) == 1
    assert said.splitlines() == ["tuning for GPU 1", f"written to {pretended}"]
    assert len(json.loads(pretended.read_text())["records"]) == len(lines)


def test_processes_share_the_kernels(pretended, monkeypatch) -> None:
    """And one that dies costs its kernel alone: no process of them has the pretended device."""
    asked = {}

    def run_tasks(search, todo, n_worker, stop):
        asked.update(todo)
        assert n_worker == min(n_core(), 3)
        lost, *names = todo
        return [LostTask(lost, f"{lost} cost 3 processes"), *(search(todo[name]) for name in reversed(names))]

    monkeypatch.setattr(tuning, "most_processes", lambda: 3)
    monkeypatch.setattr(run, "run_tasks", run_tasks)
    code, out, said = biro("tune", "--precision", "double", "--quick")
    assert code == 0
    kinds = all_kinds("double")
    assert list(asked.values()) == kinds
    assert f"{kinds[0]} cost 3 processes" in said
    assert [line.split("  ")[0] for line in out.splitlines()[1:-1]] == [str(kind) for kind in kinds[1:]]


def test_what_could_not_be_written_is_not_said_to_be(pretended, monkeypatch) -> None:
    monkeypatch.setenv("BIRO_TUNING", "off")
    code, _, said = biro("tune", "--precision", "double", "--quick")
    assert code == 0
    assert said.splitlines()[-1] == "not written, so later runs will not use it (is BIRO_TUNING off?)"
    pretended.write_text("precious")
    monkeypatch.setenv("BIRO_TUNING", str(pretended))
    assert "not written" in biro("tune", "--precision", "double", "--quick")[2]
    assert pretended.read_text() == "precious"


def test_another_precision_is_refused() -> None:
    assert biro("tune", "--precision", "half")[0] == 2
