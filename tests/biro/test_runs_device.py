"""A real device that has no room, and one that fails in mid-run; each in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import python

pytestmark = pytest.mark.cuda

PROBLEM = """
import logging, sys
import numpy as np
import biro
from biro.models.files.toml import from_toml
from rime_kernels.device import cuda

MODEL = '''
[noise]
factor = 1
[[source]]
name = "a"
type = "point"
east = "3 arcsec"
north = { prior = "uniform", low = -20, high = 20, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }
'''

def made(n_time, n_chan, backend="cuda"):
    rng = np.random.default_rng(1)
    first, second = np.triu_indices(64, k=1)
    place = rng.normal(scale=800.0, size=(64, 3))
    n_row = n_time * first.size
    p, q = np.tile(first, n_time), np.tile(second, n_time)
    noise = rng.normal(size=(n_row, 1, 1)) + 1j * rng.normal(size=(n_row, 1, 1))
    observation = biro.Observation.from_arrays(
        vis=np.repeat(np.repeat(1.0 + 0.1 * noise, n_chan, axis=1), 2, axis=2),
        uvw=place[p] - place[q], antenna1=p, antenna2=q, time=np.repeat(np.arange(n_time) * 10.0, first.size),
        chan_freq=1e9 + 1e6 * np.arange(n_chan), corr_type=["XX", "YY"],
        weight=np.full((n_row, n_chan, 2), 100.0),
    )
    return biro.Likelihood(observation, from_toml(MODEL), backend=backend)
"""
NO_ROOM = """
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
whole = made(60, 32)  # 7.7 million visibilities: 190 MB
theta = whole.prior_transform(np.random.default_rng(2).uniform(size=(64, 2)))
expected = whole.log_likelihood(theta)
del whole
late = made(60, 32)  # it has asked how much is free, and has taken nothing yet
kept, size = [], 1 << 30
while size >= 1 << 20:
    free, _ = cuda.current_context().get_memory_info()
    if free - size < 100e6:
        size //= 2
        continue
    try:
        kept.append(cuda.device_array(size, np.uint8))
    except Exception:
        size //= 2
found = late.log_likelihood(theta)
print("away", float(np.max(np.abs(found / expected - 1.0))))
"""
FAILS = """
from biro.errors import BackendError

@cuda.jit
def spoil(array):
    array[(1 << 42) + cuda.grid(1)] = 1.0  # far outside of the device's memory: its context is lost

likelihood = made(2, 4)
inner, calls = likelihood.log_prior_and_likelihood, [0]

def log_prior_and_likelihood(theta):
    calls[0] += 1
    if calls[0] == 200:
        spoil[1, 32](cuda.device_array(1, np.float64))
    return inner(theta)

likelihood.log_prior_and_likelihood = log_prior_and_likelihood
try:
    biro.sample(likelihood, seed=1, progress=False, run_dir=sys.argv[1], max_steps=400, n_tau=1e6)
except BackendError as error:
    print(f"said: {error}")
"""
GOES_ON = """
posterior = biro.sample(
    made(2, 4, "cpu"), seed=1, progress=False, run_dir=sys.argv[1], max_steps=400, n_tau=1e6
)
print("steps", posterior.diagnostics["n_step"])
"""


@pytest.fixture(autouse=True)
def _device() -> None:
    from rime_kernels import BackendError
    from rime_kernels.device import resolve

    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        pytest.skip("the simulator's memory has no end, and it cannot be lost")
    try:
        resolve("cuda")
    except BackendError as error:
        pytest.skip(str(error))


def run(code: str, *words: str) -> tuple[str, str]:
    done = python("-c", PROBLEM + code, *words)
    return done.stdout, done.stderr


def test_a_device_nearly_full_is_worked_with_in_smaller_steps() -> None:
    said, errors = run(NO_ROOM)
    assert "the device has no room for" in said, errors
    assert "going on in smaller steps" in said
    # Sums over slabs in another order: roundings of float64.
    assert float(said.rpartition("away ")[2]) < 1e-10


def test_a_device_that_is_lost_ends_the_run_in_one_line_and_the_cpu_goes_on(tmp_path: Path) -> None:
    said, errors = run(FAILS, str(tmp_path / "run"))
    assert "said: the device failed (" in said, said + errors
    assert "has the samples so far. The same call continues from there" in said
    assert (tmp_path / "run" / "chain.bin").exists()
    said, errors = run(GOES_ON, str(tmp_path / "run"))
    assert "steps 400.0" in said, said + errors
    assert "continuing from step" in (tmp_path / "run" / "log.txt").read_text()
