"""Completeness against flux and reliability against probability of catalogues of simulated fields."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

from biro.display.formatting import FLUXES, Tabular, angle_text, unit_for
from biro.errors import InputError
from biro.files.atomic import write_atomic
from biro.files.json_value import JsonValue
from biro.source_finding.populations.results.catalogue import Catalogue, Entry
from biro.source_finding.populations.results.uncertainty import SIGMA

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
PROBABILITIES = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
"""Edges of the bins of reliability."""
MOST_BINS = 10
PER_BIN = 10
"""True sources for each bin of completeness by default, where there are enough."""


@dataclass(frozen=True, eq=False)
class TrueSources:
    """Sources of a simulated field.

    Attributes
    ----------
    east, north : float64 (n,), rad
        Offsets from the centre of the catalogue.
    flux : float64 (n,), Jy

    Raises
    ------
    InputError
        Arrays of different length.
    """

    east: Array
    north: Array
    flux: Array

    def __post_init__(self) -> None:
        shapes = [np.shape(each) for each in (self.east, self.north, self.flux)]
        if len(set(shapes)) > 1 or len(shapes[0]) != 1:
            raise InputError(f"east, north and flux must have one shape (n,), got {shapes}")

    @property
    def place(self) -> Array:
        """East and north, float64 (n, 2), rad."""
        return np.stack([self.east, self.north], axis=-1)


@dataclass(frozen=True, eq=False)
class Shares:
    """How many of n things in each bin have a property.

    Attributes
    ----------
    edges : float64 (n_bin + 1,)
    found, n : int64 (n_bin,)
    expected : float64 (n_bin,)
        What the share would be if probabilities were right; NaN where it is not known.
    """

    edges: Array
    found: Ints
    n: Ints
    expected: Array

    @property
    def share(self) -> Array:
        """found / n, float64 (n_bin,); NaN for an empty bin."""
        nothing = np.full(len(self.n), np.nan)
        return np.asarray(np.divide(self.found, self.n, out=nothing, where=self.n > 0))

    @property
    def low(self) -> Array:
        """Lower end of the central 68 % interval (Jeffreys).

        Quantile of Beta(found + 1/2, n - found + 1/2); 0 where none is found (Brown, Cai & DasGupta 2001,
        Statistical Science 16, 101).
        """
        return self._end(1.0 - SIGMA)

    @property
    def high(self) -> Array:
        """Upper end of the central 68 % interval; 1 where all are found."""
        return self._end(SIGMA)

    def _end(self, level: float) -> Array:
        end = stats.beta.ppf(level, self.found + 0.5, self.n - self.found + 0.5)
        end = np.where((self.found == 0) & (level < 0.5), 0.0, end)
        end = np.where((self.found == self.n) & (level > 0.5), 1.0, end)
        return np.where(self.n > 0, end, np.nan)

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON; null for an empty bin."""
        names = ("edges", "found", "n", "share", "low", "high", "expected")
        columns = {name: np.asarray(getattr(self, name)).tolist() for name in names}
        return {
            name: [number if math.isfinite(number) else None for number in column]
            for name, column in columns.items()
        }


