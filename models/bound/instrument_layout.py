"""Slots of the quantities of the instrument: beam, pointing errors, noise factor."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.layout import NO_ROTATION, BeamRotation, TermSlots, antenna_term_slots
from biro.models.bound.antenna_terms.noise_terms import NoiseTermSlots, noise_term_slots
from biro.models.bound.slots import ZERO, ModelSlots, ResolvedSlots
from biro.models.components.beam import AnyBeam
from biro.models.components.direction import basis
from biro.models.components.jones_beam import GridBeam
from biro.models.components.noise import HIGHEST, LOWEST, Noise
from biro.models.components.partition_view import PartitionView, SampledTimes
from biro.models.components.sky import SkyDescription
from biro.models.errors import ModelError
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.quantities.units import ANGLE, NUMBER

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class InstrumentLayout:
    """Index tables of beam, pointing and noise; gains that have priors may be left out.

    Attributes
    ----------
    beam : Cos3Beam, GaussianBeam, AiryBeam, GridBeam or None
    scale : int
        Slot of the one number of the beam, where there is a beam.
    pointing : list of PointingSlots
        Of each partition, or none at all: where all beams are centred at the phase centre without errors.
        One object for partitions of the same antennas and times.
    terms : list of TermSlots
        Rotation of feeds, leakage and gain of each partition, or none at all; likewise.
    gain_lines : list of str
        Which antennas are references of fitted gains.
    noise : int (n_partition,)
        Slot of each partition's noise factor; either all are constant or all are free.
    dof : int (n_partition,) or None
        Slot of each partition's degrees of freedom, likewise; None where noise is Gaussian.
    noise_terms : NoiseTermSlots or None
        Factors of antennas and what is added to the stated noise; None where there is neither.
    positive : list of int
        Slots that only mean something above 0.
    not_negative : list of int
        Slots that only mean something from 0 on.
    correlation : int (2,) or None
        Slots of rho and of the smoothing of correlated noise; None where samples are independent.
    limited : list of (int, float, float)
        Slots that only mean something within two numbers.
    """

    def __init__(
        self,
        model: SkyDescription,
        partitions: Sequence[PartitionView],
        slots: ModelSlots,
        *,
        without_gains: bool = False,
    ) -> None:
        self.beam: AnyBeam | GridBeam | None = model.beam
        self.scale = ZERO
        self.positive: list[int] = []
        if model.beam is not None:
            key = model.beam.key
            self.scale = slots.add("beam", key, getattr(model.beam, key), model.beam.dimension)
            self.positive.append(self.scale)
        self.pointing = _pointing(model, partitions, slots)
        terms = antenna_term_slots(model, partitions, slots, without_gains=without_gains)
        self.terms, self.gain_lines = terms
        noise = model.noise
        self.noise_terms: NoiseTermSlots | None = None
        self.not_negative: list[int] = []
        if noise.has_terms:
            self.noise_terms = noise_term_slots(noise, partitions, slots)
            self.positive += self.noise_terms.factors
            self.not_negative += self.noise_terms.added
        if noise.of_antennas:
            noise = replace(noise, factor=1.0)
        elif noise.factor is None:
            noise = noise.with_factor_between(LOWEST, HIGHEST)
        self.noise = self._add_noise(noise, partitions, slots, "factor")
        is_student = noise.distribution == "student-t"
        self.dof = self._add_noise(noise, partitions, slots, "dof") if is_student else None
        self.correlation = _correlation(noise, slots) if noise.correlation else None
        ends = ((0.0, 1.0), (-0.5, 0.5))
        found = [] if self.correlation is None else self.correlation.tolist()
        self.limited = [(slot, *pair) for slot, pair in zip(found, ends, strict=False)]

    def taken(self, samples: Sequence[SampledTimes]) -> InstrumentLayout:
        """The tables of some times and channels of each partition; one object where they are alike."""
        found = copy.copy(self)
        terms: dict[tuple[object, ...], TermSlots] = {}
        each = map(TermSlots.taken, self.terms, samples)
        found.terms = [terms.setdefault(one.key, one) for one in each]
        found.pointing = _shared(map(PointingSlots.taken, self.pointing, (own.times for own in samples)))
        return found

    def steps(self, i_partition: int, view: PartitionView, nearest: bool) -> tuple[list[Index], list[Index]]:
        """Steps of the antenna terms (`TermSlots.steps`), also of a partition without such terms."""
        none = [np.zeros(view.time.size, np.int64)], [np.zeros(view.chan_freq.size, np.int64)]
        return self.terms[i_partition].steps(nearest) if self.terms else none

    def beam_rotations(self, resolved: ResolvedSlots, n_partition: int) -> list[BeamRotation]:
        """What turns the feeds in the beam of each partition, where the beam is one of Jones matrices."""
        if not self.terms:
            return [NO_ROTATION] * n_partition
        return [terms.rotation_in_beam(resolved) for terms in self.terms]

    def _add_noise(
        self, noise: Noise, partitions: Sequence[PartitionView], slots: ModelSlots, key: str
    ) -> NDArray[np.int64]:
        """Slot of each partition's number of this name, which is above 0."""
        groups, value = noise.groups(partitions), getattr(noise, key)
        slot_of = {
            group: slots.add("noise", key, value, NUMBER, f"[{group}]" if group else "")
            for group in dict.fromkeys(groups)
        }
        self.positive += slot_of.values()
        return np.array([slot_of[group] for group in groups], dtype=np.int64)


