"""Entries that sources belong to: each exists or not, at a place and with a flux that scatter.

The draws are described by a multi-Bernoulli mixture. Entry k has a source with the probability p_k, whose
features x follow Student's t (nu = 5) about the entry's mean. Sources of no entry are a Poisson process with
the density lambda(x), smooth over the field and normal in the other features. A draw is assigned so that

    sum over assigned sources of  ln p_k - ln(1 - p_k) + ln t_k(x) - ln lambda(x)

is largest, with at most one source to an entry: a linear assignment problem. Assignments and entries are
computed in turns until the assignments stay, as relabelling does (Stephens 2000, J. R. Stat. Soc. B 62, 795).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, uniform_filter
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.special import gammaln, ndtr

from biro.source_finding.populations.results.features import FLOOR, TYPICAL

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
NU = 5.0
PRIOR = 2.0
"""Sources with `TYPICAL` scatter that the scatter of an entry counts beside its own."""
REACH = 1.0
"""An entry takes sources within this many FWHM of the beam, widened by its own size, about its middle."""
MOST_ROUNDS = 30
STABLE = 1e-4
"""Part of the sources whose assignment may still change when entries count as stable."""
MOST_CELLS = 1024
"""Along a side of the field, for the density of sources of no entry."""
FEW = 10
"""Sources of no entry that say what flux and size these have."""
NONE = -1


@dataclass(frozen=True, eq=False)
class Problem:
    """Sources to be assigned.

    Attributes
    ----------
    x : float64 (n, n_feature)
    draw : int64 (n,)
        Ascending.
    n_draw : int
    """

    x: Array
    draw: Ints
    n_draw: int

    @property
    def n_feature(self) -> int:
        """Features of a source."""
        return int(self.x.shape[1])

    @cached_property
    def tree(self) -> cKDTree:
        """The places of all sources."""
        return cKDTree(self.x[:, :2])

    @cached_property
    def first(self) -> Ints:
        """Index of the first source of each draw, and of the end."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.draw, minlength=self.n_draw))]).astype(
            np.int64
        )

    def of_draws(self, chosen: Ints) -> Problem:
        """The sources of some draws alone, which are counted anew."""
        new = np.full(self.n_draw, NONE)
        new[chosen] = np.arange(len(chosen))
        kept = new[self.draw] >= 0
        return Problem(self.x[kept], new[self.draw[kept]], len(chosen))

    def of_sources(self, chosen: Ints) -> Problem:
        """Some of the sources, ascending, in all draws."""
        return Problem(self.x[chosen], self.draw[chosen], self.n_draw)


@dataclass(frozen=True, eq=False)
class Others:
    """Sources of no entry.

    Attributes
    ----------
    density : float64 (n_along, n_across)
        In a draw, for each square of the beam's FWHM, in square cells.
    corner : float64 (2,)
        Of the first cell, in beams.
    cell : float
        Side of a cell, in beams.
    mean, sd : float64 (n_feature - 2,)
        Of their flux and size.
    """

    density: Array
    corner: Array
    cell: float
    mean: Array
    sd: Array

    @classmethod
    def of(cls, problem: Problem, label: Ints) -> Others:
        """Entries of an assignment.

        The density is the mean over 3 x 3 cells, and of these the largest of 3 x 3, so that it does not fall
        at the edge of the field. Half a source counts besides, so that it is never 0. Fewer than ten sources
        have the fluxes and sizes that all sources have.
        """
        low, wide = problem.x[:, :2].min(axis=0), np.ptp(problem.x[:, :2], axis=0)
        cell = max(1.0, float(wide.max()) / MOST_CELLS)
        corner, shape = low - 1.5 * cell, (wide / cell).astype(np.int64) + 4
        left = problem.x[label == NONE]
        edges = [corner[i] + cell * np.arange(shape[i] + 1) for i in (0, 1)]
        count = np.histogram2d(left[:, 0], left[:, 1], bins=edges)[0]
        smooth = maximum_filter(uniform_filter(count, 3, mode="constant"), 3) / cell**2
        few = len(left) < FEW
        known = (problem.x if few else left)[:, 2:]
        least = 1.0 if few else FLOOR[2 : problem.n_feature]
        density = (np.maximum(smooth, 0.0) + 0.5 / np.prod(wide + 2.0)) / problem.n_draw
        return cls(density, corner, cell, known.mean(axis=0), np.maximum(known.std(axis=0), least))

    def log_density(self, problem: Problem) -> Array:
        """ln lambda(x) of all sources, float64 (n,)."""
        z = (problem.x[:, 2:] - self.mean) / self.sd
        log_normal = -0.5 * np.sum(z * z + np.log(2.0 * np.pi * self.sd**2), axis=1)
        return np.asarray(np.log(self._at(problem.x)) + log_normal)

    def near(self, x: Array, wide: Array) -> Array:
        """Their number in a draw within `wide` (n_feature,) of some sources (n, n_feature).

        Places lie in an ellipse, the other features in a box.
        """
        ends = [(x[:, 2:] + side * wide[2:] - self.mean) / self.sd for side in (-1.0, 1.0)]
        part = np.prod(ndtr(ends[1]) - ndtr(ends[0]), axis=1)
        return np.asarray(self._at(x) * np.pi * wide[0] * wide[1] * part)

    def _at(self, x: Array) -> Array:
        i, j = ((x[:, :2] - self.corner) / self.cell).astype(np.int64).T
        return np.asarray(self.density[i, j])


