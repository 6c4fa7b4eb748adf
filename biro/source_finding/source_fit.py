"""Fit a few points and elliptical Gaussians to the visibilities of Stokes I by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.observation.observation import Observation
from biro.observation.stokes import PSEUDO_I, stokes_visibilities
from rime_kernels.arrays import Rows, Sources
from rime_kernels.device import Backend
from rime_kernels.rime import Rime

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
CHUNK = 1 << 15
"""Visibilities of a chunk, of which the Jacobian is held in memory at a time."""
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
        (a, b, c) of the covariance [[a, 0], [b, c]] [[a, b], [0, c]] in (east, north), rad. Every value of
        these is a Gaussian, so that the fit needs no bounds. None for a point.
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
        """The parameters: flux, l, m, the spectral index where it is fitted, and those of the root."""
        index = (self.index,) if spectral else ()
        return np.array([self.flux, *self.lm, *index, *(self.root or ())])

    def moved(self, vector: Array, spectral: bool) -> Component:
        """The same kind of component with other parameters."""
        flux, l, m, *rest = (float(value) for value in vector)
        index = rest.pop(0) if spectral else self.index
        return replace(self, flux=flux, lm=(l, m), index=index, root=tuple(rest) if self.root else None)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit.

    Attributes
    ----------
    components : tuple of Component
    chi2 : float
    covariance : float64 (n_param, n_param)
        Formal covariance if the weights are 1/sigma^2; parameters in the order of the components' vectors.
    """

    components: tuple[Component, ...]
    chi2: float
    covariance: Array


