"""Find the entries of a catalogue: where the sources of many draws agree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import chi2

from biro.populations.results.features import TYPICAL
from biro.populations.results.mixture import NONE, Entries, Others, Problem, gains, update
from biro.populations.results.moves import Assignment, has_valley

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
N_START = 4
"""Draws whose sources are tried as first entries."""
N_TRIED = 200
"""Draws on which they are tried."""
MOST_SEEDS = 2000
"""Sources among which the place of a new entry is looked for."""
MOST_PASSES = 20
OUTLYING = 1e-3
"""Sources farther from the mean of their entry than all but this part may belong to another one."""
TOGETHER = 0.1
"""Entries that are one source exist together in less than this part of the draws that have the rarer one."""


def cluster(problem: Problem, least: float, first_draw: int | None = None) -> Assignment:
    """Entries that have a source in more than a part `least` of the draws.

    The sources of some typical draws are tried as first entries, and the best of them are taken. New entries
    begin where sources that no entry explains lie close together, and where the places of an entry fall into
    two groups; they stay if they raise the log-likelihood by more than the price of their parameters. Entries
    that do not, and those that are two for one source, are removed.

    Parameters
    ----------
    problem : Problem
    least : float
    first_draw : int, optional
        A draw that is tried first, such as that of the highest posterior density.
    """
    if not len(problem.x):
        d = problem.n_feature - 2
        nothing = Others(np.ones((1, 1)), np.zeros(2), 1.0, np.zeros(d), np.ones(d))
        return Assignment(problem, Entries.at(problem.x), nothing, np.zeros(0, np.int64))
    found = _start(problem, first_draw).with_new_others()
    found = _split(_grow(found, least), least)
    return _prune(_merge(found.with_new_others()), least)


def _start(problem: Problem, first_draw: int | None) -> Assignment:
    """From the best of the first entries that typical draws give, judged on a part of the draws."""
    # As if no source belonged to an entry: an entry must be denser than its surroundings.
    others = Others.of(problem, np.full(len(problem.x), NONE))
    part = problem.of_draws(np.unique(np.linspace(0, problem.n_draw - 1, N_TRIED).astype(np.int64)))
    tried = [] if first_draw is None else [first_draw]
    tried += [draw for draw in _typical(problem, part) if draw != first_draw]
    starts = [Entries.at(problem.x[problem.first[draw] : problem.first[draw + 1]]) for draw in tried]
    if not len(part.x):
        return Assignment.refined(problem, starts[0], others)
    found = [Assignment.refined(part, entries, others) for entries in starts]
    best = max(found, key=lambda one: one.score)
    return Assignment.refined(problem, best.entries, others)


def _typical(problem: Problem, part: Problem) -> list[int]:
    """Draws with the most frequent number of sources, first those whose sources many draws have."""
    number = np.diff(problem.first)
    alike = np.flatnonzero(number == np.argmax(np.bincount(number)))
    alike = alike[np.unique(np.linspace(0, len(alike) - 1, N_TRIED).astype(np.int64))]
    if not len(part.x) or not number[alike[0]]:
        return [int(alike[0])]
    wide = 2.0 * TYPICAL[: problem.n_feature]
    rows = np.concatenate([np.arange(problem.first[draw], problem.first[draw + 1]) for draw in alike])
    near = cKDTree(part.x / wide).query_ball_point(problem.x[rows] / wide, 1.0, return_length=True)
    frequency = np.log1p(near).reshape(len(alike), -1).mean(axis=1)
    return [int(draw) for draw in alike[np.argsort(-frequency, kind="stable")][:N_START]]


def _grow(found: Assignment, least: float) -> Assignment:
    """Add entries where sources that no entry explains lie close together, while that pays."""
    barred = np.zeros(len(found.label), bool)
    for _ in range(MOST_PASSES):
        candidates, has_grown = _unexplained(found) & ~barred, False
        while (seed := _seed(found, candidates, least)) is not None:
            mean, close = seed
            tried = found.replaced([], Entries.at(mean[None], 2.0 * least), mean[:2])
            if tried.gain > 0.0:
                found, has_grown = tried.after, True
            candidates[close] = False
            barred[close] = True  # neither twice where it pays nor where it does not
        if not has_grown:
            break
        found = found.with_new_others()
    return found


def _unexplained(found: Assignment) -> NDArray[np.bool_]:
    """Sources of no entry, and those far from the mean of theirs."""
    limit = float(chi2.isf(OUTLYING, found.problem.n_feature))
    result = found.label == NONE
    for k in range(len(found.entries)):
        i = found.members(k)
        result[i] = found.entries.distance2(k, found.problem.x[i]) > limit
    return np.asarray(result)


def _seed(found: Assignment, candidates: NDArray[np.bool_], least: float) -> tuple[Array, Ints] | None:
    """Mean of the densest group of candidates, and its members.

    None where no group has a tenth of the sources that an entry needs, for entries may be wider than a group,
    and more than twice those that lie there anyway, with four of their Poisson errors.
    """
    problem, i = found.problem, np.flatnonzero(candidates)
    needed = max(2.0, 0.1 * least * problem.n_draw) if problem.n_draw > 1 else 1.0
    if len(i) < needed:
        return None
    wide = 2.0 * TYPICAL[: problem.n_feature]
    scaled = problem.x[i] / wide
    tree = cKDTree(scaled)
    some = np.unique(np.linspace(0, len(i) - 1, MOST_SEEDS).astype(np.int64))
    count = tree.query_ball_point(scaled[some], 1.0, return_length=True)
    anyway = problem.n_draw * found.others.near(problem.x[i[some]], wide)
    dense = count >= np.maximum(needed, 2.0 * anyway + 4.0 * np.sqrt(anyway))
    if not dense.any():
        return None
    middle = scaled[some[int(np.argmax(np.where(dense, count, 0)))]]
    close = i[np.asarray(tree.query_ball_point(middle, 1.0), np.int64)]
    return problem.x[close].mean(axis=0), close


def _split(found: Assignment, least: float) -> Assignment:
    """Make two of an entry whose places fall into two groups, where that pays."""
    for _ in range(MOST_PASSES):
        for k in range(len(found.entries)):
            halves = _halves(found, k, least)
            if halves is not None:
                found = found.replaced([k], halves, found.entries.mean[k, :2]).after
                break  # numbers of entries have changed
        else:
            return found
    return found


def _halves(found: Assignment, k: int, least: float) -> Entries | None:
    """Two entries that describe the sources of one better than it does; None where there are none.

    A source belongs to one or the other, which is weighed as a mixture of two: entries that exclude each
    other are not independent, so that scores of whole assignments cannot be compared here.
    """
    i = found.members(k)
    own = found.problem.of_sources(i)
    needed = max(2.0, 0.5 * least * own.n_draw)
    if len(i) < 2 * needed:
        return None
    is_second = _cut(own.x[:, :2])
    parts = own.x[~is_second], own.x[is_second]
    if min(map(len, parts)) < needed:
        return None
    middles = [np.median(part[:, :2], axis=0) for part in parts]
    if not has_valley(own.x[:, :2], middles[0], middles[1]):
        return None
    halves = Entries.at(np.stack([part.mean(axis=0) for part in parts]))
    for _ in range(3):  # weights of Student's t
        halves = update(own, is_second.astype(np.int64), halves)
    two = sum(
        float(np.sum(np.log(len(part) / len(i)) + halves.log_density(h, part)))
        for h, part in enumerate(parts)
    )
    price = (0.5 + own.n_feature) * np.log(own.n_draw)
    return halves if two - price > np.sum(found.entries.log_density(k, own.x)) else None


def _cut(place: Array) -> NDArray[np.bool_]:
    """Which places lie beyond the cut across the longest axis about whose parts they scatter least (Otsu)."""
    t = place @ np.linalg.eigh(np.cov(place.T))[1][:, -1]
    ordered, n = np.sort(t), np.arange(1, len(t))
    below = np.cumsum(ordered)[:-1]
    apart = below / n - (ordered.sum() - below) / (len(t) - n)
    return np.asarray(t > ordered[int(np.argmax(n * (len(t) - n) * apart**2))])


def _merge(found: Assignment) -> Assignment:
    """Join entries that are one source: no valley is between them, and they hardly exist together."""
    while (pair := _one_source(found)) is not None:
        both = np.concatenate([found.members(k) for k in pair])
        mean = found.problem.x[both].mean(axis=0)
        joined = Entries.at(mean[None], min(1.0, len(both) / (found.problem.n_draw + 1.0)) - 1e-9)
        found = found.replaced(list(pair), joined, mean[:2]).after
    return found


def _one_source(found: Assignment) -> tuple[int, int] | None:
    mean = found.entries.mean[:, :2]
    for k, j in sorted(cKDTree(mean).query_pairs(1.0)) if len(mean) > 1 else []:
        one, other = found.exists(k), found.exists(j)
        if (one & other).sum() >= TOGETHER * min(one.sum(), other.sum()):
            continue  # also where one of them has no source at all
        places = found.problem.x[np.concatenate([found.members(k), found.members(j)]), :2]
        if not has_valley(places, mean[k], mean[j]):
            return k, j
    return None


def _prune(found: Assignment, least: float) -> Assignment:
    """Remove entries that do not pay, the worst first, and those in too few draws, the rarest first."""
    while len(found.entries):
        frequency = found.frequency
        gain = gains(found.problem, found.entries, found.others, found.label)
        if found.problem.n_draw > 1 and gain.min() <= 0.0:
            worst = int(np.argmin(gain))
        elif frequency.min() <= least:
            worst = int(np.argmin(frequency))
        else:
            break
        nothing = found.entries.take(np.zeros(0, np.int64))
        found = found.replaced([worst], nothing, found.entries.mean[worst, :2]).after
    return found
