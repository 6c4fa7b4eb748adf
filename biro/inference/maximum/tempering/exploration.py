"""How much of the posterior lies in modes that no climb has found, and the search for these.

Where a tempered run (`biro.inference.maximum.tempering.particles`) reaches the posterior, its particles are
draws of it. Those that no known mode explains lie in modes that are not known, or in tails: climbs from some
of them tell. The part of the posterior in unknown modes is the part of the particles that is not explained,
times the part of the climbs from there that end at no mode which was known before. A run whose ln Z is not
that of the known modes at its particles has lost some of them on its way: it is repeated, and where that does
not help, half of the posterior counts as missed.

Where it would take too long, climbs from more and more points of the prior take its place. The part is then
estimated by that of the modes at which a single climb has ended: such a mode could as well have been missed
(Good 1953, Biometrika 40, 237, with the evidence of each mode in place of its count).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.climbs import Climbs
from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.modes import COUNTS, Mode
from biro.inference.maximum.objective import Objective
from biro.inference.maximum.proposal import DOF, MixtureTerm, Proposal
from biro.inference.maximum.search import search
from biro.inference.maximum.starts import cover, starting_points
from biro.inference.maximum.tempering.clouds import clouds_about
from biro.inference.maximum.tempering.particles import Particles, temper
from biro.inference.target.checked import Target
from biro.inference.target.protocol import Watch, integrates, n_data_of, solves_gains

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
SEARCHABLE = 30
"""Parameters up to which the whole prior is searched.

With 41 (six points, a circle and three ellipses, 3C273) differential evolution ended below what climbs
reached, and took half of the time.
"""
N_SEARCH = 3
"""Searches by differential evolution at most: until one of them ends at a maximum that was found before."""
_ROUNDS, _N_CLIMB = 6, 32
"""Rounds of climbs from particles or from points of the prior at most, and climbs of a round."""
_N_CHORD = 8
"""Chords of the prior along which a log-posterior is looked at."""
_N_COVER = 1024
"""Points of the prior from which particles begin."""
_FAR_BELOW = np.log(6.0)
"""The known modes explain a particle unless their density is lower than the posterior by this factor."""
MOST_RATIO = np.log(30.0)
"""Draws of a mixture cover a particle where their density is lower by no more than this."""
_MOST_CALLS, _PER_GRADIENT, _DATA_SUMMED = 150_000, 6.0, 1e8
"""Likelihoods of a tempered run: at most; for each gradient of the climbs; real data that all of them sum.

