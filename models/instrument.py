"""Slots of what belongs to the instrument: beam, pointing, noise factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.frame import Frame
from biro.models.slots import Slots
from biro.models.strict import nearest, shown
from biro.models.units import ANGLE, NUMBER
from rime_kernels.arrays import Beam

if TYPE_CHECKING:
    from biro.models.sky import SkyModel

Array = NDArray[np.float64]


class InstrumentLayout:
    """Index tables of beam, pointing and noise.

    Attributes
    ----------
    noise : int (n_frame,)
        Slot of each partition's noise factor.
    positive : list of int
        Slots that only mean something above 0.
    """

    def __init__(self, model: SkyModel, frames: Sequence[Frame], slots: Slots) -> None:
        self._beam = model.beam
        self.positive: list[int] = []
        if model.beam is not None:
            key = model.beam.key
            self._scale = slots.add("beam", key, getattr(model.beam, key), model.beam.quantity_kind)
            self.positive.append(self._scale)
        self._pointing: list[_PointingSlots] | None = None
        if model.pointing is not None:
            self._pointing = _pointing(model, frames, slots)
        groups = model.noise.groups(frames)
        slot_of = {
            group: slots.add("noise", "factor", model.noise.factor, NUMBER, f"[{group}]" if group else "")
            for group in dict.fromkeys(groups)
        }
        self.noise = np.array([slot_of[group] for group in groups], dtype=np.int64)
        self.positive += slot_of.values()

    def beam(self, values: Array, i_frame: int) -> Beam | None:
        """The kernels' beam of a partition, for slots in SI (n_batch, n_slot)."""
        if self._beam is None:
            return None
        pointing = self._pointing[i_frame].pointing(values) if self._pointing is not None else None
        return Beam(self._beam.kind, self._beam.scale(values[:, self._scale].copy()), pointing)


class _PointingSlots:
    """Pointing of the antennas of one partition: slots (n_power, n_antenna, 2), times in -1 .. 1."""

    def __init__(self, table: NDArray[np.int64], moment: Array) -> None:
        self.table = table
        self.powers = moment[:, None] ** np.arange(len(table)) if len(table) > 1 else np.ones((1, 1))

    def pointing(self, values: Array) -> Array:
        """Pointing error, rad (n_batch, n_time or 1, n_antenna, 2)."""
        return np.einsum("tp,bpax->btax", self.powers, values[:, self.table])


def _pointing(model: SkyModel, frames: Sequence[Frame], slots: Slots) -> list[_PointingSlots]:
    antennas = list(dict.fromkeys(name for frame in frames for name in frame.antenna_names))
    unknown = sorted(model.pointing.named() - set(antennas))
    if unknown:
        raise ModelError(f"pointing: no antenna is called {shown(unknown[0])}{nearest(unknown[0], antennas)}")
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
    times = np.concatenate([frame.time for frame in frames])
    middle, half = 0.5 * (times.min() + times.max()), 0.5 * (times.max() - times.min())
    n_power = 1 + max((power for terms in found.values() for _, power in terms), default=0)
    made = []
    for frame in frames:
        table = np.zeros((n_power, len(frame.antenna_names), 2), dtype=np.int64)
        for i, name in enumerate(frame.antenna_names):
            for (axis, power), slot in found[name].items():
                table[power, i, axis] = slot
        made.append(_PointingSlots(table, (frame.time - middle) / half if half > 0 else 0 * frame.time))
    return made
