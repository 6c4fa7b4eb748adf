"""Find interference in the visibilities of a partition, baseline by baseline, with its causes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.flagging.strategy import Strategy
from rime_kernels.arrays.time_slots import spacing_of_baselines
from rime_kernels.choices import Backend
from rime_kernels.engine.device_threads import HostCPU
from rime_kernels.engine.local_shards import DeviceWorker
from rime_kernels.flagging.options import smoothing_weights

CAUSES = (
    *("clear", "given", "spectrum", "integration", "time", "channels", "extension", "rank operator"),
    *("whole channel", "whole time", "static mask", "zero", "not finite"),
)
"""What a code means; those up to "whole time" are of `rime_kernels.flagging.waterfalls.CAUSES`."""
CLEAR, GIVEN, CHANNELS = 0, 1, CAUSES.index("channels")
MASK, ZERO, NOT_FINITE = range(CAUSES.index("static mask"), len(CAUSES))
GAP = 10.0
"""Integrations without a visibility across which no background is smoothed, and no run of samples reaches."""
BYTES = 48
"""Of memory for each visibility that is looked at: as it is read, its causes, and what sums it up."""
ALIKE = 0.02
"""Exposures that differ by less make the same noise: 1 % of it, a quarter of the error of 1000 channels."""
MOST_SAMPLES = 1 << 25
"""Visibilities that are in one call of the kernels, so that copies stay small beside a large set."""


class FlaggedData(NamedTuple):
    """Visibilities of one partition as flagging looks at them.

    Attributes
    ----------
    vis : complex64 or complex128 (n_row, n_chan, n_corr)
    usable : bool (n_row, n_chan, n_corr)
        What is not left out for other causes.
    antenna1, antenna2 : int32 (n_row,)
    time : float64 (n_row,), s
        Of the time slots.
    uvw : float64 (n_row, 3), m
    chan_freq, chan_width : float64 (n_chan,), Hz
    model : as vis, or None
        What is subtracted before amplitudes are looked at.
    exposure : float64 (n_row,), s, or None
        Noises of integrations are compared where these are alike; None where all are.
    times : float64 (n_time,), s, or None
        Distinct times of the partition, where these are the rows of some of its baselines.
    spacing : float, s, or None
        Median step between times of a baseline of the partition, where these are some of its baselines.
    """

    vis: NDArray[np.complexfloating]
    usable: NDArray[np.bool_]
    antenna1: NDArray[np.int32]
    antenna2: NDArray[np.int32]
    time: NDArray[np.float64]
    uvw: NDArray[np.float64]
    chan_freq: NDArray[np.float64]
    chan_width: NDArray[np.float64]
    model: NDArray[np.complexfloating] | None = None
    exposure: NDArray[np.float64] | None = None
    times: NDArray[np.float64] | None = None
    spacing: float | None = None

    @property
    def all_times(self) -> NDArray[np.float64]:
        """Distinct times of the partition."""
        return np.unique(self.time) if self.times is None else self.times

    @property
    def spacing_of_times(self) -> float:
        """Median step between times of a baseline of the partition, s."""
        if self.spacing is not None:
            return self.spacing
        return spacing_of_baselines(self.time, self.antenna1, self.antenna2)


@dataclass(frozen=True)
class FoundInterference:
    """What was found in the visibilities of a partition.

    Attributes
    ----------
    code : uint8 (n_row, n_chan, n_corr)
        Places in `CAUSES`: 0 for clear visibilities, 1 for those that were left out before.
    n_unjudged : int
        Clear visibilities among too few others for a noise: a threshold looked at none of them.
    """

    code: NDArray[np.uint8]
    n_unjudged: int

    @property
    def flag(self) -> NDArray[np.bool_]:
        """Which visibilities are flagged now and were not before."""
        return self.code > GIVEN

    @property
    def counts(self) -> dict[str, int]:
        """Visibilities by cause."""
        return dict(zip(CAUSES, map(int, np.bincount(self.code.ravel(), minlength=len(CAUSES))), strict=True))


def causes_text(counts: Mapping[str, int]) -> str:
    """Causes of what was found, the most frequent first: "time 120, spectrum 8"."""
    found = sorted(((n, cause) for cause, n in counts.items() if n and cause in CAUSES[2:]), reverse=True)
    return ", ".join(f"{cause} {n}" for n, cause in found) or "nothing"


def find_interference(
    samples: FlaggedData,
    strategy: Strategy,
    backend: Literal["cpu", "cuda"] = "cpu",
    devices: Sequence[DeviceWorker] = (),
) -> FoundInterference:
    """Find interference in a partition.

    Each correlation of each baseline is looked at by itself, in the order of time; less a model, where
    there is one. Where it was not observed for more than `GAP` typical integrations, the background is not
    smoothed across, and no run of samples reaches across, but the noise is of both sides. Masked
    frequencies, visibilities that are exactly 0 and those that are not finite are flagged first, and left
    out of all else.

    Parameters
    ----------
    samples : FlaggedData
    strategy : Strategy
    backend : "cpu" or "cuda"
        Where amplitudes are judged.
    devices : sequence of DeviceWorker, optional
        Threads of GPUs, which take baselines in turn. Default: the thread that calls.

    Returns
    -------
    FoundInterference
    """
    code, n_unjudged = _first_causes(samples, strategy), 0
    workers, begun = devices or [HostCPU()], deque[_OpenWaterfalls]()

    def take() -> int:
        rows, before, judged = begun.popleft()
        found, lone = judged.result()
        is_row, joined = rows >= 0, np.where(before != CLEAR, before, found)
        joined = np.moveaxis(joined.reshape(len(rows), -1, *before.shape[1:]), 1, 3)
        code[rows[is_row]] = joined[is_row]
        return lone

    for n, rows in enumerate(_waterfalls(samples, reach(strategy), len(workers))):
        is_row = rows >= 0
        part = np.where(is_row[:, :, None, None], code[rows], np.uint8(GIVEN))
        with np.errstate(invalid="ignore"):
            vis = samples.vis[rows]
            amplitude = np.abs(vis if samples.model is None else vis - samples.model[rows])
        before = _as_lines(part)
        alike = np.repeat(_are_alike(samples, rows), part.shape[3], axis=0)
        lines = _as_lines(amplitude).astype(np.float32)
        work = partial(judge, lines, before != CLEAR, alike, strategy, backend)
        begun.append(_OpenWaterfalls(rows, before, workers[n % len(workers)].submit(work)))
        if len(begun) > len(devices):  # each has something to do while the next one is made ready
            n_unjudged += take()
    while begun:
        n_unjudged += take()
    return FoundInterference(code, n_unjudged)


class _OpenWaterfalls(NamedTuple):
    """Waterfalls that are looked at: their rows, causes known before, and what comes of them."""

    rows: NDArray[np.int64]
    before: NDArray[np.generic]
    judged: Future[tuple[NDArray[np.uint8], int]]


def _are_alike(samples: FlaggedData, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Slots whose exposure is that of most of their baseline, within `ALIKE`; all without exposures."""
    if samples.exposure is None:
        return np.ones(rows.shape, bool)
    exposure = np.where(rows >= 0, samples.exposure[rows], np.nan)
    usual = np.nanmedian(exposure, axis=1, keepdims=True)
    return np.asarray(np.isnan(exposure) | (np.abs(exposure - usual) <= ALIKE * np.abs(usual)))


