"""Flag amplitudes by time and channel: smooth background, SumThreshold in both directions, wider flags."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import ArrayLike, NDArray

from rime_kernels import device
from rime_kernels.compile.call_lock import device_lock
from rime_kernels.compile.jit import loop_over_parts
from rime_kernels.errors import InputError
from rime_kernels.flagging import steps
from rime_kernels.flagging.inputs import amplitudes
from rime_kernels.flagging.lines import MIN_SAMPLES
from rime_kernels.flagging.options import WaterfallOptions, window_scales
from rime_kernels.flagging.smoothing import smoothing_kernel, workspace

CAUSES = (
    "clear",
    "given",
    "spectrum",
    "integration",
    "time",
    "channels",
    "extension",
    "rank operator",
    "whole channel",
    "whole time",
)
"""What the codes of `flag_waterfalls` mean, from 0 on; a sample has the first that holds."""


def _numbers(options: WaterfallOptions, n_chan: int) -> steps.Numbers:
    n_chunk = max(1, min(options.n_chunk, n_chan // MIN_SAMPLES))
    scales = window_scales(options.largest_window, options.falloff)
    return steps.Numbers(
        smoothing_kernel(options.smoothing_time),
        smoothing_kernel(options.smoothing_channels),
        smoothing_kernel(0.0),
        np.linspace(0, n_chan, n_chunk + 1).astype(np.int64),
        options.n_sigma * scales,
        options.integration_sigma * scales,
        options.noise == "shared",
        options.reject,
        options.extend_time // 2,
        options.extend_channels // 2,
        options.rank_eta,
        options.whole_channel,
        options.whole_time,
    )


def flag_waterfalls(
    amplitude: ArrayLike,
    flag: ArrayLike = False,
    options: WaterfallOptions | None = None,
    *,
    alike: ArrayLike = True,
    backend: device.Backend = "cpu",
) -> NDArray[np.uint8]:
    """Flag waterfalls of times and channels, each by itself, in the steps that `CAUSES` names.

    1. spectrum: the median over time of each channel, less its smooth background, by SumThreshold.
    2. integration: amplitudes less their smooth background, which leaves out what was found so far, have a
       noise in each integration; its logarithm, less a smooth background in time, by SumThreshold.
    3. time: the same deviations by SumThreshold along time, to both sides.
    4. channels: the same along channels.
    5. extension, rank operator, whole channels and whole times.

    The noise that a threshold is in units of is 1.4826 times the median of the absolute deviations, without
    what is flagged so far: of each channel along time, of each chunk of channels along channels. Where that
    would be of less than `MIN_SAMPLES` samples, it is of the whole waterfall, and where that has less, too,
    nothing is found. Nor is where noise is 0. Logarithms of the noises of integrations are judged where both
    channels and integrations are that many, and their scatter is sqrt(1.36/n) at least, n channels being
    clear: that of n normal deviations.

    Parameters
    ----------
    amplitude : float32 (n_waterfall, n_time, n_chan)
        One waterfall for each baseline and correlation, in any unit.
    flag : bool, broadcast against amplitude
        Samples that are left out: they deviate by nothing, and no shares count them. So are those that are
        not finite.
    options : WaterfallOptions, optional
    alike : bool, broadcast against (n_waterfall, n_time)
        Integrations that should have the noise of those around them; others, such as one of a shorter
        exposure, are left out of step 2.
    backend : "auto", "cpu" or "cuda"
        Where it is computed. Both find the same, but for samples whose means are within 1e-6 of a threshold:
        sums of backgrounds are of float32, in another order.

    Returns
    -------
    uint8 (n_waterfall, n_time, n_chan)
        Codes, as places in `CAUSES`: 0 for clear samples, 1 for those that are left out.

    Raises
    ------
    InputError
        A negative amplitude, or another shape.
    BackendError
        "cuda" where there is no device.
    """
    chosen, _ = device.resolve(backend)
    value = amplitudes(amplitude, flag, ("n_waterfall", "n_time", "n_chan"))
    code = np.isinf(value).astype(np.uint8)
    np.copyto(value, np.float32(0.0), where=code != 0)
    try:
        # A copy: a view cannot be written to, and loops are compiled anew for such arrays.
        are_alike = np.array(np.broadcast_to(np.asarray(alike, bool), value.shape[:2]), order="C")
    except ValueError:
        raise InputError(f"alike must be of shape (n_waterfall, n_time) = {value.shape[:2]}") from None
    if value.size:
        numbers = _numbers(options or WaterfallOptions(), value.shape[2])
        with device_lock(chosen):
            if chosen == "cuda":
                from rime_kernels.flagging.cuda.waterfalls import flag_waterfalls as on_device

                on_device(value, are_alike, numbers, code)
                return code
            _flag_waterfalls(value, are_alike, numbers, min(get_num_threads(), len(value)), code)
    return code


@loop_over_parts
def _flag_waterfalls(
    value: NDArray[np.float32],
    alike: NDArray[np.bool_],
    numbers: steps.Numbers,
    n_worker: int,
    code: NDArray[np.uint8],
) -> None:
    for worker in prange(n_worker):
        work = workspace(value.shape[1], value.shape[2])
        for waterfall in range(worker, len(value), n_worker):
            steps.flag_waterfall(value[waterfall], alike[waterfall], numbers, work, code[waterfall])
