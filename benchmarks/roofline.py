"""Measure how near the kernels of a GPU come to its roofs, and draw it.

    python benchmarks/roofline.py [--device cpu|cuda] [--quick] [--output FILE] [--draw FILE]
    python benchmarks/roofline.py --from FILE --draw FILE      # draw what was measured

Calls of `Rime` and of both gridders run under Nsight Compute (`ncu`, which comes with CUDA's toolkit): it
counts the operations of each kernel, and the bytes that go to the device's memory and to shared memory.
A multiply-add is two operations, an instruction for a sine, cosine, exponential, root or a change of type
one; a product of tensor cores has those of all its multiply-adds. Roofs are measured in the same run, but
that of shared memory, which follows from the clock. On a CPU, or without `ncu`, nothing is measured; the
quick form reads and draws an example.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from chi2.cases import EXTENT, FULL, field, sources
from chi2.cases import Case as Problem
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.tables import markdown_table
from common.types import Line
from gridding.cases import Case, Size

from rime_kernels import Rime, device
from rime_kernels.choices import Precision
from rime_kernels.gridding.gridder import Gridder
from rime_kernels.wprojection import WProjection

N_TIME = 20
PRECISIONS: tuple[Precision, ...] = ("single", "double")
SIZE = Size(64, 20, 64, 1024, 1.0)
SUPPORTS = (7, 15, 31)
GRIDDED = {"gridders, 1 correlation": 1, "gridders, 4 correlations": 4}
PARTS = ("chi2", "chi2_and_gradient", *GRIDDED)
"""The calls that one run of `ncu` counts; those of chi2 by the method of `Rime`."""

THREADS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_HALF_UNITS = 2.0 * 16 * 8 * 16
# What each metric counts, and how much one of it is. A warp has 32 threads; a wavefront of shared memory is
# 128 bytes. Products of tensor cores: m16n8k16 (half precision), m16n8k8 (double),
# as the machine code of the kernels has them. A multiply-add of half precision by which a register is set
# (HFMA2.MMA) counts as such a product, too: see `_without_moves`.
OPERATIONS: tuple[tuple[str, str, float], ...] = (
    *((THREADS.format(f"f{name}"), "single", n) for name, n in (("fma", 2.0), ("add", 1.0), ("mul", 1.0))),
    *((THREADS.format(f"d{name}"), "double", n) for name, n in (("fma", 2.0), ("add", 1.0), ("mul", 1.0))),
    *((THREADS.format(f"h{name}"), "half", n) for name, n in (("fma", 2.0), ("add", 1.0), ("mul", 1.0))),
    ("smsp__inst_executed_pipe_xu.sum", "special", 32.0),
    ("sm__inst_executed_pipe_tensor_op_hmma.sum", "units, half", _HALF_UNITS),
    (THREADS.format("hfma"), "moves", _HALF_UNITS / 32.0),
    ("sm__inst_executed_pipe_tensor_op_dmma.sum", "units, double", 2.0 * 16 * 8 * 8),
)
BYTES: tuple[tuple[str, str, float], ...] = (
    ("dram__bytes.sum", "device", 1.0),
    ("lts__t_bytes.sum", "L2", 1.0),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "shared", 128.0),
)
UNITS = {"units, half": 6.3e14, "units, double": 6.6e13}
"""Operations a second of tensor cores from registers (`mma.sync`, H200), as no library uses them alone."""
KINDS = {"single": "-", "double": "--", "units, half": "-.", "units, double": ":"}
"""Operations with a roof of their own, and how it is drawn; "units" are the tensor cores."""
N_SPECIAL = 16
"""Sines, exponentials, roots and changes of type that a multiprocessor does in a cycle."""
SECONDS = ("gpu__time_duration.sum", 1e-9)
MARK = "begin_call"
"""The kernel whose grid has as many blocks as the number of the call that follows."""
EXAMPLE = """\
==PROF== Connected to process 1
"ID","Kernel Name","Grid Size","gpu__time_duration.sum","dram__bytes.sum","smsp__inst_executed_pipe_xu.sum"
"","","","ns","byte","inst"
"0","begin_call","(1, 1, 1)","900","0","0"
"1","_ZN12rime_kernels4cuda14make_tile_sums1B1v","(64, 1, 1)","1,000,000","1,500,000,000","2,000,000"
"2","begin_call","(2, 1, 1)","900","0","0"
"3","rime_kernels::cuda::kernels::moments::make_collect::_3clocals","(8, 1, 1)","500,000","1,000","10"
"""


def calls(part: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name each call of a part, and make it: all kernels have been compiled, and none is recorded."""
    if part in GRIDDED:
        yield from _gridders(GRIDDED[part])
        return
    named = {case.name: case for case in FULL}
    problems = {
        "100 points": named["64 antennas, 100 points"],
        "50 + 50": named["64 antennas, 50 + 50"],
        "1000 points": named["64 antennas, 1000 points"],
        "Stokes I": named["64 antennas, 100 points, Stokes I"],
    }
    for name, case in problems.items():
        for precision in PRECISIONS:
            if part == "chi2":
                yield f"{name}, {precision}", _chi2(replace(case, n_time=N_TIME), precision, part)
            elif name in ("100 points", "50 + 50"):
                yield f"gradient, {name}, {precision}", _chi2(replace(case, n_time=N_TIME), precision, part)


