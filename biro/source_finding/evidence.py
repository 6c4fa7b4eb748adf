"""Whether a change of the components lowers chi2 by more than chance and errors of calibration do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.coherence import Coherence
from biro.source_finding.gain_errors import Explained, GainErrors
from biro.source_finding.source_fit import Fit
from biro.source_finding.visibility_data import VisibilityData

Array = NDArray[np.float64]
LEAST_BASELINES = 4
"""Where there are so many baselines, a source must be seen on more than one."""


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
