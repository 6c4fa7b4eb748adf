"""The prior of a whole model with its constraints, and the range that these leave to each parameter."""

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
    """The product of the priors, cut off where a constraint is broken, and normalised.

        ln p = sum of ln p_i - ln M where all checks hold, -inf elsewhere

    with M the mass of the product that the checks leave.

    Parameters
    ----------
    resolved : ResolvedSlots
    checks : sequence of Check
        Constraints that the transform of the unit cube does not build in.
    chains : sequence of sequences of int
        Orders that it does build in: indices of parameters, largest first.

    Attributes
    ----------
    joint : JointPrior
        The product, orders included.
    checks : tuple of Check
    log_mass, log_mass_error : float
        ln M, and its standard error; the error is 0 where the mass is a formula or a quadrature.
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
        """Smallest and largest value of each parameter, (n_param,) each: what priors and bounds leave.

        -inf and inf where there is no end, and where a parameter is taken modulo its period.
        """
        low, high = np.array([prior.support for prior in self._priors]).reshape(-1, 2).T
        for check in self.checks:
            if (interval := check.interval()) is not None:
                i, least, most = interval
                low[i], high[i] = max(low[i], least), min(high[i], most)
        low[self.joint.periodic], high[self.joint.periodic] = -np.inf, np.inf
        return low, high
