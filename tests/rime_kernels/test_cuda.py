"""Every variant of the CUDA kernels against explicit sums, on a device or in Numba's simulator.

Without either, two tests run them and the other files of CUDA kernels in processes where CUDA is simulated.
"""

import importlib.metadata
import itertools
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rime_kernels import BackendError, InputError, Rows, Sources, device, stokes_to_corr
from tests.rime_kernels.problems import LINEAR, chi2_of, data_for, with_data

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda
# Half of the variants, in which any two of form, polarisation and beam meet: the simulator runs these.
HALF = [
    ("factored", True, "none"), ("factored", False, "shared"), ("factored", True, "pointing"),
    ("row", False, "none"), ("row", True, "shared"), ("row", False, "pointing"),
]  # fmt: skip
VARIANTS = [
    pytest.param(*each, marks=() if each in HALF else pytest.mark.on_device)
    for each in itertools.product(["factored", "row"], [True, False], ["none", "shared", "pointing"])
]
# Files that one process runs where CUDA is simulated.
TOGETHER = [
    ("cuda", "student_chi2", "templates", "gradient_cuda", "cuda_any", "kept_cuda", "jones_gradient_cuda",
     "jones_cuda", "matrix_units"),
    ("memory", "cuda_extremes", "cuda_recordings", "idg_cuda", "wprojection_cuda", "flagging_cuda",
     "smearing_cuda", "tuning"),
]  # fmt: skip
# Phases of some 100 turns, rounded to 1e-16 of that; float32 terms of float64 phases.
TOLERANCE = {"double": 1e-12, "single": 2e-6}


def small(problem: Any) -> Rows:
    """Few threads: the simulator takes milliseconds for each."""
    return problem(n_antenna=3, n_time=2, n_chan=2)


pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.mark.cuda
@pytest.mark.usefixtures("cuda_backend", "tiles_always")
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize(("form", "polarised", "beam"), VARIANTS)
def test_every_variant(problem, sky, beam_of, reference, error_of, precision, form, polarised, beam) -> None:
    rows = small(problem)
    made = None if beam == "none" else beam_of(rows, "cos3", pointing=beam == "pointing")
    sources = sky(rows, beam=made)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    rime = with_data(rows, form=form, precision=precision)
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
    np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=TOLERANCE[precision])


@pytest.mark.cuda
@pytest.mark.usefixtures("cuda_backend", "tiles_always")
@pytest.mark.parametrize(
    ("kind", "pointing"),
    [
        ("gaussian", True),
        ("airy", False),
        pytest.param("gaussian", False, marks=pytest.mark.on_device),
        pytest.param("airy", True, marks=pytest.mark.on_device),
    ],
)
def test_beams(problem, sky, beam_of, reference, error_of, kind, pointing) -> None:
    rows = small(problem)
    sources = sky(rows, beam=beam_of(rows, kind, pointing=pointing))
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(with_data(rows).predict(sources), expected) < TOLERANCE["double"]
    # A beam test must see the beam.
    assert error_of(expected, reference.visibilities(rows, LINEAR, sky(rows))) > 0.1


@pytest.mark.cuda
@pytest.mark.parametrize(
    "corr",
    [
        *(["LR", "RL"], ["V", "I"], ["YX"]),
        *(pytest.param(each, marks=pytest.mark.on_device) for each in (["XX", "YY"], ["RR"])),
    ],
)
def test_correlations(cuda_backend, problem, sky, reference, error_of, corr) -> None:
    rows = problem(n_antenna=3, n_time=2, n_chan=2, corr=corr)
    sources = sky(rows)
    expected = reference.visibilities(rows, corr, sources)
    rime = with_data(rows)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]
    np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=1e-12)


@pytest.mark.cuda
@pytest.mark.parametrize("frame", ["tangent", "uv"])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_many_channels_in_runs(cuda_backend, problem, sky, reference, error_of, frame, precision) -> None:
    """Row by row, evenly spaced channels turn by the same angle; 19 are no whole number of runs."""
    rows = problem(n_antenna=3, n_time=1, n_chan=19)
    sources = sky(rows)
    rime = with_data(rows, form="row", gaussian_frame=frame, precision=precision)
    expected = reference.visibilities(rows, LINEAR, sources, frame)
    assert error_of(rime.predict(sources), expected) < TOLERANCE[precision]
    np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=TOLERANCE[precision])


@pytest.mark.cuda
def test_every_output(cuda_backend, problem, sky, reference, error_of) -> None:
    rows = small(problem)
    sources, given = sky(rows), data_for(rows)
    rime, vis = with_data(rows), np.where(given["weight"] > 0, given["vis"], 0)
    residual = reference.visibilities(rows, LINEAR, sources) - vis
    assert error_of(rime.residual(sources), residual) < TOLERANCE["double"]
    square = given["weight"] * np.abs(residual) ** 2
    assert error_of(rime.weighted_residual2(sources), square) < 2 * TOLERANCE["double"]


