"""Noises of the lines of waterfalls on a GPU, what these have in common, and thresholds."""

from __future__ import annotations

import functools
import math

import numpy as np
from numba import float32, float64, int32, uint8

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceArray, DeviceKernel, Module, Scalar, Stream
from rime_kernels.flagging.cuda.median_search import find_medians
from rime_kernels.flagging.lines import MAD_NORMAL, MIN_SAMPLES
from rime_kernels.flagging.noises import VARIANCE, drawn, errors_from

cuda: Module = device.cuda


@device.inline
def _noise_of(n: Scalar, middle: Array, i: int, j: int) -> Scalar:
    """A noise from the middle two of deviations; 0 where they are of too few."""
    noise = 0.0
    if n >= MIN_SAMPLES:
        noise = MAD_NORMAL * _median_of(middle, i, j)
    return noise


@device.inline
def _median_of(middle: Array, i: int, j: int) -> Scalar:
    return 0.5 * (float64(middle[i, j, 0]) + float64(middle[i, j, 1]))


@functools.cache
def make_noises() -> DeviceKernel:
    """Kernel of the noises float32 (n_line, n_chunk) of lines, infinite where they are not known.

    Given are how many deviations count and their middle two, int32 (n_line, n_chunk) and float32
    (n_line, n_chunk, 2).
    """

    @device.kernel(0)
    def noises(noise: Array, n_found: Array, middle: Array) -> None:
        line = cuda.blockIdx.x
        for chunk in range(cuda.threadIdx.x, noise.shape[1], cuda.blockDim.x):
            known = _noise_of(n_found[line, chunk], middle, line, chunk)
            # Infinity stands for an unknown noise: medians leave it out, and `make_thresholds` replaces it.
            noise[line, chunk] = float32(known) if known > 0.0 else float32(float("inf"))

    return noises


