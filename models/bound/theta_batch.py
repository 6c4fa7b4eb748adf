"""A batch of parameter vectors, with what is computed from them once and used in several places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.models.bound.assembly import SourceAssembly, SourceGradient
from biro.models.bound.per_partition import PerPartition
from biro.models.bound.prior.constrained import ConstrainedPrior
from rime_kernels.arrays import Sources
from rime_kernels.gradient import Gradient

Array = NDArray[np.float64]
T = TypeVar("T")


class CachedProperty(Generic[T]):
    """A `functools.cached_property` without its lock (before Python 3.12): a batch has one thread."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self._name = function, function.__name__
        update_wrapper(self, function)  # type: ignore[arg-type]  # for its docstring

    @overload
    def __get__(self, batch: None, owner: object) -> CachedProperty[T]: ...

    @overload
    def __get__(self, batch: object, owner: object) -> T: ...

    def __get__(self, batch: Any, owner: object) -> CachedProperty[T] | T:
        if batch is None:  # asked of the class, as `help` does
            return self
        found = batch.__dict__[self._name] = self._function(batch)
        return found


@dataclass(frozen=True, eq=False)
class BoundParts:
    """The parts of a bound model that a `ThetaBatch` uses.

    Attributes
    ----------
    prior : ConstrainedPrior
    assembly : SourceAssembly
        The sources of all partitions.
    noise_factor : PerPartition
    noise_dof : PerPartition or None
        None where noise is Gaussian.
    """

    prior: ConstrainedPrior
    assembly: SourceAssembly
    noise_factor: PerPartition
    noise_dof: PerPartition | None


class ThetaBatch:
    """A batch of parameter vectors; prior, constraints and noise are computed once, when first asked for.

    `BoundModel.at` makes it, and checks the shape of theta.

    Parameters
    ----------
    parts : BoundParts
    theta : float64 (n_batch, n_param)
        Each parameter in the unit of the model file.

    Attributes
    ----------
    theta : float64 (n_batch, n_param)
    """

    def __init__(self, parts: BoundParts, theta: Array) -> None:
        self.theta, self._parts = theta, parts

    def __len__(self) -> int:
        return len(self.theta)

    def rows(self, index: NDArray[np.int64]) -> ThetaBatch:
        """The batch of these rows, in ascending order without repetition; itself where these are all."""
        if len(index) == len(self.theta):
            return self
        batch = ThetaBatch(self._parts, self.theta[index])
        batch.wrapped = batch.theta if self.wrapped is self.theta else self.wrapped[index]
        batch.noise_factor = self.noise_factor[index]
        return batch

    @CachedProperty
    def wrapped(self) -> Array:
        """theta with periodic parameters (position angles) brought back into the range of their priors."""
        return self._parts.prior.joint.wrap(self.theta)

    @CachedProperty
    def allowed(self) -> NDArray[np.bool_]:
        """Whether the constraints outside the transform of the unit cube hold, bool (n_batch,)."""
        prior = self._parts.prior
        return prior.allowed(self.wrapped if prior.checks else self.theta)

    @CachedProperty
    def log_prior(self) -> Array:
        """Natural log of the normalised prior density, float64 (n_batch,); -inf where it is 0."""
        prior = self._parts.prior
        density = prior.joint.log_density(self.wrapped)
        return np.where(self.allowed, density - prior.log_mass, -np.inf) if prior.checks else density

    @CachedProperty
    def log_prior_slope(self) -> Array:
        """Derivatives of `log_prior` with respect to theta, (n_batch, n_param); NaN where that is -inf."""
        inside = np.isfinite(self.log_prior)
        return np.where(inside[..., None], self._parts.prior.joint.log_slope(self.wrapped), np.nan)

    @CachedProperty
    def noise_factor(self) -> Array:
        """What the stated noise of each partition is multiplied by, float64 (n_batch, n_partition)."""
        return self._parts.noise_factor(self.theta)

    @CachedProperty
    def noise_dof(self) -> Array | None:
        """Degrees of freedom of Student's t, float64 (n_batch, n_partition); None where noise is Gaussian."""
        dof = self._parts.noise_dof
        return None if dof is None else dof(self.theta)

    @CachedProperty
    def values(self) -> Array:
        """All numbers that the sources are made of, in SI units, float64 (n_batch, n_value)."""
        return self._parts.assembly.values(self.wrapped)

    def sources(self) -> Iterator[Sources]:
        """The sources of one partition after the other; see `BoundModel.sources_of_all`."""
        return self._parts.assembly.sources(self.values)

    def push_forward(self, change: Array) -> Iterator[Gradient]:
        """How `sources` change with theta, by changes (n_change, n_param); see `BoundModel.push_forward`."""
        return self._parts.assembly.push_forward(self.values, change)

    def pull_back(self, gradients: Iterable[SourceGradient], weight: ArrayLike = 1.0) -> Array:
        """Derivatives with respect to theta from those to `sources`; see `BoundModel.pull_back`."""
        weights, shape = (
            np.asarray(weight, dtype=np.float64),
            (len(self), self._parts.noise_factor.n_partition),
        )
        if weights.shape != shape:
            weights = np.broadcast_to(weights, shape)
        return self._parts.assembly.pull_back(self.values, gradients, weights)