@dataclass(frozen=True, eq=False, repr=False)
class Completeness(Tabular):
    """How many true sources catalogues have, and how many of their entries are true.

    Attributes
    ----------
    completeness : Shares
        Of the true sources in bins of flux (Jy), those that an entry with P above `least` matches.
    reliability : Shares
        Of the entries in bins of their probability P, those that match a true source; expected is the mean P.
    radius : float, rad
        Within which an entry matches a true source.
    least : float
    n_field : int
    """

    completeness: Shares
    reliability: Shares
    radius: float
    least: float
    n_field: int

    def __repr__(self) -> str:
        return f"<Completeness of {self.n_field} fields; print() shows the table>"

    def cells(self) -> list[list[str]]:
        """Header and rows as text: completeness above, reliability below."""
        unit = unit_for(self.completeness.edges[:1], FLUXES)
        rows = [["quantity", "from", "to", "found", "of", "share", "68 %", "expected"]]
        parts = (
            (f"completeness, S in {unit.name}", self.completeness, unit.size),
            ("reliability, P", self.reliability, 1.0),
        )
        for name, part, size in parts:
            edges = part.edges / size
            for i in range(len(part.n)):
                interval = f"{part.low[i]:.2f} to {part.high[i]:.2f}"
                rows.append(
                    [
                        name,
                        f"{edges[i]:.3g}",
                        f"{edges[i + 1]:.3g}",
                        str(part.found[i]),
                        str(part.n[i]),
                        f"{part.share[i]:.2f}" if part.n[i] else "-",
                        interval if part.n[i] else "-",
                        f"{part.expected[i]:.2f}" if math.isfinite(part.expected[i]) else "-",
                    ]
                )
        return rows

    def notes(self) -> list[str]:
        """Lines below the table: what counts as found."""
        return [
            f"{self.n_field} fields. A source is found where an entry with P > {self.least:g} lies within "
            f"{angle_text(self.radius)}; each entry matches one source at most"
        ]

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON."""
        return {
            "completeness": self.completeness.to_dict(),
            "reliability": self.reliability.to_dict(),
            "radius": self.radius,
            "least": self.least,
            "n_field": self.n_field,
        }

    def write(self, path: Path) -> None:
        """Write both tables as one CSV: fluxes in Jy.

        Raises
        ------
        OSError
            It cannot be written.
        """
        out = io.StringIO()
        out.write("quantity,low,high,found,n,share,share_low_68,share_high_68,expected\n")
        for name, part in (("completeness", self.completeness), ("reliability", self.reliability)):
            columns = (part.edges[:-1], part.edges[1:], part.found, part.n, part.share, part.low, part.high)
            for row in zip(*columns, part.expected, strict=True):
                out.write(",".join([name, *(f"{number:.9g}" for number in row)]) + "\n")
        write_atomic(path, out.getvalue().encode())


def measure_completeness(
    fields: Sequence[tuple[TrueSources, Catalogue]],
    radius: float,
    edges: ArrayLike | None = None,
    *,
    least: float = 0.5,
) -> Completeness:
    """Completeness against flux, and reliability against probability, from simulated fields.

    Entries and true sources are matched one to one, so that as many as possible match, and their distances
    are smallest in sum. For completeness entries with P above `least` are matched alone; for reliability all
    are.

    Parameters
    ----------
    fields : sequence of (TrueSources, Catalogue)
    radius : float, rad
        Largest distance of a match. In a crowded field entries match by chance: choose it well below the
        distance of neighbours.
    edges : array, Jy, optional
        Bins of flux, ascending. By default bins with equal numbers of sources.
    least : float

    Raises
    ------
    InputError
        No field, no true source where edges are not given, a radius of 0 or less, or edges that do not
        ascend.
    """
    if not fields:
        raise InputError("expected at least one simulated field, got none")
    if not 0.0 < radius < math.inf:
        raise InputError(f"radius: an angle above 0, in rad, got {radius!r}")
    flux = np.concatenate([np.asarray(truth.flux, np.float64) for truth, _ in fields])
    bins = _default_edges(flux) if edges is None else np.asarray(edges, np.float64)
    if bins.ndim != 1 or len(bins) < 2 or not (np.diff(bins) > 0).all():
        raise InputError(f"edges: fluxes that ascend, two at least, got {bins.tolist()}")
    is_found, is_true, probability = [], [], []
    for truth, catalogue in fields:
        is_found.append(_matches(truth, catalogue.above(least), radius)[0])
        is_true.append(_matches(truth, catalogue.entries, radius)[1])
        probability += [entry.probability for entry in catalogue]
    p = np.array(probability, np.float64)
    nothing = np.full(len(bins) - 1, np.nan)
    steps = np.array(PROBABILITIES)
    place = _bin_of(p, steps)
    n = np.bincount(place[place >= 0], minlength=len(steps) - 1)
    total = np.bincount(place[place >= 0], p[place >= 0], minlength=len(steps) - 1)
    expected = np.divide(total, n, out=np.full(len(n), np.nan), where=n > 0)
    return Completeness(
        completeness=_shares(flux, np.concatenate(is_found), bins, nothing),
        reliability=_shares(p, np.concatenate(is_true), steps, expected),
        radius=radius,
        least=least,
        n_field=len(fields),
    )


def _default_edges(flux: Array) -> Array:
    """Bins with equal numbers of sources, at most ten, and ten sources to each where there are enough."""
    if not len(flux):
        raise InputError("the fields have no true source; give edges of the bins of flux")
    n_bin = int(np.clip(len(flux) // PER_BIN, 1, MOST_BINS))
    edges = np.unique(np.quantile(flux, np.linspace(0.0, 1.0, n_bin + 1)))
    return edges if len(edges) > 1 else np.array([0.9, 1.1]) * edges[0]


def _bin_of(values: Array, edges: Array) -> Ints:
    """Index of the bin of each value, the last edge included; -1 outside."""
    place = np.searchsorted(edges, values, side="right") - 1
    place[values == edges[-1]] = len(edges) - 2
    place[(place < 0) | (place >= len(edges) - 1)] = -1
    return place.astype(np.int64)


def _shares(values: Array, has: NDArray[np.bool_], edges: Array, expected: Array) -> Shares:
    place = _bin_of(values, edges)
    inside = place >= 0
    n = np.bincount(place[inside], minlength=len(edges) - 1)
    found = np.bincount(place[inside & has], minlength=len(edges) - 1)
    return Shares(edges, found.astype(np.int64), n.astype(np.int64), expected)


def _matches(
    truth: TrueSources, entries: Sequence[Entry], radius: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which true sources, and which entries, match one of the others."""
    found, is_true = np.zeros(len(truth.east), bool), np.zeros(len(entries), bool)
    if not len(found) or not len(is_true):
        return found, is_true
    place = np.array([[entry.east.median, entry.north.median] for entry in entries])
    distance = np.hypot(*np.moveaxis(truth.place[:, None] - place[None], 2, 0))
    # Each match is worth more than all distances together.
    worth = np.where(distance <= radius, 2.0 * min(distance.shape) - distance / radius, 0.0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    good = distance[rows, columns] <= radius
    found[rows[good]], is_true[columns[good]] = True, True
    return found, is_true
