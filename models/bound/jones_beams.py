"""Beams as 2 x 2 Jones matrices for the partitions of the data: what kernels and images see of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.layout import BeamRotation, basis_of_partition
from biro.models.bound.antenna_terms.rotation import rotation
from biro.models.components.antenna_terms.feeds import Basis, rotation_of
from biro.models.components.beam import SPEED_OF_LIGHT
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.components.jones_beam import GridBeam
from biro.models.components.partition_view import PartitionView, SampledTimes
from biro.models.components.sky import SkyDescription
from biro.models.errors import ModelError
from rime_kernels.jones_beam import JonesBeam

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
T = TypeVar("T", bound=np.generic)
# Beyond the first and last plane a beam is scaled with frequency, by so much at most.
_MOST_SCALED = 1.1


@dataclass(frozen=True, eq=False)
class PartitionBeam:
    """The beam on a grid as the antennas of one partition have it, and the rotation of their feeds.

    An antenna that points to (dl, dm) sees the direction (l, m) through

        E(x, y) P(phi + turn_0 - (RM + turn_1) lambda^2)

                           x = ((l - dl) cos a - (m - dm) sin a) / width
                           y = ((l - dl) sin a + (m - dm) cos a) / width

    with a the angle by which its frame is turned on the sky, phi that of its feeds, RM the rotation
    measure above it, and `turn` what is fitted of both (physics: section 6).

    Attributes
    ----------
    cubes : tuple of BeamCube
        On one grid.
    which : int32 (n_time or 1, n_antenna)
        The cube of each antenna.
    angle : float64 (n_time or 1, n_antenna), rad
        a, from north through east.
    feed_angle : float64 (n_time or 1, n_antenna), rad
        phi; where it is 0 nothing is rotated.
    chan_freq : float64 (n_chan,), Hz
    basis : "linear" or "circular"
    width : float
    pointing : float64 (n_time or 1, n_antenna, 2), rad, or None
    applies : bool (n_source,), or None
        Which sources of the model are seen through the beam; None: all.
    rm : float64 (n_time or 1, n_antenna), rad/m2, or None
        Rotation measures of the ionosphere; None where there are none.
    turn : float64 (n_antenna, 2), rad and rad/m2, or None
        What is added to phi and RM where they are fitted; None where they are not.
    """

    cubes: tuple[BeamCube, ...]
    which: NDArray[np.int32]
    angle: Array
    feed_angle: Array
    chan_freq: Array
    basis: Basis
    width: float = 1.0
    pointing: Array | None = None
    applies: NDArray[np.bool_] | None = None
    rm: Array | None = None
    turn: Array | None = None

    @property
    def cube(self) -> BeamCube:
        """The first of the cubes, which have the same grid."""
        return self.cubes[0]

    @property
    def content(self) -> Iterator[bytes]:
        """What it is made of, for a digest."""
        for cube in self.cubes:
            yield cube.jones.tobytes() + cube.grid.tobytes() + cube.freq.tobytes()
        if len(self.cubes) > 1:
            yield self.which.tobytes()
        yield self.angle.tobytes() + self.feed_angle.tobytes()
        if self.rm is not None:
            yield self.rm.tobytes()

    @cached_property
    def jones_beam(self) -> JonesBeam:
        """For the kernels, towards the sources of the model."""
        return replace(self.at(self.chan_freq), applies=self.applies)

    def at(self, freq: Array) -> JonesBeam:
        """For the kernels, at other frequencies (Hz) and in all directions."""
        return JonesBeam(
            np.stack([cube.at(freq) for cube in self.cubes]),
            self.cube.grid,
            self.which[0] if len(self.which) == 1 else self.which,
            self.angle,
            self.feed_angles(freq),
            np.full(1, self.width),
            None if self.pointing is None else self.pointing[None],
            turn=None if self.turn is None else self.turn[None],
            wavelength2=None if self.turn is None else (SPEED_OF_LIGHT / freq) ** 2,
        )

    def feed_angles(self, freq: Array) -> Array:
        """phi - RM lambda^2, rad, at frequencies (Hz), `turn` left out; of phi's shape without RM."""
        if self.rm is None:
            return self.feed_angle
        return self.feed_angle[..., None] - self.rm[..., None] * (SPEED_OF_LIGHT / freq) ** 2

    def fixed(self, width: float, pointing: Array | None, turn: Array | None) -> PartitionBeam:
        """The beam with the numbers of one parameter vector."""
        return replace(self, width=width, pointing=pointing, turn=turn)

    def taken(self, samples: SampledTimes) -> PartitionBeam:
        """The beam at some times and channels."""
        times = samples.times
        return replace(
            self,
            which=_some(self.which, times),
            angle=_some(self.angle, times),
            feed_angle=_some(self.feed_angle, times),
            pointing=None if self.pointing is None else _some(self.pointing, times),
            rm=None if self.rm is None else _some(self.rm, times),
            chan_freq=self.chan_freq[samples.channels],
        )

    @property
    def stretch(self) -> float:
        """By how much directions are stretched on the grid, at the frequency farthest out."""
        known = np.clip(self.chan_freq, self.cube.freq[0], self.cube.freq[-1])
        return float((self.chan_freq / known).max() / self.width)

    @property
    def reach(self) -> float:
        """Distance within which a direction lies on the grid, however that is turned, rad."""
        cube = self.cube
        inside = min(-cube.x[0], cube.x[-1], -cube.y[0], cube.y[-1])
        error = 0.0 if self.pointing is None else np.hypot(*np.moveaxis(self.pointing, -1, 0)).max()
        return float(inside / self.stretch - error)

    @property
    def n_slot(self) -> int:
        """Time slots that differ; 1 where all are alike."""
        of_time = (self.angle, self.feed_angle, self.which, self.rm, self.pointing)
        return max(len(one) for one in of_time if one is not None)

    @property
    def samples(self) -> list[tuple[int, int]]:
        """Slots and antennas by which the change with frequency is judged.

        The first antenna at the first and the last time, and what the ionosphere turns the most.
        """
        found = {(0, 0), (self.n_slot - 1, 0)}
        if self.rm is not None or self.turn is not None:
            rm = np.zeros((1, 1)) if self.rm is None else self.rm
            rm = rm if self.turn is None else rm + self.turn[:, 1]
            slot, antenna = np.unravel_index(np.argmax(np.abs(rm)), rm.shape)
            found.add((int(slot), int(antenna)))
        return sorted(found)

    def jones(self, l: Array, m: Array, freq: float, slot: int, antenna: int) -> NDArray[np.complex128]:
        """E P F of an antenna in a time slot, at directions l and m and a frequency (Hz), (..., 2, 2)."""
        if self.pointing is not None:
            dl, dm = self.pointing[min(slot, len(self.pointing) - 1), antenna]
            l, m = l - dl, m - dm
        a = self.angle[min(slot, len(self.angle) - 1), antenna]
        phi = self.feed_angle[min(slot, len(self.feed_angle) - 1), antenna]
        if self.rm is not None:
            phi = phi - self.rm[min(slot, len(self.rm) - 1), antenna] * (SPEED_OF_LIGHT / freq) ** 2
        if self.turn is not None:
            offset, rm = self.turn[antenna]
            phi = phi + offset - rm * (SPEED_OF_LIGHT / freq) ** 2
        x, y = l * np.cos(a) - m * np.sin(a), l * np.sin(a) + m * np.cos(a)
        cube = self.cubes[self.which[min(slot, len(self.which) - 1), antenna]]
        found = cube(x / self.width, y / self.width, freq)
        return np.asarray(found @ rotation(phi, self.basis))


