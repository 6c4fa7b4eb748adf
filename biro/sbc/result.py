"""The result of simulation-based calibration: a table, a verdict, and plain data for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import Tabular
from biro.errors import LikelihoodError
from biro.files.json_value import JsonValue
from biro.sbc.replicate import LOG_LIKELIHOOD
from biro.sbc.rows import ReplicateRecord
from biro.sbc.statistics import BANDS, LEVELS, RankStatistics, RankTest, ReducedChi2

DOUBTFUL = 0.01
"""Chance of the smallest p-value among all tests below which SBC fails."""


@dataclass(frozen=True, eq=False)
class SBCResult(Tabular):
    """The result of simulation-based calibration; `str` prints a table, `to_dict` is for JSON.

    Attributes
    ----------
    ranks : RankStatistics
        Of every parameter and of the log-likelihood.
    reduced_chi2 : float64 (n, 2) or None
        Of each replicate, the mean over its draws and that of one draw; None where noise is not Gaussian.
    n_vis : int
        Complex visibilities.
    rows : tuple of ReplicateRecord
        The replicates as they were recorded, failed ones too.
    about : mapping
        Sampler, seed, options, digests.
    """

    ranks: RankStatistics
    reduced_chi2: NDArray[np.float64] | None
    n_vis: int
    rows: tuple[ReplicateRecord, ...]
    about: Mapping[str, JsonValue]

    @classmethod
    def of(cls, rows: Iterable[ReplicateRecord], about: Mapping[str, JsonValue]) -> SBCResult:
        """The result of some replicates.

        Parameters
        ----------
        rows : iterable of ReplicateRecord
            In any order.
        about : mapping
            What was done; its "names", "draws", "seed" and "n_vis" are used.

        Raises
        ------
        LikelihoodError
            None of them could be fitted.
        """
        ordered = tuple(sorted(rows, key=lambda row: row["replicate"]))
        good = [row for row in ordered if "ranks" in row]
        if not good:
            why = ordered[0].get("error", "") if ordered else "there are none"
            raise LikelihoodError(f"no replicate could be fitted: {why}")
        ranks = RankStatistics(
            (*about["names"], LOG_LIKELIHOOD),
            np.array([row["ranks"] for row in good], dtype=np.int64),
            about["draws"],
            about["seed"],
        )
        chi2 = [row["reduced_chi2"] for row in good if "reduced_chi2" in row]
        values = np.array(chi2, dtype=np.float64) if len(chi2) == len(good) else None
        return cls(ranks, values, int(about["n_vis"]), ordered, about)

    @property
    def mean_reduced_chi2(self) -> ReducedChi2 | None:
        """None where noise is not Gaussian."""
        if self.reduced_chi2 is None:
            return None
        return ReducedChi2.of(self.reduced_chi2[:, 0], self.n_vis)

    @property
    def failed(self) -> list[ReplicateRecord]:
        """Replicates that could not be fitted."""
        return [row for row in self.rows if "error" in row]

    def tests(self) -> list[RankTest]:
        """All tests: three of each quantity, and one of the mean reduced chi-squared."""
        tests, chi2 = self.ranks.tests(), self.mean_reduced_chi2
        return tests if chi2 is None else [*tests, RankTest("reduced chi2", "mean", chi2.p_value)]

    @property
    def chance(self) -> float:
        """How likely a p-value as small as the smallest is among so many tests, at most (Bonferroni)."""
        tests = self.tests()
        return min(1.0, len(tests) * min(test.p_value for test in tests))

    @property
    def passed(self) -> bool:
        """Whether nothing was found that chance does not explain."""
        return self.chance >= DOUBTFUL

    def cells(self) -> list[list[str]]:
        """Header and rows of the table."""
        inside = [f"in {100 * level:.0f} %" for level in LEVELS]
        head = ["quantity", "", "histogram p", "shift", "spread", *inside]
        p_values = [test.p_value for test in self.ranks.tests() if test.kind == "histogram"]
        covered = [self.ranks.coverage(level) for level in LEVELS]
        table = [head]
        for i, name in enumerate(self.ranks.names):
            sigmas = [f"{z[i]:+.1f}" for z in (self.ranks.shift, self.ranks.spread)]
            inside = [f"{100 * fraction[i]:.0f} %" for fraction in covered]
            table.append([name, self.ranks.shape(i), f"{p_values[i]:.2g}", *sigmas, *inside])
        return table

    def notes(self) -> list[str]:
        """What stands below the table: what is expected, the reduced chi-squared, the verdict."""
        n, chi2, tests = self.ranks.n, self.mean_reduced_chi2, self.tests()
        bands = (self.ranks.coverage_band(level, 0.9545) for level in LEVELS)
        expected = " and ".join(f"{100 * low:.0f} .. {100 * high:.0f} %" for low, high in bands)
        lines = [
            f"{self.about['sampler']}: {n} replicates, truth ranked among {self.ranks.n_draw} draws of "
            f"each. Shift and spread are in sigma. Expected within the intervals: {expected} (95 % of the "
            "time)"
        ]
        if chi2 is not None:
            lines.append(
                f"mean reduced chi2 of the draws {chi2.mean:.5f} +- {chi2.error:.5f}, expected 1: "
                f"z = {chi2.z:+.1f}, p = {chi2.p_value:.2g}"
            )
        lines += self._doubts()
        smallest = min(tests, key=lambda test: test.p_value)
        lines.append(
            f"smallest of {len(tests)} p-values: {smallest.p_value:.2g} ({smallest.quantity}, "
            f"{smallest.kind}). By chance, one so small occurs in at most {_percent(100 * self.chance)} % "
            "of SBC runs"
        )
        lines.append(
            f"PASSED: the ranks of {n} replicates are as uniform as expected"
            if self.passed
            else f"FAILED: chance does not explain {', '.join(self.suspects())}"
        )
        return lines

    def suspects(self) -> list[str]:
        """Quantities with a test that all tests together do not explain by chance."""
        tests = self.tests()
        return list(dict.fromkeys(t.quantity for t in tests if len(tests) * t.p_value < DOUBTFUL))

    def to_dict(self) -> dict[str, JsonValue]:
        """Plain numbers and text, for JSON."""
        ranks, chi2 = self.ranks, self.mean_reduced_chi2
        tests = [test.__dict__ for test in self.tests()]
        quantities = {
            name: {
                "p_values": {t["kind"]: t["p_value"] for t in tests if t["quantity"] == name},
                "sigma": {"shift": float(ranks.shift[i]), "spread": float(ranks.spread[i])},
                "coverage": {f"{level:.4f}": float(ranks.coverage(level)[i]) for level in LEVELS},
                "histogram": ranks.counts[i].tolist(),
                "shape": ranks.shape(i),
                "ranks": ranks.values[:, i].tolist(),
            }
            for i, name in enumerate(ranks.names)
        }
        return {
            "about": dict(self.about),
            "replicates": ranks.n,
            "failed": len(self.failed),
            "draws": ranks.n_draw,
            "n_vis": self.n_vis,
            "passed": self.passed,
            "chance": self.chance,
            "n_test": len(tests),
            "expected_coverage": {
                f"{level:.4f}": {
                    f"band_{100 * band:.0f}": [float(end) for end in ranks.coverage_band(level, band)]
                    for band in BANDS
                }
                for level in LEVELS
            },
            "suspects": self.suspects(),
            "reduced_chi2": chi2 and chi2.to_dict(),
            "quantities": quantities,
        }

    def _doubts(self) -> list[str]:
        """What makes the ranks themselves doubtful."""
        good = [row for row in self.rows if "ranks" in row]
        few = sum(row["effective"] < self.ranks.n_draw for row in good)
        short = sum(not row["converged"] for row in good)
        lines = []
        if self.failed:
            lines.append(
                f"{len(self.failed)} of {len(self.rows)} replicates could not be fitted, so the result "
                f"does not cover the whole prior: {self.failed[0]['error']}"
            )
        if few:
            lines.append(
                f"{few} replicates have fewer than {self.ranks.n_draw} effective draws, so their ranks "
                "scatter too much. Run the sampler longer, or give fewer draws"
            )
        if short:
            lines.append(f"{short} replicates did not converge")
        return lines


def _percent(value: float) -> str:
    """Two figures, without an exponent for 100 %."""
    return f"{value:.0f}" if value >= 10.0 else f"{max(value, 1e-6):.2g}"
