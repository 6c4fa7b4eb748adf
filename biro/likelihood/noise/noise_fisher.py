"""The Fisher information where the noise differs among baselines and its variance follows the model.

With J the derivatives of visibilities, v the variance of the real and of the imaginary part of a sample, and
n those of ln v by the parameters, through the noise and through V of the model alike, sums over samples are

    F = Re(J^H J) / v + n n^T

(Kay 1993, section 3.9: of two real numbers of one variance). So the noise and the sky do mix. Of Student's t
with nu degrees of freedom, d being the derivatives of nu, it is

    F = (nu + 2) / (nu + 4) Re(J^H J) / v + nu / (nu + 4) n n^T - 2 / ((nu + 2) (nu + 4)) (n d^T + d n^T)
        + 8 / (nu^2 (nu + 2) (nu + 4)) d d^T

as of a scale s (`biro.likelihood.normalisation.student_information`), ln v being 2 ln s.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from biro.inference.block_arrowhead.matrix import ArrowheadMatrix
from biro.inference.block_arrowhead.space import ArrowheadSpace
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher, JacobianProducts
from biro.likelihood.noise.varied_noise import VariedNoise
from biro.models import BoundModel
from biro.models.bound.antenna_terms.reach import NONE
from biro.models.bound.theta_batch import ThetaBatch

Array = NDArray[np.float64]
_BYTES = 256 << 20
"""Number of changes of visibilities that are made at a time."""
MOST_BYTES = 1 << 30
"""Most parameters n: above it, products with single changes make the matrix, which takes longer."""


class NoiseFisher(Fisher):
    """F at one theta.

    Parameters
    ----------
    model : BoundModel
    engines : PartitionEngines
    sums : JacobianProducts
        With the weights s^2 / v.
    n_data : int64 (n_partition,)
    batch : ThetaBatch
        The one theta at which F is evaluated.
    varied : VariedNoise
    vis : list of complex (n_row, n_chan, n_corr)
        V of each partition there, Jy.
    """

    def __init__(
        self,
        model: BoundModel,
        engines: PartitionEngines,
        sums: JacobianProducts,
        n_data: NDArray[np.int64],
        batch: ThetaBatch,
        varied: VariedNoise,
        vis: list[NDArray[np.complexfloating]],
    ) -> None:
        super().__init__(model, engines, sums, n_data, batch, np.zeros((model.n_param,) * 2))
        self._engines, self._varied, self._vis = engines, varied, vis
        self._numbers, self._slopes = varied.terms(batch.theta)[0], varied.slopes()
        zero = np.zeros((len(vis),) * 2)
        self._of_dof = model.pull_back_noise(zero, np.eye(len(vis)))  # d of each partition
        self._by = [self._of_sample(i) for i in range(len(vis))]

    def _of_sample(self, i: int) -> tuple[float, float, float]:
        """Information of a sample on ln v, on ln v with nu, and on nu."""
        if self._batch.noise_dof is None:
            return 1.0, 0.0, 0.0
        nu = float(self._batch.noise_dof[0, i])
        both = (nu + 2.0) * (nu + 4.0)
        return nu / (nu + 4.0), -2.0 / both, 8.0 / (nu**2 * both)

    def _products(self, i: int, each: Array, of_dof: Array, n: float) -> Array:
        """Sums of what is beside Re(J^H J) / v over n samples, (n_change, n_change)."""
        of_variance, mixed, of_nu = self._by[i]
        flat = each.reshape(len(each), -1)
        cross = mixed * np.outer(flat.sum(axis=1), of_dof)
        return np.asarray(
            of_variance * (flat @ flat.T) + cross + cross.T + n * of_nu * np.outer(of_dof, of_dof)
        )

    def matrix(self) -> Array:
        """F, float64 (n_param, n_param)."""
        one = np.eye(self._model.n_param)
        if 8 * len(one) * max(vis.size for vis in self._vis) > MOST_BYTES:
            by_product = np.array([self.product(each[None]) for each in one])
            return np.asarray(0.5 * (by_product + by_product.T))
        found = super().matrix()
        for i, each in self._relative(one):
            found += self._products(i, each, self._of_dof[i], 0.5 * self._n_data[i])
        return found

    def product(self, change: Array) -> Array:
        """F v, float64 (n_param,), for a change v of theta, float64 (1, n_param)."""
        by_number, (by_factor, by_dof) = np.zeros((1, self._numbers.size)), np.zeros((2, 1, len(self._vis)))
        seeds = [np.zeros((1, *vis.shape), np.complex128) for vis in self._vis]
        for i, each in self._relative(change):
            noise, factor = self._varied.each[i], self._batch.noise_factor[0, i]
            at = self._vis[i], self._numbers, factor
            inverse, (of_variance, mixed, of_nu) = noise.weight(*at), self._by[i]
            moved = float(self._of_dof[i] @ change[0])
            by_dof[0, i] = mixed * each.sum() + 0.5 * self._n_data[i] * of_nu * moved
            # Of these h, -sum h / v - sum ln v has n (n^T v) for its derivatives.
            total = 1.0 + of_variance * each[0] + mixed * moved
            half = np.divide(total, inverse, out=np.zeros_like(inverse), where=inverse > 0.0)
            found, by_factor[0, i], by_vis = noise.noise_slopes(half, *at)
            by_number += found
            if by_vis is not None:
                seeds[i][0] = by_vis
        by_noise = self._varied.pull_back(by_number, by_factor, by_dof)[0]
        by_sky = self._batch.pull_back(self._engines.adjoint(self._batch, seeds))[0]
        return np.asarray(super().product(change) + by_noise + by_sky)

    def arrowhead(self, space: ArrowheadSpace) -> ArrowheadMatrix:
        """F in the states of a space, in blocks: see `Fisher.arrowhead`."""
        found, index = super().arrowhead(space), space.layout.index
        m, there = index.shape[1], index != NONE
        for i, each in self._relative(space.changes):
            segments = space.segment_of_time[i][self._engines.rimes[i].rows.time_index]
            for one in np.unique(segments):
                own = segments == one
                n = float(np.count_nonzero(self._varied.each[i].used[own]))
                part = self._products(i, each[:, own], space.changes @ self._of_dof[i], n)
                found.corner[...] += part[m:, m:]
                if one != NONE:
                    part[:m] *= there[one, :, None]
                    found.diagonal[one] += part[:m, :m] * there[one]
                    found.side[one] += part[:m, m:]
        return found

    def _relative(self, change: Array) -> Iterator[tuple[int, Array]]:
        """n of changes of theta (n_change, n_param), of each partition.

        Float64 (n_change, n_row, n_chan, n_corr).
        """
        for i, (noise, vis) in enumerate(zip(self._varied.each, self._vis, strict=True)):
            at = vis, self._numbers, self._batch.noise_factor[0, i]
            each, along = noise.relative_change(*at, change @ self._slopes[i].T)
            if self._varied.terms.follows_model:
                step = max(1, _BYTES // (16 * max(1, vis.size)))
                for k in range(0, len(change), step):
                    each[k : k + step] += (np.conj(along) * self._tangent(i, change[k : k + step])).real
            yield i, each

    def _tangent(self, i: int, change: Array) -> NDArray[np.complex128]:
        """J times changes of theta, (n_change, n_row, n_chan, n_corr)."""
        sources = self._batch.sources()[i]
        moved = self._shifts.push_forward(i, sources, list(self._batch.push_forward(change))[i])
        return self._engines.rimes[i].tangent(self._shifts.of(i, sources), moved)
