"""An observation as the rest of the toolkit sees it: frozen arrays, conventions settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.frame import Frame


@dataclass(frozen=True, eq=False)
class Partition:
    """One field seen through one data description.

    Attributes
    ----------
    field, spw : str
        Names (the id as text where the set has no name).
    field_id, spw_id, data_desc_id : int
    phase_centre : (float, float), rad
        ICRS.
    uvw : float64 (n_row, 3), m
        As stored, negated when read with convention="fourier".
    antenna1, antenna2 : int32 (n_row,)
    time : float64 (n_row,), s
        MJD, TIME column (mid-point).
    time_index : int32 (n_row,)
        Index of each row's time among the sorted distinct times.
    chan_freq, chan_width : float64 (n_chan,), Hz
    freq_frame : str
        "TOPO", "LSRK", ...
    corr_type : tuple of str
        "XX", "XY", ... or "RR", ... as stored.
    vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
        0 where the weight is 0.
    weight : float32 or float64 (n_row, n_chan, n_corr), 1/Jy^2
        1/sigma^2 of the real and of the imaginary part; 0 for what does not count.
    row_id : int64 (n_row,)
        Row numbers in the Measurement Set.
    """

    field: str
    spw: str
    field_id: int
    spw_id: int
    data_desc_id: int
    phase_centre: tuple[float, float]
    uvw: NDArray[np.float64]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    time: NDArray[np.float64]
    time_index: NDArray[np.int32]
    chan_freq: NDArray[np.float64]
    chan_width: NDArray[np.float64]
    freq_frame: str
    corr_type: tuple[str, ...]
    vis: NDArray[np.complexfloating]
    weight: NDArray[np.floating]
    row_id: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Observation:
    """Calibrated visibilities with weights, in partitions that are never mixed.

    Attributes
    ----------
    partitions : tuple of Partition
    antenna_names : tuple of str
    antenna_positions : float64 (n_antenna, 3), m, ITRF
    telescope : str
    source : str
        Path it was read from, or a word for where the arrays came from.
    column : str
        "DATA", "CORRECTED_DATA", ...
    weight_origin : str
        Which column the weights came from.
    counts : mapping str -> int
        Visibilities by cause of exclusion, and "usable", "total".
    """

    partitions: tuple[Partition, ...]
    antenna_names: tuple[str, ...]
    antenna_positions: NDArray[np.float64]
    telescope: str
    source: str
    column: str
    weight_origin: str
    counts: Mapping[str, int]
