"""The verdict on solved gains: do the calibrated data fit the sky, by the rule for fits?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.calibration.solved_gains import SolvedGains
from biro.diagnosis.causes.all_causes import find_causes
from biro.diagnosis.diagnosis import measured
from biro.diagnosis.feed_frame import to_feeds, weight_in_feeds
from biro.diagnosis.finding import Finding
from biro.diagnosis.flag_target import FlagTarget
from biro.diagnosis.partition_fit import CERTAIN, EFFECT, MISFIT, OUTLIERS, UNKNOWN, PartitionFit
from biro.diagnosis.residual_data import ResidualData
from biro.diagnosis.verdict_text import NEXT, lines_of
from biro.observation.noise import some_rows
from biro.observation.observation import Observation

Models = Iterable[NDArray[np.complexfloating]]
Cut = tuple[NDArray[np.int64], slice]
"""Rows and channels of a partition."""
ModelOf = Callable[[Observation, Sequence[Cut]], Models]
NAMED = ("missing source", "missing extended source", "bad visibility", "bad visibilities")
"""Kinds of misfit that are named as they are found beside solved gains; the flux of a source is none."""
SHORTER = {
    "gain drift": ("Gains change within a solution interval", "Shorten --interval (interval= in Python)"),
    "bandpass": (
        "Gains change with frequency within a spectral window",
        "Solve in more --chan-blocks (chan_blocks= in Python)",
    ),
}
"""What is wrong, and what to do, where gains remain in the residuals."""
WRONG_SKY = (
    "The sky lacks sources, or its fluxes, leakage or feed rotation are wrong. Look at the residuals "
    "(`biro image --model`) and correct the sky"
)
OR_GAINS = f". If gains change within a solution interval, {SHORTER['gain drift'][1].lower()}"
"""What to do where none of these was found."""


def judged(solved: SolvedGains, model_of: ModelOf) -> SolvedGains:
    """Gains with the verdict of a fit (`biro.diagnosis`), where they and the sky do not fit the data.

    Parameters
    ----------
    solved : SolvedGains
    model_of : function
        Model visibilities of the partitions of an observation, which is the solved one at these rows and
        channels of each partition.
    """
    data = residuals_of(solved, model_of)
    fits = [_fit_of(solved, i, each) for i, each in enumerate(data)]
    remedy = WRONG_SKY + OR_GAINS * (solved.settings["interval"] != "integration")
    lines = lines_of(fits, _causes(solved, data, fits), (), otherwise=remedy)
    lines = [line for line in lines if line.startswith((MISFIT, OUTLIERS, UNKNOWN))]
    if not lines:
        return solved
    is_misfit = lines[0].startswith(MISFIT)
    if is_misfit:
        lines[0] = _of_calibrated(lines[0], fits)
    return replace(solved, fits=not is_misfit, verdict=tuple(lines))


def _of_calibrated(line: str, fits: list[PartitionFit]) -> str:
    """The line about a misfit, with chi2/dof and with what it is that does not fit."""
    head, *causes = line.split(NEXT)
    worst = max(fits, key=lambda fit: fit.chi2_per_dof if fit.n_vis else -math.inf)
    number = "" if "chi2/dof" in head else f", chi2/dof {worst.chi2_per_dof:.3g}"
    head = head.replace(MISFIT, f"{MISFIT} THE CALIBRATED DATA", 1) + number
    return NEXT.join([head, *causes])


def residuals_of(solved: SolvedGains, model_of: ModelOf) -> list[ResidualData]:
    """Data with the gains taken out, and the model, of each partition; of large data a part.

    Both are in the frame in which the gains act. Correlations that no gains were solved from have no weight,
    and visibilities without a gain.
    """
    parts = solved.observation.partitions
    size = sum(part.vis.size for part in parts)
    some = [some_rows(part, size) for part in parts]
    taken = [part.some(*each) for part, each in zip(parts, some, strict=True)]
    found = []
    models = model_of(replace(solved.observation, partitions=tuple(taken)), some)
    for i, (part, (rows, channels), model) in enumerate(zip(taken, some, models, strict=True)):
        factor, usable = (array[rows][:, channels] for array in solved.factor(i))
        vis, weight, turn = part.vis, part.weight.astype(np.float64), solved.turns[i]
        if turn is not None:
            at = np.searchsorted(parts[i].times, part.times)
            vis, model = to_feeds(part, turn[at], vis), to_feeds(part, turn[at], model)
            weight = weight_in_feeds(part, turn[at])
        counts = usable & np.asarray(solved.window_of(i).counts)
        weight = np.where(counts, weight * np.abs(factor) ** 2, 0.0)
        found.append(ResidualData(replace(part, vis=vis / factor, weight=weight), model, 1.0))
    return found


def _fit_of(solved: SolvedGains, i: int, data: ResidualData) -> PartitionFit:
    """chi2/dof and thermal noise of a partition; the degrees of freedom of its window are shared out."""
    window, n_vis = solved.window_of(i), int(np.count_nonzero(data.partition.weight > 0))
    n_data = 2 * window.n_vis.sum()
    left = 1.0 - window.n_free.sum() / n_data if n_data else 0.0
    reduced = float(np.sum(np.abs(data.scaled) ** 2)) / (2 * n_vis) if n_vis else math.nan
    factor = math.sqrt(reduced / left) if left > 0.0 else math.nan
    fit = PartitionFit(solved.observation.labels[i], n_vis, reduced, factor, dof=2 * n_vis * left)
    return measured(fit, data) if n_vis else fit


def _causes(solved: SolvedGains, data: list[ResidualData], fits: list[PartitionFit]) -> list[Finding]:
    """Causes that can be told beside solved gains; nothing is looked for where residuals are thermal noise.

    Gains make up for a part of a wrong sky, so that its other sources seem to be wrong as well.
    """
    if not any(fit.is_far or not fit.thermal > 1.0 / EFFECT for fit in fits if fit.n_vis):
        return []
    observation = solved.observation
    found = find_causes(
        [each for each, fit in zip(data, fits, strict=True) if fit.n_vis],
        observation.antenna_names,
        target=FlagTarget.of(observation),
        utc_offset=observation.utc_offset,
    )
    certain = [each for each in found if each.significance > CERTAIN]
    named = [each for each in certain if each.kind in NAMED]
    for each in certain:
        if each.kind in SHORTER:
            verdict, remedy = SHORTER[each.kind]
            named.append(replace(each, verdict=verdict, remedy=remedy))
    return sorted(named, key=lambda each: -each.explained)
