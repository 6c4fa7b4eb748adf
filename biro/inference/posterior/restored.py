"""Parameters that a likelihood integrates over, drawn back into its posterior; posteriors of these alone."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.target.checked import Target
from biro.inference.target.protocol import IntegratingLikelihood, SampledLikelihood, integrates

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
_STREAM = 3
"""Which of a run's streams of random numbers the draws here come from."""


def restored(posterior: Posterior, likelihood: SampledLikelihood) -> Posterior:
    """The posterior with a draw of what the likelihood integrates over beside each sample.

    Such a draw phi is normal about phi'(theta), and as good as independent but for the part
    p = var(phi') / var(phi) of its variance: of N samples of a chain, of which n are effective,
    N / (1 + p (N / n - 1)) are. Samples of theta, weights and evidence stay as they are.

    Parameters
    ----------
    posterior : Posterior
        Of the parameters of the likelihood.
    likelihood : SampledLikelihood

    Returns
    -------
    Posterior
        Of all parameters, in the order of the model; log_likelihood and log_prior are those of all together.
    """
    if not integrates(likelihood):
        return posterior
    log.info("drawing marginalised parameters for %d samples", len(posterior.samples))
    rng = np.random.default_rng([posterior.provenance.seed, _STREAM])
    draws, weight = likelihood.inner_draws(posterior.samples, rng), posterior.weight
    between = weight @ (draws.centre - weight @ draws.centre) ** 2
    part, is_inner = between / (between + weight @ draws.sd**2), draws.is_inner

    def of_all(outer: Array, least: float) -> Array:
        """Numbers of all parameters; of inner ones between `least` and the largest of the outer ones."""
        found = np.empty(is_inner.size)
        found[~is_inner], found[is_inner] = outer, least + part * (outer.max() - least)
        return found

    peak, at_peak = _peak(likelihood, posterior.best_fit)
    n = len(posterior.samples)
    share = np.maximum(n / np.maximum(posterior.effective, 1e-300), 1.0)
    # Weights are those of theta: draws do not make them more equal.
    least = 1.0 if posterior.log_weight is None else float(share.max())
    effective = n / of_all(share, least)
    effective[~is_inner] = posterior.effective
    return replace(
        posterior,
        columns=Target(likelihood.full).columns,
        samples=draws.theta,
        log_likelihood=draws.log_likelihood,
        log_prior=np.asarray(likelihood.full.log_prior(draws.theta)),
        effective=effective,
        tau=None if posterior.tau is None else of_all(posterior.tau, 1.0),
        peak=peak,
        peak_log_likelihood=at_peak,
    )


def exact(likelihood: IntegratingLikelihood, n_sample: int, provenance: Provenance) -> Posterior:
    """The posterior of a likelihood that integrates over all parameters: independent draws, and the evidence.

    Parameters
    ----------
    likelihood : IntegratingLikelihood
        Without parameters of its own.
    n_sample : int
    provenance : Provenance
    """
    rng, nothing = np.random.default_rng([provenance.seed, _STREAM]), np.zeros((1, 0))
    draws = likelihood.inner_draws(np.zeros((n_sample, 0)), rng)
    peak, at_peak = _peak(likelihood, nothing[0])
    return Posterior(
        columns=Target(likelihood.full).columns,
        samples=draws.theta,
        log_likelihood=draws.log_likelihood,
        log_prior=np.asarray(likelihood.full.log_prior(draws.theta)),
        provenance=provenance,
        effective=np.full(draws.is_inner.size, float(n_sample)),
        log_evidence=float(likelihood.log_likelihood(nothing)[0]),
        log_evidence_err=0.0,
        diagnostics={"converged": 1.0},
        peak=peak,
        peak_log_likelihood=at_peak,
    )


def _peak(likelihood: IntegratingLikelihood, outer: Array) -> tuple[Array, float]:
    """All parameters, the inner ones at their most probable values given the outer ones, and ln L there."""
    theta = likelihood.completed(outer[None])
    return theta[0], float(likelihood.full.log_likelihood(theta)[0])
