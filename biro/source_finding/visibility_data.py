"""Stokes I visibilities that components are fitted to, in chunks, with the derivatives of a model of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.stokes import PSEUDO_I, stokes_visibilities
from biro.smearing import choose
from biro.source_finding.averages import Averages
from biro.source_finding.beam_factors import BeamFactors, SeenThrough
from biro.source_finding.component import Component, n_param
from rime_kernels.arrays import Rows, Sources
from rime_kernels.device import Backend
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.rime import Rime
from rime_kernels.smearing.smearing import Smearing

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
CHUNK = 1 << 14
"""Visibilities of a chunk, of which the Jacobian is held in memory at a time."""


class VisibilityData:
    """Stokes I of an observation of one phase centre, and models of it.

    Parameters
    ----------
    observation : Observation
    extent : float
        Largest |l| and |m|.
    backend : "auto", "cpu" or "cuda"
    beams : SeenThrough, optional
        Through which components are seen.

    Attributes
    ----------
    chunks : list of Chunk
    n_vis : int
        Number of complex visibilities with a weight.
    spectral : bool
        Whether a spectral index is fitted: the highest frequency is 5 % above the lowest, or more.
    ref_freq : float, Hz
    shortest : float, wavelengths
        Length that one in a hundred visibilities does not reach.
    smearing : list of Choice
        Whether models are smeared in each partition, as a fit of the components would have it; what is on
        stays on.
    """

    def __init__(
        self,
        observation: Observation,
        extent: float,
        backend: Backend = "auto",
        beams: SeenThrough | None = None,
    ) -> None:
        self._partitions = observation.partitions
        self.smearing = [choose(part, None, "auto") for part in observation.partitions]
        freq = np.concatenate([part.chan_freq for part in observation.partitions])
        self.spectral = bool(freq.max() > 1.05 * freq.min())
        self.ref_freq = float(np.sqrt(freq.max() * freq.min()))
        self.chunks = [
            chunk
            for i, part in enumerate(observation.partitions)
            for chunk in _chunks(i, part, extent, self.ref_freq, backend, beams)
        ]
        self.n_vis = sum(int(np.count_nonzero(chunk.weight)) for chunk in self.chunks)
        used = [chunk.length[chunk.weight > 0] for chunk in self.chunks]
        self.shortest = float(np.percentile(np.concatenate(used or [np.zeros(1)]), 1.0))

    def smear(self, components: Sequence[Component]) -> bool:
        """Average models from now on in partitions where what components lose exceeds the noise.

        Returns
        -------
        bool
            Whether there are more such partitions than before.
        """
        sources = _sources([components], self.ref_freq, are_points=True) if components else None
        new: set[int] = set()
        for i, part in enumerate(self._partitions):
            choice = choose(part, sources, "auto")
            if choice.smearing is not None or self.smearing[i].smearing is None:
                new |= {i} if choice.mode != self.smearing[i].mode else set()
                self.smearing[i] = choice
        self.chunks = [
            chunk.smeared(self.smearing[chunk.part].smearing) if chunk.part in new else chunk
            for chunk in self.chunks
        ]
        return bool(new)

    def residual(self, components: Sequence[Component]) -> list[Vis]:
        """Data - model, Jy, in the order of the chunks."""
        return [chunk.vis - chunk.model(components) for chunk in self.chunks]

    def chi2(self, residual: Sequence[Vis], components: Sequence[Component] = ()) -> float:
        """sum w |R - V|^2 for what is left of the data, R, and the model V of some components."""
        chunks = zip(self.chunks, residual, strict=True)
        return math.fsum(chunk.chi2(left - chunk.model(components)) for chunk, left in chunks)

    def normal_equations(
        self, residual: Sequence[Vis], components: Sequence[Component]
    ) -> tuple[Array, Array, float]:
        """J^T W J, J^T W (R - V) and chi2 for the Jacobian J of the model V, summed over the chunks."""
        n = sum(len(component.vector(self.spectral)) for component in components)
        matrix, gradient, chi2 = np.zeros((n, n)), np.zeros(n), 0.0
        for chunk, left in zip(self.chunks, residual, strict=True):
            model, jacobian = chunk.jacobian(components, self.spectral)
            # Seen as real numbers, real and imaginary parts side by side, a product of columns is Re(a* b).
            columns = jacobian.reshape(n, -1).view(np.float64)
            left = left - model
            matrix += columns @ columns.T
            gradient += columns @ (left * chunk.root).ravel().view(np.float64)
            chi2 += chunk.chi2(left)
        return matrix, gradient, chi2


@dataclass(frozen=True, eq=False)
class Chunk:
    """Data of some rows of a partition, and the prediction of components for them.

    Attributes
    ----------
    rime : Rime
    vis : complex128 (n_row, n_chan), Jy
    weight : float64 (n_row, n_chan), 1/Jy^2
    baseline : int64 (n_row,)
        A number for each pair of antennas.
    time : float64 (n_row,), s
    ref_freq : float, Hz
    part : int
        Which partition the rows are of.
    rows : int64 (n_row,)
        Which rows of it.
    averages : Averages or None
        What takes of sources far from the phase centre; None where models are not smeared.
    beam : BeamFactors or None
        What the beams leave of a source; None where it is seen without.
    """

    rime: Rime
    vis: Vis
    weight: Array
    baseline: NDArray[np.int64]
    time: Array
    ref_freq: float
    part: int
    rows: NDArray[np.int64]
    averages: Averages | None = None
    beam: BeamFactors | None = None

    @property
    def factors(self) -> list[Averages | BeamFactors]:
        """What each component loses by its place."""
        return [factor for factor in (self.averages, self.beam) if factor is not None]

    def smeared(self, smearing: Smearing | None) -> Chunk:
        """The same, with models as averages."""
        if smearing is None:
            return replace(self, averages=None)
        return replace(self, averages=Averages.of(smearing, self.rime.rows, self.rows))

    @cached_property
    def root(self) -> Array:
        """1 / sigma."""
        return np.sqrt(self.weight)

    @cached_property
    def uvw(self) -> Array:
        """Wavelengths, (3, n_row, n_chan)."""
        rows = self.rime.rows
        return np.asarray(rows.uvw.T[:, :, None] * (rows.chan_freq / SPEED_OF_LIGHT))

    @cached_property
    def length(self) -> Array:
        """Of the baselines, without w, in wavelengths, (n_row, n_chan)."""
        return np.asarray(np.hypot(self.uvw[0], self.uvw[1]))

    def chi2(self, residual: NDArray[np.complexfloating]) -> float:
        """sum w |r|^2."""
        return float((self.weight * (residual.real**2 + residual.imag**2)).sum())

    def model(self, components: Sequence[Component]) -> Vis:
        """Visibilities of all components together, Jy."""
        total = np.zeros(self.vis.shape, np.complex128)
        for indices in _alike(components):
            # Each source loses its own part of its visibilities.
            together = [[i] for i in indices] if self.factors else [indices]
            for vis in self._predict_lists([[components[i] for i in some] for some in together]):
                total += vis
        return total

    def jacobian(self, components: Sequence[Component], spectral: bool) -> tuple[Vis, Vis]:
        """Visibilities of all components together, and the Jacobian of V / sigma (n_param, n_row, n_chan).

        Visibilities are those of the measurement equation; their derivatives follow from their logarithms'.
        """
        total = np.zeros(self.vis.shape, np.complex128)
        end = np.cumsum([n_param(component, spectral) for component in components]).tolist()
        jacobian = np.empty((end[-1], *self.vis.shape), np.complex128)
        for indices in _alike(components):
            units = self._predict_lists([[replace(components[i], flux=1.0)] for i in indices])
            for i, unit in zip(indices, units, strict=True):
                component, first = components[i], end[i] - n_param(components[i], spectral)
                total += component.flux * unit
                np.multiply(unit, self.root, out=jacobian[first])
                scaled = component.flux * jacobian[first]
                for j, slope in enumerate(self._log_slopes(component, spectral), start=first + 1):
                    np.multiply(scaled, slope, out=jacobian[j])
        return total, jacobian

    def _log_slopes(self, component: Component, spectral: bool) -> Iterator[NDArray[np.generic]]:
        """Derivatives of ln V by l, m, the spectral index and the root."""
        u, v, w = self.uvw
        l, m = component.lm
        n = np.sqrt(max(1.0 - l * l - m * m, 1e-12))
        if abs(l) + abs(m) > 1e-5:
            u, v = u - w * (l / n), v - w * (m / n)
        lost = [factor.log_slopes(component.lm) for factor in self.factors]
        yield 2j * np.pi * u + sum(by_l for by_l, _ in lost)
        yield 2j * np.pi * v + sum(by_m for _, by_m in lost)
        if spectral:
            yield np.broadcast_to(np.log(self.rime.rows.chan_freq / self.ref_freq), u.shape)
        yield from component.envelope_slopes(u, v)

    def _predict_lists(self, lists: Sequence[Sequence[Component]]) -> Vis:
        """Visibilities of lists of components; of one component each where these lose by their places."""
        vis = self._predict(lists)
        for factor in self.factors:
            for of_list, (component,) in zip(vis, lists, strict=True):
                of_list *= factor.kept(component.lm)
        return vis

    def _predict(self, lists: Sequence[Sequence[Component]]) -> Vis:
        """Visibilities of lists of components, points or Gaussians alone, (n_list, n_row, n_chan)."""
        sources = _sources(lists, self.ref_freq, are_points=not lists[0][0].root)
        return np.asarray(self.rime.predict(sources)[..., 0], dtype=np.complex128)


def _sources(lists: Sequence[Sequence[Component]], ref_freq: float, *, are_points: bool) -> Sources:
    """Lists of as many components each, points or Gaussians alone."""
    n, n_source = len(lists), len(lists[0])
    stokes, terms = np.zeros((n, 1, n_source, 4)), np.zeros((n, n_source, 4, 1))
    stokes[:, 0, :, 0] = [[component.flux for component in some] for some in lists]
    terms[..., 0] = np.array([[component.index for component in some] for some in lists])[..., None]
    return Sources(
        lm=np.array([[component.lm for component in some] for some in lists]).reshape(n, n_source, 2),
        stokes=stokes,
        ref_freq=np.full(n_source, ref_freq),
        spectral_terms=terms,
        log_spectrum=np.ones(n_source, bool),
        shape=np.zeros((n, 0, 3))
        if are_points
        else np.array([[component.shape for component in some] for some in lists]),
    )


def _alike(components: Sequence[Component]) -> list[list[int]]:
    """Indices of the points, and of the Gaussians."""
    groups: tuple[list[int], list[int]] = ([], [])
    for i, component in enumerate(components):
        groups[bool(component.root)].append(i)
    return [indices for indices in groups if indices]


def _chunks(
    i_part: int, part: Partition, extent: float, ref_freq: float, backend: Backend, beams: SeenThrough | None
) -> Iterator[Chunk]:
    """The rows of a partition that have a weight."""
    beam = None if beams is None else beams.beams[i_part]
    vis, weight = stokes_visibilities(part, part.vis, PSEUDO_I)
    rows = np.flatnonzero(weight.any(axis=1))
    n_antenna = int(max(part.antenna1.max(initial=0), part.antenna2.max(initial=0))) + 1
    for index in np.array_split(rows, max(1, -(-len(rows) * part.n_chan // CHUNK))):
        if not len(index):
            continue
        chunk_rows = Rows(
            uvw=part.uvw[index],
            antenna1=part.antenna1[index],
            antenna2=part.antenna2[index],
            time_index=part.time_index[index],
            chan_freq=part.chan_freq,
            stokes_to_corr=np.array([[1, 0, 0, 0]], dtype=np.complex128),
            n_antenna=part.rows.n_antenna,
            n_time=part.rows.n_time,
        )
        yield Chunk(
            Rime(chunk_rows, extent=extent, backend=backend),
            np.asarray(vis[index, :, 0], np.complex128),
            weight[index],
            part.antenna1[index].astype(np.int64) * n_antenna + part.antenna2[index],
            part.time[index],
            ref_freq,
            i_part,
            index,
            beam=None if beam is None else BeamFactors.of(part, index, beam, backend),
        )