def _gridders(n_corr: int) -> Iterator[tuple[str, Callable[[], object]]]:
    made = Case(SIZE, n_corr, "none", 1e-2, "cuda")
    gridders: list[tuple[str, Gridder]] = [("IDG", made.idg)]
    for support in SUPPORTS:
        made_for = WProjection(made.rows, made.grid, accuracy=1e-2, backend="cuda", support=support)
        gridders.append((f"W-projection {support}", made_for))
    for name, gridder in gridders:
        predict, grid = _gridded(gridder, made)
        yield f"{name}, predict, P = {n_corr}", predict
        yield f"{name}, grid, P = {n_corr}", grid


def _chi2(case: Problem, precision: Precision, call: str) -> Callable[[], object]:
    whole, sky = field(case), sources(case)

    def made() -> Rime:
        return Rime(
            whole.rows, vis=whole.vis, weight=whole.weight, backend="cuda", precision=precision,
            form=case.form, extent=EXTENT,
        )  # fmt: skip

    getattr(made(), call)(sky)
    fresh = made()
    fresh.plan(sky)  # data lie on the device
    return lambda: getattr(fresh, call)(sky)


def _gridded(gridder: Gridder, case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
    from gridding.resident import Resident

    there = Resident(gridder, case.image, None)
    for call in (there.predict, there.grid):
        call()
    return there.predict, there.grid


def work(part: str, names: Path) -> None:
    """Make all calls of a part, each behind a mark; what `ncu` starts."""
    cuda = device.cuda

    def begin_call() -> None:
        pass

    mark = cuda.jit(begin_call)
    found: list[str] = []
    for number, (name, call) in enumerate(calls(part), 1):
        print(f"  {name}", flush=True)
        cuda.synchronize()
        cuda.profile_start()
        mark[number, 1]()
        call()
        cuda.synchronize()
        cuda.profile_stop()
        found.append(name)
        names.write_text(json.dumps(found), encoding="utf-8")


def known_metrics() -> list[str]:
    """The metrics of kernels that this GPU counts; say which it does not."""
    known = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, check=False).stdout
    wanted = list(dict.fromkeys([SECONDS[0], *(each[0] for each in (*OPERATIONS, *BYTES))]))
    metrics = [each for each in wanted if not known or re.search(rf"\b{each.split('.')[0]}\b", known)]
    for each in sorted(set(wanted) - set(metrics)):
        print(f"not counted on this GPU: {each}")
    return metrics


def counted(part: str, metrics: list[str]) -> list[Line]:
    """The calls of a part with their kernels, as `ncu` counts them."""
    with tempfile.TemporaryDirectory() as folder:
        names, log = Path(folder) / "names.json", Path(folder) / "ncu.csv"
        command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
        command += ["--profile-from-start", "off", "--metrics", ",".join(metrics), "--log-file", str(log)]
        subprocess.run([*command, sys.executable, __file__, "--worker", part, str(names)], check=True)
        return kernels_of(log.read_text(encoding="utf-8"), json.loads(names.read_text(encoding="utf-8")))


