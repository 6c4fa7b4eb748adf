"""What Laplace's approximation of the integral over gains leaves out of the evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from biro.inference.posterior.posterior import Posterior

Array = NDArray[np.float64]
_N_PLACE = 12
"""Samples of the posterior at which the integral is worked out again."""
_STREAM = 4
"""Which of a run's streams of random numbers these are chosen with."""
LEAST_SHARE = 0.05
"""Draws that count, of all, below which a correction is not known well enough to be applied."""


@runtime_checkable
class WithIntegral(Protocol):
    """A likelihood that integrates by Laplace's approximation, and measures how good that is."""

    def integral_correction(self, theta: Array) -> tuple[float, float, float] | None:
        """ln of the integral less its approximation, its error, and the share of draws that count."""


def with_integral(posterior: Posterior, likelihood: object, outer: Array | None = None) -> Posterior:
    """The posterior with an evidence that the integral over gains was corrected in.

    With c(theta) the error of Laplace's approximation in ln L, measured by importance sampling of the gains,

        ln Z = ln Z' + ln <exp c(theta)>

    over the posterior of theta, with the evidence Z' that was sampled. Errors of c, and its scatter from
    sample to sample, are added to that of ln Z in quadrature. Where too few draws count to know c, ln Z'
    stays as it is and all of c is taken for an error.

    Parameters
    ----------
    posterior : Posterior
    likelihood : Likelihood
        Or anything else: without `WithIntegral` the posterior stays as it is.
    outer : float64 (n, n_outer), optional
        Where c is measured, where the posterior has other parameters than the likelihood; else at samples.
    """
    if posterior.log_evidence is None or not isinstance(likelihood, WithIntegral):
        return posterior
    rng = np.random.default_rng([posterior.provenance.seed, _STREAM])
    if outer is None:
        weight = posterior.weight / posterior.weight.sum()
        outer = posterior.samples[rng.choice(len(posterior.samples), _N_PLACE, p=weight)]
    found = [one for one in map(likelihood.integral_correction, outer) if one is not None]
    if not found:
        return posterior
    value, error, share = np.array(found).T
    factor = np.exp(value - value.max())
    mean = float(value.max() + np.log(factor.mean()))
    # Draws of gains are the same at all places: their errors do not average out.
    own = float(np.sqrt(np.mean(error**2)))
    scatter = float(factor.std() / factor.mean() / np.sqrt(len(factor)))
    left = float(np.hypot(own, scatter))
    applied = 0.0 if share.min() < LEAST_SHARE else mean
    left = left if applied else float(np.hypot(left, mean))
    diagnostics = {"log_evidence_gains": applied, "log_evidence_gains_err": left}
    return replace(
        posterior,
        log_evidence=posterior.log_evidence + applied,
        log_evidence_err=float(np.hypot(posterior.log_evidence_err or 0.0, left)),
        diagnostics={**posterior.diagnostics, **diagnostics},
    )
