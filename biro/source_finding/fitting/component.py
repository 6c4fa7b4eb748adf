"""What is fitted to visibilities while sources are looked for: a point, a circular or elliptical Gaussian."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Kind = Literal["point", "circle", "ellipse"]
MIN_RATIO = 0.05
"""Smallest ratio of axes of an ellipse: data hardly tell a thinner one from a line."""
_FWHM2 = 8.0 * np.log(2.0)
_ROUND = MIN_RATIO**2 / (1.0 - MIN_RATIO**2)
_KINDS: dict[int, Kind] = {0: "point", 1: "circle", 3: "ellipse"}


@dataclass(frozen=True)
class Component:
    """A point, a circular or an elliptical Gaussian.

    Attributes
    ----------
    lm : (float, float)
        Direction cosines from the phase centre, east and north.
    flux : float, Jy
        At the reference frequency of the fit.
    index : float
        Spectral index.
    root : tuple of float, rad
        () for a point; (sigma,) for a circle; (a, b, c) for an ellipse of the covariance, in (east, north),

            L L^T + e (a^2 + b^2 + c^2) 1,    L = [[a, 0], [b, c]],    e = r^2 / (1 - r^2), r = `MIN_RATIO`.

        Every value of these is a Gaussian whose ratio of axes is r or more, so that the fit needs no bounds.
    """

    lm: tuple[float, float]
    flux: float
    index: float = 0.0
    root: tuple[float, ...] = ()

    @property
    def kind(self) -> Kind:
        """ "point", "circle" or "ellipse"."""
        return _KINDS[len(self.root)]

    @property
    def covariance(self) -> tuple[float, float, float]:
        """Variance to the east, covariance, variance to the north, rad^2; zeros for a point."""
        if len(self.root) == 3:
            a, b, c = self.root
            least = _ROUND * (a * a + b * b + c * c)
            return a * a + least, a * b, b * b + c * c + least
        variance = self.root[0] ** 2 if self.root else 0.0
        return variance, 0.0, variance

    @property
    def shape(self) -> tuple[float, float, float]:
        """FWHM of the major and minor axis and position angle in 0 .. pi, rad; zeros for a point."""
        if len(self.root) < 3:
            fwhm = float(np.sqrt(_FWHM2)) * abs(self.root[0]) if self.root else 0.0
            return fwhm, fwhm, 0.0
        xx, xy, yy = self.covariance
        values, vectors = np.linalg.eigh(np.array([[xx, xy], [xy, yy]]))
        emin, emaj = np.sqrt(_FWHM2 * np.maximum(values, 0.0))
        return float(emaj), float(emin), float(np.arctan2(vectors[0, 1], vectors[1, 1]) % np.pi)

    def shape_slopes(self) -> Array:
        """Derivatives of `shape` by the elements of the root, float64 (3, n_root).

        With the variances A and B along the axes, at the angle pa, dA is (sin, cos) dC (sin, cos)^T, and dpa
        is that of (sin, cos) with (cos, -sin) over A - B: first-order perturbation of eigenvectors.
        """
        if len(self.root) < 3:
            slope = float(np.sqrt(_FWHM2)) * np.sign(self.root)
            return np.array([slope, slope, 0.0 * slope]).reshape(3, len(self.root))
        a, b, c = self.root
        emaj, emin, pa = self.shape
        major, minor = np.array([np.sin(pa), np.cos(pa)]), np.array([np.cos(pa), -np.sin(pa)])
        apart = max((emaj**2 - emin**2) / _FWHM2, 1e-12 * emaj**2)
        columns = []
        for matrix, own in (
            ([[2 * a, b], [b, 0.0]], a),
            ([[0.0, a], [a, 2 * b]], b),
            ([[0.0, 0.0], [0.0, 2 * c]], c),
        ):
            changed = np.array(matrix) + 2.0 * _ROUND * own * np.eye(2)
            by_axis = [_FWHM2 * x @ changed @ x / (2.0 * e) for x, e in ((major, emaj), (minor, emin))]
            columns.append([*by_axis, major @ changed @ minor / apart])
        return np.array(columns).T

    def vector(self, spectral: bool) -> Array:
        """The parameters: flux, l, m, the spectral index where it is fitted, and those of the root."""
        index = (self.index,) if spectral else ()
        return np.array([self.flux, *self.lm, *index, *self.root])

    def moved(self, vector: Array, spectral: bool) -> Component:
        """A component of this kind with other parameters."""
        flux, l, m, *rest = (float(value) for value in vector)
        index = rest.pop(0) if spectral else self.index
        return replace(self, flux=flux, lm=(l, m), index=index, root=tuple(rest))

    def as_circle(self, fwhm: float | None = None) -> Component:
        """A circle here: of this FWHM (rad), or of the area of this Gaussian."""
        emaj, emin, _ = self.shape
        size = float(np.sqrt(emaj * emin)) if fwhm is None else fwhm
        return replace(self, root=(size / float(np.sqrt(_FWHM2)),))

    def as_ellipse(self) -> Component:
        """An ellipse that is this circle."""
        (sigma,) = self.root
        s = float(np.sqrt(sigma * sigma / (1.0 + 2.0 * _ROUND)))
        return replace(self, root=(s, 0.0, s))

    def as_two(self) -> tuple[Component, Component]:
        """Two circles of half the flux, a quarter of the major axis to either side on it."""
        emaj, emin, pa = self.shape
        l, m = 0.25 * emaj * np.sin(pa), 0.25 * emaj * np.cos(pa)
        half = replace(self, flux=0.5 * self.flux).as_circle(max(emin, 0.25 * emaj))
        first, second = (replace(half, lm=(self.lm[0] + s * l, self.lm[1] + s * m)) for s in (1.0, -1.0))
        return first, second

    def at_most(self, fwhm: float) -> Component:
        """This component, smaller where its major axis is longer than `fwhm` (rad)."""
        emaj, _, _ = self.shape
        if emaj <= fwhm:
            return self
        return replace(self, root=tuple(value * fwhm / emaj for value in self.root))

    def as_point(self) -> Component:
        """A point here."""
        return replace(self, root=())

    def envelope_slopes(self, u: Array, v: Array) -> list[Array]:
        """Derivatives of the logarithm of the envelope, exp(-2 pi^2 u^T C u), by the elements of the root.

        Parameters
        ----------
        u, v : float64, wavelengths
        """
        if not self.root:
            return []
        square = -4.0 * np.pi**2 * (u * u + v * v)
        if len(self.root) == 1:
            return [self.root[0] * square]
        a, b, c = self.root
        across = -4.0 * np.pi**2 * (a * u + b * v)
        extra = _ROUND * square
        return [
            across * u + a * extra,
            across * v + b * extra,
            -4.0 * np.pi**2 * c * v * v + c * extra,
        ]


def vector_of(components: tuple[Component, ...], spectral: bool) -> Array:
    """The parameters of some components, one after the other."""
    return np.concatenate([component.vector(spectral) for component in components] or [np.zeros(0)])


def moved(components: tuple[Component, ...], vector: Array, spectral: bool) -> tuple[Component, ...]:
    """Components of these kinds with other parameters."""
    result, i = [], 0
    for component in components:
        n = n_param(component, spectral)
        result.append(component.moved(vector[i : i + n], spectral))
        i += n
    return tuple(result)


def n_param(component: Component, spectral: bool) -> int:
    """Number of parameters of a component."""
    return 3 + spectral + len(component.root)
