"""Data, layout and priors of fitted gains, and what one search for them leaves to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.layout import gain_layout
from biro.models.bound.antenna_terms.log_gains import LogGains
from biro.models.bound.antenna_terms.normal_priors import NormalPriors
from biro.observation.partition import Partition
from rime_kernels import Rime, Sources
from rime_kernels.gains.arrays import Anchor, GainWork
from rime_kernels.gains.maximum import ROOM
from rime_kernels.gains.models import CellModel, HostModel, model_of, reweighted
from rime_kernels.resident_model import ResidentModel

Array = NDArray[np.float64]
Visibilities = Sequence[NDArray[np.complexfloating]]
Weights = Sequence[NDArray[np.floating]]


class GainProblem:
    """The fitted gains of a model bound to an observation.

    Parameters
    ----------
    partitions : sequence of Partition
    gains : LogGains
    left_out : float64 (n_partition,), optional
        Parts of chi-squared that no model changes, which the data of the partitions lack.

    Attributes
    ----------
    layout : GainLayout
    work : GainWork
        Scratch arrays, with the factors of the second derivatives that the latest search has left.
    anchor : Anchor
        A maximum that a search from the data alone has found, near which others begin.
    latest : object
        The maximum whose factors `work` has.

    Raises
    ------
    InputError
        An amplitude that neither its prior nor the data determine.
    """

    def __init__(
        self, partitions: Sequence[Partition], gains: LogGains, left_out: Array | None = None
    ) -> None:
        self.partitions, self.gains = tuple(partitions), gains
        self.left_out: Array = np.zeros(len(self.partitions)) if left_out is None else left_out
        self.layout = gain_layout(self.partitions, gains)
        self._anchor_priors = self._priors = gains.priors.known
        self._search: object = None
        self.latest: object = None
        self._square: float | None = None
        self.work = GainWork.of(self.layout.n, self.layout.n_stored, self.layout.n_group)
        n_cell = self.layout.cells.first.size - 1
        self.anchor = Anchor.of(self.layout.n, n_cell, self.layout.n_group)

    def models(
        self, rimes: Sequence[Rime], sources: Iterable[Sources], weights: Sequence[Array] | None = None
    ) -> list[CellModel]:
        """Visibilities of a batch of one, of each partition, where they are computed.

        With weights other than those of the partitions, if given: then they are on the host.
        """
        each = list(zip(rimes, sources, self.partitions, self.layout.partitions, strict=True))
        if weights is None:
            return [model_of(rime, of, part.vis, part.weight, own.rows) for rime, of, part, own in each]
        pairs = zip(each, weights, strict=True)
        return [
            reweighted(rime, of, part.vis, part.weight, own.rows, w) for (rime, of, part, own), w in pairs
        ]

    def of_visibilities(self, vis: Visibilities, weights: Weights | None = None) -> list[HostModel]:
        """Visibilities (n_row, n_chan, n_corr) of each partition, Jy, as models without gradients."""
        stated = [part.weight for part in self.partitions]
        each = zip(vis, self.partitions, weights or stated, self.layout.partitions, strict=True)
        return [HostModel(one, part.vis, weight, own.rows) for one, part, weight, own in each]

    def use(self, priors: NormalPriors) -> bool:
        """Search with these priors from here on: factors of others may be far from those of these.

        Returns
        -------
        bool
            Whether anchors may be far, too: where priors differ by more than sums of data may.
        """
        if priors is self._priors:
            return False
        self.work.has_factor[:] = False
        self._priors = priors
        before = self._anchor_priors
        pairs = zip(priors[:3], before[:3], strict=True)
        is_far = any((np.abs(new - old) > ROOM * np.abs(old)).any() for new, old in pairs)
        if is_far:
            self.anchor.room[:] = 0.0
            self._anchor_priors = priors
        return is_far

    def begin(self, search: object) -> None:
        """Let a search begin: factors that another kind of search has left are of other data."""
        if search is not self._search:
            self.work.has_factor[:] = False
            self._search = search

    def leave(self, of: object) -> None:
        """Forget factors that are not those of the latest maximum: they are of other data."""
        if of is not self.latest:
            self.work.has_factor[:] = False

    def square_of_data(self, model: ResidentModel) -> float:
        """sum w |D|^2 of the only partition."""
        if self._square is None:
            self._square = model.chi2(np.zeros(self.layout.cells.first.size - 1, np.complex128))
        return self._square

    @cached_property
    def returns(self) -> NDArray[np.bool_]:
        """Phases that are brought within half a turn of the means of their priors, (n,), by groups.

        Of a process the first one.
        """
        layout, own = self.layout, self.gains.is_angle & (self.gains.priors.known.weight > 0.0)
        found = np.asarray(layout.groups.circle == np.arange(layout.n), np.bool_)
        found[layout.place[own]] = True
        found[layout.groups.later] = False
        return found
