"""Normal priors of the coordinates of gains, and how they follow numbers that are fitted.

A coordinate x has the weight w = 1/s^2, and a link, x_k - middle - keep_k (x_(k-1) - middle), the weight
1/step_k^2, with the standard deviation s, keep and step of a process (`correlated`). Where s, or the
correlation time T on which keep and step depend, is a parameter, weights and keep follow it:

    dw/dp = -2 step^-3 dstep/dp
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.correlated import Chain, GaussMarkovSteps

Array = NDArray[np.float64]
Index = NDArray[np.int64]
NONE = -1
"""Stands for a number that is not fitted."""
_LEAST = 1e-9
"""Fitted numbers below this fraction of the median of their prior count as so much: weights stay finite."""


class NormalPriors(NamedTuple):
    """Normal priors by 1/variance, or derivatives with respect to them.

    Attributes
    ----------
    weight : float64 (n,)
        Of each coordinate; 0 for flat priors and what a link has the prior of.
    keep, link_weight : float64 (n_link,)
    """

    weight: Array
    keep: Array
    link_weight: Array

    @property
    def log_norm(self) -> float:
        """ln of the density where all are at their means."""
        weights = np.concatenate([self.weight[self.weight > 0.0], self.link_weight])
        return 0.5 * float(np.sum(np.log(weights / (2.0 * np.pi))))

    @property
    def log_norm_slopes(self) -> NormalPriors:
        """Derivatives of `log_norm`."""
        there = self.weight > 0.0
        by_weight = np.divide(0.5, self.weight, out=np.zeros(there.size), where=there)
        return NormalPriors(by_weight, np.zeros(self.keep.size), 0.5 / self.link_weight)


@dataclass(frozen=True, eq=False)
class ChainPrior:
    """The priors of one process among all.

    Attributes
    ----------
    chain : Chain
    own, link : int64
        Its coordinates that have a prior of their own, and its links.
    own_at, link_at : int64
        Where the steps of these are among those of the chain, (n_segment, n_antenna, 2) in a row.
    time, sd : int
        Which of the fitted numbers T and s are, or `NONE`.
    """

    chain: Chain
    own: Index
    own_at: Index
    link: Index
    link_at: Index
    time: int
    sd: int

    def fill(self, steps: GaussMarkovSteps, priors: NormalPriors) -> None:
        """Put the priors of these steps in their places."""
        step, keep = steps.step.reshape(-1), np.broadcast_to(steps.keep, steps.step.shape).reshape(-1)
        with np.errstate(divide="ignore", over="ignore"):
            priors.weight[self.own] = step[self.own_at] ** -2.0
            priors.link_weight[self.link] = step[self.link_at] ** -2.0
        priors.keep[self.link] = keep[self.link_at]

    def steps(self, numbers: Array) -> GaussMarkovSteps:
        """The steps where the fitted numbers have these values, SI units."""
        return self.chain.at(self._of(numbers, self.time), self._of(numbers, self.sd))

    def pull_back(self, numbers: Array, by: NormalPriors, into: Array) -> None:
        """Add derivatives with respect to the fitted numbers, SI units, from those to the priors."""
        steps = self.steps(numbers)
        step = steps.step.reshape(-1)
        at = np.concatenate([self.own_at, self.link_at])
        by_step = -2.0 * step[at] ** -3.0 * np.concatenate([by.weight[self.own], by.link_weight[self.link]])
        if self.sd != NONE:
            into[self.sd] += by_step @ step[at] / numbers[self.sd]
        if self.time != NONE:
            slopes = self.chain.steps_by_time(numbers[[self.time]], steps)
            into[self.time] += by_step @ slopes.step.reshape(-1)[at]
            into[self.time] += by.keep[self.link] @ slopes.keep.reshape(-1)[self.link_at]

    @staticmethod
    def _of(numbers: Array, place: int) -> Array | None:
        return None if place == NONE else numbers[[place]]


@dataclass(frozen=True, eq=False)
class FittedPriors:
    """Normal priors as functions of the numbers that are fitted.

    Attributes
    ----------
    names : tuple of str
        Of the parameters of these numbers: standard deviations and correlation times.
    scale : float64 (n_number,)
        SI units per unit of each.
    median : float64 (n_number,)
        Of the prior of each, in its unit.
    plain : float64 (n,)
        Weights of coordinates that belong to no process.
    chains : sequence of ChainPrior
    n_link : int
    """

    names: tuple[str, ...]
    scale: Array
    median: Array
    plain: Array
    chains: Sequence[ChainPrior]
    n_link: int

    @cached_property
    def known(self) -> NormalPriors:
        """The priors, fitted numbers being 1 in SI units: all of them where none is fitted."""
        priors = NormalPriors(self.plain.copy(), np.zeros(self.n_link), np.zeros(self.n_link))
        for one in self.chains:
            one.fill(one.chain.known, priors)
        return priors

    def at(self, numbers: Array) -> NormalPriors:
        """The priors where the parameters have these values (n_number,), each in its unit."""
        if not self.names:
            return self.known
        priors = NormalPriors(*(array.copy() for array in self.known))
        values = self._si(numbers)
        for one in self._fitted:
            one.fill(one.steps(values), priors)
        return priors

    def pull_back(self, numbers: Array, by: NormalPriors) -> Array:
        """Derivatives with respect to the parameters (n_number,), from those to the priors."""
        found, values = np.zeros(len(self.names)), self._si(numbers)
        for one in self._fitted:
            one.pull_back(values, by, found)
        return found * self.scale

    def _si(self, numbers: Array) -> Array:
        return np.asarray(np.maximum(numbers, _LEAST * self.median) * self.scale)

    @property
    def _fitted(self) -> list[ChainPrior]:
        return [one for one in self.chains if one.chain.is_fitted]