@pytest.mark.cuda
def test_data_without_weights_and_without_both(cuda_backend, problem, sky, error_of) -> None:
    rows = small(problem)
    sources, vis = sky(rows), data_for(rows)["vis"]
    bare, given = with_data(rows, vis=None, weight=None), with_data(rows, weight=None)
    # The difference is taken of the same numbers.
    assert error_of(given.residual(sources) + vis, bare.predict(sources)) < 1e-15
    with pytest.raises(InputError, match="chi2 needs data"):
        given.chi2(sources)
    with pytest.raises(InputError, match="a plan needs data"):
        given.plan(sources)


@pytest.mark.cuda
def test_points_alone_and_flat_spectra(cuda_backend, problem, sky, reference, error_of) -> None:
    rows = small(problem)
    sources = sky(rows, n_gaussian=0, spectral_terms=np.zeros((2, 2, 4, 0)), stokes=np.ones((2, 1, 2, 4)))
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(with_data(rows).predict(sources), expected) < TOLERANCE["double"]


@pytest.mark.cuda
def test_small_grids_bring_no_warning(cuda_backend, problem, sky) -> None:
    from numba import config

    rows = small(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_data(rows).chi2(sky(rows))
    assert int(os.environ.get("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")) == config.CUDA_LOW_OCCUPANCY_WARNINGS


@pytest.mark.cuda
def test_one_channel_many_rows_and_empty_times(cuda_backend, sky, reference, error_of) -> None:
    rng = np.random.default_rng(1)
    n_row = 40
    first, time = np.zeros(n_row, int), np.where(np.arange(n_row) < 25, 1, 3)
    position = rng.normal(size=(5, 4, 3)) * 500
    second = rng.integers(1, 4, n_row)
    uvw = position[time, first] - position[time, second]
    rows = Rows(uvw, first, second, time, [1e9], stokes_to_corr(["RR", "LL"]), 4, 5)
    sources: Sources = sky(rows)
    rime, expected = with_data(rows), reference.visibilities(rows, ["RR", "LL"], sources)
    assert error_of(rime.predict(sources), expected) < TOLERANCE["double"]
    np.testing.assert_allclose(rime.chi2(sources), chi2_of(rows, expected), rtol=1e-12)


@pytest.mark.cuda
@pytest.mark.simulator
@pytest.mark.parametrize("meets", [True, False])
def test_the_simulator_shows_that_a_meeting_is_missing(meets) -> None:
    """Each thread reads what its neighbour writes: not all have written before, in any order."""

    @cuda.jit
    def kernel(out: Any) -> None:
        thread, shown = cuda.threadIdx.x, cuda.shared.array(32, np.float64)
        shown[thread] = -1.0
        cuda.syncthreads()
        shown[thread] = thread
        if meets:
            cuda.syncthreads()
        out[thread] = shown[(thread + 1) % 32]

    out = device.empty((32,), np.float64)
    kernel[1, 32](out)
    assert np.array_equal(out.copy_to_host(), np.roll(np.arange(32.0), -1)) == meets


@pytest.mark.slow
@pytest.mark.skipif(SIMULATED, reason="CUDA is simulated already")
@pytest.mark.parametrize("names", TOGETHER, ids=["rime", "memory, images, flags"])
def test_the_kernels_in_the_simulator(names) -> None:
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in names]
    # Memory of a device does not grow where there is none, and single precision has the same steps as double.
    named = "not does_not_grow and (not single or tuning)"
    chosen = ["-m", "cuda and not thorough and not on_device", "-k", named]
    command = [sys.executable, "-m", "pytest", *files, "-q", "-x", *chosen, "-p", "no:cacheprovider"]
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
    name, why = device.resolve("auto")
    assert name == "cpu"
    assert why.startswith("cpu: package numba-cuda is not installed")


@pytest.mark.skipif(SIMULATED, reason="nothing lacks in the simulator")
def test_numpy_too_new_for_numba_cuda_is_said(monkeypatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.30.4")
    monkeypatch.setattr(np, "__version__", "2.5.1")
    with pytest.raises(BackendError, match=r"numba-cuda 0.30.4 does not work with NumPy 2.5.1"):
        device.resolve("cuda")


def test_the_simulator_is_not_taken_by_itself(monkeypatch) -> None:
    monkeypatch.setattr(device.packages, "simulated", lambda: True)
    assert device.resolve("auto") == ("cpu", "cpu: CUDA is simulated here")
