"""The climb from the best sample of a posterior to the maximum beside it."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from biro.errors import LikelihoodError
from biro.maximum.ascent import Ascent
from biro.maximum.climb import climb_on
from biro.posterior.posterior import Posterior
from biro.target.checked import Target
from biro.target.protocol import has_gradient

log = logging.getLogger(__name__)


def with_peak(target: Target, posterior: Posterior) -> Posterior:
    """The posterior with the maximum beside its best sample as `peak`.

    The best of some thousand samples lies n/2 below the maximum in ln L, give or take, for n parameters. A
    likelihood without gradients, and a climb that gains nothing, leave the posterior as it is.

    Parameters
    ----------
    target : Target
    posterior : Posterior
    """
    likelihood = target.likelihood
    if posterior.peak is not None or not has_gradient(likelihood):
        return posterior
    start, weight = posterior.best_sample, posterior.weight
    variance = weight @ (posterior.samples - weight @ posterior.samples) ** 2
    curvature = np.diag(1.0 / np.maximum(variance, np.finfo(float).tiny))
    try:
        peak = climb_on(Ascent(likelihood), start, curvature)
    except LikelihoodError as error:
        log.warning("the best fit is the best sample, because no climb from there was possible: %s", error)
        return posterior
    before, after = target.log_posterior(np.stack([start, peak]))
    if not after > before:
        return posterior
    log.info("the maximum beside the best sample has a log-posterior that is higher by %.3f", after - before)
    at_peak = float(target.log_likelihood(peak[None])[0])
    return replace(posterior, peak=peak, peak_log_likelihood=at_peak)
