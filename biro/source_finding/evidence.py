"""Whether a change of the components lowers chi2 by more than chance and errors of calibration do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.changes import ModelChange
from biro.source_finding.fitting.component import Component, n_param
from biro.source_finding.fitting.gain_errors import Explained, GainErrors
from biro.source_finding.fitting.gain_noise import GainNoise
from biro.source_finding.fitting.source_fit import ComponentFit
from biro.source_finding.fitting.visibility_data import VisibilityData

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

    def __call__(self, residual: Sequence[Vis]) -> float:
        """How many residuals count as one.

            max over t of   sum over blocks |sum in a block of z|^2 / sum |z|^2,      z = r / sigma

        where a block is what a baseline has, in all channels and windows, in t neighbouring times: 1 for
        noise, and the number of residuals in a block where these are equal. What two standard deviations of
        chance would give is taken off.

        Parameters
        ----------
        residual : sequence of complex128 (n_row, n_chan), Jy
            Data - V, in the order of the chunks.
        """
        z = np.concatenate(residual) * self._root
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
            power = sum(float((np.bincount(index, x, n_block) ** 2).sum()) for x in (z.real, z.imag))
            largest = max(largest, power / total / (1.0 + 2.0 / np.sqrt(n_block)))
            length *= 2
        return largest


@dataclass(frozen=True, eq=False)
class Judged:
    """A fit, and how likely its residuals are.

    Attributes
    ----------
    fit : ComponentFit
    minus_2_log : float
        -2 ln L with errors of gains integrated out, without a constant.
    by_baseline : float64 (n_baseline,)
        chi2 of each baseline.
    """

    fit: ComponentFit
    minus_2_log: float
    by_baseline: Array

    @property
    def components(self) -> tuple[Component, ...]:
        """The components that were fitted."""
        return self.fit.components


class DetectionEvidence:
    """How far residuals speak for or against components.

    Parameters
    ----------
    data : VisibilityData
    beam_size : float, rad
    n_beam : float
        Number of beams in the image.
    with_gains : bool
        Whether gains may have errors.

    Attributes
    ----------
    gains : GainErrors
    """

    def __init__(
        self, data: VisibilityData, beam_size: float = 1.0, n_beam: float = 1.0, *, with_gains: bool = True
    ) -> None:
        self._data, self._coherence = data, Coherence(data)
        self.gains = GainErrors(data, any_at_all=with_gains)
        self._beam_size, self._n_beam = beam_size, n_beam

    def explain(self, fit: ComponentFit) -> Explained:
        """The residuals of a fit as noise and errors of gains."""
        residual = self._data.residual(fit.components)
        return self.gains(residual, self._model(residual))

    def judge(self, fit: ComponentFit) -> Judged:
        """A fit with the likelihood of its residuals."""
        residual = self._data.residual(fit.components)
        likely = self.gains(residual, self._model(residual)).minus_2_log
        return Judged(fit, likely, self._coherence.by_baseline(residual))

    def learn(self, fit: ComponentFit) -> GainNoise | None:
        """Estimate each antenna's errors of gains from a fit; the covariance with these."""
        residual = self._data.residual(fit.components)
        model = self._model(residual)
        self.gains.learn(self.gains(residual, model))
        return self.gains.noise_of(self.gains(residual, model), model)

    def coherence(self, explained: Explained) -> float:
        """How many residuals are alike once the errors of gains are taken out; 1 for noise."""
        return self._coherence(explained.left)

    def gain(self, before: Judged, after: Judged) -> float:
        """2 ln of the likelihood ratio of two fits.

        The part of it that the baseline has which says most for the second fit is left out where there are
        several: all see a source, and one may be wrong. This is not asked of the first source, which is what
        all the flux of a short baseline tells of.
        """
        gain = before.minus_2_log - after.minus_2_log
        if len(before.by_baseline) < LEAST_BASELINES or not before.components or gain <= 0.0:
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

    def surplus(self, before: Judged, after: Judged, n_source: int, coherence: float = 1.0) -> float:
        """By how much the evidence for a fit is above what its further parameters need."""
        n_param, n_beam = after.fit.n_param - before.fit.n_param, self.beams(after.components)
        return self.gain(before, after) / coherence - self.needed(n_param, n_source, n_beam, coherence)

    def score(self, judged: Judged, coherence: float) -> float:
        """-2 ln of the evidence for a model; the lowest is the best."""
        n_beam = self.beams(judged.components)
        needed = self.needed(judged.fit.n_param, len(judged.components), n_beam, coherence)
        return judged.minus_2_log / coherence + needed

    def promise(self, change: ModelChange) -> float:
        """How good a change is while the other components are held; the lowest is the best."""
        n = sum(n_param(component, self._data.spectral) for component in change.components)
        needed = self.needed(n, change.n_new, self.beams(change.components))
        return 2.0 * self._data.n_vis * float(np.log(max(change.chi2, 1e-300))) + needed

    def beams(self, components: Sequence[Component]) -> float:
        """Number of beams among which the place of a new component was chosen.

        Those in the circle about the brightest that holds all, or all of the image where there is but one.
        """
        if len(components) < 2:
            return self._n_beam
        place = max(components, key=lambda component: component.flux).lm
        radius = max(np.hypot(c.lm[0] - place[0], c.lm[1] - place[1]) for c in components)
        return float(min(1.0 + np.pi * (radius / self._beam_size) ** 2, self._n_beam))

    def _model(self, residual: Sequence[Vis]) -> list[Vis]:
        """The model that leaves these residuals."""
        return [chunk.vis - left for chunk, left in zip(self._data.chunks, residual, strict=True)]
