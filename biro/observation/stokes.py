"""Stokes parameters of visibilities, with their weights, for images."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.observation.partition import PARALLEL_HANDS, Partition
from rime_kernels.physics.brightness import stokes_to_corr

Stokes = Literal["I", "IQUV"]


def stokes_visibilities(
    part: Partition, vis: NDArray[np.complexfloating], stokes: Stokes
) -> tuple[NDArray[np.complexfloating], NDArray[np.float64]]:
    """Stokes visibilities and the weight that they share.

    "I" is the weighted mean of the parallel hands that are there, with the sum of their weights: the least
    noisy estimate for an unpolarised sky. "IQUV" needs all four correlations of a sample, inverts the matrix
    of physics, section 3, and takes 8 / sum(1/w) as the weight: the inverse variance of each of the four
    where the weights w of the correlations are alike.

    Parameters
    ----------
    part : Partition
        Its weights are used, not its visibilities.
    vis : complex (n_row, n_chan, n_corr), Jy
    stokes : "I" or "IQUV"

    Returns
    -------
    vis : complex (n_row, n_chan, 1 or 4), Jy
        0 where the weight is.
    weight : float64 (n_row, n_chan), 1/Jy^2

    Raises
    ------
    InputError
        These Stokes parameters do not follow from the correlations of the partition.
    """
    return _intensity(part, vis) if stokes == "I" else _all_four(part, vis)


def _intensity(
    part: Partition, vis: NDArray[np.complexfloating]
) -> tuple[NDArray[np.complexfloating], NDArray[np.float64]]:
    hands = [i for i, name in enumerate(part.corr_type) if name in PARALLEL_HANDS or name == "I"]
    if not hands:
        names = ", ".join(part.corr_type)
        raise InputError(f"Stokes I needs one of {', '.join(PARALLEL_HANDS)}; field {part.field} has {names}")
    total = np.zeros(vis.shape[:2])
    mean = np.zeros((*vis.shape[:2], 1), vis.dtype)
    for i in hands:
        total += part.weight[..., i]
        mean[..., 0] += part.weight[..., i] * vis[..., i]
    mean[..., 0] /= np.where(total > 0.0, total, 1.0).astype(mean.real.dtype)
    return mean, total


def _all_four(
    part: Partition, vis: NDArray[np.complexfloating]
) -> tuple[NDArray[np.complexfloating], NDArray[np.float64]]:
    matrix = stokes_to_corr(part.corr_type)
    if len(part.corr_type) != 4 or abs(np.linalg.det(matrix)) < 0.5:
        names = ", ".join(part.corr_type)
        raise InputError(
            f"Stokes IQUV needs four correlations; field {part.field} has {names}: take Stokes I"
        )
    complete = np.asarray((part.weight > 0).all(axis=2))
    corr_weight = np.where(complete[..., None], part.weight, 1.0).astype(np.float64)
    weight = np.where(complete, 8.0 / (1.0 / corr_weight).sum(axis=2), 0.0)
    stokes = (vis @ np.linalg.inv(matrix).T.astype(vis.dtype)) * complete[..., None]
    return stokes, weight
