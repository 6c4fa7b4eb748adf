"""Interference found in amplitudes, against formulas of numpy and scipy, and expectations on pure noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numba import njit
from scipy import integrate, ndimage, optimize, stats

from rime_kernels import InputError
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


# The 2-D flagger, written from its docstring in float64, for waterfalls that need no chunks.


def background_of(value: np.ndarray, masked: np.ndarray, options: WaterfallOptions) -> np.ndarray:
    """Smooth background of float64 (n_time, n_chan), by scipy; one chunk."""
    kernels = [smoothing_weights(s) for s in (options.smoothing_time, options.smoothing_channels)]
    if len(value) == 1:
        kernels[0] = np.ones(1)
    masked = masked.copy()
    for _ in range(2):
        parts = [np.where(masked, 0.0, value), (~masked).astype(float)]
        for axis in (0, 1):
            parts = [ndimage.convolve1d(p, kernels[axis], axis=axis, mode="constant") for p in parts]
        background = np.full(value.shape, np.nan)
        some = parts[1] > 1e-9
        background[some] = parts[0][some] / parts[1][some]
        off = np.abs(value - background)
        masked |= off > options.reject * 1.4826 * np.median(off[~masked])
    chan = np.arange(value.shape[1])
    for t in range(len(value)):
        there = ~np.isnan(background[t])
        background[t] = np.interp(chan, chan[there], background[t][there])
    return background


def two_sided(line: np.ndarray, sigma: float, options: WaterfallOptions) -> np.ndarray:
    """SumThreshold to both sides."""
    high, low = np.zeros(len(line), bool), np.zeros(len(line), bool)
    for i in range(options.largest_window.bit_length()):
        bound, held, window = options.n_sigma * sigma * options.falloff**-i, line.copy(), 2**i
        held[high] = np.minimum(held[high], bound)
        held[low] = np.maximum(held[low], -bound)
        means = [held[s : s + window].mean() for s in range(len(line) - window + 1)]
        for s, mean in enumerate(means):
            high[s : s + window] |= mean > bound
            low[s : s + window] |= mean < -bound
    return high | low


def sigma_of(deviation: np.ndarray, clear: np.ndarray) -> float:
    return float(1.4826 * np.median(np.abs(deviation[clear])))


def shared(noise: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Noises drawn to each other, by the formulas of `share_noises`; NaN where they are not known."""
    known = np.isfinite(noise)
    ratio, error = np.log(noise / np.median(noise[known])), np.sqrt(1.36 / np.maximum(1, n))
    spread = 1.4826 * np.median(np.abs(ratio / error)[known])
    kept = np.where(np.abs(ratio) > 3 * error * max(1, spread), 1, max(0, 1 - spread**-2))
    return np.median(noise[known]) * np.exp(kept * ratio)


def noises_of(deviation: np.ndarray, clear: np.ndarray) -> np.ndarray:
    """Noises of lines along the last axis; that of all where they have less than 32 samples."""
    n = clear.sum(axis=1)
    own = np.array(
        [sigma_of(d, c) if c.sum() >= 32 else np.nan for d, c in zip(deviation, clear, strict=True)]
    )
    if np.isfinite(own).any():
        own = shared(own, n)
    return np.where(np.isnan(own), sigma_of(deviation, clear), own)


def stand_out(
    line: np.ndarray, there: np.ndarray, sigma: float, smoothing: float, least: float
) -> np.ndarray:
    """Which numbers of a line are far from their smooth background, in noises of `least` or more."""
    along, value = replace(OPTIONS, smoothing_channels=smoothing, n_sigma=sigma), line[None]
    deviation = np.where(there, value - background_of(value, ~there[None], along), 0)
    return two_sided(deviation[0], max(least, sigma_of(deviation[0], there)), along)


