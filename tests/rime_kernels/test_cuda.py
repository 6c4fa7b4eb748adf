"""The CUDA kernels against the CPU loops, on a device or in Numba's simulator.

Without either, one test runs the others in a process of their own where CUDA is simulated.
"""

import importlib.metadata
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rime_kernels import BackendError, Rime, Rows, Sources, device, stokes_to_corr

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
# Sums in another order; float32 sines and exponentials of another library.
TOLERANCE = {"double": 1e-11, "single": 2e-6}


def both(rows: Rows, **options: Any) -> tuple[Rime, Rime]:
    """The same on CUDA and on the CPU, with data."""
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    given = {"vis": rng.normal(size=shape) + 1j * rng.normal(size=shape), "weight": weight, "extent": 0.04}
    cuda, cpu = (Rime(rows, **{**given, **options, "backend": name}) for name in ("cuda", "cpu"))
    return cuda, cpu


def small(problem: Any) -> Rows:
    """Few threads: the simulator takes milliseconds for each."""
    return problem(n_antenna=3, n_time=2, n_chan=2)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("polarised", [True, False])
@pytest.mark.parametrize("beam", ["none", "shared", "pointing"])
def test_every_variant(
    cuda_backend, problem, sky, beam_of, error_of, precision, form, polarised, beam
) -> None:
    rows = small(problem)
    made = None if beam == "none" else beam_of(rows, "cos3", pointing=beam == "pointing")
    sources = sky(rows, beam=made)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    cuda, cpu = both(rows, form=form, precision=precision)
    assert error_of(cuda.predict(sources), cpu.predict(sources)) < TOLERANCE[precision]
    np.testing.assert_allclose(cuda.chi2(sources), cpu.chi2(sources), rtol=TOLERANCE[precision])


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["gaussian", "airy"])
def test_beams(cuda_backend, problem, sky, beam_of, error_of, kind) -> None:
    rows = small(problem)
    cuda, cpu = both(rows)
    for pointing in (True, False):
        sources = sky(rows, beam=beam_of(rows, kind, pointing=pointing))
        assert error_of(cuda.predict(sources), cpu.predict(sources)) < TOLERANCE["double"]


@pytest.mark.cuda
def test_every_output(cuda_backend, problem, sky, error_of) -> None:
    rows = small(problem)
    sources = sky(rows)
    cuda, cpu = both(rows)
    assert error_of(cuda.residual(sources), cpu.residual(sources)) < TOLERANCE["double"]
    assert error_of(cuda.weighted_residual2(sources), cpu.weighted_residual2(sources)) < TOLERANCE["double"]


@pytest.mark.cuda
def test_points_alone_flat_spectra_and_no_source(cuda_backend, problem, sky, error_of) -> None:
    rows = small(problem)
    cuda, cpu = both(rows)
    sources = sky(rows, n_gaussian=0, spectral_terms=np.zeros((2, 2, 4, 0)), stokes=np.ones((2, 1, 2, 4)))
    assert error_of(cuda.predict(sources), cpu.predict(sources)) < TOLERANCE["double"]
    assert not cuda.predict(sky(rows, n_point=0, n_gaussian=0)).any()


