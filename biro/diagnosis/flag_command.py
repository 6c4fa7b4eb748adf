"""The command that flags what a test of the residuals has found, to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from biro.diagnosis.causes.samples import Mask, ResidualSamples

MOST_LINES = 8
"""Selections that a command has at most."""
MOST_MORE = 2.0
"""Visibilities that a selection may have for each bad one."""
COPIES = ("flagged.uvfits", *(f"flagged-{n}.uvfits" for n in range(2, 100)))
"""Names of a flagged copy, of which the first that is not there is proposed."""


def flag_command(samples: ResidualSamples, lines: Sequence[str]) -> str:
    """`command_of` as " with `biro flag ...`"."""
    command = command_of(samples, lines)
    return f" with `{command}`" if command else ""


def command_of(samples: ResidualSamples, lines: Sequence[str]) -> str:
    """The command that flags what these lines select; "" without a data set, or of too many lines."""
    if samples.target is None or not lines or len(lines) > MOST_LINES:
        return ""
    selects = " ".join(f"--select {shlex.quote(line)}" for line in lines)
    if any(part.weight_origin == "UVFITS" for part in samples.parts):
        selects += f" -o {next((name for name in COPIES if not Path(name).exists()), COPIES[-1])}"
    return f"biro flag {shlex.quote(samples.target.source)} {selects}"


def line_of(samples: ResidualSamples, at: int, *keys: str) -> str:
    """A selection by the baseline, time, channel or correlation of one sample, or by several of these."""
    part, row = samples.parts[samples.part[at]], samples.row[at]
    texts = []
    if "baseline" in keys:
        ends = samples.antenna1[at], samples.antenna2[at]
        texts.append("baselines=" + "-".join(samples.antenna(end) for end in ends))
    if "time" in keys:
        texts.append(f"time={samples.utc(part.time[row])}")
    if "channel" in keys:
        chan = samples.chan[at] if part.chan_id is None else part.chan_id[samples.chan[at]]
        texts.append(f"spws={part.spw_id}, channels={chan}")
    if "correlation" in keys and (part.corr_id is None or len(part.corr_id)):
        texts.append(f"correlations={part.corr_type[samples.corr[at]]}")
    return ", ".join(texts)


def lines_of(samples: ResidualSamples, bad: Mask) -> tuple[list[str], int]:
    """Selections of bad samples, and how many samples they select.

    They are selected by what they have in common where that is little else, or one by one.
    """
    every = {
        "baseline": samples.baseline,
        "time": samples.slot,
        "channel": samples.channel,
        "correlation": samples.correlation,
    }
    at = np.flatnonzero(bad)
    common = [key for key, labels in every.items() if np.all(labels[at] == labels[at[0]])]
    if common and len(at) > 1:
        alike = np.logical_and.reduce([every[key] == every[key][at[0]] for key in common])
        if np.count_nonzero(alike) <= MOST_MORE * len(at):
            return [line_of(samples, int(at[0]), *common)], int(np.count_nonzero(alike))
    return [line_of(samples, int(each), *every) for each in at[: MOST_LINES + 1]], len(at)


def names_correlations(samples: ResidualSamples) -> bool:
    """Whether a selection names one correlation: of Stokes parameters that were formed it has all."""
    return all(part.corr_id is None or len(part.corr_id) for part in samples.parts)
