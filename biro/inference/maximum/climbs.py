"""The climbs from several starts as a whole: where they ended, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.inference.maximum.climb import N_KEPT, climb
from biro.inference.maximum.modes import Mode, distinct_modes
from biro.inference.maximum.newton import HIGHER, NewtonResult, newton
from biro.inference.maximum.objective import Objective
from biro.models.quantities.parameter import Column

Array = NDArray[np.float64]


class Climbs:
    """The ends of climbs, and what they have found.

    Attributes
    ----------
    ends : float64 (n_end, n_param)
    values : float64 (n_end,)
        Their log-posteriors.
    votes : int64 (n_end,)
        Climbs that each of them stands for.
    n_start : int
        Starts of all climbs.
    rest : NewtonResult
        The maximum next to the highest end.
    found : Modes
        That maximum, and others of similar evidence.

    Raises
    ------
    LikelihoodError
        No start has a finite posterior.
    """

    def __init__(self, objective: Objective, columns: Sequence[Column], starts: Array) -> None:
        self._ascent, self._columns = objective, columns
        self._refined: dict[bytes, NewtonResult] = {}
        self.n_start = len(starts)
        self.ends, self.values, self.votes = climb(objective, starts)
        if not len(self.ends):
            raise LikelihoodError(f"none of the {len(starts)} starts has a finite posterior")
        self.rest = newton(objective, self.ends[0])
        self._compare()

    @property
    def n_climb(self) -> int:
        """Climbs that the ends stand for."""
        return int(self.votes.sum())

    @property
    def disagree(self) -> bool:
        """Whether half of the climbs or more ended elsewhere."""
        return self.n_climb > 1 and 2 * self.found.n_agree <= self.n_climb

    @property
    def all_agree(self) -> bool:
        """Whether all climbs, as many as go on from many starts, ended at the highest maximum."""
        return self.found.n_agree == self.n_climb >= N_KEPT

    def add(self, starts: Array) -> float:
        """Climb from more starts; the part of these climbs that ended at no maximum known before.

        Of climbs that went on to their end, or stand for others: a climb that was given up, since others were
        higher or went on in its place, says nothing of a maximum.
        """
        before = self.found.modes
        ends, values, votes = climb(self._ascent, starts)
        self.n_start += len(starts)
        if len(ends) and values[0] > self.rest.log_posterior + HIGHER:
            self.rest = newton(self._ascent, ends[0])
        self.ends, self.values = np.concatenate([self.ends, ends]), np.concatenate([self.values, values])
        self.votes = np.concatenate([self.votes, votes])
        self._compare()
        new = [not self._is_among(end, value, before) for end, value in zip(ends, values, strict=True)]
        return float(votes[new].sum() / votes.sum()) if len(ends) else 1.0

    def _is_among(self, theta: Array, value: float, modes: Sequence[Mode]) -> bool:
        return any(mode.is_at(theta, value, self._ascent.period) for mode in modes)

    def _compare(self) -> None:
        order = np.argsort(-self.values, kind="stable")
        of = self.ends[order], self.values[order], self.votes[order]
        self.found = distinct_modes(self._ascent, self._columns, self.rest, *of, self._refined)
