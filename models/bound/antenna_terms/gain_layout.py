"""Slots of the gains that are fitted: one parameter per antenna and segment, of all partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.correlated import Chain, chain_of
from biro.models.bound.antenna_terms.segments import Segments, cut
from biro.models.bound.slots import ZERO, ModelSlots
from biro.models.components.antenna_terms.feeds import Basis
from biro.models.components.antenna_terms.gain import DIMENSIONS, FEEDS, NEUTRAL, Gain
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.components.noise import grouped
from biro.models.components.partition_view import PartitionView
from biro.models.errors import ModelError
from biro.models.quantities.prior import Normal, Prior
from biro.models.quantities.units import NUMBER, TIME, Dimension

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_CROSS = {"RL", "LR", "XY", "YX"}
_STANDARD = Normal(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class SegmentValues:
    """Values of one quantity in all segments, for the partitions that share them.

    Attributes
    ----------
    table : int (n_segment, n_antenna, n_chan_block, 2)
        Slots of each feed; that of the constant 0 where there is no parameter.
    chain : Chain or None
        How values follow from the parameters where segments are correlated; None: they are these.
    """

    table: Index
    chain: Chain | None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal states."""
        chain = () if self.chain is None else self.chain.key
        return self.table.shape, self.table.tobytes(), *chain