class SourceFit:
    """Fits components to Stokes I of an observation of one phase centre.

    Parameters
    ----------
    observation : Observation
    extent : float
        Largest |l| and |m|.
    resolution : float, rad
        FWHM of the beam; the steps of finite differences are a thousandth of it.
    backend : "auto", "cpu" or "cuda"

    Attributes
    ----------
    n_vis : int
        Number of complex visibilities with a weight.
    spectral : bool
        Whether a spectral index is fitted: the highest frequency is 5 % above the lowest, or more.
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
        """Fit some components by Levenberg and Marquardt's method, with others held fixed.

        Parameters
        ----------
        components : sequence of Component
            The start of the fit.
        held : sequence of Component
            Subtracted from the data as they are.
        """
        current, damping = tuple(components), 1e-3
        matrix, gradient, chi2 = self._normal_equations(current, held)
        for _ in range(_MAX_STEPS):
            scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
            scaled = matrix / np.outer(scale, scale)
            step = np.linalg.solve(scaled + damping * np.eye(len(scale)), gradient / scale) / scale
            trial = self._moved(current, step)
            if sum(c.lm[0] ** 2 + c.lm[1] ** 2 > self._extent**2 for c in trial):
                trial_chi2 = np.inf
            else:
                trial_chi2 = self.chi2([*trial, *held])
            if not trial_chi2 < chi2:
                damping *= 10.0
                if damping > 1e6:
                    break
                continue
            gain, current = chi2 - trial_chi2, trial
            matrix, gradient, chi2 = self._normal_equations(current, held)
            damping = max(0.1 * damping, 1e-9)
            if gain < 1e-7 * chi2:
                break
        return Fit(current, chi2, _inverse(matrix))

    def _moved(self, components: Sequence[Component], step: Array) -> tuple[Component, ...]:
        moved, i = [], 0
        for component in components:
            vector = component.vector(self.spectral)
            moved.append(component.moved(vector + step[i : i + len(vector)], self.spectral))
            i += len(vector)
        return tuple(moved)

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        chunks = []
        for part in self._observation.partitions:
            vis, weight = stokes_visibilities(part, part.vis, PSEUDO_I)
            rows = np.flatnonzero(weight.any(axis=1))
            for index in np.array_split(rows, max(1, -(-len(rows) * part.n_chan // CHUNK))):
                if len(index):
                    chunks.append(self._chunk(part.rows, index, vis[index, :, 0], weight[index]))
        return chunks

    def _chunk(self, rows: Rows, index: NDArray[np.int64], vis: Vis, weight: Array) -> _Chunk:
        chunk_rows = Rows(
            uvw=rows.uvw[index],
            antenna1=rows.antenna1[index],
            antenna2=rows.antenna2[index],
            time_index=rows.time_index[index],
            chan_freq=rows.chan_freq,
            stokes_to_corr=np.array([[1, 0, 0, 0]], dtype=np.complex128),
            n_antenna=rows.n_antenna,
            n_time=rows.n_time,
        )
        return _Chunk(Rime(chunk_rows, extent=self._extent, backend=self._backend), vis, weight)

    def _chi2_of(self, chunk: _Chunk, components: Sequence[Component]) -> float:
        return chunk.chi2(chunk.vis - self._model(chunk, components))

    def _model(self, chunk: _Chunk, components: Sequence[Component]) -> NDArray[np.complex128]:
        model = np.zeros(chunk.vis.shape, np.complex128)
        for component in components:
            model += self._variants(chunk, component, [component.vector(self.spectral)])[0]
        return model

    def _normal_equations(
        self, components: Sequence[Component], held: Sequence[Component]
    ) -> tuple[Array, Array, float]:
        """J^T W J, J^T W r and chi2 for the Jacobian J and the residuals r, summed over the chunks."""
        n = sum(len(component.vector(self.spectral)) for component in components)
        matrix, gradient, chi2 = np.zeros((n, n)), np.zeros(n), 0.0
        for chunk in self._chunks:
            residual = chunk.vis - self._model(chunk, held)
            jacobian = np.empty((n, *residual.shape), np.complex128)  # divided by sigma
            i = 0
            for component in components:
                value, slopes = self._derivatives(chunk, component)
                residual -= value
                for slope in slopes:
                    np.multiply(slope, chunk.root, out=jacobian[i])
                    i += 1
            # Seen as real numbers, real and imaginary parts side by side, a product of columns is Re(a* b).
            columns = jacobian.reshape(n, -1).view(np.float64)
            matrix += columns @ columns.T
            gradient += columns @ (residual * chunk.root).ravel().view(np.float64)
            chi2 += chunk.chi2(residual)
        return matrix, gradient, chi2

    def _derivatives(
        self, chunk: _Chunk, component: Component
    ) -> tuple[NDArray[np.complex128], list[NDArray[np.complex128]]]:
        """Visibilities of a component and their derivatives, exact in flux, else by central differences."""
        vector = component.vector(self.spectral)
        steps = np.full(len(vector), self._step)
        if self.spectral:
            steps[3] = 1e-4
        variants = [vector]
        for i in range(1, len(vector)):
            for sign in (1.0, -1.0):
                variants.append(vector + sign * steps[i] * np.eye(len(vector))[i])
        unit_flux = [np.array([1.0, *variant[1:]]) for variant in variants]
        vis = self._variants(chunk, component, unit_flux)
        slopes = [vis[0]]
        for i in range(1, len(vector)):
            slopes.append(component.flux * (vis[2 * i - 1] - vis[2 * i]) / (2.0 * steps[i]))
        return component.flux * vis[0], slopes

    def _variants(
        self, chunk: _Chunk, component: Component, vectors: Sequence[Array]
    ) -> NDArray[np.complex128]:
        """Visibilities of a component for several parameter vectors, complex128 (n_vector, n_row, n_chan)."""
        variants = [component.moved(vector, self.spectral) for vector in vectors]
        n = len(variants)
        stokes, terms = np.zeros((n, 1, 1, 4)), np.zeros((n, 1, 4, 1))
        stokes[:, 0, 0, 0] = [variant.flux for variant in variants]
        terms[:, 0, :, 0] = np.array([variant.index for variant in variants])[:, None]
        shape = np.array([[variant.shape] for variant in variants]) if component.root else np.zeros((n, 0, 3))
        sources = Sources(
            lm=np.array([[variant.lm] for variant in variants]),
            stokes=stokes,
            ref_freq=np.array([self.ref_freq]),
            spectral_terms=terms,
            log_spectrum=np.array([True]),
            shape=shape,
        )
        return np.asarray(chunk.rime.predict(sources)[..., 0], dtype=np.complex128)


def _inverse(matrix: Array) -> Array:
    """Pseudo-inverse of a normal matrix whose parameters have any scale.

    A direction that the data do not constrain gets no error.
    """
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = np.linalg.pinv(matrix / np.outer(scale, scale), rcond=1e-12, hermitian=True)
    return np.asarray(scaled / np.outer(scale, scale))


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Data of some rows of a partition, and the prediction of components for them."""

    rime: Rime
    vis: Vis
    weight: Array

    @cached_property
    def root(self) -> Array:
        """1 / sigma."""
        return np.sqrt(self.weight)

    def chi2(self, residual: NDArray[np.complex128]) -> float:
        """sum w |r|^2."""
        return float((self.weight * (residual.real**2 + residual.imag**2)).sum())
