"""How much a description of the residuals gains, and how unlikely that is by chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import betaincc, betaln, chdtrc, log_ndtr

from biro.diagnosis.causes.samples import ResidualSamples

MOST_TERMS = 0.25
"""Terms for each number that they are fitted to; of more, nothing is concluded."""
FAMILIES = {
    "gains": ("antenna gain", "gain drift", "bandpass"),
    "source": (
        "missing source",
        "missing extended source",
        "missing polarised source",
        "source of the model",
        "size of the model",
        "shape of a source",
    ),
    "polarisation": (
        "polarisation of the model",
        "polarisation of a source",
        "changing polarisation",
        "leakage",
    ),
    "outliers": ("bad visibility", "bad visibilities"),
    "variability": ("variable flux", "variable source"),
    "spectrum": ("spectrum of the model", "flux by channel", "spectrum of a source"),
    "noise": (
        "noise of an antenna",
        "noise of a baseline",
        "noise of a channel",
        "noise of a correlation",
        "noise of a time",
    ),
}


@dataclass(frozen=True, eq=False)
class Candidate:
    """One description of the residuals, by linear terms or by another noise.

    Attributes
    ----------
    kind : str
    drop : float
        By how much sum |r|^2 decreases; of another noise, what it has beyond the rest.
    gain : float
        Increase of ln L at the best noise, without what the parameters cost.
    n_term : int
        Real numbers that were fitted.
    log_p : float
        ln of the probability of so much in noise, the number of places included.
    after : function of no arguments
        The samples without it.
    texts : function of ResidualSamples
        Verdict and remedy, of the samples that it was found in.
    inflation : float
        Variance of slowly varying parameters in units of that of independent noise, where it is correlated.
    n_time : float
        Neighbouring times that each of the terms covers.
    """

    kind: str
    drop: float
    gain: float
    n_term: float
    log_p: float
    after: Callable[[], ResidualSamples]
    texts: Callable[[], tuple[str, str]]
    inflation: float = 1.0
    n_time: float = math.inf

    @property
    def family(self) -> str:
        """Kinds that are one explanation at different levels of detail."""
        return next((name for name, kinds in FAMILIES.items() if self.kind in kinds), self.kind)

    @property
    def is_linear(self) -> bool:
        """Whether terms were subtracted from the residuals, and chi2 before and after counts."""
        return self.family not in ("outliers", "noise")

    def net(self, n_real: int, inflation: float = 1.0) -> float:
        """Gain of ln L less half ln n for each number (Schwarz 1978), and less the places looked at."""
        return self.gain / inflation - 0.5 * self.n_term * math.log(max(n_real, 2))

    def chance(self, inflation: float) -> float:
        """Chance of such a gain in noise whose sums have so many times the variance of independent noise."""
        return float(chdtrc(self.n_term, 2.0 * max(self.gain, 0.0) / inflation))

    def significance(self, inflation: float = 1.0) -> float:
        """Standard deviations of a normal distribution that are as unlikely."""
        return sigma_of_log_p(self.log_p / inflation)


def linear(
    square: float, drop: float, n_term: float, n_real: int, places: float = 1.0
) -> tuple[float, float]:
    """Gain of ln L and ln p of linear terms that lower a sum of squares.

    Under white noise of any level, the part R^2 = drop / square has the distribution
    Beta(n_term / 2, (n_real - n_term) / 2); ln L at the best noise grows by -n_real/2 ln(1 - R^2).

    Parameters
    ----------
    square, drop : float
        Sum of squares before, and by how much it decreases.
    n_term, n_real : float, int
        Numbers fitted, and numbers that they are fitted to.
    places : float
        How many such terms were tried.
    """
    rest = n_real - n_term
    if drop <= 0.0 or square <= 0.0 or n_term > MOST_TERMS * n_real:
        return 0.0, 0.0
    part = min(drop / square, 1.0 - 1e-12)
    a, b = 0.5 * n_term, 0.5 * rest
    tail = float(betaincc(a, b, part))
    if tail > 1e-290:
        log_p = math.log(tail)
    else:  # the first term of the tail of the incomplete beta function
        log_p = b * math.log1p(-part) + (a - 1.0) * math.log(part) - math.log(b) - float(betaln(a, b))
    return -0.5 * n_real * math.log1p(-part), min(0.0, log_p + math.log(max(places, 1.0)))


def sigma_of_log_p(log_p: float) -> float:
    """z with ln P(x > z) = ln p of a standard normal x; 0 where p is above a half."""
    if log_p >= math.log(0.5):
        return 0.0
    low, high = 0.0, math.sqrt(-2.0 * log_p) + 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(log_ndtr(-middle)) > log_p else (low, middle)
    return low
