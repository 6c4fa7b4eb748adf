"""Beams as 2 x 2 Jones matrices for the partitions of the data: what kernels and images see of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.layout import basis_of_partition
from biro.models.bound.antenna_terms.rotation import rotation
from biro.models.components.antenna_terms.feeds import Basis, rotation_of
from biro.models.components.beam_cube import BeamCube
from biro.models.components.jones_beam import FitsBeam, KatBeam
from biro.models.components.partition_view import PartitionView
from biro.models.components.sky import SkyDescription
from biro.models.errors import ModelError
from rime_kernels.jones_beam import JonesBeam

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PartitionBeam:
    """The beam on a grid as the antennas of one partition have it, and the rotation of their feeds.

    An antenna that points to (dl, dm) sees the direction (l, m) through

        E(x, y) P(phi),    x = ((l - dl) cos a - (m - dm) sin a) / width
                           y = ((l - dl) sin a + (m - dm) cos a) / width

    with a the angle by which its frame is turned on the sky and phi that of its feeds (physics: section 6).

    Attributes
    ----------
    cube : BeamCube
    angle : float64 (n_time or 1, n_antenna), rad
        a, from north through east.
    feed_angle : float64 (n_time or 1, n_antenna), rad
        phi; where it is 0 nothing is rotated.
    chan_freq : float64 (n_chan,), Hz
    basis : "linear" or "circular"
    width : float
    pointing : float64 (n_time or 1, n_antenna, 2), rad, or None
    """

    cube: BeamCube
    angle: Array
    feed_angle: Array
    chan_freq: Array
    basis: Basis
    width: float = 1.0
    pointing: Array | None = None

    @cached_property
    def jones_beam(self) -> JonesBeam:
        """For the kernels."""
        return self.at(self.chan_freq)

    def at(self, freq: Array) -> JonesBeam:
        """For the kernels, at other frequencies (Hz)."""
        n_antenna = self.angle.shape[1]
        return JonesBeam(
            self.cube.at(freq)[None],
            self.cube.grid,
            np.zeros(n_antenna, np.int32),
            self.angle,
            self.feed_angle,
            np.full(1, self.width),
            None if self.pointing is None else self.pointing[None],
        )

    def fixed(self, width: float, pointing: Array | None) -> PartitionBeam:
        """The same with the numbers of one parameter vector."""
        return replace(self, width=width, pointing=pointing)

    @property
    def n_slot(self) -> int:
        """Time slots that differ; 1 where all are alike."""
        sizes = [len(self.angle), len(self.feed_angle)]
        return max(sizes if self.pointing is None else [*sizes, len(self.pointing)])

    def jones(self, l: Array, m: Array, freq: float, slot: int, antenna: int) -> NDArray[np.complex128]:
        """E P of an antenna in a time slot, at directions l and m and a frequency (Hz), (..., 2, 2)."""
        if self.pointing is not None:
            dl, dm = self.pointing[min(slot, len(self.pointing) - 1), antenna]
            l, m = l - dl, m - dm
        a = self.angle[min(slot, len(self.angle) - 1), antenna]
        phi = self.feed_angle[min(slot, len(self.feed_angle) - 1), antenna]
        x, y = l * np.cos(a) - m * np.sin(a), l * np.sin(a) + m * np.cos(a)
        found = self.cube(x / self.width, y / self.width, freq)
        return np.asarray(found @ rotation(phi, self.basis))


def partition_beams(
    model: SkyDescription, cube: BeamCube | None, partitions: Sequence[PartitionView]
) -> list[PartitionBeam]:
    """The beam of each partition; none where the model's beam is a formula, or it has none.

    Raises
    ------
    ModelError
        The beam has not been read; data in Stokes parameters; nothing is known of the mounts.
    """
    if not isinstance(model.beam, (FitsBeam, KatBeam)):
        return []
    if cube is None:
        raise ModelError("the beam is one of files: bind the model with the beam that `biro.read_beam` gives")
    made: dict[tuple[bytes, ...], PartitionBeam] = {}
    found = []
    for view in partitions:
        beam = _partition_beam(model, cube, view)
        key = (beam.angle.tobytes(), beam.feed_angle.tobytes(), beam.chan_freq.tobytes())
        found.append(made.setdefault(key, beam))
    return found


def _partition_beam(model: SkyDescription, cube: BeamCube, view: PartitionView) -> PartitionBeam:
    basis = basis_of_partition(view, "beams of Jones matrices")
    none = np.zeros((1, len(view.antenna_names)))
    known = view.feeds is not None or model.feeds is not None
    rotates = known and rotation_of(model.feeds) != "none"
    if view.feeds is None and (model.beam.turns or rotates):
        raise ModelError(
            f"beam: nothing is known of the mounts in partition {view.label!r}; write turns = false for a "
            "beam that does not turn"
        )
    mounts = {} if model.feeds is None else model.feeds.mounts
    angle = view.feeds.frame_angle(mounts) if view.feeds is not None and model.beam.turns else none
    feed_angle = view.feeds.feed_angle(mounts) if view.feeds is not None and rotates else none
    return PartitionBeam(cube, _short(angle), _short(feed_angle), view.chan_freq, basis)


def _short(angle: Array) -> Array:
    """One time slot where all are alike."""
    return np.ascontiguousarray(angle[:1] if np.all(angle == angle[:1]) else angle)
