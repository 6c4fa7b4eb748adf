"""What many fits have found: a table of all, and what failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from biro.display.formatting import Tabular
from biro.errors import InputError
from biro.many_fits.one_fit import Fit


@dataclass(frozen=True, repr=False)
class FitResults(Tabular):
    """What `biro.fit_each` gives, in the order of the data; `str` prints it, `to_dict` is for JSON."""

    fits: tuple[Fit, ...]

    def __getitem__(self, name: str) -> Fit:
        for fit in self.fits:
            if fit.name == name:
                return fit
        raise InputError(f"no fit {name!r}; there are {', '.join(fit.name for fit in self.fits)}")

    def __iter__(self) -> Iterator[Fit]:
        return iter(self.fits)

    def __len__(self) -> int:
        return len(self.fits)

    def __repr__(self) -> str:
        return f"<FitResults: {len(self.fits)}, {len(self.failed)} failed; print() shows the table>"

    @property
    def failed(self) -> list[Fit]:
        """Fits without a result."""
        return [fit for fit in self.fits if fit.summary is None]

    def cells(self) -> list[list[str]]:
        """Header and rows as text: the table of each fit, with its name in front."""
        tables = [(fit.name, fit.summary.cells()) for fit in self.fits if fit.summary is not None]
        head = ["fit", *tables[0][1][0]] if tables else ["fit"]
        return [head, *([name, *row] for name, (_, *rows) in tables for row in rows)]

    def warnings(self) -> list[str]:
        """Lines above the table: those of each fit, with its name in front."""
        return [
            f"{fit.name}: {line}"
            for fit in self.fits
            if fit.summary is not None
            for line in fit.summary.warnings()
        ]

    def notes(self) -> list[str]:
        """Lines below the table: the evidence of each fit, and why others failed."""
        lines = [
            f"{fit.name}: {line}"
            for fit in self.fits
            if fit.summary is not None
            for line in fit.summary.evidence_lines()
        ]
        return lines + [f"{fit.name}: FAILED: {fit.failure}" for fit in self.failed]

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and text, for JSON; fits by name."""
        return {
            "fits": {fit.name: fit.to_dict() for fit in self.fits},
            "failed": [fit.name for fit in self.failed],
        }
