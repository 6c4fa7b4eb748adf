"""The space of states with any number of sources, and its prior.

A state is a row of numbers: those of the parameters that all states share (noise, fixed components), then one
slot for each source that there may be. A slot has the kind of its source, -1 where there is none, and its
quantities; the sources of a state are in its first slots. The order of sources means nothing: the prior and
the likelihood are equal for all orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.components.population import log_share
from biro.models.quantities.parameter import Parameter
from biro.models.quantities.prior import Prior

Array = NDArray[np.float64]
Index = NDArray[np.int64]
NO_SOURCE = -1.0
"""Kind of a slot without a source."""
SIZES = ("emaj", "emin", "fwhm")
"""Quantities that are 0 of a point."""
OF_EXTENDED = (*SIZES, "ratio", "pa")
"""Quantities that a point does not have."""


class Quantity(NamedTuple):
    """A quantity of each source of a population.

    Attributes
    ----------
    key : str
        "east", "I", "fwhm" and the like.
    unit : str
    prior : Prior
    period : float or None
    """

    key: str
    unit: str
    prior: Prior
    period: float | None


class PopulationSpace:
    """Rows of numbers for states of one population beside parameters that all states share.

    Parameters
    ----------
    log_number : float64 (n_slot + 1,)
        ln of the prior probability of each number of sources, 0 included; -inf where it is impossible.
    kinds : sequence of str
        "point" and "gaussian", or one of them.
    quantities : sequence of Quantity
        Of a source of the kind with most of them.
    shared : sequence of Parameter
        Parameters that all states have.

    Attributes
    ----------
    n_slot, n_shared, n_row : int
        Sources at most, shared parameters, and numbers in a row.
    n_quantity : int
    place : (int, int)
        Where east and north are among the quantities.
    flux : int
        Where I is.
    sizes, of_extended : int64
        Where sizes, and all quantities that a point does not have, are.
    """

    def __init__(
        self,
        log_number: Array,
        kinds: Sequence[str],
        quantities: Sequence[Quantity],
        shared: Sequence[Parameter],
    ) -> None:
        self.log_number, self.kinds = log_number, tuple(kinds)
        self.quantities, self.shared = tuple(quantities), tuple(shared)
        self.n_slot, self.n_shared, self.n_quantity = len(log_number) - 1, len(shared), len(quantities)
        self.n_row = self.n_shared + self.n_slot * (1 + self.n_quantity)
        keys = [quantity.key for quantity in quantities]
        self.place, self.flux = (keys.index("east"), keys.index("north")), keys.index("I")
        self.sizes = np.flatnonzero(np.isin(keys, SIZES))
        self.of_extended = np.flatnonzero(np.isin(keys, OF_EXTENDED))
        has = np.ones((len(kinds), self.n_quantity), bool)
        has[[kind == "point" for kind in kinds]] &= ~np.isin(keys, OF_EXTENDED)
        self.has = has
        """Whether a source of each kind has each quantity, bool (n_kind, n_quantity)."""
        self.period = np.array([_turn(q.prior, q.period) for q in quantities])
        self.period_of_shared = np.array([_turn(p.prior, p.period) for p in shared])

    def shared_of(self, rows: Array) -> Array:
        """Shared parameters of rows, a view: float64 (n, n_shared)."""
        return rows[:, : self.n_shared]

    def slots_of(self, rows: Array) -> Array:
        """Slots of rows, a view: float64 (n, n_slot, 1 + n_quantity); the first number is the kind."""
        return rows[:, self.n_shared :].reshape(len(rows), self.n_slot, 1 + self.n_quantity)

    def number(self, rows: Array) -> Index:
        """Sources of each row, int64 (n,)."""
        return np.asarray((self.slots_of(rows)[..., 0] != NO_SOURCE).sum(axis=1))

    def empty(self, n: int) -> Array:
        """Rows without sources, float64 (n, n_row); shared parameters are 0."""
        rows = np.zeros((n, self.n_row))
        self.slots_of(rows)[..., 0] = NO_SOURCE
        return rows

    def draw(self, rng: np.random.Generator, n: int) -> Array:
        """Draws of the prior, float64 (n, n_row)."""
        rows = self.empty(n)
        for i, parameter in enumerate(self.shared):
            rows[:, i] = parameter.prior.transform(rng.random(n))
        number = rng.choice(self.n_slot + 1, size=n, p=np.exp(self.log_number))
        slots = self.slots_of(rows)
        # Proportions of kinds have a flat prior: of each row they are a draw of it.
        share = rng.dirichlet(np.ones(len(self.kinds)), n)
        kind = (rng.random((n, self.n_slot, 1)) > np.cumsum(share, axis=1)[:, None, :-1]).sum(axis=2)
        exists = np.arange(self.n_slot) < number[:, None]
        slots[..., 0] = np.where(exists, kind, NO_SOURCE)
        slots[..., 1:][exists] = self.draw_sources(rng, kind[exists])
        return rows

    def draw_sources(self, rng: np.random.Generator, kind: Index) -> Array:
        """Draws of the prior of single sources of these kinds, float64 (n, n_quantity)."""
        values = np.empty((len(kind), self.n_quantity))
        for i, quantity in enumerate(self.quantities):
            values[:, i] = quantity.prior.transform(rng.random(len(kind)))
        return np.where(self.has[kind], values, 0.0)

    def log_density(self, values: Array, kind: Index, which: Sequence[int] | Index | None = None) -> Array:
        """ln of the prior density of single sources of known kinds, float64 (...).

        Parameters
        ----------
        values : float64 (..., n_quantity)
        kind : int64 (...)
        which : sequence of int, optional
            Only these quantities.
        """
        total = np.zeros(kind.shape)
        for i in range(self.n_quantity) if which is None else which:
            has = self.has[kind, i]
            total += np.where(has, self.quantities[i].prior.log_density(values[..., i]), 0.0)
        return total

    def log_slope(self, values: Array, kind: Index) -> Array:
        """Derivatives of `log_density` with respect to the values, float64 (..., n_quantity)."""
        slope = np.zeros(values.shape)
        for i, quantity in enumerate(self.quantities):
            slope[..., i] = np.where(self.has[kind, i], quantity.prior.log_slope(values[..., i]), 0.0)
        return slope

    def log_density_of_shared(self, shared: Array) -> Array:
        """ln of the prior density of the shared parameters (n, n_shared), float64 (n,)."""
        total = np.zeros(len(shared))
        for i, parameter in enumerate(self.shared):
            total += parameter.prior.log_density(shared[:, i])
        return total

    def counts(self, rows: Array) -> Index:
        """Sources of each kind, int64 (n, n_kind)."""
        kind = self.slots_of(rows)[..., 0]
        return np.stack([(kind == i).sum(axis=1) for i in range(len(self.kinds))], axis=1)

    def log_prior(self, rows: Array) -> Array:
        """ln of the prior density of rows, of sources in their order, float64 (n,)."""
        slots = self.slots_of(rows)
        exists = slots[..., 0] != NO_SOURCE
        total = self.log_number[exists.sum(axis=1)] + log_share(self.counts(rows))
        total = total + self.log_density_of_shared(self.shared_of(rows))
        of_source = np.zeros(exists.shape)
        of_source[exists] = self.log_density(slots[..., 1:][exists], slots[..., 0][exists].astype(np.int64))
        return np.asarray(total + of_source.sum(axis=1))

    def with_source(self, rows: Array, kind: Index, values: Array) -> Array:
        """Copies of rows with one more source each, in the first free slot."""
        rows = rows.copy()
        slots, number = self.slots_of(rows), self.number(rows)
        at = np.arange(len(rows))
        slots[at, number, 0] = kind
        slots[at, number, 1:] = values
        return rows

    def without_source(self, rows: Array, which: Index) -> Array:
        """Copies of rows without the source in this slot of each; the last source takes its slot."""
        rows = rows.copy()
        slots, at = self.slots_of(rows), np.arange(len(rows))
        last = self.number(rows) - 1
        slots[at, which] = slots[at, last]
        slots[at, last, 0], slots[at, last, 1:] = NO_SOURCE, 0.0
        return rows


def _turn(prior: Prior, period: float | None) -> float:
    """The period of a quantity whose prior spans just that, so that its two ends are one; else infinity."""
    low, high = prior.support
    return period if period is not None and abs(high - low - period) <= 1e-9 * period else np.inf
