"""Priors within which no two sources of a model can change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from biro.models import Order
from biro.source_finding.found_sources import FoundSource

Array = NDArray[np.float64]
KEYS = ("I", "east", "north")
APART = 4.0
"""Errors from a fitted value at which a limit cuts nothing off the posterior."""
LEAST_MASS = 1e-2
"""Fraction of the prior that orders must leave; of less, samplers and starts of fits find too little."""
N_DRAW = 4096
"""Draws from the prior that this fraction is counted on: LEAST_MASS is known to a sixth of itself."""


@dataclass(frozen=True, eq=False)
class PriorLimits:
    """Limits of the priors of fluxes and positions, and orders, which keep sources in their places.

    Attributes
    ----------
    low, high : float64 (n_source, 3), Jy and rad
        Of I, east and north.
    orders : tuple of Order
    exchangeable : tuple of (str, str)
        Names of the pairs of sources that a fit may exchange, because orders would leave too little of the
        prior.
    """

    low: Array
    high: Array
    orders: tuple[Order, ...]
    exchangeable: tuple[tuple[str, str], ...]


def keep_apart(sources: Sequence[FoundSource], reach: Array) -> PriorLimits:
    """Limit priors so that no source can take the place of another one that could take its place, too.

    The quantity that tells two sources apart best is limited. With the error e of the difference, both priors
    end in the middle if the sources are more than 8 e apart. Between 4 e and 8 e, they end 4 e from their
    fitted values, and a constraint orders the two where they still overlap. The pairs that are farthest apart
    come first, because their limits may keep a source from the place of a third one.

    Parameters
    ----------
    sources : sequence of FoundSource
    reach : float64 (n_source, 3), Jy and rad
        How far from the fitted I, east and north the priors reach at most.
    """
    value = np.array([(s.flux, s.east, s.north) for s in sources])
    error = np.array([(s.flux_err, s.position_err, s.position_err) for s in sources])
    low, high = value - reach, value + reach

    def reaches(i: int, j: int) -> bool:
        margin = APART * error[j]
        return bool(np.all((low[i] - margin < value[j]) & (value[j] < high[i] + margin)))

    pairs = []
    for i, j in combinations(range(len(sources)), 2):
        together = np.maximum(np.hypot(error[i], error[j]), 1e-300)
        apart = np.abs(value[i] - value[j]) / together
        key = int(np.argmax(apart))
        more, less = (i, j) if value[i, key] > value[j, key] else (j, i)
        pairs.append((float(apart[key]), float(together[key]), key, more, less))
    ordered = []
    for apart_by, together_err, key, more, less in sorted(pairs, key=lambda pair: -pair[0]):
        if apart_by <= APART or not (reaches(more, less) and reaches(less, more)):
            continue
        distance = max(0.5 * apart_by, APART) * together_err
        low[more, key] = max(low[more, key], value[more, key] - distance)
        high[less, key] = min(high[less, key], value[less, key] + distance)
        if apart_by < 2.0 * APART:
            ordered.append((key, more, less))
    orders, exchangeable = [], []
    for key, more, less in ordered:
        orders.append(Order([f"{sources[i].name}.{KEYS[key]}" for i in (more, less)]))
        exchangeable.append((sources[more].name, sources[less].name))
    if _mass(ordered, np.maximum(low, [0.0, -np.inf, -np.inf]), high) < LEAST_MASS:
        return PriorLimits(low, high, (), tuple(exchangeable))
    return PriorLimits(low, high, tuple(orders), ())


def _mass(ordered: Sequence[tuple[int, int, int]], low: Array, high: Array) -> float:
    """Fraction of uniform priors in which the quantity `key` of one source is above that of another."""
    if not ordered:
        return 1.0
    draws = low + (high - low) * np.random.default_rng(0).random((N_DRAW, *low.shape))
    return float(np.mean(np.all([draws[:, i, k] > draws[:, j, k] for k, i, j in ordered], axis=0)))
