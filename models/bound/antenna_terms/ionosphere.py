"""Slots and numbers of the ionosphere above the antennas of each partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.slots import ZERO, ModelSlots
from biro.models.components.antenna_terms.ionosphere import DIMENSIONS, Ionosphere
from biro.models.components.antenna_terms.per_antenna import check_known
from biro.models.components.beam import SPEED_OF_LIGHT
from biro.models.components.partition_view import PartitionView

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# e^2 / (8 pi^2 epsilon_0 m_e), m^3/s^2, with CODATA 2018 (Thompson, Moran & Swenson 2017, section 14.1).
PLASMA = 40.308193
# Radians Hz per TECU of 1e16 / m^2: -8.44797e9.
DISPERSION = -2.0 * math.pi * PLASMA * 1e16 / SPEED_OF_LIGHT


@dataclass(frozen=True, eq=False)
class IonosphereSlots:
    """Slots of the ionosphere above the antennas of one partition.

    Attributes
    ----------
    known : float64 (2, n_time, n_antenna)
        Electron contents, TECU, and rotation measures, rad/m2, to which quantities are added.
    tec, rm : int (n_antenna,) or None
        Slots; None where no antenna has any.
    """

    known: Array
    tec: Index | None
    rm: Index | None


def ionosphere_slots(
    ionosphere: Ionosphere | None, partitions: Sequence[PartitionView], slots: ModelSlots
) -> list[IonosphereSlots | None]:
    """The slots of each partition; one parameter of an antenna for all of them."""
    if ionosphere is None:
        return [None] * len(partitions)
    names = (name for view in partitions for name in view.antenna_names)
    check_known("ionosphere", ionosphere.named(), names)
    used = dict.fromkeys(name for view in partitions for name in view.used_antennas)
    of = {
        (key, name): slots.add("ionosphere", key, ionosphere.quantity_of(name, key), dimension, f"[{name}]")
        for key, dimension in DIMENSIONS.items()
        for name in used
    }
    found: list[IonosphereSlots | None] = []
    for i, view in enumerate(partitions):
        known = np.zeros((2, view.time.size, len(view.antenna_names)))
        samples, own = ionosphere.samples_of(i), set(view.used_antennas)
        for k, name in enumerate(view.antenna_names):
            if samples is not None and name in own:
                known[:, :, k] = samples.at(name, view.time)
        tec, rm = (
            np.array([of.get((key, name), ZERO) for name in view.antenna_names], np.int64)
            for key in DIMENSIONS
        )
        found.append(IonosphereSlots(known, tec if tec.any() else None, rm if rm.any() else None))
    return found
