"""Noise that differs among the baselines of a partition: its numbers, from theta and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.per_partition import PerPartition
from biro.models.bound.slots import ZERO, ModelSlots, ResolvedSlots
from biro.models.components.antenna_terms.per_antenna import check_known
from biro.models.components.noise import Noise
from biro.models.components.partition_view import PartitionView
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.units import FLUX, NUMBER

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NoiseTermSlots:
    """Slots of the numbers of sigma^2 -> s^2 s_p s_q sigma^2 + (f |V|)^2 + a^2, V of the model.

    Attributes
    ----------
    antenna : list of int (n_antenna,)
        Of s_p, for each partition; antennas without data share the slot of a number.
    systematic, additive : int (n_class,)
        Of f and a of each class of baseline length.
    factors, added : list of int
        All slots of factors, and of what is added.
    factor_of_all : bool
        Whether s multiplies f, too.
    """

    antenna: list[Index]
    systematic: Index
    additive: Index
    factors: list[int]
    added: list[int]
    factor_of_all: bool


def noise_term_slots(noise: Noise, partitions: Sequence[PartitionView], slots: ModelSlots) -> NoiseTermSlots:
    """Slots for the noise of a model.

    Raises
    ------
    ModelError
        An antenna is named that the data do not have.
    """
    check_known("noise", noise.antenna, [name for view in partitions for name in view.antenna_names])
    one = slots.add("noise", "factor", Fixed(1.0), NUMBER, "[other antennas]")
    found: dict[str, int] = {}
    antenna = []
    for group, view in zip(noise.groups(partitions), partitions, strict=True):
        of_view = np.full(len(view.antenna_names), one)
        used = view.antenna_weight.sum(axis=0) > 0.0
        for i in np.flatnonzero(used) if noise.of_antennas else ():
            name = view.antenna_names[i]
            index = f"[{name}]" + (f"[{group}]" if group else "")
            if index not in found:
                found[index] = slots.add("noise", "factor", noise.factor_of(name), NUMBER, index)
            of_view[i] = found[index]
        antenna.append(of_view)
    of_class = {}
    for key, dimension in (("systematic", NUMBER), ("additive", FLUX)):
        pairs = zip(noise.of_class(key), noise.classes, strict=False)
        each = [slots.add("noise", key, item, dimension, f"[{c}]" if c else "") for item, c in pairs]
        of_class[key] = np.array(each or [ZERO] * noise.n_class)
    added = [int(slot) for each in of_class.values() for slot in each if slot != ZERO]
    kinds = of_class["systematic"], of_class["additive"]
    return NoiseTermSlots(antenna, *kinds, [*found.values()], added, noise.factor_of_all)


class NoiseTerms:
    """The numbers of a model's noise beyond one factor for each partition.

    Parameters
    ----------
    resolved : ResolvedSlots
    slots : NoiseTermSlots

    Attributes
    ----------
    antenna : list of int (n_antenna,)
        Where s_p of each antenna stands among the numbers, for each partition.
    systematic, additive : int (n_class,)
        Where f and a of each class of baseline length stand.
    n_number : int
    is_free : bool (n_number,)
        Which numbers follow theta.
    follows_model : bool
        Whether there is an f: the variance then depends on the visibilities of the model.
    factor_of_all : bool
        Whether the noise factor s of a partition multiplies f, too.
    names : list of str
        Of the numbers.
    """

    def __init__(self, resolved: ResolvedSlots, slots: NoiseTermSlots) -> None:
        parts = [*slots.antenna, slots.systematic, slots.additive]
        used, place = np.unique(np.concatenate(parts), return_inverse=True)
        ends = np.cumsum([len(part) for part in parts])[:-1]
        *self.antenna, self.systematic, self.additive = np.split(place.astype(np.int64), ends)
        self._numbers = PerPartition(resolved, used.astype(np.int64))
        self.n_number, self.is_free = len(used), resolved.is_free(used)
        self.factor_of_all = slots.factor_of_all
        self.follows_model = bool(np.any(slots.systematic != ZERO))
        name_of = {slot: name for name, slot in resolved.slot_of.items()}
        self.names = [name_of.get(int(slot), "") for slot in used]

    def __call__(self, theta: Array) -> Array:
        """The numbers, float64 (n_batch, n_number); a in Jy."""
        return self._numbers(theta)

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to theta (n_batch, n_param), from those to the numbers."""
        return self._numbers.pull_back(slopes)