def _correlation(noise: Noise, slots: ModelSlots) -> NDArray[np.int64]:
    """Slots of rho and of the smoothing, which "time" does not have."""
    given = [(key, getattr(noise, key)) for key in ("rho", "smoothing")]
    found = [ZERO if value is None else slots.add("noise", key, value, NUMBER) for key, value in given]
    return np.array(found, np.int64)


@dataclass(frozen=True, eq=False)
class PointingSlots:
    """Pointing of the antennas of one partition as polynomials in time.

    Attributes
    ----------
    table : int (n_power, n_antenna, 2)
        Slots of the coefficients; 2 for east, north.
    powers : float64 (n_time or 1, n_power)
        Factors of the coefficients: powers of the times, which run from -1 to 1.
    centre : float64 (n_time or 1, n_antenna, 2), rad, or None
        Centres of the beams, direction cosines about the phase centre; as many times as in `powers`, or 1.
    """

    table: NDArray[np.int64]
    powers: Array
    centre: Array | None = None

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal for the same pointing."""
        centre = b"" if self.centre is None else self.centre.tobytes()
        return self.table.tobytes(), self.powers.tobytes(), centre

    def taken(self, times: Index) -> PointingSlots:
        """The pointing at some of the times."""
        powers, centre = self.powers, self.centre
        return replace(
            self,
            powers=powers if len(powers) == 1 else powers[times],
            centre=centre if centre is None or len(centre) == 1 else centre[times],
        )


def beam_centre(model: SkyDescription, view: PartitionView) -> Array | None:
    """Where the beams of a partition are centred, direction cosines about its phase centre; None: at that.

    The axes are (n_time or 1, n_antenna, 2). A beam is then seen in the tangent plane of the phase centre:
    at a distance D from that it is too wide along the direction of the shift, by D^2 / 2 (rad).

    Raises
    ------
    ModelError
        A direction that is 90 deg or more from the phase centre.
    """
    if model.beam is None or model.beam.centre == "phase":
        return None
    if model.beam.centre == "pointing":
        found = view.pointed
    else:
        turned = basis(view.phase_centre) @ basis(model.beam.centre)[2]
        lm = turned[:2] if turned[2] > 0.0 else np.full(2, np.nan)
        found = np.tile(lm, (1, len(view.antenna_names), 1))
    if found is not None and np.isnan(found).any():
        raise ModelError(
            f"beam: its centre is 90 deg or more from the phase centre of partition {view.label!r}; give one "
            'near the field in the model, [beam] centre = "phase" or a direction'
        )
    return found


def _pointing(
    model: SkyDescription, partitions: Sequence[PartitionView], slots: ModelSlots
) -> list[PointingSlots]:
    centres = [beam_centre(model, view) for view in partitions]
    if model.pointing is None:
        if all(centre is None for centre in centres):
            return []
        return _shared(map(_without_errors, partitions, centres))
    antennas = list(dict.fromkeys(name for partition in partitions for name in partition.antenna_names))
    unknown = sorted(model.pointing.named() - set(antennas))
    if unknown:
        raise ModelError(
            f"pointing: no antenna is called {short_repr(unknown[0])}{did_you_mean(unknown[0], antennas)}"
        )
    found: dict[str, dict[tuple[int, int], int]] = {}
    for name in antennas:
        terms = list(model.pointing.coefficients(name))
        orders = [max((power for a, power, _ in terms if a == axis), default=0) for axis in (0, 1)]
        found[name] = {
            (axis, power): slots.add(
                "pointing",
                ("east", "north")[axis],
                item,
                ANGLE,
                f"[{name}]" + (f"[{power}]" if orders[axis] else ""),
            )
            for axis, power, item in terms
        }
    times = np.concatenate([partition.time for partition in partitions])
    middle, half = 0.5 * (times.min() + times.max()), 0.5 * (times.max() - times.min())
    n_power = 1 + max((power for terms in found.values() for _, power in terms), default=0)
    each = []
    for partition, centre in zip(partitions, centres, strict=True):
        table = np.zeros((n_power, len(partition.antenna_names), 2), dtype=np.int64)
        for i, name in enumerate(partition.antenna_names):
            for (axis, power), slot in found[name].items():
                table[power, i, axis] = slot
        moment = (partition.time - middle) / half if half > 0 else 0 * partition.time
        powers = moment[:, None] ** np.arange(n_power) if n_power > 1 else np.ones((1, 1))
        each.append(_as_long(PointingSlots(table, powers, centre)))
    return _shared(each)


def _shared(each: Iterable[PointingSlots]) -> list[PointingSlots]:
    """One object for partitions that are alike."""
    made: dict[tuple[bytes, ...], PointingSlots] = {}
    return [made.setdefault(one.key, one) for one in each]


def _without_errors(view: PartitionView, centre: Array | None) -> PointingSlots:
    table = np.full((1, len(view.antenna_names), 2), ZERO, dtype=np.int64)
    return _as_long(PointingSlots(table, np.ones((1, 1)), centre))


def _as_long(slots: PointingSlots) -> PointingSlots:
    """With powers of as many times as there are centres."""
    n_time = 1 if slots.centre is None else len(slots.centre)
    if n_time == 1 or len(slots.powers) > 1:
        return slots
    return replace(slots, powers=np.repeat(slots.powers, n_time, axis=0))
