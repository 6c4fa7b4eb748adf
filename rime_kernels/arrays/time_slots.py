"""Times that are one: rows whose times differ by rounding, or by a small part of an integration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Antennas = NDArray[np.int32]
SLOT = 0.1
"""Times are one slot within this part of the shortest integration (physics: section 6)."""
ROUNDING = 1e-4
"""Files round times by less than this, s: a Julian date in float64 has steps of 4e-5 s."""
SHORTEST = 0.05
"""Integrations shorter than all but this part of the rows are taken as mistakes."""


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


class RowSlots(NamedTuple):
    """The time slot of each row.

    Attributes
    ----------
    number : int32 (n_row,)
        Which slot it is, by ascending time.
    time : float64 (n_row,), s, or None
        Time of the slot; None where it is each row's own time.
    """

    number: NDArray[np.int32]
    time: Array | None

    @classmethod
    def of(cls, time: Array, width: float) -> RowSlots:
        """Slots of rows, as wide as `slot_width` gives it, s."""
        times, slot = time_slots(time, width)
        of_row = times[slot]
        return cls(slot.astype(np.int32), None if np.array_equal(of_row, time) else of_row)


def width_of_slots(
    interval: Array, time: Array, antenna1: Antennas, antenna2: Antennas, series: Antennas | None = None
) -> float:
    """How far times of one slot may lie apart, s.

    It follows from the shortest integrations, or from the shortest steps between times of a baseline where
    these are shorter: some sets hold rubbish in INTERVAL.

    Parameters
    ----------
    interval : float64 (n_row,), s
        0 where it is not known.
    time : float64 (n_row,), s
    antenna1, antenna2 : int32 (n_row,)
    series : int32 (n_row,), optional
        Rows of one baseline and of different series, as spectral windows, may be of one time.
    """
    known = interval[np.isfinite(interval) & (interval > 0.0)]
    stated = float(np.quantile(known, SHORTEST)) if known.size else 0.0
    between = np.diff(np.unique(time))
    if stated and not (between <= max(slot_width(stated), ROUNDING)).any():
        return slot_width(stated)
    steps = steps_of_baselines(time, antenna1, antenna2, series)
    steps = steps[steps > min(ROUNDING, 0.5 * stated or ROUNDING)]
    step = float(np.quantile(steps, SHORTEST)) if steps.size else 0.0
    return slot_width(min(each for each in (stated, step) if each > 0.0) if stated or step else 0.0)


def steps_of_baselines(
    time: Array, antenna1: Antennas, antenna2: Antennas, series: Antennas | None = None
) -> Array:
    """Steps between neighbouring times of each baseline (and series), s, all above 0; all are of rows."""
    low, high = np.minimum(antenna1, antenna2), np.maximum(antenna1, antenna2)
    pair = low.astype(np.int64) * (1 + int(high.max(initial=0))) + high
    if series is not None:
        pair += series * (pair.max(initial=0) + 1)
    order = np.lexsort((time, pair))
    step, same = np.diff(time[order]), np.diff(pair[order]) == 0
    return np.asarray(step[same & (step > 0.0)])


def spacing_of_baselines(time: Array, antenna1: Antennas, antenna2: Antennas) -> float:
    """Median step from one time of a baseline to its next, s; 0 where each baseline has a single time."""
    steps = steps_of_baselines(time, antenna1, antenna2)
    return float(np.median(steps)) if steps.size else 0.0
