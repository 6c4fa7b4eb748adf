"""Scores of fits of populations to simulated fields: what was found against what should hold, and tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from common.tables import markdown_table

Array = NDArray[np.float64]
Row = list[str]
INSIDE = float(stats.norm.cdf(1.0) - stats.norm.cdf(-1.0))
EDGES_OF_NUMBER = (0.0, 0.02, 0.1, 0.25, 0.5, 0.8, 1.0)
EDGES_OF_EXISTENCE = (0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
EDGES_OF_FLUX = (2.0, 3.0, 4.0, 6.0, 10.0, 100.0)
"""Noise of the image."""
SURE, FOUND = 0.9, 0.5
"""Probabilities above which intervals of an entry are judged, and above which a source counts as found."""


def tables(lines: Sequence[dict[str, Any]]) -> str:
    """One table of all lines: a row for each quantity, a column for each variant, and one for all."""
    kinds = dict[str, list[dict[str, Any]]]()
    for line in lines:
        kinds.setdefault(f"{line['variant']}, mean {line['mean']:g}", []).append(line)
    kinds["all"] = list(lines)
    cells = dict[str, dict[str, str]]()
    for kind, own in kinds.items():
        for name, *row in (row for score in _SCORES for row in score(own)):
            cells.setdefault(name, {})[kind] = _cell(*row)
    header = ["found, of how many (expected; difference in sigma)", *kinds]
    rows = [[name, *(of.get(kind, "-") for kind in kinds)] for name, of in cells.items()]
    return markdown_table(header, rows)


def _cell(n: str, found: str, expected: str, sigma: str) -> str:
    if n == "0":
        return "-"
    judged = f" ({expected}; {sigma})" if sigma else ""
    return f"{found} of {n}{judged}"


def _runs(lines: Sequence[dict[str, Any]]) -> list[Row]:
    seconds = [line["seconds"] for line in lines]
    times = f"{np.median(seconds):.0f}, {max(seconds):.0f}"
    converged = sum(line["converged"] for line in lines)
    # 2 ln L(truth) - 2 mean ln L has no fixed distribution; a truth far above the best draw was not found.
    missed = sum(line["log_likelihood_of_truth"] > line["log_likelihood"][1] + 5.0 for line in lines)
    return [
        ["converged", str(len(lines)), str(converged), "", ""],
        ["CPU seconds, median and largest", str(len(lines)), times, "", ""],
        ["ln L of the truth 5 above all draws", str(len(lines)), str(missed), "", ""],
    ]


def _row(name: str, hits: ArrayLike, expected: ArrayLike) -> Row:
    """A share beside the mean of the probabilities that it should be."""
    hit, p = np.asarray(hits, np.float64), np.asarray(expected, np.float64)
    if not len(hit):
        return [name, "0", "-", "-", "-"]
    error = float(np.sqrt((p * (1.0 - p)).sum())) / len(p)
    z = _sigma_of_count(int(hit.sum()), p)
    return [
        name,
        str(len(hit)),
        f"{100 * hit.mean():.1f} %",
        f"{100 * p.mean():.1f} +- {100 * error:.1f} %",
        z,
    ]


def _sigma_of_count(n: int, p: Array) -> str:
    """How far a number of hits is from what probabilities expect, as exact as it is for independent ones.

    The normal quantile of P(fewer) + P(as many) / 2: few hits of a small expectation have no normal scatter.
    """
    pmf = np.ones(1)
    for each in p:
        pmf = np.convolve(pmf, [1.0 - each, each])
    if pmf[n] > 1.0 - 1e-9:
        return "-"
    return f"{stats.norm.ppf(np.clip(pmf[:n].sum() + 0.5 * pmf[n], 1e-300, 1.0 - 1e-16)):+.1f}"


def _z(difference: float, error: float) -> str:
    return f"{difference / error:+.1f}" if error > 0.0 else "-"


def probabilities(line: dict[str, Any], n: int) -> Array:
    """P(k) of k = 0 .. n - 1 with half a draw more of every number, so that none is impossible."""
    p, effective = np.zeros(n), line["n_effective_of_number"]
    p[: len(line["probability"])] = line["probability"]
    return np.asarray((p * effective + 0.5 / n) / (effective + 0.5))


def _number(lines: Sequence[dict[str, Any]]) -> list[Row]:
    """Shares of fields with k sources by P(k), and the log score beside what the posteriors expect."""
    n = 1 + max(max(len(line["probability"]) - 1, line["number"]) for line in lines)
    p = np.array([probabilities(line, n) for line in lines])
    hit = np.arange(n) == np.array([line["number"] for line in lines])[:, None]
    rows = []
    for low, high in itertools.pairwise(EDGES_OF_NUMBER):
        some = (p > max(low, 1e-3)) & (p <= high)
        rows.append(_row(f"P(number) {low:g} to {high:g}", hit[some], p[some]))
    log_p = np.log(p)
    score, mean = log_p[hit].mean(), (p * log_p).sum(axis=1)
    variance = (p * log_p**2).sum(axis=1) - mean**2
    error = float(np.sqrt(variance.sum())) / len(p)
    z = _z(float(score - mean.mean()), error)
    text = f"{mean.mean():.3f} +- {error:.3f}"
    mode = p.argmax(axis=1)
    right = _row("most probable number is right", hit[np.arange(len(p)), mode], p.max(axis=1))
    return [*rows, right, ["mean log score of the number", str(len(p)), f"{score:.3f}", text, z]]


def _places(lines: Sequence[dict[str, Any]]) -> list[Row]:
    """Places of the truth among the draws: their mean, and the p-value of Kolmogorov and Smirnov."""
    rows = []
    for key in dict.fromkeys(key for line in lines for key in line["pit"]):
        rows += _uniform(key, [line["pit"][key] for line in lines if key in line["pit"]])
    return rows


def _uniform(name: str, values: ArrayLike) -> list[Row]:
    x = np.asarray(values, np.float64)
    if len(x) < 2:
        return []
    error = math.sqrt(1.0 / (12.0 * len(x)))
    p = float(stats.kstest(x, "uniform").pvalue)
    row = [f"place of the truth, {name}", str(len(x)), f"{x.mean():.3f}; KS p = {p:.2g}"]
    return [[*row, f"0.500 +- {error:.3f}", _z(float(x.mean() - 0.5), error)]]


def _intervals(lines: Sequence[dict[str, Any]]) -> list[Row]:
    """Coverage of the 68 % intervals of sure entries that match, and places of the truth in their draws."""
    sure = [e for line in lines for e in line["entries"] if e["p"] > SURE and "pit" in e]
    rows = []
    for key, name in (("I", "flux"), ("east", "east"), ("north", "north")):
        hit = [entry["inside"][key] for entry in sure]
        rows.append(_row(f"68 % of {name}, P > {SURE:g}", hit, np.full(len(hit), INSIDE)))
        rows += _uniform(f"{name}, P > {SURE:g}", [entry["pit"][key] for entry in sure])
    return rows


def _existence(lines: Sequence[dict[str, Any]]) -> list[Row]:
    """Shares of entries with a true source by their probability."""
    entries = [entry for line in lines for entry in line["entries"]]
    rows = []
    for low, high in itertools.pairwise(EDGES_OF_EXISTENCE):
        some = [entry for entry in entries if low < entry["p"] <= high]
        rows.append(_true(f"entries true, P {low:g} to {high:g}", some))
    return [*rows, _true("entries true, all", entries)]


def _true(name: str, entries: Sequence[dict[str, Any]]) -> Row:
    return _row(name, ["pit" in entry for entry in entries], [entry["p"] for entry in entries])


def _sources(lines: Sequence[dict[str, Any]]) -> list[Row]:
    """Completeness: shares of true sources that an entry with P > 0.5 matches."""
    flux, p = np.array([source for line in lines for source in line["sources"]]).reshape(-1, 2).T
    rows = []
    for low, high in itertools.pairwise(EDGES_OF_FLUX):
        found = p[(flux >= low) & (flux < high)] > FOUND
        share = f"{100 * found.mean():.0f} %" if len(found) else "-"
        rows.append([f"completeness, {low:g} to {high:g} sigma", str(len(found)), share, "", ""])
    return rows


_SCORES = (_runs, _number, _places, _intervals, _existence, _sources)
