"""Gains that a single baseline sees: they take up what it says, and it says little of the sky.

The gain of an antenna is told apart from the sky by what its baselines have in common. Where it has one
baseline alone, in its segment, any difference between data and model of that baseline may be its gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.models.bound.antenna_terms.log_gains import LogGains
from biro.models.bound.antenna_terms.normal_priors import NONE
from biro.observation.observation import Observation
from biro.observation.partition import Partition

Index = NDArray[np.int64]


def lone_gains(observation: Observation, gains: LogGains | None) -> str:
    """One line that names the gains, or antennas, that a single baseline sees, or "".

    Parameters
    ----------
    observation : Observation
    gains : LogGains or None
        Fitted gains in their segments; None: antennas are looked at over all times.
    """
    pairs = []
    for i, part in enumerate(observation.partitions):
        for block, antenna, other in _ends(part, None if gains is None else gains.each[i].time_block):
            if gains is None:
                pairs.append(np.stack([antenna, other]))
                continue
            for term in gains.each[i].terms:
                owner = term.coordinate[block, antenna].reshape(block.size, -1)
                partner = np.broadcast_to(other[:, None], owner.shape)
                there = owner != NONE
                pairs.append(np.stack([owner[there], partner[there]]))
    every = np.unique(np.concatenate(pairs, axis=1), axis=1)
    found, n_partner = np.unique(every[0], return_counts=True)
    of = observation.antenna_names if gains is None else gains.names
    return _line([of[int(k)] for k in found[n_partner == 1]], of_gains=gains is not None)


def _ends(part: Partition, time_block: NDArray[np.int32] | None) -> Iterator[tuple[Index, Index, Index]]:
    """Block of times, antenna and partner of each baseline that has data, from either end."""
    used = part.row_weight > 0
    block = np.zeros(part.n_row, np.int64) if time_block is None else time_block[part.time_index]
    keys = np.unique(np.stack([block, part.antenna1, part.antenna2])[:, used], axis=1).astype(np.int64)
    yield keys[0], keys[1], keys[2]
    yield keys[0], keys[2], keys[1]


def _line(lone: Sequence[str], *, of_gains: bool) -> str:
    if not lone:
        return ""
    n, s = len(lone), "s" * (len(lone) > 1)
    if not of_gains:
        return (
            f"{n} antenna{s} with a single baseline: {first_few(lone)}. Its gain absorbs what this "
            "baseline measures, so the baseline does not constrain the sky"
        )
    return (
        f"{n} parameter{s} of gains ha{'ve' if s else 's'} a single baseline: {first_few(lone)}. Within "
        "its prior, the gain absorbs what this baseline measures, so the baseline hardly constrains the "
        "sky. Exclude such antennas (--antennas '!NAME') or times, or use longer segments"
    )
