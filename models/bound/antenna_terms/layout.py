"""Slots and constants of the Jones matrices A = G D P of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.gain_layout import GainQuantity, GainSlots
from biro.models.bound.antenna_terms.ionosphere import IonosphereSlots, ionosphere_slots
from biro.models.bound.slots import ZERO, ModelSlots, ResolvedSlots, numbers_of
from biro.models.components.antenna_terms.feeds import Basis, Feeds, basis_of, feeds_in, is_mixed, rotation_of
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.leakage import FEEDS, Leakage
from biro.models.components.antenna_terms.per_antenna import check_known
from biro.models.components.jones_beam import GridBeam
from biro.models.components.noise import grouped
from biro.models.components.partition_view import PartitionView, SampledTimes
from biro.models.components.sky import SkyDescription
from biro.models.errors import ModelError
from biro.models.quantities.units import ANGLE, NUMBER

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Index = NDArray[np.int64]
Block = NDArray[np.int32]


class BeamRotation(NamedTuple):
    """What turns feeds in a beam of Jones matrices, where P and F stand, beyond what the data state.

    Attributes
    ----------
    offset : float64 (n_antenna,), rad, or None
        Numbers.
    rm : float64 (n_time, n_antenna), rad/m2, or None
        Known rotation measures of the ionosphere.
    is_fitted : bool
        Whether an angle or a rotation measure is fitted beside them.
    """

    offset: Array | None
    rm: Array | None
    is_fitted: bool = False


NO_ROTATION = BeamRotation(None, None)


@dataclass(frozen=True, eq=False)
class TermSlots:
    """What A = G D P of one partition is made of.

    Attributes
    ----------
    basis : "linear" or "circular"
        Of data in Stokes parameters either, as their gains are the same for both feeds.
    angle : float64 (n_time_block, n_antenna), rad
        By which feeds are turned, apart from the offset.
    gain : complex128 (n_time_block or 1, n_antenna, n_chan_block or 1, 2)
        Of the two feeds, as far as they are known.
    factors : tuple of GainQuantity
        The quantities of gains that are fitted.
    offset : int (n_antenna,) or None
        Slots. The rotation stands in the beam, where P does.
    leakage : int (n_leakage_block, n_antenna, 2, 2) or None
        Slots: feed; real and imaginary part.
    leakage_block : int (n_chan_block,)
        The block of leakages of each block of channels.
    time_block, chan_block : int32 (n_time,), (n_chan,)
    taken_out : bool
        Whether P^H stands on the left, by the same angles: rotation was taken out of the data.
    in_beam : bool
        Whether P stands in the beam and not here.
    known : float64 (2, n_time_block, n_antenna) or None
        Electron contents, TECU, and rotation measures, rad/m2; None without an ionosphere.
    tec, rm : int (n_antenna,) or None
        Slots of what is added to them. The rotation stands in the beam, where P does.
    freq : float64 (n_chan_block,), Hz
        The frequency of each block, which is a channel where there is an ionosphere.
    """

    basis: Basis
    angle: Array
    gain: NDArray[np.complex128]
    factors: tuple[GainQuantity, ...]
    offset: Index | None
    leakage: Index | None
    leakage_block: Index
    time_block: Block
    chan_block: Block
    taken_out: bool
    in_beam: bool
    known: Array | None
    tec: Index | None
    rm: Index | None
    freq: Array

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for partitions that have the same matrices."""
        arrays = (
            (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if name != "factors"
        )
        return *arrays, *(factor.identity for factor in self.factors)

    def taken(self, samples: SampledTimes) -> TermSlots:
        """The matrices of some times and channels, in the blocks of these alone."""
        times, of_time = np.unique(self.time_block[samples.times].astype(np.int64), return_inverse=True)
        chans, of_chan = np.unique(self.chan_block[samples.channels].astype(np.int64), return_inverse=True)
        gain = self.gain if len(self.gain) == 1 else self.gain[times]
        return replace(
            self,
            angle=self.angle[times],
            gain=gain if gain.shape[2] == 1 else gain[:, :, chans],
            factors=tuple(factor.at(times, chans) for factor in self.factors),
            leakage_block=self.leakage_block[chans],
            time_block=of_time.reshape(-1).astype(np.int32),
            chan_block=of_chan.reshape(-1).astype(np.int32),
            known=None if self.known is None else self.known[:, times],
            freq=self.freq[chans],
        )

    def steps(self, nearest: bool) -> tuple[list[Index], list[Index]]:
        """What changes in steps: numbers of times (n_time, ...), and of channels (n_chan, ...).

        These are segments and blocks of fitted gains, blocks of leakages, and `nearest` known gains, which
        stay as they are to the middle between two solutions.
        """
        of_times = [np.zeros(self.time_block.size, np.int64)]
        of_times += [factor.segment[self.time_block] for factor in self.factors]
        of_chans = [self.leakage_block[self.chan_block]]
        of_chans += [factor.block[self.chan_block] for factor in self.factors]
        if nearest and len(self.gain) > 1:
            of_times.append(numbers_of([self.gain])[self.time_block])
        if nearest and self.gain.shape[2] > 1:
            of_chans.append(numbers_of([np.moveaxis(self.gain, 2, 0)])[self.chan_block])
        return of_times, of_chans

    def rotation_in_beam(self, resolved: ResolvedSlots) -> BeamRotation:
        """What turns the feeds in a beam of Jones matrices, beyond what the data state of them."""
        if not self.in_beam:
            return NO_ROTATION
        turn = self._turn_slots
        # What is free has all of its value from its slot.
        offset, given = np.where(resolved.is_free(turn), 0.0, resolved.base[turn]).T
        rm: Array = np.zeros((1, len(turn))) if self.known is None else self.known[1][self.time_block]
        rm = rm + given
        fitted = self.turns_in_beam(resolved)
        return BeamRotation(offset if offset.any() else None, rm if rm.any() else None, fitted is not None)

    def turns_in_beam(self, resolved: ResolvedSlots) -> Index | None:
        """Slots of what is fitted of that, `JonesBeam.turn`, int (n_antenna, 2); None where nothing is."""
        is_free = resolved.is_free(self._turn_slots)
        return np.where(is_free, self._turn_slots, ZERO) if self.in_beam and is_free.any() else None

    @property
    def _turn_slots(self) -> Index:
        """Slots of the offset and of the rotation measure of each antenna, int (n_antenna, 2)."""
        none = np.full(self.angle.shape[1], ZERO)
        return np.stack([none if each is None else each for each in (self.offset, self.rm)], axis=-1)


class AllTerms(NamedTuple):
    """The slots of each partition, and which antennas are references of fitted gains, in words."""

    each: list[TermSlots]
    lines: list[str]


def antenna_term_slots(
    model: SkyDescription,
    partitions: Sequence[PartitionView],
    slots: ModelSlots,
    *,
    without_gains: bool = False,
) -> AllTerms:
    """The slots of each partition, one object for partitions that have the same; none without such terms.

    Gains that have priors may be left out, but for what is fitted of these priors.

    Raises
    ------
    ModelError
        Data in Stokes parameters, but for gains that are the same for both feeds; antennas, or leakages of
        feeds, that the data do not have.
    """
    in_beam, rotation = isinstance(model.beam, GridBeam), rotation_of(model.feeds)
    # Beams of Jones matrices have P on their right; in corrected data P^H stands on their left.
    behind_beam = in_beam and all(partition.feeds is not None for partition in partitions)
    given = (model.feeds, model.leakage, model.ionosphere)
    if all(one is None for one in given) and not model.gains and not behind_beam:
        return AllTerms([], [])
    what = "beams of Jones matrices" if in_beam else "feeds, leakage, gain and ionosphere"
    others = in_beam or any(one is not None for one in given)
    bases = _bases(partitions, what, model.gains, needs_feeds=others)
    offsets = _offsets(model.feeds, partitions, slots)
    leakages = _leakages(model.leakage, partitions, bases, slots)
    ionospheres = ionosphere_slots(model.ionosphere, partitions, slots)
    layout = GainSlots(partitions, bases, slots, without_gains)
    _add_fitted(layout, model.gains)
    made: dict[tuple[object, ...], TermSlots] = {}
    each = []
    each_has = zip(partitions, bases, offsets, leakages, ionospheres, layout.factors, strict=True)
    fitted = [] if without_gains else [gain for gain in model.gains if gain.is_fitted]
    unequal = any(gain.feeds != "common" for gain in fitted)
    for partition, basis, offset, leakage, ionosphere, factors in each_has:
        gain = _gains(model.gains, partition, basis)
        if basis_of(partition.corr_type) is None and not np.array_equal(gain[..., 0], gain[..., 1]):
            raise ModelError(_not_common(partition, "its tables differ between the feeds"))
        mixed = leakage is not None or (unequal and basis == "linear")
        turned = _is_turned(rotation, in_beam, basis, gain, mixed)
        angle = _angles(model.feeds, partition) if turned else _no_angles(partition)
        angle, gain, known, factors, time_block = _by_time(angle, gain, ionosphere, factors)
        of_channels = _equal_blocks(partition.chan_freq.size, 1 if leakage is None else len(leakage))
        freq = partition.chan_freq if ionosphere is not None else np.zeros(partition.chan_freq.size)
        gain, of_leakage, freq, factors, chan_block = _by_chan(gain, of_channels, freq, factors)
        found = TermSlots(
            basis=basis,
            angle=angle,
            gain=gain,
            factors=tuple(factors),
            offset=offset,
            leakage=leakage,
            leakage_block=of_leakage,
            time_block=time_block,
            chan_block=chan_block,
            taken_out=turned and rotation == "corrected",
            in_beam=in_beam,
            known=known,
            tec=None if ionosphere is None else ionosphere.tec,
            rm=None if ionosphere is None else ionosphere.rm,
            freq=freq,
        )
        each.append(made.setdefault(found.key, found))
    return AllTerms(each, layout.lines)


def _is_turned(rotation: str, in_beam: bool, basis: Basis, gain: Complex, mixed: bool) -> bool:
    """Whether angles of feeds enter the matrices: not where P, or P^H and P, leave them as they are.

    `mixed` says whether there is leakage, or fitted gains that differ between linear feeds.
    """
    if rotation == "present":
        return not in_beam
    commutes = not mixed and (basis == "circular" or np.array_equal(gain[..., 0], gain[..., 1]))
    return rotation == "corrected" and (in_beam or not commutes)


def _by_time(
    angle: Array, gain: Complex, ionosphere: IonosphereSlots | None, factors: list[GainQuantity]
) -> tuple[Array, Complex, Array | None, list[GainQuantity], Block]:
    """Angles, gains and ionosphere of the different blocks of times, and the block of each time."""
    known = None if ionosphere is None else ionosphere.known
    flat = [angle, *(part.reshape(len(part), -1) for part in (gain.real, gain.imag) if len(gain) > 1)]
    flat += [] if known is None else list(known)
    flat += [factor.of_time for factor in factors]
    _, first, block = np.unique(np.concatenate(flat, axis=1), axis=0, return_index=True, return_inverse=True)
    found = gain[first] if len(gain) > 1 else gain
    known = None if known is None else known[:, first]
    fitted = [factor.at(times=first) for factor in factors]
    return angle[first], found, known, fitted, block.reshape(-1).astype(np.int32)


def _by_chan(
    gain: Complex, of_leakage: Block, freq: Array, factors: list[GainQuantity]
) -> tuple[Complex, Index, Array, list[GainQuantity], Block]:
    """Gains, leakages and frequencies of the different blocks of channels, and the block of each channel."""
    key = np.stack([of_leakage, freq], axis=1)
    if gain.shape[2] > 1:
        flat = np.moveaxis(gain, 2, 0).reshape(gain.shape[2], -1)
        key = np.concatenate([key, flat.real, flat.imag], axis=1)
    key = np.concatenate([key, *(factor.of_chan for factor in factors)], axis=1)
    _, first, block = np.unique(key, axis=0, return_index=True, return_inverse=True)
    found = gain[:, :, first] if gain.shape[2] > 1 else gain
    fitted = [factor.at(channels=first) for factor in factors]
    return found, of_leakage[first].astype(np.int64), freq[first], fitted, block.reshape(-1).astype(np.int32)


def _bases(
    partitions: Sequence[PartitionView], what: str, gains: Sequence[Gain], *, needs_feeds: bool
) -> list[Basis]:
    """The feeds of each partition.

    A gain that is the same for both feeds commutes with all that makes Stokes parameters of correlations, of
    whatever feeds: g_p g_q^* multiplies each of I, Q, U, V. Partitions in Stokes parameters then count as of
    the feeds of the others.

    Raises
    ------
    ModelError
        Stokes parameters, and anything else.
    """
    known = [basis_of(partition.corr_type) for partition in partitions]
    stand_in: Basis = next((basis for basis in known if basis is not None), "circular")
    for partition, basis in zip(partitions, known, strict=True):
        if basis is not None:
            continue
        if needs_feeds or not partition.corr_type:
            basis_of_partition(partition, what)
        if not all(gain.is_common for gain in gains):
            raise ModelError(_not_common(partition, 'feeds = "separate", feeds = "ratio" or values by feed'))
    return [stand_in if basis is None else basis for basis in known]


MIXED = "correlations of circular with linear feeds"


def _not_common(partition: PartitionView, why: str) -> str:
    return (
        f"gain: partition {partition.label!r} has {_without_basis(partition)}, so gains must be the same for "
        f'both feeds ({why}); write feeds = "common", or {_way_out(partition)}'
    )


def _without_basis(partition: PartitionView) -> str:
    """What a partition has in place of correlations of feeds of one kind."""
    found = " ".join(partition.corr_type) or "no correlations"
    return f"{MIXED if is_mixed(partition.corr_type) else 'Stokes parameters'} ({found})"


def _way_out(partition: PartitionView) -> str:
    if is_mixed(partition.corr_type):
        return "take antennas with feeds of one kind (--antennas, or --correlations RR,RL,LR,LL)"
    return "read RR, RL, LR, LL or XX, XY, YX, YY (without --stokes)"


def basis_of_partition(partition: PartitionView, what: str) -> Basis:
    """Which feeds the correlations of a partition are of.

    Raises
    ------
    ModelError
        Stokes parameters: `what` needs feeds.
    """
    basis = basis_of(partition.corr_type)
    if basis is None:
        raise ModelError(
            f"{what} belong to the correlations of feeds, but partition {partition.label!r} has "
            f"{_without_basis(partition)}; {_way_out(partition)}, or remove them from the model"
        )
    return basis


def _no_angles(partition: PartitionView) -> Array:
    return np.zeros((partition.time.size, len(partition.antenna_names)))


def _angles(feeds: Feeds | None, partition: PartitionView) -> Array:
    """Angles by which feeds are turned, apart from offsets, float64 (n_time, n_antenna), rad."""
    feeds = feeds or Feeds()
    if partition.feeds is None:
        raise ModelError(f"feeds: the feeds of partition {partition.label!r} are unknown")
    own = [name for name in partition.antenna_names if feeds.offset_of(name) is not None]
    return partition.feeds.feed_angle(feeds.mounts, own)


def _gains(gains: Sequence[Gain], partition: PartitionView, basis: Basis) -> Complex:
    """Known gains, complex128 (n_time or 1, n_antenna, n_chan or 1, 2); 1 of antennas without a row."""
    names = partition.antenna_names
    found = np.ones((1, len(names), 1, 2), np.complex128)
    used, feeds = set(partition.used_antennas), feeds_in(partition.corr_type)
    for gain in gains:
        found = found * np.array([gain.number(name, basis) for name in names])[:, None]
        for table in gain.solutions:
            one = np.ones((1, 1, 2), np.complex128)
            own = [
                table.at(name, partition.time, partition.chan_freq, gain.interpolation, feeds)
                if name in used
                else one
                for name in names
            ]
            n_time, n_chan = (max(each.shape[axis] for each in own) for axis in (0, 1))
            found = found * np.stack([np.broadcast_to(each, (n_time, n_chan, 2)) for each in own], axis=1)
    return found


def _add_fitted(layout: GainSlots, gains: Sequence[Gain]) -> None:
    """Add the gains that are fitted; those of several terms are called gain, gain2, ...

    Raises
    ------
    ModelError
        Partitions of linear and of circular feeds, and gains that differ between the feeds.
    """
    unequal = any(gain.is_fitted and not gain.is_common for gain in gains)
    if unequal and len(set(layout.bases)) > 1:
        raise ModelError(
            "gain: partitions of linear and circular feeds cannot have fitted gains in one model that differ "
            'between the feeds; say feeds = "common"'
        )
    for number, gain in enumerate(gains, start=1):
        check_known("gain", gain.named(), (name for view in layout.partitions for name in view.antenna_names))
        if gain.is_fitted:
            layout.add(gain, "gain" if number == 1 else f"gain{number}")


def _offsets(
    feeds: Feeds | None, partitions: Sequence[PartitionView], slots: ModelSlots
) -> list[Index | None]:
    """Slots of the offsets of each partition's antennas; None where there are none."""
    if feeds is None:
        return [None] * len(partitions)
    check_known("feeds", feeds.named(), (name for view in partitions for name in view.antenna_names))
    used = dict.fromkeys(name for view in partitions for name in view.used_antennas)
    of = {name: slots.add("feeds", "offset", feeds.offset_of(name), ANGLE, f"[{name}]") for name in used}
    tables = [np.array([of.get(name, ZERO) for name in view.antenna_names], np.int64) for view in partitions]
    return [table if table.any() else None for table in tables]


def _leakages(
    leakage: Leakage | None, partitions: Sequence[PartitionView], bases: Sequence[Basis], slots: ModelSlots
) -> list[Index | None]:
    """Slots (n_block, n_antenna, 2, 2) of the leakages of each partition; None where there are none."""
    if leakage is None:
        return [None] * len(partitions)
    check_known("leakage", leakage.named(), (name for view in partitions for name in view.antenna_names))
    own = {key for basis in bases for key in FEEDS[basis]}
    foreign = sorted(leakage.keys() - own)
    if foreign:
        raise ModelError(
            f"leakage: {foreign[0]} is of feeds that the data do not have; the data have "
            f"{', '.join(sorted(own))}"
        )
    n_chan = max(partition.chan_freq.size for partition in partitions)
    if leakage.chan_blocks > n_chan:
        raise ModelError(
            f"leakage: chan_blocks = {leakage.chan_blocks} is more than the {n_chan} channels of the data"
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
