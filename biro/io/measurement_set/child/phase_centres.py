"""Phase centres of the fields of a set, converted to ICRS, and its time scale, converted to UTC."""

from __future__ import annotations

import numpy as np
from casacore.measures import measures

from biro.io.data_set.metadata import FieldMetadata, turned_axes
from biro.io.data_set.plausible import is_direction
from biro.io.measurement_set.child.directions import (
    DATED_FRAMES,
    FIXED_FRAMES,
    FieldDirections,
    frame_of,
)


def utc_offset(time: float, scale: str) -> float:
    """Seconds to add to a time (MJD in s) on a time scale ("TAI", ...) to make it UTC."""
    if scale == "UTC":
        return 0.0
    dm = measures()
    utc = dm.measure(dm.epoch(scale, f"{time / 86400:.12f}d"), "UTC")["m0"]["value"]
    return float(round((utc - time / 86400) * 86400, 3))


class PhaseCentres:
    """PHASE_DIR of every field as ICRS right ascension and declination.

    J2000 is taken as ICRS: what sets call J2000 are, by the practice of correlators and catalogues,
    ICRF positions; the two frames differ by less than 25 mas.

    Parameters
    ----------
    directions : FieldDirections
    """

    def __init__(self, directions: FieldDirections) -> None:
        self.directions, self.field = directions, directions.field

    def fields(self) -> list[FieldMetadata]:
        """Name, direction and frame of each field; "problem" where its frame cannot be used."""
        names = self.field.getcol("NAME") if self.field.nrows() else []
        return [self._field(name, row) for row, name in enumerate(names)]

    def _field(self, name: str, row: int) -> FieldMetadata:
        frame = frame_of(self.field, "PHASE_DIR", row)
        # Axes (term of the polynomial in time, angle): the constant term holds at FIELD's TIME.
        angles = np.ravel(self.field.getcell("PHASE_DIR", row))
        if not angles.size or angles.size % 2:
            angles = np.full(2, np.nan)
        terms = np.reshape(angles, (-1, 2))
        ra, dec = (float(x) for x in terms[0])
        problem = None
        notes = []
        if len(terms) > 1 and np.any(terms[1:]):
            notes.append("PHASE_DIR is a polynomial in time; biro uses its constant term")
        if not is_direction(ra, dec):
            problem = f"its PHASE_DIR, ({ra:g}, {dec:g}) rad, is not a direction; correct it"
            ra = dec = 0.0
        elif frame in FIXED_FRAMES | DATED_FRAMES:
            rotation = self._rotation(frame, (ra, dec))
            ra, dec = self.directions.to_j2000(frame, ra, dec)
            notes.append(turned_axes(frame, rotation))
        elif frame not in ("J2000", "ICRS"):
            problem = f"its phase centre is in the frame {frame}, which is not fixed on the sky"
        return {
            "name": name,
            "direction": [ra % (2 * np.pi), dec],
            "frame": frame,
            "problem": problem,
            "note": "; ".join(notes) or None,
            "pointing": None,
        }

    def _rotation(self, frame: str, direction: tuple[float, float]) -> float:
        """Position angle, north through east in ICRS, of a frame's own north at a direction, rad."""
        ra, dec = direction
        step = 1e-4 if dec < 0 else -1e-4  # not across the pole
        here, there = (self.directions.to_j2000(frame, ra, angle) for angle in (dec, dec + step))
        east = (there[0] - here[0] + np.pi) % (2 * np.pi) - np.pi
        north = there[1] - here[1]
        return float(np.arctan2(np.sign(step) * east * np.cos(here[1]), np.sign(step) * north))
