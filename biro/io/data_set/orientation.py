"""The sign of UVW against antenna positions, times and phase centres."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.io.data_set.index import PartitionRows, RowIndex

MOST_ROWS = 1 << 20
"""Rows that are looked at."""
NEAR = 0.1
"""A baseline is that of the antennas where it differs by less than this part of its length."""
LEAST_LENGTH = 0.3
"""Baselines whose projection on u and v is shorter than this part of their length are passed over."""
NEARLY_ALL = 0.95
J2000, DAY = 51544.5, 86400.0
FROM_FIRST_TO_SECOND = ("LOFAR", "WSRT")
"""Telescopes whose UVW is antenna 2 minus antenna 1, and whose visibilities go with it (measured)."""


def projected(
    offset: NDArray[np.float64], time: NDArray[np.float64], direction: Sequence[float]
) -> NDArray[np.float64]:
    """u and v of vectors between antennas, float64 (n, 2), m, to about 1 % of their length.

    Thompson, Moran & Swenson, "Interferometry and Synthesis in Radio Astronomy", equation 4.1, with the
    rotation angle of the Earth (IERS conventions 2010, equation 5.15); precession is left out.

    Parameters
    ----------
    offset : float64 (n, 3), m, ITRF
    time : float64 (n,), s
        MJD, UTC.
    direction : (ra, dec), rad
        ICRS.
    """
    turns = 0.7790572732640 + 1.00273781191135448 * (time / DAY - J2000)
    hour_angle = 2.0 * np.pi * (turns % 1.0) - direction[0]
    sin, cos = np.sin(hour_angle), np.cos(hour_angle)
    x, y, z = offset.T
    u = sin * x + cos * y
    v = np.sin(direction[1]) * (sin * y - cos * x) + np.cos(direction[1]) * z
    return np.stack([u, v], axis=1)


def sign_of_rows(index: RowIndex, part: PartitionRows) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Rows of a partition that can be judged, and the sign of their UVW against antenna 1 minus antenna 2.

    The sign is 0 where UVW is neither of the two.
    """
    columns = index.columns
    rows = part.rows[:: max(1, part.rows.size // MOST_ROWS)]
    positions = np.array(index.metadata["antenna_positions"], np.float64).reshape(-1, 3)
    offset = positions[columns.antenna1[rows]] - positions[columns.antenna2[rows]]
    time = columns.time[rows] + index.metadata["utc_offset"]
    expected = projected(offset, time, index.metadata["fields"][part.field_id]["direction"])
    uv, length = columns.uvw[rows][:, :2], np.linalg.norm(offset, axis=1)
    is_long = (np.linalg.norm(expected, axis=1) > LEAST_LENGTH * length) & uv.any(axis=1)
    is_long &= length > 0.0
    sign = np.zeros(rows.size, np.int8)
    for each in (1, -1):
        sign[np.linalg.norm(uv - each * expected, axis=1) < NEAR * length] = each
    return rows[is_long], sign[is_long]


def sign_notes(index: RowIndex, parts: Sequence[PartitionRows], convention: str = "casa") -> list[str]:
    """What is odd about the sign of UVW, where antennas, times and phase centres agree with it otherwise.

    Both signs are in use, and visibilities that go with either (physics: section 2): geometry alone cannot
    tell whether the sign is right. It can tell that rows of one set have different signs.
    """
    found = [sign_of_rows(index, part) for part in parts]
    rows, sign = (np.concatenate(each) for each in zip(*found, strict=True))
    n_plus, n_minus = int(np.count_nonzero(sign == 1)), int(np.count_nonzero(sign == -1))
    if n_plus + n_minus < max(1.0, NEARLY_ALL * sign.size):
        return []
    if n_plus and n_minus:
        odd = rows[sign == (1 if n_plus < n_minus else -1)]
        return [
            f"UVW of {odd.size} of {rows.size} rows has the opposite sign to the others, compared with "
            "antenna "
            f"positions, times and the phase centre (first row {odd[0]}). Correct UVW, or flag these rows"
        ]
    is_usual = any(name in index.metadata["telescope"].upper() for name in FROM_FIRST_TO_SECOND)
    if n_minus and convention == "casa" and not is_usual:
        return [
            "the sign of UVW is opposite to that of antenna 1 minus antenna 2, which CASA and AIPS write "
            "(computed from antenna positions, times and the phase centre). If the image comes out rotated "
            "by "
            '180 deg, read the data with --convention fourier (convention="fourier" in Python)'
        ]
    return []
