"""What is done with the samples of a posterior: a climb to the maximum beside the best, weights of modes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.errors import LikelihoodError
from biro.inference.maximum.bridge import (
    ModeEvidence,
    effective_of_modes,
    error_of_largest,
    errors_by_drift,
    evidence_of_mode,
    nearest_mode,
)
from biro.inference.maximum.climb import climb_on
from biro.inference.maximum.climbs import Climbs
from biro.inference.maximum.modes import Mode, modes_to_explore
from biro.inference.maximum.objective import Objective
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.statistics import unwrap
from biro.inference.target.checked import Target
from biro.inference.target.protocol import has_gradient

log = logging.getLogger(__name__)
Array = NDArray[np.float64]

_N_CLIMB = 8
"""Climbs from samples taken at random; as many again begin at samples that lie far from all others."""
_FAR_AMONG = 500
"""Samples among which these are chosen."""
_ENOUGH = 30.0
"""Effective samples of a mode from which its evidence is estimated."""


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
        peak = climb_on(Objective(likelihood), start, curvature)
    except (LikelihoodError, np.linalg.LinAlgError) as error:
        log.warning("the best fit is the best sample, because the optimisation from there failed: %s", error)
        return posterior
    before, after = target.log_posterior(np.stack([start, peak]))
    if not after > before:
        return posterior
    log.info("the maximum near the best sample has a log-posterior higher by %.3f", after - before)
    at_peak = float(target.log_likelihood(peak[None])[0])
    return replace(posterior, peak=peak, peak_log_likelihood=at_peak)


def with_mode_weights(target: Target, posterior: Posterior, n_live: int) -> Posterior:
    """The samples of a nested sampler with the modes weighted by their evidence.

    Points of nested sampling begin at other points and stay in their mode, so that the part p of a mode
    drifts: by up to sqrt(p (1 - p) H / n_live) for the information H, several times what the number of
    samples says. Bridge sampling (`biro.inference.maximum.bridge`) tells the parts better, unless the modes
    are far from normal; then they stay as they are, and the effective numbers count that drift. A posterior
    with one mode, or without gradients, is left as it is.

    Parameters
    ----------
    target : Target
    posterior : Posterior
    n_live : int
        Live points.
    """
    modes, label = _modes_of_samples(target, posterior)
    if len(modes) < 2:
        return posterior
    weight = posterior.weight
    part = np.asarray(np.bincount(label, weight), dtype=np.float64)
    number = part**2 / np.bincount(label, weight**2)
    drift = errors_by_drift(part, posterior.diagnostics["information_nat"], n_live)
    evidence = [_evidence(target, posterior, modes, label == k, k, n) for k, n in enumerate(number)]
    known = np.array([of.error for of in evidence]) < drift
    parts, errors = part.copy(), drift
    if known.sum() > 1:
        heights = np.array([of.log_evidence for of in evidence])[known]
        parts[known] = part[known].sum() * np.exp(heights - np.logaddexp.reduce(heights))
        errors = np.where(known, [of.error for of in evidence], drift)
    weight *= (parts / part)[label]
    values = _unwrapped(target, posterior)
    within = [(values[label == k], weight[label == k] / parts[k]) for k in range(len(modes))]
    means = np.array([w @ x for x, w in within])
    variances = np.array([w @ (x - mean) ** 2 for (x, w), mean in zip(within, means, strict=True)])
    effective = effective_of_modes(parts, errors, means, variances, number[:, None])
    facts = {"n_mode": float(len(modes)), "share_error": error_of_largest(parts, errors)}
    with np.errstate(divide="ignore"):
        return replace(
            posterior,
            log_weight=np.log(weight),
            effective=np.minimum(effective, posterior.effective),
            diagnostics={**posterior.diagnostics, **facts},
        )


def with_modes(target: Target, posterior: Posterior) -> Posterior:
    """The posterior of chains that move between modes, with the number of modes and the error of their parts.

    The part p of a mode is that of the draws nearest to it. Its error is sqrt(p (1 - p) / n), with n the
    draws over the autocorrelation time of being there.
    """
    from biro.inference.samplers.ensemble import chain_tau

    modes, label = _modes_of_samples(target, posterior)
    if len(modes) < 2:
        return posterior
    part = np.bincount(label) / len(label)
    here = (label == np.argmax(part)).reshape(-1, posterior.n_walker, 1).astype(np.float64)
    effective = len(label) / float(chain_tau(here)[0])
    facts = {
        "n_mode": float(len(modes)),
        "share_error": float(np.sqrt(part.max() * (1.0 - part.max()) / effective)),
    }
    return replace(posterior, diagnostics={**posterior.diagnostics, **facts})


def _modes_of_samples(target: Target, posterior: Posterior) -> tuple[list[Mode], NDArray[np.int64]]:
    """Modes at which climbs from the samples end, and the nearest of these for each sample."""
    nowhere = np.zeros(len(posterior.samples), np.int64)
    if not has_gradient(target.likelihood):
        return [], nowhere
    try:
        found = Climbs(Objective(target.likelihood), target.columns, _spread(target, posterior)).found
    except (LikelihoodError, np.linalg.LinAlgError) as error:
        log.warning("biro could not test whether the posterior has several modes: %s", error)
        return [], nowhere
    modes = modes_to_explore(found.modes)
    label = nearest_mode(modes, posterior.samples, np.where(target.wraps, target.period, np.nan))
    # A mode without samples is nearest to none of them: the others keep theirs.
    seen, label = np.unique(label, return_inverse=True)
    return [modes[k] for k in seen], label


def _spread(target: Target, posterior: Posterior) -> Array:
    """Samples from which climbs begin: some at random, then those farthest from all before, in sigmas."""
    some = posterior.equal_weight(_FAR_AMONG)
    values = _unwrapped(target, some)
    scatter = values.std(axis=0)
    values = values / np.where(scatter > 0.0, scatter, 1.0)
    chosen = list(range(_N_CLIMB))
    distance = np.min([((values - values[i]) ** 2).sum(axis=1) for i in chosen], axis=0)
    for _ in range(_N_CLIMB):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((values - values[chosen[-1]]) ** 2).sum(axis=1))
    return np.asarray(some.samples[chosen])


def _unwrapped(target: Target, posterior: Posterior) -> Array:
    """The samples, with parameters that wrap within half a period of their mean direction."""
    values = posterior.samples.copy()
    for i in np.flatnonzero(target.wraps):
        values[:, i] = unwrap(values[:, i], posterior.weight, float(target.period[i]))
    return values


def _evidence(
    target: Target,
    posterior: Posterior,
    modes: Sequence[Mode],
    here: NDArray[np.bool_],
    i_mode: int,
    n_effective: float,
) -> ModeEvidence:
    """The evidence of a mode from the samples that are `here`; nothing is known from too few of them."""
    if n_effective < _ENOUGH:
        return ModeEvidence(-np.inf, np.inf)
    rng = np.random.default_rng([posterior.provenance.seed, 2, i_mode])
    part = np.where(here, posterior.weight, 0.0)
    drawn = rng.choice(len(part), round(n_effective), p=part / part.sum())
    height = (posterior.log_likelihood + posterior.log_prior)[drawn]
    return evidence_of_mode(target, modes, [i_mode], (posterior.samples[drawn], height), n_effective, rng)
