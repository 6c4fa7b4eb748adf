"""Several maxima of one posterior: which ends of climbs are the same place, and which are modes of their own.

Two places are the same where the normal approximation about one falls by less than `SAME` of the
log-posterior up to the other: heights alone do not tell, because distant maxima may be equally high.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.newton import ENOUGH, NewtonResult, newton
from biro.inference.maximum.objective import Objective, wrapped_difference
from biro.inference.maximum.segments.laplace import SegmentLaplace
from biro.models.quantities.parameter import Column

Array = NDArray[np.float64]
SAME = 0.5
"""Fall of the log-posterior, of one place about another, up to which they are the same place."""
LEAST = 1e-4
"""A maximum with less than this part of the evidence of the first is not listed."""
COUNTS = 0.01
"""A part of the evidence that is missed counts from here on."""
_LEFT = 0.003
"""Modes that together have less than this part of the evidence, by Laplace's method, may be left out."""
MOST, MOST_ORDERS = 128, 24
"""Modes that are listed at most, and orders of exchangeable sources of which modes are made."""
_DEEP = 20.0
"""Ends lower than the highest by more than this are not looked at: their evidence is no part of any."""
_MOST_PARAMETERS = 64
"""With more parameters than this the curvature about each end would cost more than the climbs."""


@dataclass(frozen=True, eq=False)
class Mode:
    """One maximum of a posterior.

    Attributes
    ----------
    laplace : Laplace or SegmentLaplace
        The normal approximation about it.
    log_posterior : float
        There, not normalised.
    """

    laplace: Laplace | SegmentLaplace
    log_posterior: float

    @property
    def log_evidence(self) -> float:
        """The part of ln Z that belongs to this mode, by Laplace's method."""
        value = self.laplace.log_evidence(self.log_posterior)
        return -math.inf if value is None else value

    def is_at(self, theta: Array, log_posterior: float, period: Array) -> bool:
        """Whether a place of this log-posterior is this mode: as high, and within its normal distribution."""
        if abs(log_posterior - self.log_posterior) > SAME:
            return False
        return self.laplace.fall(wrapped_difference(theta - self.laplace.theta, period)) < SAME


@dataclass(frozen=True, eq=False)
class Modes:
    """What climbs have found.

    Attributes
    ----------
    modes : tuple of Mode
        The highest maximum, then others of similar evidence, those with the most first.
    exchangeable : tuple of str
        Sources that can change places without any change of the posterior, a text for each group ("a, b").
    votes : tuple of int
        Climbs that ended at each of the modes. Those that an exchange of sources makes of the highest count
        for one.
    """

    modes: tuple[Mode, ...]
    exchangeable: tuple[str, ...]
    votes: tuple[int, ...]

    @property
    def n_agree(self) -> int:
        """Climbs that ended at the highest maximum, or where an exchange of sources puts it."""
        return self.votes[0]

    @property
    def found_once(self) -> float:
        """Part of the evidence in modes at which a single climb ended, by Laplace's method."""
        return float(shares(self.modes)[np.array(self.votes) == 1].sum())


def distinct_modes(
    objective: Objective,
    columns: Sequence[Column],
    first: NewtonResult,
    ends: Array,
    values: Array,
    votes: NDArray[np.int64],
    refined: dict[bytes, NewtonResult],
) -> Modes:
    """The modes at which climbs have ended, and those that exchanges of sources make of them.

    Parameters
    ----------
    objective : Objective
    columns : sequence of Column
        The parameters.
    first : NewtonResult
        About the highest end.
    ends : float64 (n_end, n_param)
    values : float64 (n_end,)
        Their log-posteriors.
    votes : int64 (n_end,)
        Climbs that each of them stands for.
    refined : dict
        Where Newton's method has gone from ends, by the bytes of these; what is found is added.
    """
    top, exchanged = with_exchanges(objective, [Mode(first.laplace, first.log_posterior)], columns)
    modes, count = list(top), dict[int, int]()
    for end, value, n in zip(ends, values, votes, strict=True):
        near = _mode_at(modes, end, value, objective.period)
        if near is None and value > first.log_posterior - _DEEP and end.size <= _MOST_PARAMETERS:
            if end.tobytes() not in refined:
                refined[end.tobytes()] = newton(objective, end, stay=True)
            near = _mode_of(objective, refined[end.tobytes()], modes)
        count[id(near)] = count.get(id(near), 0) + int(n)
    n_agree = sum(count.get(id(mode), 0) for mode in top)
    others, _ = with_exchanges(objective, modes[len(top) :], columns)
    listed = [*top, *_of_similar_evidence(top[0], others)][:MOST]
    counts = [n_agree if i < len(top) else count.get(id(mode), 0) for i, mode in enumerate(listed)]
    return Modes(tuple(listed), tuple(exchanged), tuple(counts))


def _mode_at(modes: Sequence[Mode], theta: Array, value: float, period: Array) -> Mode | None:
    return next((mode for mode in modes if mode.is_at(theta, value, period)), None)


