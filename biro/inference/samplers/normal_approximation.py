"""The sampler "none": the maximum of the posterior, and draws of the normal distribution about it."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.display.progress import SEARCH, bar, doing
from biro.errors import LikelihoodError
from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.maximum import Maximum, maximise
from biro.inference.maximum.modes import COUNTS, Mode, modes_to_explore, shares
from biro.inference.maximum.proposal import DOF, MixtureTerm, Proposal
from biro.inference.maximum.tempering.exploration import MOST_RATIO, covering_mixture, period_of
from biro.inference.maximum.tempering.particles import Particles
from biro.inference.posterior.pareto import TRUSTED, WITH_VARIANCE, smoothed
from biro.inference.posterior.posterior import Posterior
from biro.inference.samplers.context import RunContext
from biro.inference.samplers.coordinates.bent import Bent
from biro.inference.samplers.options import MaximumOptions
from biro.inference.target.checked import Target
from biro.inference.target.protocol import differentiable

log = logging.getLogger(__name__)
SAMPLING = "importance sampling"
"""What is done after the maximum is found."""
Array = NDArray[np.float64]

FILE = "maximum.json"
_BATCH = 256
_N_ADAPT, _GOOD, _N_KEPT = 3, 0.3, 512
"""Mixtures adapted to draws of the one before, efficiency from which none is, and draws that it is from."""
_MOST_BENT = 8
"""Modes at most about which coordinates without limits are set up."""
_MAX_DRAWS = 200
"""Times as many draws as are wanted, at most: most of them may lie outside the prior."""


def run_normal_approximation(target: Target, options: MaximumOptions, context: RunContext) -> Posterior:
    """Weighted draws about the maximum, and about other modes of similar evidence.

    They come from the normal distributions about all modes, with wider tails (`Proposal`), and are weighted
    by posterior over proposal; the tail of the weights is smoothed (`biro.inference.posterior.pareto`). The
    mean of the weights is the evidence. Where the shape of the tail, "pareto_k", is above 0.5, the weights
    have no variance: the error of the evidence then has the difference from Laplace's method added in
    quadrature. Above 0.7 there is no effective sample size.

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
    MaximumFile(context.folder).keep(maximum)
    if maximum.unidentified:
        at_zero = first_few(f"{name} is 0 within its error; " for name in maximum.without_effect)
        raise LikelihoodError(
            f"{at_zero}the data do not constrain {first_few(maximum.unidentified, ' or ')}. Fix or tie "
            "a parameter, give it a narrower prior, or use a sampler"
        )
    with doing(SAMPLING):
        draws = draws_within(target, maximum, options.n_sample, provenance.seed)
    if len(draws.theta) < options.n_sample:
        raise LikelihoodError(
            f"only {len(draws.theta)} of {draws.n_drawn} draws around the maximum lie within the prior; "
            "use a sampler instead"
        )
    if maximum.particles is None:
        with doing(SAMPLING):
            draws = _adapted(target, maximum, draws, options.n_sample, provenance.seed)
    log_weight = draws.log_posterior - draws.log_density
    covered = draws.missed_mass is not None and draws.missed_mass <= COUNTS and len(draws.log_ratio) > 0
    weights = smoothed(log_weight)
    k = weights.k
    if not covered:
        log_weight = weights.log_weight
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    mean, total = weight.sum() / draws.n_drawn, weight.sum()
    log_evidence = float(top + np.log(mean))
    square = float((weight**2).sum() / draws.n_drawn / mean**2)
    effective = total**2 / (weight**2).sum()
    if covered:  # the mean of p / q over draws of p is that of its square over draws of q
        ratio = np.minimum(draws.log_ratio - log_evidence, MOST_RATIO)
        square = max(square, float(np.exp(ratio).mean()))
        effective = min(effective, draws.n_drawn / square)
    spread = np.sqrt(max(square - 1.0, 0.0) / draws.n_drawn)
    if not covered and k > WITH_VARIANCE:  # their scatter says nothing about what the draws have missed
        spread = np.hypot(spread, log_evidence - maximum.log_evidence_laplace)
    if not covered and k > TRUSTED:
        effective = 0.0
    spread = np.hypot(spread, draws.missed_mass or 0.0)
    return Posterior(
        columns=target.columns,
        samples=target.wrapped(draws.theta),
        log_likelihood=draws.log_posterior - draws.log_prior,
        log_prior=draws.log_prior,
        log_weight=log_weight - top - np.log(total),
        provenance=provenance,
        effective=np.full(target.n_param, effective),
        log_evidence=log_evidence,
        log_evidence_err=float(spread),
        peak=maximum.best_fit,
        peak_log_likelihood=maximum.log_likelihood,
        diagnostics={
            "overlap": float(total**2 / (weight**2).sum() / draws.n_drawn),
            "pareto_k": float(np.clip(k, -10.0, 10.0)),
            "n_mode": float(len(maximum.modes)),
            "n_exchangeable": float(sum(names.count(",") + 1 for names in maximum.exchangeable)),
            "log_evidence_laplace": maximum.log_evidence_laplace,
            "converged": float(maximum.converged),
            "left": maximum.left,
            "n_start": float(maximum.n_start),
            "n_end": float(maximum.n_end),
            "n_agree": float(maximum.n_agree),
            "n_search": float(maximum.n_search),
            "n_gradient": float(maximum.n_gradient),
            **_missed(draws.missed_mass),
            "covered": float(covered),
        },
    )


