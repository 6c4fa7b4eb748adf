"""The mixture from which draws of the sampler "none" come: about all modes, with tails, and the prior.

q(theta) = c pi(theta) + (1 - c) sum_k p_k [(1 - a) N_k(theta) + a T_k(theta)], with p_k the part of the
evidence of mode k, N_k its normal approximation, T_k Student's t with `DOF` degrees of freedom about the same
place, twice as wide, and pi the prior. Without tails a skewed posterior would get weights without bound, and
with the prior in the mixture no weight exceeds the highest likelihood over c (defensive importance sampling:
Hesterberg 1995, Technometrics 37, 185; Owen & Zhou 2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.modes import Mode, shares
from biro.inference.maximum.objective import wrapped_difference
from biro.inference.target.checked import Target

Array = NDArray[np.float64]
DOF = 4.0
TAILS = 0.3
"""a: part of the draws about modes that come from Student's t."""
OF_PRIOR = 0.02
"""c, at least: part of the draws that come from the prior."""
OF_MORE = 0.8
"""Part of the draws that come from what is added to modes and prior, until the parts are fitted."""
_ROUNDS, _LEAST = 50, 0.02
"""Steps by which the parts are fitted, and what is left to the modes, at least."""


class MixtureComponent(Protocol):
    """A distribution of the mixture about a place theta, normal or (for finite dof) Student's t."""

    @property
    def theta(self) -> Array:
        """The place, float64 (n_param,)."""

    def draws(self, rng: np.random.Generator, n: int, dof: float) -> Array:
        """theta, float64 (n, n_param)."""

    def log_normalised(self, theta: Array, dof: float) -> Array:
        """ln of the density at theta (n, n_param), float64 (n,)."""


class MixtureTerm(NamedTuple):
    """A distribution with its degrees of freedom, and its part of all of them."""

    component: MixtureComponent
    dof: float
    part: float = 1.0


class Proposal:
    """The mixture.

    Parameters
    ----------
    modes : sequence of Mode
        None of them singular.
    period : float64 (n_param,)
        NaN where a parameter has none.
    tails : float
        a.
    prior : Target, optional
        Whose prior takes part; without one c is 0.
    more : sequence of MixtureTerm
        Distributions beside those about modes; until `fit` decides, `OF_MORE` of the draws come from them.
    """

    def __init__(
        self,
        modes: Sequence[Mode],
        period: Array,
        tails: float = TAILS,
        prior: Target | None = None,
        more: Sequence[MixtureTerm] = (),
    ) -> None:
        self._period, self._prior = period, prior
        part = np.ravel(shares(modes)[:, None] * np.array([1.0 - tails, tails]))
        self._components: list[tuple[MixtureComponent, float]] = [
            (mode.laplace, dof) for mode in modes for dof in (np.inf, DOF)
        ]
        self._n_of_modes = len(part)
        self._components += [(one.component, one.dof) for one in more]
        of_more = np.array([one.part for one in more])
        self._part = (
            part if not more else np.append((1.0 - OF_MORE) * part, OF_MORE * of_more / of_more.sum())
        )
        if prior is not None:
            self._part = np.append(self._part, OF_PRIOR * self._part.sum() / (1.0 - OF_PRIOR))
        self._part = self._part / self._part.sum()

    def fit(self, theta: Array) -> None:
        """Fit the parts of the mixture to draws of the posterior (n, n_param), by expectation maximisation.

        Half of what belongs to modes is shared out by Laplace's evidence of each, and half as fitted. A prior
        that explains less than `OF_PRIOR` of the draws is left out: single draws of it would scatter the mean
        of the weights.
        """
        each, first = np.exp(self._each(theta)), self._part
        fitted = first
        for _ in range(_ROUNDS):
            of = each * fitted[:, None]
            total = of.sum(axis=0)
            fitted = (of[:, total > 0.0] / total[total > 0.0]).sum(axis=1) / max((total > 0.0).sum(), 1)
        if self._prior is not None and fitted[-1] < OF_PRIOR:
            fitted[-1] = 0.0
        modes = slice(None, self._n_of_modes)
        of_modes = max(float(fitted[modes].sum()), _LEAST)
        fitted[modes] = 0.5 * (fitted[modes] + of_modes * first[modes] / first[modes].sum())
        self._part = fitted / fitted.sum()

    def draws(self, rng: np.random.Generator, n: int) -> Array:
        """theta, float64 (<= n, n_param), in no order; some of it may lie outside the prior.

        A draw that is more than half a period away from its mode is left out: a parameter that is hardly
        known counts within half a turn alone, as in `log_density`.
        """
        counts, drawn = rng.multinomial(n, self._part), []
        for (laplace, dof), count in zip(self._components, counts, strict=False):
            theta = laplace.draws(rng, int(count), dof)
            with np.errstate(invalid="ignore"):
                beyond = np.abs(theta - laplace.theta) > 0.5 * self._period
            drawn.append(theta[~beyond.any(axis=1)])
        if self._prior is not None:
            theta = self._prior.theta(rng.random((int(counts[-1]), self._prior.n_param)))
            drawn.append(theta[np.isfinite(theta).all(axis=1)])
        return rng.permutation(np.concatenate(drawn))

    def log_density(self, theta: Array) -> Array:
        """ln q (n,), normalised over all that can be drawn."""
        with np.errstate(divide="ignore"):
            value: Array = np.logaddexp.reduce(self._each(theta) + np.log(self._part)[:, None], axis=0)
        return value

    def _each(self, theta: Array) -> Array:
        """ln of the density of each component, (n_component, n)."""
        each = [
            laplace.log_normalised(
                laplace.theta + wrapped_difference(theta - laplace.theta, self._period), dof
            )
            for laplace, dof in self._components
        ]
        if self._prior is not None:
            each.append(self._prior.log_prior(theta) + self._prior.likelihood.log_constraint_mass)
        return np.array(each)
