"""Write the tables of docs/performance.md from the JSON files in benchmarks/results.

    python benchmarks/page.py [--check]

`--check` (or `--quick`) writes nothing; its exit code is 1 if the page differs from the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from common.options import RESULTS
from common.tables import NOTHING, markdown_table, page_arguments, replace_section, write_page
from common.types import Line

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PROGRAM = "page.py"

_RATIOS = ("plain", "numpy", "africanus", "matvis", "matvis_cuda")
# For each quantity that grows: the case whose rate is 100 %, and the cases that differ in it alone.
_AXES = {
    "antennas": ("64 antennas, 50 + 50", [f"{n} antennas, 50 + 50" for n in (7, 14, 27, 64, 128, 192)]),
    "channels (equal work)": (
        "64 antennas, 100 points",
        [
            *(f"64 antennas, 100 points, {n} channel{'s' * (n > 1)}" for n in (1, 4, 20)),
            "64 antennas, 100 points",
            "64 antennas, 100 points, 1000 channels",
        ],
    ),
    "sources": (
        "64 antennas, 100 points",
        ["64 antennas, 1 point", "64 antennas, 100 points", "64 antennas, 1000 points"],
    ),
    "batch (EHT)": ("EHT, batch 4096", [f"EHT, batch {n}" for n in (1, 16, 256, 4096)]),
}


def tables(runs: Iterable[Line]) -> str:
    """The page's tables as Markdown, one section for each run."""
    sections = [_section(run) for run in runs if not run["quick"]]
    return "\n\n".join(sections) or NOTHING


