"""Write the tables of docs/trust.md, and its picture, from the files in benchmarks/results.

    python benchmarks/trust_page.py [--check]

`--check` (or `--quick`) writes nothing; its exit code is 1 if the tables on the page differ from the files.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from common.options import RESULTS
from common.population_scores import tables
from common.results import read
from common.tables import NOTHING, markdown_table, page_arguments, replace_section, write_page
from common.types import Line
from honest.kinds import KINDS

from biro.display.style import WIDTH, colour, new_figure

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "trust.md", "model_choice.png"
PROGRAM = "trust_page.py"


def ran_on(about: Line, more: str) -> str:
    machine = about["machine"]
    name = machine.get("gpu") if about.get("device") == "cuda" else machine["cpu"]
    numba = machine["versions"].get("numba", "?")
    dynesty = f", dynesty {about['dynesty']}" if "dynesty" in about else ""
    return f"{name}, Python {machine['python']}, numba {numba}{dynesty}; {more}."


def first_few(names: Sequence[str], n: int = 5) -> str:
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(names[:n]) + more


def sbc_section(about: Line, lines: Sequence[Line]) -> str:
    header = [
        "in the fit",
        "sampler",
        "replicates",
        "chi2/2N",
        "in 68 % intervals",
        "in 95 % intervals",
        "p-value",
        "outcome",
    ]
    rows = []
    for line in lines:
        each = line["quantities"].values()
        within = [[100 * q["coverage"][level] for q in each] for level in ("0.6827", "0.9545")]
        chi2, suspects = line["reduced_chi2"], first_few(line["suspects"])
        rows.append(
            [
                *(line["case"], line["sampler"], str(line["replicates"])),
                f"{chi2['mean']:.4f} ({chi2['z']:+.1f} sigma)",
                *(f"{min(shares):.0f} to {max(shares):.0f} %" for shares in within),
                f"{line['chance']:.2g}" if line["chance"] > 0 else "< 1e-300",
                "passes" if line["passed"] else f"caught by {suspects}",
            ]
        )
    bands = [lines[0]["expected_coverage"][level]["band_95"] for level in ("0.6827", "0.9545")]
    words = " and ".join(f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in bands)
    words = f"Right intervals of one parameter contain {words} of the true values in 95 % of such tests."
    seconds = [line["seconds_per_fit"] for line in lines]
    a_fit = f"{min(seconds):.1f} to {max(seconds):.1f} s a fit"
    return f"{markdown_table(header, rows)}\n\n{words} {ran_on(about, a_fit)}"


def precision_section(about: Line, lines: Sequence[Line]) -> str:
    header = ["data", "model", "visibilities", "parameters", "chi2/2N", "d at the maximum", "largest", "auto"]
    rows = [
        [
            line["data"],
            line["model"],
            str(line["n_vis"]),
            str(line["n_param"]),
            f"{line['reduced_chi2']:.3g}",
            f"{line['at_maximum']:.1e}",
            f"{line['largest']:.1e}",
            f"{line['auto']} ({line['auto_difference']:.1e}, {line['auto_seconds']:.1f} s)",
        ]
        for line in lines
    ]
    worst = max(line["largest"] for line in lines)
    words = (
        f"On {about['device']} ln L changes by at most {worst:.2g}. {ran_on(about, 'single minus double')}"
    )
    return f"{markdown_table(header, rows)}\n\n{words}"


def evidence_section(about: Line, lines: Sequence[Line]) -> str:
    groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line["sampler"], line["problem"]].append(line)
        groups[line["sampler"], "all"].append(line)
    header = ["sampler", "problem", "runs", "mean off", "scatter", "mean error", "mean pull", "rms pull"]
    header += ["largest pull", "efficiency"]
    rows = []
    for (sampler, problem), found in sorted(
        groups.items(), key=lambda item: (item[0][0], item[0][1] == "all")
    ):
        off = np.array([line["log_evidence"] - line["truth"] for line in found])
        error = np.array([line["error"] for line in found])
        pull = off / np.maximum(error, 1e-9)
        numbers = [off.mean(), off.std(), error.mean()]
        texts = ["" if problem == "all" else f"{number:.3f}" for number in numbers]
        worth = np.mean([line["overlap"] for line in found]) if sampler == "none" else None
        rows.append([
            sampler, problem, str(len(found)), *texts,
            f"{pull.mean():+.2f}", f"{np.sqrt((pull**2).mean()):.2f}", f"{np.abs(pull).max():.1f}",
            "" if worth is None else f"{worth:.2f}",
        ])  # fmt: skip
    return f"{markdown_table(header, rows)}\n\n{ran_on(about, f'{len(lines)} runs')}"


def is_right(line: Line) -> bool:
    return bool(line["chosen"] == line["truth"])


def lead(line: Line, names: Sequence[str] = ("point", "two points", "gaussian")) -> float:
    """ln B of the true model against the best of the wrong ones."""
    mine = names.index(line["truth"])
    others = [value for i, value in enumerate(line["log_evidence"]) if i != mine]
    return float(line["log_evidence"][mine] - max(others))


def model_choice_section(about: Line, lines: Sequence[Line]) -> str:
    ratios, scales = about["ratios"], about["scales"]
    cells: dict[tuple[str, float, float], list[Line]] = defaultdict(list)
    for line in lines:
        cells[line["truth"], line["scale"], line["ratio"]].append(line)
    header = ["drawn from", "size in beams", *(f"S/N {ratio:g}" for ratio in ratios)]
    rows = []
    for truth, scale in [("point", 0.0), *((t, s) for t in ("two points", "gaussian") for s in scales)]:
        found = [cells[truth, scale, ratio] for ratio in ratios]
        rows.append([truth, f"{scale:g}" if scale else "", *(cell_text(cell) for cell in found)])
    words = (
        "Each cell gives the number of data sets for which the true model was chosen; the wrong models that "
    )
    words += "were chosen, in brackets; and the median of ln B, the true model against the best wrong one. "
    words += "Bars in the picture are 68 % intervals of the share (Wilson 1927)."
    seconds = sum(line["seconds"] for line in lines) / max(len(lines), 1)
    n_data = f"{len(lines)} data sets, three fits each, {seconds:.1f} s for the three in one thread"
    picture = f"![How often the right model is chosen]({PICTURE})"
    found_text = "\n".join(thresholds(cells, scales, ratios))
    return f"{picture}\n\n{found_text}\n\n{markdown_table(header, rows)}\n\n{words} {ran_on(about, n_data)}"


def cell_text(cell: Sequence[Line]) -> str:
    if not cell:
        return ""
    text = f"**{sum(map(is_right, cell))}/{len(cell)}**"
    wrong = [line["chosen"] for line in cell if not is_right(line)]
    if wrong:
        each = {name: wrong.count(name) for name in dict.fromkeys(wrong)}
        text += " (" + ", ".join(f"{n} {name}" for name, n in each.items()) + ")"
    return f"{text}, {np.median([lead(line) for line in cell]):+.1f}"


def thresholds(
    cells: dict[tuple[str, float, float], list[Line]], scales: Sequence[float], ratios: Sequence[float]
) -> list[str]:
    """The size from which on nine of ten choices are right, for each truth and signal-to-noise ratio."""
    lines = []
    for truth in ("two points", "gaussian"):
        words = []
        for ratio in ratios:
            shares = [share(cells[truth, scale, ratio]) for scale in scales]
            good = [i for i in range(len(scales)) if all(each >= 0.9 for each in shares[i:])]
            from_on = f"{scales[good[0]]:g}" if good else f"more than {scales[-1]:g}"
            words.append(f"{from_on} beams at S/N {ratio:g}")
        name = "a Gaussian" if truth == "gaussian" else truth
        lines.append(
            f"- For data from {name}, nine of ten choices are right from this size on: {', '.join(words)}."
        )
    points = [line for (truth, _, _), cell in cells.items() if truth == "point" for line in cell]
    if points:
        lines.append(
            f"- For data from a point, {sum(map(is_right, points))} of {len(points)} choices are right."
        )
    return lines


def share(cell: Sequence[Line]) -> float:
    return sum(map(is_right, cell)) / len(cell) if cell else float("nan")


def interval(n_right: int, n: int) -> tuple[float, float]:
    """Return the 68 % interval of a probability, of which n_right of n trials came out (Wilson 1927)."""
    share, centre = n_right / n, (n_right + 0.5) / (n + 1.0)
    half = np.sqrt(n * share * (1.0 - share) + 0.25) / (n + 1.0)
    return float(centre - half), float(centre + half)


def draw(about: Line, lines: Sequence[Line], path: Path) -> None:
    """Draw the share of right choices against size, with 68 % intervals: a curve for each S/N ratio."""
    ratios, scales = about["ratios"], np.array(about["scales"])
    with new_figure((WIDTH, 2.9)) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, truth in zip(axes, ("two points", "gaussian"), strict=True):
            for i, (ratio, mark) in enumerate(zip(ratios, "osD^", strict=False)):
                cells = [
                    [x for x in lines if (x["truth"], x["scale"], x["ratio"]) == (truth, scale, ratio)]
                    for scale in scales
                ]
                there = np.array([bool(cell) for cell in cells])
                shares = np.array([share(cell) for cell in cells if cell])
                ends = np.array([interval(sum(map(is_right, cell)), len(cell)) for cell in cells if cell]).T
                # Side by side, so that no bar hides another.
                x = scales[there] * 1.05 ** (i - 0.5 * (len(ratios) - 1))
                look = {"marker": mark, "ms": 4, "lw": 1.0, "elinewidth": 0.8, "color": colour(i)}
                axis.errorbar(x, shares, np.abs(ends - shares), label=f"S/N {ratio:g}", **look)
            name = "a Gaussian" if truth == "gaussian" else truth
            axis.set(xscale="log", title=f"data from {name}", xlabel="size [synthesised beams]")
            axis.set_ylim(-0.05, 1.05)
            axis.set_xticks(scales, [f"{scale:g}" for scale in scales])
            axis.minorticks_off()
        axes[0].set_ylabel("share of right choices")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(ratios))
        figure.savefig(path, dpi=130)


def honesty_section(about: Line, lines: Sequence[Line]) -> str:
    """A row for each kind of data, a column for each sampler, and how many alarms were false or missed."""
    kinds = {kind.name: kind for kind in KINDS}
    samplers = [name for name in about["options"] if any(line["sampler"] == name for line in lines)]
    cells: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        cells[line["kind"], line["sampler"]].append(line)
    rows = []
    for name, kind in kinds.items():
        found = [text for sampler in samplers for text in honesty_cells(cells[name, sampler])]
        if any(found):
            rows.append([shown(name), kind.about, *found, EXPECTED[kind.honest], kind.why])
    sound = [line for line in lines if line["honest"] == "right"]
    hostile = [line for line in lines if line["honest"] == "says it"]
    false = sum(bool(line.get("warnings")) for line in sound)
    missed = Counter(shown(line["kind"]) for line in hostile if is_missed(line))
    words = (
        f"{false} of {len(sound)} fits in rows with the expectation *no warning* have a warning. "
        f"{missed.total()} of {len(hostile)} fits in rows with the expectation *warning* have a pull above 4 "
        "and no warning"
    )
    words += f" ({', '.join(f'{kind} {n}' for kind, n in missed.most_common())})." if missed else "."
    header = ["data", "what they are"]
    header += [text for sampler in samplers for text in (f"{sampler}: coverage", "warned")]
    header += ["expected", "biro tests, or limit"]
    table = f"{markdown_table(header, rows)}\n\n{words} {ran_on(about, f'{len(lines)} fits')}"
    evidences = evidence_pulls(lines)
    return f"{table}\n\n{evidences}" if evidences else table


def evidence_pulls(lines: Sequence[Line]) -> str:
    """A row for each kind with pulls of ln Z, against the exact value or dynesty's for the same data."""
    nested = {(x["kind"], x["seed"]): x for x in lines if x["sampler"] == "dynesty" and x.get("log_evidence")}
    pulls: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for line in lines:
        other = nested.get((line["kind"], line["seed"]))
        exact = line.get("log_evidence_exact")
        if line.get("log_evidence_err") is None or (exact is None and (other is None or other is line)):
            continue
        value, error = (
            (exact, 0.0) if exact is not None else (other["log_evidence"], other["log_evidence_err"])
        )
        against = "exact" if exact is not None else "dynesty"
        pull = (line["log_evidence"] - value) / np.hypot(line["log_evidence_err"], error)
        pulls[line["kind"], line["sampler"], against].append(float(pull))
    header = ["data", "sampler", "ln Z against", "fits", "mean pull", "rms pull", "largest pull"]
    rows = [
        [*key, str(len(of)), f"{np.mean(of):+.2f}", f"{np.sqrt(np.mean(np.square(of))):.2f}",
         f"{np.abs(of).max():.1f}"]
        for key, of in pulls.items()
    ]  # fmt: skip
    words = "Pulls of ln Z, relative to the exact value (one free parameter) or to that of dynesty:"
    return f"{words}\n\n{markdown_table(header, rows)}" if rows else ""


