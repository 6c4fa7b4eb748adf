"""Where the climb to a maximum begins beside gains: at the maximum of the closures of the same data.

Closures see no gains, so that their maximum is found by a cheap search of the sky alone. They leave the flux
scale open, which is taken from the amplitudes of the data.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.errors import BiroError
from biro.maximum.maximum import maximise

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
_FLUXES = ("I", "Q", "U", "V")


def gain_starts(likelihood: Likelihood, closures: Likelihood, seed: int) -> Array:
    """Vectors of the parameters of a likelihood with gains, (n_start, n_param), one for each mode of closures.

    Parameters
    ----------
    likelihood : Likelihood
    closures : Likelihood
        Of the closures of the same data and sky.
    seed : int
        Of the search.

    Returns
    -------
    float64 (n_start, n_param)
        None at all where closures cannot be searched.
    """
    try:
        found = maximise(closures, seed=seed, watch=lambda best: None)
    except BiroError as error:
        log.info("gains: the climb does not begin at the maximum of closures: %s", error)
        return np.empty((0, likelihood.n_param))
    names = {name: i for i, name in enumerate(likelihood.parameter_names)}
    middle = likelihood.prior_transform(np.full(likelihood.n_param, 0.5))
    starts = []
    for mode in found.modes:
        theta = middle.copy()
        for name, value in zip(found.names, mode.laplace.theta, strict=True):
            if name in names:
                theta[names[name]] = value
        starts += [theta, _with_fluxes_of_data(likelihood, closures, theta)]
    log.info("gains: the climb begins at %d modes of closures (%s)", len(found.modes), found.agreement)
    wrapped = likelihood.model.wrap(np.array(starts))
    inside = wrapped[np.isfinite(likelihood.log_prior(wrapped))]
    return np.unique(likelihood.with_best_gains(inside), axis=0) if len(inside) else inside


def _with_fluxes_of_data(likelihood: Likelihood, closures: Likelihood, theta: Array) -> Array:
    """theta with all flux densities times one factor: the rms amplitude of the model is that of the data."""
    own = {name: i for i, name in enumerate(likelihood.parameter_names)}
    sky = np.array([theta[own[name]] if name in own else np.nan for name in closures.parameter_names])
    if not np.isfinite(sky).all():
        return theta
    data, model = 0.0, 0.0
    for part, vis in zip(closures.observation.partitions, closures.predict(sky), strict=True):
        used = part.weight > 0.0
        # Noise adds 2/w to |D|^2.
        data += float(np.sum(part.weight[used] * np.abs(part.vis[used]) ** 2) - 2.0 * np.count_nonzero(used))
        model += float(np.sum(part.weight[used] * np.abs(vis[used]) ** 2))
    if not (data > 0.0 and model > 0.0):
        return theta
    moved = theta.copy()
    is_flux = [name.rsplit(".", 1)[-1] in _FLUXES for name in likelihood.parameter_names]
    low, high = likelihood.model.box
    moved[is_flux] = np.clip(theta * np.sqrt(data / model), low, high)[is_flux]
    return moved


def without_gains(likelihood: Likelihood) -> Likelihood | None:
    """The likelihood of the closures of the same data and sky; None where closures are not for these."""
    sky = replace(likelihood.sky, gain=None)
    try:
        return likelihood.of_closures(sky)
    except BiroError as error:
        log.info("gains: the climb does not begin at the maximum of closures: %s", error)
        return None