def _section(run: Line) -> str:
    about = run["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    peers = ", ".join(f"{name} {version}" for name, version in about["peers"].items())
    head = f"## {about['gpu']}" if "gpu" in about else f"## {about['cpu']}, {about['threads']} threads"
    if "gpu" in about:
        versions += f", CUDA {about['cuda_runtime']}, driver {about['driver']}"
    words = f"Python {about['python']}, {versions}." + (f" Other programs: {peers}." if peers else "")
    words += f" The run took {about['wall_s'] / 60:.1f} minutes; "
    words += f"the load average before it was {about['load']:.1f}."
    if run.get("left_out"):
        words += f" Not as in other runs: {run['left_out']}."
    parts = [head, words]
    parts += [_roofs(run["roofs"]), _cases(run), _units(run["cases"])]
    parts += [_growth(run["cases"]), _batches(run["cases"])]
    return "\n\n".join(part for part in [*parts, _extras(run["cases"]), _goals(run["goals"])] if part)


def _roofs(roofs: Line) -> str:
    labels = {
        "fma_per_s": ("multiply-adds in a Numba kernel", 1e-12, "T/s"),
        "gemm_flop_per_s": ("matrix product", 1e-12, "TFLOP/s"),
        "copy_byte_per_s": ("copy", 1e-9, "GB/s"),
        "host_to_device_byte_per_s": ("pinned host to device", 1e-9, "GB/s"),
        "launch_s": ("launch of an empty kernel, until it has ended", 1e6, "us"),
    }
    lines = []
    for key, value in roofs.items():
        label, scale, unit = labels[key]
        found = value.items() if isinstance(value, Mapping) else [("", value)]
        text = ", ".join(f"{_number(x * scale)} {unit} {name}".strip() for name, x in found)
        lines.append([label, text or "not measured"])
    return markdown_table(["roof", "best"], lines)


def _cases(run: Line) -> str:
    """Every case with its rate; a program that was measured in no case has no column."""
    lines = [line for line in run["cases"] if "rate" in line and "share_of_slower" not in line]
    ratios = [name for name in _RATIOS if any(name in line.get("ratios", {}) for line in lines)]
    header = ["case", "times", "form", "precision", "ms (median)", "source-vis/s", "% of FMA"]
    header += [f"x {name.removesuffix('_cuda')}" for name in ratios]
    rows = []
    for line in lines:
        found = line.get("ratios", {})
        row = [line["name"], str(line["n_time"]), line["form"], line["precision"], _number(line["median_ms"])]
        row += [f"{line['rate']:.2e}", f"{100 * line['fma_share']:.0f}"]
        rows.append(row + [_number(found[name]) if name in found else "" for name in ratios])
    few = sorted({line["n"] for line in lines if line["n"] < 20})
    note = f" Where a call takes seconds, the median is of at least {few[0]} calls." if few else ""
    about = "`times` is the number of integrations, `x ...` the rate of biro divided by that of the program."
    return f"{markdown_table(header, rows)}\n\n{about}{note}"


def _units(cases: Sequence[Line]) -> str:
    """Cases that tensor cores sum, beside the same without them."""
    found = [line for line in cases if "without_units_ms" in line]
    if not found:
        return ""
    rows = [
        [
            line["name"],
            line["precision"],
            f"{line['median_ms']:.3g}",
            f"{line['without_units_ms']:.3g}",
            f"{line['without_units_ms'] / line['median_ms']:.2f}",
        ]
        for line in found
    ]
    words = "Tensor cores sum the points of these cases; the same run without them:"
    return f"{words}\n\n" + markdown_table(["case", "precision", "ms", "ms without", "ratio"], rows)


def _growth(lines: Sequence[Line]) -> str:
    """Rates in single precision, as shares of the rate of one case, while one quantity grows."""
    rates = {line["name"]: line["rate"] for line in lines if line["precision"] == "single" and "rate" in line}
    rows = []
    for axis, (reference, names) in _AXES.items():
        if reference not in rates:
            continue
        shares = [f"{name}: {100 * rates[name] / rates[reference]:.0f} %" for name in names if name in rates]
        rows.append([axis, "<br>".join(shares)])
    return markdown_table(["what grows", "rate, single precision"], rows) if rows else ""


def _batches(lines: Sequence[Line]) -> str:
    header = ["case", "precision", "likelihoods/s", "us a call", "log_likelihood/s", "us a call"]
    rows = []
    for line in lines:
        if line.get("whole"):
            row = [line["name"], line["precision"], f"{line['likelihoods_per_s']:.2e}"]
            row += [_number(1e3 * line["median_ms"])]
            has = "whole_us" in line
            row += [f"{line['whole_likelihoods_per_s']:.2e}", _number(line["whole_us"])] if has else ["", ""]
            rows.append(row)
    return markdown_table(header, rows) if rows else ""


def _extras(lines: Sequence[Line]) -> str:
    found = []
    for line in lines:
        if "share_of_slower" in line:
            words = f'{_number(line["median_ms"])} ms with `memory_limit="{line["memory_limit"]}"`. '
            words += f"With all data on the GPU a call takes {_number(line['resident_ms'])} ms, and the "
            words += f"transfer alone {_number(line['transfer_ms'])} ms: the speed is "
            words += f"{100 * line['share_of_slower']:.0f} % of that of the slower of the two."
            found.append(f"- {line['name']}, {line['precision']}: {words}")
        if "share_outside" in line:
            words = f"{line['n_walker']} walkers, {line['n_param']} parameters, {line['n_time']} times: "
            words += f"{100 * line['share_outside']:.1f} % of the wall time is spent outside `Rime.chi2`."
            found.append(f"- {line['name']}: {words}")
    return "\n".join(found)


def _goals(verdicts: Sequence[Line]) -> str:
    words = {True: "reached", False: "not reached", None: "not measured"}
    rows = []
    for verdict in verdicts:
        bound = f"{verdict['sense']} {_number(verdict['bound'])} {verdict['unit']}"
        found = "" if verdict["found"] is None else _number(verdict["found"])
        rows.append([verdict["case"], verdict["precision"], bound, found, words[verdict["reached"]]])
    return markdown_table(["case", "precision", "goal", "found", ""], rows)


def _number(value: float) -> str:
    """The number with three digits; with an exponent only if it is very large or very small."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 else f"{value:.0f}" if value < 1e5 else f"{value:.2e}"


def main() -> int:
    args = page_arguments(__doc__)
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    text = replace_section(PAGE.read_text(encoding="utf-8"), "tables", PROGRAM, tables(runs))
    return write_page(PAGE, text, PROGRAM, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