def kernels_of(text: str, names: list[str]) -> list[Line]:
    """The calls, each with its kernels, from what `ncu` says."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found: list[Line] = []
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not row["ID"]:  # units
            continue
        if MARK in row["Kernel Name"]:
            number = int(re.findall(r"\d+", row["Grid Size"])[0])
            found.append({"call": names[number - 1], "kernels": {}})
            continue
        kernels, name = found[-1]["kernels"], short(row["Kernel Name"])
        kernel = kernels.setdefault(name, {"n": 0, "seconds": 0.0, "operations": {}, "bytes": {}})
        kernel["n"] += 1
        kernel["seconds"] += SECONDS[1] * _number(row[SECONDS[0]])
        for kind, of in (("operations", OPERATIONS), ("bytes", BYTES)):
            for metric, what, each in of:
                if metric in row:
                    kernel[kind][what] = kernel[kind].get(what, 0.0) + each * _number(row[metric])
    for call in found:
        for kernel in call["kernels"].values():
            _without_moves(kernel["operations"])
    return found


def _without_moves(operations: dict[str, float]) -> None:
    """Take out products of tensor cores where there are hardly more than instructions that may be moves.

    Kernels with products have 2.5 times as many or more: for them the count is that of their loops exactly.
    """
    if operations.pop("moves", 0.0) * 1.5 > operations.get("units, half", 0.0):
        operations["units, half"] = 0.0


def short(name: str) -> str:
    """The function that made a kernel, of its name with or without mangling; another kernel's own name."""
    mangled = re.search(r"(\d+)(make_\w+)", name)
    if mangled:
        return mangled[2][: int(mangled[1])].removeprefix("make_")
    plain = re.search(r"make_(\w+)", name)
    return plain[1] if plain else re.split(r"[<(\[]", name.removeprefix("void "))[0].split("::")[-1][:30]


def _number(text: str) -> float:
    return float(text.replace(",", ""))  # what was not counted ends the run: it would be taken for nothing


def roofs() -> dict[str, float]:
    """Operations and bytes that the GPU does in a second at most."""
    from common.roofs_cuda import measure_roofs

    found, gpu = measure_roofs(quick=False, repeat=10), device.cuda.get_current_device()
    return {
        "single": 2.0 * found["fma_per_s"]["single"],
        "double": 2.0 * found["fma_per_s"]["double"],
        "device": found["copy_byte_per_s"],
        "shared": 128.0 * 1e3 * gpu.CLOCK_RATE * gpu.MULTIPROCESSOR_COUNT,
        "special": N_SPECIAL * 1e3 * gpu.CLOCK_RATE * gpu.MULTIPROCESSOR_COUNT,
        **UNITS,
    }


def totals(kernel: Line) -> tuple[float, dict[str, float]]:
    """Operations of a kernel, and the operations for each byte of either memory."""
    operations = sum(kernel["operations"].values())
    return operations, {name: operations / n for name, n in kernel["bytes"].items() if n > 0}


def nearest(kernel: Line, roofs: dict[str, float]) -> tuple[str, float]:
    """The roof that a kernel comes nearest to, and the share of it."""
    done = {**kernel["operations"], **kernel["bytes"]}
    shares = {name: done.get(name, 0.0) / (roof * kernel["seconds"]) for name, roof in roofs.items()}
    name = max(shares, key=lambda each: shares[each])
    return name, shares[name]


def table(found: Iterable[Line], roofs: dict[str, float]) -> str:
    """The kernels that take a twentieth of their call or more."""
    head = f"{'call':34}{'kernel':18}{'ms':>8}{'10^12 op/s':>12}{'op/B device':>13}{'op/B shared':>13}"
    lines = [f"{head}   nearest roof"]
    for call in found:
        whole = sum(kernel["seconds"] for kernel in call["kernels"].values())
        for name, kernel in call["kernels"].items():
            if kernel["seconds"] < 0.05 * whole:
                continue
            operations, intensity = totals(kernel)
            numbers = "".join(
                f"{intensity.get(memory, float('nan')):13.1f}" for memory in ("device", "shared")
            )
            rate, (roof, share) = 1e-12 * operations / kernel["seconds"], nearest(kernel, roofs)
            lines.append(
                f"{call['call']:34}{name:18}{1e3 * kernel['seconds']:8.3f}{rate:12.2f}{numbers}"
                f"   {100.0 * share:.0f} % of {roof}"
            )
    return "\n".join(lines)


def longest(call: Line) -> tuple[str, Line]:
    """The kernel of a call that takes the most time, with its name."""
    name: str = max(call["kernels"], key=lambda each: call["kernels"][each]["seconds"])
    return name, call["kernels"][name]


