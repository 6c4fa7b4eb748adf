"""Choose cells: as large as leaves the result alone, which is measured on the data."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.errors import BiroError, InputError
from biro.inference.target.protocol import solves_gains
from biro.likelihood.cells.axis import cut
from biro.likelihood.cells.compress import Cells, cells_of, compress
from biro.likelihood.cells.expansion_point import ExpansionPoint, highest
from biro.likelihood.cells.sidereal_rotation import TURN, turned, turns_of
from biro.likelihood.cells.variation import ComparableLikelihood, Variation, variations
from biro.likelihood.precision import N_VISIBILITY, largest_difference, points_within, thinned
from biro.models.components.antenna_terms.gain import is_gain
from biro.models.components.partition_view import SampledTimes
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.smearing import smearing_of
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import EARTH_RATE, rates

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Index = NDArray[np.int64]
SHIFT = 0.02
"""No parameter may move by more, in units of its error."""
LIMIT = 0.1
"""ln L within 3 sigma of the maximum may not change by more, and so hardly the log-evidence."""
FIRST, STEP, N_TRY = 0.03, 3.0, 5
"""Error of phase factors that cells are first made for, by how much less each further time, and how often."""
LEAST = 1.25
"""Data of which cells would make less than this times fewer are left as they are."""
N_RATE = 32
"""So many rates of phase stand for those of all rows."""
N_POINT = 32
"""Points within 3 sigma at which ln L is compared."""
LONG_GAP = 3.0
"""Times and channels share no cell over a gap of more than this, in units of their median spacing."""


@dataclass(frozen=True, eq=False)
class ReducedData:
    """Data that stand for an observation in likelihoods near a model.

    Attributes
    ----------
    observation : Observation
        Visibilities and weights at the nodes of the cells.
    left_out : float64 (n_partition,)
        What chi-squared of each partition lacks, whatever the model.
    cells : list of Cells
        Of each partition.
    samples : list of SampledTimes
        The times and channels of each partition that its nodes are at.
    statement : str
        How much fewer visibilities there are, and what was measured.
    """

    observation: Observation
    left_out: Array
    cells: list[Cells]
    samples: list[SampledTimes]
    statement: str = ""


class LikelihoodFactory(Protocol):
    """Makes the likelihood of a model, given all visibilities or what stands for them."""

    def __call__(self, data: Observation, reduced: ReducedData | None = None) -> ComparableLikelihood:
        """The likelihood."""


def choose_cells(observation: Observation, likelihood_of: LikelihoodFactory) -> ReducedData | str:
    """Data of cells that leave the result alone, or in words why there are none.

    The maximum of the posterior is found on some of the visibilities first, and then on what stands for all
    near it. There, cells that give back phase factors of all brightness which the prior allows are compared
    with all data: F^-1 times the difference of the slopes of ln L, in units of the errors, and ln L at points
    within 3 sigma against that at the maximum, where it is exact. Gains that are integrated over or solved
    for are compared as parameters, too. Where `SHIFT` or `LIMIT` is exceeded, smaller cells are tried. The
    same data and model always give the same cells: no times are measured.

    Parameters
    ----------
    observation : Observation
    likelihood_of : function of an observation, and of what stands for it
        Makes the likelihood of the model.

    Raises
    ------
    InputError
        A model for which data of cells cannot stand, whatever their size.
    """
    whole = likelihood_of(observation)
    refuse(whole)
    varying = variations(whole)
    cells = cells_for(observation, varying, FIRST)
    if times_fewer(observation, cells) < LEAST:
        return f"they would contain {_in_words(observation, cells)}"
    try:
        start = _start(whole, likelihood_of(thinned(observation, N_VISIBILITY)))
        first = likelihood_of(observation, reduced_near(observation, cells, _models(whole, start)))
        objective, laplace = highest(first, start)
    except BiroError as error:
        return f"the comparison with all data failed ({error})"
    points = np.concatenate([laplace.theta[None], points_within(laplace, N_POINT)])
    points = np.clip(points, objective.low, objective.high)
    models, exact = _models(whole, laplace.theta), whole.log_likelihood(points)
    abouts = [ExpansionPoint(whole, laplace)]
    if whole.full is not whole:
        abouts.append(ExpansionPoint.of_information(whole.full, whole.completed(laplace.theta)))
    said = ""
    for k in range(N_TRY):
        cells = cells_for(observation, varying, FIRST / STEP**k)
        if times_fewer(observation, cells) < LEAST:
            return f"smaller cells would contain {_in_words(observation, cells)}{said}"
        reduced = reduced_near(observation, cells, models)
        found = likelihood_of(observation, reduced)
        pairs = zip(abouts, dict.fromkeys((found, found.full)), strict=True)
        shift = max(about.shift(other) for about, other in pairs)
        change = largest_difference(found.log_likelihood(points), exact)
        measured = (
            f"parameters move by {shift:.2g} sigma, ln L within 3 sigma of the maximum by {change:.2g}, at "
            "most"
        )
        log.info("cells of %s: %s", _in_words(observation, cells), measured)
        if shift <= SHIFT and change <= LIMIT:
            return replace(reduced, statement=f"{_in_words(observation, cells)}; {measured}")
        said = f"; with larger cells {measured}"
    return f"no cell size is accurate enough{said}"


def refuse(likelihood: ComparableLikelihood) -> None:
    """Refuse models for which data of cells cannot stand.

    Raises
    ------
    InputError
    """
    model, full, problem = likelihood.model, likelihood.full_model, ""
    marginal = [p.name for p in full.parameters if p.prior.marginalise] if model is not full else []
    if model.model.noise.distribution != "gaussian":
        problem = "Gaussian noise (sums over a cell do not give the scatter that Student's t needs)"
    elif model.noise_terms is not None:
        problem = (
            "one noise factor for all baselines (remove systematic, additive and antenna factors from "
            "[noise])"
        )
    elif model.noise_correlation is not None:
        problem = "independent noise (remove [noise] correlation)"
    elif likelihood.gains == "closures":
        problem = "visibilities, not closures"
    elif marginal:
        problem = f"sampled quantities; remove marginalise = true from {first_few(marginal)}"
    if problem:
        raise InputError(f'average="cells" needs {problem}; or leave average out')


def _models(likelihood: ComparableLikelihood, theta: Array) -> list[NDArray[np.complexfloating]]:
    """Model visibilities of each partition, with the gains that are best where theta has none."""
    return likelihood.full.predict(likelihood.completed(theta))


def _start(whole: ComparableLikelihood, few: ComparableLikelihood) -> Array:
    """theta near the maximum, from that of the likelihood of some times and channels.

    These have other segments: gains of all segments are those that are best beside the sky found.
    """
    _, laplace = highest(few)
    found = dict(zip(few.parameter_names, laplace.theta.tolist(), strict=True))
    theta = whole.prior_transform(np.full((1, whole.n_param), 0.5))
    for i, name in enumerate(whole.parameter_names):
        if not is_gain(name):
            theta[0, i] = found.get(name, theta[0, i])  # of an antenna that is at none of these times
    return np.asarray((whole.with_best_gains(theta) if solves_gains(whole) else theta)[0])


def cells_for(observation: Observation, varying: Sequence[Variation], limit: float) -> list[Cells]:
    """Cells of each partition that give phase factors back to a limit, rms over the data.

    Parameters
    ----------
    observation : Observation
    varying : sequence of Variation
        How visibilities of each partition vary.
    limit : float
    """
    pairs = zip(observation.partitions, varying, strict=True)
    return [_cells_of_one(part, own, limit / np.sqrt(2.0)) for part, own in pairs]


def _cells_of_one(part: Partition, varying: Variation, limit: float) -> Cells:
    """Cells of one partition; times and channels have the limit each.

    Where nothing but the turning baselines varies with time, cells may go over scans, and hold the times of
    all days at which baselines are where they are, if that needs fewer nodes.
    """
    weight, smearing = part.weight.sum(axis=(1, 2), dtype=np.float64), smearing_of(part)
    u, v, w = part.uvw.T
    du, dv, dw = rates(u, v, w, smearing.declination, smearing.pole_angle)
    distance = varying.distance
    inwards = 0.5 * distance**2  # 1 - n, nearly
    turn = 2.0 * np.pi / SPEED_OF_LIGHT
    per_second = turn * part.chan_freq.max() * (np.hypot(du, dv) * distance + np.abs(dw) * inwards)
    per_hertz = turn * (np.hypot(u, v) * distance + np.abs(w) * inwards)
    used = part.weight.any(axis=(0, 2))
    channels = np.flatnonzero(used if used.any() else ~used)
    channels = channels[np.argsort(part.chan_freq[channels])]
    of_freq = _runs(part.chan_freq, channels, varying.channels)
    by_time, by_freq = (
        _quantiles(each, weight) for each in (per_second + varying.per_second, per_hertz + varying.per_hertz)
    )
    by_channel, angle = cut(part.chan_freq, of_freq, by_freq, limit), turned(part, smearing)
    since = part.times - part.times[0]
    of_time = _runs(since, np.arange(len(since)), part.scan_of_time, varying.times)
    within = cells_of(part, cut(since, of_time, by_time, limit), by_channel, angle)
    if varying.in_time:
        return within
    turns = turns_of(part.times)
    since, n_turn = since - TURN * turns, len(np.unique(turns))
    of_all = cut(since, _runs(since, np.argsort(since, kind="stable")), by_time, limit, n_turn)
    over = cells_of(part, of_all, by_channel, angle - EARTH_RATE * TURN * turns[part.time_index])
    return over if over.n_kept < within.n_kept else within


def _runs(points: Array, among: Index, *numbers: NDArray[np.integer] | None) -> list[Index]:
    """Points that may share cells: up to a long gap, or to another number (of scans, or between steps)."""
    step, spacing = np.diff(points[among]), np.abs(np.diff(points[np.sort(among)]))
    ends = step > LONG_GAP * np.median(spacing) if step.size else np.zeros(0, bool)
    for number in numbers:
        if number is not None:
            ends |= np.diff(number[among]) != 0
    return np.split(among, np.flatnonzero(ends) + 1)


def _quantiles(values: Array, weight: Array) -> Array:
    """Values that stand for as much of the weight each, float64 (N_RATE,)."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    wanted = (np.arange(N_RATE) + 0.5) / N_RATE * total[-1]
    return np.asarray(values[order][np.searchsorted(total, wanted)])


def reduced_near(
    observation: Observation, cells: list[Cells], models: Sequence[NDArray[np.complexfloating]]
) -> ReducedData:
    """Data that stand for an observation near model visibilities of each partition."""
    found = [compress(*each) for each in zip(observation.partitions, cells, models, strict=True)]
    parts, left_out = zip(*found, strict=True)
    samples = [
        SampledTimes(np.searchsorted(whole.times, part.times), own.channels.nodes)
        for whole, part, own in zip(observation.partitions, parts, cells, strict=True)
    ]
    return ReducedData(replace(observation, partitions=parts), np.array(left_out), cells, samples)


def times_fewer(observation: Observation, cells: Sequence[Cells]) -> float:
    """Rows times channels of the data, over those that are kept."""
    whole, kept = _sizes(observation, cells)
    return whole / kept


def _sizes(observation: Observation, cells: Sequence[Cells]) -> tuple[int, int]:
    whole = sum(part.n_row * part.n_chan for part in observation.partitions)
    return whole, sum(each.n_kept for each in cells)


def _in_words(observation: Observation, cells: Sequence[Cells]) -> str:
    whole, kept = _sizes(observation, cells)
    return f"{kept} of {whole} visibilities (rows times channels), {whole / kept:.3g} times fewer"
