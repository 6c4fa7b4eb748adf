"""The comparison of models: evidences and Bayes factors of posteriors on the same data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from biro.errors import InputError
from biro.formatting import Tabular
from biro.posterior.posterior import Posterior

WORDS = (
    (1.0, "not worth more than a mention"),
    (3.0, "positive"),
    (5.0, "strong"),
    (math.inf, "very strong"),
)
"""Kass & Raftery (1995, section 3.2): the best model against this one, by ln B."""


@dataclass(frozen=True)
class Standing:
    """One model: its evidence, and ln B = ln Z - ln Z of the best (0 for the best itself)."""

    name: str
    log_evidence: float
    log_evidence_err: float
    log_bayes_factor: float
    log_bayes_factor_err: float
    n_param: int
    best_log_likelihood: float
    verdict: str


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Models in order of evidence, the best first; `str` prints the table, `to_dict` is for JSON."""

    standings: tuple[Standing, ...]

    @property
    def best(self) -> str:
        """Name of the model with the highest evidence."""
        return self.standings[0].name

    def __getitem__(self, name: str) -> Standing:
        for standing in self.standings:
            if standing.name == name:
                return standing
        raise InputError(f"no model {name!r}; there are {', '.join(s.name for s in self.standings)}")

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.standings)} models, best {self.best!r}; print shows it>"

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and text; models by name."""
        rows = [asdict(standing) for standing in self.standings]
        return {"best": self.best, "models": {row.pop("name"): row for row in rows}}

    def cells(self) -> list[list[str]]:
        """Header and rows as text."""
        rows = [["model", "against it", "ln Z", "+-", "ln B", "+-", "parameters", "best ln L"]]
        for s in self.standings:
            numbers = [s.log_evidence, s.log_evidence_err, s.log_bayes_factor, s.log_bayes_factor_err]
            texts = [f"{number:.2f}" for number in numbers]
            rows.append([s.name, s.verdict, *texts, str(s.n_param), f"{s.best_log_likelihood:.2f}"])
        return rows

    def notes(self) -> list[str]:
        """No lines below the table."""
        return []


def compare(posteriors: Mapping[str, Posterior] | Sequence[Posterior]) -> Comparison:
    """Evidences and Bayes factors of models fitted to the same data.

    ln B = ln Z - ln Z_best, its error the two errors added in quadrature; equal prior odds are the
    reader's to change.

    Parameters
    ----------
    posteriors : mapping name -> Posterior, or sequence of Posterior
        A sequence gets the names "1", "2", ...

    Raises
    ------
    InputError
        Fewer than two, one without evidence, or not all on the same data.
    """
    named = dict(posteriors) if isinstance(posteriors, Mapping) else _numbered(posteriors)
    if len(named) < 2:
        raise InputError(f"a comparison needs at least 2 posteriors, got {len(named)}")
    for name, posterior in named.items():
        if posterior.log_evidence is None:
            raise InputError(
                f"{name!r} has no evidence: {posterior.provenance.sampler} gives none; sample it with dynesty"
            )
    digests = {name: posterior.provenance.data_digest for name, posterior in named.items()}
    first = next(iter(digests))
    for name, digest in digests.items():
        if digest != digests[first]:
            raise InputError(
                f"{name!r} was fitted to other data than {first!r}; evidences compare on the same data only "
                "(same selection, flags, weights and averaging)"
            )
    order = sorted(named, key=lambda name: -_evidence(named[name])[0])
    return Comparison(tuple(_standing(name, named[name], named[order[0]]) for name in order))


def _numbered(posteriors: Sequence[Posterior]) -> dict[str, Posterior]:
    return {str(i): posterior for i, posterior in enumerate(posteriors, start=1)}


def _evidence(posterior: Posterior) -> tuple[float, float]:
    assert posterior.log_evidence is not None
    return posterior.log_evidence, posterior.log_evidence_err or 0.0


def _standing(name: str, posterior: Posterior, best: Posterior) -> Standing:
    (value, error), (best_value, best_error) = _evidence(posterior), _evidence(best)
    is_best = posterior is best
    factor = value - best_value
    return Standing(
        name=name,
        log_evidence=value,
        log_evidence_err=error,
        log_bayes_factor=factor,
        log_bayes_factor_err=0.0 if is_best else math.hypot(error, best_error),
        n_param=posterior.n_param,
        best_log_likelihood=posterior.best_log_likelihood,
        verdict="best" if is_best else next(word for limit, word in WORDS if -factor <= limit),
    )