def _some(of_times: NDArray[T], times: NDArray[np.int64]) -> NDArray[T]:
    """Some of the times of an array (n_time or 1, ...)."""
    return of_times if len(of_times) == 1 else of_times[times]


def partition_beams(
    model: SkyDescription,
    beams: BeamCube | AntennaBeams | None,
    partitions: Sequence[PartitionView],
    seen: NDArray[np.bool_],
    rotations: Sequence[BeamRotation],
) -> list[PartitionBeam]:
    """The beam of each partition; none where the model's beam is a formula, or it has none.

    `seen` (n_source,) tells which sources are seen through it; `rotations` are what turns the feeds of each
    partition beyond what its data state.

    Raises
    ------
    ModelError
        The beam has not been read; data in Stokes parameters; nothing is known of the mounts.
    """
    if not isinstance(model.beam, GridBeam):
        return []
    if beams is None:
        raise ModelError("the beam is one of files: bind the model with the beam that `biro.read_beam` gives")
    if isinstance(beams, BeamCube):
        beams = AntennaBeams((beams,))
    applies = None if seen.all() else seen
    made: dict[tuple[bytes, ...], PartitionBeam] = {}
    found = []
    for view, (offset, rm, is_fitted) in zip(partitions, rotations, strict=True):
        beam = _partition_beam(model, beams, view)
        turned = beam.feed_angle if offset is None else beam.feed_angle + offset
        no_turn = np.zeros((len(view.antenna_names), 2)) if is_fitted else None
        rm = None if rm is None else _short(rm)
        beam = replace(beam, feed_angle=turned, applies=applies, rm=rm, turn=no_turn)
        parts = (beam.which, beam.angle, beam.feed_angle, beam.chan_freq, beam.rm, beam.turn)
        key = tuple(b"" if part is None else part.tobytes() for part in parts)
        found.append(made.setdefault(key, beam))
    return found


