"""How many of the residuals are independent, and whether a component lowers chi2 by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.visibility_data import VisibilityData

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
LEAST_BLOCKS = 30
"""Blocks of residuals of which a variance is taken, at least."""
LEAST_BASELINES = 4
"""Where there are so many baselines, a source must be seen on more than one."""


@dataclass(frozen=True)
class Evidence:
    """What a change of chi2 says for or against parameters.

    Attributes
    ----------
    n_vis : int
        Number of complex visibilities.
    coherence : float
        How many neighbouring residuals, in the mean, go up and down together; 1 for noise.
    n_beam : float
        Number of beams in the image, among which a new source was chosen.
    """

    n_vis: int
    coherence: float
    n_beam: float = 1.0

    def gain(self, before: Array, after: Array, *, is_first: bool = False) -> float:
        """2 ln of the likelihood ratio of two fits, each with noise as large as its residuals.

        Of residuals that go together in groups of `coherence`, so many count as one. The baseline that says
        most for the second fit is left out where there are several: all see a source, and one may be wrong.
        This is not asked of the first source, which is what all the flux of a short baseline tells of.

        Parameters
        ----------
        before, after : float64 (n_baseline,)
            chi2 of each baseline.
        is_first : bool
            The first fit is that of no source.
        """
        used = np.ones(len(before), bool)
        if len(before) >= LEAST_BASELINES and not is_first:
            used[np.argmax(before - after)] = False
        n, old, new = 2.0 * self.n_vis / self.coherence, before[used].sum(), after[used].sum()
        if not new > 0.0:
            return float("inf") if old > 0.0 else 0.0
        return float(n * np.log(old / new))

    def needed(self, n_param: int, *, n_source: int = 0) -> float:
        """What `gain` must be above: the Bayesian information criterion, and the choice of a place.

        n ln(2N / coherence) for n parameters, and 2 ln(number of beams) for each new source, whose peak was
        the highest of so many.
        """
        n = max(2.0 * self.n_vis / self.coherence, np.e)
        return float(n_param * np.log(n) + 2.0 * n_source * np.log(max(self.n_beam, 1.0)))


class Coherence:
    """Measures how far residuals of neighbouring times, channels and windows go together.

    Parameters
    ----------
    data : VisibilityData
    """

    def __init__(self, data: VisibilityData) -> None:
        baseline = [np.repeat(chunk.baseline, chunk.vis.shape[1]) for chunk in data.chunks]
        time = [np.repeat(chunk.time, chunk.vis.shape[1]) for chunk in data.chunks]
        self._root = [chunk.root for chunk in data.chunks]
        used = np.concatenate([root.ravel() for root in self._root]) > 0.0
        self._used, self._baseline = used, np.unique(np.concatenate(baseline)[used], return_inverse=True)[1]
        self.n_baseline = int(self._baseline.max()) + 1
        self._slot = np.unique(np.concatenate(time)[used], return_inverse=True)[1]

    def by_baseline(self, residual: Sequence[Vis]) -> Array:
        """chi2 of each baseline, (n_baseline,)."""
        power = [((r.real**2 + r.imag**2) * w**2).ravel() for r, w in zip(residual, self._root, strict=True)]
        chi2 = np.bincount(self._baseline, np.concatenate(power)[self._used], self.n_baseline)
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
        z = np.concatenate([(r * root).ravel() for r, root in zip(residual, self._root, strict=True)])
        phase = np.concatenate([np.exp(-1j * np.angle(vis)).ravel() for vis in model or residual])
        z, turned = z[self._used], (z * phase)[self._used]
        sides = [z, turned] if model else [z]
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


def significance(value: Array, covariance: Array) -> float:
    """x^T C^-1 x."""
    return float(value @ np.linalg.pinv(covariance, hermitian=True) @ value)
