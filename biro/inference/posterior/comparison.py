"""The comparison of models: evidences and Bayes factors of posteriors on the same data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from biro.display.arguments import POSTERIOR
from biro.display.formatting import Tabular, given_text
from biro.errors import InputError
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.table import PosteriorTable

TIED = "cannot be told apart"
WORDS = (
    (1.0, TIED),
    (3.0, "positive"),
    (5.0, "strong"),
    (math.inf, "very strong"),
)
"""Evidence against a model by the ln B of the best (Kass & Raftery 1995, section 3.2; below 1 it is "not
worth more than a bare mention")."""
LEAST = WORDS[0][0]
"""A Bayes factor counts from this ln B on."""
N_SIGMA = 2.0
"""Errors of ln B by which it must be beyond `LEAST`, or the comparison is not decided."""
BEST, UNDECIDED = "best model", "not decided"


@dataclass(frozen=True)
class Standing:
    """One model: its evidence, and ln B = ln Z - ln Z of the best (0 for the best itself).

    Attributes
    ----------
    name : str
    log_evidence, log_evidence_err : float
    log_bayes_factor, log_bayes_factor_err : float
    n_param : int
    best_log_likelihood : float
    verdict : str
        "best model"; or the evidence against the model, "positive" to "very strong"; "cannot be told apart"
        from the best; or "not decided".
    is_trusted : bool
        Whether the run itself trusts its evidence.
    warnings : tuple of str
        Those of the run, which stand above its own table.
    """

    name: str
    log_evidence: float
    log_evidence_err: float
    log_bayes_factor: float
    log_bayes_factor_err: float
    n_param: int
    best_log_likelihood: float
    verdict: str
    is_trusted: bool = True
    warnings: tuple[str, ...] = ()


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
        factor = "ln Bayes factor"
        rows = [["model", "evidence against", "ln evidence", "+-", factor, "+-", "parameters", "max ln L"]]
        for s in self.standings:
            numbers = [s.log_evidence, s.log_evidence_err, s.log_bayes_factor, s.log_bayes_factor_err]
            texts = [f"{number:.2f}" for number in numbers]
            if not s.is_trusted:
                texts[0] += "?"
            rows.append([s.name, s.verdict, *texts, str(s.n_param), f"{s.best_log_likelihood:.2f}"])
        return rows

    def notes(self) -> list[str]:
        """How the table is read."""
        lines = ["ln Bayes factor: ln evidence minus that of the best model, at equal prior odds."]
        if any(s.verdict == TIED for s in self.standings):
            lines.append(
                f"{TIED}: ln Bayes factor between -{LEAST:g} and 0. The data do not prefer the best model to "
                "these"
            )
        if any(s.verdict == UNDECIDED for s in self.standings):
            lines.append(
                f"{UNDECIDED}: ln Bayes factor within {N_SIGMA:g} errors of -{LEAST:g}, or an evidence "
                'marked "?" (not to be trusted). Fit these models with --sampler dynesty and more live '
                "points."
            )
        return lines

    def warnings(self) -> list[str]:
        """Warnings of the runs, each once with the models that carry it."""
        of: dict[str, list[str]] = {}
        for s in self.standings:
            for line in s.warnings:
                of.setdefault(line, []).append(s.name)
        return [f"{', '.join(names)}: {line}" for line, names in of.items()]


def compare(posteriors: Mapping[str, Posterior] | Sequence[Posterior]) -> Comparison:
    """Evidences and Bayes factors of models fitted to the same data.

    ln B = ln Z - ln Z_best, its error the two errors added in quadrature. The verdict on a model is "not
    decided" where ln B is within two of these errors of 1, below which it is hardly worth a mention, or where
    a run does not trust its own evidence. The warnings of each run stand above the table.

    Parameters
    ----------
    posteriors : mapping name -> Posterior, or sequence of Posterior
        A sequence gets the names "1", "2", ...

    Raises
    ------
    InputError
        Fewer than two, one without evidence, or not all on the same data.
    """
    if not isinstance(posteriors, Mapping | list | tuple):
        raise InputError(
            f"compare takes several Posteriors, got {given_text(posteriors)}. Give them by name: "
            'biro.compare({"one": first, "two": second})'
        )
    named = dict(posteriors) if isinstance(posteriors, Mapping) else _numbered(posteriors)
    for posterior in named.values():
        POSTERIOR.refuse(posterior, "compare")
    if len(named) < 2:
        raise InputError(f"a comparison needs at least 2 runs, got {len(named)}")
    for name, posterior in named.items():
        if posterior.log_evidence is None:
            raise InputError(
                f"{name!r} has no evidence, because {posterior.provenance.sampler} gives none. Fit it with "
                "--sampler dynesty or --sampler none"
            )
    digests = {name: posterior.provenance.data_digest for name, posterior in named.items()}
    first = next(iter(digests))
    for name, digest in digests.items():
        if digest != digests[first]:
            raise InputError(
                f"{name!r} was fitted to other data than {first!r}; evidences can only be compared for the "
                "same data (selection, flags, weights and averaging)"
            )
    order = sorted(named, key=lambda name: -_evidence(named[name])[0])
    tables = {name: posterior.summary() for name, posterior in named.items()}
    return Comparison(tuple(_standing(name, named, tables, order[0]) for name in order))


def _numbered(posteriors: Sequence[Posterior]) -> dict[str, Posterior]:
    return {str(i): posterior for i, posterior in enumerate(posteriors, start=1)}


def _evidence(posterior: Posterior) -> tuple[float, float]:
    assert posterior.log_evidence is not None
    return posterior.log_evidence, posterior.log_evidence_err or 0.0


def _standing(
    name: str, named: Mapping[str, Posterior], tables: Mapping[str, PosteriorTable], best: str
) -> Standing:
    (value, error), (best_value, best_error) = _evidence(named[name]), _evidence(named[best])
    factor = value - best_value
    factor_error = 0.0 if name == best else math.hypot(error, best_error)
    trusted = tables[name].evidence_is_trusted and tables[best].evidence_is_trusted
    return Standing(
        name=name,
        log_evidence=value,
        log_evidence_err=error,
        log_bayes_factor=factor,
        log_bayes_factor_err=factor_error,
        n_param=named[name].n_param,
        best_log_likelihood=named[name].best_log_likelihood,
        verdict=BEST if name == best else _verdict(-factor, factor_error, trusted),
        is_trusted=tables[name].evidence_is_trusted,
        warnings=tuple(tables[name].warnings()),
    )


def _verdict(against: float, error: float, trusted: bool) -> str:
    """The evidence against a model in words, from the ln B of the best model and its error."""
    is_clear = abs(against - LEAST) > N_SIGMA * error
    if not trusted or not is_clear:
        return UNDECIDED
    return next(word for limit, word in WORDS if against <= limit)
