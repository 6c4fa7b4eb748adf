"""The prior of a whole model with its constraints, and the range that they leave to each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.prior.checks import Check, log_mass
from biro.models.bound.prior.joint import JointPrior
from biro.models.bound.slots import ResolvedSlots

Array = NDArray[np.float64]


class ConstrainedPrior:
    """The product of the priors, set to zero where a constraint is broken, and normalised.

        ln p = sum of ln p_i - ln M where all checks hold, -inf elsewhere

    where M is the probability, under the product alone, that all checks hold.

    Parameters
    ----------
    resolved : ResolvedSlots
    checks : sequence of Check
        Constraints that the transform of the unit cube does not fulfil by itself.
    chains : sequence of sequences of int
        Orders that it does fulfil: indices of parameters, largest first.

    Attributes
    ----------
    joint : JointPrior
        The product of the priors, with the orders of `chains`.
    checks : tuple of Check
    log_mass, log_mass_error : float
        ln M, and its standard error; the error is 0 where M comes from formulas or quadratures.
    """

    def __init__(
        self, resolved: ResolvedSlots, checks: Sequence[Check], chains: Sequence[Sequence[int]]
    ) -> None:
        self.joint, self.checks = JointPrior(resolved.parameters, chains), tuple(checks)
        self._priors = [parameter.prior for parameter in resolved.parameters]
        self.log_mass, self.log_mass_error = log_mass(resolved, checks, chains, self.joint.transform)

    def allowed(self, wrapped: Array) -> NDArray[np.bool_]:
        """Whether all checks hold for wrapped theta (..., n_param), bool (...)."""
        shape = wrapped.shape[:-1]
        allowed = np.ones(shape, dtype=bool)
        if self.checks:
            flat = wrapped.reshape(-1, wrapped.shape[-1])
            for check in self.checks:
                allowed &= check.test(flat).reshape(shape)
        return allowed

    @cached_property
    def box(self) -> tuple[Array, Array]:
        """Smallest and largest value of each parameter that priors and bounds allow, float64 (n_param,) each.

        They are -inf and inf where there is no limit, and where a parameter is taken modulo its period.
        """
        low, high = np.array([prior.support for prior in self._priors]).reshape(-1, 2).T
        for check in self.checks:
            if (interval := check.interval()) is not None:
                i, least, most = interval
                low[i], high[i] = max(low[i], least), min(high[i], most)
        low[self.joint.periodic], high[self.joint.periodic] = -np.inf, np.inf
        return low, high