@functools.cache
def make_errors() -> DeviceKernel:
    """Kernel of how far noises are from the common one of `n_line` lines, in their errors.

    Given and found is float32 (n_line, n_chunk), infinite where a noise is not known; the common noises are
    given as the middle two float32 (n_waterfall, 1, 2).
    """

    @device.kernel(0)
    def errors(noise: Array, n_found: Array, common: Array, n_line: int, out: Array) -> None:
        line = cuda.blockIdx.x
        for chunk in range(cuda.threadIdx.x, noise.shape[1], cuda.blockDim.x):
            own, far = float64(noise[line, chunk]), float("inf")
            if own < far:
                # In units of its own statistical error: lines with fewer samples may lie farther off.
                far = abs(errors_from(own, n_found[line, chunk], _median_of(common, line // n_line, 0)))
            out[line, chunk] = float32(far)

    return errors


@functools.cache
def make_share() -> DeviceKernel:
    """Kernel that draws noises to each other, in place, by `rime_kernels.flagging.noises.drawn`.

    As of `make_errors`, and the middle two of the errors, float32 (n_waterfall, 1, 2).
    """

    @device.kernel(0)
    def share(noise: Array, n_found: Array, common: Array, errors: Array, n_line: int) -> None:
        line, w = cuda.blockIdx.x, cuda.blockIdx.x // n_line
        for chunk in range(cuda.threadIdx.x, noise.shape[1], cuda.blockDim.x):
            own = float64(noise[line, chunk])
            if own < float("inf"):
                spread = MAD_NORMAL * _median_of(errors, w, 0)
                shared = drawn(own, n_found[line, chunk], _median_of(common, w, 0), spread)
                noise[line, chunk] = float32(shared)

    return share


@functools.cache
def make_log_noises() -> DeviceKernel:
    """Kernel of the logarithms of the noises of integrations, of their codes and their errors.

    There is a block for each waterfall. Given are how many deviations of each integration count and their
    middle two, int32 (n_waterfall n_time, 1) and float32 (n_waterfall n_time, 1, 2), and which integrations
    are alike, bool (n_waterfall, n_time); found are float32, uint8 and float32 of that shape: 0, left out,
    and infinite where the noise is not known or not like others.
    """

    @device.kernel(0)
    def log_noises(
        value: Array, code: Array, error: Array, alike: Array, n_found: Array, middle: Array
    ) -> None:
        w = cuda.blockIdx.x
        for t in range(cuda.threadIdx.x, value.shape[1], cuda.blockDim.x):
            i = w * value.shape[1] + t
            noise = _noise_of(n_found[i, 0], middle, i, 0)
            value[w, t], code[w, t] = float32(0.0), uint8(1)
            error[w, t] = float32(float("inf"))
            if noise > 0.0 and alike[w, t]:
                # Logarithms: the scatter of a noise is a share of it, whatever the noise is.
                value[w, t], code[w, t] = float32(math.log(noise)), uint8(0)
                # The error of ln(noise) by its n samples: the variance of a MAD is VARIANCE noise^2 / n.
                error[w, t] = float32(math.sqrt(VARIANCE / float64(n_found[i, 0])))

    return log_noises


@functools.cache
def make_raise() -> DeviceKernel:
    """Kernel that raises noises float32 (n_waterfall, 1) to medians, given by their middle two.

    There is a thread for each waterfall.
    """

    @device.kernel(0)
    def raise_noises(noise: Array, middle: Array) -> None:
        w = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if w < noise.shape[0]:
            noise[w, 0] = max(noise[w, 0], float32(_median_of(middle, w, 0)))

    return raise_noises


@functools.cache
def make_thresholds() -> DeviceKernel:
    """Kernel of thresholds float32 (n_line, n_chunk, n_window) from noises float32 (n_line, n_chunk).

    Blocks along x are of lines, along y of chunks, with one thread for each window. `n_line` lines are of one
    waterfall, whose own noise stands in where that of a line is not known; infinite where that is not, too.
    """

    @device.kernel(0)
    def thresholds(
        noise: Array, n_of_all: Array, of_all: Array, n_line: int, scales: Array, out: Array
    ) -> None:
        line, chunk, k = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        known = float64(noise[line, chunk])
        # Written so that NaN counts as unknown, too.
        if not known < float("inf"):
            known = _noise_of(n_of_all[line // n_line, 0], of_all, line // n_line, 0)
        bound = scales[k] * known if known > 0.0 else float("inf")
        out[line, chunk, k] = float32(bound)

    return thresholds


@functools.cache
def make_spectrum_thresholds() -> DeviceKernel:
    """Kernel of thresholds float32 (n_spectrum, 1, n_window) of spectra; a thread for each.

    Given are amplitudes float32 (n_chan, n_spectrum), infinite where they are left out, how many deviations
    are not zero and their middle two, int32 (n_spectrum, 1) and float32 (n_spectrum, 1, 2), and the
    thresholds of windows in those of one sample. Infinite where a noise is not known.
    """

    @device.kernel(0)
    def thresholds(
        amplitude: Array, n_found: Array, middle: Array, n_sigma: Scalar, scales: Array, out: Array
    ) -> None:
        s = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if s >= amplitude.shape[1]:
            return
        n_there = n_found[s, 0]
        # `n_found` leaves out deviations of exactly 0; a second count is only needed when they decide.
        if n_there > 0 and n_there < MIN_SAMPLES:  # deviations that are 0 may count, too
            n_there = int32(0)
            for c in range(amplitude.shape[0]):
                n_there += int32(amplitude[c, s] < float32(float("inf")))
        is_known = n_there >= MIN_SAMPLES
        noise = MAD_NORMAL * _median_of(middle, s, 0)
        for k in range(scales.shape[0]):
            out[s, 0, k] = float32(n_sigma * noise * scales[k] if is_known else float("inf"))

    return thresholds


def find_noises(
    size: DeviceArray,
    edges: DeviceArray,
    ends: DeviceArray | None,
    work: device.Workspace,
    stream: Stream = 0,
    longest: int | None = None,
) -> DeviceArray:
    """Noises float32 (n_waterfall n_line, n_chunk) of lines between edges, infinite where they are not known.

    Parameters
    ----------
    size : float32 (n_waterfall, n_line, n)
        Of deviations, infinite where they do not count.
    edges : int32 (n_chunk + 1,)
    ends : int32 (2,), or None
        0 and n_line n_chunk: noises are drawn to those of the same waterfall, as by
        `rime_kernels.flagging.noises.share_noises`. Without it, each is taken as it is.
    work : Workspace
    stream : stream
    longest : int, optional
        As of `find_medians`.
    """
    n, n_line, m = size.shape
    shape = n * n_line, len(edges) - 1
    n_found, middle = work.array("n lines", shape, np.int32), work.array("lines", (*shape, 2), np.float32)
    find_medians(size.reshape(n * n_line, m), 1, edges, (n_found, middle), stream, longest=longest)
    noise, block = work.array("noise", shape, np.float32), (shape[0], 4 if device.simulated() else 32, stream)
    # The spread is of errors, which need the common noise first: hence two searches for medians.
    make_noises()[block](noise, n_found, middle)
    if ends is not None:
        errors = work.array("errors", shape, np.float32)
        common, spread = (_medians_of_all(name, n, work) for name in ("common", "spread"))
        find_medians(noise.reshape(n, n_line * shape[1]), 1, ends, common, stream)
        make_errors()[block](noise, n_found, common[1], n_line, errors)
        find_medians(errors.reshape(n, n_line * shape[1]), 1, ends, spread, stream)
        make_share()[block](noise, n_found, common[1], spread[1], n_line)
    return noise


def _medians_of_all(name: str, n: int, work: device.Workspace) -> tuple[DeviceArray, DeviceArray]:
    """What `find_medians` fills in for whole waterfalls."""
    return work.array(f"n {name}", (n, 1), np.int32), work.array(name, (n, 1, 2), np.float32)
