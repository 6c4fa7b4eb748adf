"""What a sky model needs to know of each partition of the data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class FeedAnglesOfPartition(Protocol):
    """Angles of the dishes and feeds of a partition on the sky, worked out when they are asked for."""

    def feed_angle(
        self, mounts: Mapping[str, str] | None = None, with_offset: Collection[str] = ()
    ) -> NDArray[np.float64]:
        """Angle of each feed, float64 (n_time, n_antenna), rad, from north through east.

        Parameters
        ----------
        mounts : mapping of antenna name to mount, optional
            In place of what the data say; "" stands for all other antennas.
        with_offset : collection of str
            Antennas of whose feeds the data need not know the angle.
        """
        ...

    def frame_angle(
        self, mounts: Mapping[str, str] | None = None, centre: tuple[float, float] | None = None
    ) -> NDArray[np.float64]:
        """How far the dish is turned, float64 (n_time, n_antenna), rad: without elevation and receptors.

        It is that of a dish which points to `centre` (ICRS); by default, where the data state it.
        """
        ...


class SampledTimes(NamedTuple):
    """Some of the times and channels of a partition, int64 each, ascending times."""

    times: NDArray[np.int64]
    channels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PartitionView:
    """One partition of an observation (field x data description), as a sky model sees it.

    Attributes
    ----------
    label : str
        Unique among the partitions, for parameter names ("3C273/spw0").
    field, spw : str
        Names that noise factors may be grouped by.
    phase_centre : (float, float), rad
        ICRS right ascension and declination.
    time : float64 (n_time,), s
        MJD of each time slot, ascending.
    chan_freq : float64 (n_chan,), Hz
    antenna_names : tuple of str
    corr_type : tuple of str
        "XX", "XY", ... or "RR", ...; empty where it is not known.
    feeds : FeedAnglesOfPartition or None
        None where nothing is known of the feeds.
    used : bool (n_antenna,) or None
        Antennas that have a row; None means all.
    longest : float
        Longest projected baseline at the highest frequency, in wavelengths; 0 where it is not known.
    interval : float, s
        Integration time; 0 where it is not known.
    shortest : float, s
        The shortest integration time of a row; 0 where it is not known.
    weights : function or None
        Gives the sum of the weights of each antenna at each time, float64 (n_time, n_antenna); None: all 1.
    scan : int32 (n_time,) or None
        Scan number of each time; None where the data do not number scans.
    set_name : str
        Name of the set, where several were joined; else empty.
    doppler : function or None
        Of a frame of velocities, "LSRK", ...: frequencies of the data over those in it, at the middle of the
        times. None where that is not known.
    pointed : float64 (n_time or 1, n_antenna, 2) or None
        Where the dishes pointed: direction cosines (l, m) about the phase centre. None: at that.
    """

    label: str
    field: str
    spw: str
    phase_centre: tuple[float, float]
    time: NDArray[np.float64]
    chan_freq: NDArray[np.float64]
    antenna_names: tuple[str, ...]
    corr_type: tuple[str, ...] = ()
    feeds: FeedAnglesOfPartition | None = None
    used: NDArray[np.bool_] | None = None
    longest: float = 0.0
    interval: float = 0.0
    shortest: float = 0.0
    weights: Callable[[], NDArray[np.float64]] | None = None
    scan: NDArray[np.int32] | None = None
    set_name: str = ""
    pointed: NDArray[np.float64] | None = None
    doppler: Callable[[str], float] | None = None

    @property
    def antenna_weight(self) -> NDArray[np.float64]:
        """Sum of the weights of each antenna at each time, float64 (n_time, n_antenna); 1 if not known."""
        if self.weights is not None:
            return self.weights()
        used = np.ones(len(self.antenna_names)) if self.used is None else self.used
        return np.ones((self.time.size, 1)) * used

    @property
    def used_antennas(self) -> tuple[str, ...]:
        """Names of the antennas that have a row."""
        if self.used is None:
            return self.antenna_names
        return tuple(name for name, used in zip(self.antenna_names, self.used, strict=True) if used)

    def taken(self, samples: SampledTimes) -> PartitionView:
        """The view of some times and channels."""
        times, channels = samples
        return replace(
            self,
            time=self.time[times],
            chan_freq=self.chan_freq[channels],
            weights=None if self.weights is None else partial(_taken, self.weights, times),
            scan=None if self.scan is None else self.scan[times],
            pointed=self.pointed if self.pointed is None or len(self.pointed) == 1 else self.pointed[times],
        )


def _taken(weights: Callable[[], NDArray[np.float64]], times: NDArray[np.int64]) -> NDArray[np.float64]:
    return weights()[times]
