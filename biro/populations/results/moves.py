"""Changes of a catalogue's entries near one place: some are replaced by others, and all there are refined."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.populations.results.mixture import NONE, Entries, Others, Problem, gains, refine

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
NEAR = 2.5
"""Beams about a change within which entries and sources of no entry may be affected."""
MOST_ROUNDS = 5
STABLE = 0.01
"""Part of the sources that may still change between entries and none."""
BIMODAL = 0.5
"""Two places are told apart if fewer sources lie in the middle than this part of those at the rarer one."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """Entries, and which sources belong to them.

    Attributes
    ----------
    problem : Problem
    entries : Entries
    others : Others
        Fixed while entries change.
    label : int64 (n,)
        Entry of each source, -1 for none.
    """

    problem: Problem
    entries: Entries
    others: Others
    label: Ints

    @classmethod
    def refined(cls, problem: Problem, entries: Entries, others: Others) -> Assignment:
        """The best assignment near some first entries."""
        entries, label = refine(problem, entries, others)
        return cls(problem, entries, others, label)

    def with_new_others(self) -> Assignment:
        """What sources of no entry are like is computed again, and everything refined, until both agree."""
        found = self
        for _ in range(MOST_ROUNDS):
            new = self.refined(found.problem, found.entries, Others.of(found.problem, found.label))
            has_changed = np.count_nonzero((new.label == NONE) != (found.label == NONE)) > STABLE * len(
                new.label
            )
            found = new
            if not has_changed:
                break
        return found

    @property
    def score(self) -> float:
        """Log-likelihood above that of no entries, less the price of the entries' parameters."""
        return float(gains(self.problem, self.entries, self.others, self.label).sum())

    @property
    def frequency(self) -> Array:
        """Part of the draws in which each entry has a source, float64 (n_entry,)."""
        count = np.bincount(self.label[self.label != NONE], minlength=len(self.entries))
        return np.asarray(count / self.problem.n_draw)

    def members(self, k: int) -> Ints:
        """Sources of an entry, ascending."""
        return np.flatnonzero(self.label == k)

    def exists(self, k: int) -> NDArray[np.bool_]:
        """Whether an entry has a source, bool (n_draw,)."""
        found = np.zeros(self.problem.n_draw, bool)
        found[self.problem.draw[self.members(k)]] = True
        return found

    def replaced(self, gone: list[int], new: Entries, place: Array) -> Change:
        """The assignment with other entries about a place, and how much that raises the score.

        Parameters
        ----------
        gone : list of int
            Entries that are removed.
        new : Entries
        place : float64 (2,)
            In beams.
        """
        distance = np.hypot(*(self.entries.mean[:, :2] - place).T)
        near = np.flatnonzero((distance < NEAR) | np.isin(np.arange(len(self.entries)), gone))
        around = np.zeros(len(self.label), bool)
        around[np.asarray(self.problem.tree.query_ball_point(place, NEAR), np.int64)] = True
        chosen = np.flatnonzero(np.isin(self.label, near) | (around & (self.label == NONE)))
        part = self.problem.of_sources(chosen)
        numbers = np.full(len(self.entries) + 1, NONE)  # the last one stands for NONE
        numbers[near] = np.arange(len(near))
        before = replace(
            self, problem=part, entries=self.entries.take(near), label=numbers[self.label[chosen]]
        )
        kept = self.entries.take(near[~np.isin(near, gone)])
        after = Assignment.refined(part, kept + new, self.others)
        far = np.setdiff1d(np.arange(len(self.entries)), near)
        numbers[near] = NONE
        numbers[far] = np.arange(len(far))
        label = numbers[self.label]
        label[chosen] = np.where(after.label == NONE, NONE, after.label + len(far))
        changed = replace(self, entries=self.entries.take(far) + after.entries, label=label)
        return Change(changed, after.score - before.score)


class Change(NamedTuple):
    """An assignment, and how much higher its score is than that of the one before."""

    after: Assignment
    gain: float


def has_valley(x: Array, first: Array, second: Array) -> bool:
    """Whether places fall into two groups, with fewer of them in between.

    They are counted in thirds of equal width along the line from one middle to the other: about the first,
    between, and about the second. Two normal distributions of equal size have a valley where their middles
    are four standard deviations apart.

    Parameters
    ----------
    x : float64 (n, 2)
    first, second : float64 (2,)
        Middles of both groups.
    """
    step = second - first
    length2 = float(step @ step)
    if not length2 > 0.0:
        return False
    t = (x - first) @ step / length2
    counts = [int(np.count_nonzero((t > low) & (t <= low + 0.5))) for low in (-0.25, 0.25, 0.75)]
    # Two standard deviations of a count above it: few sources do not show a valley.
    return counts[1] + 2.0 * math.sqrt(counts[1] + 1.0) < BIMODAL * min(counts[0], counts[2])
