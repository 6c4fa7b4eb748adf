"""The result of a fit with a population: number, flux and shared parameters, and the sources of all draws."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from biro.display.formatting import html_text
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.verdict import verdict_of
from biro.source_finding.populations.results.result import FILE, PopulationResult

_POSTERIOR = "posterior.nc"


@dataclass(frozen=True, eq=False, repr=False)
class PopulationPosterior:
    """What is known of a model with a population; `print` shows the verdict, the table and the catalogue.

    Attributes
    ----------
    posterior : Posterior
        Of the parameters that do not belong to a source of the population, of the number of its sources
        ("field.number") and of their flux in all ("field.flux"); with the evidence of the model.
    sources : PopulationResult
        Probabilities of each number, catalogue, probability map, source counts.
    """

    posterior: Posterior
    sources: PopulationResult

    def __repr__(self) -> str:
        return f"<PopulationPosterior {self.sources.draws.name}: print() shows the table and the catalogue>"

    def __str__(self) -> str:
        summary = self.posterior.summary()
        verdict = verdict_of(summary)
        return f"{verdict.fit} {verdict.trust}\n{summary}\n\n{self.sources}"

    def _repr_html_(self) -> str:
        verdict = verdict_of(self.posterior.summary())
        head = html_text(f"{verdict.fit} {verdict.trust}")
        return head + self.posterior._repr_html_() + self.sources._repr_html_()

    def to_dict(self) -> dict[str, object]:
        """Figures for JSON: those of the table, and of the sources (angles in rad, fluxes in Jy)."""
        return {"posterior": self.posterior.summary().to_dict(), "sources": self.sources.to_dict()}

    def save(self, folder: str | os.PathLike[str], *, pictures: bool = False) -> list[Path]:
        """Write everything into a folder: posterior.nc, and what `PopulationResult.write` writes.

        Raises
        ------
        OSError
            A file cannot be written.
        """
        # Draws first: nothing that is made of them may cost them.
        self.posterior.save(Path(folder) / _POSTERIOR)
        self.sources.save(Path(folder) / FILE)
        written = self.sources.write(folder, overwrite=True, pictures=pictures)
        return [*written, Path(folder) / _POSTERIOR]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        InputError, DataError
            No such folder, or none of a population.
        """
        return cls(Posterior.load(Path(folder) / _POSTERIOR), PopulationResult.load(Path(folder) / FILE))