def page_table(run: Line) -> str:
    """The longest kernel of each call, as docs/performance.md has it."""
    memories = [each for memory in ("device", "shared") for each in (f"a byte of {memory} memory", "TB/s")]
    memories.append("TB/s of L2")
    rows = []
    for number, call in enumerate(run["calls"], 1):
        name, kernel = longest(call)
        operations, intensity = totals(kernel)
        seconds, (roof, share) = kernel["seconds"], nearest(kernel, run["roofs"])
        of_memories = [
            text
            for memory, digits in (("device", 2), ("shared", 1))
            for text in (
                f"{intensity[memory]:.{0 if intensity[memory] >= 10 else 1}f}",
                f"{1e-12 * kernel['bytes'][memory] / seconds:.{digits}f}",
            )
        ]
        of_l2 = kernel["bytes"].get("L2")
        of_memories.append("" if of_l2 is None else f"{1e-12 * of_l2 / seconds:.2f}")
        rate, of_roof = f"{1e-12 * operations / seconds:.0f}", f"{100.0 * share:.0f} % of {roof}"
        rows.append(
            [str(number), call["call"], f"`{name}`", f"{1e3 * seconds:.2f}", rate, *of_memories, of_roof]
        )
    head = ["", "call", "kernel", "ms", "10¹² operations/s", *memories, "nearest roof"]
    return markdown_table(head, rows)


def draw(run: Line, path: Path) -> None:
    """Draw the longest kernel of each call under the roofs of either memory."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    plt.rcParams["svg.fonttype"] = "none"  # text stays text
    plt.rcParams["svg.hashsalt"] = "roofline"  # the same run gives the same file
    figure, panels = plt.subplots(1, 2, figsize=(13, 7), sharey=True, layout="constrained")
    x = np.geomspace(0.3, 2e4, 200)
    for panel, memory in zip(panels, ("device", "shared"), strict=True):
        for kind, style in KINDS.items():
            roof = np.minimum(x * run["roofs"][memory], run["roofs"][kind])
            panel.loglog(x, roof, style, color="black", lw=1, label=f"roof: {kind}")
        for number, call in enumerate(run["calls"]):
            _, kernel = longest(call)
            operations, intensity = totals(kernel)
            if memory in intensity and operations > 0:
                at = intensity[memory], operations / kernel["seconds"]
                panel.plot(
                    *at,
                    "os^Dv<>P"[number // 10],
                    color=f"C{number % 10}",
                    label=f"{number + 1}: {call['call']}",
                )
                panel.annotate(str(number + 1), at, xytext=(4, 3), textcoords="offset points", fontsize=7)
        panel.set_xlabel(f"operations for each byte of {memory} memory")
        panel.set_ylim(1e12, 1e15)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("operations / s")
    panels[0].set_title(run["machine"].get("gpu", "an example"))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        part, into = sys.argv[2], Path(sys.argv[3])
        work(part, into) if part in PARTS else into.write_text(json.dumps(roofs()), encoding="utf-8")
        return 0
    parser = make_parser(__doc__, device=True)
    parser.add_argument("--draw", type=Path, help="file of the figure")
    parser.add_argument("--from", dest="source", type=Path, help="draw this run, and measure nothing")
    args = parse(parser)
    if args.source is not None:
        if args.draw is None:
            parser.error("--from FILE is drawn: say where to, --draw FILE")
        run: dict[str, Any] = json.loads(args.source.read_text(encoding="utf-8"))
        print(page_table(run))
        draw(run, args.draw)
        return 0
    about = machine(args.device)
    print_machine(about)
    run = {"quick": args.quick, "machine": about, "calls": []}
    measures = args.device == "cuda" and not device.simulated() and shutil.which("ncu") is not None
    output = output_path(args, "roofline", f"{machine_slug(about)}.json") if measures or args.output else None
    if args.quick or not measures:
        print("nothing is measured" + ("" if args.quick else ": a GPU and ncu are needed"))
        run |= {"skipped": "an example", "calls": kernels_of(EXAMPLE, ["first", "second"])}
        run["roofs"] = {"single": 6e13, "double": 3e13, "device": 3e12, "shared": 3e13, **UNITS}
        print(table(run["calls"], run["roofs"]))
        write(output, run)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "roofs.json"
            subprocess.run([sys.executable, __file__, "--worker", "roofs", str(found)], check=True)
            run["roofs"] = json.loads(found.read_text(encoding="utf-8"))
        metrics = known_metrics()
        for part in PARTS:
            print(part, flush=True)
            run["calls"] += counted(part, metrics)
            write(output, run)  # as it goes
        print(table(run["calls"], run["roofs"]))
    if args.draw is not None:
        draw(run, args.draw)
    elif args.quick:
        with tempfile.TemporaryDirectory() as folder:
            draw(run, Path(folder) / "example.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
