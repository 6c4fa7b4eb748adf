"""The treatment of gains that is asked for."""

from __future__ import annotations

from biro.likelihood.engines import PartitionEngines
from biro.likelihood.treatments.closures import Closures
from biro.likelihood.treatments.treatment import Gains, Treatment
from biro.likelihood.treatments.visibilities import Visibilities
from biro.models import BoundModel
from biro.observation.observation import Observation


def treatment_of(
    gains: Gains, observation: Observation, model: BoundModel, engines: PartitionEngines
) -> Treatment:
    """The treatment with this name, of a model that is bound to an observation.

    Raises
    ------
    InputError
        The treatment cannot be used with these data or this model.
    """
    kind = Closures if gains == "closures" else Visibilities
    return kind(observation, model, engines)