def reach(strategy: Strategy) -> int:
    """How many integrations the background and runs of samples reach across."""
    if strategy.method != "waterfalls":
        return 0
    return (
        len(smoothing_weights(strategy.waterfalls.smoothing_time)) // 2 + strategy.waterfalls.largest_window
    )


def _first_causes(samples: FlaggedData, strategy: Strategy) -> NDArray[np.uint8]:
    """Codes of what is flagged without looking at others."""
    code = np.zeros(samples.vis.shape, np.uint8)
    code[samples.vis == 0] = ZERO
    code[~np.isfinite(samples.vis)] = NOT_FINITE
    for mask in strategy.masks:
        covered = mask.covers(samples.uvw, samples.chan_freq, samples.chan_width)
        np.copyto(code, np.uint8(MASK), where=covered[:, :, None])
    code[~samples.usable] = GIVEN
    return code


def _as_lines(cells: NDArray[np.generic]) -> NDArray[np.generic]:
    """(n_waterfall, n_time, n_chan, n_corr) as (n_waterfall n_corr, n_time, n_chan)."""
    moved = np.moveaxis(cells, 3, 1)
    return np.ascontiguousarray(moved).reshape(-1, *moved.shape[2:])


def _waterfalls(samples: FlaggedData, n_pad: int, n_part: int) -> Iterator[NDArray[np.int64]]:
    """Rows of baselines in the order of time, int64 (n_baseline, n_slot): those of equal length together.

    Slots of -1 have no row: there are `n_pad` of them in each gap. Baselines of equal length come in so many
    parts at least.
    """
    n_antenna = 1 + max(int(samples.antenna1.max(initial=0)), int(samples.antenna2.max(initial=0)))
    first = np.minimum(samples.antenna1, samples.antenna2).astype(np.int64)
    baseline = first * n_antenna + np.maximum(samples.antenna1, samples.antenna2)
    order = np.lexsort((samples.time, baseline))
    interval = samples.spacing_of_times
    is_gap = np.diff(samples.time[order]) > GAP * interval
    parts = np.split(order, np.flatnonzero(np.diff(baseline[order])) + 1) if len(order) else []
    gaps = np.split(np.append(False, is_gap), np.cumsum([len(part) for part in parts])[:-1])
    slots: dict[int, list[NDArray[np.int64]]] = {}
    for rows, gap in zip(parts, gaps, strict=True):
        place = np.arange(len(rows)) + n_pad * np.cumsum(np.append(False, gap[1:]))
        line = np.full(place[-1] + 1, -1)
        line[place] = rows
        slots.setdefault(len(line), []).append(line)
    size = max(1, int(np.prod(samples.vis.shape[1:])))
    for length, lines in slots.items():
        step = max(1, min(MOST_SAMPLES // (length * size), -(-len(lines) // n_part)))
        for at in range(0, len(lines), step):
            yield np.stack(lines[at : at + step])


def judge(
    amplitude: NDArray[np.float32],
    given: NDArray[np.bool_],
    alike: NDArray[np.bool_],
    strategy: Strategy,
    backend: Backend,
) -> tuple[NDArray[np.uint8], int]:
    """Codes of lines (n_line, n_time, n_chan), and how many samples no threshold looked at.

    `alike` are the integrations that should have the same noise, (n_line, n_time).
    """
    from rime_kernels.flagging.lines import MIN_SAMPLES
    from rime_kernels.flagging.spectra import flag_spectra
    from rime_kernels.flagging.waterfalls import flag_waterfalls

    amplitude = np.where(given, np.float32(0.0), amplitude)
    if strategy.method == "waterfalls":
        code = flag_waterfalls(amplitude, given, strategy.waterfalls, alike=alike, backend=backend)
        n_clear = np.count_nonzero(~given, axis=(1, 2))
    else:
        n_chan = amplitude.shape[2]
        lines = amplitude.reshape(-1, n_chan), given.reshape(-1, n_chan)
        flag = flag_spectra(*lines, strategy.spectra, backend=backend)
        code = np.where(flag, np.uint8(CHANNELS), np.uint8(CLEAR)).reshape(amplitude.shape)
        n_clear = np.count_nonzero(~given, axis=2).ravel()
    return code, int(n_clear[n_clear < MIN_SAMPLES].sum())
