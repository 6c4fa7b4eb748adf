"""The climbs from several starts as a whole: where they ended, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.maximum.ascent import Ascent
from biro.maximum.climb import climb
from biro.maximum.modes import distinct_modes
from biro.maximum.newton import HIGHER, NewtonResult, newton
from biro.models.quantities.parameter import Column


class Climbs:
    """The ends of climbs, and what they have found.

    Attributes
    ----------
    ends : float64 (n_end, n_param)
    values : float64 (n_end,)
        Their log-posteriors.
    rest : NewtonResult
        The maximum next to the highest end.
    found : Modes
        That maximum, and others of similar evidence.

    Raises
    ------
    LikelihoodError
        No start has a finite posterior.
    """

    def __init__(self, ascent: Ascent, columns: Sequence[Column], starts: NDArray[np.float64]) -> None:
        self._ascent, self._columns = ascent, columns
        self._refined: dict[bytes, NewtonResult] = {}
        self.ends, self.values = climb(ascent, starts)
        self.rest = newton(ascent, self.ends[np.argmax(self.values)])
        if not np.isfinite(self.rest.log_posterior):
            raise LikelihoodError(f"none of the {len(starts)} starts has a finite posterior")
        self._compare()

    @property
    def disagree(self) -> bool:
        """Whether half of the climbs or more ended elsewhere."""
        return len(self.ends) > 1 and 2 * self.found.n_agree <= len(self.ends)

    def add(self, start: NDArray[np.float64]) -> bool:
        """Climb from one more start; whether that ended where no other did."""
        end, value = climb(self._ascent, start)
        new = not any(mode.is_at(end[0], value[0], self._ascent.period) for mode in self.found.modes)
        if value[0] > self.rest.log_posterior + HIGHER:
            self.rest = newton(self._ascent, end[0])
        self.ends, self.values = np.concatenate([self.ends, end]), np.concatenate([self.values, value])
        self._compare()
        return new

    def _compare(self) -> None:
        order = np.argsort(-self.values, kind="stable")
        ends, values = self.ends[order], self.values[order]
        self.found = distinct_modes(self._ascent, self._columns, self.rest, ends, values, self._refined)
