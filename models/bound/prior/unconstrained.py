"""Parameters without bounds, y: optimisers and samplers that follow gradients move in them.

A value x of theta is computed from a number z, which may be any real number:

    x between low and high    x = low + (high - low) / (1 + exp(-z))      (ln x for log-uniform, power-law)
    x above low               x = low + s exp(z)
    x below high              x = high - s exp(-z)
    x without limits          x = middle + s z
    x log-normal              x = median exp(sd z)
    x periodic                x = middle + period z / (2 pi); densities take x modulo the period

z is y itself, except in an order a > b > ... of parameters: z of the last one is its y, and z of each one
before lies ln(1 + exp(y)) above that of the next. The scale s and the middle are those of the prior, so that
a step of size 1 in y is a large step of every parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.models.quantities.parameter import Parameter
from biro.models.quantities.power_law_prior import PowerLaw
from biro.models.quantities.prior import LogNormal, LogUniform
from rime_kernels.arrays.slices import as_slice

Array = NDArray[np.float64]
# `Unconstrained.of_theta` keeps this part of a scale from a limit, or from the next parameter of an order.
_APART = 1e-12


class MappedValues(NamedTuple):
    """x(z), ln dx/dz, and the derivative of ln dx/dz."""

    x: Array
    log_slope: Array
    log_slope_slope: Array


def between(z: Array, low: Array, width: Array) -> MappedValues:
    """x = low + width / (1 + exp(-z)), dx/dz = width exp(-|z|) / (1 + exp(-|z|))^2."""
    away = np.abs(z)
    log_slope = np.log(width) - away - 2.0 * np.log1p(np.exp(-away))
    return MappedValues(low + width * special.expit(z), log_slope, -np.tanh(0.5 * z))


def log_between(z: Array, low: Array, width: Array) -> MappedValues:
    """ln x = ln low + width / (1 + exp(-z)), width = ln(high / low)."""
    log, log_slope, slope = between(z, np.log(low), width)
    return MappedValues(np.exp(log), log + log_slope, np.exp(log_slope) + slope)


def above(z: Array, low: Array, scale: Array) -> MappedValues:
    """x = low + scale exp(z)."""
    return MappedValues(low + scale * np.exp(z), np.log(scale) + z, np.ones_like(z))


def below(z: Array, high: Array, scale: Array) -> MappedValues:
    """x = high - scale exp(-z)."""
    return MappedValues(high - scale * np.exp(-z), np.log(scale) - z, -np.ones_like(z))


def line(z: Array, middle: Array, scale: Array) -> MappedValues:
    """x = middle + scale z."""
    return MappedValues(middle + scale * z, np.broadcast_to(np.log(scale), z.shape), np.zeros_like(z))


def log_line(z: Array, median: Array, sd: Array) -> MappedValues:
    """x = median exp(sd z)."""
    return MappedValues(median * np.exp(sd * z), np.log(median * sd) + sd * z, np.broadcast_to(sd, z.shape))


_Map = Callable[[Array, Array, Array], MappedValues]


def _part(x: Array, low: Array, width: Array) -> Array:
    return np.clip((x - low) / width, _APART, 1.0 - _APART)


# The inverse of each map: z of x, from the same two numbers.
_INVERSE: dict[_Map, Callable[[Array, Array, Array], Array]] = {
    between: lambda x, low, width: special.logit(_part(x, low, width)),
    log_between: lambda x, low, width: special.logit(_part(np.log(x), np.log(low), width)),
    above: lambda x, low, scale: np.log(np.maximum((x - low) / scale, _APART)),
    below: lambda x, high, scale: -np.log(np.maximum((high - x) / scale, _APART)),
    line: lambda x, middle, scale: (x - middle) / scale,
    log_line: lambda x, median, sd: np.log(np.maximum(x / median, _APART)) / sd,
}


def _moved_in(mapping: _Map, x: Array, spread: Array, first: Array, second: Array) -> Array:
    """x moved away from its limits, so that it lies `spread` from them at least.

    It is moved no further than to the middle between two limits, or to one scale from a single limit.
    """
    if mapping in (line, log_line):
        return x
    if mapping is above:
        return np.maximum(x, first + np.minimum(spread, second))
    if mapping is below:
        return np.minimum(x, first - np.minimum(spread, second))
    of_log = mapping is log_between
    low, high = first, first * np.exp(second) if of_log else first + second
    middle = first * np.exp(0.5 * second) if of_log else first + 0.5 * second
    return np.clip(x, np.minimum(low + spread, middle), np.maximum(high - spread, middle))


class TransformAt:
    """The change of parameters theta <-> y at some y, float64 (..., n_param): `Unconstrained.at`.

    Attributes
    ----------
    theta : float64 (..., n_param)
        Periodic parameters may lie outside their range.
    """

    def __init__(self, y: Array, mapped: MappedValues, chains: Sequence[NDArray[np.int64]]) -> None:
        self._y, self._mapped, self._chains = y, mapped, chains
        self.theta = mapped.x

    def log_jacobian(self) -> Array:
        """ln |d theta / d y|, float64 (...): added to a log density of theta it gives the one of y."""
        total = self._mapped.log_slope.sum(axis=-1)
        for chain in self._chains:
            total = total + special.log_expit(self._y[..., chain[:-1]]).sum(axis=-1)
        return np.asarray(total)

    def log_jacobian_slope(self) -> Array:
        """Derivatives of `log_jacobian` with respect to y, float64 (..., n_param)."""
        slope = self._ordered_back(self._mapped.log_slope_slope)
        for chain in self._chains:
            slope[..., chain[:-1]] += special.expit(-self._y[..., chain[:-1]])
        return slope

    def push_forward(self, change: Array) -> Array:
        """Change of theta with a change of y, both float64 (..., n_param): the adjoint of `pull_back`."""
        found = change.copy()
        for chain in self._chains:
            of_lift = special.expit(self._y[..., chain[:-1]]) * change[..., chain[:-1]]
            smallest_first = np.concatenate([change[..., chain[-1:]], of_lift[..., ::-1]], axis=-1)
            found[..., chain[::-1]] = np.cumsum(smallest_first, axis=-1)
        return found * np.exp(self._mapped.log_slope)

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to y from those with respect to theta, both float64 (..., n_param).

        Of one y, slopes may have more dimensions.
        """
        return self._ordered_back(slopes * np.exp(self._mapped.log_slope))

    def _ordered_back(self, slopes: Array) -> Array:
        """Derivatives with respect to y from those with respect to z.

        In a chain the y of a parameter raises its own z and those of all larger parameters.
        """
        found = slopes.copy()
        for chain in self._chains:
            above_it = np.cumsum(slopes[..., chain], axis=-1)
            found[..., chain[:-1]] = special.expit(self._y[..., chain[:-1]]) * above_it[..., :-1]
            found[..., chain[-1]] = above_it[..., -1]
        return found


