"""Apply flags: set what does not count to weight 0, count what is left out by cause, and warn of it once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import given_text
from biro.errors import DataNote, InputError

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
    "UVW is zero",
    "repeated row",
    "exactly zero",
    "interference",
)
"""Why a visibility is left out. Where several causes hold, it is counted under the first of this order.

"UVW is zero" is of rows of two different antennas, "repeated row" of a row that equals another one, "exactly
zero" of visibilities that a correlator has not measured (physics: section 7). Interference is looked for
among what no other cause leaves out.
"""
UNMEASURED = ("UVW is zero", "repeated row", "exactly zero")
"""Causes that no flag and no weight of the data shows."""
BLOCK_VISIBILITIES = 1 << 22
"""Visibilities worked on at a time, so that the masks stay small beside the visibilities of a large set."""


def empty_counts() -> dict[str, int]:
    """A zero for every cause, and for "usable" and "total"."""
    return dict.fromkeys((*CAUSES, "usable", "total"), 0)


def apply_flags(
    vis: NDArray[np.complexfloating],
    weight: NDArray[np.floating],
    excluded: Iterable[tuple[str, NDArray[np.bool_]]],
    counts: dict[str, int],
    keep_values: bool = False,
) -> None:
    """Set vis and weight to 0 where a visibility does not count, and add up the causes; all in place.

    Parameters
    ----------
    vis : complex (n_row, n_chan, n_corr), Jy
    weight : float (n_row, n_chan, n_corr), 1/Jy^2
    excluded : pairs of a cause and a mask
        Which visibilities are left out for causes that vis and weight themselves do not show. A mask is bool
        with three axes, which broadcast against those of vis.
    counts : dict
        As `empty_counts` makes it; added to.
    keep_values : bool
        Only the weight becomes 0, and vis where it is not finite.
    """
    excluded = list(excluded)
    n_block = max(1, BLOCK_VISIBILITIES // max(1, vis[:1].size))
    for start in range(0, len(vis), n_block):
        rows = slice(start, start + n_block)
        # An axis of length 1 stands for every row.
        masks = {cause: mask if len(mask) == 1 else mask[rows] for cause, mask in excluded}
        _apply_to_block(vis[rows], weight[rows], masks, counts, keep_values)


def _apply_to_block(
    vis: NDArray[np.complexfloating],
    weight: NDArray[np.floating],
    masks: dict[str, NDArray[np.bool_]],
    counts: dict[str, int],
    keep_values: bool,
) -> None:
    with np.errstate(invalid="ignore"):
        masks["non-finite data"] = ~np.isfinite(vis)
        masks["non-finite weight"] = ~np.isfinite(weight)
        masks["negative weight"] = weight < 0
        masks["zero weight"] = weight == 0
    usable = np.ones(vis.shape, bool)
    n_usable = vis.size
    for cause in sorted(masks, key=CAUSES.index):
        usable &= ~masks[cause]
        n_left = int(np.count_nonzero(usable))
        counts[cause] += n_usable - n_left
        n_usable = n_left
    counts["usable"] += n_usable
    counts["total"] += vis.size
    vis[masks["non-finite data"] if keep_values else ~usable] = 0
    weight[~usable] = 0


def describe_causes(counts: Mapping[str, int]) -> str:
    """The causes that left something out, the largest first: "FLAG 120, zero weight 8"."""
    numbers = sorted(((counts.get(c, 0), c) for c in CAUSES if counts.get(c, 0)), reverse=True)
    return ", ".join(f"{cause} {number}" for number, cause in numbers) or "there is nothing at all"


class _ReadData(Protocol):
    @property
    def source(self) -> str:
        """Where the data are from."""

    @property
    def reading_lines(self) -> list[str]:
        """What a user should know of how they were read."""


_TOLD: set[tuple[str, ...]] = set()


def warn_of_reading(observation: _ReadData) -> None:
    """Warn of what was left out or assumed while data were read, once for each data set (`DataNote`).

    Raises
    ------
    InputError
        Something else was given in place of an observation.
    """
    if not hasattr(observation, "reading_lines") or isinstance(observation, type):
        raise InputError(f"expected an Observation, the result of biro.read, got {given_text(observation)}")
    lines = observation.reading_lines
    told = (observation.source, *lines)
    if lines and told not in _TOLD:
        _TOLD.add(told)
        text = "; ".join(line.removeprefix("data: ") for line in lines)
        warnings.warn(f"{observation.source}: {text}", DataNote, stacklevel=3)
