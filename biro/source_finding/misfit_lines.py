"""Whether the model that was found fits the data: the lines at the end of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from biro.likelihood.likelihood import Likelihood
from biro.maximum.partition_fit import fit_warnings, fits_at
from biro.models import Noise, SkyModel
from biro.observation.observation import Observation
from biro.observation.partition import PARALLEL_HANDS, Partition


def misfit_lines(
    observation: Observation, sky: SkyModel, start: Mapping[str, float], noise_factor: float
) -> tuple[str, ...]:
    """What is wrong with weights or model; nothing where both are right.

    Parameters
    ----------
    observation : Observation
        Its parallel hands are compared with the model.
    sky : SkyModel
        With priors around what was found.
    start : dict
        The values found, by name.
    noise_factor : float
        Rms of the residuals over the stated noise.
    """
    hands = replace(observation, partitions=tuple(map(_parallel, observation.partitions)))
    likelihood = Likelihood(hands, replace(sky, noise=Noise(factor=noise_factor)))
    theta = np.array([start[name] for name in likelihood.parameter_names])
    return tuple(fit_warnings(fits_at(likelihood, theta)))


def _parallel(part: Partition) -> Partition:
    """A partition without its cross hands, in which an unpolarised sky has nothing."""
    index = [i for i, name in enumerate(part.corr_type) if name in (*PARALLEL_HANDS, "I")]
    if len(index) == len(part.corr_type):
        return part
    names = tuple(part.corr_type[i] for i in index)
    return replace(part, vis=part.vis[:, :, index], weight=part.weight[:, :, index], corr_type=names)
