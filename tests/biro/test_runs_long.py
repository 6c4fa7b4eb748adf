"""Many likelihood calls: memory and open files stay as they are (a million: `benchmarks/long_run.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "long_run.py"
N_CALL = 12_000


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, pytest.mark.alone])])
def test_nothing_grows(device: str, tmp_path: Path) -> None:
    if device == "cuda":
        if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
            pytest.skip("the simulator has no memory of a device")
        from rime_kernels import BackendError
        from rime_kernels.device import resolve

        try:
            resolve("cuda")
        except BackendError as error:
            pytest.skip(str(error))
    words = [sys.executable, str(PROGRAM), "--device", device, "--calls", str(N_CALL)]
    words += ["--output", str(tmp_path / "long_run.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    looks = [dict(zip(words[::2], map(float, words[1::2]), strict=True)) for words in _table(done.stdout)]
    assert looks[-1]["calls"] == N_CALL
    later = looks[len(looks) // 2 :]
    for name, most in {"host_mb": 0.6, "device_mb": 0.0, "descriptors": 0.0, "threads": 0.0}.items():
        values = [look.get(name, 0.0) for look in later]
        # 100 bytes of each of 6000 calls would be 0.6 MB; pages come and go by a few.
        assert values[-1] - values[0] <= most, name


def _table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith("calls ")]
