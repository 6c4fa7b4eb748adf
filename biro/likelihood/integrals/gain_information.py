"""The Fisher information on a sky where gains are free beside it.

With J the derivatives of visibilities with respect to theta, K those with respect to the coordinates of the
gains, P the curvature of their prior, and W the weights,

    F = J^H W J - J^H W K (K^H W K + P)^-1 K^H W J

the Schur complement of the joint information: its inverse is the covariance of theta in that of all together.
Where the noise follows the sky, the information that variances have on it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.engines import PartitionEngines
from biro.likelihood.fisher import Fisher
from biro.likelihood.free_gains.gain_search import FreeGains
from biro.likelihood.noise.varied_noise import weight_ratios
from biro.models import BoundModel
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from biro.models.bound.theta_batch import ThetaBatch

Array = NDArray[np.float64]


class GainInformation(Fisher):
    """F at one theta, by products with vectors.

    Parameters
    ----------
    model : BoundModel
    engines : PartitionEngines
    free : FreeGains
    priors : NormalPriors
        Of the gains.
    n_data : int64 (n_partition,)
    batch : ThetaBatch
    weights : list of float64 (n_row, n_chan, n_corr) or None
        W of each partition, times the square of its noise factor, where it is not what is stated.
    of_noise : function
        Of the visibilities without the fitted gains, of each partition, to the information on noise and
        priors of gains, float64 (n_param, n_param); to None where it is that of one noise factor for each
        partition.
    """

    def __init__(
        self,
        model: BoundModel,
        engines: PartitionEngines,
        free: FreeGains,
        priors: NormalPriors,
        n_data: NDArray[np.int64],
        batch: ThetaBatch,
        weights: list[Array] | None,
        of_noise: Callable[[Sequence[NDArray[np.complexfloating]]], Array | None],
    ) -> None:
        super().__init__(model, engines, engines, n_data, batch)
        self._engines = engines
        stated = [part.weight for part in free.partitions]
        self._ratios = None if weights is None else weight_ratios(weights, stated)
        vis = [rime.predict(of)[0] for rime, of in zip(engines.rimes, engines.sources(batch), strict=True)]
        self._given = of_noise(vis)
        self._models = free.of_visibilities(vis, weights)
        self._best = free.best(self._models, batch.noise_factor[0], priors)
        self._cells = free.layout.partitions

    def matrix(self) -> Array:
        """F, float64 (n_param, n_param)."""
        found = np.array([self.product(one[None]) for one in np.eye(self._model.n_param)])
        return np.asarray(0.5 * (found + found.T))

    def product(self, change: Array) -> Array:
        """F v, float64 (n_param,), for a change v of theta, float64 (1, n_param)."""
        each = [(i, of, self._shifts.of(i, of), moved) for i, of, moved in self._changes(change)]
        changes = [self._engines.rimes[i].tangent(shifted, moved)[0] for i, _, shifted, moved in each]
        logs = self._best.response(self._models, changes)
        power, pulled = np.abs(self._best.gain) ** 2, []
        for i, of_model, shifted, _ in each:
            cells, vis = self._cells[i], self._models[i].vis
            weight = cells.of_visibilities(power, vis.shape[2]) / self._best.factor[i] ** 2
            left = weight * (changes[i] - vis * cells.of_visibilities(logs, vis.shape[2]))
            left = left if self._ratios is None else self._ratios[i] * left
            gradient = self._engines.rimes[i].adjoint(shifted, left[None])
            pulled.append(self._shifts.pull_back(i, of_model, gradient))
        return np.asarray(self._batch.pull_back(pulled)[0] + self._noise() @ change[0])
