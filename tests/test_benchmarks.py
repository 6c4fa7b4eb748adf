"""Every benchmark runs, compares like with like, and its page says what its files say. No time is judged."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
PROGRAMS = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
NOT_PROGRAMS = {
    "chi2/peer_worker.py": "chi2/peers.py starts it, under the interpreter that has other programs"
}
PAGES = ("page", "trust_page")
"""Programs that write a page of the documentation; their quick form compares it with the files."""
OPTIONS = {
    ("rime", "cpu"): ("--precision", "single", "--case", "10 + 10", "EHT, batch 1"),
    ("rime", "cuda"): ("--precision", "double", "--case", "1 + 1"),
    ("golden", "cuda"): ("--only", "noise additive"),
}
"""Of some quick runs, which would take longer otherwise."""


def devices(program: str) -> list[Any]:
    """The devices that a program runs on."""
    text = (BENCHMARKS / f"{program}.py").read_text(encoding="utf-8")
    on_cuda = [pytest.param(program, "cuda", marks=pytest.mark.cuda, id=f"{program}-cuda")]
    return [pytest.param(program, "cpu", id=f"{program}-cpu"), *(on_cuda if "--device" in text else [])]


@pytest.mark.parametrize(("program", "device"), [run for program in PROGRAMS for run in devices(program)])
def test_quick_run(program: str, device: str, tmp_path: Path) -> None:
    """Each program has a quick form that prints a table and writes JSON; CUDA in the simulator."""
    path = BENCHMARKS / f"{program}.py"
    command, output = [str(path), "--quick"], tmp_path / "run.json"
    command += [*OPTIONS.get((program, device), ())] + ([] if program in PAGES else ["--output", str(output)])
    if device == "cuda":
        command = [str(ROOT / "tests" / "simulated.py"), *command, "--device", "cuda"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    if program not in PAGES:
        text = output.read_text(encoding="utf-8")
        # JSON, or JSON lines: the machine first, and one line of the table at least.
        try:
            run = json.loads(text)
        except json.JSONDecodeError:
            run = [json.loads(x) for x in text.splitlines()]
        assert "machine" in (run[0] if isinstance(run, list) else run)
        assert len(run) > 1
        CHECKS.get((program, device), lambda run: None)(run)


def test_programs_are_found() -> None:
    """What can be run is a program at the top, with a first line that says what it is; the rest is shared."""
    for path in BENCHMARKS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(BENCHMARKS).as_posix()
        is_program = path.parent == BENCHMARKS
        assert ("__main__" in text) == (is_program or name in NOT_PROGRAMS), name
        if is_program:
            assert re.match(r'"""[A-Z][^\n]*[.?]\n\n    python benchmarks/' + path.name, text), name


class Benchmarks:
    """The benchmarks' modules, found as the programs themselves find them: `benchmarks("chi2.cases")`."""

    def __call__(self, name: str) -> ModuleType:
        return importlib.import_module(name)


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Benchmarks]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield Benchmarks()
    for name, module in list(sys.modules.items()):
        if BENCHMARKS in Path(getattr(module, "__file__", None) or "/").parents:
            del sys.modules[name]


