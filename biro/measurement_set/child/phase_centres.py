"""Phase centres of the fields of a set, converted to ICRS, and its time scale, converted to UTC."""

from __future__ import annotations

import numpy as np
from casacore.measures import measures
from numpy.typing import NDArray

from biro.data_set.metadata import Field, turned_axes
from biro.data_set.plausible import is_direction
from biro.measurement_set.child.casacore_table import CasaTable

DIRECTION_FRAMES = (
    *("J2000", "JMEAN", "JTRUE", "APP", "B1950", "B1950_VLA", "BMEAN", "BTRUE", "GALACTIC", "HADEC", "AZEL"),
    *("AZELSW", "AZELGEO", "AZELSWGEO", "JNAT", "ECLIPTIC", "MECLIPTIC", "TECLIPTIC", "SUPERGAL", "ITRF"),
    *("TOPO", "ICRS"),
)
"""casacore's MDirection::Types in their order, for sets whose column does not list its codes."""
FIXED_FRAMES = {"B1950", "B1950_VLA", "GALACTIC", "SUPERGAL", "ECLIPTIC"}
"""Frames that need no time to be converted to J2000."""
DATED_FRAMES = {"JMEAN", "JTRUE", "APP", "BMEAN", "BTRUE", "JNAT", "MECLIPTIC", "TECLIPTIC"}
"""Frames that are converted at the time of the set's first row."""


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
    field : table
        FIELD.
    time : float, s
        MJD of the first row that has one, on the time scale `scale`.
    scale : str
    positions : float64 (n_antenna, 3), m, ITRF
    """

    def __init__(self, field: CasaTable, time: float, scale: str, positions: NDArray[np.float64]) -> None:
        self.field = field
        self.keywords = field.getcolkeywords("PHASE_DIR").get("MEASINFO", {})
        self.dm = measures()
        self.dm.do_frame(self.dm.epoch(scale, f"{time / 86400:.12f}d"))
        known = positions[np.isfinite(positions).all(axis=1)]
        if len(known):
            self.dm.do_frame(self.dm.position("ITRF", *(f"{x:.6f}m" for x in known[0])))

    def fields(self) -> list[Field]:
        """Name, direction and frame of each field; "problem" where its frame cannot be used."""
        names = self.field.getcol("NAME") if self.field.nrows() else []
        return [self._field(name, row) for row, name in enumerate(names)]

    def _frame(self, row: int) -> str:
        """The frame of a field, which the column's keywords or a column of codes or names say."""
        column = self.keywords.get("VarRefCol")
        if column is None:
            return str(self.keywords.get("Ref", "J2000"))
        code = self.field.getcell(column, row)
        if isinstance(code, str):
            return code
        types = self.keywords.get("TabRefTypes", DIRECTION_FRAMES)
        codes = list(self.keywords.get("TabRefCodes", range(len(DIRECTION_FRAMES))))
        return str(types[codes.index(code)]) if code in codes else f"code {code}"

    def _field(self, name: str, row: int) -> Field:
        frame = self._frame(row).upper()
        # Axes (term of the polynomial in time, angle): the constant term holds at FIELD's TIME.
        terms = np.reshape(self.field.getcell("PHASE_DIR", row), (-1, 2))
        ra, dec = (float(x) for x in terms[0])
        problem = None
        notes = []
        if len(terms) > 1 and np.any(terms[1:]):
            notes.append("PHASE_DIR has terms in time; its constant term was taken")
        if not is_direction(ra, dec):
            problem = f"its PHASE_DIR, ({ra:g}, {dec:g}) rad, is no direction; put it right"
            ra = dec = 0.0
        elif frame in FIXED_FRAMES | DATED_FRAMES:
            rotation = self._rotation(frame, (ra, dec))
            ra, dec = self._to_j2000(frame, ra, dec)
            notes.append(turned_axes(frame, rotation))
        elif frame not in ("J2000", "ICRS"):
            problem = f"its phase centre is in the frame {frame}, which does not stay at one place of the sky"
        return {
            "name": name,
            "direction": [ra % (2 * np.pi), dec],
            "frame": frame,
            "problem": problem,
            "note": "; ".join(notes) or None,
        }

    def _to_j2000(self, frame: str, ra: float, dec: float) -> tuple[float, float]:
        """A direction in J2000, rad."""
        direction = self.dm.measure(self.dm.direction(frame, f"{ra!r}rad", f"{dec!r}rad"), "J2000")
        return direction["m0"]["value"], direction["m1"]["value"]

    def _rotation(self, frame: str, direction: tuple[float, float]) -> float:
        """Position angle, north through east in ICRS, of a frame's own north at a direction, rad."""
        ra, dec = direction
        step = 1e-4 if dec < 0 else -1e-4  # not across the pole
        here, there = (self._to_j2000(frame, ra, angle) for angle in (dec, dec + step))
        east = (there[0] - here[0] + np.pi) % (2 * np.pi) - np.pi
        north = there[1] - here[1]
        return float(np.arctan2(np.sign(step) * east * np.cos(here[1]), np.sign(step) * north))
