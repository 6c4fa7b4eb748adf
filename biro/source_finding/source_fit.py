"""Least squares of a few points and Gaussians in the visibilities of Stokes I, from near where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.observation.observation import Observation
from biro.observation.stokes import stokes_visibilities
from rime_kernels.arrays import Rows, Sources
from rime_kernels.device import Backend
from rime_kernels.rime import Rime

Array = NDArray[np.float64]
CHUNK = 1 << 15
"""Visibilities worked on at a time."""
_FWHM2 = 8.0 * np.log(2.0)
_MAX_STEPS = 40


@dataclass(frozen=True)
class Component:
    """A point or an elliptical Gaussian.

    Attributes
    ----------
    lm : (float, float)
        Direction cosines from the phase centre, east and north.
    flux : float, Jy
        At the reference frequency of the fit.
    index : float
        Spectral index.
    root : (float, float, float) or None
        (a, b, c) of the covariance [[a, 0], [b, c]] [[a, b], [0, c]] in (east, north), rad: every value of
        these is a Gaussian, and none needs a bound. None for a point.
    """

    lm: tuple[float, float]
    flux: float
    index: float = 0.0
    root: tuple[float, float, float] | None = None

    @property
    def shape(self) -> tuple[float, float, float]:
        """FWHM of the major and minor axis and position angle in 0 .. pi, rad; zeros for a point."""
        if self.root is None:
            return 0.0, 0.0, 0.0
        a, b, c = self.root
        values, vectors = np.linalg.eigh(np.array([[a * a, a * b], [a * b, b * b + c * c]]))
        emin, emaj = np.sqrt(_FWHM2 * np.maximum(values, 0.0))
        return float(emaj), float(emin), float(np.arctan2(vectors[0, 1], vectors[1, 1]) % np.pi)

    def vector(self, spectral: bool) -> Array:
        """Its numbers: flux, l, m, spectral index where that is fitted, and those of the root."""
        index = (self.index,) if spectral else ()
        return np.array([self.flux, *self.lm, *index, *(self.root or ())])

    def moved(self, vector: Array, spectral: bool) -> Component:
        """The same kind of component with other numbers."""
        flux, l, m, *rest = (float(value) for value in vector)
        index = rest.pop(0) if spectral else self.index
        return replace(self, flux=flux, lm=(l, m), index=index, root=tuple(rest) if self.root else None)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Fit:
    """The end of a fit.

    Attributes
    ----------
    components : tuple of Component
    chi2 : float
    covariance : float64 (n_param, n_param)
        For weights as they are; parameters in the order of the components' vectors.
    """

    components: tuple[Component, ...]
    chi2: float
    covariance: Array


class SourceFit:
    """Stokes I of an observation of one phase centre, and what components leave of it.

    Parameters
    ----------
    observation : Observation
    extent : float
        Largest |l| and |m|.
    resolution : float, rad
        A beam: steps of finite differences are a thousandth of it.
    backend : "auto", "cpu" or "cuda"

    Attributes
    ----------
    n_vis : int
        Complex visibilities with a weight.
    spectral : bool
        Whether the data reach over frequencies enough to ask for a spectral index (5 %).
    ref_freq : float, Hz
    """

    def __init__(
        self, observation: Observation, extent: float, resolution: float, backend: Backend = "auto"
    ) -> None:
        self._observation, self._extent, self._backend = observation, extent, backend
        self._step = 1e-3 * resolution
        freq = np.concatenate([part.chan_freq for part in observation.partitions])
        self.spectral = bool(freq.max() > 1.05 * freq.min())
        self.ref_freq = float(np.sqrt(freq.max() * freq.min()))
        self.n_vis = sum(int(np.count_nonzero(chunk.weight)) for chunk in self._chunks)

    def chi2(self, components: Sequence[Component]) -> float:
        """sum w |D - V|^2."""
        return sum(self._chi2_of(chunk, components) for chunk in self._chunks)

    def fit(self, components: Sequence[Component], held: Sequence[Component] = ()) -> Fit:
        """Levenberg and Marquardt's method on some components, with others held.

        Parameters
        ----------
        components : sequence of Component
            Where to begin.
        held : sequence of Component
            Subtracted as they are.
        """
        now, damping = tuple(components), 1e-3
        matrix, gradient, chi2 = self._normal(now, held)
        for _ in range(_MAX_STEPS):
            scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
            scaled = matrix / np.outer(scale, scale)
            step = np.linalg.solve(scaled + damping * np.eye(len(scale)), gradient / scale) / scale
            trial = self._moved(now, step)
            if sum(c.lm[0] ** 2 + c.lm[1] ** 2 > self._extent**2 for c in trial):
                found = np.inf
            else:
                found = self.chi2([*trial, *held])
            if not found < chi2:
                damping *= 10.0
                if damping > 1e6:
                    break
                continue
            gain, now = chi2 - found, trial
            matrix, gradient, chi2 = self._normal(now, held)
            damping = max(0.1 * damping, 1e-9)
            if gain < 1e-7 * chi2:
                break
        return Fit(now, chi2, _inverse(matrix))

    def _moved(self, components: Sequence[Component], step: Array) -> tuple[Component, ...]:
        made, i = [], 0
        for component in components:
            vector = component.vector(self.spectral)
            made.append(component.moved(vector + step[i : i + len(vector)], self.spectral))
            i += len(vector)
        return tuple(made)

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        chunks = []
        for part in self._observation.partitions:
            vis, weight = stokes_visibilities(part, part.vis, "I")
            rows = np.flatnonzero(weight.any(axis=1))
            for some in np.array_split(rows, max(1, -(-len(rows) * part.n_chan // CHUNK))):
                if len(some):
                    chunks.append(self._chunk(part.rows, some, vis[some, :, 0], weight[some]))
        return chunks

    def _chunk(self, rows: Rows, some: NDArray[np.int64], vis: NDArray[Any], weight: Array) -> _Chunk:
        chosen = Rows(
            uvw=rows.uvw[some],
            antenna1=rows.antenna1[some],
            antenna2=rows.antenna2[some],
            time_index=rows.time_index[some],
            chan_freq=rows.chan_freq,
            stokes_to_corr=np.array([[1, 0, 0, 0]], dtype=np.complex128),
            n_antenna=rows.n_antenna,
            n_time=rows.n_time,
        )
        return _Chunk(Rime(chosen, extent=self._extent, backend=self._backend), vis, weight)

    def _chi2_of(self, chunk: _Chunk, components: Sequence[Component]) -> float:
        return chunk.chi2(chunk.vis - self._model(chunk, components))

    def _model(self, chunk: _Chunk, components: Sequence[Component]) -> NDArray[np.complex128]:
        model = np.zeros(chunk.vis.shape, np.complex128)
        for component in components:
            model += self._variants(chunk, component, [component.vector(self.spectral)])[0]
        return model

    def _normal(
        self, components: Sequence[Component], held: Sequence[Component]
    ) -> tuple[Array, Array, float]:
        """J^T W J, J^T W r and chi2, summed over pieces of the data."""
        n = sum(len(component.vector(self.spectral)) for component in components)
        matrix, gradient, chi2 = np.zeros((n, n)), np.zeros(n), 0.0
        for chunk in self._chunks:
            left = chunk.vis - self._model(chunk, held)
            jacobian = np.empty((n, *left.shape), np.complex128)  # divided by sigma
            i = 0
            for component in components:
                value, slopes = self._derivatives(chunk, component)
                left -= value
                for slope in slopes:
                    np.multiply(slope, chunk.root, out=jacobian[i])
                    i += 1
            # Real and imaginary parts side by side: a product of real numbers is Re(a* b).
            columns = jacobian.reshape(n, -1).view(np.float64)
            matrix += columns @ columns.T
            gradient += columns @ (left * chunk.root).ravel().view(np.float64)
            chi2 += chunk.chi2(left)
        return matrix, gradient, chi2

    def _derivatives(
        self, chunk: _Chunk, component: Component
    ) -> tuple[NDArray[np.complex128], list[NDArray[np.complex128]]]:
        """Visibilities of a component, and their derivatives by central differences; in flux exactly."""
        vector = component.vector(self.spectral)
        steps = np.full(len(vector), self._step)
        if self.spectral:
            steps[3] = 1e-4
        variants = [vector]
        for i in range(1, len(vector)):
            for sign in (1.0, -1.0):
                variants.append(vector + sign * steps[i] * np.eye(len(vector))[i])
        unit = [np.array([1.0, *variant[1:]]) for variant in variants]
        found = self._variants(chunk, component, unit)
        slopes = [found[0]]
        for i in range(1, len(vector)):
            slopes.append(component.flux * (found[2 * i - 1] - found[2 * i]) / (2.0 * steps[i]))
        return component.flux * found[0], slopes

    def _variants(
        self, chunk: _Chunk, component: Component, vectors: Sequence[Array]
    ) -> NDArray[np.complex128]:
        """Visibilities of one component with these numbers each, complex128 (n_variant, n_row, n_chan)."""
        made = [component.moved(vector, self.spectral) for vector in vectors]
        n = len(made)
        stokes, terms = np.zeros((n, 1, 1, 4)), np.zeros((n, 1, 4, 1))
        stokes[:, 0, 0, 0] = [each.flux for each in made]
        terms[:, 0, :, 0] = np.array([each.index for each in made])[:, None]
        shape = np.array([[each.shape] for each in made]) if component.root else np.zeros((n, 0, 3))
        sources = Sources(
            lm=np.array([[each.lm] for each in made]),
            stokes=stokes,
            ref_freq=np.array([self.ref_freq]),
            spectral_terms=terms,
            log_spectrum=np.array([True]),
            shape=shape,
        )
        return np.asarray(chunk.rime.predict(sources)[..., 0], dtype=np.complex128)


def _inverse(matrix: Array) -> Array:
    """Of parameters of any scale; directions that the data say nothing about get no error."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = np.linalg.pinv(matrix / np.outer(scale, scale), rcond=1e-12, hermitian=True)
    return np.asarray(scaled / np.outer(scale, scale))


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some rows: what predicts them, and their data."""

    rime: Rime
    vis: NDArray[Any]
    weight: Array

    @cached_property
    def root(self) -> Array:
        """1 / sigma."""
        return np.sqrt(self.weight)

    def chi2(self, left: NDArray[np.complex128]) -> float:
        return float((self.weight * (left.real**2 + left.imag**2)).sum())
