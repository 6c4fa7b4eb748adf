"""The product of the priors of all parameters, with orders of parameters that have the same prior."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.models.quantities.frozen_prior import Frozen
from biro.models.quantities.parameter import Parameter
from biro.models.quantities.prior import Prior
from rime_kernels.arrays.slices import as_slice

Array = NDArray[np.float64]


class JointPrior:
    """The product of the priors, with chains of parameters in descending order.

    The k parameters of a chain have the same prior density p. All orders of them are equally likely, so
    the density where they descend is k! times the product. In the unit cube the largest of k uniform
    numbers is u^(1/k), the next is that times u'^(1/(k-1)), and so on.

    Parameters
    ----------
    parameters : sequence of Parameter
    chains : sequence of sequences of int
        Parameter indices, largest first.
    """

    def __init__(self, parameters: Sequence[Parameter], chains: Sequence[Sequence[int]]) -> None:
        self.groups = _stack([parameter.prior for parameter in parameters])
        self.chains = [np.array(chain) for chain in chains]
        self.log_orders = float(sum(special.gammaln(len(chain) + 1) for chain in chains))
        ordered = {index for chain in chains for index in chain}
        wrapped = [
            (i, parameter.prior.support[0], parameter.period)
            for i, parameter in enumerate(parameters)
            if parameter.period is not None and i not in ordered
        ]
        self.periodic = np.array([i for i, _, _ in wrapped], dtype=np.int64)
        self.start = np.array([start for _, start, _ in wrapped])
        self.period = np.array([period for _, _, period in wrapped], dtype=np.float64)
        self.end = self.start + self.period

    def wrap(self, theta: Array) -> Array:
        """theta with its periodic parameters brought into [low, low + period); others stay as they are."""
        if not self.periodic.size:
            return theta
        given = theta.take(self.periodic, axis=-1)
        inside = (given >= self.start) & (given < self.end)
        if inside.all():
            return theta
        *row, place = np.nonzero(~inside)
        start = self.start[place]
        moved = start + np.mod(given[(*row, place)] - start, self.period[place])
        wrapped = theta.copy()
        # np.mod of a tiny negative number is the period itself.
        wrapped[(*row, self.periodic[place])] = np.where(moved >= self.end[place], start, moved)
        return wrapped

    def transform(self, unit_cube: Array) -> Array:
        """Map points of the unit cube, float64 (..., n_param), to theta of the same shape."""
        return self.transform_at(unit_cube).theta

    def transform_at(self, unit_cube: Array) -> PriorTransformAt:
        """The map at points of the unit cube, float64 (..., n_param), with its derivatives."""
        ordered = unit_cube
        if self.chains:
            ordered = unit_cube.copy()
        for chain in self.chains:
            ordered[..., chain] = np.cumprod(unit_cube[..., chain] ** _roots(chain), axis=-1)
        theta = np.empty(ordered.shape)
        for prior, columns in self.groups:
            theta[..., columns] = prior.transform(ordered[..., columns])
        return PriorTransformAt(self, unit_cube, ordered, theta)

    def log_density(self, theta: Array) -> Array:
        """Natural log of the density at wrapped theta (..., n_param): float64 (...); -inf outside."""
        total = np.full(theta.shape[:-1], self.log_orders)
        for prior, columns in self.groups:
            total += prior.log_density(theta[..., columns]).sum(axis=-1)
        for chain in self.chains:
            descending = (np.diff(theta[..., chain], axis=-1) < 0).all(axis=-1)
            total[~descending] = -np.inf
        return np.where(np.isnan(total), -np.inf, total)

    def log_slope(self, theta: Array) -> Array:
        """Derivatives of `log_density`, float64 (..., n_param); they mean nothing where it is -inf."""
        slope = np.empty(theta.shape)
        for prior, columns in self.groups:
            slope[..., columns] = prior.log_slope(theta[..., columns])
        return slope


class PriorTransformAt:
    """The map from the unit cube to theta at points u, float64 (..., n_param): `JointPrior.transform_at`.

    A parameter of cumulative probability v has dtheta/dv = 1/p(theta). v is u itself, except in a chain:
    there v of the j-th largest of k is u_1^(1/k) ... u_j^(1/(k-j+1)).

    Attributes
    ----------
    theta : float64 (..., n_param)
    """

    def __init__(self, prior: JointPrior, unit_cube: Array, ordered: Array, theta: Array) -> None:
        self._prior, self._unit, self._ordered, self.theta = prior, unit_cube, ordered, theta

    def push_forward(self, change: Array) -> Array:
        """Change of theta with a change of u, both float64 (..., n_param)."""
        moved = change.copy()
        for chain in self._prior.chains:
            of_log = _roots(chain) * change[..., chain] / self._unit[..., chain]
            moved[..., chain] = self._ordered[..., chain] * np.cumsum(of_log, axis=-1)
        with np.errstate(all="ignore"):
            return moved * self._slope

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to u from those with respect to theta, both float64 (..., n_param)."""
        with np.errstate(all="ignore"):
            found = slopes * self._slope
        for chain in self._prior.chains:
            of_log = self._ordered[..., chain] * found[..., chain]
            of_later = np.cumsum(of_log[..., ::-1], axis=-1)[..., ::-1]
            found[..., chain] = _roots(chain) * of_later / self._unit[..., chain]
        return found

    @cached_property
    def _slope(self) -> Array:
        """dtheta/dv, float64 (..., n_param); infinite at ends of the cube for priors without ends."""
        slope = np.empty(self.theta.shape)
        for prior, columns in self._prior.groups:
            slope[..., columns] = np.exp(-prior.log_density(self.theta[..., columns]))
        return slope


def _roots(chain: NDArray[np.int64]) -> Array:
    """1/k, 1/(k-1), ..., 1 for a chain of k parameters."""
    return np.asarray(1.0 / np.arange(len(chain), 0, -1))


def _stack(priors: Sequence[Prior]) -> list[tuple[Prior, slice | NDArray[np.int64]]]:
    """The priors of each family as one prior of arrays, with the columns of theta that it is for."""
    columns: dict[object, list[int]] = {}
    for i, prior in enumerate(priors):
        columns.setdefault(prior if isinstance(prior, Frozen) else type(prior), []).append(i)
    groups: list[tuple[Prior, slice | NDArray[np.int64]]] = []
    for found in columns.values():
        first = priors[found[0]]
        members = [priors[i] for i in found]
        where = as_slice(np.array(found))
        groups.append((first if isinstance(first, Frozen) else type(first).stack(members), where))
    return groups
