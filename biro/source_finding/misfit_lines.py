"""Whether the model that was found fits the data: the lines at the end of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from biro.likelihood.likelihood import Likelihood
from biro.misfit.diagnosis import diagnose
from biro.models import Noise, SkyModel
from biro.observation.observation import Observation
from biro.observation.stokes import PSEUDO_I, form_stokes


def misfit_lines(
    observation: Observation, sky: SkyModel, start: Mapping[str, float], noise_factor: float
) -> tuple[str, ...]:
    """What is wrong with weights or model; nothing where both are right.

    Parameters
    ----------
    observation : Observation
        Stokes I of it is compared with the model.
    sky : SkyModel
        With priors around what was found.
    start : dict
        The values found, by name.
    noise_factor : float
        Rms of the residuals over the stated noise.
    """
    partitions, formed = form_stokes(observation.partitions, PSEUDO_I)
    stokes_i = replace(observation, partitions=tuple(partitions), formed=formed)
    likelihood = Likelihood(stokes_i, replace(sky, noise=Noise(factor=noise_factor)))
    theta = np.array([start[name] for name in likelihood.parameter_names])
    unknown = np.full(theta.shape, np.nan)
    return diagnose(likelihood, theta, unknown, unknown, ()).warnings
