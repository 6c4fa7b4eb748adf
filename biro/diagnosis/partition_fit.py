"""How well a model fits a partition: chi2/dof, thermal noise, and the verdict that follows from these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biro.display.formatting import Printed

FAR = 2.0
"""A fitted noise factor that is farther from 1 than this is explained in words."""
EFFECT = 1.1
"""By how much errors must be wrong to be worth a line."""
CERTAIN = 5.0
"""Standard deviations from what noise alone would give that are needed for a line."""
HEAVY = 1.3
"""Rms over robust sigma above which a few residuals are far off: it is 1.2 of Student's t with 5 degrees."""
TELLING = 0.98
"""Thermal noise over the rms of residuals above which it is not worth a word."""
WHY_BOUND = (
    "at least: residuals change between neighbouring times by more than noise, so the thermal noise measured "
    "there is an upper limit. Data averaged over shorter times give a closer one"
)
"""Why residuals are at least so many times the thermal noise."""
FEW = 4
"""Partitions up to which each has a line of its own."""
MISFIT, CORRELATED = "THE MODEL DOES NOT FIT", "RESIDUALS ARE CORRELATED"
UNITS, NOISE = "WEIGHT SCALE IS WRONG", "NOISE DIFFERS FROM THE WEIGHTS"
OUTLIERS, UNKNOWN = "OUTLIERS", "MODEL OR WEIGHTS ARE WRONG"