def _mode_of(objective: Objective, rest: NewtonResult, modes: list[Mode]) -> Mode | None:
    """The mode that Newton's method has reached; a new one is added to `modes`."""
    known = _mode_at(modes, rest.laplace.theta, rest.log_posterior, objective.period)
    if known is not None:
        return known
    if rest.laplace.is_singular or rest.left > ENOUGH[objective.likelihood.precision]:
        return None
    modes.append(Mode(rest.laplace, rest.log_posterior))
    return modes[-1]


def _of_similar_evidence(first: Mode, others: Sequence[Mode]) -> list[Mode]:
    least = first.log_evidence + math.log(LEAST)
    order = sorted(others, key=lambda mode: -mode.log_evidence)
    return [mode for mode in order if mode.log_evidence > least]


def exchangeable(columns: Sequence[Column]) -> list[list[str]]:
    """Names of sources whose parameters have the same names, units and priors, in groups of two or more."""
    of_source: dict[str, list[tuple[str, str, str]]] = {}
    for column in columns:
        name, _, quantity = column.name.partition(".")
        of_source.setdefault(name, []).append((quantity, column.unit, column.prior))
    groups: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for name, quantities in of_source.items():
        groups.setdefault(tuple(sorted(quantities)), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def with_exchanges(
    objective: Objective, modes: Sequence[Mode], columns: Sequence[Column]
) -> tuple[list[Mode], list[str]]:
    """The modes, and those that come of them by exchanging sources that the model does not tell apart.

    Returns
    -------
    modes : list of Mode
        At most `MOST`.
    exchanged : list of str
        Names of the sources that can change places, each group as one text ("a, b").
    """
    names, found, told = [column.name for column in columns], list(modes), []
    for group in exchangeable(columns) if modes else []:
        orders = _orders(names, group)
        swapped = modes[0].laplace.theta[orders[0]]
        (value,), _ = objective.value_and_gradient(swapped[None])
        height = modes[0].log_posterior
        if not abs(value - height) <= ENOUGH[objective.likelihood.precision] + 1e-9 * abs(height):
            continue  # something that is fixed or tied tells them apart, or a constraint does
        told.append(", ".join(group))
        for mode, order in itertools.product(tuple(found), orders):
            assert isinstance(mode.laplace, Laplace)
            moved = Mode(mode.laplace.permuted(order), mode.log_posterior)
            if len(found) < MOST and _mode_at(found, moved.laplace.theta, value, objective.period) is None:
                found.append(moved)
    return found, told


def _orders(names: Sequence[str], group: Sequence[str]) -> list[NDArray[np.int64]]:
    """Indices into theta of all exchanges of the sources of a group, (n_param,) each."""
    index = {name: i for i, name in enumerate(names)}
    orders = []
    # An exchange of many sources has more orders than can be listed: pairs of neighbours come first.
    for permuted in itertools.islice(itertools.permutations(group), 1, MOST_ORDERS):
        to = dict(zip(group, permuted, strict=True))
        renamed = ((name.partition(".")[0], name) for name in names)
        orders.append(
            np.array([index[to.get(source, source) + name[len(source) :]] for source, name in renamed])
        )
    return orders


def shares(modes: Sequence[Mode]) -> Array:
    """Part of the evidence that each mode has, (n_mode,), by Laplace's method."""
    values = np.array([mode.log_evidence for mode in modes])
    if not np.isfinite(values[0]):
        values = np.where(np.arange(len(modes)) == 0, 0.0, -np.inf)
    weights: Array = np.exp(values - values.max())
    weights /= weights.sum()
    return weights


def modes_to_explore(modes: Sequence[Mode]) -> list[Mode]:
    """The modes of which a sampler has to have samples: the highest, and others until `_LEFT` is left."""
    if modes[0].laplace.is_singular:
        return [modes[0]]
    parts = shares(modes)
    order = np.argsort(-parts, kind="stable")
    left = 1.0 - np.cumsum(parts[order])
    needed = set(order[: int(np.argmax(left < _LEFT)) + 1].tolist()) | {0}
    return [mode for i, mode in enumerate(modes) if i in needed]


def exchange_warning(names: str) -> str:
    """What it means for errors that sources can change places."""
    return (
        f"EXCHANGEABLE SOURCES: {names} have the same priors, so the fit is the same if they are "
        "exchanged. To tell them apart, write a constraint on the order of their fluxes"
    )


def modes_warning(n_mode: int) -> str:
    """What it means that there are several maxima."""
    return f"SEVERAL MODES: the posterior has {n_mode} separate maxima of similar evidence"


def missed_warning(missed_mass: float) -> str:
    """What it means that a part of the posterior was not found."""
    return (
        f"MODES ARE MISSING: about {100 * missed_mass:.0f} % of the posterior lies in modes that were not "
        "explored. Errors and evidence may be far too small. Use --sampler dynesty"
    )
