"""Fit a few points and Gaussians to the visibilities of Stokes I by least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.fitting.component import Component, moved, vector_of
from biro.source_finding.fitting.gain_noise import GainNoise
from biro.source_finding.fitting.visibility_data import VisibilityData

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
_MAX_STEPS = 60
_ENOUGH = 0.01
"""A fit ends where a step lowers chi2 by less than this many times the variance of the residuals."""


class Stopped(Exception):  # noqa: N818 - a stop that was asked for
    """A fit was asked to stop."""


@dataclass(frozen=True, eq=False)
class ComponentFit:
    """The result of a fit.

    Attributes
    ----------
    components : tuple of Component
    chi2 : float
        Without what errors of gains explain, where these were given to the fit.
    covariance : float64 (n_param, n_param)
        Formal covariance if the weights are 1/sigma^2; parameters in the order of the components' vectors.
    """

    components: tuple[Component, ...]
    chi2: float
    covariance: Array

    @property
    def n_param(self) -> int:
        """Number of parameters."""
        return len(self.covariance)


class SourceFit:
    """Fits components to Stokes I of an observation of one phase centre.

    Parameters
    ----------
    data : VisibilityData
    extent : float
        Largest distance of a component from the phase centre, as a direction cosine.
    widest : float, rad
        Largest FWHM of a component; one that would grow further stays as wide.
    stop : function
        A fit raises `Stopped` at the next step after it gives True.
    gains : GainNoise, optional
        Errors of gains, which are a part of the covariance of the data.
    """

    def __init__(
        self,
        data: VisibilityData,
        extent: float,
        widest: float = np.inf,
        stop: Callable[[], bool] = lambda: False,
        gains: GainNoise | None = None,
    ) -> None:
        self.data, self._extent, self._widest, self._stop = data, extent, widest, stop
        self._gains = gains

    def with_gains(self, gains: GainNoise | None) -> SourceFit:
        """Fits with other errors of gains."""
        return SourceFit(self.data, self._extent, self._widest, self._stop, gains)

    def fit(
        self,
        components: Sequence[Component],
        residual: Sequence[Vis] | None = None,
        *,
        n_step: int | None = None,
    ) -> ComponentFit:
        """Fit components by Levenberg and Marquardt's method.

        Parameters
        ----------
        components : sequence of Component
            The start of the fit.
        residual : sequence of complex128, optional
            What the components are fitted to, in the order of the chunks, where it is not the data.
        n_step : int, optional
            Steps at most; 0: the components stay as they are, and a stop is not heard.

        Raises
        ------
        Stopped
        """
        spectral = self.data.spectral
        target = [chunk.vis for chunk in self.data.chunks] if residual is None else residual
        if self._gains is not None:
            target = [mine - second for mine, second in zip(target, self._gains.offset, strict=True)]
        current, damping, growth = tuple(components), 1e-3, 4.0
        matrix, gradient, chi2 = self.data.normal_equations(target, current, self._gains)
        for _ in range(_MAX_STEPS if n_step is None else n_step):
            if self._stop():
                raise Stopped
            step = _step(matrix, gradient, damping)
            free = moved(current, vector_of(current, spectral) + step, spectral)
            trial = tuple(component.at_most(self._widest) for component in free)
            # Most steps are good, so that their derivatives are worth working out at once.
            found = self.data.normal_equations(target, trial, self._gains) if self._is_inside(trial) else None
            if found is None or not found[2] < chi2:
                damping, growth = damping * growth, 2.0 * growth
                if damping > 1e8:
                    break
                continue
            # How far the step was as good as a parabola promised (Nielsen 1999).
            promised = float(2.0 * step @ gradient - step @ matrix @ step)
            gain = chi2 - found[2]
            good = gain / promised if promised > 0.0 else 1.0
            damping = max(damping * max(0.1, 1.0 - (2.0 * good - 1.0) ** 3), 1e-9)
            current, growth, (matrix, gradient, chi2) = trial, 4.0, found
            if gain < _ENOUGH * chi2 / max(1, 2 * self.data.n_vis):
                break
        return ComponentFit(current, chi2, _inverse(matrix))

    def _is_inside(self, components: Sequence[Component]) -> bool:
        return all(np.hypot(*component.lm) <= self._extent for component in components)


def _step(matrix: Array, gradient: Array, damping: float) -> Array:
    """The step of least squares, shortened where a parabola cannot be trusted."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(scale, scale) + damping * np.eye(len(scale))
    return np.asarray(np.linalg.lstsq(scaled, gradient / scale, rcond=1e-13)[0] / scale)


def _inverse(matrix: Array) -> Array:
    """Pseudo-inverse of a normal matrix whose parameters have any scale.

    A direction that the data do not constrain gets no error.
    """
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = np.linalg.pinv(matrix / np.outer(scale, scale), rcond=1e-12, hermitian=True)
    return np.asarray(scaled / np.outer(scale, scale))
