"""Baselines between antennas at one place: they see flux on scales far beyond an image of the others."""

from __future__ import annotations

import numpy as np

from biro.display.formatting import WAVELENGTHS, first_few, range_text
from biro.image_posterior.field import SAME_PLACE
from biro.observation.observation import Observation
from rime_kernels.physics.phase import SPEED_OF_LIGHT


def at_one_place(observation: Observation) -> str:
    """What to do about baselines `SAME_PLACE` times shorter than the longest one; "" where there are none.

    ALMA and APEX, or JCMT and SMA, see all of M87 on their baseline: 1.2 Jy, of which the ring has half. An
    image of some fringes of the long baselines has no room for the rest.
    """
    parts = observation.partitions
    rows = [(part.row_weight > 0.0) & (part.antenna1 != part.antenna2) for part in parts]
    scale = [part.chan_freq.min() / SPEED_OF_LIGHT for part in parts]
    lengths = [np.hypot(*part.uvw[:, :2].T) * factor for part, factor in zip(parts, scale, strict=True)]
    longest = max(
        (float(one[used].max(initial=0.0)) for one, used in zip(lengths, rows, strict=True)), default=0.0
    )
    limit, names = longest / SAME_PLACE, observation.antenna_names
    pairs = {
        (int(a), int(b))
        for part, one, used in zip(parts, lengths, rows, strict=True)
        for a, b in zip(part.antenna1[used & (one < limit)], part.antenna2[used & (one < limit)], strict=True)
    }
    if not pairs:
        return ""
    shown = first_few(f"{names[a]}-{names[b]}" for a, b in sorted(pairs))
    return (
        f"Baselines of antennas at one place ({shown}) may see flux for which the image has no room: leave "
        f"them out (--uv-range '{range_text(limit, limit, WAVELENGTHS, 3)}..') and give the flux of the image"
    )