Where all climbs end at one maximum, a run that does not reach the posterior is short, and half as many climbs
begin from its particles. In 78 of 136 problems (1 to 4 sources and their sidelobes, places several beams off,
6 to 36 baselines) some climbs disagreed; in the other 58 such a search missed no mode that the long one
found, and neither did none at all.
"""
_N_RUN, _UNKNOWN = 2, 0.5
"""Tempered runs at most, and the part that is stated as missed where none of them kept its parts."""
_AGREE, _AGREE_EACH = 2.0, 0.2
"""Two values of ln Z of a run agree within the one, and the other for each parameter."""
_FEWEST_CALLS = 4096
"""With fewer a tempered run is of no use."""


class Explored(NamedTuple):
    """What a search of the whole prior found beside `Climbs`.

    Attributes
    ----------
    missed_mass : float or None
        Estimated part of the posterior in modes that were not found; None where nothing was searched.
    particles : Particles or None
        Draws of the posterior; None where the tempered run did not reach it.
    n_search : int
        Searches by differential evolution.
    """

    missed_mass: float | None = None
    particles: Particles | None = None
    n_search: int = 0


def explore(
    target: Target, objective: Objective, climbs: Climbs, n_start: int, seed: int, watch: Watch
) -> Explored:
    """Search the prior for modes that climbs have not found, which are added to these.

    Parameters
    ----------
    target : Target
    objective : Objective
    climbs : Climbs
    n_start : int
        Starts of a round of climbs from points of the prior.
    seed : int
    watch : function of the highest log-posterior so far
    """
    if target.n_param > SEARCHABLE:
        return Explored(climbs.found.found_once if climbs.n_climb > 1 else None)
    if _is_quadratic(target, climbs, seed):
        return Explored(0.0)
    rng = np.random.default_rng([seed, 4])
    missed, particles = 1.0, None
    for run in range(_N_RUN):
        particles = tempered(target, objective, seed + run, watch, climbs.all_agree)
        if particles is None or not particles.complete:
            return _by_climbs(target, objective, climbs, particles, n_start, seed, watch)
        missed, repeats = _by_particles(target, climbs, particles, rng)
        if repeats:
            break
    else:
        missed = max(missed, _UNKNOWN)
    assert particles is not None
    n_search = 0 if _seen(target, climbs, particles) else _search(target, climbs, seed, watch)
    return Explored(missed, particles, n_search)


def _by_climbs(
    target: Target,
    objective: Objective,
    climbs: Climbs,
    particles: Particles | None,
    n_start: int,
    seed: int,
    watch: Watch,
) -> Explored:
    """Climbs from more and more points of the prior, where tempering does not reach the posterior."""
    rng = np.random.default_rng([seed, 8])
    if particles is not None:
        n = _N_CLIMB // 2 if climbs.all_agree else _N_CLIMB
        climbs.add(particles.theta[rng.choice(len(particles.theta), n, replace=False)])
    n_search = _search(target, climbs, seed, watch) if climbs.disagree else 0
    for _ in range(_ROUNDS):
        if climbs.found.found_once <= COUNTS:
            break
        climbs.add(starting_points(objective, n_start, rng).theta)
    return Explored(climbs.found.found_once, None, n_search)


def _is_quadratic(target: Target, climbs: Climbs, seed: int) -> bool:
    """Whether the log-posterior is a concave quadratic form on all of the prior, so that it has one maximum.

    It is where all parameters are fluxes and the noise is known. On chords from the maximum to points of the
    prior third differences then vanish, and second ones are those of the curvature at the maximum.
    """
    likelihood, laplace = target.likelihood, climbs.rest.laplace
    if target.wraps.any() or likelihood.log_constraint_mass != 0.0 or not isinstance(laplace, Laplace):
        return False
    ends = target.theta(cover(target.n_param, _N_CHORD, np.random.default_rng([seed, 7])))
    chord = ends - laplace.theta
    points = laplace.theta + np.arange(4.0)[:, None] / 3.0 * chord[:, None]
    value = target.log_posterior(points.reshape(-1, target.n_param)).reshape(_N_CHORD, 4)
    if not np.isfinite(value).all():
        return False
    third, second = np.diff(value, 3)[:, 0], np.diff(value, 2)[:, 0]
    expected = -np.einsum("ni,ij,nj->n", chord, laplace.precision_matrix, chord) / 9.0
    is_straight = np.abs(third) <= 1e-9 * np.abs(value).max(axis=1)  # of roundings
    # The curvature comes from differences of the gradient, with some digits.
    return bool(is_straight.all() and np.allclose(second, expected, rtol=1e-2) and second.max() < 0.0)


def tempered(
    target: Target, objective: Objective, seed: int, watch: Watch, is_short: bool
) -> Particles | None:
    """A tempered run; None where it would take far longer than the climbs, or nothing is possible.

    It `is_short` where it would not reach the posterior soon, and nothing tells of other modes.
    """
    likelihood = objective.likelihood
    most = _DATA_SUMMED / max(1.0, float(n_data_of(likelihood).sum()))
    if integrates(likelihood) or solves_gains(likelihood):  # what these take for a call is not known
        most = 0.0
    as_climbs = _PER_GRADIENT * objective.n_row
    most = min(_MOST_CALLS, max(most, min(as_climbs, _FEWEST_CALLS) if is_short else as_climbs))
    if most < _FEWEST_CALLS:
        return None
    unit = cover(target.n_param, _N_COVER, np.random.default_rng([seed, 5]))
    value = target.log_likelihood_of_unit(unit)
    if np.isfinite(value).sum() < 2:
        return None
    return temper(target, unit, value, seed, int(most), watch)


def _by_particles(
    target: Target, climbs: Climbs, particles: Particles, rng: np.random.Generator
) -> tuple[float, bool]:
    """Climbs from particles that no mode explains; the part of the posterior that is missed in the end.

    The second result is whether ln Z of the run is that of the mixture at its particles: where these kept the
    parts that belong to them, the mean of mixture over posterior at the particles is 1/Z.
    """
    if climbs.found.n_agree < climbs.n_start and len(particles.early):
        n = min(_N_CLIMB, len(particles.early))
        climbs.add(particles.early[rng.choice(len(particles.early), n, replace=False)])
    missed, known = 0.0, None
    for _ in range(_ROUNDS):
        known = mixture(target, climbs.found.modes, particles)
        far = np.arange(len(particles.theta))
        if known is not None:
            far = np.flatnonzero(_log_ratio(target, known, particles) - particles.log_evidence > _FAR_BELOW)
        n = min(_N_CLIMB, len(far))
        part_new = climbs.add(particles.theta[rng.choice(far, n, replace=False)]) if n else 0.0
        missed = len(far) / len(particles.theta) * part_new
        if not part_new:
            break
    if known is None:
        return missed, True
    ratio = _log_ratio(target, known, particles)
    log_evidence = np.log(len(ratio)) - np.logaddexp.reduce(-ratio)
    return missed, bool(abs(log_evidence - particles.log_evidence) < _AGREE + _AGREE_EACH * target.n_param)


def mixture(
    target: Target,
    modes: Sequence[Mode],
    particles: Particles | None,
    more: Sequence[MixtureTerm] = (),
) -> Proposal | None:
    """The distributions about all modes, `more` and the prior, with parts as the particles have them.

    None where the data do not determine the highest maximum.
    """
    if modes[0].laplace.is_singular:
        return None
    found = Proposal(modes, period_of(target), prior=target, more=more)
    if particles is not None:
        found.fit(particles.theta)
    return found


class Covering(NamedTuple):
    """A mixture that covers a posterior, as far as its draws tell.

    Attributes
    ----------
    mixture : Proposal
    missed_mass : float or None
        Part of the draws by tempering that it does not cover; None where there are none.
    log_ratio : float64 (n,)
        ln of posterior (not normalised) over mixture at these draws; empty where there are none.
    """

    mixture: Proposal
    missed_mass: float | None
    log_ratio: Array


def covering_mixture(
    target: Target,
    modes: Sequence[Mode],
    particles: Particles | None,
    seed: int,
    more: Sequence[MixtureTerm] = (),
) -> Covering:
    """A mixture of distributions about modes, of `more`, the prior, and clouds about what is left out."""
    found = mixture(target, modes, particles, more)
    assert found is not None
    if particles is None:
        return Covering(found, None, np.empty(0))
    far = np.flatnonzero(_log_ratio(target, found, particles) - particles.log_evidence > _FAR_BELOW)
    if len(far):
        rng = np.random.default_rng([seed, 6])
        clouds = clouds_about(particles.theta, far, period_of(target), rng)
        with_clouds = [*more, *(MixtureTerm(cloud, DOF) for cloud in clouds)]
        found = Proposal(modes, period_of(target), prior=target, more=with_clouds)
        found.fit(particles.theta)
    ratio = _log_ratio(target, found, particles)
    return Covering(found, float(np.mean(ratio - particles.log_evidence > MOST_RATIO)), ratio)


def period_of(target: Target) -> Array:
    """Periods of the parameters that wrap, float64 (n_param,); NaN for the others."""
    return np.where(target.wraps, target.period, np.nan)


def _log_ratio(target: Target, found: Proposal, particles: Particles) -> Array:
    """ln of the posterior, not normalised, over a mixture at each particle, float64 (n,)."""
    log_posterior = target.log_prior(particles.theta) + particles.log_likelihood
    return np.asarray(log_posterior - found.log_density(particles.theta))


def _seen(target: Target, climbs: Climbs, particles: Particles) -> bool:
    """Whether particles have come to the highest maximum that is known."""
    highest = target.log_prior(particles.theta) + particles.log_likelihood
    # Of a normal distribution the mean height is n_param / 2 below the maximum.
    return bool(climbs.rest.log_posterior - highest.max() < 3.0 + target.n_param)


def _search(target: Target, climbs: Climbs, seed: int, watch: Watch) -> int:
    """Searches by differential evolution until one ends at a maximum that is known; how many there were."""
    log.info("the optimisations ended at different maxima, so differential evolution searches the prior")
    for n in range(1, N_SEARCH + 1):
        unit, _ = search(target, seed + n - 1, watch)
        if not climbs.add(target.theta(unit[None])):
            break
    return n
