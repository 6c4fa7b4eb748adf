"""Axes of time, on which long gaps between scans are drawn short."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator
from numpy.typing import NDArray

Array = NDArray[np.float64]
_GAP = 0.05
"""A gap is longer than this share of the whole time."""
_MOST_GAPS = 4
"""Gaps whose ends an axis has room to name."""
_LEAST_SHARE = 0.2
"""Where scans take more of the whole time than this, gaps are drawn as long as they are."""
_DRAWN_GAP = 0.15
"""How long a gap is drawn, in units of all scans together."""


class TimeAxis:
    """Places of times on an axis: hours, or hours less what long gaps are shortened by.

    A few scans far apart would each be a vertical line of points otherwise.

    Parameters
    ----------
    hours : float64 (n,)
        All times that are drawn, in any order.
    """

    def __init__(self, hours: Array) -> None:
        times = np.unique(hours)
        steps = np.diff(times)
        is_gap = steps > _GAP * steps.sum()
        seen, n_gap = float(steps[~is_gap].sum()), int(is_gap.sum())
        self.is_shortened = 1 <= n_gap <= _MOST_GAPS and 0.0 < seen < _LEAST_SHARE * float(steps.sum())
        self._hours = times
        if self.is_shortened:
            steps = np.where(is_gap, _DRAWN_GAP * seen, steps)
        self._places = times[:1].sum() + np.concatenate([[0.0], np.cumsum(steps)])
        ends = np.flatnonzero(is_gap)
        self._starts = [0, *(ends + 1).tolist()]
        self._middles = [0.5 * float(self._places[i] + self._places[i + 1]) for i in ends]

    def of(self, hours: Array) -> Array:
        """Places of times among those that the axis was made for."""
        return np.asarray(np.interp(hours, self._hours, self._places))

    @property
    def length(self) -> float:
        """Length of the axis from the first to the last time."""
        return float(np.ptp(self._places)) if self._places.size else 0.0

    @property
    def remark(self) -> str:
        """What a label says of gaps that are shortened."""
        return " (gaps shortened)" if self.is_shortened else ""

    def finish(self, axes: Iterable[Axes]) -> None:
        """Name the beginnings of scans, and mark gaps by dotted lines, where these are shortened."""
        if not self.is_shortened:
            return
        labels = [f"{self._hours[i]:.2f}".rstrip("0").rstrip(".") for i in self._starts]
        for ax in axes:
            ax.xaxis.set_major_locator(FixedLocator([float(self._places[i]) for i in self._starts]))
            ax.xaxis.set_major_formatter(FixedFormatter(labels))
            for middle in self._middles:
                ax.axvline(middle, color="0.7", lw=0.6, ls=":", zorder=0)
