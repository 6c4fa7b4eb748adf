"""Flagging by CUDA kernels, in the simulator too: what the CPU finds, and formulas of numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy import ndimage

from rime_kernels import BackendError, device
from rime_kernels.cuda.launch_shapes.choice import forced
from rime_kernels.cuda.launch_shapes.families import Kernel, Shape
from rime_kernels.cuda.launch_shapes.flagging import MedianShape, NoiseShape, RunShape
from rime_kernels.flagging.noises import share_noises
from rime_kernels.flagging.options import SpectrumOptions, WaterfallOptions, smoothing_weights
from rime_kernels.flagging.rank import rank_operator
from rime_kernels.flagging.spectra import (
    flag_spectra,
    noise_of_deviations,
    running_median,
    simple_threshold,
    sum_threshold,
)
from rime_kernels.flagging.waterfalls import CAUSES, flag_waterfalls

pytestmark = pytest.mark.cuda


def spectra(n_spectrum: int = 5, n_chan: int = 45, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Amplitudes of noise with interference, weak runs among it, and flags; equal amplitudes, too."""
    rng = np.random.default_rng(seed)
    shape = n_spectrum, n_chan
    amplitude = np.abs(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.float32)
    amplitude[1] = np.round(4 * amplitude[1]) / 4
    amplitude[:, 20:27] += 3
    amplitude[:, 33] += 40
    flag = rng.random(shape) < 0.1
    flag[-1, :15], flag[:, 33] = True, False
    return amplitude, flag


@pytest.mark.parametrize("width", [5, pytest.param(13, marks=pytest.mark.on_device)])
def test_deviations_are_those_of_the_cpu(cuda_backend: str, width: int) -> None:
    from rime_kernels.flagging.cuda.spectra import deviations, transposed

    amplitude, flag = spectra()
    staged = np.where(flag, np.float32(np.inf), amplitude)
    there = transposed(device.upload(staged))
    found = deviations(there, width, device.Workspace()).copy_to_host()
    with np.errstate(invalid="ignore"):
        expected = np.where(flag, np.float32(0), amplitude - running_median(amplitude, flag, width=width))
    assert np.array_equal(found, expected)


def test_noise_is_that_of_the_cpu(cuda_backend: str) -> None:
    """Of even and odd numbers of deviations, of equal ones, of two alone, and of none."""
    from rime_kernels.flagging.cuda.spectra import thresholds

    deviation = np.random.default_rng(2).normal(size=(6, 37)).astype(np.float32)
    deviation[1, 3], deviation[2] = 0, np.round(deviation[2])
    deviation[3], deviation[4, :35] = 0, 0
    amplitude = np.ones((37, 6), np.float32)
    amplitude[:6, 5], deviation[5, :6] = np.inf, 0  # 31 are left: too few
    given = device.upload(deviation), device.upload(amplitude)
    options = SpectrumOptions(n_sigma=1.0, largest_window=1)
    found = thresholds(*given, options, device.Workspace()).copy_to_host()[:, 0, 0]
    expected = np.nan_to_num(noise_of_deviations(deviation), nan=np.inf).astype(np.float32)
    expected[5] = np.inf
    assert np.array_equal(found, expected)
    assert np.isinf(expected).sum() == 2


@pytest.mark.parametrize(
    "largest", [*(pytest.param(largest, marks=pytest.mark.on_device) for largest in (1, 2, 128)), 8]
)
def test_thresholds_are_those_of_the_cpu(cuda_backend: str, largest: int) -> None:
    """Runs that lie across the edges of blocks, and at the ends of a spectrum."""
    from rime_kernels.flagging.cuda.spectra import runs
    from rime_kernels.flagging.inputs import thresholds_of

    deviation = np.random.default_rng(3).normal(size=(3, 45)).astype(np.float32)
    deviation[0, 6:14] += 1.5
    deviation[1, :4] += 2
    deviation[2, 38:] += 1.5
    noise = np.array([1.0, 0.9, 1.2])
    options = SpectrumOptions(n_sigma=2.0, largest_window=largest)
    bounds = device.upload(thresholds_of(noise, options)[:, None])
    found = runs(device.upload(deviation), bounds, device.Workspace()).copy_to_host() != 0
    expected = sum_threshold(deviation, noise, 2.0, largest_window=largest)
    assert np.array_equal(found, expected)
    assert found.any(axis=1).all()
    if largest == 1:
        assert np.array_equal(found, simple_threshold(deviation, noise, 2.0))


