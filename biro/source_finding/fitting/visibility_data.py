"""Stokes I visibilities that components are fitted to, in chunks, with the derivatives of a model of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.smearing import choose
from biro.observation.stokes import PSEUDO_I, stokes_visibilities
from biro.source_finding.fitting.averages import Averages
from biro.source_finding.fitting.beam_factors import BeamFactors, SeenThrough
from biro.source_finding.fitting.component import Component, n_param
from biro.source_finding.fitting.gain_noise import GainNoise
from rime_kernels.arrays import Sources
from rime_kernels.choices import Backend
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.smearing import Smearing

Array = NDArray[np.float64]
Vis = NDArray[np.complex128]
CHUNK = 1 << 15
"""Visibilities of a chunk, of which the Jacobian is held in memory at a time."""
MAX_ANTENNA = 1 << 20
"""Numbers of antennas are below this."""
LEAST_TURN = 3e-3
"""Turns of the phase within an average below which a loss, of 1.5e-5 of a source, is not computed."""


class VisibilityData:
    """Stokes I of an observation of one phase centre, and models of it.

    Parameters
    ----------
    observation : Observation
    backend : "auto", "cpu" or "cuda"
    beams : SeenThrough, optional
        Through which components are seen.

    Attributes
    ----------
    partitions : sequence of Partition
        Of the observation.
    chunks : list of VisibilityChunk
    n_vis : int
        Number of complex visibilities with a weight.
    spectral : bool
        Whether a spectral index is fitted: the highest frequency is 5 % above the lowest, or more.
    ref_freq : float, Hz
    reach : float
        Distance from the phase centre up to which the beams are known, as a direction cosine.
    shortest : float, wavelengths
        Length that one in a hundred visibilities does not reach.
    smearing : list of Choice
        Whether models are smeared in each partition, as a fit of the components would have it; what is on
        stays on.
    """

    def __init__(
        self,
        observation: Observation,
        backend: Backend = "auto",
        beams: SeenThrough | None = None,
    ) -> None:
        self.partitions = observation.partitions
        self.reach = np.inf if beams is None else beams.reach
        self.smearing = [choose(part, None, "auto") for part in observation.partitions]
        freq = np.concatenate([part.chan_freq for part in observation.partitions])
        self.spectral = bool(freq.max() > 1.05 * freq.min())
        self.ref_freq = float(np.sqrt(freq.max() * freq.min()))
        blocks = [
            block
            for i, part in enumerate(observation.partitions)
            for block in _blocks(i, part, backend, beams)
        ]
        self.chunks = [VisibilityChunk.of(some, self.ref_freq) for some in _grouped(blocks)]
        self.n_vis = sum(chunk.vis.size for chunk in self.chunks)
        used = [chunk.length for chunk in self.chunks]
        self.shortest = float(np.percentile(np.concatenate(used or [np.zeros(1)]), 1.0))

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Partition, row and channel of each visibility, in the order of the chunks; int64 (n_vis,) each."""
        blocks = [block for chunk in self.chunks for block in chunk.blocks]
        used = [np.nonzero(block.used) for block in blocks]
        part = [np.full(len(row), block.i_part) for block, (row, _) in zip(blocks, used, strict=True)]
        row = [block.index[row] for block, (row, _) in zip(blocks, used, strict=True)]
        none = [np.zeros(0, np.int64)]
        columns = (part, row, [chan for _, chan in used])
        first, second, third = (np.concatenate([*none, *column]) for column in columns)
        return first, second, third

    def smear(self, components: Sequence[Component]) -> bool:
        """Average models from now on in partitions where what components lose exceeds the noise.

        Returns
        -------
        bool
            Whether there are more such partitions than before.
        """
        sources = _as_points(components, self.ref_freq) if components else None
        new: set[int] = set()
        for i, part in enumerate(self.partitions):
            choice = choose(part, sources, "auto")
            if choice.smearing is not None or self.smearing[i].smearing is None:
                new |= {i} if choice.mode != self.smearing[i].mode else set()
                self.smearing[i] = choice
        self.chunks = [
            chunk.smeared([choice.smearing for choice in self.smearing]) if new else chunk
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
        self,
        residual: Sequence[Vis],
        components: Sequence[Component],
        gains: GainNoise | None = None,
    ) -> tuple[Array, Array, float]:
        """J^T C^-1 J, J^T C^-1 (R - V) and chi2 for the Jacobian J of the model V, summed over the chunks.

        C is the covariance with errors of gains; without these it is that of the weights.
        """
        n = sum(n_param(component, self.spectral) for component in components)
        matrix, along = np.zeros((n + 1, n + 1)), np.zeros(())
        for i, (chunk, left) in enumerate(zip(self.chunks, residual, strict=True)):
            model, jacobian = chunk.jacobian(components, self.spectral)
            jacobian[n] = (left - model) * chunk.root
            # Seen as real numbers, real and imaginary parts side by side, a product of columns is Re(a* b).
            columns = jacobian.view(np.float64)
            matrix += columns @ columns.T
            along = along if gains is None else np.asarray(along + gains.along(i, columns))
        matrix = matrix if gains is None else matrix - gains.lost(along)
        return matrix[:n, :n], matrix[:n, n], float(matrix[n, n])

    def spread(self, components: Sequence[Component], gains: GainNoise) -> Array:
        """J^T W (C - W^-1) W J, the covariance that errors of gains give to J^T W (R - V)."""
        n = sum(n_param(component, self.spectral) for component in components)
        along = sum(
            gains.along(i, chunk.jacobian(components, self.spectral)[1][:n].view(np.float64))
            for i, chunk in enumerate(self.chunks)
        )
        return gains.spread(np.asarray(along))


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of a partition, and what their models lose.

    Attributes
    ----------
    i_part : int
        Which partition the rows are of.
    part : Partition
    index : int64 (n_row,)
        Which rows of it.
    used : bool (n_row, n_chan)
        Visibilities that have a weight.
    vis : complex128 (n_used,), Jy
    weight : float64 (n_used,), 1/Jy^2
    beam : BeamFactors or None
    """

    i_part: int
    part: Partition
    index: NDArray[np.int64]
    used: NDArray[np.bool_]
    vis: Vis
    weight: Array
    beam: BeamFactors | None

    def of_rows(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """What belongs to rows of the partition, for each visibility."""
        return np.repeat(values[self.index], self.used.sum(axis=1))

    @property
    def freq(self) -> Array:
        """Frequency of each visibility, Hz."""
        return np.broadcast_to(self.part.chan_freq, self.used.shape)[self.used]


@dataclass(frozen=True, eq=False)
class VisibilityChunk:
    """Visibilities that have a weight, one after the other, and the prediction of components for them.

    Attributes
    ----------
    blocks : tuple of RowBlock
        Where the visibilities come from; one where beams are known.
    vis : complex128 (n,), Jy
    root : float64 (n,), 1/Jy
        1/sigma.
    uvw : float64 (3, n), wavelengths
    freq_ratio : float64 (n,)
        Logarithm of the frequency over the reference frequency.
    antenna1, antenna2, part, baseline : int64 (n,)
        Antennas, partition, and a number for each pair of antennas.
    time : float64 (n,), s
    averages : Averages or None
        What averages take of sources far from the phase centre; None where models are not smeared.
    """

    blocks: tuple[RowBlock, ...]
    vis: Vis
    root: Array
    uvw: Array
    freq_ratio: Array
    antenna1: NDArray[np.int64]
    antenna2: NDArray[np.int64]
    part: NDArray[np.int64]
    time: Array
    averages: Averages | None = None

    @classmethod
    def of(cls, blocks: Sequence[RowBlock], ref_freq: float) -> VisibilityChunk:
        """The visibilities of some blocks."""

        def join(each: Callable[[RowBlock], NDArray[np.generic]], kind: type) -> NDArray[Any]:
            return np.concatenate([each(block) for block in blocks], dtype=kind)

        freq = join(lambda block: block.freq, np.float64)
        uvw = [join(lambda b, k=k: b.of_rows(b.part.uvw[:, k]), np.float64) for k in range(3)]  # type: ignore[misc]
        return cls(
            tuple(blocks),
            join(lambda block: block.vis, np.complex128),
            np.sqrt(join(lambda block: block.weight, np.float64)),
            np.stack(uvw) * (freq / SPEED_OF_LIGHT),
            np.log(freq / ref_freq),
            join(lambda block: block.of_rows(block.part.antenna1), np.int64),
            join(lambda block: block.of_rows(block.part.antenna2), np.int64),
            join(lambda block: np.full(block.vis.size, block.i_part), np.int64),
            join(lambda block: block.of_rows(block.part.time_of_slots), np.float64),
        )

    def smeared(self, smearing: Sequence[Smearing | None]) -> VisibilityChunk:
        """The data, with models as averages in those partitions for which there is a smearing."""
        given = [smearing[block.i_part] for block in self.blocks]
        if not any(given):
            return replace(self, averages=None)
        found = []
        for block, one in zip(self.blocks, given, strict=True):
            if one is None:
                found.append(Averages(*(np.zeros((block.vis.size, 3)) for _ in range(3))))
            else:
                found.append(Averages.of(one, block.part.rows, block.index).at(block.used))
        return replace(self, averages=Averages.joined(found))

    @property
    def baseline(self) -> NDArray[np.int64]:
        """A number for each pair of antennas, the same in all chunks."""
        return self.antenna1 * MAX_ANTENNA + self.antenna2

    @property
    def length(self) -> Array:
        """Lengths of the baselines, without w, in wavelengths."""
        return np.asarray(np.hypot(self.uvw[0], self.uvw[1]))

    def factors(self, component: Component) -> list[Averages | BeamFactors]:
        """What a component loses by its place."""
        found: list[Averages | BeamFactors] = []
        if self.averages is not None and self.averages.largest * np.hypot(*component.lm) > LEAST_TURN:
            found.append(self.averages)
        if self.blocks[0].beam is not None:
            found.append(self.blocks[0].beam)
        return found

    def _each(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of rows and channels where these have a weight."""
        return values[self.blocks[0].used] if values.ndim == 2 else values

    def chi2(self, residual: Vis) -> float:
        """sum w |r|^2."""
        scaled = residual * self.root
        return float(np.vdot(scaled, scaled).real)

    def model(self, components: Sequence[Component]) -> Vis:
        """Visibilities of all components together, Jy."""
        total = np.zeros(self.vis.shape, np.complex128)
        for component in components:
            total += component.flux * self._unit(component)
        return total

    def jacobian(self, components: Sequence[Component], spectral: bool) -> tuple[Vis, Vis]:
        """Visibilities of all components together, and the Jacobian of V / sigma (n_param + 1, n).

        The last row has no values yet.
        """
        total = np.zeros(self.vis.shape, np.complex128)
        n = sum(n_param(component, spectral) for component in components)
        jacobian, first = np.empty((n + 1, self.vis.size), np.complex128), 0
        for component in components:
            unit = self._unit(component)
            total += component.flux * unit
            np.multiply(unit, self.root, out=jacobian[first])
            scaled = component.flux * jacobian[first]
            for j, slope in enumerate(self._log_slopes(component, spectral), start=first + 1):
                np.multiply(scaled, slope, out=jacobian[j])
            first += n_param(component, spectral)
        return total, jacobian

    def _unit(self, component: Component) -> Vis:
        """Visibilities of a component of 1 Jy at the reference frequency (physics: sections 2, 4 and 5)."""
        u, v, w = self.uvw
        l, m = component.lm
        n = np.sqrt(max(1.0 - l * l - m * m, 1e-12))
        turns = u * l + v * m + w * (-(l * l + m * m) / (1.0 + n))
        vis: Vis = np.exp(2j * np.pi * (turns - np.rint(turns)))
        if component.root:
            a, b = self._projected(component)
            xx, xy, yy = component.covariance
            vis *= np.exp(-2.0 * np.pi**2 * (xx * a * a + 2.0 * xy * a * b + yy * b * b))
        if component.index:
            vis *= np.exp(component.index * self.freq_ratio)
        for factor in self.factors(component):
            vis *= self._each(factor.kept(component.lm))
        return vis

    def _projected(self, component: Component) -> tuple[Array, Array]:
        """u and v that the shape of a component depends on, in its tangent plane."""
        u, v, w = self.uvw
        l, m = component.lm
        if abs(l) + abs(m) <= 1e-5:
            return u, v
        n = np.sqrt(max(1.0 - l * l - m * m, 1e-12))
        return u - w * (l / n), v - w * (m / n)

    def _log_slopes(self, component: Component, spectral: bool) -> Iterator[NDArray[np.generic]]:
        """Derivatives of ln V by l, m, the spectral index and the root."""
        u, v = self._projected(component)
        lost = [[self._each(x) for x in f.log_slopes(component.lm)] for f in self.factors(component)]
        yield 2j * np.pi * u + sum(by_l for by_l, _ in lost)
        yield 2j * np.pi * v + sum(by_m for _, by_m in lost)
        if spectral:
            yield self.freq_ratio
        yield from component.envelope_slopes(u, v)


