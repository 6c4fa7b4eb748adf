"""The speeds that chi-squared must reach.

The figures are for one NVIDIA H200, and for two cores with AVX-512; elsewhere they are a yardstick.
A goal is a measure of the lines of a run (and of its roofs), a bound, and the case and precision it is of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.goals import Verdict, verdict
from common.types import Line

Lines = Mapping[tuple[str, str], Line]
Measure = Callable[[Line, Lines, Line], float]


@dataclass(frozen=True)
class Goal:
    """`measure` of the case's line must be at most or at least `bound`, said in `unit`."""

    device: str
    case: str
    precision: str
    measure: Measure
    sense: str
    bound: float
    unit: str


def of(name: str, scale: float = 1.0) -> Measure:
    """Take a figure of the line."""
    return lambda line, lines, roofs: line[name] * scale


def of_gemm(flop: int) -> Measure:
    """Take the share of the rate of the matrix product, at so many flop per source-visibility."""
    return lambda line, lines, roofs: line["rate"] * flop / roofs["gemm_flop_per_s"][line["precision"]]


def of_case(name: str) -> Measure:
    """Take the rate divided by that of another case."""
    return lambda line, lines, roofs: line["rate"] / lines[name, line["precision"]]["rate"]


def of_peer(name: str) -> Measure:
    """Take the rate divided by that of a peer."""
    return lambda line, lines, roofs: line["ratios"][name]


MAIN = "64 antennas, 100 points"
HALF = "64 antennas, 50 + 50"
_SHARE = "of the 64-channel rate"

GOALS = [
    Goal("cuda", MAIN, "single", of("median_ms"), "<=", 1.1, "ms"),
    Goal("cuda", HALF, "single", of("median_ms"), "<=", 1.7, "ms"),
    Goal("cuda", MAIN, "double", of("median_ms"), "<=", 4.0, "ms"),
    Goal("cuda", HALF, "double", of("median_ms"), "<=", 4.0, "ms"),
    Goal("cuda", f"{MAIN}, Stokes I", "single", of("median_ms"), "<=", 0.5, "ms"),
    Goal("cuda", f"{MAIN}, row form", "single", of("median_ms"), "<=", 2.5, "ms"),
    Goal("cuda", "64 antennas, 1000 points", "single", of("rate"), ">=", 1.3e12, "source-visibilities/s"),
    Goal("cuda", "EHT, batch 4096", "single", of("likelihoods_per_s"), ">=", 5e6, "likelihoods/s"),
    Goal("cuda", f"{MAIN}, 1 channel", "single", of_case(MAIN), ">=", 0.7, _SHARE),
    *(
        Goal("cuda", f"{MAIN}, {n} channels", "single", of_case(MAIN), ">=", 0.7, _SHARE)
        for n in (4, 20, 1000)
    ),
    Goal("cuda", "EHT, batch 1", "single", of("whole_us"), "<=", 100.0, "us for the whole Python call"),
    Goal("cuda", f"{MAIN}, streamed", "single", of("share_of_slower"), ">=", 0.9, "of the slower rate"),
    Goal("cuda", f"{MAIN}, emcee", "single", of("share_outside"), "<=", 0.1, "of the time outside chi2"),
    Goal("cpu", MAIN, "single", of_gemm(24), ">=", 0.4, "of the matrix product, at 24 flop"),
    Goal("cpu", MAIN, "single", of_peer("africanus"), ">=", 80.0, "times codex-africanus"),
    Goal("cpu", MAIN, "double", of_gemm(24), ">=", 0.35, "of the matrix product, at 24 flop"),
    Goal("cpu", f"{MAIN}, Stokes I", "single", of_gemm(8), ">=", 0.3, "of the matrix product, at 8 flop"),
    Goal("cpu", HALF, "single", of("rate"), ">=", 1.5e9, "source-visibilities/s"),
    Goal("cpu", f"{MAIN}, row form", "single", of("rate"), ">=", 9e8, "source-visibilities/s"),
    Goal("cpu", "27 antennas, 100 points", "single", of_case(MAIN), ">=", 0.8, "of the 64-antenna rate"),
    Goal("cpu", "7 antennas, 100 points", "single", of_case(MAIN), ">=", 0.5, "of the 64-antenna rate"),
]


def judge(device: str, found: list[Line], roofs: Line) -> list[Verdict]:
    """Judge each goal of the device by what was found; None stands where it was not measured."""
    lines = {(line["name"], line["precision"]): line for line in found if "skipped" not in line}
    verdicts = []
    for goal in GOALS:
        if goal.device != device:
            continue
        try:
            value = goal.measure(lines[goal.case, goal.precision], lines, roofs)
        except KeyError:  # the case, the peer or the roof was left out
            value = None
        verdicts.append(
            verdict(
                goal.case,
                goal.precision,
                sense=goal.sense,
                bound=goal.bound,
                unit=goal.unit,
                found=value,
            )
        )
    return verdicts
