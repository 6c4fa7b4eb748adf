"""Entries that draws confuse: one source in place of two, exchanged labels, alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from biro.display.formatting import FLUXES, percent, plain, unit_for
from biro.files.json_value import JsonValue
from biro.inference.population.results.moves import Assignment
from biro.inference.population.results.uncertainty import Estimate, estimate

Array = NDArray[np.float64]
EXCHANGED = 0.01
"""Probability of exchanged labels from which on two entries are confused."""
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
    exchanged : float
        Probability that a source of one belongs to another in place of it, the largest of any two: the place
        and flux of each hold under the labels chosen here. 0 for alternatives.
    flux : tuple of Estimate
        Their flux together, Jy, in the draws in which 0, 1, 2, ... exist. Where one stands for two, it has
        their flux.
    """

    kind: Literal["blend", "alternatives"]
    names: tuple[str, ...]
    separation: float
    number: Array
    exchanged: float
    flux: tuple[Estimate, ...]

    @property
    def one_for_several(self) -> float:
        """Probability that one source stands in place of two or more."""
        return float(self.number[1])

    def __str__(self) -> str:
        names = f"{', '.join(self.names[:-1])} and {self.names[-1]}"
        head = "CONFUSED" if self.kind == "blend" else "ALTERNATIVES"
        shares = [self._share(k) for k in range(len(self.number) - 1, -1, -1) if self.number[k] > 0.0]
        labels = ""
        if self.exchanged >= EXCHANGED:
            labels = f". Which is which is uncertain in {percent(self.exchanged)} of the draws"
        return f"{head}: {names}, {plain(self.separation)} beams apart: {', '.join(shares)}{labels}"

    def _share(self, k: int) -> str:
        """How often a number of them exists, and with which flux together."""
        what = {0: "none", 1: "one in place of two" if self.kind == "blend" else "one"}.get(k, str(k))
        text = f"{what} in {percent(float(self.number[k]))} of the draws"
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
            "one_for_several": self.one_for_several,
            "exchanged": self.exchanged,
            "flux": [one.to_dict() for one in self.flux],
        }


def find_confusion(
    found: Assignment, flux: Array, names: tuple[str, ...], least: float, n_effective: float
) -> tuple[Confusion, ...]:
    """Groups of entries that are confused, or alternatives.

    Two entries closer than a beam are confused where one of them alone exists in more than a part `least` of
    the draws, or where labels are exchanged in more than 1 %. Two entries farther apart are alternatives
    where they exist together in less than a fifth of the draws that chance would give.

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
    exists = np.stack([found.exists(k) for k in range(n)], axis=1)
    both = (exists.T.astype(np.float64) @ exists) / len(exists)
    p = np.diag(both)
    place = found.entries.mean[:, :2]
    apart = np.hypot(*(place[:, None] - place[None]).T)
    one = p[:, None] + p[None] - 2.0 * both
    exchanged = np.zeros((n, n))
    for k, j in zip(*np.nonzero(np.triu(apart < 1.0, 1)), strict=True):
        exchanged[k, j] = exchanged[j, k] = _exchanged(found, int(k), int(j))
    blend = (apart < 1.0) & ((one > least) | (exchanged > EXCHANGED))
    by_chance = p[:, None] * p[None]
    rare = (both < RARELY * by_chance) & (by_chance * n_effective > EXPECTED) & (apart >= 1.0)
    groups = [("blend", group) for group in _groups(blend)]
    groups += [("alternatives", group) for group in _groups(rare)]
    return tuple(
        _confusion(kind, group, found, flux, names, exists, apart, exchanged, n_effective)
        for kind, group in groups
    )


def _groups(linked: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Indices that are linked to each other, directly or by others; a diagonal does not count."""
    _, label = connected_components(coo_matrix(np.triu(linked, 1)), directed=False)
    groups = [np.flatnonzero(label == one) for one in range(int(label.max()) + 1)]
    return [group for group in groups if len(group) > 1]


def _confusion(
    kind: Literal["blend", "alternatives"],
    group: NDArray[np.int64],
    found: Assignment,
    flux: Array,
    names: tuple[str, ...],
    exists: NDArray[np.bool_],
    apart: Array,
    exchanged: Array,
    n_effective: float,
) -> Confusion:
    n_draw = len(exists)
    number = exists[:, group].sum(axis=1)
    inside = np.isin(found.label, group)
    total = np.bincount(found.problem.draw[inside], flux[inside], minlength=n_draw)
    block = np.ix_(group, group)
    return Confusion(
        kind=kind,
        names=tuple(names[k] for k in group),
        separation=float(apart[block][~np.eye(len(group), dtype=bool)].min()),
        number=np.bincount(number, minlength=len(group) + 1) / n_draw,
        exchanged=float(exchanged[block].max()),
        flux=tuple(
            estimate(total[number == k], n_effective * float(np.mean(number == k)))
            for k in range(len(group) + 1)
        ),
    )


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
