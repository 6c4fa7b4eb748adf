"""Conditions on theta, and the prior probability that they leave.

An order of parameters with one prior is no condition: the transform of the unit cube fulfils it by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.slots import Form, ResolvedSlots
from biro.models.components.constraint import Condition
from biro.models.errors import ModelError
from biro.models.quantities.prior import Prior

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Transform = Callable[[Array], Array]
_SEED = 20240229
_DRAWS_PER_CHUNK = 1 << 14
_MIN_DRAWS, _MAX_DRAWS = 1 << 18, 1 << 20
_WANTED_HITS = 1000


class Check(Protocol):
    """A condition on parameters, not built into the transform of the unit cube."""

    @property
    def text(self) -> str:
        """What the condition demands, in words, for messages of errors."""

    @property
    def parameters(self) -> frozenset[int]:
        """Indices of the parameters on which the condition depends."""

    def test(self, theta: Array) -> Mask:
        """Which rows of theta fulfil the condition.

        theta is float64 (n, n_param), with periodic parameters within their period; the answer is bool (n,).
        """

    def exact_mass(self) -> float | None:
        """Prior probability of the condition; None where no formula or quadrature gives it."""

    def interval(self) -> tuple[int, float, float] | None:
        """Index, lower and upper limit of a parameter, in the units of theta.

        None where the condition demands something else than that one parameter lies between two numbers.
        """


@dataclass(frozen=True, eq=False)
class Limit:
    """The condition low <= value <= high, in SI units."""

    resolved: ResolvedSlots
    form: Form
    low: float
    high: float
    text: str
    above_low: bool = False  # then low itself is not allowed

    @property
    def parameters(self) -> frozenset[int]:
        return self.form.parameters

    def test(self, theta: Array) -> Mask:
        column = self.form.of(theta)
        above = column > self.low if self.above_low else column >= self.low
        return np.asarray(above & (column <= self.high))

    def exact_mass(self) -> float | None:
        if (interval := self.interval()) is None:
            return None
        parameter, low, high = interval
        prior = self.resolved.parameters[parameter].prior
        # An infinite limit cuts nothing off, so 0 and 1 are exact there: no quantile has to be found.
        below = float(prior.cumulative(np.array(low))) if low > -math.inf else 0.0
        up_to = float(prior.cumulative(np.array(high))) if high < math.inf else 1.0
        return up_to - below

    def interval(self) -> tuple[int, float, float] | None:
        if len(self.form.terms) != 1:
            return None
        ((parameter, factor),) = self.form.terms
        ends = [(end - self.form.offset) / factor for end in (self.low, self.high)]
        return parameter, min(ends), max(ends)


@dataclass(frozen=True, eq=False)
class Greater:
    """The condition that one value is not below another."""

    resolved: ResolvedSlots
    large: Form
    small: Form
    text: str

    @property
    def parameters(self) -> frozenset[int]:
        return self.large.parameters | self.small.parameters

    def test(self, theta: Array) -> Mask:
        return np.asarray(self.large.of(theta) >= self.small.of(theta))

    def exact_mass(self) -> float | None:
        if self.large.is_multiple and self.small.is_multiple and len(self.parameters) == 2:
            return self._pair()
        return self._difference().exact_mass()

    def interval(self) -> tuple[int, float, float] | None:
        return self._difference().interval()

    def _difference(self) -> Limit:
        return Limit(self.resolved, self.large - self.small, 0.0, math.inf, self.text)

    def _pair(self) -> float:
        """P(X >= Y): the integral over u from 0 to 1 of F_Y(Q_X(u)).

        Q_X is the quantile of X, F_Y the cumulative probability of Y. The integral is split where Q_X(u)
        reaches an end of the range of Y, since F_Y has a bend there.
        """
        from scipy import integrate

        (x, x_scale), (y, y_scale) = (_prior(self.resolved, form) for form in (self.large, self.small))
        ends = np.array(y.support) * y_scale / x_scale
        breaks = np.unique(np.concatenate([[0.0, 1.0], x.cumulative(ends[np.isfinite(ends)])]))

        def below(u: float) -> float:
            value = x.transform(np.array([u])) * x_scale / y_scale
            return float(y.cumulative(value)[0])

        parts = [integrate.quad(below, a, b, epsabs=1e-11)[0] for a, b in pairwise(breaks)]
        return float(sum(parts))


@dataclass(frozen=True, eq=False)
class AboveHorizon:
    """The condition that every source lies above the horizon of every tangent plane."""

    finite: Callable[[Array], Mask]
    parameters: frozenset[int]
    text: str = "sources above the horizon"

    def test(self, theta: Array) -> Mask:
        return self.finite(theta)

    def exact_mass(self) -> float | None:
        return None

    def interval(self) -> tuple[int, float, float] | None:
        return None


@dataclass(frozen=True, eq=False)
class UserCondition:
    """A condition that the user wrote as a function of the named parameters."""

    condition: Condition
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        return repr(self.condition)

    @property
    def parameters(self) -> frozenset[int]:
        return frozenset(range(len(self.names)))

    def test(self, theta: Array) -> Mask:
        return self.condition({name: theta[:, i] for i, name in enumerate(self.names)}, theta.shape[0])

    def exact_mass(self) -> float | None:
        return None

    def interval(self) -> tuple[int, float, float] | None:
        return None


def _prior(resolved: ResolvedSlots, form: Form) -> tuple[Prior, float]:
    ((parameter, scale),) = form.terms
    return resolved.parameters[parameter].prior, scale


def split_orders(resolved: ResolvedSlots, orders: Sequence[Greater]) -> tuple[list[list[int]], list[Greater]]:
    """Orders as chains that the transform of the unit cube fulfils, and the orders that stay conditions.

    A chain is a list of parameters, largest first, that all have the same prior and of which each is
    ordered against the next: a > b > c. Orders that branch (a > b, a > c), and orders of parameters with
    different priors, stay conditions.
    """
    chains: list[list[int]] = []
    left: list[Greater] = []
    for group in _components([order.parameters for order in orders]):
        members = [orders[i] for i in group]
        chain = _chain(resolved, members)
        if chain:
            chains.append(chain)
        else:
            left += members
    return chains, left


def _chain(resolved: ResolvedSlots, orders: list[Greater]) -> list[int] | None:
    follows: dict[int, int] = {}
    preceded = set()
    for order in orders:
        if len(order.parameters) != 2 or not (order.large.is_multiple and order.small.is_multiple):
            return None
        ((large, large_scale),), ((small, small_scale),) = order.large.terms, order.small.terms
        if large_scale != small_scale or resolved.parameters[large].prior != resolved.parameters[small].prior:
            return None
        if follows.get(large, small) != small or (small in preceded and follows.get(large) != small):
            return None
        follows[large] = small
        preceded.add(small)
    first = set(follows) - preceded
    if len(first) != 1:
        return None
    chain = [first.pop()]
    while chain[-1] in follows:
        chain.append(follows[chain[-1]])
    return chain


def _components(sets: Sequence[frozenset[int]]) -> list[list[int]]:
    """Indices of the sets, in groups: two sets with a common member are in one group."""
    groups: list[tuple[set[int], list[int]]] = []
    for index, members in enumerate(sets):
        joined, indices = set(members), [index]
        for group in [g for g in groups if g[0] & joined]:
            groups.remove(group)
            joined |= group[0]
            indices = group[1] + indices
        groups.append((joined, indices))
    return [sorted(indices) for _, indices in groups]


def log_mass(
    resolved: ResolvedSlots, checks: Sequence[Check], chains: Sequence[Sequence[int]], transform: Transform
) -> tuple[float, float]:
    """Natural log of the prior probability that all checks hold, and its standard error.

    Checks that share no parameter are independent, and their probabilities are multiplied. A check that
    shares none with others has a formula or a quadrature in most cases; its error is stated as 0.
    Everything else is counted on draws from the prior, made with a fixed seed.

    Raises
    ------
    ModelError
        No parameters fulfil all checks.
    """
    total, variance = 0.0, 0.0
    ordered = [frozenset(chain) for chain in chains]
    sets = [check.parameters for check in checks] + ordered
    for group in _components(sets):
        members = [checks[i] for i in group if i < len(checks)]
        if not members:
            continue
        mass = members[0].exact_mass() if len(group) == 1 else None
        relative = 0.0
        if mass is None:
            mass, relative = _count(resolved, members, transform)
        if not mass > 0:
            demands = "; ".join(check.text for check in members)
            raise ModelError(f"no parameters within the priors fulfil these constraints: {demands}")
        total += math.log(min(mass, 1.0))
        variance += relative**2
    return total, math.sqrt(variance)


def _count(resolved: ResolvedSlots, checks: Sequence[Check], transform: Transform) -> tuple[float, float]:
    """Fraction of prior draws that pass all checks, and its relative error."""
    random = np.random.default_rng(_SEED)
    hits = draws = 0
    while draws < _MIN_DRAWS or (hits < _WANTED_HITS and draws < _MAX_DRAWS):
        theta = transform(random.random((_DRAWS_PER_CHUNK, len(resolved.parameters))))
        hits += int(np.logical_and.reduce([check.test(theta) for check in checks]).sum())
        draws += _DRAWS_PER_CHUNK
    mass = hits / draws
    return mass, math.sqrt((1 - mass) / hits) if hits else 0.0
