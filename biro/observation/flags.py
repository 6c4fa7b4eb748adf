"""Which visibilities count, and why the others do not: each is counted under one cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

CAUSES = (
    "not selected",
    "autocorrelation",
    "FLAG_ROW",
    "FLAG",
    "no data",
    "non-finite data",
    "non-finite weight",
    "negative weight",
    "zero weight",
)
"""In the order in which a visibility is asked; the first that holds is the one it is counted under."""
BLOCK_VISIBILITIES = 1 << 22
"""Settled at a time, so that the masks on the way stay small beside the visibilities of a large set."""


def empty_counts() -> dict[str, int]:
    """A zero for every cause, and for "usable" and "total"."""
    return dict.fromkeys((*CAUSES, "usable", "total"), 0)


def settle(
    vis: NDArray[np.complexfloating],
    weight: NDArray[np.floating],
    excluded: Iterable[tuple[str, NDArray[np.bool_]]],
    counts: dict[str, int],
) -> None:
    """Set vis and weight to 0 where a visibility does not count, and add it to the counts, in place.

    Parameters
    ----------
    vis : complex (n_row, n_chan, n_corr)
    weight : float (n_row, n_chan, n_corr)
    excluded : pairs of a cause and bool, of three axes that broadcast against vis
        What is left out for causes that vis and weight themselves do not show.
    counts : dict
        As `empty_counts` makes it.
    """
    excluded = list(excluded)
    rows = max(1, BLOCK_VISIBILITIES // max(1, vis[:1].size))
    for start in range(0, len(vis), rows):
        some = slice(start, start + rows)
        # An axis of length 1 stands for every row.
        given = {cause: mask if len(mask) == 1 else mask[some] for cause, mask in excluded}
        _settle_block(vis[some], weight[some], given, counts)


def _settle_block(
    vis: NDArray[np.complexfloating],
    weight: NDArray[np.floating],
    given: dict[str, NDArray[np.bool_]],
    counts: dict[str, int],
) -> None:
    with np.errstate(invalid="ignore"):
        given["non-finite data"] = ~np.isfinite(vis)
        given["non-finite weight"] = ~np.isfinite(weight)
        given["negative weight"] = weight < 0
        given["zero weight"] = weight == 0
    usable = np.ones(vis.shape, bool)
    left = vis.size
    for cause in sorted(given, key=CAUSES.index):
        usable &= ~given[cause]
        now = int(np.count_nonzero(usable))
        counts[cause] += left - now
        left = now
    counts["usable"] += left
    counts["total"] += vis.size
    vis[~usable] = 0
    weight[~usable] = 0


def describe_causes(counts: Mapping[str, int]) -> str:
    """The causes that took something, the largest first: "FLAG 120, zero weight 8"."""
    taken = sorted(((counts.get(c, 0), c) for c in CAUSES if counts.get(c, 0)), reverse=True)
    return ", ".join(f"{cause} {number}" for number, cause in taken) or "there is nothing at all"
