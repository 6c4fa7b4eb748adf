"""The treatment of gains that is asked for."""

from __future__ import annotations

from biro.likelihood.engines import PartitionEngines
from biro.likelihood.treatments.closures import Closures
from biro.likelihood.treatments.inner_gains import InnerGains
from biro.likelihood.treatments.treatment import INNER_GAINS, Gains, Treatment
from biro.likelihood.treatments.visibilities import Visibilities
from biro.models import BoundModel
from biro.observation.observation import Observation


def treatment_of(
    gains: Gains, observation: Observation, model: BoundModel, engines: PartitionEngines, full: BoundModel
) -> Treatment:
    """The treatment with this name, of a model that is bound to an observation.

    `full` is the model with the priors of gains that `model`, to which theta belongs, may lack.

    Raises
    ------
    InputError
        The treatment cannot be used with these data or this model.
    """
    if gains in INNER_GAINS:
        return InnerGains(observation, model, engines, full, integrate=gains == "marginalise")
    kind = Closures if gains == "closures" else Visibilities
    return kind(observation, model, engines)