def test_transposed(cuda_backend: str) -> None:
    from rime_kernels.flagging.cuda.spectra import transposed

    given = np.arange(7 * 10, dtype=np.float32).reshape(7, 10)
    assert np.array_equal(transposed(device.upload(given)).copy_to_host(), given.T)


def test_matrices_transposed_one_by_one(cuda_backend: str) -> None:
    """Of bytes, with squares that are and are not padded, and threads that move one number or several."""
    from rime_kernels.cuda.launch_shapes.flagging import TransposeShape
    from rime_kernels.flagging.cuda.transposition import transpose_into

    given = np.arange(2 * 6 * 9, dtype=np.uint8).reshape(2, 6, 9)
    for shape in (TransposeShape(4, 0, 1), TransposeShape(4, 1, 2)):
        out = device.empty((2, 9, 6), np.uint8)
        transpose_into(device.upload(given), out, np.uint8, shape=shape)
        assert np.array_equal(out.copy_to_host(), given.swapaxes(1, 2))


@pytest.mark.parametrize("threshold", ["sum", "simple"])
def test_flags_are_those_of_the_cpu(cuda_backend: str, threshold: str) -> None:
    amplitude, flag = spectra(n_spectrum=2)
    options = SpectrumOptions(threshold=threshold, n_sigma=4.0)  # type: ignore[arg-type]
    found = flag_spectra(amplitude, flag, options, backend="cuda")
    assert np.array_equal(found, flag_spectra(amplitude, flag, options))
    assert found.any()


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        ("running median", MedianShape(2, 7)),
        ("running median", MedianShape(8, 64)),
        ("noise", NoiseShape(1, 3)),  # lines are longer than what threads of the simulator hold
        ("noise", NoiseShape(7, 2)),
        ("noise", NoiseShape(64, 1)),
        ("SumThreshold", RunShape(32, 1)),
        ("SumThreshold", RunShape(16, 4)),
        ("SumThreshold", RunShape(2, 30)),
    ],
    ids=str,
)
def test_no_shape_changes_a_flag(cuda_backend: str, kernel: Kernel, shape: Shape) -> None:
    amplitude, flag = spectra(n_spectrum=2)
    options = SpectrumOptions(n_sigma=4.0, width=3)
    with forced(kernel, shape):
        found = flag_spectra(amplitude, flag, options, backend="cuda")
    assert np.array_equal(found, flag_spectra(amplitude, flag, options))
    assert found.any()


