"""Times that are one: rows whose times differ by rounding, or by a small part of an integration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SLOT = 0.1
"""Times are one slot within this part of the shortest integration (physics: section 6)."""
ROUNDING = 1e-4
"""Files round times by less than this, s: a Julian date in float64 has steps of 4e-5 s."""


def slot_width(shortest: float) -> float:
    """Times within this of one another are one slot, s.

    Parameters
    ----------
    shortest : float, s
        The shortest integration; 0 where it is not known.
    """
    if not shortest > 0.0:
        return ROUNDING
    return max(SLOT * shortest, min(ROUNDING, 0.4 * shortest))


def time_slots(time: Array, width: float) -> tuple[Array, NDArray[np.int64]]:
    """The time slots of some times.

    A slot begins at the first time that is later than the begin of the slot before by more than `width`.

    Parameters
    ----------
    time : float64 (n,), s
        In any order.
    width : float, s
        As `slot_width` gives it.

    Returns
    -------
    times : float64 (n_slot,), s
        Mean of the distinct times of each slot, ascending.
    slot : int64 (n,)
        Slot of each time.
    """
    distinct, place = np.unique(time, return_inverse=True)
    place = place.reshape(-1)
    near = np.diff(distinct) <= width
    if not near.any():
        return distinct, place.astype(np.int64)
    begins = np.concatenate([[True], ~near])
    # Chains of times that are longer than a slot are cut one slot after another.
    runs = np.flatnonzero(begins)
    for start, end in zip(runs, np.append(runs[1:], distinct.size), strict=True):
        while distinct[end - 1] - distinct[start] > width:
            start += np.searchsorted(distinct[start:end], distinct[start] + width, side="right")
            begins[start] = True
    slot = np.cumsum(begins) - 1
    first = distinct[begins]
    mean = first + np.bincount(slot, distinct - first[slot]) / np.bincount(slot)
    return mean, slot[place].astype(np.int64)
