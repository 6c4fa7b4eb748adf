"""Whether data that gains are solved from contain the rotation of feeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.calibration.solved_gains import SolvedGains
from biro.calibration.statement import chi2
from biro.calibration.window import Complex
from biro.diagnosis.feed_frame import to_feeds, weight_in_feeds
from biro.display.formatting import first_few
from biro.models import SkyModel
from biro.models.components.antenna_terms.feeds import Feeds
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.noise import measure_noise
from biro.observation.partition import Partition

CERTAIN = 5.0
"""ln of the likelihood ratio over its scatter sqrt(n), from which on a state of the feeds is certain.

Where both states describe the data, n parameters of each fit noise, and chi2 differs by 2 sqrt(n) or less.
"""
SOUND = 1.1
"""Residual rms over the noise below which a likelihood ratio counts as it is, because nothing is lacking."""
BETTER = 1.1
"""Ratio of chi2 that is needed besides where residuals exceed the noise: these are not independent."""
UNDECIDED = (
    "feeds: the data do not show whether they contain the parallactic rotation; biro takes it as taken out. "
    "If the data are raw, as those of `biro simulate` with gains, give the model [feeds] rotation = "
    '"present"'
)
"""Remark where neither state of the feeds is certain."""
AMBIGUOUS = (
    "feeds: the data contain the parallactic rotation, or the sky has linear polarisation that the model "
    "lacks; biro takes the rotation as taken out. Complete the model, or give it [feeds] rotation = "
    '"present" if the data are raw'
)
"""Remark where the rotation fits better, and g_X / g_Y is alike for all antennas."""


def excess(solved: SolvedGains) -> float:
    """Rms of the residuals over the noise of the corrected data; NaN where that cannot be measured.

    The noise is that of differences between neighbouring times, so that it does not matter on which scale the
    weights are. Where fringes turn between these times it is an upper limit.
    """
    per_dof, n_dof = _per_dof(solved)
    if n_dof <= 0:
        return math.nan
    parts = [
        _corrected(part, vis, amplitude)
        for part, vis, amplitude in zip(
            solved.observation.partitions, solved.corrected(), solved.amplitudes(), strict=True
        )
    ]
    names = {name for part in parts for name in part.corr_type if name in (*PARALLEL_HANDS, "I")}
    ratios = [measure_noise(parts, name).ratio for name in sorted(names)]
    known = [ratio for ratio in ratios if ratio > 0.0]
    return math.sqrt(per_dof) / max(known) if known else math.nan


def _corrected(part: Partition, vis: Complex, amplitude: NDArray[np.float64]) -> Partition:
    return replace(part, vis=vis, weight=part.weight * amplitude**2)


def _per_dof(solved: SolvedGains) -> tuple[float, int]:
    """chi2 per degree of freedom, and the degrees of freedom."""
    _, after, n_vis, n_free = chi2(solved)
    n_dof = 2 * n_vis - n_free
    return (after / n_dof if n_dof > 0 else math.nan), n_dof


def of_raw_data(sky: SkyModel) -> SkyModel:
    """The sky for data that contain the rotation of feeds."""
    return replace(sky, feeds=replace(sky.feeds or Feeds(), rotation="present"))


def with_better_rotation(
    solved: SolvedGains,
    sky: SkyModel,
    solve: Callable[[SkyModel, str | None], SolvedGains],
    model_of: Callable[[SkyModel], Iterable[NDArray[np.complexfloating]]],
) -> SolvedGains:
    """The gains with that state of the rotation of feeds which fits, where the sky does not state one.

    Raw data of linear feeds that turn on the sky look like corrected ones. Solved both ways, with and without
    the rotation in the data, the right way has the greater likelihood if the difference is there at all.

    Parameters
    ----------
    solved : SolvedGains
        With the sky as it is: data are taken as corrected.
    sky : SkyModel
    solve : function
        Solves with another sky, and with cross hands "off", or as they were asked for (None).
    model_of : function
        Model visibilities of a sky, of each partition.
    """
    if all(turn is None for turn in solved.turns):
        return solved
    present = of_raw_data(sky)
    first = solve(sky, "off") if solved.settings["cross_hands"] else solved
    other = solve(present, "off")
    ratio = _log_ratio(first, other, model_of(sky), model_of(present))
    if ratio.log_ratio <= -ratio.limit:
        return solved
    certain = ratio.log_ratio >= ratio.limit and (ratio.chi2_ratio > BETTER or excess(other) < SOUND)
    if not certain and not ratio.model_turns:
        return solved
    if not certain or not _feeds_differ(other):
        text = AMBIGUOUS if certain else UNDECIDED
        return replace(solved, remarks=(*solved.remarks, text)) if sky.feeds is None else solved
    found = f'the logarithm of the likelihood is {ratio.log_ratio:.0f} higher with rotation = "present"'
    if sky.feeds is not None:
        text = (
            f"THE DATA ARE NOT CORRECTED FOR PARALLACTIC ANGLE: {found}. But the model states [feeds] "
            'rotation = "corrected". Write rotation = "present" into the model'
        )
        return replace(solved, remarks=(*solved.remarks, text))
    text = (
        f"THE DATA ARE NOT CORRECTED FOR PARALLACTIC ANGLE: {found}. biro solved the gains with [feeds] "
        'rotation = "present". Write this into every model that uses these gains. Corrected data '
        "(--corrected) have the rotation taken out, so that a model of them needs no [feeds]"
    )
    parts = zip(solved.observation.partitions, solved.turns, strict=True)
    kept = [
        f"{part.field}/spw{part.spw_id} ({', '.join(part.corr_type)})"
        for part, turn in parts
        if turn is None and all(len(name) == 2 for name in part.corr_type)
    ]
    if kept:
        text += f". Corrected data of {first_few(kept)} keep their rotation, and a model of them needs it"
    other = solve(present, None)
    return replace(other, remarks=(*other.remarks, text), taken_out=solved.turns)


class _Ratio(NamedTuple):
    """A comparison of the two states of the feeds.

    Attributes
    ----------
    log_ratio : float
        ln of the likelihood of data with the rotation over that of corrected data.
    limit : float
        What it needs for certainty.
    chi2_ratio : float
        chi2 of corrected data over that of data with the rotation.
    model_turns : bool
        Whether the two models differ by more than a chi2 of 1: those of an unpolarised sky do not.
    """

    log_ratio: float
    limit: float
    chi2_ratio: float
    model_turns: bool


def _log_ratio(
    solved: SolvedGains,
    other: SolvedGains,
    models: Iterable[NDArray[np.complexfloating]],
    other_models: Iterable[NDArray[np.complexfloating]],
) -> _Ratio:
    """Compare other gains, of data with the rotation, with gains of corrected data.

    All correlations count of the partitions whose feeds turn, where both have gains. Both are solved from
    parallel hands and have as many parameters; the phase between the feeds is one more of each. Noise is that
    of the smaller chi2.
    """
    before, after, turned, n_real = 0.0, 0.0, 0.0, 0
    n_free = sum(chi2(each)[3] for each in (solved, other)) / 2.0
    for i, (model, other_model) in enumerate(zip(models, other_models, strict=True)):
        part, turn = solved.observation.partitions[i], solved.turns[i]
        if turn is None:
            continue
        usable = solved.factor(i)[1] & other.factor(i)[1]
        weight = np.where(usable.all(axis=-1, keepdims=True), part.weight, 0.0)
        expected = to_feeds(part, turn, _expected(solved, i, model, weight), back=True)
        before += float(np.sum(weight * np.abs(part.vis - expected) ** 2))
        expected = _expected(other, i, other_model, weight)
        after += float(np.sum(weight * np.abs(part.vis - expected) ** 2))
        turned += float(np.sum(weight * np.abs(solved.factor(i)[0] * (other_model - model)) ** 2))
        n_real += 2 * int(np.count_nonzero(weight))
    if not (n_real > n_free and min(before, after) > 0.0):
        return _Ratio(0.0, math.inf, 1.0, turned > 0.0)
    noise = min(before, after) / (n_real - n_free)
    log_ratio = 0.5 * (before - after) / noise
    return _Ratio(log_ratio, CERTAIN * math.sqrt(n_free), before / after, turned > noise)


def _feeds_differ(solved: SolvedGains) -> bool:
    """Whether the ratio of the gains of both feeds certainly differs among antennas, and more than from 1.

    A linear polarisation that the model lacks is a ratio |g_X / g_Y| that all antennas have in common, or
    nearly so where it is that of one source of several.
    """
    total, common, n_total = 0.0, 0.0, 0
    for window in solved.windows:
        ratio = window.gain[..., 0] / window.gain[..., 1]
        known = window.usable.all(axis=-1)
        mean = np.where(known, ratio, 0.0).sum(axis=-1, keepdims=True)
        phase = np.angle(ratio * mean.conj())
        amplitude = np.log(np.abs(ratio))
        for values, error in ((amplitude, window.log_amplitude_error), (phase, window.phase_error)):
            sigma = np.where(known, np.hypot(error[..., 0], error[..., 1]), 0.0)
            weight = np.divide(1.0, sigma**2, out=np.zeros_like(sigma), where=sigma > 0.0)
            whole = weight.sum(axis=-1, keepdims=True)
            centre = (weight * values).sum(axis=-1, keepdims=True) / np.where(whole > 0.0, whole, 1.0)
            total += float(np.sum(weight * (values - centre) ** 2))
            common += float(np.sum(weight * centre**2)) if values is amplitude else 0.0
            n_total += int(np.maximum((weight > 0.0).sum(axis=-1) - 1, 0).sum())
    noise, _ = _per_dof(solved)
    return total > common and total / noise > n_total + CERTAIN * math.sqrt(2.0 * n_total)


def _expected(
    solved: SolvedGains, i: int, model: NDArray[np.complexfloating], weight: NDArray[np.float64]
) -> Complex:
    """g_p V_pq g_q^* in the frame of the gains, with the phase between feeds that fits cross hands best.

    With exp(i delta) on XY and exp(-i delta) on YX, chi2 is least at delta = arg sum w (D_XY M_XY^* + D_YX^*
    M_YX), of each solution interval and block.
    """
    part, turn = solved.observation.partitions[i], solved.turns[i]
    data = part.vis
    if turn is not None:
        data, model = to_feeds(part, turn, data), to_feeds(part, turn, model)
        weight = np.where(weight.all(axis=-1, keepdims=True), weight_in_feeds(part, turn), 0.0)
    expected = np.asarray(solved.factor(i)[0] * model)
    window = next(each for each in solved.windows if i in each.partitions)
    place = solved.interval_of(i)[:, None], window.block[None]
    xy, yx = part.corr_type.index("XY"), part.corr_type.index("YX")
    found = weight * data * expected.conj()
    total = np.zeros(window.gain.shape[:2], np.complex128)
    np.add.at(total, place, found[..., xy] + found[..., yx].conj())
    phase = np.exp(1j * np.angle(total))[place]
    expected[..., xy] *= phase
    expected[..., yx] *= phase.conj()
    return expected
