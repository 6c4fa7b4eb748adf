"""What the calls of flagging work on, checked: amplitudes, deviations, thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.errors import InputError
from rime_kernels.flagging.options import SpectrumOptions, window_scales

Amplitude = NDArray[np.float32]


def amplitudes(amplitude: ArrayLike, flag: ArrayLike, shape: check.Shape) -> Amplitude:
    """Amplitudes as float32, infinite where they are flagged or not finite."""
    sizes: dict[str, int] = {}
    value = check.array("amplitude", amplitude, np.float32, shape, sizes)
    given = np.broadcast_to(np.asarray(flag, bool), value.shape)
    if value.size and np.min(value, where=np.isfinite(value) & ~given, initial=0.0) < 0.0:
        raise InputError("amplitude must not be negative")
    return np.where(given | ~np.isfinite(value), np.float32(np.inf), value)


def with_thresholds(
    deviation: ArrayLike, noise: ArrayLike, options: SpectrumOptions
) -> tuple[Amplitude, Amplitude]:
    """Deviations, and thresholds float32 (n_spectrum, n_window), infinite where noise is no noise."""
    sizes: dict[str, int] = {}
    value = check.array("deviation", deviation, np.float32, ("n_spectrum", "n_chan"), sizes)
    check.finite("deviation", value)
    sigma = check.array("noise", noise, np.float64, ("n_spectrum",), sizes)
    return value, thresholds_of(sigma, options)


def thresholds_of(noise: NDArray[np.float64], options: SpectrumOptions) -> Amplitude:
    """Thresholds float32 (n_spectrum, n_window), infinite where noise is no noise."""
    usable = np.where((noise > 0.0) & np.isfinite(noise), noise, np.inf)
    scales = window_scales(options.largest_window, options.falloff)
    return (options.n_sigma * usable[:, None] * scales).astype(np.float32)