def noises_that_stand_out(deviation: np.ndarray, clear: np.ndarray, options: WaterfallOptions) -> np.ndarray:
    """Of integrations, where there are 32 at least."""
    n, line = clear.sum(axis=1), np.zeros(len(deviation))
    there = n >= 32
    if there.sum() < 32:
        return there & False
    line[there] = [math.log(sigma_of(d, c)) for d, c in zip(deviation[there], clear[there], strict=True)]
    least = float(np.median(np.sqrt(1.36 / n[there])))
    return stand_out(line, there, options.integration_sigma, options.smoothing_time, least)


def first_steps(amplitude: np.ndarray, given: np.ndarray, options: WaterfallOptions) -> np.ndarray:
    """Codes of the spectrum, of integrations, of time and of channels."""
    value = amplitude.astype(np.float64)
    code = given.astype(np.uint8)
    spectrum = np.array([np.median(v[~g]) for v, g in zip(value.T, given.T, strict=True)])
    everywhere = np.ones(spectrum.size, bool)
    found = stand_out(spectrum, everywhere, options.n_sigma, options.smoothing_channels, 0.0)
    code[(code == 0) & found] = CODE["spectrum"]
    deviation = value - background_of(np.where(given, 0, value), code > 0, options)
    deviation[given] = 0
    found = noises_that_stand_out(deviation, code == 0, options)
    code[(code == 0) & found[:, None]] = CODE["integration"]
    clear = code == 0
    noise = noises_of(deviation.T, clear.T)
    for c in range(value.shape[1]):
        code[(code[:, c] == 0) & two_sided(deviation[:, c], noise[c], options), c] = CODE["time"]
    noise = noises_of(deviation, code == 0)
    for t in range(len(value)):
        code[t, (code[t] == 0) & two_sided(deviation[t], noise[t], options)] = CODE["channels"]
    return code


