"""What a sky with linear parameters gives to the integral over these and gains, and what comes back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.normal_priors import NormalPriors

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


class LinearSky(NamedTuple):
    """Visibilities V_0 + sum_k z_k T_k of all partitions, one after the other, in Jy, and what they weigh.

    Attributes
    ----------
    base : complex128 (n_vis,)
        V_0.
    responses : complex128 (n_linear, n_vis)
        T.
    weight : floating (n_vis,)
        W of the data, without noise factors; 0 where the weight that was stated is.
    """

    base: Complex
    responses: Complex
    weight: NDArray[np.floating]


class JointSlopes(NamedTuple):
    """ln of the integral over gains and linear parameters, and its derivatives.

    Attributes
    ----------
    log_volume : float
    by_vis : complex128 (n_vis,)
        L by which the integral changes with V, at a z that is held, as Re sum W conj(L) dV.
    by_responses : complex128 (n_linear, n_vis)
        The same of T.
    half : float64 (n_vis,)
        h, Jy^2: with the weight u of a visibility, by noise factors, the integral changes as ln u - u h.
    by_priors : NormalPriors
    """

    log_volume: float
    by_vis: Complex
    by_responses: Complex
    half: Array
    by_priors: NormalPriors
