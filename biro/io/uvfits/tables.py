"""Antennas, frequencies and sources of a UVFITS file: its tables AIPS AN, AIPS FQ and AIPS SU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError
from biro.io.uvfits.header import GroupAxis
from biro.observation.feeds.mounts import UVFITS_MOUNTS

if TYPE_CHECKING:
    from astropy.io.fits import BinTableHDU, FITS_rec, HDUList, Header

EARTH_CENTRE = 1000.0
"""Antenna positions are geocentric where the array's centre is nearer than this to the Earth's, m."""


@dataclass(frozen=True)
class AntennaTable:
    """Antennas of all subarrays; one that several subarrays share is there once.

    Attributes
    ----------
    names : list of str
    positions : float64 (n_antenna, 3), m, ITRF
    diameters : float64 (n_antenna,), m
        0 where it is not known.
    numbers : dict
        Index of an antenna by subarray (from 1) and number of the station.
    time_system : str or None
        "UTC" or "TAI"; None where no table says.
    array : str
        Name of the array.
    mounts : list of str
        Empty where no number says.
    receptor_angles : list of float, rad
        Of the first receptor.
    """

    names: list[str]
    positions: NDArray[np.float64]
    diameters: NDArray[np.float64]
    numbers: dict[tuple[int, int], int]
    time_system: str | None
    array: str
    mounts: list[str]
    receptor_angles: list[float]


@dataclass(frozen=True)
class FrequencyWindow:
    """Frequencies of one IF under one frequency id.

    Attributes
    ----------
    chan_freq, chan_width : float64 (n_chan,), Hz
    """

    chan_freq: NDArray[np.float64]
    chan_width: NDArray[np.float64]


@dataclass(frozen=True)
class SourceRow:
    """A row of AIPS SU: name, right ascension and declination in deg, and the equinox of these.

    `pointing` is where the dishes pointed, likewise; None where the table has no such columns.
    """

    name: str
    ra: float
    dec: float
    equinox: float
    has_offset: bool
    pointing: tuple[float, float] | None = None


def find_tables(hdus: HDUList, name: str) -> list[BinTableHDU]:
    """The tables of a name, in the order of their versions."""
    found = [hdu for hdu in hdus[1:] if str(hdu.header.get("EXTNAME", "")).strip().upper() == name]
    return sorted(found, key=lambda hdu: _version(hdu.header))


def _version(header: Header) -> int:
    version = header.get("EXTVER", 1)
    return version if isinstance(version, int) else 1


def read_antennas(tables: list[BinTableHDU]) -> AntennaTable:
    """Antennas of the tables AIPS AN, of which each subarray has its own.

    Positions are relative to the array's centre. Where that is on the Earth's surface, their x points to the
    local meridian, so that they are turned by its longitude; where it is the Earth's centre, they are
    geocentric as they stand. XYZHAND = LEFT turns y round.

    Raises
    ------
    DataError
        No such table, or one without antennas.
    """
    if not tables:
        raise DataError("no table AIPS AN, which lists the antennas")
    known: dict[tuple[str, tuple[float, ...]], int] = {}
    numbers: dict[tuple[int, int], int] = {}
    stations: list[int] = []
    diameters: list[float] = []
    mounts: list[str] = []
    angles: list[float] = []
    for table in tables:
        subarray = _version(table.header)
        rows = table.data
        if rows is None or len(rows) == 0:
            raise DataError(f"table AIPS AN {subarray} has no antennas")
        positions = _geocentric(np.asarray(rows["STABXYZ"], np.float64).reshape(-1, 3), table.header)
        sizes = np.asarray(rows["DIAMETER"], float) if "DIAMETER" in rows.names else np.zeros(len(rows))
        kinds, receptors = _mounts(rows), _receptor_angles(rows)
        for i, station in enumerate(np.asarray(rows["NOSTA"]).tolist()):
            # What follows a NUL is no part of the name: it is what was in the writer's memory.
            key = (str(rows["ANNAME"][i]).partition("\0")[0].strip(), tuple(positions[i].tolist()))
            if key not in known:
                known[key] = len(known)
                stations.append(int(station))
                diameters.append(float(sizes[i]) if sizes[i] > 0 else 0.0)
                mounts.append(kinds[i])
                angles.append(receptors[i])
            numbers[subarray, int(station)] = known[key]
    names = [name for name, _ in known]
    return AntennaTable(
        # Stations without a name, or with one that several have, go by their number.
        [name if name and names.count(name) == 1 else str(stations[i]) for i, name in enumerate(names)],
        np.array([position for _, position in known]),
        np.array(diameters),
        numbers,
        _time_system(tables[0].header),
        str(tables[0].header.get("ARRNAM", "")).strip(),
        mounts,
        angles,
    )


def _mounts(rows: FITS_rec) -> list[str]:
    """The mount of each antenna by its number MNTSTA; empty where there is none."""
    if "MNTSTA" not in rows.names:
        return [""] * len(rows)
    numbers = np.asarray(rows["MNTSTA"], np.int64).reshape(len(rows), -1)[:, 0].tolist()
    return [UVFITS_MOUNTS[i] if 0 <= i < len(UVFITS_MOUNTS) else f"MNTSTA {i}" for i in numbers]


def _receptor_angles(rows: FITS_rec) -> list[float]:
    """POLAA of each antenna, the angle of its first receptor, rad; 0 where it is no number."""
    if "POLAA" not in rows.names:
        return [0.0] * len(rows)
    degrees = np.asarray(rows["POLAA"], np.float64).reshape(len(rows), -1)
    first = degrees[:, 0] if degrees.shape[1] else np.zeros(len(rows))
    return list(map(float, np.radians(np.where(np.isfinite(first), first, 0.0))))


def _geocentric(positions: NDArray[np.float64], header: Header) -> NDArray[np.float64]:
    centre = np.array([_keyword(header, f"ARRAY{axis}") for axis in "XYZ"])
    if str(header.get("XYZHAND", "RIGHT")).strip().upper() == "LEFT":
        positions = positions * (1.0, -1.0, 1.0)
    if np.abs(centre).max() < EARTH_CENTRE:
        return np.asarray(positions + centre, np.float64)
    longitude = math.atan2(centre[1], centre[0])
    c, s = math.cos(longitude), math.sin(longitude)
    turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    return np.asarray(positions @ turn + centre, np.float64)


def _keyword(header: Header, name: str) -> float:
    value = header.get(name, 0.0)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _time_system(header: Header) -> str | None:
    """Time system of the dates; AIPS has called the keyword TIMSYS and TIMESYS."""
    text = str(header.get("TIMESYS", header.get("TIMSYS", ""))).strip().upper()
    systems = {"UTC": "UTC", "IAT": "TAI", "TAI": "TAI"}
    if text and text not in systems:
        raise DataError(f"time system {text!r} in table AIPS AN; expected UTC or IAT")
    return systems.get(text)


def read_windows(tables: list[BinTableHDU], freq: GroupAxis, n_if: int) -> dict[int, list[FrequencyWindow]]:
    """Spectral windows by frequency id: the axis FREQ, shifted by the offset of each IF in AIPS FQ.

    A width of channels in AIPS FQ goes before the step of the axis; SIDEBAND = -1 makes it negative.

    Raises
    ------
    DataError
        No such table where there are several IFs, or one with another number of IFs.
    """
    if not tables:
        if n_if > 1:
            raise DataError(f"{n_if} IFs, but no table AIPS FQ, which gives their frequencies")
        return {1: [_window(freq, 0.0, freq.step)]}
    rows = tables[0].data
    if rows is None or len(rows) == 0:
        raise DataError("table AIPS FQ has no rows")
    windows: dict[int, list[FrequencyWindow]] = {}
    for i in range(len(rows)):
        offset, width, sideband = (
            np.atleast_1d(np.asarray(rows[name][i], np.float64))
            for name in ("IF FREQ", "CH WIDTH", "SIDEBAND")
        )
        if not len(offset) == len(width) == len(sideband) == n_if:
            raise DataError(f"table AIPS FQ has {len(offset)} IFs, but the groups have {n_if}")
        width = np.where((sideband < 0) & (width > 0), -width, width)
        windows[int(rows["FRQSEL"][i])] = [
            _window(freq, float(o), float(w) if w else freq.step) for o, w in zip(offset, width, strict=True)
        ]
    return windows


def _window(freq: GroupAxis, offset: float, width: float) -> FrequencyWindow:
    chan_freq = (np.arange(1.0, freq.length + 1.0) - freq.pixel) * width + (freq.value + offset)
    if not (np.isfinite(chan_freq).all() and (chan_freq > 0).all()):
        raise DataError(f"frequencies from {chan_freq[0]:g} to {chan_freq[-1]:g} Hz; expected positive ones")
    return FrequencyWindow(chan_freq, np.full(freq.length, width))


def read_sources(tables: list[BinTableHDU]) -> Mapping[int, SourceRow]:
    """Sources of the table AIPS SU by number; none for a file of one source, which has no such table."""
    sources: dict[int, SourceRow] = {}
    for table in tables[:1]:
        rows = table.data
        names = {name.strip().upper(): name for name in rows.names}
        for row in rows:
            value = {key: row[names[key]] for key in ("ID. NO.", "SOURCE", "RAEPO", "DECEPO", "EPOCH")}
            offset = np.asarray(row[names["FREQOFF"]], float) if "FREQOFF" in names else np.zeros(1)
            sources[int(value["ID. NO."])] = SourceRow(
                str(value["SOURCE"]).strip(),
                float(value["RAEPO"]),
                float(value["DECEPO"]),
                float(value["EPOCH"]),
                bool(np.any(offset != 0)),
                (float(row[names["RAOBS"]]), float(row[names["DECOBS"]]))
                if {"RAOBS", "DECOBS"} <= names.keys()
                else None,
            )
    return sources