@dataclass(frozen=True, eq=False)
class Entries:
    """Probability, mean and covariance of each entry.

    Attributes
    ----------
    p : float64 (n_entry,)
    mean : float64 (n_entry, n_feature)
    cov : float64 (n_entry, n_feature, n_feature)
    """

    p: Array
    mean: Array
    cov: Array

    @classmethod
    def at(cls, means: Array, p: float = 0.5) -> Entries:
        """Entries at some places (n_entry, n_feature), of which nothing else is known yet."""
        n, d = means.shape
        return cls(np.full(n, p), means, np.broadcast_to(np.diag(TYPICAL[:d] ** 2), (n, d, d)).copy())

    def __len__(self) -> int:
        return len(self.p)

    def take(self, chosen: NDArray[np.integer] | NDArray[np.bool_]) -> Entries:
        """Some of the entries."""
        return Entries(self.p[chosen], self.mean[chosen], self.cov[chosen])

    def __add__(self, other: Entries) -> Entries:
        pairs = ((self.p, other.p), (self.mean, other.mean), (self.cov, other.cov))
        return Entries(*(np.concatenate(pair) for pair in pairs))

    def log_density(self, k: int, x: Array) -> Array:
        """ln t_k(x), float64 (n,)."""
        d = x.shape[1]
        log_det = float(np.linalg.slogdet(self.cov[k])[1])
        norm = gammaln(0.5 * (NU + d)) - gammaln(0.5 * NU) - 0.5 * (d * math.log(NU * math.pi) + log_det)
        return np.asarray(norm - 0.5 * (NU + d) * np.log1p(self.distance2(k, x) / NU))

    def distance2(self, k: int, x: Array) -> Array:
        """Squared distance from an entry in its standard deviations, float64 (n,)."""
        step = x - self.mean[k]
        return np.asarray(np.sum(step @ np.linalg.inv(self.cov[k]) * step, axis=1))

    def reach(self, k: int) -> float:
        """How far from its middle an entry takes sources, FWHM of the beam."""
        return REACH * math.exp(float(self.mean[k, 3:].sum()))

    def log_odds(self) -> Array:
        """ln p - ln(1 - p), float64 (n_entry,)."""
        return np.asarray(np.log(self.p) - np.log1p(-self.p))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sources and entries that may belong together, and what each pair adds to the assignment's score."""

    source: Ints
    entry: Ints
    gain: Array


def find_pairs(problem: Problem, entries: Entries, others: Others) -> Pairs:
    """Pairs that are better than a source in no entry, ordered by source."""
    source, entry, gain = [], [], []
    log_other, log_odds = others.log_density(problem), entries.log_odds()
    for k in range(len(entries)):
        near = problem.tree.query_ball_point(entries.mean[k, :2], entries.reach(k))
        i = np.asarray(near, np.int64)
        one = log_odds[k] + entries.log_density(k, problem.x[i]) - log_other[i]
        good = one > 0.0
        source.append(i[good])
        entry.append(np.full(int(good.sum()), k))
        gain.append(one[good])
    if not source:
        return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    sources, numbers = np.concatenate(source), np.concatenate(entry)
    order = np.lexsort((numbers, sources))
    return Pairs(sources[order], numbers[order], np.concatenate(gain)[order])


