"""Source counts of a population: how many sources are brighter than a flux, and how many per flux."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.display.formatting import FLUXES, Tabular, unit_for
from biro.errors import InputError
from biro.files.atomic import write_atomic
from biro.files.json_value import JsonValue
from biro.source_finding.populations.results.draws import SourceDraws
from biro.source_finding.populations.results.uncertainty import SIGMA, has_interval

Array = NDArray[np.float64]
PER_DECADE = 5
MOST_BINS = 40


@dataclass(frozen=True, eq=False, repr=False)
class SourceCounts(Tabular):
    """Integral and differential counts of the sources of a population, in the field that the draws cover.

    Attributes
    ----------
    edges : float64 (n_bin + 1,), Jy
        Of the bins; empty where no draw has a source with a flux above 0.
    number, number_low, number_high : float64 (n_bin,)
        Sources brighter than the lower edge: mean over the draws, and whole numbers that hold 68 % of the
        draws or more, and the mean. NaN where draws are too few.
    per_flux, per_flux_sd : float64 (n_bin,), 1/Jy
        Sources in the bin over its width: mean and standard deviation over the draws.
    n_not_positive : float
        Mean number of sources in a draw with a flux of 0 or below, which are in no bin.
    n_outside : float
        Mean number of sources in a draw with a flux beyond the edges.
    """

    edges: Array
    number: Array
    number_low: Array
    number_high: Array
    per_flux: Array
    per_flux_sd: Array
    n_not_positive: float
    n_outside: float

    def __repr__(self) -> str:
        return f"<SourceCounts in {len(self.number)} bins of flux; print() shows the table>"

    @property
    def columns(self) -> dict[str, Array]:
        """The table by names of its columns: fluxes in Jy, counts, counts per Jy."""
        return {
            "flux_low": self.edges[:-1],
            "flux_high": self.edges[1:],
            "n_above": self.number,
            "n_above_low_68": self.number_low,
            "n_above_high_68": self.number_high,
            "per_jy": self.per_flux,
            "per_jy_sd": self.per_flux_sd,
        }

    def cells(self) -> list[list[str]]:
        """Header and rows as text."""
        unit = unit_for(self.edges[:1], FLUXES)
        rows = []
        for i in range(len(self.number)):
            low, high = self.number_low[i], self.number_high[i]
            slope, sd = self.per_flux[i] * unit.size, self.per_flux_sd[i] * unit.size
            rows.append(
                [
                    f"{unit.text(self.edges[i])} to {unit.text(self.edges[i + 1])}",
                    "",
                    f"{self.number[i]:.3g}",
                    f"{low:.0f} to {high:.0f}" if math.isfinite(low) else "?",
                    f"{slope:.3g}",
                    f"{sd:.2g}" if math.isfinite(sd) else "?",
                ]
            )
        head = [f"S, {unit.name}", "", "N(> S)", "68 %", f"dN/dS, 1/{unit.name}", "sd"]
        return [head, *rows]

    def notes(self) -> list[str]:
        """Lines below the table: sources that are in no bin."""
        lines = []
        for n, what in (
            (self.n_not_positive, "with a flux of 0 or below"),
            (self.n_outside, "beyond the bins"),
        ):
            if n > 0.0:
                lines.append(f"{n:.3g} sources {what} are not counted (mean of the draws)")
        return lines

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON; null where draws are too few for a band."""
        return {
            name: [number if math.isfinite(number) else None for number in column.tolist()]
            for name, column in self.columns.items()
        } | {"n_not_positive": self.n_not_positive, "n_outside": self.n_outside}

    def write(self, path: Path) -> None:
        """Write the table as CSV, fluxes in Jy.

        Raises
        ------
        OSError
            It cannot be written.
        """
        out = io.StringIO()
        out.writelines(f"# {line}\n" for line in self.notes())
        table = np.stack(list(self.columns.values()), axis=1)
        np.savetxt(out, table, "%.9g", ",", header=",".join(self.columns), comments="")
        write_atomic(path, out.getvalue().encode())


def source_counts(
    draws: SourceDraws, n_effective: float, edges: Sequence[float] | ArrayLike | None = None
) -> SourceCounts:
    """Source counts from all draws.

    Parameters
    ----------
    draws : SourceDraws
    n_effective : float
        Independent draws; fewer than six give no bands.
    edges : array, Jy, optional
        Of the bins, ascending and above 0. By default 5 a decade over all fluxes above 0.

    Raises
    ------
    InputError
        Edges that do not ascend, or begin at 0 or below.
    """
    flux = draws.flux
    positive = flux > 0.0
    bins = _default_edges(flux[positive]) if edges is None else np.asarray(edges, np.float64)
    ascend = bins.ndim == 1 and len(bins) > 1 and bins[0] > 0.0 and bool((np.diff(bins) > 0.0).all())
    if edges is not None and not ascend:
        raise InputError(f"edges: fluxes above 0 that ascend, two at least, got {bins.tolist()}")
    n_bin = max(len(bins) - 1, 0)
    per_draw = 1.0 / draws.n_draw
    n_not_positive = per_draw * int(np.count_nonzero(~positive))
    if not n_bin:
        nothing = np.zeros(0)
        return SourceCounts(bins, nothing, nothing, nothing, nothing, nothing, n_not_positive, 0.0)
    place = np.searchsorted(bins, flux, side="right") - 1
    place[flux == bins[-1]] = n_bin - 1
    inside = positive & (place >= 0) & (place < n_bin)
    counts = np.bincount(draws.draw[inside] * n_bin + place[inside], minlength=draws.n_draw * n_bin)
    in_bin = counts.reshape(draws.n_draw, n_bin)
    brighter = np.bincount(draws.draw[positive & (place >= n_bin)], minlength=draws.n_draw)
    above = in_bin[:, ::-1].cumsum(axis=1)[:, ::-1] + brighter[:, None]
    number, width = above.mean(axis=0), np.diff(bins)
    low = np.minimum(np.quantile(above, 1.0 - SIGMA, axis=0, method="inverted_cdf"), np.floor(number))
    high = np.maximum(np.quantile(above, SIGMA, axis=0, method="inverted_cdf"), np.ceil(number))
    known = 1.0 if has_interval(n_effective) else math.nan
    return SourceCounts(
        edges=bins,
        number=number,
        number_low=known * low,
        number_high=known * high,
        per_flux=in_bin.mean(axis=0) / width,
        per_flux_sd=known * in_bin.std(axis=0) / width,
        n_not_positive=n_not_positive,
        n_outside=per_draw * int(np.count_nonzero(positive & ~inside)),
    )


def _default_edges(flux: Array) -> Array:
    """Bins of equal width in ln flux that hold all."""
    if not len(flux):
        return np.zeros(0)
    low, high = float(flux.min()), float(flux.max())
    n = int(np.clip(math.ceil(PER_DECADE * math.log10(high / low)), 1, MOST_BINS))
    edges = np.geomspace(low, high, n + 1) if high > low else np.array([0.9 * low, 1.1 * low])
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    return edges
