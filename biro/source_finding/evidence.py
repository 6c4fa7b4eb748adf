"""Whether a change of the components lowers chi2 by more than chance and errors of calibration do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.gain_errors import Explained, GainErrors
from biro.source_finding.source_fit import Fit
from biro.source_finding.visibility_data import VisibilityData

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
LEAST_BLOCKS = 30
"""Blocks of residuals of which a variance is taken, at least."""
LEAST_BASELINES = 4
"""Where there are so many baselines, a source must be seen on more than one."""


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


@dataclass(frozen=True, eq=False)
class Judged:
    """A fit, and how its residuals are explained.

    Attributes
    ----------
    fit : Fit
    explained : Explained
    by_baseline : float64 (n_baseline,)
        chi2 of each baseline.
    """

    fit: Fit
    explained: Explained
    by_baseline: Array


class Evidence:
    """What residuals say for or against components.

    Parameters
    ----------
    data : VisibilityData
    """

    def __init__(self, data: VisibilityData) -> None:
        self._data, self._gains, self._coherence = data, GainErrors(data), Coherence(data)

    def judge(self, fit: Fit) -> Judged:
        """A fit with the likelihood of its residuals."""
        residual = self._data.residual(fit.components)
        model = [chunk.vis - left for chunk, left in zip(self._data.chunks, residual, strict=True)]
        return Judged(fit, self._gains(residual, model), self._coherence.by_baseline(residual))

    def coherence(self, judged: Judged) -> float:
        """How many residuals are alike once the errors of gains are taken out; 1 for noise."""
        return self._coherence(judged.explained.left)

    def gain(self, before: Judged, after: Judged) -> float:
        """2 ln of the likelihood ratio of two fits.

        The part of it that the baseline has which says most for the second fit is left out where there are
        several: all see a source, and one may be wrong. This is not asked of the first source, which is what
        all the flux of a short baseline tells of.
        """
        gain = before.explained.minus_2_log - after.explained.minus_2_log
        if len(before.by_baseline) < LEAST_BASELINES or not before.fit.components or gain <= 0.0:
            return gain
        drop = np.maximum(before.by_baseline - after.by_baseline, 0.0)
        return gain * (1.0 - float(drop.max() / drop.sum())) if drop.any() else 0.0

    def needed(self, n_param: int, n_source: int, n_beam: float, coherence: float = 1.0) -> float:
        """What `gain` / coherence must be above: Bayesian information criterion, and the choice of a place.

        n ln(2N / coherence) for n parameters, and 2 ln(number of beams) for each new source, whose peak was
        the highest of so many.
        """
        n = max(2.0 * self._data.n_vis / coherence, np.e)
        return float(n_param * np.log(n) + 2.0 * n_source * np.log(max(n_beam, 1.0)))
