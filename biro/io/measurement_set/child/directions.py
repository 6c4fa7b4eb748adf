"""Directions of columns of a set, converted to ICRS."""

from __future__ import annotations

import numpy as np
from casacore.measures import measures
from numpy.typing import NDArray

from biro.io.data_set.plausible import is_direction
from biro.io.measurement_set.child.casacore_table import CasaTable
from biro.io.measurement_set.child.columns import measure

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
SAME_PLACE = 1e-5
"""Angle within which a direction that was read in another frame than its own is that of the field, rad."""


def axes(direction: tuple[float, float]) -> NDArray[np.float64]:
    """Unit vectors east, north and outward at a direction, float64 (3, 3).

    They are those of `biro.models.components.direction.basis`, whose import would take this process 2 s.
    """
    (sin_ra, sin_dec), (cos_ra, cos_dec) = np.sin(direction), np.cos(direction)
    return np.array(
        [
            [-sin_ra, cos_ra, 0.0],
            [-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec],
            [cos_dec * cos_ra, cos_dec * sin_ra, sin_dec],
        ]
    )


def frame_of(table: CasaTable, column: str, row: int) -> str:
    """The frame of a direction, which the column's keywords or a column of codes or names say; upper case."""
    keywords = measure(table, column)
    reference = keywords.get("VarRefCol")
    if reference is None:
        return str(keywords.get("Ref", "J2000")).upper()
    code = table.getcell(reference, row)
    if isinstance(code, str):
        return code.upper()
    types = keywords.get("TabRefTypes", DIRECTION_FRAMES)
    codes = list(keywords.get("TabRefCodes", range(len(DIRECTION_FRAMES))))
    return str(types[codes.index(code)]).upper() if code in codes else f"code {code}"


def is_filled(ra: float, dec: float) -> bool:
    """Whether two angles, rad, can be a direction and are not the zeros of a cell that nobody filled."""
    return is_direction(ra, dec) and not (ra == 0.0 and dec == 0.0)


class FieldDirections:
    """Directions of FIELD.

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
        self.field, self.positions = field, positions
        self.dm = measures()
        self.dm.do_frame(self.dm.epoch(scale, f"{time / 86400:.12f}d"))
        known = positions[np.isfinite(positions).all(axis=1)]
        if len(known):
            self.dm.do_frame(self.dm.position("ITRF", *(f"{x:.6f}m" for x in known[0])))

    def to_j2000(self, frame: str, ra: float, dec: float) -> tuple[float, float]:
        """A direction in J2000, rad."""
        if frame in ("J2000", "ICRS"):
            return ra, dec
        direction = self.dm.measure(self.dm.direction(frame, f"{ra!r}rad", f"{dec!r}rad"), "J2000")
        return direction["m0"]["value"], direction["m1"]["value"]

    def terms(self, column: str, row: int) -> NDArray[np.float64]:
        """The polynomial in time of a direction, (n_term, 2), rad; empty where the cell has no value."""
        if column not in self.field.colnames() or not self.field.iscelldefined(column, row):
            return np.zeros((0, 2))
        return np.asarray(np.reshape(self.field.getcell(column, row), (-1, 2)), np.float64)

    def moves(self, row: int) -> bool:
        """Whether the phase centre of a field moves: by an ephemeris or by terms in time."""
        columns = self.field.colnames()
        if "EPHEMERIS_ID" in columns and int(self.field.getcell("EPHEMERIS_ID", row)) >= 0:
            return True
        return bool(self.terms("PHASE_DIR", row)[1:].any())

    def near(
        self, column: str, row: int, phase_centre: tuple[float, float], time: float
    ) -> tuple[tuple[float, float] | None, str | None]:
        """ICRS direction in a column at a time, or None where it is not filled in, and what is odd about it.

        Old converters leave a column in another frame than its keywords state. Where one of the usual frames
        makes it the phase centre, it is that.
        """
        terms, own = self.terms(column, row), self.terms("PHASE_DIR", row)
        if np.array_equal(terms, own):
            return phase_centre, None
        if not len(terms):
            return None, None
        since = time - float(self.field.getcell("TIME", row)) if len(terms) > 1 else 0.0
        ra, dec = (float(x) for x in (since ** np.arange(len(terms))) @ terms)
        if not is_filled(ra, dec):
            return None, None
        stated = frame_of(self.field, column, row)
        there = axes(phase_centre)[2]
        for frame in dict.fromkeys((stated, "J2000", "B1950", "B1950_VLA")):
            if frame not in {"J2000", "ICRS"} | FIXED_FRAMES | DATED_FRAMES:
                continue
            found = self.to_j2000(frame, ra, dec)
            if frame == stated:
                as_stated = found[0] % (2 * np.pi), found[1]
            if np.linalg.norm(axes(found)[2] - there) < SAME_PLACE:
                if frame == stated:
                    return as_stated, None
                return phase_centre, (
                    f"{column} is labelled {stated}, but its numbers are the phase centre in {frame}; biro "
                    f"reads it as {frame}"
                )
        if stated not in {"J2000", "ICRS"} | FIXED_FRAMES | DATED_FRAMES:
            return None, f"{column} is in the frame {stated}, which is not fixed on the sky"
        return as_stated, None
