"""The benchmark of image-domain gridding runs, and its figures follow from its times. No time is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "idg.py"


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path: Path) -> None:
    output = tmp_path / "run.json"
    command = [sys.executable, str(PROGRAM), "--quick", "--repeat", "1", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads(output.read_text())
    assert {line["subgrid"] for line in run["kernels"]} == {24}
    assert {(line["n_corr"], line["accuracy"]) for line in run["whole"]} == {(1, 1e-4), (4, 1e-4)}
    for line in run["kernels"]:
        for name in ("degridder", "gridder"):
            assert line[f"{name}_rate"] == pytest.approx(line["n_vis"] / line[f"{name}_s"])
    for line in run["whole"]:
        assert line["n_vis"] == 8 * 7 // 2 * 4 * 16
        for name in ("predict", "grid"):
            if f"{name}_ducc_s" in line:
                ratio = line["n_corr"] * line[f"{name}_ducc_s"] / line[f"{name}_s"]
                assert line[f"{name}_x_ducc"] == pytest.approx(ratio)
    assert len(run["goals"]) == 2