EXPECTED = {"right": "no warning", "says it": "warning", "cannot see": "not detectable"}
"""What the page says of an expectation."""


def shown(kind: str) -> str:
    return kind.replace("sound", "valid")


def honesty_cells(lines: Sequence[Line]) -> tuple[str, str]:
    """The share of 95 % intervals with the true value, and how many fits have a warning."""
    fitted = [line for line in lines if "pulls" in line]
    inside = [value for line in fitted for value in line["inside_95"].values()]
    if not fitted:
        return ("refused" if lines else "", "")
    warned = sum(bool(line["warnings"]) for line in fitted)
    refused = f", {len(lines) - len(fitted)} refused" if len(fitted) < len(lines) else ""
    return f"{100 * np.mean(inside):.0f} %", f"{warned} of {len(fitted)}{refused}"


def is_missed(line: Line) -> bool:
    """Whether errors are wrong by a pull above 4 and nothing is said."""
    return "pulls" in line and not line["warnings"] and max(map(abs, line["pulls"].values())) > 4.0


def population_section(about: Line, lines: Sequence[Line]) -> str:
    hours = sum(line["seconds"] for line in lines) / 3600.0
    return f"{tables(lines)}\n\n{ran_on(about, f'{len(lines)} fields, {hours:.2g} hours of one core')}"


SECTIONS: dict[str, tuple[str, Callable[[Line, Sequence[Line]], str]]] = {
    "sbc": ("sbc/*.json", sbc_section),
    "precision": ("trust/precision_*.jsonl", precision_section),
    "evidence": ("trust/evidence_of_*.jsonl", evidence_section),
    "honesty": ("trust/honesty_of_*.jsonl", honesty_section),
    "populations": ("population_calibration/*.jsonl", population_section),
    "model choice": ("trust/model_choice.jsonl", model_choice_section),
}


def main() -> int:
    args = page_arguments(__doc__)
    text = PAGE.read_text(encoding="utf-8")
    for name, (pattern, section) in SECTIONS.items():
        runs = [read(path) for path in sorted(RESULTS.glob(pattern))]
        content = "\n\n".join(section(*run) for run in runs if run[1]) or NOTHING
        text = replace_section(text, name, PROGRAM, content)
        if name == "model choice" and not args.check:
            for run in runs:
                draw(*run, DOCS / PICTURE)
    return write_page(PAGE, text, PROGRAM, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
