"""What a data set says of the feeds of its antennas, and the angles at which they stand on the sky."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.display.formatting import first_few
from biro.errors import InputError
from biro.models.components.antenna_terms.mounts import MOUNTS, NASMYTH, mount_kind
from biro.models.components.direction import basis, north_bearing
from biro.observation.feeds.earth import is_date, pole_of_date
from biro.observation.feeds.mounts import mount_angles
from biro.observation.feeds.parallactic import apparent_place

Array = NDArray[np.float64]
SMALLEST_TURN = 1e-5
"""Changes of the angle of an equatorial mount, rad, below which it is taken as constant: 2 arcsec."""
SAME_TIME = 1e-3
"""Seconds by which the time of a given angle may differ from that of the data."""


@dataclass(frozen=True, eq=False)
class StatedFeedAngles:
    """Angles of feeds that somebody gave, in place of those that follow from mounts.

    Attributes
    ----------
    time : float64 (n_time,), s
        MJD, ascending, on the time scale of the data.
    angle : float64 (n_time, n_antenna), rad
        Everything that turns a feed, from north through east.
    """

    time: Array
    angle: Array

    def at(self, time: Array) -> Array:
        """The angles at some of the times, float64 (n_time, n_antenna), rad.

        Raises
        ------
        InputError
            No angle was given for a time.
        """
        index = np.clip(np.searchsorted(self.time, time - SAME_TIME), 0, self.time.size - 1)
        apart = np.abs(self.time[index] - time)
        if apart.max(initial=0.0) > SAME_TIME:
            raise InputError(
                f"feed angles are given for {self.time.size} times, but not for MJD "
                f"{time[apart.argmax()]:.3f} "
                "s; give them for the times of the selected and averaged data"
            )
        return self.angle[index]


@dataclass(frozen=True, eq=False)
class FeedMetadata:
    """What a data set says of the mounts of its antennas and of the angles of their feeds.

    Attributes
    ----------
    mounts : tuple of str (n_antenna,)
        As the set has them; empty where it says nothing.
    receptor_angle : float64 (n_antenna,), rad
        Angle of the first receptor, as CASA takes it: that of the second is 90 deg off or an artefact. NaN
        where no row of FEED has the antenna.
    corrected : bool
        Whether the visibilities are those of CORRECTED_DATA, from which feed rotation is taken out as a rule.
    given : StatedFeedAngles or None
        Angles that take the place of all of this.
    """

    mounts: tuple[str, ...]
    receptor_angle: Array
    corrected: bool = False
    given: StatedFeedAngles | None = None

    @classmethod
    def unknown(cls, n_antenna: int) -> FeedMetadata:
        """Feeds of a data set without any statement about mounts or angles."""
        return cls(("",) * n_antenna, np.zeros(n_antenna))

    def renumbered(self, index: NDArray[np.int32], n_antenna: int, later: float = 0.0) -> FeedMetadata:
        """Feeds where antenna i is number index[i] of n_antenna, at times so many seconds later."""
        mounts, angle = [""] * n_antenna, np.full(n_antenna, np.nan)
        for i, mount in zip(index.tolist(), self.mounts, strict=True):
            mounts[i] = mount
        angle[index] = self.receptor_angle
        given = self.given
        if given is not None:
            wide = np.zeros((given.time.size, n_antenna))
            wide[:, index] = given.angle
            given = StatedFeedAngles(given.time + later, wide)
        return replace(self, mounts=tuple(mounts), receptor_angle=angle, given=given)

    def with_angles(self, time: Array, angle: ArrayLike) -> FeedMetadata:
        """Feeds with angles (n_time, n_antenna), rad, that take the place of those of the mounts.

        Raises
        ------
        InputError
            Another shape, or angles that are not finite.
        """
        found = np.array(angle, dtype=np.float64)
        wanted = (time.size, len(self.mounts))
        if found.shape != wanted:
            raise InputError(f"feed angles must have shape (time, antenna) = {wanted}, got {found.shape}")
        if not np.isfinite(found).all():
            raise InputError("feed angles must be finite numbers, in rad")
        return replace(self, given=StatedFeedAngles(np.array(time), found))


@dataclass(frozen=True, eq=False)
class FeedAngles:
    """Angles of the dishes and feeds of one partition.

    Attributes
    ----------
    label : str
        Of the partition, for messages.
    feeds : FeedMetadata
    time : float64 (n_time,), s
        MJD, on the time scale of the data.
    utc_offset : float, s
        To be added to make it UTC.
    phase_centre : (float, float), rad
        ICRS.
    antenna_names : tuple of str
    positions : float64 (n_antenna, 3), m, ITRF
    used : bool (n_antenna,)
        Antennas that have a row; the angles of others are 0.
    pointing_centre : (float, float), rad, or None
        ICRS: where the dishes pointed. None: to the phase centre.
    """

    label: str
    feeds: FeedMetadata
    time: Array
    utc_offset: float
    phase_centre: tuple[float, float]
    antenna_names: tuple[str, ...]
    positions: Array
    used: NDArray[np.bool_]
    pointing_centre: tuple[float, float] | None = None

    def feed_angle(self, mounts: Mapping[str, str] | None = None, with_offset: Collection[str] = ()) -> Array:
        """Angle of each feed, north through east: that of the mount and that of the first receptor.

        Parameters
        ----------
        mounts : mapping of antenna name to mount, optional
            In place of what the data say; "" stands for all other antennas.
        with_offset : collection of str
            Antennas whose feed angle is given as an offset: for these, the data need not have one.

        Returns
        -------
        float64 (n_time, n_antenna), rad

        Raises
        ------
        InputError
            A mount that is not known, an antenna without a row in FEED, or positions that are not known.
        """
        if self.feeds.given is not None:
            return self.feeds.given.at(self.time)
        found = self._of_mounts(self.kinds(mounts))
        receptor = np.where(self.used, self.feeds.receptor_angle, 0.0)
        own = np.array([name in with_offset for name in self.antenna_names], dtype=bool)
        lacking = [self.antenna_names[i] for i in np.flatnonzero(np.isnan(receptor) & ~own)]
        if lacking:
            raise InputError(
                f"{self.label}: FEED has no row for antenna {first_few(lacking)}, so its receptor angle is "
                'unknown. Give it in the model, [feeds] offset = "0 deg" for all antennas or '
                f"[feeds.antenna.{lacking[0]}] for one; or exclude the antenna (--antennas '!{lacking[0]}')"
            )
        return np.asarray(found + np.nan_to_num(receptor, nan=0.0))

    def frame_angle(
        self, mounts: Mapping[str, str] | None = None, centre: tuple[float, float] | None = None
    ) -> Array:
        """How far each dish is turned on the sky, north through east, without elevation and receptors.

        It is that of the mount, and of Nasmyth mounts the parallactic angle, as of alt-az ones.

        Parameters
        ----------
        mounts : mapping of antenna name to mount, optional
            As of `feed_angle`.
        centre : (float, float), rad, optional
            ICRS: where the dish points. Default: `pointing_centre`.

        Returns
        -------
        float64 (n_time, n_antenna), rad

        Raises
        ------
        InputError
            A mount that is not known, or positions that are not known.
        """
        kinds = ["alt-az" if kind in NASMYTH else kind for kind in self.kinds(mounts)]
        return self._of_mounts(kinds, centre)

    def _of_mounts(self, kinds: list[str], centre: tuple[float, float] | None = None) -> Array:
        """Angle by which the mounts turn, (n_time, n_antenna), rad; 0 of antennas without a row.

        It is relative to the north where the dishes point, and that north is turned in the plane of l and m.
        """
        centre = centre or self.pointing_centre or self.phase_centre
        index = np.flatnonzero(self.used)
        self._refuse_unknown([(self.antenna_names[i], kinds[i]) for i in index])
        found = np.zeros((self.time.size, len(self.antenna_names)))
        turning = np.array([i for i in index if kinds[i] != "equatorial"], dtype=np.int64)
        time = self.time + self.utc_offset
        if turning.size < index.size:
            found[:, index] = self._pole_angle(time, centre)
        if turning.size:
            place = apparent_place(time, centre, self.positions[turning])
            found[:, turning] = mount_angles(place, [kinds[i] for i in turning])
        if centre != self.phase_centre:
            found[:, index] += north_bearing(centre, self.phase_centre)
        return found

    @staticmethod
    def _pole_angle(time: Array, centre: tuple[float, float]) -> Array:
        """Angle of equatorial mounts, which stand along the pole of date, (n_time or 1, 1), rad.

        Arrays without real dates get 0. Changes that nothing can measure are left out, for what is constant
        in time is cheaper.
        """
        if not is_date(time).all():
            return np.zeros((1, 1))
        _, found = pole_of_date(time, basis(centre))
        return found[:, None] if np.ptp(found) > SMALLEST_TURN else np.full((1, 1), found.mean())

    def kinds(self, mounts: Mapping[str, str] | None = None) -> list[str]:
        """The kind of mount of each antenna, with those that a model gives."""
        given = {name: mount_kind(mount) for name, mount in (mounts or {}).items()}
        of_data = zip(self.antenna_names, self.feeds.mounts, strict=True)
        return [given.get(name, given.get("", mount_kind(mount))) for name, mount in of_data]

    def _refuse_unknown(self, found: Sequence[tuple[str, str]]) -> None:
        for name, kind in found:
            if kind not in MOUNTS:
                same = [other for other, its in found if its == kind]
                what = f"the mount {kind!r} is not supported" if kind else "no mount"
                example = '"alt-az"' if len(same) == len(found) else f'{{ {name} = "alt-az" }}'
                raise InputError(
                    f"{self.label}: antenna {first_few(same)}: {what}. Give the mount in the model, [feeds] "
                    f"mount = {example}: one of {', '.join(MOUNTS)}"
                )
