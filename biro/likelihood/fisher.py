"""The Fisher information of a likelihood: how precisely data are expected to determine the parameters.

J are the derivatives of the visibilities V of a partition with respect to theta, W the weights, N the number
of usable samples and s the noise factor. For Gaussian noise

    F = sum over partitions of Re(J^H W J) / s^2 + (ds/dtheta) (ds/dtheta)^T 4 N / s^2

This is minus the expected second derivative of ln L (physics: section 7), in which V and s do not mix. For
Student's t the factors are those of `normalisation.student_information`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.inference.block_arrowhead.matrix import ArrowheadMatrix
from biro.inference.block_arrowhead.space import ArrowheadSpace
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.normalisation import student_information
from biro.models import BoundModel
from biro.models.bound.antenna_terms.reach import NONE
from biro.models.bound.theta_batch import ThetaBatch
from rime_kernels import Gradient, Sources
from rime_kernels.tangent.grouped import GroupedInformation

Array = NDArray[np.float64]


class JacobianProducts(Protocol):
    """Products of the derivatives of the data of a partition, weighted by their covariance."""

    def information(self, i: int, sources: Sources, change: Gradient) -> Array:
        """Re(J^H W J) between changes of the sources of partition i, with what takes the place of W."""

    def information_product(self, i: int, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H W J v) for one change v of the sources of partition i."""


class SegmentedJacobianProducts(JacobianProducts, Protocol):
    """Products by segments as well as whole ones, where these do not mix."""

    def segment_information(
        self, i: int, sources: Sources, change: Gradient, segments: NDArray[np.int64], n_inner: int
    ) -> GroupedInformation:
        """`information` in blocks; `segments` (n_time,) are those of the times of partition i."""


class Fisher:
    """The Fisher information at one theta, as a matrix or as products with vectors.

    Parameters
    ----------
    model : BoundModel
    engines : PartitionEngines
    sums : JacobianProducts
        What makes chi-squared of visibilities; `arrowhead` needs `SegmentedJacobianProducts`.
    n_data : int64 (n_partition,)
        Real numbers that chi-squared of each partition is a sum over.
    batch : ThetaBatch
        The one theta at which F is evaluated.
    of_noise : float64 (n_param, n_param), optional
        The information on the noise, where it is not that of one factor for each partition.

    Raises
    ------
    InputError
        theta breaks a constraint of the model.
    """

    def __init__(
        self,
        model: BoundModel,
        engines: PartitionEngines,
        sums: JacobianProducts,
        n_data: NDArray[np.int64],
        batch: ThetaBatch,
        of_noise: Array | None = None,
    ) -> None:
        if not batch.allowed.all():
            raise InputError("theta breaks a constraint of the model: it has no Fisher information")
        self._model, self._n_data, self._batch = model, n_data, batch
        self._sums, self._shifts, self._given = sums, engines.shifts, of_noise
        factor, dof = batch.noise_factor, batch.noise_dof
        self._of_noise: tuple[Array, ...]  # information of a sample on s, on s with nu, on nu
        if dof is None:
            zero = np.zeros_like(factor)
            self._of_vis, self._of_noise = 1.0 / factor[0] ** 2, (4.0 / factor**2, zero, zero)
        else:
            of_vis, *others = student_information(factor, dof)
            self._of_vis, self._of_noise = of_vis[0], tuple(others)

    def matrix(self) -> Array:
        """F, float64 (n_param, n_param)."""
        information = self._noise()
        for i, sources, change in self._changes(np.eye(self._model.n_param)):
            shifted = self._shifts.of(i, sources)
            information += self._of_vis[i] * self._sums.information(i, shifted, change)
        return information

    def arrowhead(self, space: ArrowheadSpace) -> ArrowheadMatrix:
        """F in the states of a space, in blocks: W^T F W with theta = W x. Of data, without the prior.

        One change stands for the parameters of all segments that have the same place in them.
        """
        layout, changes = space.layout, space.changes
        m, n_segment = layout.index.shape[1], len(layout.index)
        noise = self._noise(layout.border)
        found = ArrowheadMatrix(
            np.zeros((n_segment, m, m)), None, np.zeros((n_segment, m, layout.border.size)), noise
        )
        for i, sources, change in self._changes(changes):
            part = cast(SegmentedJacobianProducts, self._sums).segment_information(
                i, self._shifts.of(i, sources), change, space.segment_of_time[i], m
            )
            own = slice(len(part.diagonal))
            found.diagonal[own] += self._of_vis[i] * part.diagonal
            found.side[own] += self._of_vis[i] * part.side
            found.corner[...] += self._of_vis[i] * part.corner
        there = layout.index != NONE
        found.diagonal[...] *= there[:, :, None] & there[:, None, :]
        found.diagonal[...] += np.eye(m) * ~there[:, :, None]
        found.side[...] *= there[..., None]
        return found

    def product(self, change: Array) -> Array:
        """F v, float64 (n_param,), for a change v of theta, float64 (1, n_param).

        J v is computed first, then weighted and multiplied by the adjoint of J.
        """
        pulled = []
        for i, sources, of_sources in self._changes(change):
            shifted = self._shifts.of(i, sources)
            gradient = self._sums.information_product(i, shifted, of_sources)
            pulled.append(self._shifts.pull_back(i, sources, gradient))
        of_vis = self._batch.pull_back(pulled, self._of_vis[None])[0]
        return np.asarray(of_vis + self._noise() @ change[0])

    def _changes(self, change: Array) -> Iterator[tuple[int, Sources, Gradient]]:
        """For each partition its index, the sources of the model, and their changes.

        Shifts of images in these changes are about the phase centre of the partition.
        """
        pairs = zip(self._batch.sources(), self._batch.push_forward(change), strict=True)
        for i, (sources, of_sources) in enumerate(pairs):
            yield i, sources, self._shifts.push_forward(i, sources, of_sources)

    def _noise(self, which: NDArray[np.int64] | slice = slice(None)) -> Array:
        """The information on noise factors and degrees of freedom, between all or some of the parameters."""
        if self._given is not None:
            return self._given[which][:, which]
        model, one = self._model, np.eye(len(self._n_data))
        of_factor = model.pull_back_noise(one)[:, which]
        of_dof = model.pull_back_noise(np.zeros_like(one), one)[:, which]
        factors, mixed, dofs = (0.5 * self._n_data * part[0] for part in self._of_noise)
        cross = (of_factor.T * mixed) @ of_dof
        return np.asarray((of_factor.T * factors) @ of_factor + cross + cross.T + (of_dof.T * dofs) @ of_dof)
