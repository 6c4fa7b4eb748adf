"""Entries that draws confuse: one source in place of two, exchanged labels, alternatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from biro.display.formatting import FLUXES, percent, plain, unit_for
from biro.files.json_value import JsonValue
from biro.source_finding.populations.results.mixture import NONE
from biro.source_finding.populations.results.moves import Assignment
from biro.source_finding.populations.results.uncertainty import Estimate, estimate

Array = NDArray[np.float64]
NOTABLE = 0.01
"""Probability of exchanged labels, or of one source in place of two, that is worth a word."""
ANTICORRELATED = -0.5
"""Correlation of fluxes below which their sum is known better than each."""
FEWEST = 10
"""Draws that have both entries from which on a correlation is known."""
RARELY = 0.2
"""Alternatives exist together in less than this part of the draws that would be expected by chance, ..."""
EXPECTED = 10.0
"""... where chance would give so many effective draws at least."""


@dataclass(frozen=True, eq=False)
class Confusion:
    """Entries of which draws have now these, now those.

    Attributes
    ----------
    kind : "blend" or "alternatives"
        Entries closer than a beam, or entries of which draws have one or the other wherever they are.
    names : tuple of str
    separation : float
        Between the two closest of them, FWHM of the beam in that direction.
    number : float64 (n_entry + 1,)
        Probability that 0, 1, 2, ... of them exist in a draw.
    merged : float
        Probability that one source stands in place of two or more: it exists alone, and has the flux that
        they have together in other draws rather than its own in these. 0 for alternatives.
    exchanged : float
        Probability that a source of one belongs to another in place of it, the largest of any two: the place
        and flux of each hold under the labels chosen here. 0 for alternatives.
    correlation : float
        Of the fluxes of two of them in draws that have both, the lowest of any two: towards -1 the data
        measure their sum. NaN where ten draws do not have both.
    flux : tuple of Estimate
        Their flux together, Jy, in the draws in which 0, 1, 2, ... exist. Where one stands for two, it has
        their flux.
    """

    kind: Literal["blend", "alternatives"]
    names: tuple[str, ...]
    separation: float
    number: Array
    merged: float
    exchanged: float
    correlation: float
    flux: tuple[Estimate, ...]

    def __str__(self) -> str:
        names = f"{', '.join(self.names[:-1])} and {self.names[-1]}"
        head = "CONFUSED" if self.kind == "blend" else "ALTERNATIVES"
        shares = [self._share(k) for k in range(len(self.number) - 1, -1, -1) if self.number[k] > 0.0]
        lines = [f"{head}: {names}, {plain(self.separation)} beams apart. Draws have {', '.join(shares)}"]
        if self.merged >= NOTABLE:
            lines.append(f"One source stands in place of two in {percent(self.merged)}")
        if self.exchanged >= NOTABLE:
            lines.append(f"Which is which is uncertain in {percent(self.exchanged)}")
        if self.correlation < ANTICORRELATED:
            lines.append(f"Use the sum of their fluxes, whose correlation is {self.correlation:.2f}")
        return ". ".join(lines)

    def _share(self, k: int) -> str:
        """How often a number of them exists, and with which flux together."""
        text = f"{k or 'none'} of them in {percent(float(self.number[k]))}"
        flux = self.flux[k]
        unit = unit_for([flux.median], FLUXES)
        error = f" +- {unit.text(flux.error, 2)}" if np.isfinite(flux.error) else ""
        return f"{text} ({unit.text(flux.median)}{error} {unit.name})" if k else text

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON."""
        return {
            "kind": self.kind,
            "names": list(self.names),
            "separation_beams": self.separation,
            "number": self.number.tolist(),
            "merged": self.merged,
            "exchanged": self.exchanged,
            "correlation": self.correlation if np.isfinite(self.correlation) else None,
            "flux": [one.to_dict() for one in self.flux],
        }