def _adapted(
    target: Target, maximum: Maximum, draws: ApproximationDraws, n: int, seed: int
) -> ApproximationDraws:
    """Draws of a mixture that also covers what a first one left out; the first where that is good enough.

    The second one follows the bends of the posterior (`Bent`). After that the weighted draws of a mixture
    take the place of particles of a tempered run for the next one (adaptive importance sampling: Cappe et al.
    2004, J. Comp. Graph. Stat. 13, 907). They are no independent check of it.
    """
    bent: list[MixtureTerm] = []
    for attempt in range(1, _N_ADAPT + 1):
        weights = smoothed(draws.log_posterior - draws.log_density)
        weight = np.exp(weights.log_weight - weights.log_weight.max())
        if weights.k <= TRUSTED and weight.sum() ** 2 / (weight**2).sum() > _GOOD * len(weight):
            break
        particles = None
        if attempt == 1:
            bent = _bent(target, modes_to_explore(maximum.modes)[:_MOST_BENT])
        if attempt > 1 or not bent:
            particles = _as_particles(target, draws, weights.log_weight, [seed, 9, attempt])
        with_particles = replace(maximum, particles=particles)
        again = draws_within(target, with_particles, n, seed + attempt, more=bent)
        if len(again.theta) < n:
            break
        draws = again._replace(missed_mass=maximum.missed_mass, log_ratio=np.empty(0))
    return draws


def _as_particles(target: Target, draws: ApproximationDraws, log_weight: Array, seed: list[int]) -> Particles:
    """Weighted draws in place of particles of a tempered run, none of them twice."""
    weight = np.exp(log_weight - log_weight.max())
    n_kept = min(int(np.count_nonzero(weight > 0.0)), _N_KEPT)
    rng = np.random.default_rng(seed)
    kept = rng.choice(len(weight), n_kept, replace=False, p=weight / weight.sum())
    return Particles(
        theta=target.wrapped(draws.theta[kept]),
        log_likelihood=(draws.log_posterior - draws.log_prior)[kept],
        log_evidence=float(np.log(weight.sum() / draws.n_drawn) + log_weight.max()),
        temperature=1.0,
        early=np.empty((0, target.n_param)),
        n_call=0,
    )


def _bent(target: Target, modes: Sequence[Mode]) -> list[MixtureTerm]:
    """Distributions that follow the bends of the posterior about the highest modes."""
    likelihood = differentiable(target.likelihood, "the maximum")
    found = []
    for mode, part in zip(modes, shares(modes), strict=True):
        if isinstance(mode.laplace, Laplace):
            bent = Bent.about(likelihood, mode.laplace)
            found += [MixtureTerm(bent, dof, float(part)) for dof in (np.inf, DOF)]
    return found


def _missed(mass: float | None) -> dict[str, float]:
    return {} if mass is None else {"missed_mass": mass}


