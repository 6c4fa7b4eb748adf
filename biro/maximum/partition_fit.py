"""How well a model fits each partition at the best fit, and what a noise factor far from 1 means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from biro.target.protocol import SampledLikelihood, has_gradient, n_data_of

FAR = 2.0
"""Residuals more than this many times larger, or smaller, than the stated noise are explained in words."""
COHERENT = 1.5
"""Residuals that are this many times their scatter between neighbouring times are no noise."""
FEW = 4
"""Partitions up to which each has a line of its own."""
UNITS, MISFIT = "WEIGHTS IN OTHER UNITS", "THE MODEL DOES NOT FIT"
OUTLIERS, UNKNOWN = "OUTLIERS", "MODEL OR WEIGHTS ARE WRONG"


@dataclass(frozen=True)
class PartitionFit:
    """How well a model fits one partition.

    Attributes
    ----------
    label : str
    n_vis : int
        Complex visibilities that count.
    reduced_chi2 : float
        chi2 / 2N (of N closures: chi2 / N) with the stated weights: about 1 where weights and model are
        right. NaN where N = 0.
    noise_factor : float
        That of the model.
    scatter : float
        Robust sigma of the residuals in units of the stated noise; NaN where it was not measured.
    step : float
        The same from their differences between neighbouring times: of noise it is equal to `scatter`, and of
        coherent residuals much less. NaN where it was not measured, or there are too few such times.
    has_tails : bool
        Whether the noise is Student's t, for which chi2 is large in any case where there are outliers.
    n_closure : int
        Closure phases and log closure amplitudes, where these are fitted; else 0.
    """

    label: str
    n_vis: int
    reduced_chi2: float
    noise_factor: float
    scatter: float = math.nan
    step: float = math.nan
    has_tails: bool = False
    n_closure: int = 0

    def __str__(self) -> str:
        if not self.n_vis:
            return f"{self.label}: no visibilities"
        of = f"{self.n_closure} closures" if self.n_closure else f"{self.n_vis} visibilities"
        figures = f"{self.statistic} {self.reduced_chi2:.4g} of {of}"
        return f"{self.label}: {figures}, noise factor {self.noise_factor:.4g}"

    @property
    def statistic(self) -> str:
        """Name of `reduced_chi2`."""
        return "chi2/N" if self.n_closure else "chi2/2N"

    @property
    def is_far(self) -> bool:
        """Whether residuals or noise factor are far from what the weights state."""
        ratios = [self.noise_factor] if self.has_tails else [self.noise_factor, math.sqrt(self.reduced_chi2)]
        return bool(self.n_vis) and any(map(_is_far, ratios))

    @property
    def badness(self) -> float:
        """How far chi2 / 2N is from 1, as a logarithm; -1 where there is none."""
        return abs(math.log(max(self.reduced_chi2, 1e-300))) if self.n_vis else -1.0

    @property
    def verdict(self) -> str:
        """What is wrong with weights or model, in capitals; "" where the noise factor is near 1."""
        if not self.is_far:
            return ""
        if math.isnan(self.step):
            return UNKNOWN
        if self.scatter > COHERENT * self.step:
            return MISFIT
        if _is_far(self.scatter):
            return UNITS
        return "" if self.has_tails else OUTLIERS

    @property
    def reason(self) -> str:
        """Why that is the verdict, and what to do."""
        if self.verdict == UNKNOWN:
            return (
                f"residuals are {math.sqrt(self.reduced_chi2):.3g} times the noise that the weights state, "
                "and too few times are neighbours to tell which of the two is wrong: look at the residuals"
            )
        size = f"{self.scatter:.3g} times the noise that the weights state"
        if self.verdict == MISFIT:
            too = ", and the weights are in other units, too" if _is_far(self.step) else ""
            return (
                f"residuals are {size}, but change from one time to the next by {self.step:.3g} times only: "
                f"they are coherent, as of a source that the model lacks or of calibration errors{too}"
            )
        if self.verdict == UNITS:
            what = (
                "scale the weights, or give the noise factor a prior"
                if self.noise_factor == 1.0
                else "the fitted noise factor makes up for it"
            )
            return f"residuals are {size}, and as large between neighbouring times: they are noise; {what}"
        return (
            f"most residuals are {size}, but their rms is {math.sqrt(self.reduced_chi2):.3g} times it; flag "
            'what is far off, or take distribution = "student-t"'
        )


def _is_far(ratio: float) -> bool:
    return not 1.0 / FAR <= ratio <= FAR


class _WithResiduals(Protocol):
    """A likelihood that can say how its residuals scatter."""

    def residual_scatter(
        self, theta: NDArray[np.float64], partitions: Sequence[int]
    ) -> list[tuple[float, float]]:
        """`scatter` and `step` of the residuals of these partitions."""


def fits_at(likelihood: SampledLikelihood, theta: NDArray[np.float64]) -> tuple[PartitionFit, ...]:
    """How well one vector theta fits each partition; nothing where a likelihood does not know chi-squared.

    The residuals are looked at only where they are far from the stated noise.
    """
    if not has_gradient(likelihood):
        return ()
    labels, n_vis, n_data = likelihood.observation.labels, likelihood.n_vis, n_data_of(likelihood)
    with np.errstate(invalid="ignore"):
        chi2 = np.maximum(likelihood.chi2(theta), 0.0)  # of an exact fit it may be below 0 by roundings
        reduced = np.where(n_data > 0, chi2 / np.maximum(n_data, 1), np.nan)
    factors = likelihood.noise_factor(theta)
    closures = n_data.tolist() if getattr(likelihood, "gains", "") == "closures" else [0] * len(n_data)
    noise_dof = getattr(likelihood, "noise_dof", None)
    has_tails = noise_dof is not None and noise_dof(theta) is not None
    fits = [
        PartitionFit(label, int(n), float(ratio), float(factor), has_tails=has_tails, n_closure=closure)
        for label, n, ratio, factor, closure in zip(labels, n_vis, reduced, factors, closures, strict=True)
    ]
    far = [i for i, fit in enumerate(fits) if fit.is_far]
    if far and hasattr(likelihood, "residual_scatter"):
        measured = cast(_WithResiduals, likelihood).residual_scatter(theta, far)
        for i, (scatter, step) in zip(far, measured, strict=True):
            fits[i] = replace(fits[i], scatter=scatter, step=step)
    return tuple(fits)


def fit_lines(fits: Sequence[PartitionFit]) -> list[str]:
    """chi2 / 2N and noise factor of each partition; of more than four the lowest, median and highest."""
    if len(fits) <= FEW:
        return [str(fit) for fit in fits]
    known = sorted((fit for fit in fits if fit.n_vis), key=lambda fit: fit.reduced_chi2)
    empty = len(fits) - len(known)
    lines = [f"{empty} of {len(fits)} partitions have no visibilities"] if empty else []
    if known:
        worst, median = max(known, key=lambda fit: fit.badness), np.median([f.reduced_chi2 for f in known])
        factors = [fit.noise_factor for fit in known]
        lines.append(
            f"{worst.statistic} of {len(known)} partitions: {known[0].reduced_chi2:.4g} to "
            f"{known[-1].reduced_chi2:.4g}, median {median:.4g}, noise factors {min(factors):.4g} to "
            f"{max(factors):.4g}; the worst is {worst}"
        )
    return lines


def fit_warnings(fits: Sequence[PartitionFit]) -> list[str]:
    """What is wrong with weights or model: a line for each partition, or for each kind where many are."""
    wrong = sorted((fit for fit in fits if fit.verdict), key=lambda fit: -fit.badness)
    if len(wrong) <= FEW:
        return [f"{fit.verdict} ({fit.label}): {fit.reason}" for fit in wrong]
    lines = []
    for verdict in dict.fromkeys(fit.verdict for fit in wrong):
        alike = [fit for fit in wrong if fit.verdict == verdict]
        which = f"{len(alike)} of {len(fits)} partitions, the worst is {alike[0].label}"
        lines.append(f"{verdict} ({which}): {alike[0].reason}")
    return lines
