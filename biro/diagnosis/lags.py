"""Lags in time at which the correlation of residuals is measured together."""

from __future__ import annotations

from itertools import pairwise

LONGEST = 64
"""Times, or channels, apart that are looked at."""
SURE = 2.0
"""Standard deviations of the correlation at some lags, below which it and those at longer lags count as 0."""


def lag_ranges(n: int) -> list[range]:
    """Lags below n that are taken together: 0, 1, 2 to 3, 4 to 7, and so on, up to `LONGEST`."""
    ends = [0, *(1 << k for k in range(n.bit_length() + 1))]
    last = min(n, LONGEST)
    return [range(a, min(b, last)) for a, b in pairwise(ends) if a < last]
