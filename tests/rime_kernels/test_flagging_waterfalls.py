"""Waterfalls that are flagged, against formulas of numpy and scipy, and expectations on pure noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numba import njit
from scipy import integrate, ndimage, optimize, stats

from rime_kernels.errors import InputError
from rime_kernels.flagging.noises import share_noises
from rime_kernels.flagging.options import WaterfallOptions, smoothing_weights
from rime_kernels.flagging.rank import rank_operator
from rime_kernels.flagging.spectra import flag_spectra
from rime_kernels.flagging.waterfalls import CAUSES, flag_waterfalls
from tests.rime_kernels.test_flagging import noise_amplitudes

CODE = {name: code for code, name in enumerate(CAUSES)}

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


def test_an_integration_that_is_not_alike_may_be_noisier() -> None:
    """Half of the exposure is 1.4 times the noise: flagged whole by step 2, unless that leaves it out."""
    amplitude = noise_amplitudes(1, 100, 640, seed=20)
    amplitude[0, -1] *= math.sqrt(2.0)
    left = flag_waterfalls(amplitude, alike=np.arange(100) < 99)
    found = flag_waterfalls(amplitude) == CODE["integration"]
    assert not (left == CODE["integration"]).any()
    # Others than this step find little of it.
    assert (left[0, -1] > 0).mean() < 0.2
    assert found[0, -1].mean() > 0.9
    assert not found[0, :-1].any()
    with pytest.raises(InputError, match="alike must be of shape"):
        flag_waterfalls(amplitude, alike=np.ones(7, bool))


def test_few_integrations_raise_no_more_alarms() -> None:
    """33 noises tell their scatter to 20 %, but it is not taken below that of noise: 5.5 of 3300 are found.

    Five times as many would be by the measured scatter alone.
    """
    options = _with(integration_sigma=3.0, n_sigma=20.0, largest_window=1)
    code = flag_waterfalls(noise_amplitudes(100, 33, 64, seed=18), options=options)
    n_found = (code == CODE["integration"]).any(axis=2).sum()
    expected = 2 * stats.norm.sf(3.0 * math.sqrt(1.36 / 1.24)) * 3300
    assert n_found <= stats.poisson(expected).ppf(0.999)


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
