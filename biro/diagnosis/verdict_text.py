"""What is printed above a table about the fit: verdict, numbers, what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from biro.diagnosis.finding import Finding
from biro.diagnosis.partition_fit import (
    CERTAIN,
    CORRELATED,
    EFFECT,
    MISFIT,
    NOISE,
    OUTLIERS,
    PartitionFit,
    grouped,
    noise_reason,
    noise_verdict,
)
from biro.display.formatting import number_of, percent, plain
from biro.observation.unequal_noise import UNEQUAL, UNEQUAL_LENGTHS

EXPLAINS = 0.2
"""Part of the excess of chi2 from which a kind of misfit is named as its cause."""
CLOSURE = "closure errors"
"""Kind of the finding about errors of baselines."""
NEXT = "\n  "
"""Before each line about a cause, below the line with the verdict."""
NAMED = 2
"""Causes that the line names."""
UNKNOWN_CAUSE = (
    "biro did not identify the cause. Look at the residual image, and plot the residuals against time, "
    "frequency and baseline"
)
OF_FAULTS = "The faults of the data above may be the cause. Correct them first"
OF_PRIORS = "The prior that disagrees may be the cause. Correct it first"
_SAID = "times too small"
"""In each line that states by how much errors are too small for one cause."""
HANDS, NOISE_MODEL = "residuals of ", "THE NOISE MODEL IS WRONG"
"""What lines about two hands, and about correlation that is left, begin with."""
_OPPOSITE = "correlated (-"
"""In a line about hands whose residuals have opposite signs, as no source of Stokes I has them."""
_OF_KIND = {"correlated": (HANDS,), "coherent": (HANDS,), "noise": (HANDS, UNEQUAL_LENGTHS)}
"""Lines that a finding of this kind takes the place of."""
OF_RESIDUALS = (HANDS, UNEQUAL)
"""A misfit makes hands alike, and antennas, hands and baselines unequal: it is a matter of noise only where
the model fits."""
OF_CORRELATION = (HANDS, UNEQUAL_LENGTHS)
"""What correlated residuals look like."""
TOO_SMALL = "ERRORS ARE TOO SMALL"
"""How a line begins that says by how much errors are too small in all."""


HOLDS = (
    "ERRORS ARE NOT INFLATED: the residuals would widen them by less than 10 %. What the model lacks may "
    "bias parameters by more"
)
"""What is said of the errors where a misfit is certain, and hardly changes them."""


def lines_of(
    fits: Sequence[PartitionFit],
    findings: Sequence[Finding],
    remarks: Sequence[str],
    factor: float = 1.0,
    largest: float = math.nan,
    *,
    otherwise: str = UNKNOWN_CAUSE,
) -> list[str]:
    """All lines about a fit, the gravest first.

    Parameters
    ----------
    fits : sequence of PartitionFit
    findings : sequence of Finding
        That are certain.
    remarks : sequence of str
        Of the likelihood, on gains, hands and unequal noise.
    factor : float
        By how much errors are too small in all.
    largest : float
        By how much the error of one parameter is too small at most, measured on the residuals; NaN if not.
    otherwise : str
        What is said of a misfit whose cause was not found.
    """
    opposite = [line for line in remarks if line.startswith(HANDS) and _OPPOSITE in line]
    if opposite:
        otherwise = opposite[0][0].upper() + opposite[0][1:]
    if any(line.startswith(NOISE_MODEL) for line in remarks):  # that line speaks of the correlation
        findings = [each for each in findings if not each.kind.startswith(("correlated", "coherent"))]
    kinds = {each.kind.split()[0] for each in findings}
    lines = _misfit_lines(fits, findings, factor, otherwise)
    if lines:
        replaced: tuple[str, ...] = OF_RESIDUALS if lines[0].startswith((MISFIT, NOISE)) else OF_CORRELATION
    else:
        is_unequal = "noise" in kinds or any(line.startswith(UNEQUAL) for line in remarks)
        lines = _small_misfit_lines(fits, findings)
        said = tuple(line.split(" (")[0] for line in lines)
        lines += [line for line in _noise_lines(fits, is_unequal) if not line.startswith(said)]
        replaced = tuple(line for kind, several in _OF_KIND.items() if kind in kinds for line in several)
    lines += [line for line in remarks if not line.startswith(replaced)]
    total = _total_line(factor, lines)
    is_small = factor <= EFFECT and largest <= EFFECT  # NaN of largest is not small
    is_small &= not any(_is_outlier(each) for each in findings)
    if is_small and lines and lines[0].startswith(MISFIT):
        total = [HOLDS]
    return [*lines[:1], *total, *lines[1:]]


def certainty(fits: Sequence[PartitionFit]) -> float:
    """How certainly residuals are no white noise: of the worst partition, or of all together."""
    z = [fit.coherent for fit in fits if fit.n_vis]
    return max(max(z), sum(z) / math.sqrt(len(z))) if z else 0.0


def _misfit_lines(
    fits: Sequence[PartitionFit], findings: Sequence[Finding], factor: float, otherwise: str
) -> list[str]:
    """The line that says that the model does not fit, and why, or `otherwise`; nothing where it does."""
    known = [fit for fit in fits if fit.n_vis]
    causes = [each for each in findings if each.explained >= EXPLAINS]
    ratio = max((1.0 / fit.thermal for fit in known if fit.thermal > 0.0), default=1.0)
    matters = max(ratio, factor) > EFFECT or any(fit.is_far for fit in known)
    coherent = certainty(known) > CERTAIN
    if not matters or not (coherent or causes):
        return []
    wrong = sorted(known, key=lambda fit: (fit.coherent > CERTAIN, fit.badness), reverse=True)
    n_wrong = max(1, sum(fit.is_coherent for fit in known))
    worst = wrong[0]
    where = (
        worst.label if len(fits) == 1 else f"{n_wrong} of {len(fits)} partitions, the worst is {worst.label}"
    )
    verdict = _verdict(causes)
    z = max(certainty(known), max((each.significance for each in causes), default=0.0))
    numbers = [worst.numbers(thermal=verdict == MISFIT), f"significance {z:.0f} sigma"]
    if len(fits) > 1 and (verdict == OUTLIERS or not coherent):  # the causes are those of all partitions
        where, numbers = f"{len(known)} partitions together", numbers[1:]
    head = f"{verdict} ({where}): {', '.join(filter(None, numbers))}"
    return [f"{head}{_in_words(causes) or NEXT + otherwise}"]


def _small_misfit_lines(fits: Sequence[PartitionFit], findings: Sequence[Finding]) -> list[str]:
    """The line about causes that are certain where the residuals as a whole are those of noise."""
    if not findings:
        return []
    known = [fit.label for fit in fits if fit.n_vis]
    where = known[0] if len(known) == 1 else f"{len(known)} partitions together"
    z = max(each.significance for each in findings)
    return [f"{_verdict(findings)} ({where}): significance {z:.0f} sigma{_in_words(findings)}"]


def _in_words(causes: Sequence[Finding]) -> str:
    """A line for each of the causes that explain most: what is wrong, what it explains, what to do."""
    lines: list[str] = []
    rest = " without the outliers" * any(_is_outlier(each) for each in causes)
    for i, each in enumerate(causes[:NAMED]):
        text = f"{each.verdict.rstrip('.')}{_share(each, '' if _is_outlier(each) else rest)}"
        if all(each.remedy != other.remedy for other in causes[i + 1 : NAMED]):
            text += f". {each.remedy.rstrip('.')}"
        lines.append(text)
    if len(causes) > NAMED:
        more = len(causes) - NAMED
        lines.append(f"{number_of(more, 'more cause')} explain{'s' * (more == 1)} less")
    return "".join(NEXT + line for line in lines)


def _is_outlier(cause: Finding) -> bool:
    return cause.kind.startswith("bad")


def _share(cause: Finding, of_what: str = "") -> str:
    """The part of the excess chi2 that a cause explains; "" of a correlation, which need not raise chi2."""
    if cause.explained <= 0.0 or cause.kind.startswith(("correlated", "duplicated", "coherent")):
        return ""
    return f" (explains {percent(min(cause.explained, 1.0), 2)} of the excess chi2{of_what})"


def _verdict(causes: Sequence[Finding]) -> str:
    """The verdict of the first cause where all are of the noise, else that the model does not fit.

    Small errors of baselines beside noise that explains more are no verdict on the model.
    """
    kinds = {"noise": NOISE, "bad": OUTLIERS}
    kinds |= dict.fromkeys(("correlated", "duplicated", "coherent"), CORRELATED)
    most = max((each.explained for each in causes), default=0.0)
    causes = [each for each in causes if each.kind != CLOSURE or each.explained >= most]
    found = [kinds.get(each.kind.split()[0], MISFIT) for each in causes]
    return found[0] if found and MISFIT not in found else MISFIT


def _noise_lines(fits: Sequence[PartitionFit], is_unequal: bool) -> list[str]:
    """Verdicts on noise and weights; outliers are left to a line about unequal noise where there is one."""
    lines = [(noise_verdict(fit), fit, noise_reason(fit)) for fit in fits if noise_verdict(fit)]
    lines = [line for line in lines if not (is_unequal and line[1].has_outliers)]
    return grouped(sorted(lines, key=lambda line: -line[1].badness), len(fits))


def _total_line(factor: float, lines: Sequence[str]) -> list[str]:
    """By how much errors are too small in all, unless the one line that says something of them has it."""
    said = [line for line in lines if _SAID in line]
    if not factor > EFFECT or (len(said) == 1 and not any(line.startswith(MISFIT) for line in lines)):
        return []
    return [f"{TOO_SMALL}: multiply all errors by about {plain(factor)}"]
