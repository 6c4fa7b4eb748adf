"""The posterior of a number of sources, from the evidence of each number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import Tabular, first_few, plain
from biro.errors import InputError
from biro.inference.posterior.table import PosteriorTable

Array = NDArray[np.float64]
TAIL = 0.01
"""Probability of the last number from which on larger numbers are missed."""
_LEAST = 1e-6
"""Smaller probabilities are not printed."""
_N_DRAW = 20_000
"""Draws of the evidences: percentiles are known to 0.01 of their errors."""


@dataclass(frozen=True)
class Rung:
    """The evidence of one number of sources.

    Attributes
    ----------
    number : int
    log_evidence, log_evidence_err : float
        ln Z of exchangeable sources, and one sigma; an error of 0 is exact.
    n_param : int
    best_log_likelihood : float
    sampler : str
        "exact" where nothing is free.
    is_trusted : bool
        Whether no diagnostic of the run says that the evidence may be off by more than its error.
    warnings : tuple of str
        Those of the run.
    """

    number: int
    log_evidence: float
    log_evidence_err: float
    n_param: int
    best_log_likelihood: float
    sampler: str
    is_trusted: bool = True
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, number: int, table: PosteriorTable) -> Rung:
        """What the table of a run says."""
        assert table.log_evidence is not None
        return cls(
            number,
            table.log_evidence,
            table.log_evidence_err or 0.0,
            len(table.rows),
            table.best_log_likelihood,
            table.sampler,
            table.evidence_is_trusted,
            tuple(table.warnings()),
        )


@dataclass(frozen=True, repr=False)
class NumberTable(Tabular):
    """P(k) of a number of sources k: prior times evidence, over the numbers that were fitted.

    P(k) = pmf(k) Z(k) / sum_j pmf(j) Z(j). `str` prints the table, `to_dict` is for JSON.

    Parameters
    ----------
    population : str
        Its name.
    rungs : tuple of Rung
        In order of their numbers.
    log_prior : tuple of float
        ln pmf of each number.
    lowest, highest : int
        Numbers that the prior allows.
    """

    population: str
    rungs: tuple[Rung, ...]
    log_prior: tuple[float, ...]
    lowest: int
    highest: int

    def __repr__(self) -> str:
        return f"<NumberTable of {len(self.rungs)} numbers, most probable {self.best}; print shows it>"

    def __getitem__(self, number: int) -> Rung:
        for rung in self.rungs:
            if rung.number == number:
                return rung
        raise InputError(f"no number {number!r}; there are {first_few(str(r.number) for r in self.rungs)}")

    @property
    def numbers(self) -> NDArray[np.int64]:
        """int64 (n,)."""
        return np.array([rung.number for rung in self.rungs])

    @property
    def probability(self) -> Array:
        """P(k) of each number, float64 (n,); their sum is 1."""
        return _normalised(np.array([rung.log_evidence for rung in self.rungs]) + self.log_prior)

    @property
    def interval(self) -> Array:
        """Ends of the 68 % interval of each P(k) from the errors of the evidences, float64 (n, 2).

        The errors of ln Z are normal and independent. The percentiles are those of draws with a fixed seed.
        """
        errors = np.array([rung.log_evidence_err for rung in self.rungs])
        noise = np.random.default_rng(1).standard_normal((_N_DRAW, errors.size))
        middle = np.array([rung.log_evidence for rung in self.rungs]) + self.log_prior
        low, high = np.percentile(_normalised(middle + errors * noise), (15.865525, 84.134475), axis=0)
        return np.column_stack([low, high])

    @property
    def best(self) -> int:
        """The most probable number."""
        return self.rungs[int(np.argmax(self.probability))].number

    def cells(self) -> list[list[str]]:
        """Header and rows as text."""
        head = ["number", "probability", "68 %", "prior", "ln evidence", "+-", "parameters", "max ln L"]
        rows = [[*head, "sampler"]]
        values = zip(self.rungs, self.probability, self.interval, np.exp(self.log_prior), strict=True)
        for rung, p, (low, high), prior in values:
            rows.append(
                [
                    f"{rung.number}",
                    _text(p),
                    _text(high) if high < _LEAST else f"{_text(low)} .. {_text(high)}",
                    f"{prior:.3g}",
                    f"{rung.log_evidence:.2f}{'' if rung.is_trusted else '?'}",
                    f"{rung.log_evidence_err:.2f}",
                    f"{rung.n_param}",
                    f"{rung.best_log_likelihood:.2f}",
                    rung.sampler,
                ]
            )
        return rows

    def warnings(self) -> list[str]:
        """Numbers that are missing, evidences that are not trusted, and warnings of the most probable one."""
        lines = [*self._missing()]
        doubtful = [str(rung.number) for rung in self.rungs if not rung.is_trusted]
        if doubtful:
            lines.append(
                f"NOT TRUSTED: the evidence of {first_few(doubtful)} (marked '?'). Fit with "
                "--sampler dynesty and more live points (--set n_live=2000)"
            )
        return [*lines, *(f"{self.best}: {line}" for line in self[self.best].warnings)]

    def _missing(self) -> Iterator[str]:
        """Lines on numbers beyond the range that may count."""
        first, last = self.rungs[0].number, self.rungs[-1].number
        largest = min(2 * last + 2, self.highest)
        ends = {
            "SMALLER": (first, self.probability[0], self.lowest, f"{self.lowest}:{last}"),
            "LARGER": (last, self.probability[-1], self.highest, f"{first}:{largest}"),
        }
        for which, (number, p, limit, wider) in ends.items():
            if p > TAIL and number != limit:
                yield (
                    f"{which} NUMBERS ARE MISSING: P({number}) = {plain(float(p), 2)} at the end of the "
                    f"range. Go on with --number {wider}"
                )

    def notes(self) -> list[str]:
        """How the table is read."""
        return [
            f"number: sources of population {self.population!r}. probability: prior times evidence, with the "
            "68 % interval from the errors of the evidences."
        ]

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and text, for JSON; numbers as text."""
        rows = zip(self.rungs, self.probability, self.interval, np.exp(self.log_prior), strict=True)
        found: dict[str, object] = {}
        for rung, p, interval, prior in rows:
            more = {"probability": float(p), "interval_68": interval.tolist(), "prior": float(prior)}
            found[str(rung.number)] = more | {k: v for k, v in asdict(rung).items() if k != "number"}
        return {
            "population": self.population,
            "best": self.best,
            "numbers": found,
            "warnings": self.warnings(),
        }


def _text(p: float) -> str:
    return f"< {_LEAST:g}" if p < _LEAST else f"{p:.2g}"


def _normalised(log: Array) -> Array:
    """exp(log) over its sum along the last axis."""
    weight = np.exp(log - log.max(axis=-1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))
