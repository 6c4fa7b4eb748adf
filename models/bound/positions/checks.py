"""How far sources move within partitions, of which each has one position of a source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.positions.motion import Motion
from biro.models.bound.si_values import SIValues
from biro.models.bound.slots import ResolvedSlots
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.partition_view import PartitionView
from biro.models.errors import ModelError

Array = NDArray[np.float64]
# A phase that is wrong by so many turns at the ends of a partition on its longest baseline is refused.
MOST_TURNS = 0.01
_N_DRAW, _N_TIME = 64, 9
_MAS = 648e6 / np.pi


def largest_displacement(
    layout: SourceLayout, resolved: ResolvedSlots, partitions: Sequence[PartitionView]
) -> Array:
    """How far sources are from their positions at most in each partition, rad (n_partition,), by draws.

    Raises
    ------
    ModelError
        For half of the prior, a source moves too far within a partition.
    """
    given = [each for each in layout.motions if each is not None]
    found = np.zeros(len(partitions))
    if not given:
        return found
    start = min(float(view.time.min()) for view in partitions)
    names = [layout.names[i] for i in layout.moving]
    draws = np.random.default_rng(0).random((_N_DRAW, len(resolved.parameters)))
    columns = [p.prior.transform(u) for p, u in zip(resolved.parameters, draws.T, strict=True)]
    theta = np.stack(columns, axis=1) if columns else np.zeros((1, 0))
    for i, view in enumerate(partitions):
        times = [float(view.time.mean()), *np.linspace(view.time.min(), view.time.max(), _N_TIME).tolist()]
        each = []
        for time in times:
            values = SIValues(resolved)
            motion = Motion(given, values, time, start)
            each.append(motion(values.of(theta)))
        place = np.array(each)  # (time, draw, source, 2)
        found[i] = float(np.nanmax(np.abs(place)))
        moves = np.median(np.max(np.hypot(*np.moveaxis(place - place[0], -1, 0)), axis=0), axis=0)
        worst = int(np.argmax(moves))
        turns = float(moves[worst]) * view.longest
        if turns > MOST_TURNS:
            hours = float(view.time.max() - view.time.min()) / 3600
            raise ModelError(
                f"source {names[worst]!r} moves by {moves[worst] * _MAS:.3g} mas in partition {view.label!r} "
                f"({hours:.3g} h): {turns:.2g} turns on its longest baseline, more than {MOST_TURNS:g}; a "
                "partition has one position of it: read shorter times (time_range=) and biro.join them"
            )
    return found
