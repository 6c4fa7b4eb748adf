"""Which products of a solution interval can be used: tied to the reference."""

from __future__ import annotations

import numpy as np

from rime_kernels.compile import types
from rime_kernels.compile.jit import inner_function

_SOLVED, _NO_DATA, _FEW_BASELINES, _UNCONNECTED = 0, 1, 2, 3


@inner_function
def choose_edges(node1: types.Array, node2: types.Array, model: types.Array, order: types.Array,
                 n_feed: int, min_baselines: int) -> types.Record:  # fmt: skip
    """The edges that are used, why a node is left out, the nodes whose phase is fixed, and the reference.

    Antennas with fewer baselines than `min_baselines` are left out, again and again until none is, and then
    all that no chain of baselines ties to the reference: the first antenna of `order` that is left. Of nodes
    that are tied to each other one has its phase fixed.

    Returns
    -------
    edges : int64 (n_used,)
    reason : int64 (n_node,)
    fixed : bool (n_node,)
    anchor : int
        A node of the reference; -1 without one.
    """
    n_node = order.size * n_feed
    degree, left = np.zeros(n_node, np.int64), np.ones(n_node, np.bool_)
    reason, fixed = np.zeros(n_node, np.int64), np.zeros(n_node, np.bool_)
    changed = True
    while changed:
        degree[:] = 0
        for e in range(node1.size):
            p, q = node1[e], node2[e]
            # Cross hands are no baselines of their own.
            if model[e] > 0.0 and left[p] and left[q] and p % n_feed == q % n_feed:
                degree[p] += 1
                degree[q] += 1
        changed = False
        for i in range(n_node):
            if left[i] and degree[i] < min_baselines:
                left[i] = False
                changed = True
    root = np.arange(n_node)
    for e in range(node1.size):
        p, q = node1[e], node2[e]
        if model[e] > 0.0 and left[p] and left[q]:
            while root[p] != p:
                root[p] = root[root[p]]
                p = root[p]
            while root[q] != q:
                root[q] = root[root[q]]
                q = root[q]
            root[max(p, q)] = min(p, q)
    for i in range(n_node):
        root[i] = _top(root, i)
    anchor = -1
    for antenna in order:
        for feed in range(n_feed):
            node = antenna * n_feed + feed
            if left[node] and anchor < 0:
                anchor = node
    tied = np.zeros(n_node, np.bool_)
    if anchor >= 0:
        for feed in range(n_feed):
            node = anchor // n_feed * n_feed + feed
            if left[node] and not tied[root[node]]:
                tied[root[node]] = True
                fixed[node] = True
    seen = np.zeros(n_node, np.bool_)
    n_edge = 0
    for e in range(node1.size):
        if model[e] > 0.0:
            seen[node1[e]] = True
            seen[node2[e]] = True
    for i in range(n_node):
        if not seen[i]:
            reason[i] = _NO_DATA
        elif not left[i]:
            reason[i] = _FEW_BASELINES
        elif not tied[root[i]]:
            reason[i] = _UNCONNECTED
    edges = np.empty(node1.size, np.int64)
    for e in range(node1.size):
        if model[e] > 0.0 and reason[node1[e]] == _SOLVED and reason[node2[e]] == _SOLVED:
            edges[n_edge] = e
            n_edge += 1
    return edges[:n_edge], reason, fixed, anchor


@inner_function
def _top(root: types.Array, node: int) -> int:
    """The first node of those that a node is tied to."""
    while root[node] != node:
        node = root[node]
    return node