@dataclass(frozen=True, eq=False)
class GainQuantity:
    """One quantity of the gains of a partition.

    Attributes
    ----------
    key : str
        One of `DIMENSIONS`.
    states : SegmentValues
    antenna : int (n_antenna,)
        Where each antenna of the partition is among those of the states.
    segment : int (n_time_block,)
    block : int (n_chan_block,)
    by_time : float64 (n_time_block,), s
        2 pi (t - t_0) of a rate; else 1.
    by_chan : float64 (n_chan_block,), Hz
        2 pi (nu - nu_0) of a delay; else 1.
    """

    key: str
    states: SegmentValues
    antenna: Index
    segment: Index
    block: Index
    by_time: Array
    by_chan: Array

    @property
    def is_amplitude(self) -> bool:
        """Whether it is an amplitude, and no phase."""
        return self.key in NEUTRAL

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for equal factors."""
        arrays = (self.antenna, self.segment, self.block, self.by_time, self.by_chan)
        return self.key, *self.states.key, *((array.shape, array.tobytes()) for array in arrays)

    @property
    def of_time(self) -> Array:
        """What tells times apart, float64 (n_time_block, 2)."""
        return np.stack([self.segment, self.by_time], axis=1)

    @property
    def of_chan(self) -> Array:
        """What tells channels apart, float64 (n_chan_block, 2)."""
        return np.stack([self.block, self.by_chan], axis=1)

    def at(self, times: Index | None = None, channels: Index | None = None) -> GainQuantity:
        """The quantity at some of the times, or some of the channels."""
        segment, by_time, block, by_chan = self.segment, self.by_time, self.block, self.by_chan
        if times is not None:
            segment, by_time = segment[times], by_time[times]
        if channels is not None:
            block, by_chan = block[channels], by_chan[channels]
        return GainQuantity(self.key, self.states, self.antenna, segment, block, by_time, by_chan)


@dataclass(eq=False)
class GainSlots:
    """Adds the parameters of the gains of a model to its slots.

    Parameters
    ----------
    partitions : sequence of PartitionView
    bases : sequence of Basis
        Feeds of each partition.
    slots : ModelSlots
    without_gains : bool
        Whether to add only what is fitted of priors, and no gains.

    Attributes
    ----------
    factors : list of list of GainQuantity
        Of each partition, at each of its times and channels.
    lines : list of str
        Which antennas are references, in words.
    """

    partitions: Sequence[PartitionView]
    bases: Sequence[Basis]
    slots: ModelSlots
    without_gains: bool = False
    factors: list[list[GainQuantity]] = field(init=False)
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.factors, self.lines = [[] for _ in self.partitions], []
        names = (name for view in self.partitions for name in view.antenna_names)
        self._names = list(dict.fromkeys(names))
        self._antenna = [
            np.array([self._names.index(name) for name in view.antenna_names], np.int64)
            for view in self.partitions
        ]
        self._weights = [view.antenna_weight for view in self.partitions]
        self._cuts: dict[str | float, Segments] = {}
        self._shared: dict[str, tuple[Prior, int]] = {}

    def add(self, gain: Gain, owner: str) -> None:
        """Add the parameters of one term.

        Raises
        ------
        ModelError
            A reference without data, or more blocks of channels than channels.
        """
        self._check_reference(gain)
        for key in DIMENSIONS:
            of_antenna = [self._priors(gain, key, name) for name in self._names]
            kinds = dict.fromkeys(
                (one.time, one.coherence, one.sd, one.chan_blocks, one.group)
                for pair in of_antenna
                for one in pair
                if one is not None
            )
            for kind in kinds:
                own = [
                    tuple(
                        one
                        if one and (one.time, one.coherence, one.sd, one.chan_blocks, one.group) == kind
                        else None
                        for one in pair
                    )
                    for pair in of_antenna
                ]
                self._add_kind(gain, owner, key, own, alone=len(kinds) == 1)

    def _check_reference(self, gain: Gain) -> None:
        if gain.reference in ("auto", "none"):
            return
        named = self._names.index(gain.reference)
        if not any(
            (weight[:, antenna == named] > 0.0).any()
            for weight, antenna in zip(self._weights, self._antenna, strict=True)
        ):
            raise ModelError(
                f"gain: reference {gain.reference!r} has no data with weights; name another antenna, "
                'or write "auto"'
            )

    def _priors(self, gain: Gain, key: str, name: str) -> tuple[PerSegment | None, PerSegment | None]:
        first, second = gain.fitted(key, name, self.bases[0])
        return (first, None) if key.startswith("ratio_") else (first, second)

    def _add_kind(
        self,
        gain: Gain,
        owner: str,
        key: str,
        priors: list[tuple[PerSegment | None, ...]],
        *,
        alone: bool,
    ) -> None:
        """Add the parameters of one quantity, of the antennas whose segments are of one kind."""
        kind = next(one for pair in priors for one in pair if one is not None)
        n_chan = min(view.chan_freq.size for view in self.partitions)
        if kind.chan_blocks > n_chan:
            raise ModelError(
                f"gain: {key}: chan_blocks = {kind.chan_blocks} is more than the {n_chan} channels of "
                "the data"
            )
        segments = self._cuts.setdefault(kind.time, cut(kind.time, self.partitions))
        groups = grouped(kind.group, self.partitions)
        for group in dict.fromkeys(groups):
            members = [i for i, name in enumerate(groups) if name == group]
            weight = self._weight_of(segments, members)
            free = np.array([[one is not None for one in pair] for pair in priors])[None] & (
                weight[..., None] > 0.0
            )
            if key in ("phase", "delay", "rate"):
                free &= ~self._references(
                    gain, owner, key, segments, weight, members, alone and not kind.is_process
                )
            time_slot, sd_slot = (
                self._shared_slot(owner, f"{key}.{word}", own, dimension) if free.any() else ZERO
                for word, own, dimension in (
                    ("correlated", kind.coherence, TIME),
                    ("sd", kind.sd, NUMBER if key in NEUTRAL else DIMENSIONS[key]),
                )
            )
            if self.without_gains:
                continue
            table = self._slots_of(gain, owner, key, priors, segments, group, free)
            chain = None
            if kind.is_process:
                chain = chain_of(priors, segments.middle, free, DIMENSIONS[key], time_slot, sd_slot)
            states = SegmentValues(table, chain)
            for i in members:
                self.factors[i].append(self._factor(key, states, segments, members, i))

    def _shared_slot(self, owner: str, key: str, prior: object, dimension: Dimension) -> int:
        """The slot of a correlation time or an sd that is fitted, one for all antennas; else that of 0."""
        if not isinstance(prior, Prior):
            return ZERO
        place = f"{owner}.{key}"
        if place not in self._shared:
            self._shared[place] = prior, self.slots.add(owner, key, prior, dimension)
        known, slot = self._shared[place]
        if known != prior:
            what = "correlation time" if key.endswith("correlated") else "standard deviation"
            raise ModelError(
                f"{place}: biro fits one {what} for all antennas, but its priors differ between them; give "
                "all "
                "the same prior, or numbers"
            )
        return slot

    def _weight_of(self, segments: Segments, members: Sequence[int]) -> Array:
        """Sum of the weights of each antenna in each segment, float64 (n_segment, n_antenna)."""
        total = np.zeros((segments.middle.size, len(self._names)))
        for i in members:
            np.add.at(total, (segments.of_time[i][:, None], self._antenna[i][None, :]), self._weights[i])
        return total

    def _references(
        self,
        gain: Gain,
        owner: str,
        key: str,
        segments: Segments,
        weight: Array,
        members: Sequence[int],
        independent: bool,
    ) -> NDArray[np.bool_]:
        """Whose phase is 0 in each segment, bool (n_segment, n_antenna, 2).

        None where an antenna with data has a phase that is a number already. The phase of the second feed is
        free where the data have cross hands, which compare the feeds, and it has parameters of its own.
        """
        found = np.zeros((*weight.shape, 2), bool)
        if gain.reference == "none":
            return found
        known = np.array(
            [gain.is_given(key, name) or not any(self._priors(gain, key, name)) for name in self._names]
        )
        wanting = (weight > 0.0).any(axis=1) & ~((weight > 0.0) & known).any(axis=1)
        of_each = np.full(len(weight), -1)
        total = weight.sum(axis=0)
        if gain.reference != "auto":
            named = self._names.index(gain.reference)
            of_each[weight[:, named] > 0.0] = named
        elif not independent:
            of_each[weight[:, total.argmax()] > 0.0] = total.argmax()
        if independent:
            of_each = np.where(of_each < 0, weight.argmax(axis=1), of_each)
        rows = np.flatnonzero(wanting & (of_each >= 0))
        found[rows, of_each[rows], 0] = True
        crossed = any(_CROSS & set(self.partitions[i].corr_type) for i in members)
        found[rows, of_each[rows], 1] = gain.feeds != "separate" or not crossed
        self._tell(f"{owner}.{key}", of_each[rows], segments)
        self._tell_alone(f"{owner}.{key}", int(np.sum(wanting & (of_each < 0))), segments)
        return found

    def _tell(self, what: str, reference: Index, segments: Segments) -> None:
        """Note the reference antennas in words."""
        if not reference.size:
            return
        names, counts = np.unique(reference, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        of = [
            f"{self._names[names[i]]}" + (f" in {counts[i]} {_words(segments)}" if len(names) > 1 else "")
            for i in order[:5]
        ]
        more = f" and {len(order) - 5} more" if len(order) > 5 else ""
        self._add_line(f"gains: {what} is 0 for the reference antenna {', '.join(of)}{more}")

    def _tell_alone(self, what: str, n: int, segments: Segments) -> None:
        """Note segments without their reference antenna, in whose place no other can be taken."""
        if n:
            self._add_line(
                f"gains: {what}: the reference antenna has no data in {n} {_words(segments)}, where only "
                "priors "
                "determine what all antennas have in common"
            )

    def _add_line(self, line: str) -> None:
        if line not in self.lines:
            self.lines.append(line)

    def _slots_of(
        self,
        gain: Gain,
        owner: str,
        key: str,
        priors: list[tuple[PerSegment | None, ...]],
        segments: Segments,
        group: str,
        free: NDArray[np.bool_],
    ) -> Index:
        """Slots (n_segment, n_antenna, n_chan_block, 2) of the parameters, which are added."""
        n_block = next(one.chan_blocks for pair in priors for one in pair if one is not None)
        table = np.full((*free.shape[:2], n_block, 2), ZERO, np.int64)
        tail = f"[{group}]" if group else ""
        for antenna, feed, word in self._each_feed(gain, key, free):
            prior = priors[antenna][feed]
            assert prior is not None
            rows = np.flatnonzero(free[:, antenna, feed])
            for n, segment in enumerate(rows):
                place = f"[{self._names[antenna]}]{segments.index(int(segment))}"
                name, one, dimension = key + word, prior.prior, DIMENSIONS[key]
                if prior.is_process and not (n == 0 and prior.is_circle):
                    name, one, dimension = f"{name}.step", _STANDARD, NUMBER
                for block in range(n_block):
                    index = f"{place}{tail}" + (f"[{block}]" if n_block > 1 else "")
                    table[segment, antenna, block, feed] = self.slots.add(owner, name, one, dimension, index)
        if gain.feeds != "separate" and not key.startswith("ratio_"):
            table[..., 1] = table[..., 0]
        return table

    def _each_feed(self, gain: Gain, key: str, free: NDArray[np.bool_]) -> Iterator[tuple[int, int, str]]:
        """Antennas and feeds that have parameters of their own, and what the names of these end with."""
        for antenna in np.flatnonzero(free.any(axis=(0, 2))):
            for feed in range(2):
                if feed and (gain.feeds != "separate" or key.startswith("ratio_")):
                    continue
                if free[:, antenna, feed].any():
                    yield (
                        int(antenna),
                        feed,
                        f".{FEEDS[self.bases[0]][feed]}" if gain.feeds == "separate" else "",
                    )

    def _factor(
        self, key: str, states: SegmentValues, segments: Segments, members: Sequence[int], i: int
    ) -> GainQuantity:
        view = self.partitions[i]
        n_chan, n_block = view.chan_freq.size, states.table.shape[2]
        by_time, by_chan = np.ones(view.time.size), np.ones(n_chan)
        if key == "rate":
            by_time = 2.0 * np.pi * (view.time - segments.middle[segments.of_time[i]])
        if key == "delay":
            middle = np.mean(np.concatenate([self.partitions[k].chan_freq for k in members]))
            by_chan = 2.0 * np.pi * (view.chan_freq - middle)
        block = (np.arange(n_chan) * n_block // n_chan).astype(np.int64)
        return GainQuantity(key, states, self._antenna[i], segments.of_time[i], block, by_time, by_chan)


def _words(segments: Segments) -> str:
    """Segments of this kind in the plural."""
    return {"": "the track", "time": "integrations", "segment": "segments"}.get(segments.word, "scans")
