"""Direction cosines of sources about phase centres, at the times of partitions (physics: section 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.memory import ReusedMemory
from biro.models.bound.positions.motion import Displaced, Motion, displaced
from biro.models.bound.si_values import Constant, IndexedValues, SIValues
from biro.models.bound.slots import ResolvedSlots
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.direction import Centre, basis
from rime_kernels import check
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


class TangentPlanes:
    """Directions as direction cosines about several phase centres at once.

    Parameters
    ----------
    centres : sequence of (float, float), rad
        All different.
    origin : (float, float), rad
        Where offsets start.
    """

    def __init__(self, centres: Sequence[Centre], origin: Centre) -> None:
        self.n_centre = len(centres)
        # The centres are the first axis, in front of (n_batch, n_source).
        self._ra, self._dec = np.array(centres, dtype=np.float64).reshape(-1, 2).T[..., None, None]
        self._sin_dec, self._cos_dec = np.sin(self._dec), np.cos(self._dec)
        turned = np.array([i for i, centre in enumerate(centres) if centre != origin], dtype=np.int64)
        self._at_origin = np.setdiff1d(np.arange(self.n_centre), turned)
        self._turned = as_slice(turned)
        turns = [basis(centres[i]) @ basis(origin).T for i in turned]
        self._turn = np.array(turns).reshape(-1, 3, 3).transpose(1, 2, 0)[..., None, None]
        self._radec_memory, self._offset_memory = ReusedMemory(), ReusedMemory()

    def of_radec(self, ra: Array, dec: Array) -> Array:
        """Direction cosines (l east, m north) of right ascensions and declinations.

        l = cos(dec) sin(ra - ra0),  m = sin(dec - dec0) + 2 cos(dec) sin(dec0) sin^2((ra - ra0) / 2),
        which is physics: section 1 with its cancellation for small angles taken out.

        Parameters
        ----------
        ra, dec : float64 (n_batch, n_source), rad

        Returns
        -------
        float64 (n_centre, n_batch, n_source, 2); NaN where the direction lies 90 degrees or more from
        the centre.
        """
        shift = ra - self._ra
        sin_dec, cos_dec = np.sin(dec), np.cos(dec)
        lm = self._radec_memory.empty(*shift.shape, 2)
        np.multiply(cos_dec, np.sin(shift), out=lm[..., 0])
        bend = 2 * cos_dec * self._sin_dec * np.sin(0.5 * shift) ** 2
        np.add(np.sin(dec - self._dec), bend, out=lm[..., 1])
        n = sin_dec * self._sin_dec + cos_dec * self._cos_dec * np.cos(shift)
        return _without_hidden(lm, n)

    def pull_back_radec(self, ra: Array, dec: Array, slopes: Array) -> Array:
        """Derivatives with respect to (ra, dec), from those to (l, m): the adjoint of `of_radec`.

            dl/dra  = cos(dec) cos(ra - ra0)
            dl/ddec = -sin(dec) sin(ra - ra0)
            dm/dra  = cos(dec) sin(dec0) sin(ra - ra0)
            dm/ddec = cos(dec) cos(dec0) + sin(dec) sin(dec0) cos(ra - ra0)

        Parameters
        ----------
        ra, dec : float64 (n_batch, n_source), rad
        slopes : float64 (n_centre, n_batch, n_source, 2)

        Returns
        -------
        float64 (n_batch, n_source, 2)
        """
        sin, cos = np.sin(ra - self._ra), np.cos(ra - self._ra)
        sin_dec, cos_dec = np.sin(dec), np.cos(dec)
        by_l, by_m = slopes[..., 0], slopes[..., 1]
        by_ra = cos_dec * (cos * by_l + self._sin_dec * sin * by_m)
        by_dec = (cos_dec * self._cos_dec + sin_dec * self._sin_dec * cos) * by_m - sin_dec * sin * by_l
        return np.stack([by_ra.sum(axis=0), by_dec.sum(axis=0)], axis=-1)

    def of_offsets(self, offsets: Array) -> Array:
        """Direction cosines of sources given by direction cosines about the origin.

        With (east, north, n) along the axes at the origin, the turn to the axes at a centre is exact;
        about the origin itself the offsets are returned to the bit.

        Parameters
        ----------
        offsets : float64 (n_batch, n_source, 2)
            East and north, direction cosines; becomes NaN below the horizon of the origin.

        Returns
        -------
        float64 (n_centre, n_batch, n_source, 2); NaN for offsets beyond the horizon of either plane.
        """
        if not check.within_circle(offsets):
            offsets[~(offsets[..., 0] ** 2 + offsets[..., 1] ** 2 < 1)] = np.nan
        if not self._turn.size:
            return offsets[None]
        lm = self._offset_memory.empty(self.n_centre, *offsets.shape)
        lm[self._at_origin] = offsets
        east, north = offsets[..., 0], offsets[..., 1]
        outward = np.sqrt(1 - east * east - north * north)
        l, m, n = (a * east + b * north + c * outward for a, b, c in self._turn)
        lm[self._turned] = _without_hidden(np.stack([l, m], axis=-1), n)
        return lm

    def pull_back_offsets(self, offsets: Array, slopes: Array) -> Array:
        """Derivatives with respect to the offsets, from those to (l, m): the adjoint of `of_offsets`.

        The outward part of an offset, sqrt(1 - east^2 - north^2), falls with east by east / outward.

        Parameters
        ----------
        offsets : float64 (n_batch, n_source, 2)
        slopes : float64 (n_centre, n_batch, n_source, 2)

        Returns
        -------
        float64 (n_batch, n_source, 2)
        """
        found = np.asarray(slopes[self._at_origin].sum(axis=0))
        if self._turn.size:
            turned = slopes[self._turned]
            by_l, by_m = turned[..., 0], turned[..., 1]
            l, m, _ = self._turn
            east, north, outward = ((a * by_l + b * by_m).sum(axis=0) for a, b in zip(l, m, strict=True))
            with np.errstate(invalid="ignore", divide="ignore"):
                falls = offsets / np.sqrt(1 - np.sum(offsets**2, axis=-1, keepdims=True))
            found += np.stack([east, north], axis=-1) - outward[..., None] * falls
        return found


def _without_hidden(lm: Array, n: Array) -> Array:
    """NaN where n is not above 0."""
    seen = n > 0
    if not seen.all():
        lm[~seen] = np.nan
    return lm


class SourceDirections:
    """Positions of a list of sources, some by right ascension and declination and some by offsets.

    Parameters
    ----------
    by_offset : bool (n_source,)
    planes : TangentPlanes
    """

    def __init__(self, by_offset: NDArray[np.bool_], planes: TangentPlanes) -> None:
        self._planes = planes
        self._offsets, self._radec = (as_slice(np.flatnonzero(rows)) for rows in (by_offset, ~by_offset))
        self._all_offsets, self._any_offsets = bool(by_offset.all()), bool(by_offset.any())

    def lm(self, position: Array) -> Array:
        """Direction cosines (n_centre, n_batch, n_source, 2) of positions (n_batch, n_source, 2), rad.

        NaN where a source is below the horizon of the tangent plane. The positions may be overwritten.
        """
        if self._all_offsets:
            return self._planes.of_offsets(position)
        if not self._any_offsets:
            return self._planes.of_radec(position[..., 0], position[..., 1])
        lm = np.empty((self._planes.n_centre, *position.shape))
        given = position[:, self._radec]
        lm[:, :, self._radec] = self._planes.of_radec(given[..., 0], given[..., 1])
        lm[:, :, self._offsets] = self._planes.of_offsets(position[:, self._offsets])
        return lm

    def pull_back(self, position: Array, slopes: Array) -> Array:
        """Derivatives (n_batch, n_source, 2) with respect to positions, from those to `lm` of each centre."""
        if self._all_offsets:
            return self._planes.pull_back_offsets(position, slopes)
        if not self._any_offsets:
            return self._planes.pull_back_radec(position[..., 0], position[..., 1], slopes)
        found = np.empty(position.shape)
        given = position[:, self._radec]
        found[:, self._radec] = self._planes.pull_back_radec(
            given[..., 0], given[..., 1], slopes[:, :, self._radec]
        )
        found[:, self._offsets] = self._planes.pull_back_offsets(
            position[:, self._offsets], slopes[:, :, self._offsets]
        )
        return found


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
