"""Where the dishes pointed in each field: POINTING where it is filled in, else REFERENCE_DIR or DELAY_DIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from casacore.measures import measures
from numpy.typing import NDArray

from biro.io.data_set.metadata import PointingMetadata
from biro.io.measurement_set.child.casacore_table import CasaTable
from biro.io.measurement_set.child.directions import FieldDirections, axes, frame_of, is_filled

Array = NDArray[np.float64]
STATIONS = (
    "LOFAR",
    "AARTFAAC",
    "NENUFAR",
    "MWA",
    "SKA-LOW",
    "SKA1-LOW",
    "LWA",
    "OVRO-LWA",
    "OVRO_MMA",
    "OSKAR",
)
"""Telescopes whose beams are formed towards DELAY_DIR."""
FARTHEST = np.deg2rad(10.0)
"""Farther from the phase centre no dish is taken to have pointed, rad; stations see the whole sky."""
MANY = 0.05
"""Share of times without pointing, as of slews, from which a note has it."""
SPEED_OF_LIGHT = 299792458.0
UNKNOWN_BEAM = np.deg2rad(1.0)
"""Width of a beam where no diameter of a dish is known, rad."""
SMALL = 1e-3
"""Fraction of a beam; antennas less apart point to one place: 0.3 % of the power at its half."""
UNSTEADY = 1e-2
"""Fraction of a beam; an antenna that moves by less about its mean stands still: no dish points better."""
MOST_TIMES = {True: 256, False: 1024}
"""Times of a field that are looked up, where directions have to be converted and where not."""


class PointingRows(NamedTuple):
    """Rows of POINTING of one antenna, in the order of time: MJD in s, numbers, half of INTERVAL in s."""

    time: Array
    number: NDArray[np.int64]
    half: Array


class ObservedTimes(NamedTuple):
    """When and with which antennas and dishes the rows of a field were observed.

    Attributes
    ----------
    times : float64 (n_time,), s
    antennas : int (n,)
    beam, smallest : float, rad
        Width of the beam at the lowest, and at the highest frequency.
    """

    times: Array
    antennas: NDArray[np.int64]
    beam: float
    smallest: float


class PointingTable:
    """The rows of POINTING, converted to ICRS where they are asked for.

    Parameters
    ----------
    table : table
        POINTING.
    positions : float64 (n_antenna, 3), m, ITRF
    scale : str
        Time scale of the main table.
    offset : float, s
        What is added to times of POINTING to have them on it.
    """

    def __init__(self, table: CasaTable, positions: Array, scale: str, offset: float) -> None:
        self._table, self._positions, self._scale = table, positions, scale
        names = table.colnames()
        self._time = np.asarray(table.getcol("TIME"), np.float64) + offset
        self._antenna = np.asarray(table.getcol("ANTENNA_ID"))
        interval = np.asarray(table.getcol("INTERVAL")) if "INTERVAL" in names else np.zeros(len(self._time))
        self._half = 0.5 * np.where(np.isfinite(interval) & (interval > 0.0), interval, 0.0)
        self._has_origin = "TIME_ORIGIN" in names
        self._offset = offset
        self._frame = frame_of(table, "DIRECTION", 0)
        self._measures = measures()
        self._rows: dict[int, PointingRows] = {}

    @property
    def n_antenna(self) -> int:
        """Antennas of the set."""
        return len(self._positions)

    @property
    def is_converted(self) -> bool:
        """Whether directions are in another frame than ICRS."""
        return self._frame not in ("J2000", "ICRS")

    def rows(self, antenna: int) -> PointingRows:
        """Rows of an antenna; those of antenna -1 belong to all."""
        if antenna in self._rows:
            return self._rows[antenna]
        own = np.flatnonzero(((self._antenna == antenna) | (self._antenna == -1)) & np.isfinite(self._time))
        own = own[np.argsort(self._time[own], kind="stable")]
        self._rows[antenna] = PointingRows(self._time[own], own, self._half[own])
        return self._rows[antenna]

    def towards(self, antenna: int, numbers: NDArray[np.int64], times: Array) -> tuple[Array, bool]:
        """Unit vectors (n, 3) of some rows, ICRS, and whether they are polynomials, taken at these times.

        They are NaN where nothing is filled in.
        """
        terms = self._terms(numbers)
        is_polynomial = terms.shape[1] > 1
        moment = times if is_polynomial else self._time[numbers]
        origin = np.asarray(self._time_origin(numbers)) if is_polynomial else moment
        powers = (moment - origin)[:, None] ** np.arange(terms.shape[1])
        angles = np.einsum("np,npk->nk", powers, terms)
        filled = np.array([is_filled(float(ra), float(dec)) for ra, dec in angles], bool)
        if self.is_converted:
            for i in np.flatnonzero(filled):
                angles[i] = self._converted(antenna, angles[i], moment[i])
        (sin_ra, sin_dec), (cos_ra, cos_dec) = np.sin(angles.T), np.cos(angles.T)
        vectors = np.stack([cos_dec * cos_ra, cos_dec * sin_ra, sin_dec], axis=-1)
        return np.where(filled[:, None], vectors, np.nan), is_polynomial

    def _terms(self, numbers: NDArray[np.int64]) -> Array:
        """Polynomials of some rows, (n, n_term, 2), rad; NaN where a cell has no value."""
        wanted, place = np.unique(numbers, return_inverse=True)
        try:
            found = np.asarray(self._table.selectrows(wanted).getcol("DIRECTION"), np.float64)
            return found.reshape(len(wanted), -1, 2)[place]
        except RuntimeError:  # casacore's, of cells without a value or of several shapes
            cells = [
                np.reshape(self._table.getcell("DIRECTION", int(i)), (-1, 2))
                if self._table.iscelldefined("DIRECTION", int(i))
                else np.full((1, 2), np.nan)
                for i in wanted
            ]
            most = max(map(len, cells))
            return np.array([np.pad(cell, ((0, most - len(cell)), (0, 0))) for cell in cells])[place]

    def _time_origin(self, numbers: NDArray[np.int64]) -> Array:
        """TIME_ORIGIN of some rows, on the time scale of the main table; TIME where it is not filled in."""
        own = self._time[numbers]
        if not self._has_origin:
            return own
        given = np.array([self._table.getcell("TIME_ORIGIN", int(i)) for i in numbers], np.float64)
        return np.where(given > 0.0, given + self._offset, own)

    def _converted(self, antenna: int, angles: Array, time: float) -> tuple[float, float]:
        frame = self._measures
        frame.do_frame(frame.epoch(self._scale, f"{time / 86400:.12f}d"))
        frame.do_frame(frame.position("ITRF", *(f"{x:.6f}m" for x in self._positions[antenna])))
        ra, dec = (f"{float(angle)!r}rad" for angle in angles)
        found = frame.measure(frame.direction(self._frame, ra, dec), "J2000")
        return found["m0"]["value"], found["m1"]["value"]


class SampledPointing(NamedTuple):
    """Directions of all antennas of a field at some times, (n_time, n_antenna, 3), and which are usable."""

    vector: Array
    covered: NDArray[np.bool_]
    usable: NDArray[np.bool_]
    nearest: float


def sampled(table: PointingTable, observed: ObservedTimes, times: Array, field: Array) -> SampledPointing:
    """What POINTING has at some times; usable is what lies within a beam of the field (a unit vector)."""
    shape = len(times), len(observed.antennas)
    vector, covered = np.full((*shape, 3), np.nan), np.zeros(shape, bool)
    least = np.cos(observed.beam)
    nearest = -1.0
    for i, antenna in enumerate(observed.antennas):
        rows = table.rows(int(antenna))
        if not rows.time.size:
            continue
        spacing = float(np.median(np.diff(rows.time))) if rows.time.size > 1 else 0.0
        reach = max(1.5 * spacing, float(rows.half.max())) or np.inf
        covered[:, i] = (times >= rows.time[0] - reach) & (times <= rows.time[-1] + reach)
        after = np.clip(np.searchsorted(rows.time, times), 0, len(rows.time) - 1)
        before = np.maximum(after - 1, 0)
        first, _ = table.towards(int(antenna), rows.number[before], times)
        last, is_polynomial = table.towards(int(antenna), rows.number[after], times)
        step = rows.time[after] - rows.time[before]
        share = np.clip((times - rows.time[before]) / np.where(step > 0.0, step, 1.0), 0.0, 1.0)
        share = share.round() if is_polynomial else share
        share = np.where(last @ field >= least, share, 0.0)  # one that is elsewhere is not mixed in
        share = np.where(first @ field >= least, share, 1.0)
        mixed = np.where(share[:, None] == 0.0, first, (1.0 - share[:, None]) * first + share[:, None] * last)
        mixed = np.where(share[:, None] == 1.0, last, mixed)
        vector[:, i] = mixed / np.linalg.norm(mixed, axis=-1, keepdims=True)
        if covered[:, i].any():
            nearest = max(nearest, float(np.nanmax(vector[covered[:, i], i] @ field, initial=-1.0)))
    usable = covered & (vector @ field >= least)
    return SampledPointing(vector, covered, usable, nearest)


def thinned(times: Array, most: int) -> Array:
    """Evenly so many of the times at most, the first and the last among them."""
    if len(times) <= most:
        return times
    return times[np.linspace(0, len(times) - 1, most).round().astype(np.int64)]


def of_table(
    table: PointingTable, observed: ObservedTimes, reference: Sequence[float]
) -> tuple[PointingMetadata | None, str | None]:
    """Where the dishes pointed by POINTING, or None, and what is odd about it.

    It holds for a field where it is filled in and lies within a beam of the reference direction.
    """
    times = thinned(observed.times, MOST_TIMES[table.is_converted])
    try:
        found = sampled(table, observed, times, axes((reference[0], reference[1]))[2])
    except RuntimeError as error:  # casacore's: of a frame that it does not know, or a damaged table
        return None, f"biro cannot use POINTING ({error})"
    if not found.usable.any():
        return None, _why_not(found, observed.beam)
    mean = found.vector[found.usable].mean(axis=0)
    centre = (
        float(np.arctan2(mean[1], mean[0]) % (2 * np.pi)),
        float(np.arctan2(mean[2], np.hypot(*mean[:2]))),
    )
    offset = np.where(found.usable[..., None], found.vector @ axes(centre)[:2].T, np.nan)
    with np.errstate(invalid="ignore"):
        total, number = np.nansum(offset, axis=0), found.usable.sum(axis=0)[:, None]
        steady = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    offset = np.where(np.isnan(offset), steady, offset)
    note = _gaps(found.usable)
    if np.abs(offset - steady).max() < UNSTEADY * observed.smallest:
        times, offset = times[:1], steady[None]
    if np.abs(offset).max() < SMALL * observed.smallest:
        return _steady(centre, "POINTING"), note
    whole = np.zeros((len(times), table.n_antenna, 2))
    whole[:, observed.antennas] = offset
    return {
        "centre": list(centre), "origin": "POINTING", "time": times.tolist(), "offset": whole.tolist()
    }, note  # fmt: skip


def _why_not(found: SampledPointing, beam: float) -> str:
    if not found.covered.any():
        return "biro does not use POINTING, which has no rows at these times"
    if found.nearest <= -1.0:
        return "biro does not use POINTING, which is not filled in (zeros or NaN)"
    apart = np.degrees(np.arccos(min(1.0, found.nearest)))
    return (
        f"biro does not use POINTING, which lies at least {apart:.3g} deg from the field, more than a beam "
        "of "
        f"{np.degrees(beam):.2g} deg"
    )


def _gaps(usable: NDArray[np.bool_]) -> str | None:
    lacking = int((~usable.any(axis=0)).sum())
    parts = []
    if lacking:
        parts.append(f"{lacking} of {usable.shape[1]} antennas (biro uses the mean of the others)")
    share = 1.0 - usable[:, usable.any(axis=0)].mean()
    if share > MANY:
        parts.append(f"{100 * share:.2g} % of the times of others (biro uses their own mean)")
    return (
        f"POINTING has no direction within a beam of the field for {' and '.join(parts)}" if parts else None
    )


def _steady(centre: tuple[float, float], origin: str) -> PointingMetadata:
    return {"centre": list(centre), "origin": origin, "time": [], "offset": []}


def of_field(
    directions: FieldDirections, row: int, phase_centre: tuple[float, float], telescope: str, middle: float
) -> tuple[PointingMetadata, str | None]:
    """Where the dishes pointed by FIELD, and what is odd about it.

    REFERENCE_DIR is where dishes, DELAY_DIR where stations point. One that is not filled in, or of dishes far
    from the phase centre, leaves the other, and then the phase centre. A field that moves is taken to be
    pointed at its phase centre.
    """
    if directions.moves(row):
        return _steady(phase_centre, "the field moves"), None
    columns = ["REFERENCE_DIR", "DELAY_DIR"]
    if is_station(telescope):
        columns.reverse()
    odd = []
    for column in columns:
        found, note = directions.near(column, row, phase_centre, middle)
        if found is None:
            odd.append(note or f"{column} is not filled in")
            continue
        apart = float(np.arccos(np.clip(axes(found)[2] @ axes(phase_centre)[2], -1.0, 1.0)))
        if apart < FARTHEST or is_station(telescope):
            return _steady(found, column), note
        odd.append(
            f"biro does not use {column}, which lies {np.degrees(apart):.3g} deg from the phase centre"
        )
    return _steady(phase_centre, "PHASE_DIR"), "; ".join(odd)


def is_station(telescope: str) -> bool:
    """Whether a telescope has stations that form beams, by its name."""
    return telescope.strip().upper() in STATIONS


def beam_widths(diameters: Array, freq: Array) -> tuple[float, float]:
    """1.22 lambda / D at the lowest frequency, and at the highest with the largest dish, rad."""
    known = diameters[np.isfinite(diameters) & (diameters > 0.0)]
    freq = freq[np.isfinite(freq) & (freq > 0.0)]
    if not known.size or not freq.size:
        return UNKNOWN_BEAM, UNKNOWN_BEAM
    widths = 1.22 * SPEED_OF_LIGHT / (np.array([freq.min(), freq.max()]) * (np.median(known), known.max()))
    return float(min(widths[0], np.pi / 2)), float(min(widths[1], np.pi / 2))
