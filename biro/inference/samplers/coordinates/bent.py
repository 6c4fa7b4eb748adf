"""A distribution that follows a skewed, bent posterior: where the normal one about its maximum is no use.

Degrees of freedom that may be large, a faint flux or a factor of the noise have a long tail on one side, and
others follow them along an arc. In coordinates z of `biro.inference.samplers.coordinates.whitened`, turned so
that the first axes are those along the most skewed parameters,

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

from biro.inference.maximum.laplace import Laplace
from biro.inference.samplers.coordinates.whitened import Whitened
from biro.inference.target.protocol import DifferentiableLikelihood

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
        return cls(turned, _axes_along(turned, n_axis))

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


def _axes_along(density: Whitened, n_axis: int) -> list[_Axis]:
    """The ways of the highest density along the first axes, later ones following, and the density on them.

    All ways go on side by side, so that the likelihood has them in one batch.
    """
    n_param = density.frame.middle.size
    middle = float(density.value_and_gradient(np.zeros((1, n_param)))[0, 0])
    ways = [_Way(a, sign, [np.zeros(n_param)], [middle]) for a in range(n_axis) for sign in (-1.0, 1.0)]
    going = ways
    while going:
        z = np.array([way.ahead() for way in going])
        for _ in range(_N_STEP):
            slopes = density.value_and_gradient(z)[:, 1:]  # the first is the value
            for at, way, slope in zip(z, going, slopes, strict=True):
                later = slice(way.axis + 1, None)
                at[later] += _STEP * np.clip(np.nan_to_num(slope[later]), -_FAR, _FAR)
        values = density.value_and_gradient(z)[:, 0]
        going = [
            way for way, at, value in zip(going, z, values, strict=True) if way.goes_on(at, float(value))
        ]
    return [_axis_of(a, ways[2 * a], ways[2 * a + 1]) for a in range(n_axis)]


class _Way(NamedTuple):
    """From the middle outwards along one axis, later axes where the density is highest.

    Attributes
    ----------
    axis : int
    sign : float
    z : list of float64 (n_param,)
    value : list of float
        ln of the density.
    """

    axis: int
    sign: float
    z: list[Array]
    value: list[float]

    def ahead(self) -> Array:
        """Where the next node begins: as the way went on before."""
        z, a = self.z[-1].copy(), self.axis
        away = _NEAR + _WIDER * abs(z[a])
        if len(self.z) > 1:
            z += (self.z[-1] - self.z[-2]) * away / abs(self.z[-1][a] - self.z[-2][a])
        z[a] = self.z[-1][a] + self.sign * away
        return z

    def goes_on(self, z: Array, value: float) -> bool:
        """Take a node where its density is one; whether there is another beyond."""
        if not np.isfinite(value):
            return False
        self.z.append(z)
        self.value.append(value)
        return len(self.z) <= _MOST_NODES and value > max(self.value) - _LOW


def _axis_of(a: int, down: _Way, up: _Way) -> _Axis:
    """The axis with both ways along it."""
    z = np.array(down.z[:0:-1] + up.z)
    value = np.array(down.value[:0:-1] + up.value)
    node = z[:, a].copy()
    z[:, a] = 0.0
    part = np.arange(_N_CELL) / _N_CELL
    edge = np.append((node[:-1, None] + part * np.diff(node)[:, None]).ravel(), node[-1])
    value = np.maximum(value, value.max() - 2.0 * _LOW)
    return _Axis(node, z, edge, np.interp(0.5 * (edge[1:] + edge[:-1]), node, value))
