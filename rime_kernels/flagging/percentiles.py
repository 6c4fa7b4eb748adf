"""Percentiles of lines of amplitudes, without what is flagged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import device
from rime_kernels.errors import InputError
from rime_kernels.flagging.inputs import amplitudes

Percentiles = NDArray[np.float32]


def line_percentiles(
    amplitude: ArrayLike,
    flag: ArrayLike = False,
    percents: Sequence[float] = (0.0, 25.0, 50.0, 75.0, 100.0),
    *,
    backend: device.Backend = "cpu",
) -> Percentiles:
    """Percentiles of each line of amplitudes: the least sample that so many percent do not exceed.

    Of n samples that is the one of rank ceil(n p/100), from 1 on: one that there is, and not a mean of two.

    Parameters
    ----------
    amplitude : float32 (n_line, n)
        In any unit; lines are channels, baselines, or what percentiles are wanted of.
    flag : bool, broadcast against amplitude
        Samples that are left out. So are those that are not finite.
    percents : sequence of float
        Each in 0 .. 100.
    backend : "auto", "cpu" or "cuda"
        Where it is computed. Both find the same.

    Returns
    -------
    float32 (n_line, n_percent)
        NaN where a line has no sample.

    Raises
    ------
    InputError
        A percentage out of its range, a negative amplitude, or another shape.
    BackendError
        "cuda" where there is no device.
    """
    shares = np.array([float(each) / 100.0 for each in percents])
    if not ((shares >= 0.0) & (shares <= 1.0)).all():
        raise InputError(f"percents must lie in 0 .. 100, got {list(percents)}")
    staged = amplitudes(amplitude, flag, ("n_line", "n"))
    if not staged.size or not shares.size:
        return np.full((len(staged), shares.size), np.nan, np.float32)
    if device.resolve(backend)[0] == "cuda":
        from rime_kernels.flagging.cuda.median_search import percentiles as on_device

        return on_device(staged, shares)
    n = np.isfinite(staged).sum(axis=1)
    rank = np.maximum(1, np.ceil(shares * n[:, None])).astype(np.int64)
    found = np.take_along_axis(np.sort(staged, axis=1), rank - 1, axis=1)
    return np.where(n[:, None] > 0, found, np.float32(np.nan))
