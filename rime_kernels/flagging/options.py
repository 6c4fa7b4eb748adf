"""How interference is looked for: options and their checks, without Numba."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.errors import InputError

MOST_SMOOTHING = 1e4
"""Largest standard deviation of the Gaussian that makes a background, samples."""
MOST_WINDOW = 128
"""Samples of a window: what the threads of a GPU's block can look at together."""
N_BOX = 4
"""Box filters in succession that stand for a Gaussian."""
LEFT = 2.0**-64
"""Of its weight, what a flagged visibility keeps in an average: float64 does not see it beside others."""


@dataclass(frozen=True)
class SpectrumOptions:
    """How single spectra are flagged.

    Attributes
    ----------
    width : int
        Channels of the running median; odd.
    threshold : "sum" or "simple"
    n_sigma : float
        Of a single sample.
    largest_window : int
        Longest run of channels that SumThreshold looks at; a power of two.
    falloff : float
        SumThreshold's threshold for the mean of 2^i channels is n_sigma falloff^-i.

    Raises
    ------
    InputError
        A number out of its range.
    """

    width: int = 13
    threshold: Literal["sum", "simple"] = "sum"
    n_sigma: float = 11.0
    largest_window: int = 8
    falloff: float = 1.2

    def __post_init__(self) -> None:
        check_width(self.width)
        check.one_of("threshold", self.threshold, ("sum", "simple"))
        check_thresholds(self.n_sigma, self.largest_window, self.falloff)


@dataclass(frozen=True)
class WaterfallOptions:
    """How waterfalls of times and channels are flagged.

    Attributes
    ----------
    smoothing_time, smoothing_channels : float
        Standard deviations of the Gaussian that makes the background, integrations and channels.
    n_chunk : int
        Chunks of channels, each with a noise of its own; fewer where they would have less than `MIN_SAMPLES`
        channels.
    noise : "shared" or "own"
        Whether the noises of the channels of a waterfall, and those of its integrations, are drawn to each
        other by as much as their errors explain (`rime_kernels.flagging.noises.share_noises`), or each is
        taken as it is.
    reject : float
        Samples this many times the noise from the background are left out of it.
    n_sigma : float
        Threshold of a single sample, to either side.
    integration_sigma : float
        Threshold of the noise of an integration over the band, in units of the scatter of such noises, to
        either side; 0 looks at none of them.
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
    noise: Literal["shared", "own"] = "shared"
    reject: float = 2.0
    n_sigma: float = 4.5
    integration_sigma: float = 4.5
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
        check.one_of("noise", self.noise, ("shared", "own"))
        for name in ("smoothing_time", "smoothing_channels"):
            value = getattr(self, name)
            if not 0.0 <= value <= MOST_SMOOTHING:
                raise InputError(f"{name} must lie in 0 .. {MOST_SMOOTHING:g}, got {value!r}")
        if not 0.0 <= self.integration_sigma < math.inf:
            raise InputError(f"integration_sigma must be 0 or more, got {self.integration_sigma!r}")
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


def check_width(width: int) -> None:
    """Refuse a width of a running median that is not odd."""
    if not isinstance(width, int) or width < 1 or width % 2 == 0:
        raise InputError(f"width must be an odd number of channels, got {width!r}")


def check_thresholds(n_sigma: float, largest_window: int, falloff: float) -> None:
    """Refuse numbers that are no thresholds."""
    if not 0.0 < n_sigma < math.inf:
        raise InputError(f"n_sigma must be positive, got {n_sigma!r}")
    is_whole = isinstance(largest_window, int) and largest_window > 0
    is_power = is_whole and not largest_window & (largest_window - 1)
    if not is_power or largest_window > MOST_WINDOW:
        raise InputError(
            f"largest_window must be a power of two, as 8, up to {MOST_WINDOW}, got {largest_window!r}"
        )
    if not 1.0 <= falloff < math.inf:
        raise InputError(f"falloff must be 1 or more, got {falloff!r}")


def window_scales(largest_window: int, falloff: float) -> NDArray[np.float64]:
    """Thresholds of windows of 1, 2, 4, ... samples, in those of one sample: falloff^-log2(window)."""
    return falloff ** -np.arange(largest_window.bit_length(), dtype=np.float64)


def check_eta(eta: float) -> None:
    """Refuse what is no share."""
    if not 0.0 <= eta < 1.0:
        raise InputError(f"rank_eta must be at least 0 and below 1, got {eta!r}")


def smoothing_weights(sigma: float) -> NDArray[np.float64]:
    """Weights of a Gaussian with finite support: four box filters one after the other.

    The boxes have 2 r + 1 samples with r = floor(sqrt(12 sigma^2 / 4 + 1) / 2), so that their variances add
    up to about sigma^2 (Getreuer 2013, Image Processing On Line 3, 286).

    Parameters
    ----------
    sigma : float
        Standard deviation, samples; 0 smooths nothing.

    Returns
    -------
    float64 (8 r + 1,)
        Their sum is 1.
    """
    radius = int(0.5 * math.sqrt(12.0 * sigma**2 / N_BOX + 1.0))
    box = np.full(2 * radius + 1, 1.0 / (2 * radius + 1))
    weights = np.ones(1)
    for _ in range(N_BOX):
        weights = np.convolve(weights, box)
    return weights
