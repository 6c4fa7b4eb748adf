"""Where the climb to a maximum begins beside gains: at the maximum of the closures of the same data.

Closures see no gains, so that their maximum is found by a cheap search of the sky alone. They leave the flux
scale open, which is taken from the amplitudes of the data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.errors import BiroError
from biro.inference.maximum.maximum import maximise
from biro.inference.target.protocol import DifferentiableLikelihood, StartPoints
from biro.observation.observation import Observation

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
_FLUXES = ("I", "Q", "U", "V")


class Predicting(DifferentiableLikelihood, Protocol):
    """A likelihood that predicts visibilities."""

    @property
    def observation(self) -> Observation:
        """The data."""

    def predict(self, theta: Array) -> Sequence[NDArray[np.complexfloating]]:
        """Visibilities of one theta (n_param,), of each partition."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of a search whose result is only a start: closures leave the flux scale open."""
    search = logging.getLogger("biro.inference.maximum.maximum")
    level = search.level
    search.setLevel(logging.ERROR)
    try:
        yield
    finally:
        search.setLevel(level)


def gain_starts(likelihood: DifferentiableLikelihood, closures: Predicting, seed: int) -> StartPoints:
    """Parameters of a likelihood with gains at the modes of closures, found in the whole prior.

    Parameters
    ----------
    likelihood : DifferentiableLikelihood
    closures : Predicting
        Of the closures of the same data and sky.
    seed : int
        Of the search.

    Returns
    -------
    StartPoints
        With the part of the posterior of closures in modes that were not found; none at all where closures
        cannot be searched.
    """
    try:
        with _quiet():
            found = maximise(closures, seed=seed, watch=lambda best: None)
    except BiroError as error:
        log.info("gains: the fit does not start at the maximum of the closures: %s", error)
        return StartPoints(np.empty((0, likelihood.n_param)))
    names = {name: i for i, name in enumerate(likelihood.parameter_names)}
    middle = likelihood.prior_transform(np.full(likelihood.n_param, 0.5))
    starts = []
    for mode in found.modes:
        theta = middle.copy()
        for name, value in zip(found.names, mode.laplace.theta, strict=True):
            if name in names:
                theta[names[name]] = value
        starts += [theta, _with_fluxes_of_data(likelihood, closures, theta)]
    log.info("gains: the fit starts at %d modes of the closures (%s)", len(found.modes), found.agreement)
    wrapped = likelihood.model.wrap(np.array(starts))
    inside = wrapped[np.isfinite(likelihood.log_prior(wrapped))]
    return StartPoints(np.unique(inside, axis=0), searched=True, missed_mass=found.missed_mass)


def _with_fluxes_of_data(likelihood: DifferentiableLikelihood, closures: Predicting, theta: Array) -> Array:
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
