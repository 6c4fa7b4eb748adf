"""Flag tiles of times and channels: smooth background, SumThreshold in both directions, flags extended."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import ArrayLike, NDArray

from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.compile.jit import loop
from rime_kernels.errors import InputError
from rime_kernels.flagging import steps
from rime_kernels.flagging.rank import check_eta
from rime_kernels.flagging.smoothing import MOST_SMOOTHING, smoothing_kernel, workspace
from rime_kernels.flagging.spectra import amplitudes, check_thresholds, window_scales

CAUSES = (
    "clear",
    "given",
    "spectrum",
    "time",
    "channels",
    "extension",
    "rank operator",
    "whole channel",
    "whole time",
)
"""What the codes of `flag_tiles` mean, from 0 on; a sample has the first that holds."""


@dataclass(frozen=True)
class TileOptions:
    """How tiles of times and channels are flagged.

    Attributes
    ----------
    smoothing_time, smoothing_channels : float
        Standard deviations of the Gaussian that makes the background, integrations and channels.
    n_chunk : int
        Chunks of channels, each with a noise of its own. They are fewer in tiles where they would have less
        than `MIN_SAMPLES` channels.
    reject : float
        Samples this many times the noise from the background are left out of it.
    n_sigma : float
        Threshold of a single sample, to either side.
    largest_window : int
        Longest run of samples that SumThreshold looks at; a power of two.
    falloff : float
        The threshold for the mean of w samples is n_sigma / falloff^log2(w).
    extend_time, extend_channels : int
        Flags become so wide at least, integrations and channels; odd, 1 extends nothing.
    rank_eta : float
        Share by which the scale-invariant rank operator lets flags grow; 0 leaves it out.
    whole_channel, whole_time : float
        Where more than these shares of a channel or of an integration were found, all of it is flagged.

    Raises
    ------
    InputError
        A number out of its range.
    """

    smoothing_time: float = 12.5
    smoothing_channels: float = 10.0
    n_chunk: int = 10
    reject: float = 2.0
    n_sigma: float = 4.5
    largest_window: int = 8
    falloff: float = 1.3
    extend_time: int = 3
    extend_channels: int = 3
    rank_eta: float = 0.0
    whole_channel: float = 0.6
    whole_time: float = 0.8

    def __post_init__(self) -> None:
        check_thresholds(self.n_sigma, self.largest_window, self.falloff)
        check_eta(self.rank_eta)
        for name in ("smoothing_time", "smoothing_channels"):
            value = getattr(self, name)
            if not 0.0 <= value <= MOST_SMOOTHING:
                raise InputError(f"{name} must lie in 0 .. {MOST_SMOOTHING:g}, got {value!r}")
        if not 0.0 < self.reject < math.inf:
            raise InputError(f"reject must be positive, got {self.reject!r}")
        if not isinstance(self.n_chunk, int) or self.n_chunk < 1:
            raise InputError(f"n_chunk must be a whole number above 0, got {self.n_chunk!r}")
        for name in ("extend_time", "extend_channels"):
            width = getattr(self, name)
            if not isinstance(width, int) or width < 1 or width % 2 == 0:
                raise InputError(f"{name} must be an odd number of samples, got {width!r}")
        for name in ("whole_channel", "whole_time"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise InputError(f"{name} must be a share above 0, at most 1, got {getattr(self, name)!r}")


def _numbers(options: TileOptions, n_chan: int) -> steps.Numbers:
    n_chunk = max(1, min(options.n_chunk, n_chan // steps.MIN_SAMPLES))
    return steps.Numbers(
        smoothing_kernel(options.smoothing_time),
        smoothing_kernel(options.smoothing_channels),
        smoothing_kernel(0.0),
        np.linspace(0, n_chan, n_chunk + 1).astype(np.int64),
        options.n_sigma * window_scales(options.largest_window, options.falloff),
        options.reject,
        options.extend_time // 2,
        options.extend_channels // 2,
        options.rank_eta,
        options.whole_channel,
        options.whole_time,
    )


def flag_tiles(
    amplitude: ArrayLike, flag: ArrayLike = False, options: TileOptions | None = None
) -> NDArray[np.uint8]:
    """Flag tiles of times and channels, each by itself, in the steps that `CAUSES` names.

    1. spectrum: the median over time of each channel, less its smooth background, by SumThreshold.
    2. time: amplitudes less their smooth background, which leaves out what was found so far, by SumThreshold
       along time, to both sides.
    3. channels: the same along channels.
    4. extension, rank operator, whole channels and whole times.

    The noise that a threshold is in units of is 1.4826 times the median of the absolute deviations, without
    what is flagged so far: of each channel along time, of each chunk of channels along channels. Where that
    would be of less than `MIN_SAMPLES` samples, it is of the whole tile, and where that has less, too,
    nothing is found. Nor is where noise is 0.

    Parameters
    ----------
    amplitude : float32 (n_tile, n_time, n_chan)
        One tile for each baseline and correlation, in any unit.
    flag : bool, broadcast against amplitude
        Samples that are left out: they deviate by nothing, and no shares count them. So are those that are
        not finite.
    options : TileOptions, optional

    Returns
    -------
    uint8 (n_tile, n_time, n_chan)
        Codes, as places in `CAUSES`: 0 for clear samples, 1 for those that are left out.

    Raises
    ------
    InputError
        A negative amplitude, or another shape.
    """
    value = amplitudes(amplitude, flag, ("n_tile", "n_time", "n_chan"))
    code = np.isinf(value).astype(np.uint8)
    np.copyto(value, np.float32(0.0), where=code != 0)
    if value.size:
        numbers = _numbers(options or TileOptions(), value.shape[2])
        with CALL_LOCK:
            _flag_tiles(value, numbers, min(get_num_threads(), len(value)), code)
    return code


@loop
def _flag_tiles(
    value: NDArray[np.float32], numbers: steps.Numbers, n_worker: int, code: NDArray[np.uint8]
) -> None:
    for worker in prange(n_worker):
        work = workspace(value.shape[1], value.shape[2])
        for tile in range(worker, len(value), n_worker):
            steps.flag_tile(value[tile], numbers, work, code[tile])
