"""The sampler "none": the maximum of the posterior, and draws of the normal distribution about it."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from biro.errors import LikelihoodError
from biro.maximum.maximum import Maximum, maximise
from biro.maximum.protocol import differentiable
from biro.maximum.target import Target
from biro.posterior.posterior import Posterior
from biro.samplers.context import RunContext
from biro.samplers.options import MaximumOptions

log = logging.getLogger(__name__)

FILE = "maximum.json"
_BATCH = 256
_MAX_DRAWS = 200
"""Times as many draws as are wanted, at most: most of them may lie outside the prior."""


def run_normal_approximation(target: Target, options: MaximumOptions, context: RunContext) -> Posterior:
    """The maximum as the first sample, and the draws about it that prior and constraints allow.

    Of the draws, with weights posterior over normal distribution, come the evidence, by importance
    sampling, and "overlap", the effective part of them: 1 where the posterior is that normal distribution.

    Parameters
    ----------
    target : Target
    options : MaximumOptions
    context : RunContext
        `maximum.json` goes into its folder.

    Raises
    ------
    LikelihoodError
        The data do not tell parameters apart; or hardly a draw lies within the prior.
    RunInterrupted
        `stop` was set.
    """
    provenance = context.provenance
    maximum = _maximum(target, options, context)
    if context.folder is not None:
        path = context.folder / FILE
        try:
            maximum.save(path)
        except OSError as error:  # the posterior says the same, and the maximum can be found again
            log.warning("%s cannot be written (%s); the run goes on", path, error.strerror)
    if maximum.unidentified:
        raise LikelihoodError(
            f"these data do not know {'; nor '.join(maximum.unidentified)}: "
            "fix or tie a parameter, give it a narrower prior, or sample"
        )
    theta, log_posterior, log_prior, n_drawn = draws_within(
        target, maximum, options.n_sample, provenance.seed
    )
    if len(theta) < options.n_sample:
        raise LikelihoodError(
            f"only {len(theta)} of {n_drawn} draws about the maximum lie within the prior: sample it instead"
        )
    log_weight = log_posterior - maximum.log_posterior - maximum.laplace.log_density(theta)
    theta = target.wrapped(theta)
    weight = np.exp(log_weight - log_weight.max())
    mean = weight.sum() / n_drawn
    spread = np.sqrt(max(float((weight**2).sum() / n_drawn - mean**2), 0.0) / n_drawn) / mean
    mass, evidence = maximum.laplace.log_mass(maximum.log_posterior), maximum.log_evidence
    assert mass is not None
    assert evidence is not None
    n_sample = 1 + len(theta)
    return Posterior(
        columns=target.columns,
        samples=np.concatenate([maximum.best_fit[None], theta]),
        log_likelihood=np.concatenate([[maximum.log_likelihood], log_posterior - log_prior]),
        log_prior=np.concatenate([[maximum.log_prior], log_prior]),
        provenance=provenance,
        effective=np.full(target.n_param, float(n_sample)),
        log_evidence=float(mass + log_weight.max() + np.log(mean)),
        log_evidence_err=float(spread),
        diagnostics={
            "overlap": float(weight.sum() ** 2 / (weight**2).sum() / n_drawn),
            "log_evidence_laplace": evidence,
            "converged": float(maximum.converged),
            "left": maximum.left,
            "n_start": float(maximum.n_start),
            "n_end": float(maximum.n_end),
            "n_agree": float(maximum.n_agree),
            "searched": float(maximum.searched),
            "n_gradient": float(maximum.n_gradient),
        },
    )


def _maximum(target: Target, options: MaximumOptions, context: RunContext) -> Maximum:
    with tqdm(unit=" batches", disable=not context.progress, desc="looking for the maximum") as bar:

        def watch(best: float) -> None:
            bar.set_postfix_str(f"best log-posterior {best:.2f}", refresh=False)
            bar.update()
            if context.stop:
                context.stop.raise_interrupted("the same command begins again")

        likelihood = differentiable(target.likelihood, "the maximum")
        return maximise(likelihood, seed=context.provenance.seed, starts=options.starts, watch=watch)


def draws_within(
    target: Target, maximum: Maximum, n: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int]:
    """Draws of the normal distribution about a maximum that prior and constraints allow.

    Returns
    -------
    theta : float64 (n, n_param)
        Parameters that wrap may lie outside their range. Fewer where hardly any draw is allowed.
    log_posterior, log_prior : float64 (n,)
    n_drawn : int
        How many were drawn.
    """
    rng = np.random.default_rng([seed, 1])
    allowed: list[tuple[NDArray[np.float64], ...]] = []
    n_allowed = n_drawn = 0
    while n_allowed < n and n_drawn < _MAX_DRAWS * n:
        theta = maximum.laplace.draws(rng, min(_BATCH, n - n_allowed))
        n_drawn += len(theta)
        log_prior = target.log_prior(theta)
        # An angle that is hardly known counts within half a turn of the maximum.
        beyond = (np.abs(theta - maximum.best_fit) > 0.5 * target.period) & target.wraps
        inside = np.isfinite(log_prior) & ~beyond.any(axis=1)
        theta, log_prior = theta[inside], log_prior[inside]
        log_posterior = log_prior + target.log_likelihood(theta) if len(theta) else log_prior
        finite = np.isfinite(log_posterior)
        allowed.append((theta[finite], log_posterior[finite], log_prior[finite]))
        n_allowed += int(finite.sum())
    theta, log_posterior, log_prior = (np.concatenate(items) for items in zip(*allowed, strict=True))
    return theta, log_posterior, log_prior, n_drawn
