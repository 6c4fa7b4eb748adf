"""Statistics of ranks: histograms, coverage and tests of them, with the scatter by chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from biro.errors import InputError

Array = NDArray[np.float64]
BANDS = (0.6827, 0.9545)
LEVELS = (0.6827, 0.9545)
"""Of the intervals whose coverage is in tables."""
MAX_BINS = 20
_PER_BIN = 5
NOTABLE = 3.0
"""Sigma from which shift and spread are put into words."""


@dataclass(frozen=True)
class RankTest:
    """One test of one quantity."""

    __test__ = False  # pytest would collect it for its name

    quantity: str
    kind: str
    p_value: float


@dataclass(frozen=True, eq=False)
class RankStatistics:
    """Ranks of truths among draws, and their statistics.

    Where truth and draws come from the same distribution, every rank from 0 to n_draw is as likely
    (Talts et al. 2018).

    Attributes
    ----------
    names : tuple of str
    values : int64 (n_replicate, n_quantity)
        How many of the draws lie below the truth.
    n_draw : int
    seed : int
        Of the random numbers that spread a rank over its step, see `u`.

    Raises
    ------
    InputError
        Shapes that do not belong together, or ranks out of range.
    """

    names: tuple[str, ...]
    values: NDArray[np.int64]
    n_draw: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names) or not self.values.size:
            raise InputError(
                f"ranks must have shape (n_replicate, {len(self.names)}), got {self.values.shape}"
            )
        if self.values.min() < 0 or self.values.max() > self.n_draw:
            raise InputError(f"ranks must be from 0 to {self.n_draw}")

    @property
    def n(self) -> int:
        """Replicates."""
        return len(self.values)

    @cached_property
    def u(self) -> Array:
        """(rank + a random number from 0 to 1) / (n_draw + 1): exactly uniform where ranks are."""
        spread = np.random.default_rng([self.seed, self.n_draw]).random(self.values.shape)
        return np.asarray((self.values + spread) / (self.n_draw + 1.0))

    @cached_property
    def n_bin(self) -> int:
        """Bins of equally many ranks: 20 at most, with 5 replicates to each at least where possible."""
        most = min(MAX_BINS, max(2, self.n // _PER_BIN))
        fitting = [n for n in range(2, most + 1) if (self.n_draw + 1) % n == 0]
        return max(fitting, default=self.n_draw + 1)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Replicates in each bin, (n_quantity, n_bin)."""
        bins = self.values * self.n_bin // (self.n_draw + 1)
        return np.array([np.bincount(column, minlength=self.n_bin) for column in bins.T])

    def count_band(self, level: float) -> tuple[float, float]:
        """Counts of one bin within this probability, by chance alone (binomial)."""
        low, high = stats.binom.interval(level, self.n, 1.0 / self.n_bin)
        return float(low), float(high)

    @cached_property
    def centrality(self) -> Array:
        """Smallest central interval that holds the truth, as a probability, (n_replicate, n_quantity)."""
        return np.abs(2.0 * self.u - 1.0)

    def coverage(self, level: float) -> Array:
        """Fraction of the truths in the central interval of this probability, (n_quantity,)."""
        return np.asarray((self.centrality <= level).mean(axis=0))

    def coverage_band(self, level: float | Array, band: float) -> tuple[Array, Array]:
        """Between what a coverage lies by chance alone, with probability `band` (binomial, each alone)."""
        low, high = stats.binom.interval(band, self.n, level)
        return np.asarray(low) / self.n, np.asarray(high) / self.n

    def whole_curve(self, band: float) -> float:
        """How far a coverage curve strays anywhere by chance alone, with probability `band` (Kolmogorov)."""
        return float(stats.kstwo.ppf(band, self.n))

    @cached_property
    def shift(self) -> Array:
        """Mean of u in sigma off 1/2, (n_quantity,); its variance is 1/12. Above 0: fits lie too low."""
        return np.asarray((self.u.mean(axis=0) - 0.5) * math.sqrt(12.0 * self.n))

    @cached_property
    def spread(self) -> Array:
        """Mean square of centrality in sigma off 1/3, (n_quantity,); its variance is 4/45.

        Above 0: intervals too narrow; for a given number of replicates the sharpest of the tests for it.
        """
        return np.asarray(((self.centrality**2).mean(axis=0) - 1.0 / 3.0) * math.sqrt(45.0 / 4.0 * self.n))

    def tests(self) -> list[RankTest]:
        """Tests of each quantity: chi-squared of the histogram, and the normal tests of shift and spread."""
        tests = []
        for i, name in enumerate(self.names):
            tests.append(RankTest(name, "histogram", float(stats.chisquare(self.counts[i]).pvalue)))
            for kind, z in (("shift", self.shift[i]), ("spread", self.spread[i])):
                tests.append(RankTest(name, kind, float(2.0 * stats.norm.sf(abs(z)))))
        return tests

    def shape(self, i: int) -> str:
        """What shift and spread of a quantity mean, in words; "" where they may well be chance."""
        shift, spread, words = self.shift[i], self.spread[i], []
        if abs(shift) > NOTABLE:
            words.append("fits too low" if shift > 0 else "fits too high")
        if spread < -NOTABLE:
            words.append("intervals too wide")
        elif spread > NOTABLE and not words:  # truths to one side lie far out, too
            words.append("intervals too narrow")
        return ", ".join(words)


@dataclass(frozen=True)
class ReducedChi2:
    """The reduced chi-squared of draws, averaged over replicates, against its expectation of 1.

    One draw of each replicate has chi2 ~ chi-squared with 2 N degrees of freedom, as the truth has. The mean
    of all draws has the same expectation and less scatter, which is taken from the replicates themselves.

    Attributes
    ----------
    mean, error : float
    expected_scatter : float
        Of one draw, 1 / sqrt(N).
    z, p_value : float
        (mean - 1) / error, and Student's t test of it.
    """

    mean: float
    error: float
    expected_scatter: float
    z: float
    p_value: float

    @classmethod
    def of(cls, values: Array, n_vis: int) -> ReducedChi2:
        """From the mean over the draws of each replicate, (n_replicate,)."""
        n = len(values)
        error = float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
        z = float((values.mean() - 1.0) / error) if error > 0 else math.nan
        p = float(2.0 * stats.t.sf(abs(z), n - 1)) if math.isfinite(z) else 1.0
        return cls(float(values.mean()), error, 1.0 / math.sqrt(n_vis), z, p)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return dict(self.__dict__)
