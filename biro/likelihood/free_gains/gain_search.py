"""The search for the gains that fit the visibilities of a sky best, from one sky to the next."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.best_gains import BestGains, DeviceGains
from biro.likelihood.free_gains.gain_problem import GainProblem
from biro.models.bound.antenna_terms.log_gains import LogGains
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from biro.observation.partition import Partition
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.device import DeviceMemoryError
from rime_kernels.gains.cuda.tables import fits
from rime_kernels.gains.models import CellModel
from rime_kernels.resident_model import ResidentModel

if TYPE_CHECKING:
    from rime_kernels.gains.cuda.solver import GroupSolver

log = logging.getLogger(__name__)
Array = NDArray[np.float64]


class FreeGains(GainProblem):
    """The fitted gains of a model, found anew for the visibilities of each sky; see `GainProblem`."""

    def __init__(
        self, partitions: Sequence[Partition], gains: LogGains, left_out: Array | None = None
    ) -> None:
        super().__init__(partitions, gains, left_out)
        self._solver: GroupSolver | None = None
        self._may_solve = fits(self.layout.cells, self.layout.groups)

    def best(
        self, models: Sequence[CellModel], factor: Array, priors: NormalPriors | None = None
    ) -> BestGains:
        """The gains that fit best: a function of what is given, whatever was asked for before.

        The search begins at a maximum of similar data that a search from the data alone has found, or from
        the data alone (`rime_kernels.gains.maximum`). It runs where the models are, on a GPU as long as all
        groups of gains have such a maximum.

        Parameters
        ----------
        models : sequence of CellModel
            Visibilities without the fitted gains, of each partition.
        factor : float64 (n_partition,)
            Noise factors.
        priors : NormalPriors, optional
            Where they follow numbers that are fitted: those of one theta.
        """
        known = self.gains.priors.known
        priors = known if priors is None else priors
        solver = self._solver_of(models) if priors is known else None
        if solver is not None:
            (model,) = models
            assert isinstance(model, ResidentModel), "what a solver is for"
            with CALL_LOCK:
                there = solver.best(self.layout.groups, model.sums_on_device(float(factor[0]) ** -2))
            if there is not None:
                return DeviceGains(self, model, factor, solver, there)
        self.begin(self)
        self.use(priors)
        found = BestGains(self, models, factor, np.zeros(self.layout.n), priors)
        found.climb_from(self.anchor)
        if solver is not None:
            solver.place(self.anchor)
        return found

    def _solver_of(self, models: Sequence[CellModel]) -> GroupSolver | None:
        """The solver of the device where the models are; None where they are not, or it has none for them."""
        if not (self._may_solve and len(models) == 1 and isinstance(models[0], ResidentModel)):
            return None
        if self._solver is None:
            # Imported here, since it brings CUDA.
            from rime_kernels.gains.cuda.solver import GroupSolver

            try:
                self._solver = GroupSolver(self.layout.cells, self.layout.groups, self.returns)
            except DeviceMemoryError as error:
                log.info("fitting gains on the CPU: %s", error)
                self._may_solve = False
        return self._solver
