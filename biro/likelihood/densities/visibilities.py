"""`gains="sample"`: visibilities are calibrated, beside the gains that the model has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.densities.chi_squared import ChiSquaredLikelihood
from biro.likelihood.engines import PartitionEngines
from biro.likelihood.normalisation import Normalisation
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation


class VisibilityLikelihood(ChiSquaredLikelihood):
    """The log-likelihood of visibilities; a `GainTreatment`.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
    engines : PartitionEngines
    """

    def __init__(self, observation: Observation, model: BoundModel, engines: PartitionEngines) -> None:
        normalisation = Normalisation.of_visibilities(observation.partitions)
        super().__init__(observation, model, engines, engines, normalisation)
        self.lines: list[str] = []
        self.identity: list[str] = []

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data as they are: gains are those of the model."""
        return self._observation
