"""Ranks of MPI that share the data of a likelihood: the same bits for any number of them, and what fails."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks_program import MODEL, found, made

import biro
from biro.errors import BackendError, InputError
from biro.models.files.toml import from_toml
from biro.ranks.messages import failure_of
from biro.ranks.start import Facts, difference, start, versions
from rime_kernels import rime as rime_module
from rime_kernels.engine.device_threads import HostCPU

PROGRAM = Path(__file__).with_name("ranks_program.py")
# All ranks end within so many seconds, whatever happens to one of them; and time to start.
SECONDS = 120


def mpiexec(n: int, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with these words on n ranks."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed (pip install 'biro-rime[mpi]')")
    beside = f"{Path(sys.executable).parent}"
    program = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if program is None:
        pytest.skip("mpiexec is not installed (pip install mpich)")
    command = [program, "-n", str(n), sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


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
        assert [f"rank {i} (" in str(ranks["plan"]) for i in (1, 2)] == [n > 1, n > 2]
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
        ("raises", r"rank 1 \(.+\): ZeroDivisionError: division by zero \(.*ranks_program.py:\d+\)"),
        ("garbled", r"biro: rank 1 \(.+\): .*pickle.*: all ranks end"),
        ("killed", "KILLED BY SIGNAL: 9|EXIT CODE: 9"),
        ("other data", r"rank 1 \(.+\) was given other data than rank 0"),
    ],
)
def test_all_ranks_end_where_one_fails(tmp_path: Path, what: str, line: str) -> None:
    """`SECONDS` is the limit; what one rank says reaches the user."""
    done = mpiexec(2, PROGRAM, tmp_path / "found.npz", what)
    assert done.returncode != 0
    assert not (tmp_path / "found.by").exists()
    said = done.stdout + done.stderr
    assert re.search(line, said), said


def test_ranks_must_be_alike() -> None:
    here = Facts("a", versions(), "data")
    assert difference([here, here._replace(host="b"), here._replace(data=None)]) is None
    other = here._replace(host="b", versions=versions() | {"numba": "0.1"})
    assert str(difference([here, here, other])).startswith("rank 2 (b) has numba 0.1, rank 0 (a) has ")
    assert "rank 1 (a) was given other data than rank 0" in str(difference([here, here._replace(data="x")]))
    with pytest.raises(InputError, match=r"comm must be a communicator of mpi4py, such as .*, got int"):
        start(3)  # type: ignore[arg-type]


def test_errors_of_ranks_keep_their_class_and_name_the_rank() -> None:
    failure = failure_of(InputError("no such thing"), "rank 3 (b)")
    assert type(failure) is InputError
    assert str(failure) == "rank 3 (b): no such thing"
    assert type(failure_of(MemoryError(), "rank 1 (b)")) is BackendError
