"""A batch of parameter vectors, with what is computed from them once and used in several places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.models.bound.assembly import SourceAssembly
from biro.models.bound.per_partition import PerPartition
from biro.models.bound.prior.constrained import ConstrainedPrior
from rime_kernels.arrays import Sources
from rime_kernels.gradient import Gradient

Array = NDArray[np.float64]


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
    wrapped : float64 (n_batch, n_param)
        theta with periodic parameters (position angles) brought back into the range of their priors.
    """

    def __init__(self, parts: BoundParts, theta: Array) -> None:
        self.theta, self._parts = theta, parts
        self.wrapped = parts.prior.joint.wrap(theta)

    def __len__(self) -> int:
        return len(self.theta)

    def rows(self, index: NDArray[np.int64]) -> ThetaBatch:
        """The batch of these rows, in ascending order without repetition; itself where these are all."""
        if len(index) == len(self.theta):
            return self
        batch = ThetaBatch(self._parts, self.theta[index])
        batch.noise_factor = self.noise_factor[index]
        return batch

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Whether the constraints outside the transform of the unit cube hold, bool (n_batch,)."""
        prior = self._parts.prior
        return prior.allowed(self.wrapped if prior.checks else self.theta)

    @cached_property
    def log_prior(self) -> Array:
        """Natural log of the normalised prior density, float64 (n_batch,); -inf where it is 0."""
        prior = self._parts.prior
        density = prior.joint.log_density(self.wrapped)
        return np.where(self.allowed, density - prior.log_mass, -np.inf) if prior.checks else density

    @cached_property
    def log_prior_slope(self) -> Array:
        """Derivatives of `log_prior` with respect to theta, (n_batch, n_param); NaN where that is -inf."""
        inside = np.isfinite(self.log_prior)
        return np.where(inside[..., None], self._parts.prior.joint.log_slope(self.wrapped), np.nan)

    @cached_property
    def noise_factor(self) -> Array:
        """What the stated noise of each partition is multiplied by, float64 (n_batch, n_partition)."""
        return self._parts.noise_factor(self.theta)

    @cached_property
    def noise_dof(self) -> Array | None:
        """Degrees of freedom of Student's t, float64 (n_batch, n_partition); None where noise is Gaussian."""
        dof = self._parts.noise_dof
        return None if dof is None else dof(self.theta)

    @cached_property
    def values(self) -> Array:
        """All numbers that the sources are made of, in SI units, float64 (n_batch, n_value)."""
        return self._parts.assembly.values.of(self.wrapped)

    def sources(self) -> list[Sources]:
        """The sources of each partition; see `BoundModel.sources_of_all`."""
        return self._parts.assembly.sources(self.values)

    def push_forward(self, change: Array) -> Iterator[Gradient]:
        """How sources change with theta, one partition after the other: the derivative of `sources`.

        Parameters
        ----------
        change : float64 (n_change, n_param)
            Of theta, in its units; the batch has a vector for each change, or one for all.

        Returns
        -------
        iterator of Gradient
            Changes of the arrays of the sources, (n_change, ...), for `Rime.tangent`; noise does not count.
        """
        return self._parts.assembly.push_forward(self.values, change)

    def pull_back(self, gradients: Iterable[Gradient], weight: ArrayLike = 1.0) -> Array:
        """Derivatives with respect to theta from those to the sources: the adjoint of `sources`.

        Parameters
        ----------
        gradients : iterable of Gradient
            For each partition, the derivatives of a number with respect to its sources.
        weight : float or float64 (n_batch, n_partition)
            What the numbers of each partition are multiplied by before they are summed.

        Returns
        -------
        float64 (n_batch, n_param)
            Per unit of theta; a row with a NaN among what it is made of has NaN.
        """
        weights, shape = (
            np.asarray(weight, dtype=np.float64),
            (len(self), self._parts.noise_factor.n_partition),
        )
        if weights.shape != shape:
            weights = np.broadcast_to(weights, shape)
        return self._parts.assembly.pull_back(self.values, gradients, weights)
