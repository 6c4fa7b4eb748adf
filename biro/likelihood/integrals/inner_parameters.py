"""Parameters that a likelihood integrates over, or maximises, itself: theta does not have them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.inference.target.protocol import InnerDraws
from biro.models import BoundModel

Array = NDArray[np.float64]


class InnerParameters:
    """The parameters of a model, parted into those of theta (outer) and others (inner).

    Parameters
    ----------
    full : BoundModel
        The model as it was written, with all parameters.
    outer : BoundModel
        The same with the inner quantities fixed, bound to the same data.

    Attributes
    ----------
    full : BoundModel
    of_outer, of_inner : int64
        Where the outer and the inner parameters are among those of `full`.
    """

    def __init__(self, full: BoundModel, outer: BoundModel) -> None:
        places = {name: i for i, name in enumerate(full.parameter_names)}
        self.full = full
        self.of_outer = np.array([places[name] for name in outer.parameter_names], np.int64)
        self.of_inner = np.setdiff1d(np.arange(full.n_param), self.of_outer)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inner parameters."""
        names = self.full.parameter_names
        return tuple(names[i] for i in self.of_inner)

    def theta(self, outer: Array, inner: Array) -> Array:
        """Vectors (n_batch, n_full), of outer (n_batch, n_outer) and inner (n_batch or 1, n_inner) ones."""
        found = np.empty((len(outer), self.full.n_param))
        found[:, self.of_outer], found[:, self.of_inner] = outer, inner
        return found

    def of_all(self, information: Array) -> Array:
        """Information on the outer parameters (n_outer, n_outer) in that on all, (n_full, n_full)."""
        found = np.zeros((self.full.n_param,) * 2)
        found[np.ix_(self.of_outer, self.of_outer)] = information
        return found

    def draws(self, outer: Array, drawn: Array, centre: Array, log_likelihood: Array) -> InnerDraws:
        """Draws of the inner parameters and their centres, both (n, n_inner), phases within half a turn."""
        parameters = [self.full.parameters[i] for i in self.of_inner]
        period = np.array([parameter.period or np.inf for parameter in parameters])
        away = drawn - centre
        with np.errstate(invalid="ignore"):
            away -= np.nan_to_num(np.where(np.isfinite(period), np.rint(away / period) * period, 0.0))
        is_inner = np.zeros(self.full.n_param, bool)
        is_inner[self.of_inner] = True
        theta = self.full.wrap(self.theta(outer, drawn))
        # A draw is as far from the centre as its sigma, on average of the squares.
        return InnerDraws(theta, log_likelihood, is_inner, drawn - away, np.abs(away))
