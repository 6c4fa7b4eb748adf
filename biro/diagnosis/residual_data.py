"""Residuals of one partition at one parameter vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.observation.partition import Partition


@dataclass(frozen=True, eq=False)
class ResidualData:
    """Data and model visibilities of one partition at one parameter vector.

    Attributes
    ----------
    partition : Partition
        The data, with the gains of the fit taken out. `partition.weight` is 1/sigma^2 of the noise that
        weights and model state, without the noise factor.
    model : complex (n_row, n_chan, n_corr), Jy
    factor : float
        Noise factor s of the fit (sigma -> s sigma).
    sources : float64 (n_source, 3) or None
        Direction cosines and FWHM (rad) of the sources of the model; None where it has images, or where
        they are not known.
    turn : complex128 (n_time, n_antenna, 2, 2) or None
        P of feeds whose rotation was taken out of the data, where gains of the two feeds do not commute with
        it (`biro.diagnosis.feed_frame.turns_of`).
    """

    partition: Partition
    model: NDArray[np.complexfloating]
    factor: float
    sources: NDArray[np.float64] | None = None
    turn: NDArray[np.complex128] | None = None

    @cached_property
    def scaled(self) -> NDArray[np.complex128]:
        """(D - V) sqrt(w), complex (n_row, n_chan, n_corr), without the noise factor; 0 where w is 0.

        Real and imaginary parts have variance s^2 where model and noise are right.
        """
        part = self.partition
        return np.asarray((part.vis - self.model) * np.sqrt(part.weight, dtype=np.float64), np.complex128)


def without_tails(data: ResidualData, dof: float) -> ResidualData:
    """Residuals of Student's t with the weights that a normal distribution would give the same slope with.

    ln p = -(nu + 2)/2 ln(1 + |r|^2 / (nu s^2)) of a complex residual r has the slope of
    -u |r|^2 / (2 s^2) with u = (nu + 2) / (nu + |r|^2 / s^2): the weights of expectation maximisation.

    Parameters
    ----------
    data : ResidualData
    dof : float
        nu.
    """
    ratio = np.abs(data.scaled / data.factor) ** 2
    weight = data.partition.weight * ((dof + 2.0) / (dof + ratio))
    part = replace(data.partition, weight=weight.astype(data.partition.weight.dtype))
    return replace(data, partition=part)
