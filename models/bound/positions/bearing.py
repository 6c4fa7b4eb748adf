"""Where the north of sources points in the tangent plane of a phase centre (physics: section 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.positions.places import PositionFrame
from biro.models.bound.si_values import ArrayOfValues, Constant
from biro.models.bound.slots import ResolvedSlots
from biro.models.bound.source_layout import SourceLayout

Array = NDArray[np.float64]


def bearing(lm: Array, dec0: float) -> Array:
    """Angle from the m axis to the source's own north, towards l, rad.

        beta = atan2(dl/ddec, dm/ddec) = atan2(-s l, cos(dec0) - s m)
        s = sin(dec) = m cos(dec0) + n sin(dec0)

    The pole's direction is (0, cos(dec0), sin(dec0)) along the axes (east, north, outward) of the phase
    centre; what is left of it across the line of sight points to the source's north.

    Parameters
    ----------
    lm : float64 (..., 2)
        Direction cosines.
    dec0 : float, rad
        Declination of the phase centre.

    Returns
    -------
    float64 (...)
    """
    east, north = _to_north(lm, dec0)
    return np.asarray(np.arctan2(east, north))


def bearing_slopes(lm: Array, dec0: float) -> Array:
    """Derivatives of `bearing` with respect to l and m, float64 (..., 2); 0 at the pole itself.

    With (X, Y) = (-s l, cos(dec0) - s m), d beta = (Y dX - X dY) / (X^2 + Y^2), and
    ds = -sin(dec0) l/n dl + (cos(dec0) - sin(dec0) m/n) dm.
    """
    l, m = lm[..., 0], lm[..., 1]
    sin, cos = np.sin(dec0), np.cos(dec0)
    east, north = _to_north(lm, dec0)
    n = np.sqrt(1 - l * l - m * m)
    s = m * cos + n * sin
    by_l, by_m = -sin * l / n, cos - sin * m / n
    square = east * east + north * north
    square = np.where(square == 0.0, np.inf, square)
    of_l = north * (-s - l * by_l) + east * m * by_l
    of_m = -north * l * by_m + east * (s + m * by_m)
    return np.asarray(np.stack([of_l, of_m], axis=-1) / square[..., None])


def _to_north(lm: Array, dec0: float) -> tuple[Array, Array]:
    """Components along l and m of the direction to the north, at sources (..., 2); of any length."""
    l, m = lm[..., 0], lm[..., 1]
    s = m * np.cos(dec0) + np.sqrt(1 - l * l - m * m) * np.sin(dec0)
    return -s * l, np.cos(dec0) - s * m


class TurnedShapes:
    """Shapes (n_batch, n_gaussian + n_profile, 3) in the tangent plane of each of several frames.

    To pa of the sources in `layout.turns_north` comes the bearing of their own north, which depends on their
    position.

    Parameters
    ----------
    layout : SourceLayout
    resolved : ResolvedSlots
    shape : function of the values
        The shapes with the position angles of the model.
    frames : sequence of PositionFrame
    """

    def __init__(
        self,
        layout: SourceLayout,
        resolved: ResolvedSlots,
        shape: ArrayOfValues,
        frames: Sequence[PositionFrame],
    ) -> None:
        self._shape, self._rows, self.n_shape = shape, layout.turns_north, len(layout.shape)
        self._sources = len(layout.names) - len(layout.shape) + self._rows
        self._dec = [frame.centre[1] for frame in frames]
        moved = resolved.is_free(layout.position[self._sources]).any() or layout.moving.size
        self._is_fixed = not moved
        self._constant: list[Constant] | None = None

    def __call__(self, values: Array, lm: Sequence[Array]) -> list[Array]:
        """The shapes in each frame, from the direction cosines (n_batch, n_source, 2) in each."""
        if not self._rows.size:
            return [self._shape(values)] * len(self._dec)
        if not (self._is_fixed and isinstance(self._shape, Constant)):
            return self._turned(self._shape(values), lm)
        if self._constant is None:
            first = self._turned(self._shape(values)[:1], [one[:1] for one in lm])
            self._constant = [Constant(one) for one in first]
        return [one(values) for one in self._constant]

    def _turned(self, shape: Array, lm: Sequence[Array]) -> list[Array]:
        found = []
        for each, dec in zip(lm, self._dec, strict=True):
            one = shape.copy()
            one[:, self._rows, 2] += bearing(each[:, self._sources], dec)
            found.append(one)
        return found

    def push_forward(
        self, values: Array, changes: Array, lm: Sequence[Array], moves: Sequence[Array]
    ) -> list[Array]:
        """Changes of the shapes in each frame, from those of the values and of the direction cosines."""
        own = self._shape.push_forward(values, changes)
        if not self._rows.size or self._is_fixed:
            return [own] * len(self._dec)
        found = []
        for slopes, move in zip(self._slopes(lm), moves, strict=True):
            one = own.copy()
            one[:, self._rows, 2] += np.sum(slopes * move[:, self._sources], axis=-1)
            found.append(one)
        return found

    def _slopes(self, lm: Sequence[Array]) -> list[Array]:
        return [bearing_slopes(one[:, self._sources], dec) for one, dec in zip(lm, self._dec, strict=True)]

    def pull_back(self, lm: Sequence[Array], by_shape: Array, by_lm: Array) -> None:
        """Add derivatives by way of the bearing to those with respect to (l, m) in each frame.

        Parameters
        ----------
        lm : sequence of float64 (n_batch, n_source, 2)
        by_shape : float64 (n_frame, n_batch, n_gaussian + n_profile)
            Derivatives with respect to the position angles in each frame.
        by_lm : float64 (n_frame, n_batch, n_source, 2)
        """
        for slopes, of_pa, of_lm in zip(self._slopes(lm), by_shape, by_lm, strict=True):
            of_lm[:, self._sources] += slopes * of_pa[:, self._rows, None]

    @property
    def follows_positions(self) -> bool:
        """Whether a parameter that moves a source turns its shape."""
        return bool(self._rows.size) and not self._is_fixed
