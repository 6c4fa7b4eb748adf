"""Flagging by CUDA kernels, on a device or in the simulator: to the bit what the CPU finds."""

from __future__ import annotations

import numpy as np
import pytest

from rime_kernels import BackendError, device
from rime_kernels.flagging.options import SpectrumOptions
from rime_kernels.flagging.spectra import (
    flag_spectra,
    noise_of_deviations,
    running_median,
    simple_threshold,
    sum_threshold,
)

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


@pytest.mark.parametrize("width", [5, 13])
def test_deviations_are_those_of_the_cpu(cuda_backend: str, width: int) -> None:
    from rime_kernels.flagging.cuda.spectra import _deviations

    amplitude, flag = spectra()
    staged = np.where(flag, np.float32(np.inf), amplitude)
    found = _deviations(device.upload(staged), width).copy_to_host()
    with np.errstate(invalid="ignore"):
        expected = np.where(flag, np.float32(0), amplitude - running_median(amplitude, flag, width=width))
    assert np.array_equal(found, expected)


def test_noise_is_that_of_the_cpu(cuda_backend: str) -> None:
    """Of even and odd numbers of deviations, of equal ones, of two alone, and of none."""
    from rime_kernels.flagging.cuda.spectra import _noise

    deviation = np.random.default_rng(2).normal(size=(6, 37)).astype(np.float32)
    deviation[1, 3], deviation[2] = 0, np.round(deviation[2])
    deviation[3], deviation[4, :35] = 0, 0
    found = _noise(device.upload(deviation))
    assert np.array_equal(found, noise_of_deviations(deviation), equal_nan=True)


@pytest.mark.parametrize("largest", [1, 2, 8])
def test_thresholds_are_those_of_the_cpu(cuda_backend: str, largest: int) -> None:
    """Runs that lie across the edges of blocks, and at the ends of a spectrum."""
    from rime_kernels.flagging.cuda.spectra import _exceed
    from rime_kernels.flagging.inputs import thresholds_of

    deviation = np.random.default_rng(3).normal(size=(3, 45)).astype(np.float32)
    deviation[0, 6:14] += 1.5
    deviation[1, :4] += 2
    deviation[2, 38:] += 1.5
    noise = np.array([1.0, 0.9, 1.2])
    options = SpectrumOptions(n_sigma=2.0, largest_window=largest)
    found = _exceed(device.upload(deviation), thresholds_of(noise, options))
    expected = sum_threshold(deviation, noise, 2.0, largest_window=largest)
    assert np.array_equal(found, expected)
    assert found.any(axis=1).all()
    if largest == 1:
        assert np.array_equal(found, simple_threshold(deviation, noise, 2.0))


def test_transposed(cuda_backend: str) -> None:
    from rime_kernels.flagging.cuda.spectra import transposed

    given = np.arange(7 * 10, dtype=np.float32).reshape(7, 10)
    assert np.array_equal(transposed(device.upload(given)).copy_to_host(), given.T)


@pytest.mark.parametrize("threshold", ["sum", "simple"])
def test_flags_are_those_of_the_cpu(cuda_backend: str, threshold: str) -> None:
    amplitude, flag = spectra(n_spectrum=2)
    options = SpectrumOptions(threshold=threshold, n_sigma=4.0)  # type: ignore[arg-type]
    found = flag_spectra(amplitude, flag, options, backend="cuda")
    assert np.array_equal(found, flag_spectra(amplitude, flag, options))
    assert found.any()


def test_an_unknown_backend_is_refused(cuda_backend: str) -> None:
    with pytest.raises((BackendError, ValueError), match="backend must be one of"):
        flag_spectra(np.ones((1, 40)), backend="gpu")  # type: ignore[arg-type]
