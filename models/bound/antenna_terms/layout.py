"""Slots and constants of the Jones matrices A = G D P of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.slots import ZERO, Slots
from biro.models.components.antenna_terms.feeds import Basis, Feeds, basis_of
from biro.models.components.antenna_terms.leakage import FEEDS, Leakage
from biro.models.components.antenna_terms.per_antenna import check_known
from biro.models.components.noise import grouped
from biro.models.components.partition_view import PartitionView
from biro.models.components.sky import SkyDescription
from biro.models.errors import ModelError
from biro.models.quantities.units import ANGLE, NUMBER

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Block = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TermSlots:
    """What A = G D P of one partition is made of.

    Attributes
    ----------
    basis : "linear" or "circular"
    angle : float64 (n_time_block, n_antenna), rad
        By which feeds are turned, apart from the offset.
    gain : complex128 (n_time_block or 1, n_antenna, n_chan_block or 1, 2)
        Of the two feeds.
    offset : int (n_antenna,) or None
        Slots.
    leakage : int (n_leakage_block, n_antenna, 2, 2) or None
        Slots: feed; real and imaginary part.
    leakage_block : int (n_chan_block,)
        The block of leakages of each block of channels.
    time_block, chan_block : int32 (n_time,), (n_chan,)
    """

    basis: Basis
    angle: Array
    gain: NDArray[np.complex128]
    offset: Index | None
    leakage: Index | None
    leakage_block: Index
    time_block: Block
    chan_block: Block

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for partitions that have the same matrices."""
        arrays = (value for value in vars(self).values() if not isinstance(value, str))
        return (self.basis, *((a.shape, a.tobytes()) if a is not None else None for a in arrays))


def antenna_term_slots(
    model: SkyDescription, partitions: Sequence[PartitionView], slots: Slots
) -> list[TermSlots]:
    """The slots of each partition, one object for partitions that have the same; none without such terms.

    Raises
    ------
    ModelError
        Data in Stokes parameters; antennas, or leakages of feeds, that the data do not have.
    """
    if model.feeds is None and model.leakage is None:
        return []
    bases = [_basis(partition) for partition in partitions]
    offsets = _offsets(model.feeds, partitions, slots)
    leakages = _leakages(model.leakage, partitions, bases, slots)
    made: dict[tuple[object, ...], TermSlots] = {}
    each = []
    for i, partition in enumerate(partitions):
        angle, time_block = _angles(model.feeds, partition)
        leakage = leakages[i]
        n_chan = partition.chan_freq.size
        of_leakage = _equal_blocks(n_chan, 1 if leakage is None else len(leakage))
        blocks, chan_block = np.unique(of_leakage, return_inverse=True)
        found = TermSlots(
            basis=bases[i],
            angle=angle,
            gain=np.ones((1, angle.shape[1], 1, 2), np.complex128),
            offset=offsets[i],
            leakage=leakage,
            leakage_block=blocks.astype(np.int64),
            time_block=time_block,
            chan_block=chan_block.astype(np.int32),
        )
        each.append(made.setdefault(found.key, found))
    return each


def _basis(partition: PartitionView) -> Basis:
    basis = basis_of(partition.corr_type)
    if basis is None:
        found = " ".join(partition.corr_type) or "no correlations"
        raise ModelError(
            f"feeds, leakage and gain belong to the correlations of feeds, but partition {partition.label!r} "
            f"has Stokes parameters ({found}); read RR, RL, LR, LL or XX, XY, YX, YY (without --stokes), or "
            "leave these out of the model"
        )
    return basis


def _angles(feeds: Feeds | None, partition: PartitionView) -> tuple[Array, Block]:
    """Angles (n_time_block, n_antenna), rad, and the block of each time."""
    n_time, n_antenna = partition.time.size, len(partition.antenna_names)
    if feeds is None or not feeds.rotation:
        return np.zeros((1, n_antenna)), np.zeros(n_time, np.int32)
    if partition.feeds is None:
        raise ModelError(f"feeds: nothing is known of the feeds of partition {partition.label!r}")
    own = [name for name in partition.antenna_names if feeds.offset_of(name) is not None]
    angle = partition.feeds.feed_angle(feeds.mounts, own)
    angle, block = np.unique(angle, axis=0, return_inverse=True)
    return np.ascontiguousarray(angle), block.reshape(-1).astype(np.int32)


def _offsets(feeds: Feeds | None, partitions: Sequence[PartitionView], slots: Slots) -> list[Index | None]:
    """Slots of the offsets of each partition's antennas; None where there are none."""
    if feeds is None:
        return [None] * len(partitions)
    check_known("feeds", feeds.named(), (name for view in partitions for name in view.antenna_names))
    used = dict.fromkeys(name for view in partitions for name in view.used_antennas)
    of = {name: slots.add("feeds", "offset", feeds.offset_of(name), ANGLE, f"[{name}]") for name in used}
    tables = [np.array([of.get(name, ZERO) for name in view.antenna_names], np.int64) for view in partitions]
    return [table if table.any() else None for table in tables]


def _leakages(
    leakage: Leakage | None, partitions: Sequence[PartitionView], bases: Sequence[Basis], slots: Slots
) -> list[Index | None]:
    """Slots (n_block, n_antenna, 2, 2) of the leakages of each partition; None where there are none."""
    if leakage is None:
        return [None] * len(partitions)
    check_known("leakage", leakage.named(), (name for view in partitions for name in view.antenna_names))
    own = {key for basis in bases for key in FEEDS[basis]}
    foreign = sorted(leakage.keys() - own)
    if foreign:
        raise ModelError(
            f"leakage: {foreign[0]} belongs to feeds that the data do not have; theirs are "
            f"{', '.join(sorted(own))}"
        )
    groups = grouped(leakage.per, partitions)
    slot_of: dict[tuple[str, str, Basis, int, int], list[int]] = {}
    found: list[Index | None] = []
    for view, group, basis in zip(partitions, groups, bases, strict=True):
        table = np.zeros((leakage.chan_blocks, len(view.antenna_names), 2, 2), np.int64)
        used = set(view.used_antennas)
        for i, name in enumerate(view.antenna_names):
            for feed, part, key, items in leakage.parts(name, basis) if name in used else ():
                place = (group, name, basis, feed, part)
                if place not in slot_of:
                    index = f"[{name}]" + (f"[{group}]" if group else "")
                    slot_of[place] = slots.add_series("leakage", key, tuple(items), NUMBER, index)
                table[:, i, feed, part] = slot_of[place]
        found.append(table)
    return found


def _equal_blocks(n: int, n_block: int) -> Block:
    """The block of each of n channels, neighbours together, sizes as equal as can be."""
    return (np.arange(n) * n_block // n).astype(np.int32)
