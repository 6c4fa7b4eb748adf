"""Does the model fit? One diagnosis for the results of all samplers and of `biro.maximise`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.misfit.causes.all_causes import find_causes
from biro.misfit.correlated_errors import error_factor
from biro.misfit.finding import Finding
from biro.misfit.partition_fit import (
    CERTAIN,
    CORRELATED,
    EFFECT,
    MISFIT,
    PartitionFit,
    grouped,
    noise_reason,
    noise_verdict,
)
from biro.misfit.prior_conflict import edge_conflicts, prior_conflicts
from biro.misfit.residual_data import ResidualData
from biro.misfit.whiteness import whiteness
from biro.models.quantities.parameter import Column, Parameter

Array = NDArray[np.float64]
EXPLAINS = 0.2
"""Part of the excess of chi2 from which a kind of misfit is named as its cause."""
NAMED = 2
"""Causes that the line names."""
UNKNOWN_CAUSE = (
    "The cause was not identified. Look at the residual image, and at residuals against time, frequency and "
    "baseline"
)
OF_PRIORS = "The prior that disagrees may be the cause: mend it first"
_HANDS, _UNEQUAL = "residuals of ", "noise "
"""What lines about two hands, and about unequal noise, begin with."""
_OPPOSITE = "correlated (-"
"""In a line about hands whose residuals have opposite signs, as no source of Stokes I has them."""
_OF_RESIDUALS = (_HANDS, _UNEQUAL)
"""A misfit makes hands alike and baselines unequal: only where the model fits is that a matter of noise."""


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a fit.

    Attributes
    ----------
    fits : tuple of PartitionFit
        How well each partition is fitted; none where a likelihood does not know chi-squared.
    warnings : tuple of str
        Lines above a table, the gravest first; none for most sound data.
    findings : tuple of Finding
        Kinds of misfit that the residuals show.
    error_factor : float
        By how much the errors are too small, in all; 1 where nothing is wrong with them.
    """

    fits: tuple[PartitionFit, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    error_factor: float = 1.0


class _LabelledData(Protocol):
    @property
    def labels(self) -> Sequence[str]:
        """One for each partition."""


class FittedLikelihood(Protocol):
    """What a diagnosis asks of a likelihood."""

    @property
    def observation(self) -> _LabelledData:
        """The data."""

    @property
    def n_vis(self) -> NDArray[np.int64]:
        """Usable complex visibilities of each partition."""

    def chi2(self, theta: Array) -> Array:
        """Chi-squared of each partition, for one theta."""

    def noise_factor(self, theta: Array) -> Array:
        """Noise factor of each partition, for one theta."""


class ResidualLikelihood(FittedLikelihood, Protocol):
    """A likelihood that shows its residuals."""

    def residual_data(self, theta: ArrayLike) -> list[ResidualData]:
        """Data and model of each partition, for one theta."""

    def residual_models(self, theta: ArrayLike) -> list[NDArray[np.complexfloating]]:
        """Model visibilities where `residual_data` has them."""


def diagnose(
    likelihood: object, theta: Array, mean: Array, sd: Array, columns: Sequence[Column]
) -> Diagnosis:
    """Compare residuals with thermal noise and weights, priors with the likelihood, and name what is wrong.

    Parameters
    ----------
    likelihood : Likelihood
        Or anything else: what it cannot show is not looked at.
    theta : float64 (n_param,)
        The best fit.
    mean, sd : float64 (n_param,)
        Of the posterior; NaN where they are not known.
    columns : sequence of Column
    """
    conflicts = _conflicts(likelihood, theta, mean, sd, columns)
    if not hasattr(likelihood, "chi2"):
        return Diagnosis(warnings=tuple(conflicts))
    known = cast(FittedLikelihood, likelihood)
    fits, remarks = fits_at(known, theta), _remarks(likelihood, theta)
    if not hasattr(likelihood, "residual_data"):
        lines = _noise_lines(fits, remarks)
        return Diagnosis(tuple(fits), (*conflicts, *lines, *remarks))
    shown = cast(ResidualLikelihood, likelihood)
    data = shown.residual_data(theta)
    fits = [_measured(fit, each) if fit.n_vis else fit for fit, each in zip(fits, data, strict=True)]
    findings = _findings(likelihood, data, fits)
    factor = _total(shown, data, fits, findings, remarks, theta, sd)
    polarised = [line for line in remarks if line.startswith(_HANDS) and _OPPOSITE in line]
    otherwise = OF_PRIORS if conflicts else UNKNOWN_CAUSE
    if polarised:
        otherwise = polarised[0][0].upper() + polarised[0][1:]
    misfit = _misfit_lines(fits, findings, factor, otherwise)
    noise = [] if misfit else [*_noise_lines(fits, remarks), *_finding_lines(findings)]
    if misfit:
        remarks = [line for line in remarks if not line.startswith(_OF_RESIDUALS)]
    total = _total_line(factor, bool(misfit), [*noise, *remarks])
    return Diagnosis(tuple(fits), (*conflicts, *misfit, *total, *noise, *remarks), tuple(findings), factor)


def fits_of(likelihood: object, theta: Array) -> tuple[PartitionFit, ...]:
    """`fits_at` of a likelihood that knows chi-squared; nothing of any other."""
    return tuple(fits_at(cast(FittedLikelihood, likelihood), theta)) if hasattr(likelihood, "chi2") else ()


def fits_at(likelihood: FittedLikelihood, theta: Array) -> list[PartitionFit]:
    """chi2, degrees of freedom and noise factor of each partition for one theta, without its residuals."""
    n_vis = likelihood.n_vis
    n_data: NDArray[np.int64] = getattr(likelihood, "n_data", 2 * n_vis)
    with np.errstate(invalid="ignore"):
        chi2 = np.maximum(likelihood.chi2(theta), 0.0)  # of an exact fit it may be below 0 by roundings
        reduced = np.where(n_data > 0, chi2 / np.maximum(n_data, 1), np.nan)
    noise_dof = getattr(likelihood, "noise_dof", None)
    has_tails = noise_dof is not None and noise_dof(theta) is not None
    is_closed = getattr(likelihood, "gains", "") == "closures"
    of_noise = _noise_parameters(likelihood)
    dof = _dof(likelihood, theta, n_data, len(theta) - len(of_noise))
    fitted = np.zeros(len(n_vis), bool)
    for together, _ in of_noise.values():
        fitted |= together
    columns = zip(likelihood.observation.labels, n_vis, n_data, reduced, dof, fitted, strict=True)
    return [
        PartitionFit(
            label,
            int(n),
            float(ratio),
            float(factor),
            has_tails=has_tails,
            n_closure=int(count) if is_closed else 0,
            dof=float(free),
            is_fitted=bool(is_fitted),
        )
        for (label, n, count, ratio, free, is_fitted), factor in zip(
            columns, likelihood.noise_factor(theta), strict=True
        )
    ]


def _noise_parameters(likelihood: object) -> dict[int, tuple[NDArray[np.bool_], float]]:
    return dict(getattr(getattr(likelihood, "model", None), "noise_parameters", {}))


def _dof(likelihood: object, theta: Array, n_data: NDArray[np.int64], n_param: int) -> Array:
    """Degrees of freedom of each partition; parameters are shared out by the size of their data."""
    counted = getattr(likelihood, "dof", None)
    if counted is not None:
        return np.asarray(counted(theta), np.float64)
    return np.asarray(n_data * (1.0 - n_param / max(1, int(n_data.sum()))))


def _measured(fit: PartitionFit, data: ResidualData) -> PartitionFit:
    """The fit with what its residuals show."""
    found = whiteness(data)
    return replace(
        fit,
        scatter=found.scatter,
        step=found.step,
        thermal=found.thermal,
        coherent=found.coherent,
        by_channel=found.by_channel,
    )


def _remarks(likelihood: object, theta: Array) -> list[str]:
    remarks = getattr(likelihood, "remarks", None)
    return [] if remarks is None else list(remarks(theta))


def _findings(
    likelihood: object, data: Sequence[ResidualData], fits: Sequence[PartitionFit]
) -> list[Finding]:
    """Kinds of misfit that are certain; closures have no residuals of visibilities."""
    if any(fit.n_closure for fit in fits):
        return []
    used = [each for each, fit in zip(data, fits, strict=True) if fit.n_vis]
    names = getattr(getattr(likelihood, "observation", None), "antenna_names", ())
    found = find_causes(used, names, has_outliers=any(fit.has_tails for fit in fits)) if used else []
    return [each for each in found if each.significance > CERTAIN]


def _total(
    likelihood: ResidualLikelihood,
    data: Sequence[ResidualData],
    fits: Sequence[PartitionFit],
    findings: Sequence[Finding],
    remarks: Sequence[str],
    theta: Array,
    sd: Array,
) -> float:
    """By how much errors are too small in all, where something is wrong with them; else 1.

    The correlation of residuals and their size contain all factors at once. Where that is not measured,
    those that tests of the residuals state are multiplied; of duplicated rows and correlation in time the
    larger counts.
    """
    of_time = [f.error_factor for f in findings if f.kind in ("correlated in time", "duplicated rows")]
    others = [f.error_factor for f in findings if f.kind in ("correlated in frequency", "correlated hands")]
    product = max(of_time, default=1.0) * math.prod(others)
    wrong = _certainty(fits) > CERTAIN or product > EFFECT or any(fit.by_channel > CERTAIN for fit in fits)
    off = [fit for fit in fits if fit.is_far and not fit.is_fitted]
    if not (wrong or off or any(line.startswith(_HANDS) for line in remarks)):
        return 1.0
    if off:
        product *= max(fit.rms / fit.noise_factor for fit in off)
    measured = math.nan
    if not any(fit.n_closure or fit.has_tails for fit in fits):
        box = getattr(getattr(likelihood, "model", None), "box", None)
        if box is not None:
            measured = error_factor(data, likelihood.residual_models, theta, sd, box)
    return float(np.nanmax([1.0, product, measured]))


def _certainty(fits: Sequence[PartitionFit]) -> float:
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
    coherent = _certainty(known) > CERTAIN
    if not matters or not (coherent or causes):
        return []
    wrong = sorted(known, key=lambda fit: (fit.coherent > CERTAIN, fit.badness), reverse=True)
    n_wrong = max(1, sum(fit.is_coherent for fit in known))
    worst = wrong[0]
    where = (
        worst.label if len(fits) == 1 else f"{n_wrong} of {len(fits)} partitions, the worst is {worst.label}"
    )
    noise_only = bool(causes) and all(_is_noise(each) for each in causes)
    verdict = CORRELATED if noise_only else MISFIT
    z = max(_certainty(known), max((each.significance for each in causes), default=0.0))
    numbers = f"{worst.numbers}, {z:.0f} sigma" if coherent or worst.is_far else worst.numbers
    what = [f"{each.verdict.rstrip('.')}. {each.remedy.rstrip('.')}" for each in causes[:NAMED]]
    return [f"{verdict} ({where}): {numbers}. {'. '.join(what) or otherwise}"]


def _is_noise(finding: Finding) -> bool:
    """Whether a finding is of the noise, not of the model."""
    return finding.kind.startswith(("correlated", "duplicated"))


def _noise_lines(fits: Sequence[PartitionFit], remarks: Sequence[str]) -> list[str]:
    """Verdicts on noise and weights; outliers are left to a line about unequal noise where there is one."""
    unequal = any(line.startswith(_UNEQUAL) for line in remarks)
    lines = [(noise_verdict(fit), fit, noise_reason(fit)) for fit in fits if noise_verdict(fit)]
    lines = [line for line in lines if not (unequal and line[1].has_outliers)]
    return grouped(sorted(lines, key=lambda line: -line[1].badness), len(fits))


def _finding_lines(findings: Sequence[Finding]) -> list[str]:
    """A line for each kind that is certain where the model fits as a whole."""
    return [
        f"{each.kind.upper()}: {each.verdict.rstrip('.')}. {each.remedy.rstrip('.')}" for each in findings
    ]


def _total_line(factor: float, is_misfit: bool, others: Sequence[str]) -> list[str]:
    """By how much errors are too small in all, where more than one line says something of them."""
    few = sum("times too small" in line or "correlated" in line.lower() for line in others) < 2
    if not factor > EFFECT or (few and not is_misfit):
        return []
    least = "at least " if is_misfit else "about "
    return [f"ERRORS ARE TOO SMALL: by {least}a factor of {factor:.2g} in all"]


def _height(likelihood: object, theta: Array) -> Callable[[Array], Array] | None:
    """ln L (n_batch,) with the noise of one theta, beyond the prior as well; None where nothing gives it.

    The noise is that of the weights and the factor, or that of the residuals where this is more.
    """
    if not hasattr(likelihood, "chi2"):
        return cast("Callable[[Array], Array] | None", getattr(likelihood, "log_likelihood", None))
    known = cast(FittedLikelihood, likelihood)
    fits = fits_at(known, theta)
    level = np.array([np.nanmax([f.noise_factor**2, f.chi2_per_dof]) for f in fits])
    return lambda batch: -0.5 * np.sum(known.chi2(batch) / level, axis=-1)


def _conflicts(
    likelihood: object, theta: Array, mean: Array, sd: Array, columns: Sequence[Column]
) -> list[str]:
    """Lines about priors that the likelihood contradicts."""
    parameters: Sequence[Parameter] = getattr(likelihood, "parameters", ())
    found = prior_conflicts(parameters, mean, sd)
    height = _height(likelihood, theta)
    if height is not None:
        found += edge_conflicts(columns, theta, sd, height)
    return [each.text for each in found]
