"""The evidence from chains of all temperatures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def stepping_stone(beta: Array, log_likelihood: Array) -> tuple[float, Array]:
    """ln Z of the posterior relative to the prior, and the deviation of each draw, float64 (n, n_walker).

    ln Z = sum_k ln (<L^(d_k / 2)>_k / <L^(-d_k / 2)>_{k+1}), d_k = beta_{k+1} - beta_k, with averages over
    the draws of rungs k and k + 1: a bridge to the geometric mean of each two neighbours (Meng & Wong 1996,
    Statistica Sinica 6, 831), whose weights reach half as far as those of a stepping stone from one side (Xie
    et al. 2011, Syst. Biol. 60, 150). To first order the error of ln Z is the mean of the deviations
    sum_k (L^(d_k / 2) / <L^(d_k / 2)>_k - L^(-d_k / 2) / <L^(-d_k / 2)>_{k+1}), so that their scatter
    and autocorrelation time give the error of ln Z, correlations between the rungs included.

    Parameters
    ----------
    beta : float64 (n_rung,)
        Ascending, from 0 to 1.
    log_likelihood : float64 (n, n_rung, n_walker)
        Of all draws; -inf at the prior only. Where all of those are, ln Z is -inf and deviations are NaN.
    """
    half = 0.5 * np.diff(beta)
    log_z, deviation = 0.0, np.zeros((len(log_likelihood), log_likelihood.shape[2]))
    for k, step in enumerate(half):
        for sign, of in ((1.0, log_likelihood[:, k]), (-1.0, log_likelihood[:, k + 1])):
            power = sign * step * of
            mean = np.logaddexp.reduce(power, axis=None) - np.log(power.size)
            log_z += float(sign * mean)
            with np.errstate(invalid="ignore"):
                deviation += sign * np.exp(power - mean)
    return log_z, deviation
