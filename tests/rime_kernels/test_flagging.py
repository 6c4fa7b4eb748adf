"""Interference found in amplitudes, against formulas of numpy and scipy, and expectations on pure noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import ndimage, stats

from rime_kernels import InputError
from rime_kernels.flagging.options import SpectrumOptions, WaterfallOptions, smoothing_weights
from rime_kernels.flagging.rank import rank_operator
from rime_kernels.flagging.spectra import (
    flag_spectra,
    noise_of_deviations,
    running_median,
    simple_threshold,
    sum_threshold,
)
from rime_kernels.flagging.waterfalls import CAUSES

CODE = {name: code for code, name in enumerate(CAUSES)}
RAYLEIGH_MEDIAN, RAYLEIGH_MAD = 1.1774100225154747, 0.4485
"""Of the amplitude of noise with a real and an imaginary part of variance 1: sqrt(2 ln 2), and by numbers."""


def noise_amplitudes(*shape: int, seed: int = 1) -> np.ndarray:
    """Amplitudes of complex noise whose real and imaginary parts have variance 1."""
    rng = np.random.default_rng(seed)
    return np.abs(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.float32)


def medians(amplitude: np.ndarray, flag: np.ndarray, width: int) -> np.ndarray:
    """Running medians, window by window."""
    out = np.full(amplitude.shape, np.nan, np.float32)
    for s, i in np.ndindex(*amplitude.shape):
        window = slice(max(0, i - width // 2), i + width // 2 + 1)
        some = amplitude[s, window][~flag[s, window]]
        out[s, i] = np.median(some) if some.size else np.nan
    return out


@pytest.mark.parametrize("width", [1, 13, 101])
def test_running_median_is_the_median_of_each_window(width: int) -> None:
    """19 spectra, so that the last group is not full; equal numbers among them; one flagged throughout."""
    amplitude = noise_amplitudes(19, 70)
    amplitude[3] = np.round(amplitude[3])
    flag = np.random.default_rng(2).random(amplitude.shape) < 0.3
    flag[5], flag[6, 20:50] = True, True
    found = running_median(amplitude, flag, width=width)
    assert np.array_equal(found, medians(amplitude, flag, width), equal_nan=True)


def test_running_median_is_that_of_scipy_inside() -> None:
    amplitude = noise_amplitudes(3, 200)
    found = running_median(amplitude)
    expected = ndimage.median_filter(amplitude, (1, 13))
    assert np.array_equal(found[:, 6:-6], expected[:, 6:-6])


def test_samples_that_are_not_finite_are_left_out() -> None:
    amplitude = noise_amplitudes(1, 40)
    amplitude[0, [3, 9]] = np.nan, np.inf
    flag = np.isin(np.arange(40), [3, 9])[None]
    assert np.array_equal(running_median(amplitude), medians(amplitude, flag, 13))
    assert not flag_spectra(amplitude).any()


def test_noise_leaves_zeros_out() -> None:
    """The median of what is not zero, of even and odd numbers of samples; NaN of zeros alone."""
    deviation = np.random.default_rng(1).normal(size=(6, 51)).astype(np.float32)
    deviation[:, ::5] = 0
    deviation[1, 1], deviation[2] = 0, 0
    noise = noise_of_deviations(deviation)
    for s in (0, 1, 3, 4, 5):
        size = np.abs(deviation[s][deviation[s] != 0]).astype(np.float64)
        assert noise[s] == 1.4826 * np.median(size)
    assert math.isnan(noise[2])


@pytest.mark.parametrize("n", [1, 2, 7, 64, 101])
def test_noise_is_that_of_the_median_whatever_the_numbers_are(n: int) -> None:
    """Ties, two far clusters, numbers over all exponents, and the largest and smallest of float32."""
    rng = np.random.default_rng(n)
    lines = [
        np.ones(n),
        rng.integers(1, 4, n),
        np.where(rng.random(n) < 0.5, 1e-30, 1e30),
        10.0 ** rng.uniform(-37, 38, n),
        np.where(np.arange(n) % 2, 3e38, 1e-45),
        rng.normal(size=n),
    ]
    deviation = np.stack(lines).astype(np.float32)
    expected = 1.4826 * np.median(np.abs(deviation).astype(np.float64), axis=1)
    assert noise_of_deviations(deviation) == pytest.approx(expected, rel=1e-12)  # selected, not computed


def runs(deviation: np.ndarray, threshold: float, largest: int, falloff: float) -> np.ndarray:
    """SumThreshold of one line, run by run in float64."""
    flag = np.zeros(len(deviation), bool)
    for i in range(largest.bit_length()):
        bound, held = threshold * falloff**-i, deviation.astype(np.float64)
        held[flag] = bound
        starts = [s for s in range(len(deviation) - 2**i + 1) if held[s : s + 2**i].mean() > bound]
        for s in starts:
            flag[s : s + 2**i] = True
    return flag


@pytest.mark.parametrize(("n_sigma", "largest"), [(3.0, 8), (2.0, 16), (2.5, 1)])
def test_sum_threshold_is_that_of_each_run(n_sigma: float, largest: int) -> None:
    rng = np.random.default_rng(4)
    deviation = rng.normal(size=(8, 60)).astype(np.float32)
    deviation[:, 20:27] += 2
    noise = rng.uniform(0.8, 1.2, 8)
    found = sum_threshold(deviation, noise, n_sigma, largest_window=largest)
    expected = [runs(d, n_sigma * n, largest, 1.2) for d, n in zip(deviation, noise, strict=True)]
    assert np.array_equal(found, expected)
    assert found.any()
    if largest == 1:
        assert np.array_equal(found, simple_threshold(deviation, noise, n_sigma))


def test_a_run_that_is_weak_in_each_sample_is_found() -> None:
    """Eight samples of 0.6 thresholds: their mean exceeds 1.2^-3 = 0.579 of it; of 0.57, it does not."""
    deviation = np.zeros((2, 40), np.float32)
    deviation[0, 10:18], deviation[1, 10:18] = 6.0, 5.7
    found = sum_threshold(deviation, [1.0, 1.0], 10.0)
    assert np.array_equal(np.flatnonzero(found[0]), np.arange(10, 18))
    assert not found[1].any()


def test_a_strong_sample_does_not_flag_its_neighbours() -> None:
    deviation = np.zeros((1, 40), np.float32)
    deviation[0, 20] = 1e6
    assert np.flatnonzero(sum_threshold(deviation, [1.0])).tolist() == [20]


def test_nothing_is_found_where_noise_is_not_known() -> None:
    deviation = np.full((3, 20), 100, np.float32)
    assert not sum_threshold(deviation, [0.0, np.nan, np.inf]).any()
    assert not simple_threshold(deviation, [0.0, np.nan, np.inf]).any()


@pytest.mark.parametrize("threshold", ["sum", "simple"])
def test_strong_samples_are_found_and_nothing_else(threshold: str) -> None:
    """One of 16 samples at 50 to 70 sigma, as the pipeline of MeerKAT is tested."""
    rng = np.random.default_rng(5)
    amplitude = noise_amplitudes(200, 512, seed=5)
    hit = rng.random(amplitude.shape) < 1 / 16
    amplitude[hit] += rng.uniform(50, 70, int(hit.sum()))
    options = SpectrumOptions(threshold=threshold)  # type: ignore[arg-type]
    found = flag_spectra(amplitude, False, options)
    if threshold == "simple":
        assert np.array_equal(found, hit)
    else:  # a run that begins or ends at a strong sample may hold a clear one
        assert found[hit].all()
        assert np.mean(found[~hit]) < 0.01


def test_false_alarms_of_single_samples_are_those_of_rayleighs_law() -> None:
    """P(a > median + n 1.4826 MAD) = exp(-(median + n 1.4826 MAD)^2/2) where both are known well.

    A running median of 101 channels scatters by 0.1, which adds about 10 % at 3 sigma; the count is
    good to 5 %.
    """
    amplitude = noise_amplitudes(400, 1024, seed=6)
    found = flag_spectra(amplitude, False, SpectrumOptions(101, "simple", 3.0))
    expected = math.exp(-((RAYLEIGH_MEDIAN + 3.0 * 1.4826 * RAYLEIGH_MAD) ** 2) / 2)
    assert found.mean() == pytest.approx(expected, rel=0.25)


def test_mad_of_rayleighs_law() -> None:
    """The constant above: half of all amplitudes are within it of the median."""
    law = stats.rayleigh()
    inside = law.cdf(RAYLEIGH_MEDIAN + RAYLEIGH_MAD) - law.cdf(RAYLEIGH_MEDIAN - RAYLEIGH_MAD)
    assert inside == pytest.approx(0.5, abs=1e-4)  # four digits are stated


def intervals(n: int) -> Iterator[tuple[int, int]]:
    return ((a, b) for a in range(n) for b in range(a + 1, n + 1))


@pytest.mark.parametrize("eta", [0.0, 0.2, 0.5])
def test_rank_operator_looks_at_all_intervals(eta: float) -> None:
    rng = np.random.default_rng(7)
    flag, given = rng.random((10, 24)) < 0.3, rng.random((10, 24)) < 0.1
    flag &= ~given
    expected = flag.copy()
    for line in range(10):
        for a, b in intervals(24):
            n_flagged = np.count_nonzero(flag[line, a:b])
            n_clear = np.count_nonzero(~flag[line, a:b] & ~given[line, a:b])
            # In whole numbers, so that equality is equality.
            if n_flagged and round(10 * eta) * n_flagged >= round(10 * (1 - eta)) * n_clear:
                expected[line, a:b] |= ~given[line, a:b]
    assert np.array_equal(rank_operator(flag, eta, given), expected)


def test_rank_operator_grows_runs_by_their_share() -> None:
    """Of eta = 0.2, n flags grow by n/4 to either side, whatever n is."""
    for n in (4, 40, 400):
        flag = np.zeros((1, 1000), bool)
        flag[0, 500 : 500 + n] = True
        found = np.flatnonzero(rank_operator(flag, 0.2))
        assert (found[0], found[-1]) == (500 - n // 4, 500 + n - 1 + n // 4)


def test_the_smoothing_kernel_is_a_gaussian() -> None:
    """Unit sum, the variance of four boxes, (2 r + 1)^2 - 1 twelfths each, and nearly normal values."""
    kernel = smoothing_weights(10.0)
    radius = (len(kernel) - 1) // 8
    x = np.arange(len(kernel)) - len(kernel) // 2
    assert kernel.sum() == pytest.approx(1, abs=1e-12)
    assert np.sum(kernel * x**2) == pytest.approx(4 * ((2 * radius + 1) ** 2 - 1) / 12, rel=1e-12)
    # The excess kurtosis of four boxes is -1.2/4: they are a normal density to 4 % of its peak.
    sigma = np.sqrt(np.sum(kernel * x**2))
    assert np.abs(kernel - stats.norm.pdf(x, scale=sigma)).max() < 0.04 * kernel.max()
    assert np.array_equal(smoothing_weights(0.0), [1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: running_median(np.ones((2, 9)), width=4), "width must be an odd number of channels, got 4"),
        (lambda: running_median(np.ones(9)), r"amplitude must have shape \(n_spectrum, n_chan\)"),
        (lambda: running_median(-np.ones((2, 9))), "amplitude must not be negative"),
        (
            lambda: SpectrumOptions(largest_window=6),
            "largest_window must be a power of two, as 8, up to 128, got 6",
        ),
        (lambda: SpectrumOptions(largest_window=256), "up to 128, got 256"),
        (lambda: SpectrumOptions(n_sigma=0.0), "n_sigma must be positive"),
        (lambda: SpectrumOptions(falloff=0.5), "falloff must be 1 or more"),
        (lambda: WaterfallOptions(extend_time=2), "extend_time must be an odd number of samples, got 2"),
        (lambda: WaterfallOptions(whole_time=0.0), "whole_time must be a share above 0"),
        (lambda: WaterfallOptions(smoothing_time=-1.0), "smoothing_time must lie in 0"),
        (lambda: WaterfallOptions(integration_sigma=-1.0), "integration_sigma must be 0 or more, got -1.0"),
        (lambda: WaterfallOptions(noise="each"), "noise must be one of 'shared', 'own'; got 'each'"),  # type: ignore[arg-type]
        (lambda: WaterfallOptions(rank_eta=1.0), "rank_eta must be at least 0 and below 1"),
        (lambda: sum_threshold(np.full((1, 9), np.nan), [1.0]), "deviation must be finite"),
    ],
)
def test_what_cannot_be_is_refused(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
