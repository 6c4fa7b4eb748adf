"""Goals of speed: whether what was measured reaches a bound, as a line of the results and as text."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypedDict

# "at least" stands in the results of gridding, ">=" in those of chi-squared.
_SENSES: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "at least": operator.ge,
}


class Verdict(TypedDict):
    """A goal, what was found (None where it was not measured), and whether the goal was reached."""

    case: str
    precision: str
    sense: str
    bound: float
    unit: str
    found: float | None
    reached: bool | None


def verdict(
    case: str, precision: str, *, sense: str, bound: float, unit: str, found: float | None
) -> Verdict:
    """Judge what was found: it must be at most ("<=") or at least (">=", "at least") `bound`, in `unit`."""
    reached = None if found is None else bool(_SENSES[sense](found, bound))
    return Verdict(
        case=case, precision=precision, sense=sense, bound=bound, unit=unit, found=found, reached=reached
    )


def goal_text(verdict: Verdict) -> str:
    """Return a goal as one line of text."""
    word = {True: "reached", False: "NOT REACHED", None: "not measured"}[verdict["reached"]]
    found = "" if verdict["found"] is None else f"found {verdict['found']:.4g}"
    bound = f"{verdict['sense']} {verdict['bound']:.4g} {verdict['unit']}"
    return f"  {word:13}{verdict['case']:40}{verdict['precision']:7} {bound:45}{found}"


def goals_text(verdicts: list[Verdict]) -> str:
    """Return all goals, one a line, below a heading."""
    return "goals:\n" + "\n".join(goal_text(verdict) for verdict in verdicts)
