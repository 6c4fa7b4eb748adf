"""Responses of visibilities to parameters in which they are linear: T_k = dV/d(phi_k), and products of them.

    V(theta, phi) = V(theta, 0) + sum_k phi_k T_k(theta)

T_k is the visibilities of those sources alone that phi_k acts on, at phi_k = 1, less these at phi_k = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.disjoint_sources import DisjointSources, disjoint_sources
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.integrals.inner_parameters import InnerParameters
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from rime_kernels import Gradient, Sources

Array = NDArray[np.float64]
Index = NDArray[np.int64]
KEPT = 1 << 30
"""Bytes of responses that are kept; beyond it they are worked out again for each block of products."""
_AT_ONCE = 256
"""Parameters whose sources are made at a time, at most."""


class LinearSums(NamedTuple):
    """What the data say about the linear parameters, for each partition, with weights W.

    Attributes
    ----------
    gram : float64 (n_partition, n_inner, n_inner)
        Re(T^H W T).
    with_residual : float64 (n_partition, n_inner)
        Re(T^H W r), r = D - V(theta, mean).
    chi2 : float64 (n_partition,)
        r^H W r.
    """

    gram: Array
    with_residual: Array
    chi2: Array


@dataclass(frozen=True, eq=False)
class _Piece:
    """Some parameters, with their sources for 1 and 0 in all partitions."""

    disjoint_sources: DisjointSources
    batches: tuple[ThetaBatch, ThetaBatch]
    sources: tuple[list[Sources], list[Sources]]


class Responses:
    """The responses of visibilities to the inner parameters of a model.

    Parameters
    ----------
    observation : Observation
    engines : PartitionEngines
    inner : InnerParameters
    """

    def __init__(self, observation: Observation, engines: PartitionEngines, inner: InnerParameters) -> None:
        self.partitions, self.engines, self.inner = observation.partitions, engines, inner
        full, n = inner.full, len(inner.of_inner)
        # A draw of the prior, where no factor of a linear parameter is 0 by chance.
        draw = np.random.default_rng(0).random((1, full.n_param))
        outer = full.prior_transform(draw)[:, inner.of_outer]
        ones = full.at(inner.theta(np.repeat(outer, n, axis=0), np.eye(n)))
        without = full.at(inner.theta(outer, np.zeros((1, n)))).sources()[0]
        largest = max(part.vis.size for part in self.partitions)
        step = int(np.clip(KEPT // (64 * largest), 1, _AT_ONCE))
        self.groups = [
            part for group in disjoint_sources(without, ones.sources()[0]) for part in group.parts(step)
        ]

    def at(self, outer: Array, weights: Sequence[Array] | None = None) -> ResponsesAt:
        """The responses for one vector of the outer parameters (n_outer,); see `ResponsesAt`."""
        return ResponsesAt(self, outer, weights)


class ResponsesAt:
    """Responses at one vector of the outer parameters.

    Parameters
    ----------
    responses : Responses
    outer : float64 (n_outer,)
    weights : sequence of float64 (n_row, n_chan, n_corr), optional
        W of each partition, by default as stated.
    """

    def __init__(self, responses: Responses, outer: Array, weights: Sequence[Array] | None = None) -> None:
        self._of, self._outer = responses, outer
        self._stated = [part.weight for part in responses.partitions]
        self._roots = [np.sqrt(weight, dtype=np.float64) for weight in weights or self._stated]
        self._pieces = [self._piece(group) for group in responses.groups]
        self._kept: dict[tuple[int, int], Array] = {}
        self._size = 0

    def sums(self, mean: Array) -> LinearSums:
        """Products of responses with each other, and with the residual at `mean` (n_inner,)."""
        of, n = self._of, len(self._of.inner.of_inner)
        batch = of.inner.full.at(of.inner.theta(self._outer[None], mean[None]))
        n_partition = len(of.partitions)
        sums = LinearSums(np.zeros((n_partition, n, n)), np.zeros((n_partition, n)), np.zeros(n_partition))
        for i, model in enumerate(of.engines.predict(batch)):
            residual = self._weighted(i, of.partitions[i].vis - model)[0]
            sums.chi2[i] = residual @ residual
            for a, piece in enumerate(self._pieces):
                rows, left = piece.disjoint_sources.members, self._weighted_responses(i, a)
                sums.with_residual[i, rows] = left @ residual
                for b, other in enumerate(self._pieces[: a + 1]):
                    block = left @ (left if b == a else self._weighted_responses(i, b)).T
                    sums.gram[i][np.ix_(rows, other.disjoint_sources.members)] = block
                    sums.gram[i][np.ix_(other.disjoint_sources.members, rows)] = block.T
        return sums

    def trace_slope(self, matrix: Array, factor: Array) -> Array:
        """d/d(outer) of sum over partitions of factor_i tr(C Re(T^H W T)) / 2, with C = `matrix` held fixed.

        That is sum over i and k of factor_i Re(Z_k^H W dT_k), Z = C T.

        Returns
        -------
        float64 (n_outer,)
        """

        def combined(i: int, members: Index) -> NDArray[np.complex128]:
            """Z, with the weights that an adjoint takes for W divided out."""
            root, total = self._roots[i], self._combined(i, matrix[members]).view(np.complex128)
            scale = np.divide(root, self._stated[i], out=np.zeros_like(root), where=root > 0.0)
            return np.asarray(scale * total.reshape(-1, *root.shape))

        return self._slope(combined, factor)

    def spread(self, i: int, matrix: Array) -> Array:
        """T^H C T of each visibility of partition i, float64 (n_row, n_chan, n_corr); C = `matrix` is real.

        It is the mean of |change of V|^2 where parameters change with the covariance C; 0 without weight.
        """
        root, total = self._roots[i], np.zeros(2 * self._roots[i].size)
        for a, piece in enumerate(self._pieces):
            left = self._weighted_responses(i, a)
            total += np.einsum("kn,kn->n", left, self._combined(i, matrix[piece.disjoint_sources.members]))
        square = total.reshape(-1, 2).sum(axis=1).reshape(root.shape)
        return np.asarray(np.divide(square, root**2, out=np.zeros_like(square), where=root > 0.0))

    def slope(self, by: Sequence[NDArray[np.complex128]]) -> Array:
        """Sum over partitions i and k of Re(Z_k^H W dT_k / d(outer)), float64 (n_outer,).

        Parameters
        ----------
        by : sequence of complex128 (n_inner, n_row, n_chan, n_corr)
            Z of each partition; W are the weights that were stated.
        """
        return self._slope(lambda i, members: by[i][members], np.ones(len(by)))

    def visibilities(self, i: int) -> NDArray[np.complexfloating]:
        """T of partition i, complex (n_inner, n_row, n_chan, n_corr), in Jy per unit of each parameter."""
        found = np.empty((len(self._of.inner.of_inner), *self._of.partitions[i].vis.shape), np.complex128)
        for piece in self._pieces:
            found[piece.disjoint_sources.members] = self._visibilities(i, piece)
        return found

    def _slope(self, combined: Callable[[int, Index], NDArray[np.complex128]], factor: Array) -> Array:
        """Sum over i and k of factor_i Re(Z_k^H W dT_k): the adjoint of the derivatives of T."""
        of, slope = self._of, np.zeros(len(self._outer))
        for piece in self._pieces:
            members = piece.disjoint_sources.members
            pairs = [self._pulled(i, piece, combined(i, members)) for i in range(len(of.partitions))]
            for batch, gradients, sign in zip(
                piece.batches, zip(*pairs, strict=True), (1.0, -1.0), strict=True
            ):
                weight = np.repeat(sign * factor[None], len(batch), axis=0)
                slope += batch.pull_back(gradients, weight).sum(axis=0)[of.inner.of_outer]
        return slope

    def _piece(self, group: DisjointSources) -> _Piece:
        full, inner, n = self._of.inner.full, self._of.inner, len(group.members)
        ones = np.zeros((n, len(inner.of_inner)))
        ones[np.arange(n), group.members] = 1.0
        outer = np.repeat(self._outer[None], n, axis=0)
        batches = full.at(inner.theta(outer, ones)), full.at(inner.theta(outer, 0.0 * ones))
        return _Piece(group, batches, (list(batches[0].sources()), list(batches[1].sources())))

    def _weighted_responses(self, i: int, a: int) -> Array:
        """sqrt(W) T of the piece `a` in partition i as real numbers, float64 (n, 2 n_vis)."""
        if (i, a) in self._kept:
            return self._kept[i, a]
        found = self._weighted(i, self._visibilities(i, self._pieces[a]))
        if self._size + found.nbytes <= KEPT:
            self._kept[i, a] = found
            self._size += found.nbytes
        return found

    def _visibilities(self, i: int, piece: _Piece) -> NDArray[np.complexfloating]:
        """T of a piece, complex128 (n, n_row, n_chan, n_corr)."""
        with_, without = (self._isolated(i, piece, sources[i]) for sources in piece.sources)
        vis = self._of.engines.rimes[i].predict(with_).astype(np.complex128, copy=False)
        if _has_flux(without):
            vis = vis - self._of.engines.rimes[i].predict(without)
        return vis

    def _isolated(self, i: int, piece: _Piece, sources: Sources) -> Sources:
        return piece.disjoint_sources.of(self._of.engines.shifts.of(i, sources))

    def _weighted(self, i: int, vis: NDArray[np.complexfloating]) -> Array:
        """sqrt(W) times visibilities (n, n_row, n_chan, n_corr), or those of one, as (n, 2 n_vis) numbers."""
        root = self._roots[i]
        weighted = np.ascontiguousarray(root * vis, dtype=np.complex128).reshape(-1, root.size)
        return weighted.view(np.float64)

    def _combined(self, i: int, matrix: Array) -> Array:
        """Combinations (n, n_inner) of responses, as real numbers times sqrt(W), float64 (n, 2 n_vis)."""
        total = np.zeros((len(matrix), 2 * self._roots[i].size))
        for a, piece in enumerate(self._pieces):
            total += matrix[:, piece.disjoint_sources.members] @ self._weighted_responses(i, a)
        return total

    def _pulled(self, i: int, piece: _Piece, residual: NDArray[np.complex128]) -> tuple[Gradient, Gradient]:
        """Re(J^H W r) for the sources of a piece in partition i, for parameters of 1 and of 0."""
        rime, alone = self._of.engines.rimes[i], [self._isolated(i, piece, of[i]) for of in piece.sources]
        ones = rime.adjoint(alone[0], residual)
        if _has_flux(alone[1]):
            zeros = rime.adjoint(alone[1], residual)
        else:  # then only derivatives with respect to fluxes are not 0, and these do not depend on fluxes
            zeros = replace(ones.times(0.0), stokes=ones.stokes, template_scale=ones.template_scale)
        found = [
            self._spread(i, piece, of[i], gradient)
            for of, gradient in zip(piece.sources, (ones, zeros), strict=True)
        ]
        return found[0], found[1]

    def _spread(self, i: int, piece: _Piece, sources: Sources, gradient: Gradient) -> Gradient:
        """Derivatives with respect to all sources as the model has them."""
        shifts = self._of.engines.shifts
        return shifts.pull_back(i, sources, piece.disjoint_sources.spread(gradient, shifts.of(i, sources)))


def _has_flux(sources: Sources) -> bool:
    scale = sources.template_scale
    return bool(sources.stokes.any() or (scale is not None and scale.any()))
