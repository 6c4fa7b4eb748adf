"""Closure sets: antennas that were correlated with each other at one time, channel and hand, as a graph.

Visibilities are its edges (legs), antennas its nodes. Of b legs between n antennas

    b - n + 1 closure phases are independent, and b - n log closure amplitudes,

(b - n + 1, where no polygon of legs has an odd number of sides). A spanning tree about the antenna with
the most signal gives a minimal set: each leg that is not in the tree closes one polygon, a triangle where
the tree is a star (Blackburn et al. 2020, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from biro.likelihood.closures.legs import Legs

Index = NDArray[np.int64]
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TreeLevel:
    """The nodes at one distance from the roots of the trees: node, its parent, and the leg between them."""

    node: Index
    parent: Index
    leg: Index
    sign: Array  # +1 where the node is the first antenna of the leg


@dataclass(frozen=True, eq=False)
class ClosureSets:
    """All closure sets of a partition; those without any closure are left out.

    Attributes
    ----------
    legs : Legs
        Those that belong to a set, n_leg of them.
    first, second : int64 (n_leg,)
        Nodes of the antennas of each leg: `width` times the number of its set, plus a number within it.
    width : int
        Antennas of the largest set.
    antenna : int64 (n_set, width)
        Antenna of each node; -1 where there is none.
    steps : tuple of TreeLevel
        The spanning trees, from their roots outwards. The root of each set is its first node.
    has_odd : bool (n_set,)
        Whether a set has a polygon with an odd number of legs, such as a triangle.
    n_leg_of_set : int64 (n_set,)
    n_idle_set : int
        Times, channels and hands, or groups of antennas in them, that have no closure.
    n_idle : int
        Visibilities of these.
    """

    legs: Legs
    first: Index
    second: Index
    width: int
    antenna: Index
    steps: tuple[TreeLevel, ...]
    has_odd: NDArray[np.bool_]
    n_leg_of_set: Index
    n_idle_set: int
    n_idle: int

    @property
    def n_set(self) -> int:
        return len(self.antenna)

    @property
    def n_antenna_of_set(self) -> Index:
        """Antennas of each set, int64 (n_set,)."""
        return np.asarray(np.count_nonzero(self.antenna >= 0, axis=1), np.int64)

    @property
    def n_phase(self) -> Index:
        """Independent closure phases of each set, int64 (n_set,)."""
        return self.n_leg_of_set - self.n_antenna_of_set + 1

    @property
    def n_amplitude(self) -> Index:
        """Independent log closure amplitudes of each set, int64 (n_set,)."""
        return np.asarray(self.n_leg_of_set - self.n_antenna_of_set + ~self.has_odd, np.int64)

    def incidence(self, sign: float) -> sparse.csr_array:
        """Which antennas each leg joins, (n_leg, n_set width): 1 of the first, `sign` of the second."""
        n = len(self.legs)
        leg = np.tile(np.arange(n), 2)
        values = np.concatenate([np.ones(n), np.full(n, sign)])
        node = np.concatenate([self.first, self.second])
        return sparse.csr_array((values, (leg, node)), shape=(n, max(1, self.n_set * self.width)))


def sets_of(legs: Legs) -> ClosureSets:
    """The closure sets of the legs of a partition.

    Parameters
    ----------
    legs : Legs
    """
    n_antenna = 1 + max(int(legs.antenna1.max(initial=0)), int(legs.antenna2.max(initial=0)))
    label, n_node = _components(legs, n_antenna)
    n_leg = np.bincount(label, minlength=len(n_node))
    closes = n_leg >= n_node  # a tree of n antennas has n - 1 legs, and no closure
    kept = closes[label]
    idle = int(np.count_nonzero(~closes)), int(np.count_nonzero(~kept))
    number = np.cumsum(closes) - 1
    legs, label = legs.some(kept), number[label[kept]]
    return _joined(legs, label, int(closes.sum()), _ranks(legs, n_antenna), idle)


def _components(legs: Legs, n_antenna: int) -> tuple[Index, Index]:
    """Which connected group of antennas each leg belongs to, and how many antennas each group has."""
    code = np.concatenate([legs.group * n_antenna + a for a in (legs.antenna1, legs.antenna2)])
    known, node = np.unique(code, return_inverse=True)
    first, second = np.split(node, 2)
    graph = sparse.coo_array((np.ones(len(first), bool), (first, second)), shape=(len(known), len(known)))
    n, of_node = csgraph.connected_components(graph, directed=False)
    return of_node[first].astype(np.int64), np.bincount(of_node, minlength=n).astype(np.int64)


def _ranks(legs: Legs, n_antenna: int) -> Index:
    """Place of each antenna in order of signal over noise, int64 (n_antenna,): 0 has the most."""
    signal = sum(np.bincount(a, 1.0 / legs.variance, n_antenna) for a in (legs.antenna1, legs.antenna2))
    rank = np.empty(n_antenna, np.int64)
    rank[np.argsort(-np.asarray(signal), kind="stable")] = np.arange(n_antenna)
    return rank


def _joined(legs: Legs, label: Index, n_set: int, rank: Index, idle: tuple[int, int]) -> ClosureSets:
    """Sets of legs with the numbers `label`; within each, antennas are in the order of their rank."""
    n = len(rank)
    codes = [label * n + rank[a] for a in (legs.antenna1, legs.antenna2)]
    known, node = np.unique(np.concatenate(codes), return_inverse=True)
    owner = known // n
    size = np.bincount(owner, minlength=n_set)
    width = int(size.max(initial=1))
    start = np.concatenate([[0], np.cumsum(size)])[owner]
    place = owner * width + np.arange(len(known)) - start
    antenna = np.full(n_set * width, -1, np.int64)
    antenna[place] = np.argsort(rank)[known % n]
    first, second = np.split(place[node], 2)
    steps = _trees(first, second, n_set, width)
    return ClosureSets(
        legs=legs,
        first=first,
        second=second,
        width=width,
        antenna=antenna.reshape(n_set, width),
        steps=steps,
        has_odd=_has_odd(first, second, label, steps, (n_set, width)),
        n_leg_of_set=np.bincount(label, minlength=n_set).astype(np.int64),
        n_idle_set=idle[0],
        n_idle=idle[1],
    )


def _trees(first: Index, second: Index, n_set: int, width: int) -> tuple[TreeLevel, ...]:
    """Spanning trees: all legs of the antenna of the lowest rank, then of the next those that are needed."""
    if not n_set:
        return ()
    n_node = n_set * width
    low, high = np.minimum(first, second), np.maximum(first, second)
    # Of two visibilities of one baseline the first may be in the tree.
    pair, leg = np.unique(low * n_node + high, return_index=True)
    cost = (low[leg] % width) * width + high[leg] % width + 1.0
    graph = sparse.csr_array((cost, (low[leg], high[leg])), shape=(n_node, n_node))
    tree = csgraph.minimum_spanning_tree(graph).tocoo()
    edge = leg[np.searchsorted(pair, tree.row.astype(np.int64) * n_node + tree.col)]
    steps, reached, left = [], np.zeros(n_node, bool), edge
    reached[np.arange(n_set) * width] = True
    while len(left):
        from_first, from_second = reached[first[left]], reached[second[left]]
        now = from_first | from_second
        leg, sign = left[now], np.where(from_second[now], 1.0, -1.0)
        node = np.where(sign > 0, first[leg], second[leg])
        steps.append(TreeLevel(node, np.where(sign > 0, second[leg], first[leg]), leg, sign))
        reached[node] = True
        left = left[~now]
    return tuple(steps)


def _has_odd(
    first: Index, second: Index, label: Index, steps: tuple[TreeLevel, ...], shape: tuple[int, int]
) -> NDArray[np.bool_]:
    """Whether a leg joins two antennas that are both an even, or both an odd, number of legs away."""
    odd = np.zeros(shape[0] * shape[1], bool)
    for step in steps:
        odd[step.node] = ~odd[step.parent]
    found = np.zeros(shape[0], bool)
    found[label[odd[first] == odd[second]]] = True
    return found