def _as_points(components: Sequence[Component], ref_freq: float) -> Sources:
    """Places, fluxes and spectra of components."""
    n = len(components)
    stokes, terms = np.zeros((1, 1, n, 4)), np.zeros((1, n, 4, 1))
    stokes[0, 0, :, 0] = [component.flux for component in components]
    terms[0, :, :, 0] = np.array([component.index for component in components])[:, None]
    return Sources(
        lm=np.array([component.lm for component in components]).reshape(1, n, 2),
        stokes=stokes,
        ref_freq=np.full(n, ref_freq),
        spectral_terms=terms,
        log_spectrum=np.ones(n, bool),
        shape=np.zeros((1, 0, 3)),
    )


def _grouped(blocks: Sequence[RowBlock]) -> Iterator[list[RowBlock]]:
    """Blocks that make chunks: small ones together, but those with beams alone."""
    group: list[RowBlock] = []
    for block in blocks:
        size = sum(each.vis.size for each in group)
        if group and (size + block.vis.size > CHUNK or block.beam is not None):
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _blocks(i_part: int, part: Partition, backend: Backend, beams: SeenThrough | None) -> Iterator[RowBlock]:
    """The rows of a partition that have a weight."""
    beam = None if beams is None else beams.beams[i_part]
    vis, weight = stokes_visibilities(part, part.vis, PSEUDO_I)
    rows = np.flatnonzero(weight.any(axis=1))
    for index in np.array_split(rows, max(1, -(-len(rows) * part.n_chan // CHUNK))):
        if len(index):
            used = weight[index] > 0.0
            yield RowBlock(
                i_part,
                part,
                index,
                used,
                np.asarray(vis[index, :, 0], np.complex128)[used],
                weight[index][used],
                None if beam is None else BeamFactors.of(part, index, beam, backend),
            )