class Unconstrained:
    """The change of parameters theta <-> y.

    Parameters
    ----------
    parameters : sequence of Parameter
    low, high : float64 (n_param,)
        Limits of each parameter in theta; they may be infinite.
    chains : sequence of int arrays
        Parameters of one prior that are in an order, largest first.
    periodic : int array
        Parameters that are taken modulo their period.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        low: Array,
        high: Array,
        chains: Sequence[NDArray[np.int64]],
        periodic: NDArray[np.int64],
    ) -> None:
        low, high = low.copy(), high.copy()
        for chain in chains:  # all parameters of a chain have the same map, so that x is ordered as z is
            low[chain], high[chain] = low[chain].min(), high[chain].max()
        self._chains = list(chains)
        turning = set(periodic.tolist())
        groups: dict[_Map, list[tuple[int, float, float]]] = {}
        for i, parameter in enumerate(parameters):
            mapping, first, second = _map_of(parameter, low[i], high[i], i in turning)
            groups.setdefault(mapping, []).append((i, first, second))
        self._groups = [
            (mapping, as_slice(np.array([i for i, _, _ in members])), np.array([m[1:] for m in members]).T)
            for mapping, members in groups.items()
        ]

    @property
    def ordered(self) -> NDArray[np.int64]:
        """The parameters that are in an order with others."""
        return np.concatenate([np.zeros(0, np.int64), *self._chains])

    def theta(self, y: Array) -> Array:
        """theta of y, both float64 (..., n_param); periodic parameters may lie outside their range."""
        return self._mapped(y).x

    def at(self, y: Array) -> TransformAt:
        """The change at y, float64 (..., n_param)."""
        return TransformAt(y, self._mapped(y), self._chains)

    def of_theta(self, theta: Array, spread: Array | None = None) -> Array:
        """y of theta, both float64 (..., n_param).

        A parameter at a limit, or out of its order, has no y: it is moved by a tiny part of its scale into
        the allowed range. With `spread` (..., n_param), in the units of theta, it is moved by that much,
        where there is room. At a limit dy/dtheta is infinite, so a parameter that is known to within
        `spread` would otherwise get a y far from all its likely values.
        """
        z = np.empty(theta.shape)
        for mapping, columns, numbers in self._groups:
            x = theta[..., columns]
            if spread is not None:
                x = _moved_in(mapping, x, spread[..., columns], *numbers)
            z[..., columns] = _INVERSE[mapping](x, *numbers)
        least: Array = np.full(theta.shape, _APART)
        if spread is not None and self._chains:
            of_z = np.empty(theta.shape)
            for mapping, columns, numbers in self._groups:
                of_z[..., columns] = np.exp(mapping(z[..., columns], *numbers).log_slope)
            least = np.clip(spread / of_z, _APART, 1.0)
        for chain in self._chains:
            apart = np.maximum(-np.diff(z[..., chain], axis=-1), least[..., chain[:-1]])
            z[..., chain[:-1]] = apart + np.log(-np.expm1(-apart))
        return z

    def _mapped(self, y: Array) -> MappedValues:
        z, found = self._ordered(y), MappedValues(*(np.empty(y.shape) for _ in range(3)))
        for mapping, columns, numbers in self._groups:
            for array, part in zip(found, mapping(z[..., columns], *numbers), strict=True):
                array[..., columns] = part
        return found

    def _ordered(self, y: Array) -> Array:
        """z of y."""
        if not self._chains:
            return y
        z = y.copy()
        for chain in self._chains:
            lifts = -special.log_expit(-y[..., chain[-2::-1]])
            z[..., chain[::-1]] = np.cumsum(np.concatenate([y[..., chain[-1:]], lifts], axis=-1), axis=-1)
        return z


def _map_of(parameter: Parameter, low: float, high: float, turns: bool) -> tuple[_Map, float, float]:
    """The map of one parameter, and the two numbers that the map takes."""
    if turns and parameter.period is not None:
        return line, float(np.mean(parameter.prior.support)), parameter.period / (2.0 * np.pi)
    if np.isfinite(low) and np.isfinite(high):
        if isinstance(parameter.prior, LogUniform | PowerLaw) and low > 0.0:
            return log_between, low, float(np.log(high / low))
        return between, low, high - low
    if isinstance(parameter.prior, LogNormal) and low == 0.0 and np.isinf(high):
        return log_line, float(parameter.prior.median), float(parameter.prior.sd)
    first, middle, last = (float(x) for x in parameter.prior.transform(np.array([0.16, 0.5, 0.84])))
    scale = 0.5 * (last - first)
    if np.isfinite(low):
        return above, low, scale
    if np.isfinite(high):
        return below, high, scale
    return line, middle, scale