@dataclass(frozen=True)
class PartitionFit(Printed):
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
        The same from their differences between neighbouring times; NaN where there are too few such times.
    has_tails : bool
        Whether the noise is Student's t, for which chi2 is large in any case where there are outliers.
    n_closure : int
        Closure phases and log closure amplitudes, where these are fitted; else 0.
    dof : float
        Degrees of freedom: real numbers of the data minus parameters and gains; NaN where it is not known.
    thermal : float
        Thermal noise in the residuals over their rms: 1 where they are white noise; NaN where there are too
        few neighbours to measure it.
    is_bound : bool
        Whether the thermal noise is an upper limit, because residuals change between neighbouring times.
    coherent : float
        How certainly residuals are no white noise, in standard deviations.
    by_channel : float
        How certainly neighbouring channels are correlated, in standard deviations.
    is_fitted : bool
        Whether the noise factor is a parameter.
    """

    label: str
    n_vis: int
    reduced_chi2: float
    noise_factor: float
    scatter: float = math.nan
    step: float = math.nan
    has_tails: bool = False
    n_closure: int = 0
    dof: float = math.nan
    thermal: float = math.nan
    coherent: float = 0.0
    by_channel: float = 0.0
    is_fitted: bool = True
    is_bound: bool = False

    def __str__(self) -> str:
        if not self.n_vis:
            return f"{self.label}: no visibilities"
        of = f"{self.n_closure} closures" if self.n_closure else f"{self.n_vis} visibilities"
        words = f"{self.label}: chi2/dof {self.chi2_per_dof:.4g} ({of}), noise factor {self.noise_factor:.4g}"
        if self.n_dof > 0.0 and math.isfinite(self.thermal) and not self.has_tails:
            words += f", residual rms {self.over_thermal}"
        return words

    @property
    def over_thermal(self) -> str:
        """Rms of the residuals in units of the thermal noise, in words."""
        return f"{'at least ' * self.is_bound}{1.0 / self.thermal:.3g} times the thermal noise"

    @property
    def n_data(self) -> int:
        """Real numbers that chi2 is a sum over."""
        return self.n_closure or 2 * self.n_vis

    @property
    def n_dof(self) -> float:
        """Degrees of freedom; without parameters where these are not known."""
        return self.dof if math.isfinite(self.dof) else float(self.n_data)

    @property
    def chi2_per_dof(self) -> float:
        """chi2 over degrees of freedom, with the stated weights; NaN where there are none."""
        return self.reduced_chi2 * self.n_data / self.n_dof if self.n_dof > 0.0 else math.nan

    @property
    def rms(self) -> float:
        """Rms of the residuals in units of the stated noise."""
        return math.sqrt(max(self.chi2_per_dof, 0.0))

    @property
    def excess(self) -> float:
        """By how many standard deviations chi2 differs from what the weights state and a fixed factor allow.

        Wilson & Hilferty (1931): (chi2/k)^(1/3) is normal, of mean 1 - 2/(9 k) and variance 2/(9 k). Of
        Student's t the robust sigma is compared, which scatters by 1.2 / sqrt(2 N).
        """
        if not self.n_dof > 0.0 or not self.n_vis:
            return 0.0
        factor = 1.0 if self.is_fitted else self.noise_factor
        if self.has_tails:
            known = self.scatter > 0.0
            return math.log(self.scatter / factor) * math.sqrt(self.n_data) / 1.2 if known else 0.0
        part = 2.0 / (9.0 * self.n_dof)
        return float((np.cbrt(self.chi2_per_dof / factor**2) - (1.0 - part)) / math.sqrt(part))

    @property
    def is_coherent(self) -> bool:
        """Whether residuals are certainly more than white noise, and by so much that errors are wrong.

        What correlated residuals do to errors is measured apart (`biro.diagnosis.correlated_errors`).
        """
        return self.coherent > CERTAIN

    @property
    def is_far(self) -> bool:
        """Whether noise is certainly not as weights and factor state, by so much that errors are wrong."""
        if not self.n_vis or not self.n_dof > 0.0:
            return False
        if self.is_fitted:
            ratio, limit = self.noise_factor, FAR
        else:
            ratio, limit = self.rms / self.noise_factor, EFFECT
            if self.has_tails:
                return False
        return abs(self.excess) > CERTAIN and not 1.0 / limit <= ratio <= limit

    @property
    def has_outliers(self) -> bool:
        """Whether a few residuals are far off; the ratio scatters by 0.8 / sqrt(N).

        Of closures `rms` is theirs, and `scatter` that of visibilities: nothing is compared.
        """
        if self.has_tails or self.n_closure or not self.n_vis or not self.scatter > 0.0:
            return False
        return self.rms / self.scatter > max(HEAVY, 1.0 + CERTAIN * 0.8 / math.sqrt(self.n_vis))

    @property
    def badness(self) -> float:
        """How far chi2 per degree of freedom is from 1, as a logarithm; -1 where there is none."""
        return abs(math.log(max(self.chi2_per_dof, 1e-300))) if self.n_vis and self.n_dof > 0.0 else -1.0

    def numbers(self, *, thermal: bool) -> str:
        """The figure of a verdict: residuals over thermal noise where that is wanted and tells something.

        chi2/dof stands below the table, and here only where nothing else is known of a misfit.
        """
        if not thermal:
            return ""
        if self.thermal < TELLING:
            return f"the residual rms is {self.over_thermal}"
        return f"{self.n_vis} visibilities" if self.has_tails else f"chi2/dof {self.chi2_per_dof:.3g}"


def noise_verdict(fit: PartitionFit) -> str:
    """What is wrong with the noise where residuals are white, in capitals; "" where nothing is."""
    if fit.has_outliers:
        return OUTLIERS
    if not fit.is_far:
        return ""
    if math.isnan(fit.thermal) or fit.n_closure:  # visibilities of closures have solved gains in them
        return UNKNOWN
    ratio = fit.rms if fit.is_fitted else fit.rms / fit.noise_factor
    return UNITS if not 1.0 / FAR <= ratio <= FAR else NOISE


def noise_reason(fit: PartitionFit) -> str:
    """Why that is the verdict on the noise, and what to do."""
    size = f"the residuals scatter {fit.rms:.3g} times the thermal noise of the weights"
    verdict = noise_verdict(fit)
    if verdict == UNKNOWN:
        why = "There are too few neighbouring times and channels to find out"
        if fit.n_closure:
            why = "Closures cannot show"
        return f"{size}. {why} which of the two is wrong. Look at the residuals"
    if verdict == OUTLIERS:
        return (
            f"most residuals scatter {fit.scatter:.3g} times the thermal noise of the weights, but their "
            f"rms is {fit.rms:.3g} times that noise. Flag the outliers, or write [noise] distribution = "
            '"student-t"'
        )
    if fit.is_fitted:
        return (
            f"{size}. They look like white noise, and the fitted noise factor corrects for it, so nothing "
            "needs to be done"
        )
    ratio = fit.rms / fit.noise_factor
    much = f"{ratio:.3g} times too small" if ratio > 1.0 else f"{1.0 / ratio:.3g} times too large"
    return (
        f"{size}. They look like white noise, so the errors are {much}. Scale the weights, or fit [noise] "
        "factor"
    )


def fit_lines(fits: Sequence[PartitionFit]) -> list[str]:
    """chi2/dof, noise factor and residuals over thermal noise; of more than four partitions their ranges."""
    known = [fit for fit in fits if fit.thermal > 0.0 and not fit.has_tails and fit.n_vis]
    why = [WHY_BOUND] if any(fit.is_bound for fit in known) else []
    if len(fits) <= FEW:
        return [*map(str, fits), *why]
    return [*_of_many(fits), *_thermal_of_many(known), *why]


def residual_over_thermal(fits: Sequence[PartitionFit]) -> tuple[float, bool]:
    """Residual rms of all partitions over their thermal noise, and whether that is the least it can be.

    NaN where the thermal noise of none could be measured.
    """
    known = [fit for fit in fits if fit.thermal > 0.0 and fit.n_vis]
    powers = [fit.n_vis * fit.reduced_chi2 for fit in known]
    thermal = sum(power * fit.thermal**2 for power, fit in zip(powers, known, strict=True))
    ratio = math.sqrt(sum(powers) / thermal) if thermal > 0.0 else math.nan
    return ratio, any(fit.is_bound for fit in known)


def _thermal_of_many(known: Sequence[PartitionFit]) -> list[str]:
    """Residual rms over thermal noise of many partitions."""
    if not known:
        return []
    ranked = sorted(known, key=lambda fit: -fit.thermal)
    low, high = ranked[0], ranked[-1]
    least = "at least " * any(fit.is_bound for fit in known)
    middle = float(np.median([1.0 / fit.thermal for fit in known]))
    return [
        f"residual rms {least}{1.0 / low.thermal:.3g} to {1.0 / high.thermal:.3g} times the thermal noise, "
        f"median {middle:.3g}. Highest in {high.label}"
    ]


def _of_many(fits: Sequence[PartitionFit]) -> list[str]:
    """chi2/dof and noise factors of many partitions."""
    known = sorted((f for f in fits if f.n_vis and f.n_dof > 0.0), key=lambda fit: fit.chi2_per_dof)
    empty = sum(not fit.n_vis for fit in fits)
    lines = [f"{empty} of {len(fits)} partitions have no visibilities"] if empty else []
    if known:
        worst, median = max(known, key=lambda fit: fit.badness), np.median([f.chi2_per_dof for f in known])
        factors = [fit.noise_factor for fit in known]
        lines.append(
            f"chi2/dof of {len(known)} partitions: {known[0].chi2_per_dof:.4g} to "
            f"{known[-1].chi2_per_dof:.4g}, median {median:.4g}. Noise factors {min(factors):.4g} to "
            f"{max(factors):.4g}. Worst partition {worst.label}"
        )
    return lines


def grouped(lines: Sequence[tuple[str, PartitionFit, str]], n_partition: int) -> list[str]:
    """A line for each partition with a verdict, or for each kind of verdict where many have one.

    Parameters
    ----------
    lines : sequence of (verdict, fit, reason), the gravest first
    n_partition : int
    """
    if len(lines) <= FEW:
        return [f"{verdict} ({fit.label}): {reason}" for verdict, fit, reason in lines]
    found = []
    for verdict in dict.fromkeys(verdict for verdict, *_ in lines):
        alike = [(fit, reason) for kind, fit, reason in lines if kind == verdict]
        which = f"{len(alike)} of {n_partition} partitions, the worst is {alike[0][0].label}"
        found.append(f"{verdict} ({which}): {alike[0][1]}")
    return found
