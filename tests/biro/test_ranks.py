"""Ranks of MPI that share the data of a likelihood: the same bits for any number of them, and what fails."""

from __future__ import annotations

import json
import math
import re
import socket
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import python
from ranks_program import MODEL, found, made
from started_ranks import mpiexec

import biro
from biro.distributed import watch
from biro.distributed.data_on_ranks import STORE, _summed
from biro.distributed.messages import FoundDevices, failure_of
from biro.distributed.ranks import MpiRanks
from biro.distributed.start import ProcessFacts, difference, start, versions
from biro.distributed.world import Launch
from biro.errors import BackendError, InputError
from biro.models.files.toml import from_toml
from rime_kernels import rime as rime_module
from rime_kernels.engine.device_threads import HostCPU

PROGRAM = Path(__file__).with_name("ranks_program.py")
WATCHED = Path(__file__).with_name("watch_program.py")
SKY = """
[[source]]
name = "a"
type = "point"
east = "3 arcsec"
north = "-5 arcsec"
I = {I}
[noise]
factor = 1
"""


def test_any_number_of_ranks_gives_the_bits_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one process with the same shards, and the sums of one without, in another order."""
    monkeypatch.setattr(rime_module, "threads_of", lambda _, n: [HostCPU() for _ in range(n)])
    alone = found(biro.Likelihood(made(), from_toml(MODEL), backend="cpu", devices=1))
    whole = found(biro.Likelihood(made(), from_toml(MODEL), backend="cpu"))
    for n in (2, 3):
        done = mpiexec(n, PROGRAM, tmp_path / f"{n}.npz")
        assert done.returncode == 0, done.stdout + done.stderr
        assert not done.stdout
        ranks = dict(np.load(tmp_path / f"{n}.npz"))
        assert ranks["ranks"] == n
        assert [f"MPI process {i} (" in str(ranks["plan"]) for i in (1, 2)] == [n > 1, n > 2]
        assert (tmp_path / f"{n}.by").read_text() == "0"
        for name, values in alone.items():
            np.testing.assert_array_equal(ranks[name], values, err_msg=name)
    for name, values in whole.items():
        # Sums of some hundred terms in double precision; a value is off by as much as its largest term, chi2.
        largest = max(np.abs(values).max(), np.abs(whole["chi2"]).max())
        np.testing.assert_allclose(alone[name], values, rtol=0, atol=1e-12 * largest, err_msg=name)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("raises", r"MPI process 1 \(.+\): ZeroDivisionError: division by zero \(.*ranks_program.py:\d+\)"),
        ("garbled", r"biro: MPI process 1 \(.+\): .*pickle.*\. All MPI processes stop"),
        # mpiexec ends the others at once, and may be quicker than the line of rank 0.
        (
            "killed",
            r"biro: MPI process 1 \(.+\) has ended\. All MPI processes stop|KILLED BY SIGNAL: 9|EXIT CODE: 9",
        ),
        ("other data", r"MPI process 1 \(.+\) has other data than MPI process 0"),
    ],
)
def test_all_ranks_end_where_one_fails(tmp_path: Path, what: str, line: str) -> None:
    """`started_ranks.SECONDS` is the limit; what one rank says reaches the user."""
    done = mpiexec(2, PROGRAM, tmp_path / "found.npz", what)
    assert done.returncode != 0
    assert not (tmp_path / "found.by").exists()
    said = done.stdout + done.stderr
    assert re.search(line, said), said


def test_a_fit_whose_rank_was_killed_goes_on_with_other_ranks(tmp_path: Path) -> None:
    """kill -9 of one of two in the middle of a chain; three go on, and have the chain of two to the bit."""
    start = time.monotonic()
    done = mpiexec(2, PROGRAM, tmp_path / "killed.npz", "killed while it is sampled")
    assert time.monotonic() - start < 60.0  # 5 s, but for a busy machine; the chain alone would take as long
    assert done.returncode != 0
    assert not (tmp_path / "killed.npz").exists()
    for name, n in (("killed", 3), ("whole", 2)):
        done = mpiexec(n, PROGRAM, tmp_path / f"{name}.npz", "sampled")
        assert done.returncode == 0, done.stderr
    assert "continuing from step" in (tmp_path / "killed.run" / "log.txt").read_text()
    found, whole = (np.load(tmp_path / f"{name}.npz")["samples"] for name in ("killed", "whole"))
    np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("stopped", r"biro: MPI process 1 \(.+\): no sign of life for 2 s\. All MPI processes stop"),
        (
            "killed",
            r"biro: MPI process 1 \(.+\) has ended\. All MPI processes stop|KILLED BY SIGNAL: 9|EXIT CODE: 9",
        ),
    ],
)
def test_a_rank_that_no_longer_answers_ends_all(what: str, line: str) -> None:
    """Stopped, a process is as silent as a host that is gone."""
    done = mpiexec(2, WATCHED, what)
    assert done.returncode != 0
    assert "ended well" not in done.stdout
    assert re.search(line, done.stdout + done.stderr)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_in_a_long_loop_is_alive(rank: str) -> None:
    """One that gives no other thread of Python a turn for longer than a rank may be silent."""
    done = mpiexec(2, WATCHED, "busy", rank)
    assert (done.returncode, done.stdout) == (0, "ended well\n"), done.stderr


def test_rank_0_that_is_stopped_ends_all() -> None:
    """The others say so, and do not wait for ever."""
    done = mpiexec(3, WATCHED, "stopped", "0")
    assert done.returncode != 0
    assert "biro: MPI process 0: no sign of life for 2 s. All MPI processes stop" in done.stderr
    assert "ended well" not in done.stdout


def test_one_rank_alone_misses_nobody() -> None:
    done = mpiexec(1, WATCHED, "busy")
    assert (done.returncode, done.stdout) == (0, "ended well\n"), done.stderr


def test_all_ranks_end_within_half_a_minute() -> None:
    # A sign may just have come, and the silence is seen at the next look.
    assert watch.SILENCE + 2 * watch.BEAT < 30.0


def test_who_does_not_know_the_token_is_no_rank() -> None:
    """Nor are strangers waited for who say nothing, or too little: they cost a rank no time."""
    words = (b"", b"x", b"x" * 16 + (3).to_bytes(4), b"y" * 16, b"y" * 16 + (3).to_bytes(4))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        strangers = [socket.create_connection(place) for _ in words]
        for connection, word in zip(strangers, words, strict=True):
            connection.sendall(word)
        begun = time.monotonic()
        found = watch.accepted(listener, b"y" * 16, 1)
        assert time.monotonic() - begun < 0.5 * watch.CONNECT_LIMIT
    assert list(found) == [3]
    found[3].close()
    for connection in strangers[:-1]:
        assert connection.recv(1) == b""
        connection.close()


def test_rank_0_listens_where_ranks_are() -> None:
    """On one machine nobody else can even connect."""
    assert watch.address(["here", "here"]) == "127.0.0.1"
    assert watch.address(["here", "localhost"]) == "127.0.0.1"
    with pytest.raises(OSError, match=r"."):
        watch.address(["here", "no.such.host.invalid"])


def test_ranks_must_be_alike() -> None:
    here = ProcessFacts("a", versions(), "data")
    assert difference([here, here._replace(host="b"), here._replace(data=None)]) is None
    other = here._replace(host="b", versions=versions() | {"numba": "0.1"})
    assert str(difference([here, here, other])).startswith(
        "MPI process 2 (b) has numba 0.1, MPI process 0 (a) has "
    )
    other = here._replace(versions=versions() | {"code of rime_kernels": "0"})
    assert "MPI process 1 (a) has code of rime_kernels 0, MPI process 0 (a) has " in str(
        difference([here, other])
    )
    assert "MPI process 1 (a) has other data than MPI process 0" in str(
        difference([here, here._replace(data="x")])
    )
    with pytest.raises(InputError, match=r"comm must be a communicator of mpi4py, such as .*, got int"):
        start(3)  # type: ignore[arg-type]


def test_devices_of_ranks_must_be_alike() -> None:
    ranks = object.__new__(MpiRanks)  # without the ranks themselves
    ranks._hosts = ["a", "b"]
    on_cpu, on_gpu = FoundDevices("cpu", ["CPU"], ["CPU"]), FoundDevices("cuda", ["GPU 0 (X)"], ["X"])
    ranks.check_devices_alike("cuda", {"X"}, [on_gpu])
    with pytest.raises(
        BackendError, match=r"^MPI process 0 \(a\) has a GPU, MPI process 1 \(b\) has none; give each"
    ):
        ranks.check_devices_alike("cuda", {"X"}, [on_cpu])
    with pytest.raises(
        BackendError, match=r"^MPI process 1 \(b\) has a GPU, MPI process 0 \(a\) has none; give each"
    ):
        ranks.check_devices_alike("cpu", {"CPU"}, [on_gpu])
    with pytest.raises(
        BackendError,
        match=r"^MPI process 1 \(b\) has X, MPI process 0 \(a\) has Y; all devices must be of one kind",
    ):
        ranks.check_devices_alike("cuda", {"Y"}, [on_gpu])


def test_errors_of_ranks_keep_their_class_and_name_the_rank() -> None:
    failure = failure_of(InputError("no such thing"), "rank 3 (b)")
    assert type(failure) is InputError
    assert str(failure) == "rank 3 (b): no such thing"
    assert type(failure_of(MemoryError(), "rank 1 (b)")) is BackendError


def test_the_command_prints_and_writes_by_rank_0_alone(tmp_path: Path) -> None:
    """A fit of a flux of 0.5 Jy, and lines about what cannot be done."""
    (tmp_path / "sky.toml").write_text(SKY.format(I='"0.5 Jy"'))
    prior = '{ prior = "uniform", low = 0, high = 2, unit = "Jy" }'
    (tmp_path / "model.toml").write_text(SKY.format(I=prior))
    obs, run, biro_of = tmp_path / "obs.ms", tmp_path / "run", ("-m", "biro")
    field = "--telescope KAT-7 --start 2026-03-01 --freq 1.8GHz --chan-width 1MHz --noise 100mJy"
    field += " --seed 1 --integration 60s --duration 10min"
    centre = ("--phase-centre", "05h00m00s -45d00m00s")
    done = python(*biro_of, "simulate", obs, tmp_path / "sky.toml", *field.split(), *centre)
    assert done.returncode == 0, done.stderr
    fit = ("fit", obs, tmp_path / "model.toml", "-o", run, "--sampler", "none", "--no-pictures", "--json")
    done = mpiexec(2, *biro_of, *fit, "--backend", "cpu")
    assert done.returncode == 0, done.stderr
    flux = json.loads(done.stdout)["parameters"]["a.I"]
    # 0.1 Jy of noise, 21 baselines, 10 times, two correlations: 4.9 mJy about the truth.
    assert abs(flux["median"] - 0.5) < 4 * 0.0049
    assert done.stderr.count("shared by 2 MPI processes") == 1
    assert json.loads((run / "run.json").read_text())["facts"]["likelihood"]["ranks"] == 2
    done = mpiexec(2, *biro_of, "info", obs)
    assert done.returncode == 2
    line = "2 MPI processes were started, but `biro info` runs in one process"
    assert done.stderr.count(line) == 1


def test_what_has_started_ranks_is_told_by_its_variables() -> None:
    assert Launch.of({}) == Launch(0, 1)
    assert Launch.of({"SLURM_NTASKS": "4"}) == Launch(0, 1)  # of a batch script, which runs once
    assert Launch.of({"PMI_RANK": "1", "PMI_SIZE": "3"}) == Launch(1, 3)
    assert Launch.of({"PMIX_RANK": "2", "SLURM_STEP_NUM_TASKS": "4"}) == Launch(2, 4)


def test_sums_over_shards_do_not_depend_on_who_has_which() -> None:
    """The exact sum, to 2^-60 of its bound for each shard, with the same bits for any ranks."""
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=1000) * 10.0 ** rng.integers(-6, 3, 1000) for _ in range(24)]
    most = float(np.abs(arrays).sum(axis=0).max())
    found, plain = [], []
    for bounds in ([0, 24], [0, 7, 24], [0, 1, 2, 20, 24]):
        parts = [range(*pair) for pair in pairwise(bounds)]
        STORE.shards[-1] = {i: (each,) for i, each in enumerate(arrays)}
        sums = [_summed({i: () for i in part}, -1, lambda each: [each], (), [60 - 30]) for part in parts]
        assert most < 2.0**30
        found.append(sum(part for (part,) in sums))
        plain.append(sum(sum(arrays[i] for i in part) for part in parts))
    del STORE.shards[-1]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    exact = np.array([math.fsum(each) for each in np.transpose(arrays)])
    # Half a unit of rounding for each shard.
    np.testing.assert_allclose(np.ldexp(found[0].astype(float), -30), exact, rtol=0, atol=24 * 0.5 * 2.0**-30)
    assert not np.array_equal(plain[0], plain[2])
    STORE.shards[-1] = {0: (np.array([np.nan]),)}
    with pytest.raises(BackendError, match="beyond their bound"):
        _summed({0: ()}, -1, lambda each: [each], (), [60])
    del STORE.shards[-1]
