"""Evaluations of a likelihood counted, with those that are not a number: a few are borne, many end a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.formatting import first_few

Array = NDArray[np.float64]
NAN_FRACTION = 0.1
"""A run stops when more than this fraction of its evaluations is not a number ..."""
NAN_GRACE = 1000
"""... counted from this many evaluations on."""


class EvaluationCount:
    """How many parameter vectors were evaluated, and for how many of them ln L was not a number.

    Parameters
    ----------
    parameter_names : sequence of str
        In the order of theta, for the message.

    Attributes
    ----------
    n_call, n_nan : int
    """

    def __init__(self, parameter_names: Sequence[str]) -> None:
        self._names = parameter_names
        self.n_call = self.n_nan = 0

    def checked(self, theta: Array, value: Array) -> Array:
        """The values (n_batch,) of theta (n_batch, n_param), with -inf in place of NaN and +inf.

        Raises
        ------
        LikelihoodError
            More than a tenth of all evaluations so far, once there are 1000, were not a number.
        """
        usable = value < np.inf
        self.n_call += len(theta)
        if usable.all():
            return value
        self.n_nan += int((~usable).sum())
        if self.n_call >= NAN_GRACE and self.n_nan > NAN_FRACTION * self.n_call:
            first = theta[np.flatnonzero(~usable)[0]].tolist()
            words = first_few(f"{name} = {x:.6g}" for name, x in zip(self._names, first, strict=True))
            raise LikelihoodError(
                f"{self.n_nan} of {self.n_call} likelihood values are not a number, the last at {words}; "
                "narrow the prior that allows such parameters"
            )
        return np.where(usable, value, -np.inf)
