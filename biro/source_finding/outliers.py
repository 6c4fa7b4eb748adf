"""Single visibilities that no source explains, which the search leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.causes.outliers import MEDIAN_POWER, MOST_SHARE, bound, outlier_texts
from biro.diagnosis.causes.samples import ResidualSamples
from biro.diagnosis.flag_command import command_of, lines_of
from biro.diagnosis.flag_target import FlagTarget
from biro.diagnosis.verdict_text import NEXT
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.source_finding.fitting.visibility_data import Vis, VisibilityData

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Masks = tuple[Mask, ...]
"""Rows and channels of each partition, bool (n_row, n_chan)."""
LEAST_BASELINES = 3
"""Baselines of an antenna at a time of which a median is taken: of fewer, one outlier would move it."""


def outliers_of(
    observation: Observation, data: VisibilityData, residual: Sequence[Vis], *, local: bool = True
) -> Masks:
    """Visibilities of Stokes I whose residuals no noise explains: |r|^2 w > 2 s^2 (ln n + 14).

    s^2 is that of the median of |r|^2 w, the largest of four: of all data, of the baseline, and of each of
    the two antennas at that time. Noise that differs from the weights, structure that is not found yet, and
    an antenna that fails for a time make no outliers.

    Parameters
    ----------
    observation : Observation
    data : VisibilityData
        Of the observation.
    residual : sequence of complex128 (n,), Jy
        In the order of the chunks.
    local : bool
        False: s^2 is that of all data, as for `biro.diagnosis.causes.outliers.outlier_candidates`.
    """
    chunks = data.chunks
    power = np.concatenate([np.abs(r * c.root) ** 2 for r, c in zip(residual, chunks, strict=True)])
    names = ("baseline", "antenna1", "antenna2", "time")
    baseline, first, second, time = (np.concatenate([getattr(c, name) for c in chunks]) for name in names)
    slot = np.unique(time, return_inverse=True)[1].ravel()
    level = np.full(power.shape, np.median(power))
    if local:
        of_antennas = _of_antennas(power, slot, first, second)
        level = np.maximum.reduce([level, _medians(baseline, power)[0], of_antennas])
    bad = power > bound(level / MEDIAN_POWER, power.size)
    if not 0 < np.count_nonzero(bad) <= MOST_SHARE * power.size:
        bad[:] = False
    part, row, chan = (values[bad] for values in data.places)
    return masks_of(observation, zip(part.tolist(), row.tolist(), chan.tolist(), strict=True))


def described(
    observation: Observation, data: VisibilityData, residual: Sequence[Vis], left_out: Masks
) -> tuple[str, str]:
    """What a fit leaves out, and the command that flags it; "" where there is none.

    Parameters
    ----------
    observation : Observation
    data : VisibilityData
        Of the observation.
    residual : sequence of complex128 (n,), Jy
        In the order of the chunks.
    left_out : tuple of bool (n_row, n_chan)
    """
    root = np.concatenate([chunk.root for chunk in data.chunks])
    scaled = np.concatenate(residual) * root
    level = float(np.median(np.abs(scaled) ** 2)) / MEDIAN_POWER
    part, row, chan = data.places
    samples = ResidualSamples(
        parts=tuple(map(_as_stokes_i, observation.partitions)),
        names=observation.antenna_names,
        residual=scaled,
        model=np.zeros_like(scaled),
        root=root,
        part=part,
        row=row,
        chan=chan,
        corr=np.zeros_like(part),
        worst=np.zeros(part.shape, bool),
        target=FlagTarget.of(observation),
        utc_offset=observation.utc_offset,
    )
    bad = np.zeros(part.shape, bool)
    for i, mask in enumerate(left_out):
        bad[part == i] = mask[row[part == i], chan[part == i]]
    verdict, remedy = outlier_texts(samples, bad, level)
    lines, _ = lines_of(samples, bad)
    text = f"OUTLIERS: left out of the fit above{NEXT}{verdict} {remedy.rstrip('.')}"
    return text, command_of(samples, lines)


def _as_stokes_i(part: Partition) -> Partition:
    """A partition as one of Stokes I, of whose values nothing is wanted."""
    first, none = np.s_[:, :, :1], np.zeros(0, np.int64)
    return replace(part, vis=part.vis[first], weight=part.weight[first], corr_type=("I",), corr_id=none)


def without(observation: Observation, left_out: Masks) -> Observation:
    """The observation with some rows and channels flagged."""
    parts = []
    for part, mask in zip(observation.partitions, left_out, strict=True):
        if mask.any():
            vis, weight = part.vis.copy(), part.weight.copy()
            vis[mask], weight[mask] = 0, 0
            part = replace(part, vis=vis, weight=weight)
        parts.append(part)
    return replace(observation, partitions=tuple(parts))


def masks_of(observation: Observation, places: Iterable[tuple[int, int, int]]) -> Masks:
    """Visibilities at these numbers of partition, row and channel."""
    found = tuple(np.zeros(part.vis.shape[:2], bool) for part in observation.partitions)
    for part, row, chan in places:
        found[part][row, chan] = True
    return found


def count(masks: Masks) -> int:
    """How many rows and channels."""
    return sum(int(np.count_nonzero(mask)) for mask in masks)


def _of_antennas(
    power: Array, slot: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
) -> Array:
    """The median of what the baselines of an antenna have at a time, of the antenna where this is more."""
    n_antenna = int(max(first.max(initial=0), second.max(initial=0))) + 1
    row = (slot * n_antenna + first) * n_antenna + second
    one, place = np.unique(row, return_index=True)[1], np.unique(row, return_inverse=True)[1].ravel()
    of_row = _medians(row, power)[0][one]
    # Each antenna has the baselines in which it is the first, and those in which it is the second.
    ends = np.concatenate([slot[one] * n_antenna + end[one] for end in (first, second)])
    level, n_baseline = _medians(ends, np.tile(of_row, 2))
    level = np.where(n_baseline >= LEAST_BASELINES, level, 0.0)
    return np.asarray(level.reshape(2, -1).max(axis=0)[place])


def _medians(group: NDArray[np.int64], values: Array) -> tuple[Array, NDArray[np.int64]]:
    """The median of the values of the group that each of them is in, and how many these are."""
    ordered = values[np.lexsort((values, group))]
    _, index, n = np.unique(group, return_inverse=True, return_counts=True)
    first, index = np.cumsum(n) - n, index.ravel()
    middle = 0.5 * (ordered[first + (n - 1) // 2] + ordered[first + n // 2])
    return middle[index], n[index]
