"""What is no data, although its weights count it: exactly zero visibilities, and rows without uvw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from biro.misfit.residual_data import ResidualData


def fault_lines(data: Sequence[ResidualData]) -> list[str]:
    """A line for each kind of fault (physics: section 7); none where there is none."""
    n_row = n_without = n_vis = n_zero = 0
    for each in data:
        part, counts = each.partition, np.asarray(each.partition.weight > 0)
        used = counts.any(axis=(1, 2)) & (part.antenna1 != part.antenna2)
        n_row += int(np.count_nonzero(used))
        n_without += int(np.count_nonzero(used & ~part.uvw.any(axis=1)))
        n_vis += int(np.count_nonzero(counts))
        n_zero += int(np.count_nonzero(counts & (part.vis == 0)))
    lines = []
    if n_without and n_without < n_row:
        lines.append(
            f"ROWS WITHOUT UVW: uvw is 0 in {n_without} of {n_row} rows of different antennas. Flag them, or "
            "mend uvw"
        )
    if n_zero and n_zero < n_vis:
        lines.append(
            f"ZERO VISIBILITIES: {n_zero} of {n_vis} visibilities that count are exactly 0, as no "
            "measurement is. Flag them"
        )
    return lines