def reference() -> ModuleType:
    """tests/reference.py: explicit sums in float64."""
    spec = importlib.util.spec_from_file_location("benchmark_reference", ROOT / "tests" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_line(line: dict[str, Any], roofs: dict[str, Any], n_fma: int) -> None:
    """The derived figures follow from sizes and times."""
    n_row = line["n_time"] * line["n_antenna"] * (line["n_antenna"] - 1) // 2
    work = n_row * line["n_chan"] * (line["n_point"] + line["n_gaussian"]) * line["n_batch"]
    assert line["n_row"] == n_row
    assert 0 < line["min_ms"] <= line["median_ms"]
    assert line["rate"] == pytest.approx(work / (1e-3 * line["median_ms"]))
    assert line["fma_share"] == pytest.approx(n_fma * line["rate"] / roofs["fma_per_s"][line["precision"]])
    assert line["ratios"]["plain"] == pytest.approx(line["rate"] / line["others"]["plain"]["rate"])


def check_rime_on_the_cpu(run: dict[str, Any]) -> None:
    lines = {line["name"]: line for line in run["cases"]}
    assert set(lines) == {"7 antennas, 10 + 10", "EHT, batch 1", "EHT, batch 16"}
    for line in lines.values():
        check_line(line, run["roofs"], 12 if line["polarised"] else 4)
        # float32 sums of 2e-6 (the kernels' own bound), squared: twice that.
        assert line["others"]["plain"]["difference"] < 4e-6
    assert lines["7 antennas, 10 + 10"]["others"]["numpy"]["rate"] > 0
    assert set(run["peers_left_out"]) == {"africanus", "matvis"}
    assert lines["EHT, batch 16"]["whole_us"] > 0
    assert not any(verdict["reached"] for verdict in run["goals"])  # a quick run judges nothing


def check_rime_on_a_simulated_gpu(run: dict[str, Any]) -> None:
    line = run["cases"][0]
    check_line(line, run["roofs"], 12)
    # Two float64 sums over 6 rows and 2 channels in different orders.
    assert line["others"]["plain"]["difference"] < 1e-12
    assert run["roofs"]["host_to_device_byte_per_s"] > 0


def check_gridding(run: dict[str, Any]) -> None:
    """Figures follow from times."""
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


CHECKS: dict[tuple[str, str], Callable[[Any], None]] = {
    ("rime", "cpu"): check_rime_on_the_cpu,
    ("rime", "cuda"): check_rime_on_a_simulated_gpu,
    ("idg", "cpu"): check_gridding,
}


def test_counters_of_kernels_belong_to_the_call_before_which_there_is_a_mark(benchmarks: Benchmarks) -> None:
    """Names with and without mangling, thousands by commas, 32 threads of a warp; what is missing is left."""
    roofline = benchmarks("roofline")
    first, second = roofline.kernels_of(roofline.EXAMPLE, ["a", "b"])
    assert (first["call"], second["call"]) == ("a", "b")
    assert first["kernels"] == {
        "tile_sums": {
            "n": 1,
            "seconds": pytest.approx(1e-3),
            "operations": {"special": 64e6},
            "bytes": {"device": 1.5e9},
        }
    }
    assert list(second["kernels"]) == ["collect"]
    operations, intensity = roofline.totals(first["kernels"]["tile_sums"])
    assert operations == 64e6
    assert intensity == {"device": pytest.approx(64 / 1500)}
    # 1.5e9 of 3e12 bytes a second for a millisecond.
    assert roofline.nearest(first["kernels"]["tile_sums"], {"device": 3e12, "special": 1e12}) == (
        "device",
        pytest.approx(0.5),
    )


def test_products_of_tensor_cores_that_are_moves_do_not_count(benchmarks: Benchmarks) -> None:
    """Where ncu counts as many products as multiply-adds of half precision, these were the moves."""
    roofline = benchmarks("roofline")
    hmma, hfma = "sm__inst_executed_pipe_tensor_op_hmma.sum", roofline.THREADS.format("hfma")
    text = "\n".join([
        f'"ID","Kernel Name","Grid Size","gpu__time_duration.sum","{hmma}","{hfma}"',
        '"0","begin_call","(1, 1, 1)","900","0","0"',
        '"1","moves","(1, 1, 1)","900","10","320"',
        '"2","products","(1, 1, 1)","900","25","320"',
    ])  # fmt: skip
    (call,) = roofline.kernels_of(text, ["a"])
    found = {name: kernel["operations"] for name, kernel in call["kernels"].items()}
    # A product m16n8k16 has 16 x 8 x 16 multiply-adds.
    assert found["moves"] == {"half": 640.0, "units, half": 0.0}
    assert found["products"] == {"half": 640.0, "units, half": 25 * 2 * 16 * 8 * 16}


def test_the_page_has_the_rooflines_of_the_run(benchmarks: Benchmarks) -> None:
    path = BENCHMARKS / "results" / "roofline" / "nvidia_h200.json"
    run = json.loads(path.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert benchmarks("roofline").page_table(run) in page


def test_the_tutorial_on_m87_has_the_table_of_the_program(benchmarks: Benchmarks) -> None:
    """What the page says of evidences is what the committed run has found."""
    _, lines = benchmarks("common.results").read(BENCHMARKS / "results" / "m87" / "evidence.jsonl")
    page = (ROOT / "docs" / "tutorials" / "eht_m87.md").read_text(encoding="utf-8")
    assert benchmarks("m87_evidence").table(lines) in page
    assert {line["model"] for line in lines} == set(benchmarks("m87_evidence").MODELS)


@pytest.mark.parametrize("name", ["7 antennas, 10 + 10", "EHT, batch 16"])
def test_all_programs_compute_the_same(benchmarks: Benchmarks, tmp_path: Path, name: str) -> None:
    """The first kernels and what the peers' worker calls its reference, against the explicit sum."""
    cases, plain, peers, worker = (
        benchmarks(f"chi2.{module}") for module in ("cases", "plain", "peers", "peer_worker")
    )
    case = replace(next(case for case in cases.QUICK if case.name == name), n_time=2, n_chan=2, n_batch=2)
    field, sky = cases.field(case), cases.sources(case)
    corr_type = cases.LINEAR if case.polarised else ["I"]
    expected = reference().visibilities(field.rows, corr_type, sky)
    chi2 = np.sum(field.weight * np.abs(expected - field.vis) ** 2, axis=(1, 2, 3))
    # Phases of some thousand turns in float64 are good to 1e-12, and chi2 with them.
    np.testing.assert_allclose(plain.Plain(field, single=False).chi2(sky), chi2, rtol=1e-11)
    np.savez(tmp_path / "work.npz", **peers.arrays(case, "double", None))
    work = worker.Work(str(tmp_path / "work.npz"), 1)
    found = worker.direct_sum(work, slice(None), np.float64)
    np.testing.assert_allclose(found, expected[0], atol=1e-11 * np.abs(expected[0]).max())


def test_steps_of_emcee_and_the_share_of_chi2(
    benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cases = benchmarks("chi2.whole"), benchmarks("chi2.cases")
    case = next(case for case in cases.QUICK if case.n_point == 10)
    monkeypatch.setattr(whole, "SECONDS", 0.0)
    line = whole.sampled(replace(case, n_gaussian=0), "double", "cpu", n_walker=32)
    assert (line["n"], line["n_walker"], line["n_param"]) == (3, 32, 10)
    # chi2 and the rest both take some of the time.
    assert 0.0 < line["share_outside"] < 1.0


def test_every_goal_has_its_case(benchmarks: Benchmarks) -> None:
    cases, goals = benchmarks("chi2.cases"), benchmarks("chi2.goals")
    for goal in goals.GOALS:
        full = cases.cases(goal.device, quick=False)
        names = {case.name for case in full}
        names |= {f"{case.name}, {kind}" for case in full if case.extras for kind in ("streamed", "emcee")}
        assert goal.case in names


def test_goals_are_judged_by_their_bounds(benchmarks: Benchmarks) -> None:
    """64 antennas, 100 points in 1 ms; the same with Gaussians in 2 ms; matrix products of 100 GFLOP/s."""
    goals = benchmarks("chi2.goals")
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


def test_scores_of_populations_see_probabilities_that_are_too_sure(benchmarks: Benchmarks) -> None:
    """Numbers drawn from P(k) lie within 4 sigma of it; numbers that are a wider draw do not."""
    scores, rng = benchmarks("common.population_scores"), np.random.default_rng(3)

    def sigmas(share: float) -> list[float]:
        """A binomial number of sources of 8, whose stated probability is 0.5."""
        stated = [0.00391, 0.03125, 0.10938, 0.21875, 0.27344, 0.21875, 0.10938, 0.03125, 0.00391]
        lines = [
            {"number": int(n), "probability": stated, "n_effective_of_number": 1e6}
            for n in rng.binomial(8, rng.choice([share, 1.0 - share], 300))
        ]
        return [float(row[-1]) for row in scores._number(lines) if row[-1] != "-"]

    assert max(map(abs, sigmas(0.5))) < 4.0
    # Shares of 0.3 and 0.7 make the scatter of the number 1.5 times as large.
    assert max(map(abs, sigmas(0.3))) > 6.0


def test_sources_are_matched_one_to_one(benchmarks: Benchmarks) -> None:
    """All that can be match, although one pair alone would be nearer; what is further off does not."""
    matched = benchmarks("population_calibration").matched
    truth, found = np.array([[0.0, 0.0], [0.4, 0.0], [5.0, 0.0]]), np.array([[0.3, 0.0], [0.8, 0.0]])
    assert matched(truth, found, 0.5) == {0: 0, 1: 1}
    assert matched(truth[:0], found, 0.5) == {}
