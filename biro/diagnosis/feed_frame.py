"""The frame in which gains act: that of the feeds, where rotation was taken out of data of linear feeds."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from biro.errors import BiroError
from biro.models import SkyModel
from biro.models.bound.antenna_terms.rotation import rotation
from biro.models.components.antenna_terms.feeds import Feeds, basis_of
from biro.observation.observation import Observation
from biro.observation.partition import Partition

log = logging.getLogger(__name__)
Complex = NDArray[np.complex128]
_CORR = ("XX", "XY", "YX", "YY")
_SMALL = 1e-4
"""Angles below which feeds count as not turned, rad."""


def turns_of(observation: Observation, sky: SkyModel, separate: bool) -> list[Complex | None]:
    """P of each partition in which gains of the two feeds do not commute with it, else None.

    A model with rotation "corrected" has A = P^H G D P (physics: section 6): gains are diagonal after data
    and model are turned, P D P^H. P commutes with gains that the feeds have in common, and with those of
    circular feeds. Partitions whose angles are not known, or that lack a correlation, are left as they are.

    Parameters
    ----------
    observation : Observation
    sky : SkyModel
    separate : bool
        Whether the feeds have gains of their own.

    Returns
    -------
    list of complex128 (n_time, n_antenna, 2, 2) or None
    """
    feeds = sky.feeds or Feeds()
    parts = observation.partitions
    if not separate or feeds.rotation != "corrected":
        return [None] * len(parts)
    found: list[Complex | None] = []
    for part, angles in zip(parts, observation.feed_angles, strict=True):
        turn: Complex | None = None
        if basis_of(part.corr_type) == "linear":
            names = [name for name in angles.antenna_names if feeds.offset_of(name) is not None]
            try:
                phi = angles.feed_angle(feeds.mounts, names)
            except BiroError as error:
                log.info("gains are applied to the correlations as stored: %s", error)
                phi = np.zeros((len(part.times), part.n_antenna))
            if np.abs(phi[:, angles.used]).max(initial=0.0) > _SMALL and set(part.corr_type) == set(_CORR):
                turn = rotation(phi, "linear")
        found.append(turn)
    return found


def to_feeds(
    part: Partition, turn: Complex, vis: NDArray[np.complexfloating], *, back: bool = False
) -> Complex:
    """P V P^H of each visibility, complex128 as `vis`; with `back`, P^H V P."""
    matrix = np.swapaxes(turn, -1, -2).conj() if back else turn
    order = [part.corr_type.index(name) for name in _CORR]
    whole = np.asarray(vis, np.complex128)[..., order].reshape(*vis.shape[:2], 2, 2)
    left = matrix[part.time_index, part.antenna1][:, None]
    right = np.swapaxes(matrix[part.time_index, part.antenna2].conj(), -1, -2)[:, None]
    turned = (left @ whole @ right).reshape(vis.shape)
    return turned[..., np.argsort(order)]


def weight_in_feeds(part: Partition, turn: Complex) -> NDArray[np.float64]:
    """1/sigma^2 of turned visibilities, float64 (n_row, n_chan, n_corr); 0 where one of the four has none.

    Turned visibilities are correlated where the four weights differ, which is left out.
    """
    return turned_weight(part, turn, part.weight.astype(np.float64))


def turned_weight(
    part: Partition, turn: Complex, weight: NDArray[np.float64], *, back: bool = False
) -> NDArray[np.float64]:
    """1/sigma^2 of visibilities of these weights that are turned as `to_feeds` turns them."""
    turn = np.swapaxes(turn, -1, -2) if back else turn
    some = (weight > 0.0).all(axis=-1, keepdims=True)
    variance = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0.0)
    order = [part.corr_type.index(name) for name in _CORR]
    whole = variance[..., order].reshape(*variance.shape[:2], 2, 2)
    first = np.abs(turn[part.time_index, part.antenna1])[:, None] ** 2
    second = np.swapaxes(np.abs(turn[part.time_index, part.antenna2]) ** 2, -1, -2)[:, None]
    turned = (first @ whole @ second).reshape(variance.shape)[..., np.argsort(order)]
    return np.where(some, np.divide(1.0, turned, out=np.zeros_like(turned), where=some), 0.0)