def _partition_beam(model: SkyDescription, beams: AntennaBeams, view: PartitionView) -> PartitionBeam:
    _check_band(beams.cubes[0], view)
    basis = basis_of_partition(view, "beams of Jones matrices")
    if model.beam.basis not in (None, basis):
        raise ModelError(
            f"beam: has numbers of {model.beam.basis} feeds, but partition {view.label!r} has {basis} feeds"
        )
    none = np.zeros((1, len(view.antenna_names)))
    known = view.feeds is not None or model.feeds is not None
    rotates = known and rotation_of(model.feeds) != "none"
    if view.feeds is None and (model.beam.turns or rotates):
        raise ModelError(
            f"beam: the mounts of partition {view.label!r} are unknown; write turns = false for a "
            "beam that does not turn"
        )
    mounts, own = {}, []
    if model.feeds is not None:
        mounts = model.feeds.mounts
        own = [name for name in view.antenna_names if model.feeds.offset_of(name) is not None]
    given = model.beam.centre
    centre = None if given == "pointing" else view.phase_centre if given == "phase" else given
    angle = view.feeds.frame_angle(mounts, centre) if view.feeds is not None and model.beam.turns else none
    feed_angle = view.feeds.feed_angle(mounts, own) if view.feeds is not None and rotates else none
    which = _short(beams.classes(view.antenna_names, view.time))
    used, place = np.unique(which, return_inverse=True)
    cubes = tuple(beams.cubes[i] for i in used)
    which = place.reshape(which.shape).astype(np.int32)
    return PartitionBeam(cubes, which, _short(angle), _short(feed_angle), view.chan_freq, basis)


def _check_band(cube: BeamCube, view: PartitionView) -> None:
    """Refuse data far outside the frequencies of a cube, and say where a plane is scaled."""
    first, last = view.chan_freq.min(), view.chan_freq.max()
    low, high = first / cube.freq[0], last / cube.freq[-1]
    if (low >= 1.0 and high <= 1.0) or cube.freq.size == 1:
        return
    text = (
        f"{cube.name} has planes from {cube.freq[0] / 1e6:g} to {cube.freq[-1] / 1e6:g} MHz, the data of "
        f"partition {view.label!r} reach from {first / 1e6:g} to {last / 1e6:g} MHz"
    )
    if low < 1.0 / _MOST_SCALED or high > _MOST_SCALED:
        raise ModelError(f"{text}; give a cube for these frequencies, or select channels")
    log.warning("%s: beyond its planes the nearest one is scaled with frequency", text)


def check_reach(
    beam: PartitionBeam, lm: Array, seen: NDArray[np.bool_], names: Sequence[str], label: str
) -> None:
    """Refuse sources that leave the grid of a beam, at any time and antenna, at the frequency farthest out.

    Parameters
    ----------
    beam : PartitionBeam
        With the width and the pointing errors that are to be expected.
    lm : float64 (n_place, n_source, 2)
        Where sources may be; NaN counts as nowhere.
    seen : bool (n_source,)
    names : sequence of str
    label : str
        Of the partition.

    Raises
    ------
    ModelError
        Names the first such source, where it comes to lie, and where the grid ends.
    """
    cube, factor = beam.cube, beam.stretch
    r = np.hypot(lm[..., 0], lm[..., 1])
    for place, s in np.argwhere(seen & (r > beam.reach)):
        l, m = np.moveaxis(lm[place, s] - (0.0 if beam.pointing is None else beam.pointing), -1, 0)
        x = (l * np.cos(beam.angle) - m * np.sin(beam.angle)) * factor
        y = (l * np.sin(beam.angle) + m * np.cos(beam.angle)) * factor
        beyond = np.maximum(
            np.maximum(cube.x[0] - x, x - cube.x[-1]), np.maximum(cube.y[0] - y, y - cube.y[-1])
        )
        # The last node itself is inside, whatever the rounding.
        if beyond.max() > 1e-9:
            at = int(np.argmax(beyond))
            raise ModelError(_too_small(beam, names[s], label, float(x.flat[at]), float(y.flat[at])))


def _too_small(beam: PartitionBeam, name: str, label: str, x: float, y: float) -> str:
    cube = beam.cube
    (x0, x1), (y0, y1) = (np.rad2deg(axis[[0, -1]]) for axis in (cube.x, cube.y))
    x, y = np.rad2deg(x), np.rad2deg(y)
    return (
        f"source {name!r} lies {np.hypot(x, y):.4g} deg from the beam centre in "
        f"partition {label!r}, outside of {cube.name}: x = {x:.4g}, y = {y:.4g} deg, but the beam covers "
        f"x = {x0:.4g} .. {x1:.4g}, y = {y0:.4g} .. {y1:.4g} deg; give a larger cube "
        "or extent, a narrower prior, or beam = false"
    )


def _short(values: NDArray[T]) -> NDArray[T]:
    """One time slot where all are alike."""
    return np.ascontiguousarray(values[:1] if np.all(values == values[:1]) else values)
