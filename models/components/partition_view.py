"""What a sky model needs to know of each partition of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PartitionView:
    """One partition of an observation (field x data description), as a sky model sees it.

    Attributes
    ----------
    label : str
        Unique among the partitions, for parameter names ("3C273/spw0").
    field, spw : str
        Names that noise factors may be grouped by.
    phase_centre : (float, float), rad
        ICRS right ascension and declination.
    time : float64 (n_time,), s
        MJD of each time slot, ascending.
    chan_freq : float64 (n_chan,), Hz
    antenna_names : tuple of str
    """

    label: str
    field: str
    spw: str
    phase_centre: tuple[float, float]
    time: NDArray[np.float64]
    chan_freq: NDArray[np.float64]
    antenna_names: tuple[str, ...]