@pytest.mark.cuda
def test_nan_spoils_its_own_entry_alone(cuda_backend, problem, sky) -> None:
    rows = small(problem)
    cuda, _ = both(rows)
    sources = sky(rows, n_batch=3)
    expected = cuda.chi2(sources)
    sources.lm[1, 0, 0] = np.nan
    expected[1] = np.nan
    np.testing.assert_array_equal(cuda.chi2(sources), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("n_byte", [1, 2500])
def test_the_budget_changes_no_bit(cuda_backend, problem, sky, monkeypatch, n_byte) -> None:
    rows = small(problem)
    cuda, _ = both(rows)
    sources = sky(rows, n_batch=3)
    chi2, vis = cuda.chi2(sources), cuda.predict(sources)
    monkeypatch.setattr(device, "memory_budget", lambda: n_byte)
    cuda, _ = both(rows)
    np.testing.assert_array_equal(cuda.chi2(sources), chi2)
    np.testing.assert_array_equal(cuda.predict(sources), vis)


@pytest.mark.cuda
def test_out_of_memory_halves_the_work(cuda_backend, problem, sky, monkeypatch) -> None:
    rows = small(problem)
    cuda, _ = both(rows)
    sources = sky(rows, n_batch=4)
    expected = cuda.chi2(sources)
    given, refused = device.Workspace.array, []

    def small_device(self: Any, name: str, shape: tuple[int, ...], dtype: type) -> Any:
        if name == "terms" and shape[0] * shape[1] > 2:
            refused.append(shape[0] * shape[1])
            raise device.DeviceMemoryError("the device has no room for 1 MB")
        return given(self, name, shape, dtype)

    monkeypatch.setattr(device.Workspace, "array", small_device)
    np.testing.assert_array_equal(cuda.chi2(sources), expected)
    assert refused == [8, 4]
    np.testing.assert_array_equal(cuda.chi2(sources), expected)
    assert refused == [8, 4], "what did not fit once is not tried again"


@pytest.mark.cuda
def test_a_device_too_small_says_so(cuda_backend, problem, sky, monkeypatch) -> None:
    cuda, _ = both(small(problem))

    def no_room(*_: Any) -> Any:
        raise device.DeviceMemoryError("the device has no room for 1 MB")

    monkeypatch.setattr(device.Workspace, "array", no_room)
    with pytest.raises(BackendError, match="no room for 1 MB, and the work cannot be cut smaller"):
        cuda.chi2(sky(cuda.rows))


@pytest.mark.cuda
def test_batches_that_grow_and_shrink_and_other_outputs_between(cuda_backend, problem, sky) -> None:
    """Arrays on the device are used again: nothing of an earlier call may be seen in a later one."""
    rows = small(problem)
    cuda, _ = both(rows)
    sources = sky(rows, n_batch=3)
    expected = cuda.chi2(sources)
    for n_batch in (1, 2, 1, 3):
        some = Sources(
            *(sources.lm[:n_batch], sources.stokes[:n_batch], sources.ref_freq),
            *(sources.spectral_terms[:n_batch], sources.log_spectrum, sources.shape[:n_batch]),
        )
        np.testing.assert_array_equal(cuda.chi2(some), expected[:n_batch])
        points = sky(rows, n_gaussian=0, n_batch=n_batch)
        np.testing.assert_array_equal(cuda.residual(points), both(rows)[0].residual(points))


@pytest.mark.cuda
def test_small_grids_bring_no_warning(cuda_backend, problem, sky) -> None:
    from numba import config

    rows = small(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both(rows)[0].chi2(sky(rows))
    assert int(os.environ.get("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")) == config.CUDA_LOW_OCCUPANCY_WARNINGS


@pytest.mark.cuda
def test_one_channel_many_rows_and_empty_times(cuda_backend, sky, error_of) -> None:
    rng = np.random.default_rng(1)
    n_row = 40
    first, time = np.zeros(n_row, int), np.where(np.arange(n_row) < 25, 1, 3)
    position = rng.normal(size=(5, 4, 3)) * 500
    second = rng.integers(1, 4, n_row)
    uvw = position[time, first] - position[time, second]
    rows = Rows(uvw, first, second, time, [1e9], stokes_to_corr(["RR", "LL"]), 4, 5)
    sources: Sources = sky(rows)
    cuda, cpu = both(rows)
    assert error_of(cuda.predict(sources), cpu.predict(sources)) < TOLERANCE["double"]
    np.testing.assert_allclose(cuda.chi2(sources), cpu.chi2(sources), rtol=1e-12)


@pytest.mark.skipif(SIMULATED, reason="CUDA is simulated already")
def test_the_kernels_in_the_simulator() -> None:
    command = [sys.executable, "-m", "pytest", __file__, "-q", "-x", "-m", "cuda", "-p", "no:cacheprovider"]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2], timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


@pytest.mark.skipif(SIMULATED, reason="nothing lacks in the simulator")
def test_cuda_without_its_package_is_an_error(monkeypatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(
        BackendError, match=r'backend="cuda" cannot be used: package numba-cuda is not installed'
    ):
        device.resolve("cuda")
    assert device.resolve("auto") == ("cpu", f"cpu: {device._what_cuda_lacks()}")


@pytest.mark.skipif(SIMULATED, reason="nothing lacks in the simulator")
def test_numpy_too_new_for_numba_cuda_is_said(monkeypatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.30.4")
    monkeypatch.setattr(np, "__version__", "2.5.1")
    with pytest.raises(BackendError, match=r"numba-cuda 0.30.4 does not work with NumPy 2.5.1"):
        device.resolve("cuda")


def test_the_simulator_is_not_taken_by_itself(monkeypatch) -> None:
    monkeypatch.setattr(device, "simulated", lambda: True)
    assert device.resolve("auto") == ("cpu", "cpu: CUDA is simulated here")
