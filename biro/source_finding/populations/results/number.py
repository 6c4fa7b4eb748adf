"""The number of sources: the probability of each, with its Monte Carlo error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import Tabular, digits_after_point, percent, plain
from biro.files.json_value import JsonValue
from biro.source_finding.populations.results.uncertainty import mean_error, probability_error

Array = NDArray[np.float64]
LEVELS = (0.6827, 0.9545)
MOST_ROWS = 30
"""Numbers that a printed table has; those of less than 0.1 % are left out first."""
_SMALL = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class NumberProbability(Tabular):
    """Probability of each number of sources.

    Attributes
    ----------
    probability, error : float64 (n_max + 1,)
        Of 0, 1, 2, ... sources, and one sigma by the finite number of draws (`probability_error`).
    mean, mean_error : float
    median : int
    interval_68, interval_95 : (int, int)
        Central: of the draws at most 15.9 % (2.3 %) have fewer, and as many have more, so that an interval
        of whole numbers holds its probability or more.
    n_effective : float
        Independent draws.
    """

    probability: Array
    error: Array
    mean: float
    mean_error: float
    median: int
    interval_68: tuple[int, int]
    interval_95: tuple[int, int]
    n_effective: float

    @property
    def most_probable(self) -> int:
        """The number with the highest probability."""
        return int(np.argmax(self.probability))

    def __repr__(self) -> str:
        return f"<NumberProbability: {self.median} sources (median); print() shows the table>"

    def cells(self) -> list[list[str]]:
        """Header and rows as text; unlikely numbers at either end are left out."""
        shown = np.flatnonzero(self.probability >= _SMALL)
        rows = [
            [str(n), "", self._text(n), f"{self.error[n]:.{digits_after_point(float(self.error[n]))}f}"]
            for n in range(int(shown[0]), int(shown[-1]) + 1)
        ]
        if len(rows) > MOST_ROWS:
            best = sorted(range(len(rows)), key=lambda i: -self.probability[int(rows[i][0])])[:MOST_ROWS]
            rows = [rows[i] for i in sorted(best)]
        return [["sources", "", "probability", "+-"], *rows]

    def _text(self, n: int) -> str:
        return f"{self.probability[n]:.{digits_after_point(float(self.error[n]))}f}"

    def notes(self) -> list[str]:
        """Lines below the table: mean, median, intervals, what is not shown, and what errors are."""
        shown = {int(row[0]) for row in self.cells()[1:]}
        rest = float(sum(p for n, p in enumerate(self.probability) if n not in shown))
        digits = digits_after_point(self.mean_error)
        lines = [
            f"number of sources: median {self.median}, 68 % {_range(self.interval_68)}, 95 % "
            f"{_range(self.interval_95)}, mean {self.mean:.{digits}f} +- {self.mean_error:.{digits}f}"
        ]
        if rest > 0.0:
            lines.append(f"numbers that are not shown have a probability of {percent(rest)} together")
        return [*lines, f"+-: Monte Carlo error of {plain(self.n_effective, 3)} effective draws"]

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON."""
        return {
            "probability": self.probability.tolist(),
            "error": self.error.tolist(),
            "mean": self.mean,
            "mean_error": self.mean_error,
            "median": self.median,
            "interval_68": list(self.interval_68),
            "interval_95": list(self.interval_95),
            "n_effective": self.n_effective,
        }


def number_probability(number: NDArray[np.int64], n_effective: float) -> NumberProbability:
    """The probability of each number of sources.

    Parameters
    ----------
    number : int64 (n_draw,)
        Sources in each draw.
    n_effective : float
        Independent draws.
    """
    probability = np.bincount(number) / len(number)
    ends = [
        np.quantile(number, (0.5 * (1.0 - level), 0.5 * (1.0 + level)), method="inverted_cdf")
        for level in LEVELS
    ]
    return NumberProbability(
        probability=probability,
        error=probability_error(probability, n_effective),
        mean=float(np.mean(number)),
        mean_error=mean_error(number, n_effective),
        median=int(np.quantile(number, 0.5, method="inverted_cdf")),
        interval_68=(int(ends[0][0]), int(ends[0][1])),
        interval_95=(int(ends[1][0]), int(ends[1][1])),
        n_effective=n_effective,
    )


def _range(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
