"""Direction cosines of sources about the phase centres and at the times of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.memory import ReusedMemory
from biro.models.bound.positions.motion import Displaced, Motion, displaced
from biro.models.bound.positions.tangent_planes import SourceDirections, TangentPlanes
from biro.models.bound.si_values import Constant, IndexedValues, SIValues
from biro.models.bound.slots import ResolvedSlots
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.direction import Centre
from rime_kernels.arrays.slices import as_slice

Array = NDArray[np.float64]


class PositionFrame(NamedTuple):
    """What positions are relative to.

    Attributes
    ----------
    centre : (float, float), rad
        Phase centre.
    time : float or None, s
        Modified Julian date at which sources are taken; None where no source moves.
    """

    centre: Centre
    time: float | None = None


class Positions:
    """Direction cosines (n_batch, n_source, 2) about each phase centre at one time; NaN below the horizon.

    Those of fixed sources are computed once, when the model is bound.
    """

    def __init__(
        self,
        layout: SourceLayout,
        resolved: ResolvedSlots,
        values: SIValues,
        planes: TangentPlanes,
        motion: Motion | None = None,
    ) -> None:
        free = np.asarray(resolved.is_free(layout.position).any(axis=1))
        if motion is not None:
            free[layout.moving] = True
        if np.count_nonzero(free) > np.count_nonzero(~free):
            free[:] = True  # computing the few fixed sources again costs less than merging two arrays
        rows = np.flatnonzero(free)
        position = resolved.base[layout.position][None]
        position[:, rows] = 0.0
        self._fixed = SourceDirections(layout.by_offset, planes).lm(position)
        self._constant = [Constant(lm) for lm in self._fixed]
        self._rows = as_slice(rows)
        self._all_free, self._any_free = bool(free.all()), bool(free.any())
        self._position = IndexedValues(values, layout.position[rows])
        self._directions = SourceDirections(layout.by_offset[rows], planes)
        self._memory, self._motion = ReusedMemory(), motion
        self._moving = np.searchsorted(rows, layout.moving)
        self._by_offset = layout.by_offset[layout.moving]

    def _displaced(self, values: Array, motion: Motion) -> Displaced:
        """The sources that move."""
        return displaced(self._position(values)[:, self._moving], motion(values), self._by_offset)

    def _now(self, values: Array) -> Array:
        """Positions (n_batch, n, 2) of the sources that are not fixed, at the time."""
        found = self._position(values)
        if self._motion is not None:
            found[:, self._moving] = self._displaced(values, self._motion).position
        return found

    def __call__(self, values: Array) -> list[Array]:
        if not self._any_free:
            return [constant(values) for constant in self._constant]
        moving = self._directions.lm(self._now(values))
        if self._all_free:
            return list(moving)
        n_centre, _, n_source, _ = self._fixed.shape
        lm = self._memory.empty(n_centre, values.shape[0], n_source, 2)
        lm[:] = self._fixed
        lm[:, :, self._rows] = moving
        return list(lm)

    def push_forward(self, values: Array, changes: Array) -> list[Array]:
        """Changes of (l, m) about each centre, (n_change, n_source, 2)."""
        n_centre, _, n_source, _ = self._fixed.shape
        found = np.zeros((n_centre, len(changes), n_source, 2))
        if self._any_free:
            moves = self._position(changes).copy()
            if self._motion is not None:
                slopes = self._displaced(values, self._motion).slopes
                by = self._motion.push_forward(values, changes)
                both = np.concatenate([moves[:, self._moving], by], axis=-1)
                moves[:, self._moving] = np.sum(slopes * both[..., None, :], axis=-1)
            position = self._now(values)
            for i in range(n_centre):
                for k in range(2):  # the derivatives of l, then those of m
                    slopes = np.zeros((n_centre, *position.shape))
                    slopes[i, ..., k] = 1.0
                    by_position = self._directions.pull_back(position, slopes)
                    found[i][:, self._rows, k] = np.sum(by_position * moves, axis=-1)
        return list(found)

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to offsets, or ra and dec, from those to (l, m) about each centre.

        `slopes` is (n_centre, n_batch, n_source, 2).
        """
        if not self._any_free:
            return
        found = self._directions.pull_back(self._now(values), slopes[:, :, self._rows])
        if self._motion is not None:
            by = np.einsum(
                "bnxk,bnx->bnk", self._displaced(values, self._motion).slopes, found[:, self._moving]
            )
            found[:, self._moving] = by[..., :2]
            self._motion.pull_back(values, by[..., 2:], into)
        self._position.pull_back(values, found, into)


class FramePositions:
    """Direction cosines (n_batch, n_source, 2) in each of several frames.

    Parameters
    ----------
    layout : SourceLayout
    resolved : ResolvedSlots
    values : SIValues
    frames : sequence of PositionFrame
        All different.
    origin : (float, float), rad
        From which offsets are counted.
    start : float, s
        The first time of the data.
    """

    def __init__(
        self,
        layout: SourceLayout,
        resolved: ResolvedSlots,
        values: SIValues,
        frames: Sequence[PositionFrame],
        origin: Centre,
        start: float,
    ) -> None:
        self._n_frame, self._n_source = len(frames), len(layout.names)
        self._groups: list[tuple[slice | NDArray[np.int64], Positions]] = []
        given = [each for each in layout.motions if each is not None]
        for time in dict.fromkeys(frame.time for frame in frames):
            rows = np.flatnonzero([frame.time == time for frame in frames])
            motion = None if time is None else Motion(given, values, time, start)
            planes = TangentPlanes([frame.centre for frame in frames if frame.time == time], origin)
            self._groups.append((as_slice(rows), Positions(layout, resolved, values, planes, motion)))

    def __call__(self, values: Array) -> list[Array]:
        if len(self._groups) == 1:
            return self._groups[0][1](values)
        return self._in_order([positions(values) for _, positions in self._groups])

    def push_forward(self, values: Array, changes: Array) -> list[Array]:
        """Changes of (l, m) in each frame, (n_change, n_source, 2)."""
        return self._in_order([positions.push_forward(values, changes) for _, positions in self._groups])

    def _in_order(self, found: list[list[Array]]) -> list[Array]:
        if len(found) == 1:
            return found[0]
        each: dict[int, Array] = {}
        for (rows, _), group in zip(self._groups, found, strict=True):
            each |= zip(np.arange(self._n_frame)[rows].tolist(), group, strict=True)
        return [each[i] for i in range(self._n_frame)]

    def zeros(self, n_batch: int) -> Array:
        """Zeros with the shape that `pull_back` takes, (n_frame, n_batch, n_source, 2)."""
        return np.zeros((self._n_frame, n_batch, self._n_source, 2))

    def pull_back(self, values: Array, slopes: Array, into: Array) -> None:
        """Derivatives with respect to the values, from those to (l, m), (n_frame, n_batch, n_source, 2)."""
        for rows, positions in self._groups:
            positions.pull_back(values, slopes[rows], into)