def assign(problem: Problem, pairs: Pairs, n_entry: int) -> Ints:
    """The best assignment of each draw: entry of each source, or `NONE`, int64 (n,).

    Each source takes its best entry; where two sources of a draw would take the same, the whole draw is
    solved as a linear assignment problem. Both give the optimum.
    """
    label = np.full(len(problem.x), NONE, np.int64)
    if not len(pairs.source):
        return label
    order = np.lexsort((-pairs.gain, pairs.source))
    best = order[np.unique(pairs.source[order], return_index=True)[1]]
    label[pairs.source[best]] = pairs.entry[best]
    slots = problem.draw[pairs.source[best]] * n_entry + pairs.entry[best]
    taken, count = np.unique(slots, return_counts=True)
    starts = np.searchsorted(pairs.source, problem.first)
    for one in np.unique(taken[count > 1] // n_entry):
        i0, i1 = problem.first[one], problem.first[one + 1]
        part = slice(starts[one], starts[one + 1])
        gain = np.zeros((i1 - i0, n_entry))
        gain[pairs.source[part] - i0, pairs.entry[part]] = pairs.gain[part]
        rows, columns = linear_sum_assignment(gain, maximize=True)
        label[i0:i1] = NONE
        useful = gain[rows, columns] > 0.0
        label[i0 + rows[useful]] = columns[useful]
    return label


def update(problem: Problem, label: Ints, entries: Entries) -> Entries:
    """Entries from the sources that belong to them; means and covariances are weighted as Student's t is."""
    d, p = problem.n_feature, np.zeros(len(entries))
    mean, cov = entries.mean.copy(), entries.cov.copy()
    order = np.argsort(label, kind="stable")
    ends = np.searchsorted(label[order], np.arange(len(entries) + 1))
    for k in range(len(entries)):
        x = problem.x[order[ends[k] : ends[k + 1]]]
        p[k] = (len(x) + 0.5) / (problem.n_draw + 1.0)
        if not len(x):
            continue
        weight = (NU + d) / (NU + entries.distance2(k, x))
        mean[k] = weight @ x / weight.sum()
        step = x - mean[k]
        scatter = (weight[:, None] * step).T @ step + PRIOR * np.diag(TYPICAL[:d] ** 2)
        cov[k] = scatter / (len(x) + PRIOR) + np.diag(FLOOR[:d] ** 2)
    return Entries(p, mean, cov)


def refine(problem: Problem, entries: Entries, others: Others) -> tuple[Entries, Ints]:
    """Assignments and entries in turns until the assignments stay, or for `MOST_ROUNDS` rounds."""
    label = assign(problem, find_pairs(problem, entries, others), len(entries))
    for _ in range(MOST_ROUNDS):
        entries = update(problem, label, entries)
        new = assign(problem, find_pairs(problem, entries, others), len(entries))
        n_changed = np.count_nonzero(new != label)
        label = new
        if n_changed <= STABLE * len(label):
            break
    return entries, label


def gains(problem: Problem, entries: Entries, others: Others, label: Ints) -> Array:
    """How much each entry raises the log-likelihood, less the price of its parameters, float64 (n_entry,).

    Without the entry its sources would belong to none, and as many more would be expected there: a Poisson
    process has exp(-n) for the n that it expects. The price is half the number of parameters times
    ln n_draw, that of the Bayesian information criterion: one probability, a mean and a scatter for each
    feature.
    """
    log_other, log_odds = others.log_density(problem), entries.log_odds()
    found = problem.n_draw * np.log1p(-entries.p) - (0.5 + problem.n_feature) * math.log(problem.n_draw)
    for k in range(len(entries)):
        i = np.flatnonzero(label == k)
        found[k] += len(i) + np.sum(log_odds[k] + entries.log_density(k, problem.x[i]) - log_other[i])
    return np.asarray(found)
