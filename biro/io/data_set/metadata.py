"""What is known of a data set beside its rows: fields, spectral windows, antennas, time scale.

Directions are (ra, dec) in rad (ICRS), frequencies in Hz, positions and diameters in m, times in s (MJD).
"""

from __future__ import annotations

import math
from typing import TypedDict


class PointingMetadata(TypedDict):
    """Where the dishes pointed, and what states it.

    `offset` has direction cosines (time, antenna, 2) about the centre at the times `time`; both are empty
    where all dishes point to the centre.
    """

    centre: list[float]
    origin: str
    time: list[float]
    offset: list[list[list[float]]]


class FieldMetadata(TypedDict):
    """A phase centre and its name; `problem` says why it cannot be used, `note` what is odd about it.

    `pointing` is None where nothing states where the dishes pointed.
    """

    name: str
    direction: list[float]
    frame: str
    problem: str | None
    note: str | None
    pointing: PointingMetadata | None


class SpectralWindow(TypedDict):
    """A spectral window."""

    name: str
    chan_freq: list[float]
    chan_width: list[float]
    frame: str


class Metadata(TypedDict):
    """What is known of the rows of a data set beside the rows themselves.

    `corr_types` are names of correlations for each polarization setup; `data_descriptions` are pairs of a
    spectral window and a polarization setup; `utc_offset` (s) is to be added to a time to make it UTC.
    `mounts` are those of the antennas, empty where nothing is said; `receptor_angles` (rad) are those of the
    first receptors of the antennas in each spectral window, None where nothing is said.
    """

    antenna_names: list[str]
    antenna_positions: list[list[float]]
    dish_diameter: list[float]
    fields: list[FieldMetadata]
    spws: list[SpectralWindow]
    corr_types: list[list[str]]
    data_descriptions: list[list[int]]
    telescope: str
    time_scale: str
    utc_offset: float
    uvw_frame: str
    mounts: list[str]
    receptor_angles: list[list[float | None]]


def turned_axes(frame: str, rotation: float) -> str:
    """The note about a field whose phase centre, and so its UVW, is in another frame than ICRS.

    Parameters
    ----------
    frame : str
    rotation : float, rad
        Position angle, north through east in ICRS, of the frame's own north at the phase centre.
    """
    return (
        f"UVW is in {frame}, whose north is rotated by {math.degrees(rotation):+.3f} deg (north through "
        "east) from that of ICRS at the phase centre. biro does not correct for this: offsets and position "
        f"angles of a model are relative to the axes of {frame}"
    )
