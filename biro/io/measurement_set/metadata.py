"""What the subtables of a Measurement Set say, as it goes between this process and the child process.

Directions are (ra, dec) in rad (ICRS), frequencies in Hz, positions and diameters in m, times in s (MJD).
"""

from __future__ import annotations

from typing import TypedDict

STOKES = (
    "undefined",
    *("I", "Q", "U", "V", "RR", "RL", "LR", "LL", "XX", "XY", "YX", "YY"),
    *("RX", "RY", "LX", "LY", "XR", "XL", "YR", "YL", "PP", "PQ", "QP", "QQ"),
    *("RCircular", "LCircular", "Linear", "Ptotal", "Plinear", "PFtotal", "PFlinear", "Pangle"),
)
"""Names of casacore's Stokes::StokesTypes; the index is the code that CORR_TYPE holds."""
FREQUENCY_FRAMES = ("REST", "LSRK", "LSRD", "BARY", "GEO", "TOPO", "GALACTO", "LGROUP", "CMB")
"""Names of casacore's MFrequency::Types; the index is the code that MEAS_FREQ_REF holds."""


class MainTableColumns(TypedDict):
    """Columns of the main table.

    `visibility` are those of complex numbers, `incomplete` those of which a run wrote only a part, and
    `half_flagged` says whether that is so of FLAG.
    """

    columns: list[str]
    visibility: list[str]
    incomplete: list[str]
    half_flagged: bool


class NewField(TypedDict):
    """A row of FIELD of a new set: PHASE_DIR, and `pointing` for REFERENCE_DIR and DELAY_DIR."""

    name: str
    direction: list[float]
    pointing: list[float]


class NewDescription(TypedDict):
    """A data description of a new set, with a spectral window and a polarization of its own.

    `receptors` are the indices of the two receptors of each correlation (0 for X and R, 1 for Y and L).
    """

    name: str
    chan_freq: list[float]
    chan_width: list[float]
    frame: str
    corr_type: list[str]
    corr_codes: list[int]
    receptors: list[list[int]]


class GainWindow(TypedDict):
    """Frequencies and widths of the solutions of a spectral window, Hz."""

    freq: list[float]
    width: list[float]


class GainMetadata(TypedDict):
    """What a new calibration table is: kind ("G Jones", "B Jones"), time scale, feeds, windows by number."""

    kind: str
    time_scale: str
    basis: str
    n_row: int
    windows: dict[str, GainWindow]


class NewMetadata(TypedDict):
    """What the subtables of a new set are to hold.

    `circular` says which antennas have feeds R, L, the others have X, Y.
    `pointings` are rows of POINTING: antenna, time (s), how long it holds (s), right ascension, declination.
    """

    antenna_names: list[str]
    antenna_positions: list[list[float]]
    dish_diameter: list[float]
    mounts: list[str]
    receptor_angles: list[float]
    circular: list[bool]
    telescope: str
    n_row: int
    time_range: list[float]
    fields: list[NewField]
    pointings: list[list[float]]
    descriptions: list[NewDescription]
