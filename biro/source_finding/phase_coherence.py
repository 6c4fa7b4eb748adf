"""Whether the phases of the antennas are calibrated, told from the phases of visibilities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.fitting.gain_errors import GAP
from biro.source_finding.fitting.visibility_data import VisibilityData

LEAST = 3.0
"""Signal-to-noise ratio of the visibilities whose phases are used."""
N_GRID, N_PIXEL = 128, 512
"""Cells of the uv plane across, and pixels of the image, of an eighth of a beam: it reaches 32 beams out."""
ROUNDS = 60
"""Steps in which phases of antennas approach the best ones."""
EXPLAINED, COHERENT = 0.7, 0.5
"""Mean cosine that free phases reach at least, and the fraction of it that they are needed for above."""
Phases = NDArray[np.complex128]
Index = NDArray[np.int64]


class PhaseCoherence(NamedTuple):
    """Mean cosine of the phases of visibilities relative to those of a point source, each baseline alike.

    Attributes
    ----------
    calibrated : float
        The highest of all positions.
    with_free_phases : float
        With a phase of each antenna in each scan, of a source close to the phase centre.
    """

    calibrated: float
    with_free_phases: float

    def remark(self) -> str:
        """A line where phases are not calibrated, with what to do; "" where that is not seen."""
        if not (self.with_free_phases > EXPLAINED and self.calibrated < COHERENT * self.with_free_phases):
            return ""
        return (
            "The phases of the antennas are not calibrated: relative to a point source, their mean cosine is "
            f"{self.calibrated:.2f}, but {self.with_free_phases:.2f} with a free phase of each antenna in "
            "each scan. Self-calibrate first, or write a model and fit closures (biro fit --gains closures)"
        )


def phase_coherence(data: VisibilityData) -> PhaseCoherence | None:
    """Compare the phases of visibilities with those of a point source, with and without phases of antennas.

    None where closures are fewer than phases of antennas: these may then be anything.

    Parameters
    ----------
    data : VisibilityData
    """
    names = ("vis", "root", "antenna1", "antenna2", "time")
    vis, root, first, second, time = (
        np.concatenate([getattr(chunk, name) for chunk in data.chunks]) for name in names
    )
    used = (first != second) & (np.abs(vis * root) > LEAST)
    if not used.any():
        return None
    vis, first, second, time = vis[used], first[used], second[used], time[used]
    u, v, _ = np.concatenate([chunk.uvw for chunk in data.chunks], axis=1)[:, used]
    antennas, ends = np.unique(np.concatenate([first, second]), return_inverse=True)
    first, second = np.split(ends.ravel(), 2)
    _, baseline, count = np.unique(first * len(antennas) + second, return_inverse=True, return_counts=True)
    if len(count) < 2 * len(antennas):
        return None
    phases = vis / np.abs(vis) / (count[baseline.ravel()] * len(count))
    return PhaseCoherence(
        _best_position(phases, u, v), _free_phases(phases, first, second, _scans(time), len(antennas))
    )


def _scans(time: NDArray[np.float64]) -> Index:
    """Number of the scan of each time; gaps in time part scans."""
    times, slot = np.unique(time, return_inverse=True)
    spacing = np.diff(times)
    is_gap = spacing > GAP * np.median(spacing) if spacing.size else np.zeros(0, bool)
    return np.asarray(np.concatenate([[0], np.cumsum(is_gap)])[slot.ravel()])


def _best_position(phases: Phases, u: NDArray[np.float64], v: NDArray[np.float64]) -> float:
    """The highest value of the image of the phases."""
    cell = 2.0 * np.hypot(u, v).max() / N_GRID
    grid = np.zeros((N_PIXEL, N_PIXEL), np.complex128)
    places = tuple(np.rint(x / cell).astype(np.int64) % N_PIXEL for x in (u, v))
    np.add.at(grid, places, phases)
    return float(np.fft.fft2(grid).real.max())


def _free_phases(phases: Phases, first: Index, second: Index, scan: Index, n_antenna: int) -> float:
    """The sum of phases after those of antennas in each scan are taken off, by power iteration."""
    gains = np.ones((int(scan.max()) + 1, n_antenna), np.complex128)
    for _ in range(ROUNDS):
        best = np.zeros_like(gains)
        np.add.at(best, (scan, first), phases * gains[scan, second])
        np.add.at(best, (scan, second), phases.conj() * gains[scan, first])
        size = np.abs(best)
        best = np.divide(best, size, out=gains.copy(), where=size > 0.0) + 0.5 * gains
        gains = best / np.maximum(np.abs(best), 1e-12)
    return float(np.sum(phases * gains[scan, first].conj() * gains[scan, second]).real)
