"""The verdict on a fit, which a report begins with: does the model fit, what can be trusted, what is next."""

from __future__ import annotations

from typing import NamedTuple

from biro.diagnosis.partition_fit import (
    CORRELATED,
    MISFIT,
    NOISE,
    OUTLIERS,
    UNITS,
    UNKNOWN,
    PartitionFit,
)
from biro.diagnosis.verdict_text import HANDS, HOLDS, NOISE_MODEL, TOO_SMALL
from biro.display.formatting import first_few
from biro.inference.posterior.table import PosteriorTable
from biro.observation.unequal_noise import UNEQUAL

_OF_NOISE = (CORRELATED, UNITS, NOISE, UNKNOWN, NOISE_MODEL, HANDS, UNEQUAL)
"""Beginnings of lines about noise and weights that differ from what the weights and the model state."""
_OF_ERRORS = (OUTLIERS, CORRELATED, TOO_SMALL, UNKNOWN, NOISE_MODEL)
"""Beginnings of lines after which no error bar can be trusted."""
_LISTED = 4
"""Parameters with a limit instead of an interval that the verdict names."""


class Verdict(NamedTuple):
    """What a reader wants to know first; each field is a sentence or a few.

    Attributes
    ----------
    level : "good", "doubt" or "bad"
        Sound; usable with reservations; not to be used.
    fit : str
        Does the model fit?
    numbers : str
        chi2/dof and the residual rms over the thermal noise; "" where the model does not fit, and a line
        says by how much.
    trust : str
        Which figures can be trusted?
    action : str
        What to do next.
    """

    level: str
    fit: str
    numbers: str
    trust: str
    action: str


def verdict_of(table: PosteriorTable) -> Verdict:
    """The verdict that follows from the warnings and the figures of a table.

    A warning of a kind that is not known here makes the verdict "doubt": it is never passed over.
    """
    lines = table.warnings()
    converged = table.diagnostics.get("converged", 1.0) != 0.0
    misfit = _beginning(lines, (MISFIT,))
    bad = _beginning(lines, _OF_ERRORS) or table.is_doubtful or not converged
    level = "bad" if bad or (misfit and HOLDS not in lines) else "doubt" if lines else "good"
    fit, numbers = _fit(table, lines, misfit)
    return Verdict(level, fit, numbers, _trust(table, lines, level), _action(table, level))


def _beginning(lines: list[str], words: tuple[str, ...]) -> bool:
    return any(line.startswith(words) for line in lines)


def _fit(table: PosteriorTable, lines: list[str], misfit: bool) -> tuple[str, str]:
    """Whether the model fits, and the numbers."""
    known = [fit for fit in table.fits if fit.n_vis and fit.n_dof > 0.0]
    if misfit:
        return "The model does not fit the data.", ""
    if not known:
        return "biro could not test whether the model fits, because chi2 is not known for these data.", ""
    text = _numbers(max(known, key=lambda fit: fit.badness), len(known))
    if _beginning(lines, (OUTLIERS,)):
        return "Outliers among the data bias the fit: flag them.", text
    if _beginning(lines, _OF_NOISE):
        return "biro found no error in the model, but the noise differs from the weights.", text
    return "The model fits the data.", text


def _numbers(worst: PartitionFit, n_partition: int) -> str:
    """chi2/dof of the only partition, or of the worst, and residuals in units of thermal noise."""
    parts = [] if worst.has_tails else [f"chi2/dof {worst.chi2_per_dof:.3g}"]
    if worst.thermal > 0.0 and not worst.has_tails:
        parts.append(f"residual rms {worst.over_thermal}")
    text = ", ".join(parts) or "noise of Student's t"
    return text if n_partition == 1 else f"worst of {n_partition} partitions, {worst.label}: {text}"


def _trust(table: PosteriorTable, lines: list[str], level: str) -> str:
    limits = [row.name for row in table.rows if row.at_end]
    if level == "bad":
        text = f"Do not trust the error bars{_reason(lines)}."
    elif _beginning(lines, (MISFIT,)):
        text = "The error bars hold for this model only: what it lacks may bias the parameters by more."
    elif level == "doubt":
        text = "Use the error bars with the warnings below in mind."
    else:
        text = "Medians and error bars can be trusted."
    if limits:
        names = first_few(limits[:_LISTED])
        more = f" and {len(limits) - _LISTED} more" if len(limits) > _LISTED else ""
        text += (
            f" The posterior ends at a limit of the prior: quote {names}{more} as an upper or lower limit."
        )
    if table.log_evidence is not None:
        doubtful = level == "bad" or _beginning(lines, (MISFIT,)) or not table.evidence_is_trusted
        text += " Do not trust the evidence." if doubtful else " The evidence can be trusted."
    return text


def _reason(lines: list[str]) -> str:
    """Why error bars of a bad fit are wrong, where one word on it is enough."""
    if _beginning(lines, (MISFIT,)):
        return ": what the model lacks may bias the parameters"
    return ": outliers bias the parameters" if _beginning(lines, (OUTLIERS,)) else ""


def _action(table: PosteriorTable, level: str) -> str:
    if level == "good":
        if table.log_evidence is None:
            return "Check the residual image before you use the table."
        return "Check the residual image before you use the table, or compare models with `biro compare`."
    n = len(table.warnings())
    if n == 1:
        return "Follow the line below, and fit again."
    return f"Follow the {n} lines below in order, and fit again after each change."
