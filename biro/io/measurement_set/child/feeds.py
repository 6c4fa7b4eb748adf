"""Mounts of antennas and angles of their feeds, from the subtables ANTENNA and FEED."""

from __future__ import annotations

import numpy as np

from biro.io.measurement_set.child.casacore_table import CasaTable


def mounts(antenna: CasaTable) -> list[str]:
    """The mount of each antenna as ANTENNA has it; empty where it says nothing."""
    if "MOUNT" not in antenna.colnames() or not antenna.nrows():
        return [""] * antenna.nrows()
    return list(map(str, antenna.getcol("MOUNT")))


def receptor_angles(feed: CasaTable, n_antenna: int, n_window: int) -> list[list[float | None]]:
    """RECEPTOR_ANGLE of the first receptor, rad, of each antenna in each spectral window.

    Window -1 stands for all. Of several rows for an antenna and a window the first counts, that of its first
    feed. None where there is no row, or no number in it.
    """
    found: list[list[float | None]] = [[None] * n_antenna for _ in range(n_window)]
    if not feed.nrows() or "RECEPTOR_ANGLE" not in feed.colnames():
        return found
    antennas, windows = feed.getcol("ANTENNA_ID"), feed.getcol("SPECTRAL_WINDOW_ID")
    for row, (antenna, window) in enumerate(zip(antennas, windows, strict=True)):
        if not (0 <= antenna < n_antenna and feed.iscelldefined("RECEPTOR_ANGLE", row)):
            continue
        angles = np.ravel(feed.getcell("RECEPTOR_ANGLE", row))
        if not (angles.size and np.isfinite(angles[0])):
            continue
        for each in range(n_window) if window < 0 else (int(window),):
            if each < n_window and found[each][antenna] is None:
                found[each][antenna] = float(angles[0])
    return found