def _maximum(target: Target, options: MaximumOptions, context: RunContext) -> Maximum:
    with bar(SEARCH, "batches", show=context.progress) as shown:

        def watch(best: float) -> None:
            shown.set_postfix_str(f"best log-posterior {best:.2f}", refresh=False)
            shown.update()
            if context.stop:
                context.stop.raise_interrupted("the same command starts again")

        likelihood = differentiable(target.likelihood, "the maximum")
        starts = options.starts if context.start is None else context.starts
        return maximise(likelihood, seed=context.provenance.seed, starts=starts, watch=watch)


class MaximumFile:
    """The maximum from which a sampler begins, kept in its run directory, where there is one."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / FILE
        self._facts: dict[str, float] = {}

    def keep(self, maximum: Maximum) -> None:
        """Write the maximum; a run goes on where that is impossible."""
        self._facts = _facts(maximum.to_dict())
        if self._path is not None:
            try:
                maximum.save(self._path)
            except OSError as error:  # the posterior says the same, and the maximum can be found again
                log.warning("%s cannot be written (%s); the run continues", self._path, error.strerror)

    @property
    def facts(self) -> dict[str, float]:
        """For the diagnostics: `n_mode`, the number of modes, `missed_mass` and `n_tempered`, where known."""
        if not self._facts and self._path is not None:  # a run that was resumed
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                self._facts = _facts(json.loads(self._path.read_text()))
        return self._facts


def _facts(record: Mapping[str, Any]) -> dict[str, float]:
    """What diagnostics have of the record of a maximum."""
    known = {
        "n_mode": len(record["modes"]),
        **{name: record.get(name) for name in ("missed_mass", "n_tempered")},
    }
    return {name: float(value) for name, value in known.items() if value is not None}


class ApproximationDraws(NamedTuple):
    """Draws about the modes of a posterior that prior and constraints allow.

    Attributes
    ----------
    theta : float64 (n, n_param)
        Parameters that wrap may lie outside their range.
    log_posterior, log_prior, log_density : float64 (n,)
        The last is that of the distribution which they were drawn from.
    n_drawn : int
        How many were drawn, allowed or not.
    missed_mass : float or None
        Estimated part of the posterior that they do not cover; None where that was not looked at.
    log_ratio : float64 (n_particle,)
        ln of posterior over that distribution at draws of the posterior; empty where there are none.
    """

    theta: Array
    log_posterior: Array
    log_prior: Array
    log_density: Array
    n_drawn: int
    missed_mass: float | None
    log_ratio: Array


def draws_within(
    target: Target,
    maximum: Maximum,
    n: int,
    seed: int,
    *,
    tails: bool = True,
    more: Sequence[MixtureTerm] = (),
) -> ApproximationDraws:
    """Draws of `Proposal` about the modes of a maximum; fewer than n where hardly any is allowed.

    Without `tails` they come from the normal distributions alone; `more` are further components.
    """
    rng = np.random.default_rng([seed, 1])
    if tails:
        proposal, missed, log_ratio = covering_mixture(target, maximum.modes, maximum.particles, seed, more)
    else:
        proposal, missed = Proposal(maximum.modes, period_of(target), tails=0.0), None
        log_ratio = np.empty(0)
    allowed: list[tuple[Array, ...]] = []
    n_allowed = n_drawn = 0
    while n_allowed < n and n_drawn < _MAX_DRAWS * n:
        n_batch = min(_BATCH, n - n_allowed)
        theta = proposal.draws(rng, n_batch)
        n_drawn += n_batch
        log_prior, log_likelihood = target.log_prior_and_likelihood(theta)
        log_posterior = log_prior + log_likelihood
        finite = np.isfinite(log_posterior)
        theta = theta[finite]
        allowed.append((theta, log_posterior[finite], log_prior[finite], proposal.log_density(theta)))
        n_allowed += len(theta)
    theta, log_posterior, log_prior, log_density = (
        np.concatenate(items) for items in zip(*allowed, strict=True)
    )
    missed = maximum.missed_mass if missed is None else missed
    return ApproximationDraws(theta, log_posterior, log_prior, log_density, n_drawn, missed, log_ratio)
