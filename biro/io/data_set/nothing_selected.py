"""Why a selection leaves no row, for an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.io.data_set.plausible import is_time
from biro.observation.selection import Selection, select_correlations, to_utc


class RowsOfSet(NamedTuple):
    """What is known of a set whose rows were selected.

    Attributes
    ----------
    time : float64 (n_row,), s
    utc_offset : float, s
    antenna_names : sequence of str
    contents : str
        What a selection can name.
    """

    time: NDArray[np.float64]
    utc_offset: float
    antenna_names: Sequence[str]
    contents: str


def why_no_row(rows: RowsOfSet, masks: Mapping[str, NDArray[np.bool_]]) -> str:
    """Which part of a selection takes no row, or which parts take none together.

    Parameters
    ----------
    rows : RowsOfSet
    masks : mapping of str to bool (n_row,)
        The rows that each part of the selection takes.
    """
    empty = [name for name, mask in masks.items() if not mask.any()]
    if "times" in empty:
        known = rows.time[is_time(rows.time)]
        first, last = (to_utc(time, rows.utc_offset) for time in (known.min(), known.max()))
        return f"none lie in the time range; the data run from {first} to {last} UTC"
    if "antennas" in empty:
        return (
            "no baseline has both antennas in the selection; the antennas are "
            f"{', '.join(rows.antenna_names)}"
        )
    several = " and ".join(name for name, mask in masks.items() if not mask.all())
    return f"none have this combination of {several}; the set has {rows.contents}"


def why_no_visibility(selection: Selection, uvw: NDArray[np.float64], correlations: Sequence[str]) -> str:
    """Whether rows have none of the correlations that are selected, or lie outside of the uv range.

    Parameters
    ----------
    selection : Selection
    uvw : float64 (n_row, 3), m
    correlations : sequence of str
        Those of the rows.
    """
    if not select_correlations(selection.correlations, correlations).size:
        return f"none have these correlations; the set has {', '.join(correlations)}"
    length = np.linalg.norm(uvw[np.isfinite(uvw).all(axis=1)], axis=1)
    low, high = length.min(initial=np.inf), length.max(initial=0.0)
    return f"no baseline lies in the uv range; baselines are {low:.4g} to {high:.4g} m long"
