"""A distribution that follows a skewed, bent posterior: where the normal one about its maximum is no use.

Degrees of freedom that may be large, a faint flux or a factor of the noise have a long tail on one side, and
others follow them along an arc. In coordinates z of `biro.samplers.coordinates.whitened`, turned so that
the first axes are those along the most skewed parameters,

    z = u + sum_a c_a(u_a)        c_a moves later axes alone, so that |dz / du| = 1

with c_a(t) the way of the highest density where u_a = t. On these axes u has the density along that way, as a
table, and is independent on all others, with a normal distribution or Student's t. A normal distribution of
two halves of different width (Geweke 1989, Econometrica 57, 1317) is the simplest of its kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.maximum.laplace import Laplace
from biro.samplers.coordinates.whitened import Whitened
from biro.target.protocol import DifferentiableLikelihood

Array = NDArray[np.float64]
_FROM, _MOST_AXES = 0.2, 4
"""Difference of ln p from a parabola two sigmas away, from which on an axis has a table; axes at most."""
_NEAR, _WIDER, _MOST_NODES = 0.25, 0.12, 40
"""Sigmas between the first nodes of a table, their growth with the distance, nodes on a side at most."""
_LOW = 15.0
"""A table ends where ln p has fallen by this much."""
_N_CELL = 30
"""Cells of a table between two nodes."""
_STEP, _N_STEP, _FAR = 0.5, 5, 2.0
"""Part of a Newton step, short enough for three times the curvature at the maximum; steps; sigmas of one."""
_FLATTER = 0.5
"""Power of the tables' densities beside Student's t."""


class _Axis(NamedTuple):
    """One axis.

    Attributes
    ----------
    node : float64 (n,)
        t.
    way : float64 (n, n_param)
        c there.
    edge : float64 (n_cell + 1,)
        Of the cells of the table.
    log_density : float64 (n_cell,)
        ln of the density in each, not normalised.
    """

    node: Array
    way: Array
    edge: Array
    log_density: Array

    def shift(self, t: Array) -> Array:
        """c(t), float64 (n, n_param)."""
        return np.column_stack([np.interp(t, self.node, column) for column in self.way.T])

    def cells(self, power: float) -> Array:
        """Probabilities of the cells, float64 (n_cell,)."""
        part = np.exp(power * (self.log_density - self.log_density.max())) * np.diff(self.edge)
        return np.asarray(part / part.sum())

    def draws(self, rng: np.random.Generator, n: int, power: float) -> Array:
        """t (n,)."""
        cell = rng.choice(len(self.edge) - 1, n, p=self.cells(power))
        return np.asarray(self.edge[cell] + rng.random(n) * np.diff(self.edge)[cell])

    def log_normalised(self, t: Array, power: float) -> Array:
        """ln of the density at t (n,)."""
        with np.errstate(divide="ignore"):
            of_cell = np.log(self.cells(power) / np.diff(self.edge))
        outside = (t < self.edge[0]) | (t >= self.edge[-1])
        cell = np.searchsorted(self.edge, t, side="right") - 1
        return np.asarray(np.where(outside, -np.inf, of_cell[np.clip(cell, 0, len(of_cell) - 1)]))


class Bent:
    """The distribution of theta about a mode.

    Parameters
    ----------
    density : Whitened
        Coordinates about the mode.
    axes : sequence of _Axis
        Of the first coordinates.

    Attributes
    ----------
    theta : float64 (n_param,)
        The place of u = 0.
    """

    def __init__(self, density: Whitened, axes: list[_Axis]) -> None:
        self._density, self._axes = density, axes
        self.theta: Array = density.theta(np.zeros((1, density.frame.middle.size)))[0]

    @classmethod
    def about(cls, likelihood: DifferentiableLikelihood, laplace: Laplace) -> Bent:
        """About the maximum of the density of z beside a maximum of the density of theta."""
        density = Whitened.about(likelihood, laplace, straight=False).refined()
        along = density.frame.factor / np.linalg.norm(density.frame.factor, axis=1, keepdims=True)
        ends = np.concatenate([np.zeros_like(along[:1]), 2.0 * along, -2.0 * along])
        value = density.value_and_gradient(ends)[:, 0]
        away = np.abs(value[1:] - value[0] + 2.0).reshape(2, -1).max(axis=0)
        order = np.argsort(-away, kind="stable")
        turned = density.with_factor(density.frame.factor @ np.linalg.qr(along[order].T)[0])
        n_axis = min(int((away > _FROM).sum()), _MOST_AXES)
        return cls(turned, [_axis_along(turned, a) for a in range(n_axis)])

    def draws(self, rng: np.random.Generator, n: int, dof: float) -> Array:
        """theta (n, n_param); periodic parameters may lie outside their range."""
        u = rng.standard_normal((n, self.theta.size))
        if np.isfinite(dof):
            u *= np.sqrt(dof / rng.chisquare(dof, n))[:, None]
        for a, axis in enumerate(self._axes):
            u[:, a] = axis.draws(rng, n, _power(dof))
        z = u.copy()
        for a, axis in enumerate(self._axes):
            z += axis.shift(u[:, a])  # which is 0 in the first a + 1
        return self._density.theta(z)

    def log_normalised(self, theta: Array, dof: float) -> Array:
        """ln of the density at theta (n, n_param) within the prior."""
        z = self._density.z(theta)
        u, n_axis = z.copy(), len(self._axes)
        value = -self._density.log_volume(z)
        for a, axis in enumerate(self._axes):
            u -= axis.shift(u[:, a])
            value += axis.log_normalised(u[:, a], _power(dof))
        n, squared = self.theta.size - n_axis, (u[:, n_axis:] ** 2).sum(axis=1)
        if np.isfinite(dof):
            value += special.gammaln(0.5 * (dof + n)) - special.gammaln(0.5 * dof)
            value -= 0.5 * n * np.log(np.pi * dof) + 0.5 * (dof + n) * np.log1p(squared / dof)
        else:
            value -= 0.5 * (squared + n * np.log(2.0 * np.pi))
        return value


def _power(dof: float) -> float:
    return _FLATTER if np.isfinite(dof) else 1.0


def _axis_along(density: Whitened, a: int) -> _Axis:
    """The way of the highest density along an axis, later axes following, and the density on it."""
    sides = [_side_along(density, a, sign) for sign in (-1.0, 1.0)]
    z, value = (np.concatenate([down[:0:-1], up]) for down, up in zip(*sides, strict=True))
    node = z[:, a].copy()
    z[:, a] = 0.0
    part = np.arange(_N_CELL) / _N_CELL
    edge = np.append((node[:-1, None] + part * np.diff(node)[:, None]).ravel(), node[-1])
    value = np.maximum(value, value.max() - 2.0 * _LOW)
    return _Axis(node, z, edge, np.interp(0.5 * (edge[1:] + edge[:-1]), node, value))


def _side_along(density: Whitened, a: int, sign: float) -> tuple[Array, Array]:
    """z (n, n_param) from the middle outwards, later axes where the density is highest, and ln of it (n,)."""
    n_param = density.frame.middle.size
    rows, values = [np.zeros(n_param)], [float(density.value_and_gradient(np.zeros((1, n_param)))[0, 0])]
    while len(rows) <= _MOST_NODES and values[-1] > max(values) - _LOW:
        z = rows[-1].copy()
        away = _NEAR + _WIDER * abs(z[a])
        if len(rows) > 1:  # as it went on before
            z += (rows[-1] - rows[-2]) * away / abs(rows[-1][a] - rows[-2][a])
        z[a] = rows[-1][a] + sign * away
        for _ in range(_N_STEP):
            slope = density.value_and_gradient(z[None])[0, a + 2 :]  # the first is the value
            z[a + 1 :] += _STEP * np.clip(np.nan_to_num(slope), -_FAR, _FAR)
        value = float(density.value_and_gradient(z[None])[0, 0])
        if not np.isfinite(value):
            break
        rows.append(z)
        values.append(value)
    return np.array(rows), np.array(values)
