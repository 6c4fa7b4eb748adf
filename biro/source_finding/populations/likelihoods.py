"""Likelihoods of states with any number of sources, by ordinary likelihoods of few sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.likelihood.likelihood import Likelihood
from biro.source_finding.populations.space import PopulationSpace, Quantity

Array = NDArray[np.float64]
_MOST_NUMBERS = 1 << 26
"""Sources times states in one call, at most."""


class SizedLikelihood:
    """A likelihood of so many sources, and where their quantities are in its theta.

    Parameters
    ----------
    likelihood : Likelihood
    prefix : str
        Name of the population; its sources are prefix1, prefix2, ...
    size : int
    """

    def __init__(self, likelihood: Likelihood, prefix: str, size: int) -> None:
        self.likelihood = likelihood
        own = [f"{prefix}{i + 1}." for i in range(size)]
        names = likelihood.parameter_names
        self.keys = [name.removeprefix(own[0]) for name in names if name.startswith(own[0])]
        where = {name: i for i, name in enumerate(names)}
        self.of_sources = np.array([[where[each + key] for key in self.keys] for each in own])
        is_own = np.zeros(len(names), bool)
        is_own[self.of_sources] = True
        self.of_shared = np.flatnonzero(~is_own)


class PopulationLikelihood:
    """ln L of rows of a `PopulationSpace`, and its derivatives.

    A likelihood of 2^n sources computes the states that have up to so many; the others of these have a flux
    of 0.

    Parameters
    ----------
    make : function of int
        The likelihood with so many sources of the population, one at least.
    prefix : str
        Name of the population.
    log_number : float64 (n_slot + 1,)
    kinds : sequence of str
        Sources of `make` are of the kind "gaussian" where it is among these.

    Attributes
    ----------
    space : PopulationSpace
    n_call : int
        States whose likelihood was computed.
    """

    def __init__(
        self, make: Callable[[int], Likelihood], prefix: str, log_number: Array, kinds: tuple[str, ...]
    ) -> None:
        self._make, self._prefix, self._sized = make, prefix, dict[int, SizedLikelihood]()
        one = self.sized(1)
        parameters = one.likelihood.parameters
        quantities = []
        for key, i in zip(one.keys, one.of_sources[0], strict=True):
            of = parameters[i]
            quantities.append(Quantity(key, of.unit or "", of.prior, of.period))
        shared = [parameters[i] for i in one.of_shared]
        self.space = PopulationSpace(log_number, kinds, quantities, shared)
        self.n_call = 0

    def sized(self, size: int) -> SizedLikelihood:
        """The likelihood of so many sources."""
        if size not in self._sized:
            self._sized[size] = SizedLikelihood(self._make(size), self._prefix, size)
        return self._sized[size]

    def heights(self, rows: Array) -> Array:
        """ln L of rows, float64 (n,); -inf where a constraint of the model forbids them."""
        height = np.full(len(rows), -np.inf)
        for size, some in self._by_size(rows):
            of = self.sized(size)
            theta = self.theta(rows[some], of)
            allowed = np.asarray(of.likelihood.allowed(theta), bool)
            if allowed.any():
                height[some[allowed]] = self._checked(of.likelihood.log_likelihood(theta[allowed]))
        self.n_call += len(rows)
        return height

    def slopes(self, rows: Array) -> tuple[Array, Array]:
        """ln L of rows (n,), and its derivatives (n, n_row); those of kinds and free slots are 0."""
        height, slope = np.full(len(rows), -np.inf), np.zeros(rows.shape)
        for size, some in self._by_size(rows):
            of = self.sized(size)
            theta = self.theta(rows[some], of)
            value, by_theta = of.likelihood.log_likelihood_and_gradient(theta)
            height[some] = self._checked(np.asarray(value))
            part = np.zeros((len(some), rows.shape[1]))
            self.space.shared_of(part)[:] = by_theta[:, of.of_shared]
            slots, filled = self.space.slots_of(part), self.space.slots_of(rows[some])[:, :size, 0] >= 0.0
            slots[:, :size, 1:] = np.where(filled[..., None], by_theta[:, of.of_sources], 0.0)
            slope[some] = part
        self.n_call += len(rows)
        return height, slope

    def theta(self, rows: Array, of: SizedLikelihood) -> Array:
        """Parameters of a sized likelihood for rows with not more sources, float64 (n, n_param)."""
        space, size = self.space, len(of.of_sources)
        theta = np.empty((len(rows), len(of.of_shared) + of.of_sources.size))
        theta[:, of.of_shared] = space.shared_of(rows)
        slots = space.slots_of(rows)[:, :size]
        # Free slots and points have a size of 0, free slots a flux of 0, too.
        values = slots[..., 1:]
        theta[:, of.of_sources.ravel()] = values.reshape(len(rows), -1)
        return theta

    def size_of(self, number: int) -> int:
        """Size of the likelihood that computes states with so many sources."""
        return int(min(1 << max(number - 1, 0).bit_length(), max(self.space.n_slot, 1)))

    def _by_size(self, rows: Array) -> list[tuple[int, NDArray[np.intp]]]:
        """Sizes of likelihoods, and the rows that each is for, not too many together."""
        number = self.space.number(rows)
        size = np.array([self.size_of(n) for n in number.tolist()])
        found = []
        for each in np.unique(size).tolist():
            some = np.flatnonzero(size == each)
            found += [(each, part) for part in np.array_split(some, -(-len(some) // _batch_of(each)))]
        return found

    def _checked(self, height: Array) -> Array:
        if not (height < np.inf).all():
            raise LikelihoodError("the log-likelihood is NaN or +inf; narrow the priors of the population")
        return height


def _batch_of(size: int) -> int:
    return max(1, min(512, _MOST_NUMBERS // size))
