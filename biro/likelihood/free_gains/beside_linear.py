"""The search for linear parameters of the sky and gains that fit best together, from one sky to the next.

`biro.likelihood.free_gains.joint_best` has the equations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.gain_search import FreeGains
from biro.likelihood.free_gains.joint_best import JointBest
from biro.likelihood.free_gains.linear_sky import LinearSky
from biro.likelihood.free_gains.visibilities_of_cells import VisibilitiesOfCells
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from rime_kernels.gains.arrays import Anchor
from rime_kernels.gains.maximum import COLD

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
_MOST_STARTS = 8
_ROOM = 0.1
"""By how much sums of data and responses may differ from those of the maximum where a search begins."""
_NULL = 1e-7
"""What roundings leave of the information on a change that gains take up, over that beside known gains."""
_N_ALTERNATE = 3
"""Times that gains and linear parameters are fitted in turn at each start."""


class _Anchor(NamedTuple):
    """A maximum that a search from the data alone has found, from which others begin.

    Attributes
    ----------
    z : float64 (n_linear,)
    gains : Anchor
    responses : complex128 (n_linear, n_vis)
    weight : float64 (n_vis,)
        With noise factors.
    """

    z: Array
    gains: Anchor
    responses: Complex
    weight: Array

    @classmethod
    def at(cls, best: JointBest) -> _Anchor:
        """The anchor of a maximum."""
        room = np.full(best.of.free.layout.n_group, _ROOM)
        return cls(best.z, Anchor(best.gains.x, *best.gains.sums, room), best.sky.responses, best.weight)

    def start(
        self, of: VisibilitiesOfCells, sky: LinearSky, factor: Array, priors: NormalPriors
    ) -> JointBest | None:
        """Where the search for a sky begins; None where its visibilities or responses are others."""
        square = np.sum(self.weight * np.abs(self.responses) ** 2, axis=1)
        moved = np.sum(self.weight * np.abs(sky.responses - self.responses) ** 2, axis=1)
        if not (moved <= _ROOM**2 * square).all():
            return None
        found = JointBest(of, sky, factor, priors, self.z, self.gains.x, climb=False)
        if (found.gains.near(self.gains) == COLD).any():
            return None
        found.gains.climb(warm=True)
        return found


class GainsBesideLinear(VisibilitiesOfCells):
    """The search for gains and linear parameters; see `VisibilitiesOfCells`."""

    def __init__(self, free: FreeGains) -> None:
        super().__init__(free)
        self._anchor: _Anchor | None = None

    def best(self, sky: LinearSky, factor: Array, priors: NormalPriors) -> JointBest | None:
        """What fits best, a function of what is given; None where no maximum is found.

        The search begins at a maximum of similar data, or where there is none, anew.
        """
        self.free.begin(self)
        if self.free.use(priors):
            self._anchor = None
        if self._anchor is not None:
            near = self._anchor.start(self, sky, factor, priors)
            found = None if near is None else near.climbed()
            if found is not None:
                return found
        found = self._start(sky, factor, priors).climbed()
        self._anchor = None if found is None else _Anchor.at(found)
        return found

    def absorbed(self, sky: LinearSky, factor: Array, priors: NormalPriors, z: Array) -> Array:
        """Changes of z that free gains can take up, where data are V at z, float64 (n_change, n_linear).

        Gains are at the means of their priors, which count; those of z do not.
        """
        middle = self.free.layout.groups.middle
        at = JointBest(self, sky, factor, priors, z, middle, climb=False)
        moves = at.expected_border.T.copy()
        at.gains.solve(moves, exact=False)
        known = at.corner - np.eye(z.size)
        scale = np.sqrt(np.diag(known))
        seen = np.flatnonzero(scale)
        by = 1.0 / scale[seen]
        left = (known - at.expected_border.T @ moves.T)[np.ix_(seen, seen)] * np.outer(by, by)
        values, vectors = np.linalg.eigh(left)
        free = values < _NULL
        found = np.zeros((np.count_nonzero(free), z.size))
        found[:, seen] = vectors[:, free].T * by
        return found

    def _start(self, sky: LinearSky, factor: Array, priors: NormalPriors) -> JointBest:
        """The best of some starts: priors' means, and responses that are alone as bright as the data.

        Where phases may be anything and the sky has no flux at the means, the latter say what phases are.
        """
        n, x = len(sky.responses), np.zeros(self.free.layout.n)
        w = sky.weight / factor[self.partition] ** 2
        square = np.sum(w * np.abs(sky.responses) ** 2, axis=1)
        scale = np.sqrt(np.sum(w * np.abs(self.data) ** 2) / np.where(square > 0.0, square, np.inf))
        brightest = np.argsort(-square)[:_MOST_STARTS]
        starts = [np.zeros(n), *(scale[k] * np.eye(n)[k] for k in brightest)]
        known = JointBest(self, sky, factor, priors, starts[0], self.free.layout.groups.middle, climb=False)
        found = [JointBest(self, sky, factor, priors, known.linear, x, cold=True)]
        found += [JointBest(self, sky, factor, priors, z, x, cold=True) for z in starts]
        for _ in range(_N_ALTERNATE):
            found = [self._alternated(one) for one in found if one.gains.converged] or found
        return min(found, key=lambda one: one.value if np.isfinite(one.value) else np.inf)

    def _alternated(self, one: JointBest) -> JointBest:
        """The gains that are best beside the linear parameters that are best beside the gains of a start."""
        self.free.work.has_factor[:] = False  # that of another start, whose sky may be far brighter
        return one.moved(one.linear, one.gains.x)
