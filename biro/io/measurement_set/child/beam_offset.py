"""Beams that are off where the dishes point: BEAM_OFFSET of FEED, of telescopes with several beams.

The definition of the Measurement Set (CASA note 229) has "beam position offset, as defined on the sky but in
the antenna reference frame". ASKAP's own programs take x to the west and y to the north of dishes that do not
turn on the sky (yandasoft, `askap/simulation/Simulator.cc`; FixMS, `fix_ms_dir.py`), and phase the rows of
each beam to its centre, though PHASE_DIR has the centre of the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.io.data_set.metadata import FieldMetadata, PointingMetadata
from biro.io.measurement_set.child.casacore_table import CasaTable
from biro.io.measurement_set.child.directions import axes

Array = NDArray[np.float64]
NEGLIGIBLE = 1e-8
"""Offsets that count as 0, rad: 2 mas."""
PHASED_TO_BEAMS = ("ASKAP",)
"""Telescopes whose visibilities are phased to the centre of the beam, not to PHASE_DIR."""


class FeedRows(NamedTuple):
    """Rows of a field: their times (MJD, s), and antennas and feeds, (2, n_row)."""

    time: Array
    antenna: NDArray[np.int64]
    feed: NDArray[np.int64]


class BeamOffsets:
    """Rows of FEED.

    Parameters
    ----------
    feed : table
        FEED.
    """

    def __init__(self, feed: CasaTable) -> None:
        self._offset = np.array([_offset(feed, row) for row in range(feed.nrows())]).reshape(-1, 2)
        names = ("ANTENNA_ID", "FEED_ID", "TIME", "INTERVAL")
        self._antenna, self._feed, self._time, interval = (np.asarray(feed.getcol(name)) for name in names)
        self._half = np.where(np.isfinite(interval) & (interval > 0.0), 0.5 * interval, np.inf)

    def is_needed(self) -> bool:
        """Whether any beam is off."""
        return bool((np.abs(self._offset) > NEGLIGIBLE).any())

    def at(self, antenna: int, feed: int, time: float) -> Array:
        """(x, y) of a beam of an antenna, rad, of the row whose time is nearest; 0 where FEED has none."""
        own = np.flatnonzero((self._antenna == antenna) & (self._feed == feed))
        if not own.size:
            return np.zeros(2)
        beyond = np.abs(self._time[own] - time) - self._half[own]
        return np.asarray(self._offset[own[np.argmin(np.maximum(beyond, 0.0))]])


def _offset(feed: CasaTable, row: int) -> Array:
    """The mean (x, y) of the receptors of a row; 0 where it has no numbers."""
    if not feed.iscelldefined("BEAM_OFFSET", row):
        return np.zeros(2)
    found = np.reshape(feed.getcell("BEAM_OFFSET", row), (-1, 2)).mean(axis=0)
    return found if np.isfinite(found).all() else np.zeros(2)


def shifted(centre: Sequence[float], offset: Array) -> Array:
    """The unit vector (3,) of a direction moved by -x east and by y north, as yandasoft moves it."""
    radial = axes((centre[0], centre[1] + offset[1]))
    return np.asarray(np.cos(offset[0]) * radial[2] - np.sin(offset[0]) * radial[0])


def move_beams(
    field: FieldMetadata, offsets: BeamOffsets, rows: FeedRows, mounts: Sequence[str], telescope: str
) -> None:
    """Move the beam of a field, and its phase centre where this telescope has it there, or say why not."""
    used = np.unique(rows.antenna)
    time = float(np.median(rows.time))
    feeds = np.unique(rows.feed)
    each = np.array([[offsets.at(antenna, feed, time) for antenna in used] for feed in feeds.tolist()])
    size = float(np.hypot(*np.moveaxis(each, -1, 0)).max())
    if size <= NEGLIGIBLE:
        return
    is_phased = telescope.strip().upper() in PHASED_TO_BEAMS
    about = f"BEAM_OFFSET of FEED is up to {np.degrees(size):.4g} deg"
    why = ""
    if np.ptp(each, axis=0).max() > NEGLIGIBLE:
        why = f"{about}, and differs between its {len(feeds)} beams: make a set of each (FEED1 tells them)"
    elif {str(mounts[i]).strip().lower() for i in used} != {"equatorial"}:
        why = f"{about}, and turns with mounts that are not equatorial"
    if why and is_phased:
        field["problem"] = f"{why}; {telescope} phases visibilities to its beams: no phase centre holds"
    if why:
        field["note"] = "; ".join(filter(None, (field["note"], f"{why}; it is not applied to the beam")))
        return
    mean = each[0].mean(axis=0)
    if field["pointing"] is not None:
        field["pointing"] = _moved(field["pointing"], each[0], mean, used, (len(mounts), time))
    if is_phased:
        field["direction"] = list(_angles(shifted(field["direction"], mean)))
    what = "the beam and the phase centre" if is_phased else "the beam"
    note = f"BEAM_OFFSET of FEED moves {what} by {np.degrees(np.hypot(*mean)):.4g} deg"
    if is_phased:
        note += (
            f"; if {telescope}'s own programs calibrated the data, their I is XX + YY, twice the I of biro"
        )
    field["note"] = "; ".join(filter(None, (field["note"], note)))


def _moved(
    pointing: PointingMetadata, each: Array, mean: Array, used: NDArray[np.int64], shape: tuple[int, float]
) -> PointingMetadata:
    """Where beams are whose dishes point there; `shape` has the number of antennas and a time."""
    n_antenna, time = shape
    centre = _angles(shifted(pointing["centre"], mean))
    own = np.zeros((n_antenna, 2))
    own[used] = [axes(centre)[:2] @ shifted(pointing["centre"], offset) for offset in each]
    offset = np.array(pointing["offset"]) if pointing["offset"] else np.zeros((1, n_antenna, 2))
    offset = offset + own
    is_one = np.abs(offset).max() < NEGLIGIBLE
    return {
        "centre": list(centre),
        "origin": f"{pointing['origin']} and BEAM_OFFSET",
        "time": [] if is_one else pointing["time"] or [time],
        "offset": [] if is_one else offset.tolist(),
    }


def _angles(vector: Array) -> tuple[float, float]:
    ra = float(np.arctan2(vector[1], vector[0]) % (2 * np.pi))
    return ra, float(np.arctan2(vector[2], np.hypot(vector[0], vector[1])))
