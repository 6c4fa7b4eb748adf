"""Single visibilities that no noise explains."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.offsets import log_choices
from biro.diagnosis.causes.samples import Index, Mask, ResidualSamples
from biro.diagnosis.flag_command import flag_command, lines_of, names_correlations
from biro.display.formatting import FLUXES, first_few, percent, unit_for

MOST_SHARE = 0.2
"""Largest part of the visibilities; what so many have in common is no outlier."""
MEDIAN_POWER = 2.0 * np.log(2.0)
"""Median of |r|^2 for real and imaginary parts of variance 1 (chi2 with two degrees of freedom)."""
MOST_LISTED = 3
Level = TypeVar("Level", float, NDArray[np.float64])


def bound(level: Level, n: int) -> Level:
    """2 s^2 (ln n + 14), which |r|^2 exceeds with a chance of 1e-6 in all of n; `level` is s^2."""
    return 2.0 * (float(np.log(n)) + 14.0) * level


def outlier_candidates(samples: ResidualSamples) -> Iterator[Candidate]:
    """Visibilities farther off than any of so many would be by chance; s^2 is from the median of |r|^2."""
    n = samples.n
    if n < 8:
        return
    power = np.abs(samples.residual) ** 2
    level = float(np.median(power)) / MEDIAN_POWER
    if not level > 0.0:
        return
    bad = power > bound(level, n)
    k = int(np.count_nonzero(bad))
    if not 0 < k <= MOST_SHARE * n:
        return
    drop = float(power[bad].sum())
    gain, _ = linear(samples.square, drop, 2 * k, samples.n_real)
    # The largest of n has the chance n exp(-x/2); a choice of k costs ln (n over k).
    log_p = float(np.log(n) - 0.5 * power.max() / level)
    kind = "bad visibility" if k == 1 else "bad visibilities"
    yield Candidate(
        kind,
        drop,
        gain - log_choices(n, k),
        2 * k,
        log_p,
        partial(samples.only, ~bad),
        partial(outlier_texts, samples, bad, level),
    )


def outlier_texts(samples: ResidualSamples, bad: Mask, level: float) -> tuple[str, str]:
    """What outliers are, the largest first, and what to do; `level` is the variance of the residuals."""
    order: Index = np.flatnonzero(bad)
    order = order[np.argsort(-np.abs(samples.residual[order]))]
    unit = unit_for(np.abs(samples.residual[order[:MOST_LISTED]]) / samples.root[order[:MOST_LISTED]], FLUXES)
    listed = []
    for at in order[:MOST_LISTED].tolist():
        ends, when, channel, corr = samples.position(at)
        size = abs(samples.residual[at])
        listed.append(
            f"{ends} at {when} UTC, {channel}, {corr} ({size / np.sqrt(level):.0f} sigma, "
            f"{unit.text(float(size / samples.root[at]))} {unit.name})"
        )
    command = _command(samples, bad)
    if len(order) == 1:
        return (
            f"One visibility is an outlier: {listed[0]}.",
            f"Flag this visibility{command}, or fit noise with outliers ([noise] distribution = "
            '"student-t").',
        )
    n_part = len(np.unique(samples.part[order]))
    where = f" in {n_part} of {len(samples.parts)} partitions" if len(samples.parts) > 1 else ""
    return (
        f"{len(order)} visibilities ({percent(len(order) / samples.n)}){where} are outliers: "
        f"{first_few(listed, '; ')}{'; and others' if len(order) > MOST_LISTED else ''}.",
        f"Flag them{command or ' (`biro flag`)'} and fit again, because fainter outliers show only without "
        'these. Or fit noise with outliers ([noise] distribution = "student-t").',
    )


def _command(samples: ResidualSamples, bad: Mask) -> str:
    """The command that flags outliers, and what else it flags; "" where there is none."""
    lines, n_selected = lines_of(samples, bad)
    command = flag_command(samples, lines)
    if not command:
        return ""
    n = int(np.count_nonzero(bad))
    also = []
    if n_selected > n:
        # Of large data some samples alone are known.
        least = "at least " if samples.worst.any() else ""
        also.append(f"{least}{n_selected - n} that {'are' if n_selected - n > 1 else 'is'} no outlier")
    if not names_correlations(samples):
        also.append("all correlations that Stokes parameters were formed from")
    return f"{command} (it also flags {' and '.join(also)})" if also else command
