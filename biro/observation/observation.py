"""An observation: partitions of visibilities and weights, read-only, with what belongs to all of them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.deprecation import by_earlier_name
from biro.display.formatting import html_text
from biro.errors import InputError
from biro.files.memory import check_memory
from biro.models.components.partition_view import PartitionView
from biro.observation.averaging import Averaged
from biro.observation.feeds import ionosphere
from biro.observation.feeds.doppler import factors_between, velocity_lines
from biro.observation.feeds.feeds import FeedAngles, FeedMetadata
from biro.observation.feeds.pointing import beam_line
from biro.observation.feeds.statement import instrument_lines
from biro.observation.flags import UNMEASURED
from biro.observation.from_arrays import ArrayMetadata, check_arrays
from biro.observation.hands import merge_hands, split_hands
from biro.observation.labels import field_names, unique_labels, window_names
from biro.observation.partition import Partition
from biro.observation.partition_header import BYTES_AS_READ
from biro.observation.read_only import freeze_arrays, reduce_to_fields
from biro.observation.stokes import FormedStokes
from biro.observation.summary import Summary, ionosphere_statement, summarise
from biro.observation.uv_extent import longest_of_rows
from rime_kernels.choices import Convention

if TYPE_CHECKING:
    from biro.models import SkyModel

log = logging.getLogger(__name__)

_NOTED = ("beam: ", "velocities: ", "gains: ")
"""Beginnings of the lines about a model that a summary has among its notes."""
_IN_DIGEST = (
    "field",
    "spw",
    "field_id",
    "spw_id",
    "data_desc_id",
    "phase_centre",
    "uvw",
    "antenna1",
    "antenna2",
    "time",
    "time_index",
    "chan_freq",
    "chan_width",
    "freq_frame",
    "corr_type",
    "row_id",
    "n_antenna",
    "interval",
    "chan_id",
    "weight_origin",
    "frame",
    "tapered",
)
"""What is hashed of a partition beside visibilities and weights: the order is that of all digests so far."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Calibrated visibilities with weights, in partitions that are never mixed.

    Attributes
    ----------
    partitions : tuple of Partition
    antenna_names : tuple of str
    antenna_positions : float64 (n_antenna, 3), m, ITRF
    telescope : str
    source : str
        Path it was read from, or a word for where the arrays came from.
    column : str
        "DATA", "CORRECTED_DATA", ...
    weight_origin : str
        Which column the weights came from.
    counts : mapping str -> int
        Visibilities by cause of exclusion, and "usable", "total" (before averaging).
    time_scale : str
        Of every time: "UTC", "TAI", ...
    utc_offset : float, s
        To be added to a time to make it UTC.
    dish_diameter : float64 (n_antenna,), m
        0 where it is not known.
    convention : "casa" or "fourier"
        "fourier": uvw were negated (physics: section 2).
    averaged : Averaged or None
        What averaging was done while reading.
    formed : FormedStokes or None
        What Stokes parameters were formed while reading.
    notes : tuple of str
        Remarks of the reader on what is odd about the data.

    Raises
    ------
    InputError
        Two partitions have the same label; `biro.join` makes labels unique.
    """

    partitions: tuple[Partition, ...]
    antenna_names: tuple[str, ...]
    antenna_positions: NDArray[np.float64]
    telescope: str
    source: str
    column: str
    weight_origin: str
    counts: Mapping[str, int]
    time_scale: str = "UTC"
    utc_offset: float = 0.0
    dish_diameter: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    convention: Convention = "casa"
    averaged: Averaged | None = None
    formed: FormedStokes | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))
        _ = self.labels  # refuses partitions that cannot be told apart
        freeze_arrays(self)

    def __reduce__(self) -> tuple[object, ...]:
        return reduce_to_fields(self, counts=dict(self.counts))

    def __repr__(self) -> str:
        n_part, n_usable = len(self.partitions), sum(part.n_usable for part in self.partitions)
        parts = f"{n_usable} usable visibilities in {n_part} partition{'s' * (n_part != 1)}"
        return f"<Observation {self.source}: {parts}; summary() tells more>"

    def _repr_html_(self) -> str:
        return html_text(str(self.summary()))

    @property
    def n_antenna(self) -> int:
        """Number of antennas."""
        return len(self.antenna_names)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A name for each partition, unique among them: "3C273/spw0"."""
        return unique_labels(self.partitions)

    @property
    def set_names(self) -> tuple[str, ...]:
        """Names of the sets that were joined; none where it is of one set."""
        return tuple(dict.fromkeys(part.set_name for part in self.partitions if part.set_name))

    @cached_property
    def partition_views(self) -> tuple[PartitionView, ...]:
        """What a sky model must know of each partition."""
        parts = self.partitions
        return tuple(
            PartitionView(
                label=label,
                field=field_name,
                spw=window,
                phase_centre=part.phase_centre,
                time=part.times,
                chan_freq=part.chan_freq,
                antenna_names=self.antenna_names,
                corr_type=part.corr_type,
                feeds=self._feed_angles(label, part),
                used=part.used_antennas,
                longest=longest_of_rows(part),
                interval=part.interval,
                shortest=part.shortest_interval,
                weights=part.antenna_weight,
                scan=part.scan_of_time,
                set_name=part.set_name,
                pointed=self._pointed(part),
                doppler=partial(self._doppler, part),
            )
            for label, field_name, window, part in zip(
                self.labels, field_names(parts), window_names(parts), parts, strict=True
            )
        )

    @property
    def feed_angles(self) -> tuple[FeedAngles, ...]:
        """The angles of dishes and feeds of each partition, worked out when they are asked for."""
        return tuple(map(self._feed_angles, self.labels, self.partitions))

    def instrument_lines(self, sky: SkyModel) -> list[str]:
        """What a model applies or assumes of the beam's centre, feeds and gains, a line each."""
        pairs = zip(self.partitions, self.feed_angles, strict=True)
        of_feeds = [each for part, each in pairs if not set(part.corr_type) <= set("IQUV")]
        of_feeds_and_gains = instrument_lines(of_feeds, self.column, sky)
        lines = self.beam_line(sky), *self.velocity_lines(sky), *of_feeds_and_gains
        return [line for line in lines if line]

    def beam_line(self, sky: SkyModel) -> str:
        """Where the beam of a model is centred; empty for a model without one."""
        parts = zip(field_names(self.partitions), self.partitions, strict=True)
        return beam_line(sky, [(name, part.phase_centre, part.pointing) for name, part in parts])

    def ionosphere_line(self, sky: SkyModel) -> str:
        """What a model applies of the ionosphere, or could leave out; empty where nothing is worth a word."""
        if sky.ionosphere is None:
            found = ionosphere_statement(self)
        else:
            used = (name for view in self.partition_views for name in view.used_antennas)
            found = ionosphere.applied(sky.ionosphere, tuple(dict.fromkeys(used)))
        return f"ionosphere: {found}" if found else ""

    @property
    def reading_lines(self) -> list[str]:
        """What a user should know of how the data were read: notes, and what is left out without a flag."""
        left = {cause: self.counts[cause] for cause in UNMEASURED if self.counts.get(cause)}
        lines = [f"data: {note}" for note in self.notes]
        if left:
            part = 100 * sum(left.values()) / self.counts["total"]
            causes = ", ".join(f"{n} {cause}" for cause, n in left.items())
            lines.append(
                f"data: biro leaves out {part:.2g} % of the visibilities, which are no measurements "
                f"({causes})"
            )
        return lines

    def with_feed_angles(self, angles: Sequence[ArrayLike]) -> Observation:
        """The observation with angles of feeds that take the place of those of the mounts.

        They are those of P, and of the P that was taken out of corrected data.

        Parameters
        ----------
        angles : sequence of float64 (n_time, n_antenna), rad
            Of each partition, at its `times`; everything that turns a feed, north through east.

        Raises
        ------
        InputError
            Another number of partitions, times or antennas, or angles that are not finite.
        """
        if len(angles) != len(self.partitions):
            raise InputError(
                f"feed angles are needed for each of {len(self.partitions)} partitions, got {len(angles)}"
            )
        parts = [
            replace(
                part,
                feeds=(part.feeds or FeedMetadata.unknown(self.n_antenna)).with_angles(part.times, angle),
            )
            for part, angle in zip(self.partitions, angles, strict=True)
        ]
        return replace(self, partitions=tuple(parts))

    def _feed_angles(self, label: str, part: Partition) -> FeedAngles:
        return FeedAngles(
            label,
            part.feeds or FeedMetadata.unknown(self.n_antenna),
            part.times,
            self.utc_offset,
            part.phase_centre,
            self.antenna_names,
            self.antenna_positions,
            part.used_antennas,
            None if part.pointing is None else part.pointing.centre,
        )

    def doppler(
        self, part: Partition, frame: str, times: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Frequencies in a frame over those of a partition.

        Parameters
        ----------
        part : Partition
            The mean of its antennas' positions stands for the place of the array.
        frame : "TOPO", "GEO", "BARY" or "LSRK"
        times : float64 (n_time,), s, optional
            Default: its `times`.

        Returns
        -------
        float64 (n_time,)

        Raises
        ------
        InputError
            A frame whose velocity is not known, times before 1900 or after 2100, or unknown positions.
        """
        times = part.times if times is None else times
        place = self.antenna_positions[part.used_antennas].mean(axis=0)
        return factors_between(
            times + self.utc_offset, part.phase_centre, place, part.freq_frame, frame, f"spw {part.spw}"
        )

    def _doppler(self, part: Partition, frame: str) -> float:
        """Frequencies of a partition over those in a frame, at the middle of its times."""
        return 1.0 / float(self.doppler(part, frame, part.times[[0, -1]].mean(keepdims=True))[0])

    def velocity_lines(self, sky: SkyModel) -> list[str]:
        """In which frame the velocities of lines are, and how much they drift, a line for each frame."""
        own = ", ".join(dict.fromkeys(part.freq_frame or "not known" for part in self.partitions))

        def drift(frame: str) -> float:
            return max(float(np.ptp(self.doppler(part, frame))) for part in self.partitions)

        return velocity_lines(sky, own, drift)

    def _pointed(self, part: Partition) -> NDArray[np.float64] | None:
        if part.pointing is None:
            return None
        return part.pointing.about(part.phase_centre, part.times, self.n_antenna)

    def whole(self, what: str) -> Observation:
        """The observation with all visibilities in the memory of this process.

        Parameters
        ----------
        what : str
            Needs them; a warning says so where they are elsewhere.

        Raises
        ------
        InputError
            They have no room in memory.
        """
        if not self.is_distributed:
            return self
        check_memory(
            BYTES_AS_READ * sum(part.vis.size for part in self.partitions),
            f"{what} needs all data in the memory of one process, which",
            "average the data (--average-time, --average-channels), select less, or do without it",
        )
        if self.cache_folder is None:
            log.warning("MPI process 0 gathers and holds all data, because of %s", what)
        else:
            log.warning("biro reads all data from files into memory, because of %s", what)
        return replace(self, partitions=tuple(part.whole() for part in self.partitions))

    @property
    def is_distributed(self) -> bool:
        """Whether visibilities are not in the memory of this process: others have them, or files."""
        return any(part.distributed is not None for part in self.partitions)

    @property
    def cache_folder(self) -> str | None:
        """Where visibilities lie in files (`biro.read(..., cache=)`); None where they are in memory."""
        return next(
            (part.distributed.folder for part in self.partitions if part.distributed is not None), None
        )

    def split_parallel_cross(self, *, each: bool = False) -> Observation:
        """The observation with parallel and cross hands, which may differ in noise, in partitions apart.

        With `each`, every correlation.
        """
        split = [[part] if part.hands else split_hands(part, each=each) for part in self.partitions]
        parts = [part for some in split for part in some]
        return replace(self, partitions=tuple(parts))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return by_earlier_name(self, name)

    def digest(self) -> str:
        """sha256 of all that a likelihood can see: arrays, frequencies, directions, names; not the path.

        Of visibilities and weights it has the hash of each block (`Partition.by_block`), so that it is the
        same wherever these are.

        Which stored correlations these are is no part of it, nor whether `split_parallel_cross` made
        partitions of them, nor mounts and angles of feeds: those that a model uses are in the digest of the
        bound model. Intervals of single rows are in that of a likelihood that uses them. Labels are parts of
        it where sets were joined, for the names of these may be parts of them.
        """
        sha, parts = hashlib.sha256(), merge_hands(self.partitions)
        for part in parts:
            for name in _IN_DIGEST:
                _add_to_hash(sha, name, getattr(part, name))
            for of_block in part.by_block(_hash_of):
                sha.update(of_block)
        if self.set_names:
            _add_to_hash(sha, "labels", unique_labels(parts))
        _add_to_hash(sha, "antenna_names", self.antenna_names)
        return sha.hexdigest()

    def summary(self, sky: SkyModel | None = None) -> Summary:
        """Figures about the data for people and programs; see `biro.observation.summary.Summary`.

        With a model, what it does to feeds, gains and ionosphere in place of what is assumed without one.
        """
        if sky is None:
            return summarise(self)
        lines, summary = self.instrument_lines(sky), summarise(self)
        return replace(
            summary,
            feeds="; ".join(line.removeprefix("feeds: ") for line in lines if line.startswith("feeds: ")),
            ionosphere=self.ionosphere_line(sky).removeprefix("ionosphere: "),
            notes=(
                *summary.notes,
                *(line for line in lines if line.startswith(("beam: ", "velocities: ", "gains: "))),
            ),
        )

    @classmethod
    def from_arrays(
        cls,
        vis: ArrayLike,
        uvw: ArrayLike,
        antenna1: ArrayLike,
        antenna2: ArrayLike,
        time: ArrayLike,
        chan_freq: ArrayLike,
        corr_type: Sequence[str],
        *,
        weight: ArrayLike = 1.0,
        flag: ArrayLike = False,
        phase_centre: tuple[float, float] = (0.0, 0.0),
        **metadata: object,
    ) -> Observation:
        """An observation of one field and one spectral window from plain arrays (copied).

        Parameters
        ----------
        vis : complex64 or complex128 (n_row, n_chan, n_corr), Jy
        uvw : float64 (n_row, 3), m
            Signs as the UVW column of a Measurement Set has them (physics: section 2), unless
            convention="fourier" is given.
        antenna1, antenna2 : int (n_row,)
        time : float64 (n_row,), s
            MJD, UTC. Times within a tenth of an integration are one time slot.
        chan_freq : float64 (n_chan,), Hz
        corr_type : sequence of str
            One of "XX", "XY", "YX", "YY", "RR", "RL", "LR", "LL", "I", "Q", "U", "V" per correlation.
        weight : float, broadcast against vis, 1/Jy^2
            1/sigma^2 of the real and of the imaginary part alike; (n_row, 1, 1) or (n_row, 1, n_corr) for
            weights per row.
        flag : bool, broadcast against vis
        phase_centre : (float, float), rad
            ICRS right ascension and declination.
        **metadata
            Any of `biro.observation.from_arrays.ArrayMetadata`: chan_width, antenna_names,
            antenna_positions, dish_diameter, telescope, field, spw, interval, freq_frame,
            autocorrelations, convention, source.

        Raises
        ------
        InputError
            Shapes that do not fit, values that are not finite, unknown correlations, or nothing usable.
        """
        data = {"vis": vis, "uvw": uvw, "antenna1": antenna1, "antenna2": antenna2, "time": time}
        data |= {"chan_freq": chan_freq, "weight": weight, "flag": flag}
        known = ArrayMetadata.of(metadata)
        checked = check_arrays(data, tuple(corr_type), phase_centre, known)
        return cls(
            partitions=(checked.partition,),
            antenna_names=checked.antenna_names,
            antenna_positions=checked.antenna_positions,
            telescope=known.telescope,
            source=known.source,
            column="arrays",
            weight_origin="given",
            counts=checked.counts,
            dish_diameter=checked.dish_diameter,
            convention=known.convention,
        )


def hash_of_vis(vis: NDArray[np.complexfloating], _: NDArray[np.floating]) -> bytes:
    """sha256 of the visibilities of a block."""
    return hashlib.sha256(np.ascontiguousarray(vis).data).digest()


def _hash_of(vis: NDArray[np.complexfloating], weight: NDArray[np.floating]) -> bytes:
    """sha256 of the visibilities and weights of a block."""
    sha = hashlib.sha256()
    _add_to_hash(sha, "vis", vis)
    _add_to_hash(sha, "weight", weight)
    return sha.digest()


def _add_to_hash(sha: hashlib._Hash, name: str, value: object) -> None:
    """Add one named value to a hash, with its name and shape, so that different values cannot look alike."""
    if isinstance(value, np.ndarray):
        sha.update(f"{name}:{value.dtype.str}{value.shape};".encode())
        sha.update(np.ascontiguousarray(value).data)
    else:
        sha.update(f"{name}={value!r};".encode())
