"""What gains, alone or with linear parameters, take of the data on average over data.

Of the two real numbers of a sample of weight u, whose model is g V, an integral leaves 2 (1 - u h). With the
second derivatives H where data are what the model says, those of Gauss and Newton, h is the derivative of
ln det H / 2 by u: of gains alone, |g V|^2 (var(ln|g|) + var(arg g)) / 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.free_gains.best_gains import BestGains
from rime_kernels.gains.arrays import GainSums

Array = NDArray[np.float64]


def expected(best: BestGains) -> BestGains:
    """The same gains, for data that are what the model says."""
    found = BestGains(best.free, best.models, best.factor, best.x, best.priors)
    power, gain = best.sums.power, found.gain
    found.sums = GainSums(power, gain.real * power, gain.imag * power)
    return found


def share_of_cells(best: BestGains) -> Array:
    """h / |g V|^2 of each cell, float64 (n_cell,), of `expected` gains."""
    by_power, by_real, _ = best.held(np.empty((best.free.layout.n, 0))).slopes
    # Beside the determinant, the maximum has the derivatives -1/2 and 1.
    return np.asarray(0.5 - by_power - by_real)
