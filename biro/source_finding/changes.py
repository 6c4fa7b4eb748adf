"""Changes of a model that may fit better: another component, another shape, or a component less."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.fitting.component import Component, Kind, n_param
from biro.source_finding.fitting.source_fit import ComponentFit, SourceFit

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
Components = tuple[Component, ...]
SIZES = (0.3, 1.0, 3.0, 10.0)
"""FWHM that fits of Gaussians begin with, in beams."""
FIRST_STEPS = 3
"""Steps of fits from each of these, of which the best one goes on."""
MAX_POINTS = 4
"""Places of a new component that are tried in fits of all components."""


@dataclass(frozen=True)
class ModelChange:
    """A change of the components that fits well while the others are held.

    Attributes
    ----------
    components : tuple of Component
        All of them, changed.
    n_new : int
        How many of these are new.
    chi2 : float
        Of the model with this change.
    """

    components: Components
    n_new: int
    chi2: float


class ModelChanges:
    """What is tried next to some components.

    Parameters
    ----------
    fitter : SourceFit
    beam_size : float, rad
    components : tuple of Component
    left : sequence of complex128
        Residuals of these components, in the order of the chunks.
    """

    def __init__(
        self, fitter: SourceFit, beam_size: float, components: Components, left: Sequence[Vis]
    ) -> None:
        self._fitter, self._beam_size, self._components, self._left = fitter, beam_size, components, left

    def points(self, places: Iterable[Component]) -> list[ComponentFit]:
        """Points near these places with the other components held, the best one first."""
        fits = [self._fitter.fit([place], self._left) for place in places]
        return sorted(filter(is_possible, fits), key=lambda fit: fit.chi2)

    def shaped(
        self, point: Component, kinds: Sequence[Kind], left: Sequence[Vis] | None = None
    ) -> list[ComponentFit]:
        """The best circle and the best ellipse about a point, where there are such fits."""
        best: list[ComponentFit] = []
        left = self._left if left is None else left
        for kind in kinds:
            starts = [point.as_circle(size * self._beam_size) for size in SIZES]
            starts = [start.as_ellipse() for start in starts] if kind == "ellipse" else starts
            fits = [self._fitter.fit([start], left, n_step=FIRST_STEPS) for start in starts]
            for fit in sorted(filter(is_possible, fits), key=lambda fit: fit.chi2)[:1]:
                best += filter(is_possible, [self._fitter.fit(fit.components, left)])
        return best

    def additions(self, places: Iterable[Component]) -> Iterator[ModelChange]:
        """A point or a circle more."""
        for i, point in enumerate(self.points(places)[:MAX_POINTS]):
            shaped = self.shaped(point.components[0], ("circle",)) if i == 0 else []
            for fit in (point, *shaped):
                yield ModelChange((*self._components, *fit.components), 1, fit.chi2)

    def splits(self) -> Iterator[ModelChange]:
        """An ellipse as two circles on its major axis: it may have hidden two components."""
        for i, component in enumerate(self._components):
            if component.kind != "ellipse":
                continue
            others = (*self._components[:i], *self._components[i + 1 :])
            fit = self._fitter.fit(component.as_two(), self._without(component))
            if is_possible(fit):
                yield ModelChange((*others, *fit.components), 1, fit.chi2)

    def reshapings(self, *, ellipses: bool) -> Iterator[ModelChange]:
        """A point as a circle; with `ellipses`, points and circles as ellipses, too."""
        for i, component in enumerate(self._components):
            if component.kind == "ellipse" or (component.kind == "circle" and not ellipses):
                continue
            others = (*self._components[:i], *self._components[i + 1 :])
            left = self._without(component)
            if component.kind == "point":
                fits = self.shaped(component, ("circle", "ellipse") if ellipses else ("circle",), left)
            else:
                fits = [self._fitter.fit([component.as_ellipse()], left)]
            for fit in filter(is_possible, fits):
                yield ModelChange((*others, *fit.components), 0, fit.chi2)

    def _without(self, component: Component) -> list[Vis]:
        """The residuals of the other components."""
        chunks = self._fitter.data.chunks
        return [mine + chunk.model([component]) for mine, chunk in zip(self._left, chunks, strict=True)]


def is_possible(fit: ComponentFit) -> bool:
    """Whether all fluxes are positive."""
    return all(component.flux > 0.0 for component in fit.components)


def simpler(fit: ComponentFit, scale: float, spectral: bool, most: Array) -> Iterator[tuple[Components, int]]:
    """Components of which one is left out or simpler, where errors say that little may be lost by it.

    Parameters
    ----------
    fit : ComponentFit
    scale : float
        By which the variances of the fit's covariance are multiplied.
    spectral : bool
        Whether spectral indices are fitted.
    most : float64 (3,)
        Largest x^T C^-1 x of what a circle, an ellipse, and (per parameter) a component loses.

    Yields
    ------
    components, n_less : tuple of Component, int
        The components, and how many there are less.
    """
    end = 0
    for i, component in enumerate(fit.components):
        start, end = end, end + n_param(component, spectral)
        covariance = scale * fit.covariance[start:end, start:end]
        before, after = fit.components[:i], fit.components[i + 1 :]
        removal = _significance(np.array([component.flux]), covariance[:1, :1])
        if (before or after) and removal < most[2] * (end - start):
            yield (*before, *after), 1
        if component.kind == "circle":
            lost = _significance(np.array(component.root), covariance[-1:, -1:])
            if lost < most[0]:
                yield (*before, component.as_point(), *after), 0
        elif component.kind == "ellipse":
            a, b, c = component.root
            by = np.array([[1.0, 0.0, -np.sign(a * c)], [0.0, 1.0, 0.0]])
            lost = _significance(by @ [a, b, c], by @ covariance[-3:, -3:] @ by.T)
            if lost < most[1]:
                yield (*before, component.as_circle(), *after), 0


def _significance(value: Array, covariance: Array) -> float:
    """x^T C^-1 x."""
    return float(value @ np.linalg.pinv(covariance, hermitian=True) @ value)
