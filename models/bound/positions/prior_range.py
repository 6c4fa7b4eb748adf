"""Where sources may be under their priors, as partitions see them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.positions.places import SourceDirections, TangentPlanes
from biro.models.bound.slots import ResolvedSlots
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.direction import Centre
from biro.models.components.partition_view import PartitionView
from biro.models.errors import ModelError

Array = NDArray[np.float64]
# What is left out of a prior on either side.
TAIL = 1e-9
# A prior on right ascension that is wider, rad, is looked at in finer steps.
_WIDE = 0.5


class PriorRange:
    """The places that the priors of a model leave to its sources.

    Parameters
    ----------
    layout : SourceLayout
    resolved : ResolvedSlots
    origin : (float, float), rad
        What offsets count from.
    """

    def __init__(self, layout: SourceLayout, resolved: ResolvedSlots, origin: Centre) -> None:
        self._layout, self._resolved, self._origin = layout, resolved, origin

    def extent(self, partition: PartitionView) -> float:
        """Largest |l| or |m| of all sources; 0 without sources, 1 where some may lie below the horizon.

        Raises
        ------
        ModelError
            A source lies below the horizon wherever its prior has it.
        """
        names = self._layout.names
        if not names:
            return 0.0
        lm, fixed = self.places(partition, TAIL)
        lost = fixed & np.isnan(lm).any(axis=(0, 2))
        if lost.any():
            raise ModelError(
                f"source {names[int(np.argmax(lost))]!r} lies below the horizon of the tangent plane of "
                f"partition {partition.label!r} (90 degrees or more from its phase centre); "
                "remove it or select other fields"
            )
        never = np.isnan(lm).all(axis=(0, 2))
        if never.any():
            raise ModelError(
                f"source {names[int(np.argmax(never))]!r}: its prior lies below the horizon of partition "
                f"{partition.label!r}"
            )
        return 1.0 if np.isnan(lm).any() else float(np.abs(lm).max())

    def places(self, partition: PartitionView, tail: float) -> tuple[Array, NDArray[np.bool_]]:
        """Where sources may be, (n_place, n_source, 2), and which are fixed.

        Over a 3 x 3 grid of each source's box, edges and middle; finer in a wide right ascension.
        """
        low, high = (limit[self._layout.position] for limit in self._resolved.limits(tail))
        # l is largest a quarter turn from the centre, which may lie between the edges: 5.6 deg miss 0.5 %.
        n_first = 65 if (high - low)[:, 0].max() > _WIDE else 3
        first, second = np.linspace(0, 1, n_first), (0.0, 0.5, 1.0)
        steps = np.array([[a, b] for a in first for b in second])[:, None, :]
        planes = TangentPlanes([partition.phase_centre], self._origin)
        lm = SourceDirections(self._layout.by_offset, planes).lm(low + steps * (high - low))[0]
        return lm, (low == high).all(axis=-1)