def waterfall_with_interference(n_time: int, n_chan: int, seed: int = 8) -> np.ndarray:
    """A line, a burst over half of the band, one over three channels, and a drifting line, on fringes."""
    rng = np.random.default_rng(seed)
    vis = rng.normal(size=(n_time, n_chan)) + 1j * rng.normal(size=(n_time, n_chan))
    vis += 4 * np.exp(0.2j * np.arange(n_time))[:, None]
    vis[:, n_chan // 3] += 7
    vis[n_time // 2, n_chan // 2 :] += 5
    vis[5:9, 40:43] += 20
    vis[np.arange(n_time), 50 + np.arange(n_time) // 3] += 4
    vis[3, 10:18] += 3.5
    return np.abs(vis).astype(np.float32)


OPTIONS = WaterfallOptions(
    smoothing_time=6.0, smoothing_channels=5.0, n_chunk=1, extend_time=1, extend_channels=1,
    whole_channel=1.0, whole_time=1.0, integration_sigma=2.0,
)  # fmt: skip


@pytest.mark.parametrize("n_time", [20, 45])
def test_waterfalls_are_flagged_step_by_step(n_time: int) -> None:
    """Codes are those of the formulas, with samples given as flagged, and fewer times than noise needs.

    Amplitudes and background are float32: a mean within 1e-6 of its threshold might differ; none is.
    """
    amplitude = waterfall_with_interference(n_time, 72)
    given = np.random.default_rng(9).random(amplitude.shape) < 0.1
    expected = first_steps(amplitude, given, OPTIONS)
    found = flag_waterfalls(amplitude[None], given, OPTIONS)[0]
    assert np.array_equal(found, expected)
    causes = ["spectrum", *["integration"] * (n_time >= 32), "time", "channels"]
    assert np.unique(found).tolist() == [0, 1, *map(CODE.get, causes)]


@njit
def share(noise: np.ndarray, n: np.ndarray) -> np.ndarray:
    """`share_noises`, which compiled functions call, as a function of Python."""
    out = noise.copy()
    share_noises(out, n, np.empty(len(noise), np.float32))
    return out


def test_noises_that_differ_by_their_errors_alone_become_one() -> None:
    """Noises of 64 normal deviations scatter by sqrt(1.36/64) = 15 %.

    The square of the spread of 400 noises is good to sqrt(4 1.36/400) = 12 %: of an error, a fifth is kept at
    two of these. Noises that are far by chance (1 of 370) stay.
    """
    deviation = np.random.default_rng(12).normal(size=(400, 64))
    own, n = 1.4826 * np.median(np.abs(deviation), axis=1), np.full(400, 64)
    assert np.log(own).std() == pytest.approx(math.sqrt(1.36 / 64), rel=0.1)
    found = share(own, n)
    assert found == pytest.approx(shared(own, n), rel=1e-6)
    assert np.log(found).std() < 0.35 * math.sqrt(1.36 / 64)


def test_noises_that_do_differ_stay_apart() -> None:
    """True scatter of 60 % is kept but for 1/(1 + 0.6^2 64/1.36) = 6 %, and one far from the others whole."""
    rng = np.random.default_rng(13)
    own = np.exp(0.6 * rng.normal(size=400) + math.sqrt(1.36 / 64) * rng.normal(size=400))
    own[7], own[9] = 50.0, math.nan
    found, common = share(own, np.full(400, 64)), np.nanmedian(own)
    kept = np.log(found[0] / common) / np.log(own[0] / common)
    assert kept == pytest.approx(1 - 1 / (1 + 0.36 * 64 / 1.36), abs=0.02)
    assert found[7] == 50.0
    assert np.isnan(found[9])


def test_flags_are_extended() -> None:
    """By the rules of scipy's dilation, and of the rank operator along time and then channels."""
    amplitude = waterfall_with_interference(40, 72)
    before = flag_waterfalls(amplitude[None], options=OPTIONS)[0] > 1
    wide = flag_waterfalls(amplitude[None], options=_with(extend_time=3, extend_channels=5))[0]
    assert np.array_equal(wide > 1, ndimage.binary_dilation(before, np.ones((3, 5))))
    assert np.array_equal(wide == CODE["extension"], (wide > 1) & ~before)
    ranked = flag_waterfalls(amplitude[None], options=_with(rank_eta=0.3))[0]
    assert np.array_equal(ranked > 1, rank_operator(rank_operator(before.T, 0.3).T, 0.3))
    assert (ranked == CODE["rank operator"]).any()


def _with(**changes: float) -> WaterfallOptions:
    return replace(OPTIONS, **changes)  # type: ignore[arg-type]


def test_whole_channels_and_times() -> None:
    """Shares count what was not left out from the start: 5 of 20 samples there, though of 40 in all."""
    amplitude = noise_amplitudes(40, 200, seed=10)
    given = np.zeros(amplitude.shape, bool)
    given[20:, 100] = True
    amplitude[[1, 5, 8, 13, 18], 100] += 1000
    amplitude[30, :170] += 1000
    code = flag_waterfalls(
        amplitude[None], given, _with(integration_sigma=0.0, whole_channel=0.24, whole_time=0.8)
    )[0]
    assert sorted(set(code[:20, 100])) == [CODE["time"], CODE["whole channel"]]
    assert (code[20:, 100] == 1).all()
    assert (code[30] != 0).all()
    assert CODE["whole time"] in code[30]
    less = flag_waterfalls(
        amplitude[None], given, _with(integration_sigma=0.0, whole_channel=0.26, whole_time=0.9)
    )[0]
    assert np.count_nonzero(less[:20, 100]) == 5
    assert np.count_nonzero(less[30]) < 180


def test_nothing_is_found_in_too_few_samples() -> None:
    """A noise that is the median of less than 32 samples is no noise."""
    amplitude = noise_amplitudes(1, 5, 6)
    amplitude[0, 2, 3] = 1e6
    assert not flag_waterfalls(amplitude).any()
    few, enough = np.ones((1, 31), np.float32), np.ones((1, 32), np.float32)
    few[:] += np.arange(31) % 3
    enough[:] += np.arange(32) % 3
    few[0, 9], enough[0, 9] = 1e6, 1e6
    assert not flag_spectra(few).any()
    assert np.flatnonzero(flag_spectra(enough)).tolist() == [9]
    assert flag_waterfalls(np.full((1, 40, 40), 1.0)).max() == 0  # nor where there is none
    assert flag_waterfalls(np.zeros((0, 4, 4))).shape == (0, 4, 4)


def noise_from(background: float) -> float:
    """1.4826 times the median deviation of Rayleigh's law from a background."""
    law = stats.rayleigh()
    return 1.4826 * float(
        optimize.brentq(lambda m: law.cdf(background + m) - law.cdf(background - m) - 0.5, 0.1, 1)
    )


def test_false_alarms_of_waterfalls() -> None:
    """Single samples of pure noise: Rayleigh's law above the mean, sqrt(pi/2), at n times the noise.

    Times and channels judge the same samples. (A background that rejects at 2 sigma loses more of the upper
    tail than of the lower, and so lies lower; here nothing is rejected.)
    """
    amplitude = noise_amplitudes(2, 600, 1280, seed=11)
    options = _with(n_sigma=4.0, reject=1e3, largest_window=1, smoothing_time=20.0, smoothing_channels=20.0)
    code = flag_waterfalls(amplitude, options=options)
    found = np.isin(code, [CODE["time"], CODE["channels"]]).mean()
    mean = math.sqrt(math.pi / 2)
    # 550 are expected, which scatter by 4 %, and backgrounds of about 5000 samples scatter by 1 %.
    assert found == pytest.approx(stats.rayleigh().sf(mean + 4.0 * noise_from(mean)), rel=0.12)


@pytest.mark.parametrize("threshold", [4.5, 0.0])
def test_integrations_that_are_noisier_are_found(threshold: float) -> None:
    """1.5 times the noise, which no sample shows, is ten errors of a noise of 900 channels."""
    amplitude = noise_amplitudes(1, 60, 900, seed=16)
    amplitude[0, [20, 21, 45]] *= 1.5
    found = flag_waterfalls(amplitude, options=_with(integration_sigma=threshold, n_sigma=8.0))[0] > 1
    expected = [20, 21, 45] if threshold > 0.0 else []
    assert np.flatnonzero(found.mean(axis=1) > 0.01).tolist() == expected
    assert found[expected].all()


def test_false_alarms_of_integrations() -> None:
    """Logarithms of noises of 200 amplitudes scatter by sqrt(1.24/200), and are judged by sqrt(1.36/200).

    80 of 9000 are expected, which scatter by 11 %, and are nearly normal.
    """
    options = _with(integration_sigma=2.5, reject=1e3, largest_window=1, smoothing_time=40.0)
    code = flag_waterfalls(noise_amplitudes(6, 1500, 200, seed=17), options=options)
    found = (code == CODE["integration"]).any(axis=2).mean()
    assert found == pytest.approx(2 * stats.norm.sf(2.5 * math.sqrt(1.36 / 1.24)), rel=0.35)


@pytest.mark.parametrize(("shape", "seed"), [((4, 64, 640), 14), ((10, 40, 200), 15)])
def test_false_alarms_of_the_default_strategy(shape: tuple[int, int, int], seed: int) -> None:
    """Single samples by Rayleigh's law, above a mean without what is 2 noises above that of all.

    If each noise of so few samples was taken as it is, three to six times as many would be found.
    """
    options = WaterfallOptions(largest_window=1, extend_time=1, extend_channels=1)
    code = flag_waterfalls(noise_amplitudes(*shape, seed=seed), options=options)
    law, mean = stats.rayleigh(), math.sqrt(math.pi / 2)
    end = mean + 2 * noise_from(mean)
    background = integrate.quad(lambda a: a * law.pdf(a), 0, end)[0] / law.cdf(end)
    expected = law.sf(background + 4.5 * noise_from(background)) * code.size
    n_found = np.isin(code, [CODE["time"], CODE["channels"]]).sum()
    # Of 23 and 11 that are expected; what is left of the scatter of noises, and that of backgrounds at the
    # edges of a waterfall, may double them.
    assert stats.poisson(expected).ppf(1e-3) <= n_found <= stats.poisson(2 * expected).ppf(1 - 1e-3)


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
