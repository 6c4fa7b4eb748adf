"""Averages of visibilities as they come, and percentiles: closed forms, and those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from rime_kernels import InputError, device
from rime_kernels.flagging.averaging import OnlineAverage
from rime_kernels.flagging.options import SpectrumOptions
from rime_kernels.flagging.percentiles import line_percentiles
from rime_kernels.flagging.spectra import flag_spectra


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def backend(request: pytest.FixtureRequest) -> str:
    return "cpu" if request.param == "cpu" else str(request.getfixturevalue("cuda_backend"))


def integrations(n: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visibilities, weights and flags (n, 2, 5, 2); one cell is flagged whole, one has no weight."""
    rng = np.random.default_rng(1)
    shape = (n, 2, 5, 2)
    vis = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
    weight = rng.uniform(0.5, 2.0, shape).astype(np.float32)
    flag = rng.random(shape) < 0.3
    flag[:, 0, :2, 0], flag[:, 0, 2:4, 0] = True, False
    weight[:, 1, 4, 1] = 0.0
    return vis, weight, flag


def test_averages_are_weighted_means_of_what_is_not_flagged(backend: str) -> None:
    """By numpy in float64, which the sums are in: 1e-14 is a hundred roundings of it."""
    vis, weight, flag = integrations()
    average = OnlineAverage((2, 5, 2), channels=2, backend=backend)  # type: ignore[arg-type]
    for each in zip(vis, weight, flag, strict=True):
        average.add(*each)
    found = average.mean()
    for cell, chan in enumerate((slice(0, 2), slice(2, 4), slice(4, 5))):
        for row in range(2):
            for corr in range(2):
                at = np.s_[:, row, chan, corr]
                kept = ~flag[at] & (weight[at] > 0)
                counted = kept if kept.any() else np.ones_like(kept)
                w = np.where(counted, weight[at], 0.0).astype(np.float64)
                assert found.flag[row, cell, corr] == (not kept.any())
                assert found.weight[row, cell, corr] == pytest.approx(w.sum(), rel=1e-14)
                expected = (w * vis[at]).sum() / w.sum() if w.sum() else 0.0
                assert found.vis[row, cell, corr] == pytest.approx(expected, rel=1e-14)
    assert found.flag[0, 0, 0]
    assert found.weight[0, 0, 0] > 3.0
    average.clear()
    assert average.mean().flag.all()
    assert not average.mean().weight.any()


def test_a_strong_flagged_visibility_leaves_no_trace(backend: str) -> None:
    """1e5 times 2^-64 is 5e-15 of a mean of 1, which float32 data do not resolve."""
    average = OnlineAverage((1, 2, 1), channels=2, backend=backend)  # type: ignore[arg-type]
    average.add([[[1.0], [1e5]]], 1.0, [[[False], [True]]])
    average.add([[[np.nan], [1.0]]], 1.0)
    found = average.mean()
    assert found.vis[0, 0, 0] == pytest.approx(1.0, abs=1e-14)
    assert found.weight[0, 0, 0] == 2.0


def test_spectra_are_flagged_before_they_are_averaged(backend: str) -> None:
    """Flags are those of `flag_spectra`, and averages those of these flags, to the rounding of float64."""
    rng = np.random.default_rng(3)
    shape = (2, 40, 2)
    vis = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
    vis[0, 20, 1], vis[1, 30:32, 0], vis[1, 5, 1], vis[0, 3, 0] = 90.0, 70.0, np.nan, 80.0
    flag, weight = np.zeros(shape, bool), np.ones(shape, np.float32)
    flag[0, 3, 0], weight[1, 9] = True, 0.0
    options = SpectrumOptions(width=5, n_sigma=8.0, largest_window=2)
    average = OnlineAverage(shape, 10, options, backend)  # type: ignore[arg-type]
    average.add(vis, weight, flag)
    lines = [np.moveaxis(each, 2, 1).reshape(4, 40) for each in (np.abs(vis), flag | (weight == 0))]
    found = flag | np.moveaxis(flag_spectra(*lines, options).reshape(2, 2, 40), 1, 2)
    assert np.array_equal(average.flags(), found)
    assert found[0, 20, 1]
    assert found[1, 30:32, 0].all()
    plain = OnlineAverage(shape, 10, backend="cpu")
    plain.add(vis, weight, found)
    for one, other in zip(average.mean(), plain.mean(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    assert not average.mean().flag.any()


@pytest.mark.cuda
def test_arrays_on_the_device_are_taken_as_they_are(cuda_backend: str) -> None:
    """Averages are those of arrays of the host; what does not fit is refused."""
    vis, weight, flag = integrations(1)
    average, expected = (OnlineAverage((2, 5, 2), 2, backend=where) for where in ("cuda", "cpu"))  # type: ignore[arg-type]
    there = [device.upload(each) for each in (vis[0], weight[0], flag[0].astype(np.uint8))]
    average.add(*there)
    expected.add(vis[0], weight[0], flag[0])
    for one, other in zip(average.mean(), expected.mean(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    with pytest.raises(InputError, match="weight: vis, weight and flag must all be where the sums are kept"):
        average.add(there[0], 1.0)
    with pytest.raises(InputError, match="vis: vis, weight and flag must all be"):
        expected.add(*there)
    with pytest.raises(InputError, match=r"flag on the GPU must be uint8 of the shape .* got float32"):
        average.add(there[0], there[1], there[1])


def test_what_cannot_be_averaged_is_refused() -> None:
    with pytest.raises(InputError, match="channels must be a whole number above 0, got 0"):
        OnlineAverage((1, 2, 1), channels=0)
    average = OnlineAverage((1, 2, 1), backend="cpu")
    with pytest.raises(
        InputError, match=r"vis must have the shape \(1, 2, 1\) of the average, got \(1, 3, 1\)"
    ):
        average.add(np.ones((1, 3, 1)), 1.0)
    with pytest.raises(InputError, match=r"weight and flag must fit the shape \(1, 2, 1\)"):
        average.add(np.ones((1, 2, 1)), np.ones(3))


def test_percentiles_are_those_of_numpy(backend: str) -> None:
    """The inverse of the distribution of the samples, with equal samples, few of them, and none."""
    rng = np.random.default_rng(2)
    amplitude = rng.rayleigh(size=(4, 17)).astype(np.float32)
    amplitude[1] = np.round(2 * amplitude[1])
    amplitude[0, 3] = np.inf
    flag = rng.random(amplitude.shape) < 0.2
    flag[2, 1:], flag[3] = True, True
    percents = (0.0, 25.0, 50.0, 95.0, 100.0)
    found = line_percentiles(amplitude, flag, percents, backend=backend)  # type: ignore[arg-type]
    for line in range(3):
        there = amplitude[line][~flag[line] & np.isfinite(amplitude[line])]
        assert np.array_equal(found[line], np.percentile(there, percents, method="inverted_cdf"))
    assert np.isnan(found[3]).all()


def test_percentages_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"percents must lie in 0 \.\. 100, got \[50, 101\]"):
        line_percentiles(np.ones((1, 3)), percents=[50, 101])
    assert line_percentiles(np.ones((0, 3))).shape == (0, 5)
