"""Model visibilities V of batches of theta, and products with their derivatives J = dV/dtheta."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError
from biro.likelihood.residuals import Residuals
from biro.models.bound.theta_batch import ThetaBatch

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


class Jacobian:
    """Model visibilities of a likelihood, and products with their derivatives, for batches of theta.

    Visibilities without weight are 0, so that all three methods are about the same function of theta.
    Entries of a batch with impossible sources, such as one below the horizon, have NaN.

    Parameters
    ----------
    likelihood : Likelihood
        With `average="cells"`, visibilities are those of all rows and channels.

    Attributes
    ----------
    shapes : list of tuple of int
        (n_row, n_chan, n_corr) of each partition.

    Raises
    ------
    InputError
        Other processes have data; or theta lacks parameters, which are integrated over or solved for.
    """

    def __init__(self, likelihood: Residuals) -> None:
        whole = likelihood._of_all_data
        if whole._inner is not None:
            raise InputError(
                "model visibilities depend on parameters that this likelihood integrates over or solves for; "
                "use its `full`, which has them in theta"
            )
        if whole.observation.is_distributed:
            raise InputError(
                "model visibilities are in one process only, and this likelihood shares its data among "
                "several; use its log_likelihood"
            )
        self._whole, self._engines = whole, whole._engines
        self._weights = [part.weight for part in whole.observation.partitions]
        self.shapes = [weight.shape for weight in self._weights]

    def visibilities(self, theta: ArrayLike) -> list[Complex]:
        """V of each partition, complex128 (n_batch, n_row, n_chan, n_corr), Jy."""
        batch = self._batch(theta)
        found = self._of_nan(len(batch))
        for i, rows, vis in self._engines.visibilities(batch):
            found[i][rows] = np.where(self._weights[i] > 0.0, vis, 0.0)
        return found

    def push_forward(self, theta: ArrayLike, change: Array) -> list[Complex]:
        """J v of each partition, in the shapes of `visibilities`, exact, by the CPU in double precision.

        Parameters
        ----------
        theta : (n_batch, n_param)
        change : float64 (n_batch, n_param)
            v of each theta.
        """
        batch, found = self._batch(theta), self._of_nan(len(change))
        for i, all_sources in enumerate(batch.sources()):
            rows = np.flatnonzero(~all_sources.invalid())
            if not rows.size:
                continue
            some = batch.rows(rows)
            sources, moved = list(some.sources())[i], list(some.push_forward(change[rows]))[i]
            moved = self._engines.shifts.push_forward(i, sources, moved)
            tangent = self._engines.rimes[i].tangent(self._engines.shifts.of(i, sources), moved)
            found[i][rows] = np.where(self._weights[i] > 0.0, tangent, 0.0)
        return found

    def pull_back(self, theta: ArrayLike, slopes: Sequence[Complex]) -> Array:
        """Re(J^H c), float64 (n_batch, n_param), the adjoint of `push_forward`.

        For every v the sum of Re(conj(J v) c) over visibilities is the sum of v times this.

        Parameters
        ----------
        theta : (n_batch, n_param)
        slopes : sequence of complex (n_batch, n_row, n_chan, n_corr), 1/Jy
            c of each partition.
        """

        def residual(i: int, rows: slice, vis: NDArray[np.complexfloating]) -> Complex:
            weight = self._weights[i]
            found = np.zeros(vis.shape, np.complex128)
            np.divide(slopes[i][rows], weight, out=found, where=weight > 0.0)
            return found

        batch = self._batch(theta)
        return batch.pull_back(self._engines.gradients(batch, residual))

    def _batch(self, theta: ArrayLike) -> ThetaBatch:
        return self._whole._batch(theta)[0]

    def _of_nan(self, n_batch: int) -> list[Complex]:
        return [np.full((n_batch, *shape), np.nan, np.complex128) for shape in self.shapes]
