"""The parts of a prior in which chains stay, where a posterior has modes between which they do not cross."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.bridge import nearest_mode
from biro.inference.maximum.modes import Mode
from biro.inference.maximum.objective import wrapped_difference
from biro.inference.target.checked import Target

Array = NDArray[np.float64]
BARRIER = 3.0
"""By how much the log-posterior falls between modes from which on chains count as staying in their own.

A chain crosses a barrier of b once in some exp(b) trajectories.
"""
_BETWEEN: Array = np.mod((np.arange(16.0) + 1.0) * 0.5 * (np.sqrt(5.0) - 1.0), 1.0)
"""Parts of the way between two modes at which the log-posterior is looked at; even ones meet fringes."""


class Regions:
    """Modes in groups: chains cross between those of a group, and not from one group to another.

    The region of a group has all theta to which one of its modes is the nearest (`nearest_mode`). Two modes
    belong together where the log-posterior falls by less than `BARRIER` on the straight line between them, or
    where a chain of such pairs joins them.

    Parameters
    ----------
    target : Target
    modes : sequence of Mode
        None of them singular, where there are two or more.

    Attributes
    ----------
    group : int64 (n_mode,)
        The region of each mode, from 0.
    """

    def __init__(self, target: Target, modes: Sequence[Mode]) -> None:
        self.modes = list(modes)
        self.period: Array = np.where(target.wraps, target.period, np.nan)
        group = np.arange(len(modes))
        for i, j in itertools.combinations(range(len(modes)), 2):
            if group[i] != group[j] and self._barrier(target, i, j) < BARRIER:
                group[group == group[j]] = group[i]
        self.group: NDArray[np.int64] = np.unique(group, return_inverse=True)[1]

    def __len__(self) -> int:
        return int(self.group.max()) + 1

    def of(self, theta: Array) -> NDArray[np.int64]:
        """The region of each theta (n, n_param), int64 (n,)."""
        return np.asarray(self.group[nearest_mode(self.modes, theta, self.period)])

    def _barrier(self, target: Target, i: int, j: int) -> float:
        """By how much the log-posterior falls between two modes, from the lower one."""
        first, second = self.modes[i], self.modes[j]
        way = wrapped_difference(second.laplace.theta - first.laplace.theta, self.period)
        between = target.log_posterior(first.laplace.theta + _BETWEEN[:, None] * way)
        return min(first.log_posterior, second.log_posterior) - float(between.min())