def find_confusion(
    found: Assignment, flux: Array, names: tuple[str, ...], least: float, n_effective: float
) -> tuple[Confusion, ...]:
    """Groups of entries that are confused, or alternatives.

    Two entries closer than a beam are confused where one of them alone exists in more than a part `least` of
    the draws, where labels are exchanged in more than 1 %, or where their fluxes are anti-correlated. Two
    entries farther apart are alternatives where they exist together in less than a fifth of the draws that
    chance would give.

    Parameters
    ----------
    found : Assignment
    flux : float64 (n,)
        Of all sources, Jy.
    names : tuple of str
        Of the entries.
    least : float
    n_effective : float
    """
    n = len(names)
    if n < 2:
        return ()
    fluxes = _Fluxes.of(found, flux)
    pairs = _Pairs.of(found, fluxes)
    p, close = np.diag(pairs.both), pairs.apart < 1.0
    one = p[:, None] + p[None] - 2.0 * pairs.both
    by_chance = p[:, None] * p[None]
    # A correlation that is not known is NaN, which is not below anything.
    blend = close & ((one > least) | (pairs.exchanged > NOTABLE) | (pairs.correlation < ANTICORRELATED))
    rare = ~close & (pairs.both < RARELY * by_chance) & (by_chance * n_effective > EXPECTED)
    made = []
    kinds: tuple[tuple[Literal["blend", "alternatives"], NDArray[np.bool_]], ...]
    kinds = ("blend", blend), ("alternatives", rare)
    for kind, linked in kinds:
        for group in _groups(linked):
            upper = np.triu_indices(len(group), 1)
            apart, exchanged, correlation = (
                table[np.ix_(group, group)][upper]
                for table in (pairs.apart, pairs.exchanged, pairs.correlation)
            )
            own = _Fluxes(fluxes.flux[:, group])
            confusion = Confusion(
                kind=kind,
                names=tuple(names[k] for k in group),
                separation=float(apart.min()),
                number=np.bincount(own.number, minlength=len(group) + 1) / len(own.number),
                merged=own.merged() if kind == "blend" else 0.0,
                exchanged=float(exchanged.max()),
                correlation=float(np.fmin.reduce(correlation)),
                flux=own.by_number(n_effective),
            )
            made.append(confusion)
    return tuple(made)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Relations of pairs of entries, float64 (n, n); the last two are 0 and NaN of entries that are not near.

    Probability of both, distance in beams, probability of exchanged labels, correlation of fluxes.
    """

    both: Array
    apart: Array
    exchanged: Array
    correlation: Array

    @classmethod
    def of(cls, found: Assignment, fluxes: _Fluxes) -> _Pairs:
        n = len(found.entries)
        exists = np.isfinite(fluxes.flux).astype(np.float64)
        place = found.entries.mean[:, :2]
        apart = np.hypot(*(place[:, None] - place[None]).T)
        exchanged, correlation = np.zeros((n, n)), np.full((n, n), np.nan)
        for k, j in zip(*np.nonzero(np.triu(apart < 1.0, 1)), strict=True):
            exchanged[k, j] = exchanged[j, k] = _exchanged(found, int(k), int(j))
            correlation[k, j] = correlation[j, k] = fluxes.correlation(int(k), int(j))
        return cls(exists.T @ exists / len(exists), apart, exchanged, correlation)


@dataclass(frozen=True, eq=False)
class _Fluxes:
    """Fluxes of entries in each draw, float64 (n_draw, n_entry), Jy; NaN for one that is not."""

    flux: Array

    @classmethod
    def of(cls, found: Assignment, flux: Array) -> _Fluxes:
        table = np.full((found.problem.n_draw, len(found.entries)), np.nan)
        inside = found.label != NONE
        table[found.problem.draw[inside], found.label[inside]] = flux[inside]
        return cls(table)

    def correlation(self, k: int, j: int) -> float:
        """Correlation of the fluxes of two entries in draws that have both; NaN where there are not ten."""
        pair = self.flux[:, [k, j]]
        pair = pair[np.isfinite(pair).all(axis=1)]
        if len(pair) < FEWEST or not (np.ptp(pair, axis=0) > 0.0).all():
            return math.nan
        return float(np.atleast_2d(np.corrcoef(pair.T))[0, 1])

    @property
    def number(self) -> NDArray[np.int64]:
        return np.asarray(np.isfinite(self.flux).sum(axis=1), np.int64)

    @property
    def total(self) -> Array:
        return np.asarray(np.nansum(self.flux, axis=1))

    def by_number(self, n_effective: float) -> tuple[Estimate, ...]:
        """The flux together, in draws with 0, 1, 2, ... of the entries."""
        number, total = self.number, self.total
        cases = [number == k for k in range(self.flux.shape[1] + 1)]
        return tuple(estimate(total[case], n_effective * float(case.mean())) for case in cases)

    def merged(self) -> float:
        """Probability that an entry exists alone and has the flux of several.

        Both fluxes, that of all together and that of the entry itself, are normal with the mean and standard
        deviation that they have in draws with several entries; both cases are as likely before. An entry that
        never exists beside another one stands in their place.
        """
        several, alone = self.number > 1, self.number == 1
        if not several.any():
            return 0.0
        together, stands = self.total[several], 0.0
        for own in self.flux.T:
            flux, beside = own[alone & np.isfinite(own)], own[several & np.isfinite(own)]
            if len(beside) < 2:
                stands += float(len(flux))
                continue
            stands += float(np.sum(expit(_log_normal(flux, together) - _log_normal(flux, beside))))
        return stands / len(self.flux)


def _log_normal(x: Array, like: Array) -> Array:
    """ln of the normal density with the mean and standard deviation of some fluxes, but for a constant."""
    sd = max(float(like.std()), 1e-3 * abs(float(like.mean())), 1e-300)
    return np.asarray(-0.5 * ((x - like.mean()) / sd) ** 2 - np.log(sd))


def _groups(linked: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Indices that are linked to each other, directly or by others; a diagonal does not count."""
    _, label = connected_components(coo_matrix(np.triu(linked, 1)), directed=False)
    groups = [np.flatnonzero(label == one) for one in range(int(label.max()) + 1)]
    return [group for group in groups if len(group) > 1]


def _exchanged(found: Assignment, k: int, j: int) -> float:
    """Mean probability that labels of two entries are the other way round, in draws that have either."""
    one, other = found.members(k), found.members(j)
    log_odds = found.entries.log_odds()

    def gain(of: int, i: NDArray[np.int64]) -> Array:
        x = found.problem.x[i]
        inside = np.hypot(*(x[:, :2] - found.entries.mean[of, :2]).T) <= found.entries.reach(of)
        return np.where(inside, log_odds[of] + found.entries.log_density(of, x), -np.inf)

    change = np.zeros(found.problem.n_draw)
    has = np.zeros(found.problem.n_draw, bool)
    for own, foreign, i in ((k, j, one), (j, k, other)):
        draws = found.problem.draw[i]
        change[draws] += gain(foreign, i) - gain(own, i)
        has[draws] = True
    return float(expit(change[has]).mean())
