"""Where moving sources are at a time: proper motion and orbits, with derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.si_values import IndexedValues, SIValues
from biro.models.bound.slots import ZERO, ModelSlots
from biro.models.components.motion import ELEMENTS, MOST_ECCENTRIC, MOTION_KEYS, epoch_seconds
from biro.models.components.source import DIMENSIONS, Source
from biro.models.quantities.parameter import Fixed

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_MOST_STEPS = 60


class MotionSlots(NamedTuple):
    """The slots of a source's motion.

    Attributes
    ----------
    epoch : str, Fixed or None
        When it is at its position; None is the first time of the data.
    proper : tuple of int
        Of the proper motion east and north.
    orbit : tuple of int, or None
        In the order of `ELEMENTS`.
    """

    epoch: str | Fixed | None
    proper: tuple[int, ...]
    orbit: tuple[int, ...] | None


def motion_slots(source: Source, slots: ModelSlots) -> MotionSlots | None:
    """The motion of a source; None where it does not move."""
    if all(getattr(source, key) is None for key in (*MOTION_KEYS, "orbit")):
        return None
    proper = tuple(slots.add(source.name, key, getattr(source, key), DIMENSIONS[key]) for key in MOTION_KEYS)
    if source.orbit is None:
        return MotionSlots(source.epoch, proper, None)
    orbit = tuple(
        slots.add(source.name, "orbit", source.orbit.get(key), dimension, f".{key}")
        for key, dimension in ELEMENTS.items()
    )
    return MotionSlots(source.epoch, proper, orbit)


def eccentric_anomaly(mean: Array, eccentricity: Array) -> Array:
    """E of Kepler's equation E - e sin E = M, for 0 <= e < 1, to 1e-14 or so.

    E - e sin E - M is convex in 0 .. pi, and not negative at min(M + e, pi): from there Newton's steps come
    down to the root without passing it.

    Parameters
    ----------
    mean : float64, rad
        M, any number; E differs from it by e at most.
    eccentricity : float64, of a shape that broadcasts with it
    """
    turned = np.remainder(mean + np.pi, 2 * np.pi) - np.pi
    target = np.abs(turned)
    found = np.minimum(target + eccentricity, np.pi)
    for _ in range(_MOST_STEPS):
        step = (found - eccentricity * np.sin(found) - target) / (1 - eccentricity * np.cos(found))
        found = found - step
        if not np.any(np.abs(step) > 1e-15):
            break
    return np.asarray(mean - turned + np.copysign(found, turned))


def orbit_offset(elements: Array, time: float) -> tuple[Array, Array]:
    """How far east and north an orbit is from its focus at a time, and the derivatives (van de Kamp 1967).

        north = A X + F Y,  east = B X + G Y,  X = cos E - e,  Y = sqrt(1 - e^2) sin E
        A = a ( cos w cos O - sin w sin O cos i),  B = a ( cos w sin O + sin w cos O cos i)
        F = a (-sin w cos O - cos w sin O cos i),  G = a (-sin w sin O + cos w cos O cos i)

    with the constants of Thiele and Innes, and Kepler's equation E - e sin E = 2 pi (t - T) / P.

    Parameters
    ----------
    elements : float64 (..., 7)
        Period and time of periastron, s; eccentricity; semi-major axis, inclination, position angle of the
        ascending node from north through east, argument of periastron, rad.
    time : float, s
        Counted as the time of periastron is.

    Returns
    -------
    offset : float64 (..., 2), rad
    slopes : float64 (..., 2, 7)
    """
    period, periastron, e, a, i, node, w = np.moveaxis(elements, -1, 0)
    mean = 2 * np.pi * (time - periastron) / period
    anomaly = eccentric_anomaly(mean, e)
    sin, cos, root = np.sin(anomaly), np.cos(anomaly), np.sqrt(1 - e * e)
    x, y, per_mean = cos - e, root * sin, 1 / (1 - e * cos)
    by_mean = np.stack([-sin, root * cos]) * per_mean
    by_e = np.stack([-sin, root * cos]) * sin * per_mean - np.stack([np.ones_like(e), e / root * sin])
    sin_w, cos_w, sin_o, cos_o = np.sin(w), np.cos(w), np.sin(node), np.cos(node)
    # In the plane of the orbit, from the node on: p along it, q across it.
    turn = np.array([[cos_w, -sin_w], [sin_w, cos_w]])
    pq, by_mean, by_e = (np.einsum("ij...,j...->i...", turn, z) for z in (np.stack([x, y]), by_mean, by_e))

    def on_sky(p: Array, q: Array) -> Array:
        q = q * np.cos(i)
        return np.stack([p * sin_o + q * cos_o, p * cos_o - q * sin_o], axis=-1)

    size, (p, q) = a[..., None], pq
    unit = on_sky(p, q)
    east, north = unit[..., 0], unit[..., 1]
    slope = size * on_sky(*by_mean)
    by_tilt = -(q * np.sin(i))
    slopes = (
        -slope * (mean / period)[..., None],
        -slope * (2 * np.pi / period)[..., None],
        size * on_sky(*by_e),
        unit,
        size * np.stack([by_tilt * cos_o, -by_tilt * sin_o], axis=-1),
        size * np.stack([north, -east], axis=-1),
        size * on_sky(-q, p),
    )
    return size * unit, np.stack(slopes, axis=-1)


class Motion:
    """How far east and north moving sources are from their positions at a time, rad.

    Parameters
    ----------
    given : sequence of MotionSlots
        Of the sources that move.
    values : SIValues
    time, start : float, s
        Modified Julian dates: of the positions that are asked for, and of the first time of the data.
    """

    def __init__(self, given: Sequence[MotionSlots], values: SIValues, time: float, start: float) -> None:
        self._since = np.array([time - epoch_seconds(each.epoch, start) for each in given])[:, None]
        self._proper = IndexedValues(values, np.array([each.proper for each in given], dtype=np.int64))
        self._rows = np.array([i for i, each in enumerate(given) if each.orbit is not None], dtype=np.int64)
        orbits = [each.orbit for each in given if each.orbit is not None]
        table = np.array(orbits, dtype=np.int64).reshape(-1, len(ELEMENTS))
        self._orbit: IndexedValues | None = IndexedValues(values, table) if orbits else None

    def _of_orbits(self, orbit: IndexedValues, values: Array) -> tuple[Array, Array]:
        with np.errstate(divide="ignore", invalid="ignore"):  # theta outside of the prior
            elements = orbit(values).copy()
            # Each is counted from its own epoch.
            elements[..., 1] -= self._since[self._rows, 0]
            return orbit_offset(elements, 0.0)

    def __call__(self, values: Array) -> Array:
        """(n_batch, n_moving, 2)."""
        found: Array = self._proper(values) * self._since
        if self._orbit is not None:
            found[:, self._rows] += self._of_orbits(self._orbit, values)[0]
        return found

    def push_forward(self, values: Array, changes: Array) -> Array:
        """The derivative, (n_change, n_moving, 2)."""
        found: Array = self._proper(changes) * self._since
        if self._orbit is not None:
            slopes = self._of_orbits(self._orbit, values)[1]
            found[:, self._rows] += np.einsum("bnxk,bnk->bnx", slopes, self._orbit(changes))
        return found

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """The adjoint of that."""
        self._proper.pull_back(values, slopes * self._since, into)
        if self._orbit is not None:
            by_element = self._of_orbits(self._orbit, values)[1]
            found = np.einsum("bnxk,bnx->bnk", by_element, slopes[:, self._rows])
            self._orbit.pull_back(values, found, into)


class Displaced(NamedTuple):
    """Positions after a displacement, and the derivatives of right ascension and declination.

    Attributes
    ----------
    position : float64 (n_batch, n, 2)
    slopes : float64 (n_batch, n, 2, 4)
        Of both numbers of a position by both of them before, and by the displacement.
    """

    position: Array
    slopes: Array


def displaced(position: Array, by: Array, by_offset: NDArray[np.bool_]) -> Displaced:
    """Positions moved east and north: offsets add, right ascension and declination move along the sky.

    A displacement (x, y) is in the plane that touches the sky at (ra, dec), z = sqrt(1 - x^2 - y^2):

        A = z cos dec - y sin dec,  S = z sin dec + y cos dec
        ra' = ra + atan2(x, A),  dec' = atan2(S, sqrt(x^2 + A^2))

    Parameters
    ----------
    position, by : float64 (n_batch, n, 2), rad
    by_offset : bool (n,)
    """
    slopes = np.zeros((*position.shape, 4))
    slopes[..., 0, 0] = slopes[..., 1, 1] = slopes[..., 0, 2] = slopes[..., 1, 3] = 1.0
    found, sky = position + by, np.flatnonzero(~by_offset)
    if sky.size:
        (ra, dec), (x, y) = (np.moveaxis(each[:, sky], -1, 0) for each in (position, by))
        with np.errstate(invalid="ignore"):
            z = np.sqrt(1 - x * x - y * y)
        sin, cos = np.sin(dec), np.cos(dec)
        a, s = z * cos - y * sin, z * sin + y * cos
        flat = np.hypot(x, a)
        found[:, sky, 0], found[:, sky, 1] = ra + np.arctan2(x, a), np.arctan2(s, flat)
        # Of A and S by dec, x, y.
        of_a = np.stack([-s, -x / z * cos, -sin - y / z * cos], axis=-1)
        of_s = np.stack([a, -x / z * sin, cos - y / z * sin], axis=-1)
        of_x = np.stack([np.zeros_like(x), np.ones_like(x), np.zeros_like(x)], axis=-1)
        by_ra = (a[..., None] * of_x - x[..., None] * of_a) / (flat**2)[..., None]
        slopes[:, sky, 0, 1:] = by_ra
        slopes[:, sky, 1, 1:] = of_s / flat[..., None]
        slopes[:, sky, 1, 0] = 0.0
    return Displaced(found, slopes)


def moving(given: Sequence[MotionSlots | None]) -> Index:
    """Which sources move."""
    return np.flatnonzero([each is not None for each in given]).astype(np.int64)


def limits_of(given: Sequence[MotionSlots | None]) -> list[tuple[int, tuple[float, float, bool]]]:
    """What elements of orbits must lie within: slot, (low, high, above low)."""
    found = []
    for each in given:
        if each is not None and each.orbit is not None:
            period, _, eccentricity, size, *_ = each.orbit
            found += [(period, (0.0, np.inf, True)), (size, (0.0, np.inf, False))]
            if eccentricity != ZERO:
                found.append((eccentricity, (0.0, MOST_ECCENTRIC, False)))
    return found