@pytest.mark.parametrize("shape", [NoiseShape(1, 1), NoiseShape(2, 3), NoiseShape(16, 2)], ids=str)
def test_no_shape_changes_a_median(cuda_backend: str, shape: NoiseShape) -> None:
    """Of numbers that are all alike, of two kinds, of all magnitudes, of few, of one, and of none."""
    from rime_kernels.flagging.cuda.median_search import find_medians

    rng = np.random.default_rng(13)
    value = rng.normal(size=(7, 30)).astype(np.float32)
    value[1], value[2] = 2.5, np.where(np.arange(30) < 15, np.float32(1.0), np.float32(-3.0))
    value[3] *= np.float32(10.0) ** rng.integers(-40, 38, 30)
    value[4, 4:], value[5, 1:], value[6] = np.inf, np.inf, np.inf
    found = device.empty((7, 1), np.int32), device.empty((7, 1, 2), np.float32)
    with forced("noise", shape):
        find_medians(device.upload(value), 1, device.upload(np.array([0, 30], np.int32)), found)
    n, middle = (each.copy_to_host()[:, 0] for each in found)
    for line, count, pair in zip(value, n, middle, strict=True):
        sizes = np.sort(np.abs(line[np.isfinite(line)]))
        assert count == len(sizes)
        expected = sizes[[(count - 1) // 2, count // 2]] if count else [0.0, 0.0]
        assert np.array_equal(pair, expected)


def test_medians_of_rectangles(cuda_backend: str) -> None:
    """Of rectangles of two lines between edges: even and odd numbers of samples, infinite ones, none."""
    from rime_kernels.flagging.cuda.median_search import find_medians

    value = np.random.default_rng(4).normal(size=(4, 14)).astype(np.float32)
    value[0, 2:5], value[2:, 9:], value[1, 0] = np.inf, np.inf, 0.0
    edges = np.array([0, 4, 9, 14], np.int32)
    found = device.empty((2, 3), np.int32), device.empty((2, 3, 2), np.float32)
    find_medians(device.upload(value), 2, device.upload(edges), found)
    n, middle = (each.copy_to_host() for each in found)
    for group in range(2):
        for chunk in range(3):
            part = np.abs(value[2 * group : 2 * group + 2, edges[chunk] : edges[chunk + 1]])
            part = part[np.isfinite(part)].astype(np.float64)
            assert n[group, chunk] == part.size
            if part.size:
                assert middle[group, chunk].astype(np.float64).mean() == np.median(part)


def test_lines_are_smoothed_as_scipy_does(cuda_backend: str) -> None:
    """Convolutions of two arrays beyond whose ends all is 0, with few weights and more than lie in a block.

    Sums of 25 float32 products, each good to 6e-8 of the largest number.
    """
    from rime_kernels.flagging.cuda.smoothing import smooth_lines

    given = np.random.default_rng(5).normal(size=(2, 3, 31)).astype(np.float32)
    for sigma in (0.0, 1.0, 3.5):
        weights = smoothing_weights(sigma)
        out = device.empty((3, 31), np.float32), device.empty((3, 31), np.float32)
        smooth_lines(tuple(map(device.upload, given)), device.upload(weights.astype(np.float32)), out)
        expected = ndimage.convolve1d(given.astype(np.float64), weights, axis=2, mode="constant")
        for each, of in zip(out, expected, strict=True):
            np.testing.assert_allclose(each.copy_to_host(), of, atol=1e-6)


def test_gaps_are_interpolated_along_channels(cuda_backend: str) -> None:
    """As np.interp does, beyond the ends too; zeros where there is nothing. float32 is good to 1e-7."""
    from rime_kernels.flagging.cuda.smoothing import make_interpolate

    value = np.random.default_rng(6).uniform(1, 2, (1, 12, 5)).astype(np.float32)
    value[0, 3:6, 0], value[0, :4, 1], value[0, 7:, 2], value[0, :, 3] = np.nan, np.nan, np.nan, np.nan
    there = device.upload(value)
    make_interpolate()[(1, 2), 4](there)
    found, chan = there.copy_to_host()[0], np.arange(12)
    for t in range(5):
        known = np.isfinite(value[0, :, t])
        expected = np.interp(chan, chan[known], value[0, known, t]) if known.any() else np.zeros(12)
        np.testing.assert_allclose(found[:, t], expected, rtol=1e-6)


def runs_to_both_sides(line: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """SumThreshold of one line to both sides, run by run in float64; bounds of 1, 2, 4, ... samples."""
    high, low = np.zeros(len(line), bool), np.zeros(len(line), bool)
    for i, bound in enumerate(bounds.astype(np.float64)):
        held, window = line.astype(np.float64), 2**i
        held[high] = np.minimum(held[high], bound)
        held[low & ~high] = np.maximum(held[low & ~high], -bound)
        for s in range(len(line) - window + 1):
            mean = held[s : s + window].mean()
            for sign, into in ((1, high), (-1, low)):
                if sign * mean > bound:
                    into[s : s + window] = True
    return high | low


def test_runs_of_chunks_to_both_sides(cuda_backend: str) -> None:
    """Each chunk has its thresholds, with which windows reach 7 samples beyond it, and no further."""
    from rime_kernels.flagging.cuda.sums import find_runs

    rng = np.random.default_rng(7)
    deviation = rng.normal(size=(2, 61)).astype(np.float32)
    deviation[0, 20:29] += 1.5
    deviation[1, 28:36] -= 1.7
    edges = np.array([0, 30, 61], np.int32)
    bounds = (rng.uniform(1.8, 2.2, (2, 2, 1)) * 1.3 ** -np.arange(4.0)).astype(np.float32)
    found = device.empty(deviation.shape, np.bool_)
    find_runs(*map(device.upload, (deviation, bounds, edges)), found, longest=31, two_sided=True)
    for line in range(2):
        for chunk, (first, last) in enumerate(((0, 30), (30, 61))):
            begin = max(0, first - 7)
            expected = runs_to_both_sides(deviation[line, begin : last + 7], bounds[line, chunk])
            part = found.copy_to_host()[line, first:last]
            assert np.array_equal(part, expected[first - begin : last - begin])
        assert found.copy_to_host()[line, 24:34].any()


def test_rank_operator_is_that_of_the_cpu(cuda_backend: str) -> None:
    """The CPU's is tested against all intervals."""
    from rime_kernels.flagging.cuda.marks import make_rank

    code = np.random.default_rng(8).choice(np.array([0, 0, 1, 3], np.uint8), (2, 13, 3))
    there, sums = device.upload(code), device.empty((2, 14, 3), np.float64)
    make_rank()[(2, 1), 4](there, 0.3, sums)
    found = there.copy_to_host().swapaxes(1, 2).reshape(6, 13)
    given = code.swapaxes(1, 2).reshape(6, 13)
    expected = rank_operator(given > 1, 0.3, given == 1)
    assert np.array_equal(found > 1, expected)
    assert (found[expected & (given == 0)] == CAUSES.index("rank operator")).all()


def waterfalls(n_time: int, n_chan: int) -> tuple[np.ndarray, np.ndarray]:
    """Amplitudes of noise, fringes and interference, and flags, a band and a channel of them."""
    rng = np.random.default_rng(9)
    vis = rng.normal(size=(2, n_time, n_chan)) + 1j * rng.normal(size=(2, n_time, n_chan))
    vis += 4 * np.exp(0.2j * np.arange(n_chan))
    vis[0, :, n_chan // 3] += 30
    vis[0, n_time // 2, n_chan // 4 :] += 8
    vis[1, 1 : n_time // 3, n_chan // 2] += 20
    flag = rng.random(vis.shape) < 0.1
    flag[0, :, n_chan // 2 : n_chan // 2 + 25], flag[1, :, 3] = True, True
    return np.abs(vis).astype(np.float32), flag


@pytest.mark.parametrize(
    "shape", [(9, 12), pytest.param((60, 330), marks=pytest.mark.on_device)]
)  # noise of lines and several chunks need 32 samples and 64 channels
def test_waterfalls_are_those_of_the_cpu(cuda_backend: str, shape: tuple[int, int]) -> None:
    """All codes, with a band in which nothing is left to smooth, and flags given.

    Backgrounds differ by rounding: a mean within 1e-6 of its threshold might differ; none is.
    """
    # Where CUDA is simulated, which is slow, one of them and short windows.
    options = WaterfallOptions(
        smoothing_time=2.0, smoothing_channels=1.5, rank_eta=0.2, whole_channel=0.5, whole_time=0.5,
        largest_window=2 if device.simulated() else 8,
    )  # fmt: skip
    amplitude, flag = (each[1:] if device.simulated() else each for each in waterfalls(*shape))
    alike = np.arange(amplitude.shape[1]) % 5 > 0
    found = flag_waterfalls(amplitude, flag, options, alike=alike, backend="cuda")
    assert np.array_equal(found, flag_waterfalls(amplitude, flag, options, alike=alike))
    assert len(np.unique(found)) >= 6


def test_noises_are_shared_as_on_the_cpu(cuda_backend: str) -> None:
    """Of two waterfalls of three lines in two chunks: too few samples, a noise far from others, none at all.

    Noises and errors are float32 on the GPU, and 1e-6 is ten roundings.
    """
    from rime_kernels.flagging.cuda.noises import find_noises

    rng = np.random.default_rng(11)
    size = np.abs(rng.normal(size=(2, 3, 75))).astype(np.float32)
    size[0, 1, 40:] *= 9
    size[0, 2, :5], size[1, 0, 40:], size[1, 2, 44:] = np.inf, 0.0, np.inf
    edges = np.array([0, 40, 75], np.int32)
    parts = [part[np.isfinite(part)] for line in size.reshape(6, 75) for part in np.split(line, [40])]
    own = np.array([1.4826 * float(np.median(part)) if part.size >= 32 else np.nan for part in parts])
    own[own == 0.0] = np.nan
    expected = own.reshape(2, 6).copy()
    on_cpu = njit(lambda noise, n, line: share_noises(noise, n, line))
    for noises, some in zip(expected, (parts[:6], parts[6:]), strict=True):
        on_cpu(noises, np.array([part.size for part in some]), np.empty(6, np.float32))
    own = own.reshape(2, 6)
    ends = device.upload(np.array([0, 6], np.int32))
    for end, noises in ((ends, expected), (None, own)):
        found = find_noises(device.upload(size), device.upload(edges), end, device.Workspace())
        known = np.where(np.isnan(noises), np.inf, noises)
        assert found.copy_to_host().reshape(2, 6) == pytest.approx(known, rel=1e-6)
    assert np.isnan(own).sum() == 2
    assert (expected != own).sum() > 6


def test_noisy_integrations_are_found(cuda_backend: str) -> None:
    """Of two waterfalls: a noisy integration, three of them, and one that is left out."""
    from rime_kernels.flagging.cuda.waterfalls import Lane
    from rime_kernels.flagging.steps import INTEGRATION
    from rime_kernels.flagging.waterfalls import _numbers

    deviation = np.random.default_rng(12).normal(size=(2, 36, 34)).astype(np.float32)
    deviation[0, 9] *= 9
    deviation[1, 20:23] *= 9
    deviation[1, 30] *= 9  # it should have another noise, and is left out
    alike = np.ones(deviation.shape[:2], bool)
    alike[1, 30] = False
    code = np.zeros(deviation.shape, np.uint8)
    code[1, 4], code[0, :, 7] = 1, 1
    options = WaterfallOptions(smoothing_time=2.0, smoothing_channels=0.0, largest_window=2)
    lane, there = Lane(2, _numbers(options, 34), (36, 34)), device.upload(code)
    size = device.upload(np.where(code == 0, np.abs(deviation), np.float32(np.inf)))
    lane._find_in_integrations(device.upload(deviation), device.upload(alike), size, there)
    expected = code.copy()
    for w, t in ((0, 9), (1, 20), (1, 21), (1, 22)):
        expected[w, t] = np.where(code[w, t] == 0, INTEGRATION, code[w, t])
    assert np.array_equal(there.copy_to_host(), expected)
    assert np.array_equal(np.isinf(size.copy_to_host()), expected > 0)


@pytest.mark.on_device
def test_batches_of_waterfalls_are_streamed(cuda_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More batches than lanes, the last of them smaller: each waterfall is flagged as it is alone."""
    from rime_kernels.flagging.cuda import waterfalls as on_device

    amplitude = np.abs(np.random.default_rng(10).normal(size=(5, 6, 6))).astype(np.float32)
    amplitude.reshape(5, 36)[np.arange(5), 7 * np.arange(5)] += 1000
    monkeypatch.setattr(on_device, "BATCH", 2 * amplitude[0].size)
    options = WaterfallOptions(
        smoothing_time=0.0, smoothing_channels=2.0, n_sigma=20.0, largest_window=1, extend_time=1,
        extend_channels=1, whole_channel=1.0, whole_time=1.0,
    )  # fmt: skip
    found = flag_waterfalls(amplitude, options=options, backend="cuda")
    assert [np.flatnonzero(code).tolist() for code in found] == [[7 * k] for k in range(5)]


def test_an_unknown_backend_is_refused(cuda_backend: str) -> None:
    with pytest.raises((BackendError, ValueError), match="backend must be one of"):
        flag_spectra(np.ones((1, 40)), backend="gpu")  # type: ignore[arg-type]
