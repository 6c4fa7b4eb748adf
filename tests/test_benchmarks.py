"""The benchmark runs, compares like with like, and its page says what its files say. No time is judged."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
MODULES = {path.stem for path in BENCHMARKS.glob("*.py")}


class Benchmarks:
    """The benchmark's modules, found as the program itself finds them."""

    def __getattr__(self, name: str) -> ModuleType:
        return importlib.import_module(name)


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Benchmarks]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield Benchmarks()
    for name in MODULES & set(sys.modules):
        if Path(sys.modules[name].__file__ or "").parent == BENCHMARKS:
            del sys.modules[name]


def reference() -> ModuleType:
    """tests/reference.py: explicit sums in float64."""
    spec = importlib.util.spec_from_file_location("benchmark_reference", ROOT / "tests" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(tmp_path: Path, *options: str, **environment: str) -> dict[str, Any]:
    """What a small run writes."""
    output = tmp_path / "run.json"
    command = [sys.executable, str(BENCHMARKS / "rime.py"), "--quick", "--output", str(output), *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(output.read_text()))


def check_line(line: dict[str, Any], roofs: dict[str, Any], n_fma: int) -> None:
    """The derived figures follow from sizes and times."""
    n_row = line["n_time"] * line["n_antenna"] * (line["n_antenna"] - 1) // 2
    work = n_row * line["n_chan"] * (line["n_point"] + line["n_gaussian"]) * line["n_batch"]
    assert line["n_row"] == n_row
    assert 0 < line["min_ms"] <= line["median_ms"]
    assert line["rate"] == pytest.approx(work / (1e-3 * line["median_ms"]))
    assert line["fma_share"] == pytest.approx(n_fma * line["rate"] / roofs["fma_per_s"][line["precision"]])
    assert line["ratios"]["plain"] == pytest.approx(line["rate"] / line["others"]["plain"]["rate"])


def test_a_quick_run_on_the_cpu(tmp_path: Path) -> None:
    options = "--precision", "single", "--repeat", "2", "--case", "10 + 10", "EHT, batch 1"
    found = run(tmp_path, "--device", "cpu", *options)
    lines = {line["name"]: line for line in found["cases"]}
    assert set(lines) == {"7 antennas, 10 + 10", "EHT, batch 1", "EHT, batch 16"}
    for line in lines.values():
        check_line(line, found["roofs"], 12 if line["polarised"] else 4)
        # float32 sums of 2e-6 (the kernels' own bound), squared: twice that.
        assert line["others"]["plain"]["difference"] < 4e-6
    assert lines["7 antennas, 10 + 10"]["others"]["numpy"]["rate"] > 0
    assert lines["EHT, batch 16"]["whole_us"] > 0
    assert not any(verdict["reached"] for verdict in found["goals"])  # a quick run judges nothing


@pytest.mark.cuda
def test_a_quick_run_on_a_simulated_gpu(tmp_path: Path) -> None:
    options = "--precision", "double", "--repeat", "1", "--case", "1 + 1"
    found = run(tmp_path, "--device", "cuda", *options, NUMBA_ENABLE_CUDASIM="1")
    line = found["cases"][0]
    check_line(line, found["roofs"], 12)
    # Two float64 sums over 6 rows and 2 channels in different orders.
    assert line["others"]["plain"]["difference"] < 1e-12
    assert found["roofs"]["host_to_device_byte_per_s"] > 0


@pytest.mark.parametrize("name", ["7 antennas, 10 + 10", "EHT, batch 16"])
def test_all_programs_compute_the_same(benchmarks: Benchmarks, tmp_path: Path, name: str) -> None:
    """The first kernels and what the peers' worker calls its reference, against the explicit sum."""
    cases, plain, peers, worker = (getattr(benchmarks, n) for n in ("cases", "plain", "peers", "peer_worker"))
    case = replace(next(case for case in cases.QUICK if case.name == name), n_time=2, n_chan=2, n_batch=2)
    field, sky = cases.field(case), cases.sources(case)
    corr_type = cases.LINEAR if case.polarised else ["I"]
    expected = reference().visibilities(field.rows, corr_type, sky)
    chi2 = np.sum(field.weight * np.abs(expected - field.vis) ** 2, axis=(1, 2, 3))
    # Phases of some thousand turns in float64 are good to 1e-12, and chi2 with them.
    np.testing.assert_allclose(plain.Plain(field, single=False).chi2(sky), chi2, rtol=1e-11)
    np.savez(tmp_path / "work.npz", **peers._arrays(case, "double", None))
    work = worker.Work(str(tmp_path / "work.npz"), 1)
    found = worker.direct_sum(work, slice(None), np.float64)
    np.testing.assert_allclose(found, expected[0], atol=1e-11 * np.abs(expected[0]).max())


def test_steps_of_emcee_and_the_share_of_chi2(
    benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, case = benchmarks.whole, next(case for case in benchmarks.cases.QUICK if case.n_point == 10)
    monkeypatch.setattr(whole, "_SECONDS", 0.0)
    line = whole.sampled(replace(case, n_gaussian=0), "double", "cpu", n_walker=32)
    assert (line["n"], line["n_walker"], line["n_param"]) == (3, 32, 10)
    # chi2 and the rest both take some of the time.
    assert 0.0 < line["share_outside"] < 1.0


def test_every_goal_has_its_case(benchmarks: Benchmarks) -> None:
    cases, goals = benchmarks.cases, benchmarks.goals
    for goal in goals.GOALS:
        full = cases.cases(goal.device, quick=False)
        names = {case.name for case in full}
        names |= {f"{case.name}, {kind}" for case in full if case.extras for kind in ("streamed", "emcee")}
        assert goal.case in names


def test_goals_are_judged_by_their_bounds(benchmarks: Benchmarks) -> None:
    """64 antennas, 100 points in 1 ms; the same with Gaussians in 2 ms; matrix products of 100 GFLOP/s."""
    goals = benchmarks.goals
    lines: list[dict[str, Any]] = [
        {"name": goals.MAIN, "precision": "single", "median_ms": 1.0, "rate": 2e9, "ratios": {}},
        {"name": goals.HALF, "precision": "single", "median_ms": 2.0, "rate": 1e9, "ratios": {}},
        {"name": f"{goals.MAIN}, Stokes I", "precision": "single", "skipped": "for a test"},
    ]
    found = {v["case"]: v for v in goals.judge("cuda", lines, {}) if v["precision"] == "single"}
    assert found[goals.MAIN]["reached"] is True
    assert found[goals.HALF]["reached"] is False
    assert found[f"{goals.MAIN}, Stokes I"]["reached"] is None
    roofs = {"gemm_flop_per_s": {"single": 100e9}}
    on_cpu = goals.judge("cpu", lines, roofs)
    share = on_cpu[0]
    assert share["found"] == pytest.approx(24 * 2e9 / 100e9)
    assert share["reached"] is True
    assert on_cpu[1]["reached"] is None  # the peer was not there


def test_the_page_says_what_the_files_say() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "page.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
