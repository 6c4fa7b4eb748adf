"""How many of the residuals are independent, and whether a component lowers chi2 by more than chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.visibility_data import VisibilityData

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
LEAST_BLOCKS = 30
"""Blocks of residuals of which a variance is taken, at least."""


class Coherence:
    """Measures how far residuals of neighbouring times, channels and windows go together.

    Parameters
    ----------
    data : VisibilityData
    """

    def __init__(self, data: VisibilityData) -> None:
        self._root = np.concatenate([chunk.root for chunk in data.chunks])
        baseline, time = (
            np.concatenate([getattr(chunk, name) for chunk in data.chunks]) for name in ("baseline", "time")
        )
        self._baseline, self._slot = (np.unique(x, return_inverse=True)[1].ravel() for x in (baseline, time))
        self.n_baseline = int(self._baseline.max()) + 1

    def by_baseline(self, residual: Sequence[Vis]) -> Array:
        """chi2 of each baseline, (n_baseline,)."""
        z = np.concatenate(residual) * self._root
        chi2 = np.bincount(self._baseline, z.real**2 + z.imag**2, self.n_baseline)
        return chi2.astype(np.float64, copy=False)

    def __call__(self, residual: Sequence[Vis], model: Sequence[Vis] = ()) -> float:
        """How many residuals count as one.

            max over t of   sum over blocks |sum in a block of z|^2 / sum |z|^2,      z = r / sigma

        where a block is what a baseline has, in all channels and windows, in t neighbouring times: 1 for
        noise, and the number of residuals in a block where these are equal. What two standard deviations of
        chance would give is taken off, and the larger value is taken of the residuals themselves, as a
        source near the phase centre makes them, and of r V* / |V|, as errors of gains make them.

        Parameters
        ----------
        residual, model : sequence of complex128 (n_row, n_chan), Jy
            Data - V, and V, in the order of the chunks.
        """
        z = np.concatenate(residual) * self._root
        sides = [z, z * np.exp(-1j * np.angle(np.concatenate(model)))] if model else [z]
        total = float((z.real**2 + z.imag**2).sum())
        if not total > 0.0:
            return 1.0
        n_slot, largest, length = int(self._slot.max()) + 1, 1.0, 1
        while length <= 2 * n_slot:
            block = self._baseline * (n_slot // length + 1) + self._slot // length
            _, index = np.unique(block, return_inverse=True)
            n_block = int(index.max()) + 1
            if n_block < min(LEAST_BLOCKS, len(z)):
                break
            powers = [
                sum(float((np.bincount(index, x, n_block) ** 2).sum()) for x in (side.real, side.imag))
                for side in sides
            ]
            largest = max(largest, max(powers) / total / (1.0 + 2.0 / np.sqrt(n_block)))
            length *= 2
        return largest
