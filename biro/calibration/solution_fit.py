"""Whether solved gains and their sky fit the data, and whether the rotation of feeds is in these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.calibration.solved_gains import SolvedGains
from biro.calibration.statement import chi2
from biro.calibration.window import Complex
from biro.models import SkyModel
from biro.models.components.antenna_terms.feeds import Feeds
from biro.observation.noise import measure_noise
from biro.observation.partition import PARALLEL_HANDS, Partition

MISFIT = 2.0
"""Residual rms over the noise from which on gains and sky are said not to fit."""
BETTER = 1.1
"""chi2 with one state of the feeds over that with the other, from which on the latter is the right one."""
CERTAIN = 50.0
"""Logarithm of the likelihood ratio that is needed besides."""


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


def judged(solved: SolvedGains) -> SolvedGains:
    """Gains with remarks where they and the sky do not fit the data."""
    ratio = excess(solved)
    if not ratio > MISFIT:
        return solved
    text = (
        f"THE MODEL DOES NOT FIT: with the solved gains the residual rms is {ratio:.3g} times the thermal "
        "noise (measured from neighbouring times). Either the model lacks sources (look at `biro image "
        "--model`), leakage or feed rotation; complete it. Or gains vary within a solution interval; shorten "
        "--interval (interval= in Python)"
    )
    return replace(solved, fits=False, remarks=(*solved.remarks, text))


def with_better_rotation(
    solved: SolvedGains, sky: SkyModel, solve: Callable[[SkyModel], SolvedGains]
) -> SolvedGains:
    """The gains with that state of the rotation of feeds which fits, where the sky does not state one.

    Raw data of linear feeds that turn on the sky look like corrected ones. Solved both ways, with and without
    the rotation in the data, the right way has the smaller chi2 if the difference is there at all.

    Parameters
    ----------
    solved : SolvedGains
        With the sky as it is: data are taken as corrected.
    sky : SkyModel
    solve : function
        Solves with another sky.
    """
    if all(turn is None for turn in solved.turns):
        return solved
    feeds = sky.feeds or Feeds()
    other = solve(replace(sky, feeds=replace(feeds, rotation="present")))
    (before, n_dof), (after, n_other) = _per_dof(solved), _per_dof(other)
    certain = min(n_dof, n_other) > 0 and after > 0.0 and before > BETTER * after
    if not (certain and 0.5 * n_other * math.log(before / after) > CERTAIN):
        return solved
    ratio = f'chi2 is {before / after:.3g} times smaller with rotation = "present"'
    if sky.feeds is not None:
        text = (
            f"THE DATA ARE NOT CORRECTED FOR PARALLACTIC ANGLE: {ratio}. But the model states [feeds] "
            "rotation "
            '= "corrected". Write rotation = "present" into the model'
        )
        return replace(solved, remarks=(*solved.remarks, text))
    text = (
        f"THE DATA ARE NOT CORRECTED FOR PARALLACTIC ANGLE: {ratio}. biro solved the gains with [feeds] "
        'rotation = "present". Write this into every model that uses these gains. Corrected data '
        "(--corrected) have the rotation taken out, so that a model of them needs no [feeds]"
    )
    return replace(other, remarks=(*other.remarks, text), taken_out=solved.turns)
