"""Time a small synthetic problem that fills a GPU: chi2, a stage of flagging, a prediction or an image."""

from __future__ import annotations

import fcntl
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.arrays import Rows, Sources
from rime_kernels.compile.types import DeviceArray
from rime_kernels.cuda.launch_shapes.cells import middling
from rime_kernels.cuda.launch_shapes.families import Kernel, KernelKind
from rime_kernels.flagging.cuda import spectra
from rime_kernels.flagging.cuda.transposition import transpose_into
from rime_kernels.flagging.options import SpectrumOptions
from rime_kernels.gridding.grid import ImageGrid
from rime_kernels.physics.brightness import stokes_to_corr
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.rime import Rime
from rime_kernels.wprojection.cuda.engine import WProjectionCudaEngine
from rime_kernels.wprojection.wprojection import WProjection

# Calls before the clock runs, after the one that compiles: the first is recorded.
_WARM = 2
# At most so many calls are timed, for so many seconds.
_CALLS, _SECONDS = 15, 0.25
# Bytes of device memory: more than the problem takes, less than a device has.
_MEMORY = 1 << 30
# Antennas and times of each class of sizes; the batch, as samplers have it, fills the device.
SIZES = {"many": (64, 8), "any": (64, 8), "few": (27, 40), "fewest": (7, 300), "most": (128, 2)}
_CHAN, _SOURCE, _BATCH = 64, 100, 8
# Antennas and times of what is gridded, and pixels of its image: transforms take little of the time.
_GRIDDED, _PIXELS = (64, 60), 512
# Sides of the matrix that is transposed; spectra that are flagged, their channels, and how many are drawn.
_MATRIX, _SPECTRA, _SPECTRUM, _DRAWN = 8192, 2048, 32768, 64
# How they are flagged, and the share of samples with interference.
_FLAGGED, _SHARE = SpectrumOptions(), 0.02


class Problem(NamedTuple):
    """The synthetic problem: rows with data and weights, and sources."""

    rows: Rows
    vis: NDArray[np.complex64]
    weight: NDArray[np.float64]
    sources: Sources


def milliseconds(kind: KernelKind, clock: str) -> float:
    """The least time of what shows how fast the kernel of this kind is.

    The file `clock` is locked while it is measured, so that processes measure one after the other. Their
    first calls, which compile, run on the device meanwhile: of some calls the least time is not theirs.
    """
    call = TRIALS[kind.kernel](kind)
    call()  # compiles, which takes seconds: other processes may measure meanwhile
    with locked(clock):
        return _least_ms(call)


def most_processes() -> int:
    """Processes for whose trials the device has memory at the same time; one where it allows no more."""
    if getattr(device.cuda.get_current_device(), "COMPUTE_MODE", 0):  # not the default, which is shared
        return 1
    return max(1, device.memory_budget() // (2 * _MEMORY))  # the problem, and as much for the process


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Wait until no other process has locked the file; it is unlocked even if this process dies."""
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _chi2(kind: KernelKind) -> Callable[[], object]:
    """One chi2 of the problem of this kind, transfers of parameters and chi2 included.

    Each time with a new `Rime`: the shape decides how data lie on the device.
    """
    problem = make_problem(kind.antennas, kind.polarised, kind.has_gaussian)
    rime = Rime(
        problem.rows,
        vis=problem.vis,
        weight=problem.weight,
        backend="cuda",
        precision="single" if kind.single else "double",
        form="row" if kind.kernel == "rows" else "factored",
        extent=0.02,
        memory_limit=_MEMORY,
    )
    return lambda: rime.chi2(problem.sources)


def _least_ms(call: Callable[[], object]) -> float:
    for _ in range(_WARM):
        call()
    seconds: list[float] = []
    while len(seconds) < _CALLS and sum(seconds) < _SECONDS:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return 1e3 * min(seconds)


def _waited_for(call: Callable[[], object]) -> Callable[[], object]:
    """The call, and the end of what it has begun on the device."""

    def both() -> None:
        call()
        device.cuda.synchronize()

    return both


def _transposition(kind: KernelKind) -> Callable[[], object]:
    given, out = (device.empty((1, _MATRIX, _MATRIX), np.float32) for _ in range(2))
    return _waited_for(lambda: transpose_into(given, out, np.float32))


def _running_median(kind: KernelKind) -> Callable[[], object]:
    """Deviations from it, and what they are transposed by."""
    amplitude, work = _amplitudes(), device.Workspace()
    return _waited_for(lambda: spectra.deviations(amplitude, _FLAGGED.width, work))


def _noise(kind: KernelKind) -> Callable[[], object]:
    """Noises of deviations, and thresholds."""
    amplitude, work = _amplitudes(), device.Workspace()
    deviation = spectra.deviations(amplitude, _FLAGGED.width, work)
    return _waited_for(lambda: spectra.thresholds(deviation, amplitude, _FLAGGED, work))


def _sum_threshold(kind: KernelKind) -> Callable[[], object]:
    amplitude, work = _amplitudes(), device.Workspace()
    deviation = spectra.deviations(amplitude, _FLAGGED.width, work)
    bounds = spectra.thresholds(deviation, amplitude, _FLAGGED, work)
    return _waited_for(lambda: spectra.runs(deviation, bounds, work))


def _amplitudes() -> DeviceArray:
    """Amplitudes (n_chan, n_spectrum) of noise with interference, on the device."""
    return device.upload(np.tile(_drawn(), -(-_SPECTRA // _DRAWN))[:, :_SPECTRA].copy())


@functools.lru_cache(maxsize=1)
def _drawn() -> NDArray[np.float32]:
    """Random numbers for the spectra that differ."""
    rng = np.random.default_rng(1)
    parts = rng.standard_normal((2, _SPECTRUM, min(_DRAWN, _SPECTRA)), np.float32)
    found: NDArray[np.float32] = np.hypot(*parts)
    found += 100.0 * (rng.random(parts.shape[1:]) < _SHARE)
    return found


def _gridding(kind: KernelKind) -> Callable[[], object]:
    """A prediction or an image of what lies on the device, by kernels whose threads own cells."""
    rows, stokes = _tracks(kind.n_plane), min(kind.n_plane, 2) ** 2
    shortest = SPEED_OF_LIGHT / rows.chan_freq[-1] / np.abs(rows.uvw[:, :2]).max()
    gridder = WProjection(
        rows,
        ImageGrid(_PIXELS, float(shortest / 3.0)),
        accuracy=1e-2,
        backend="cuda",
        precision="single" if kind.single else "double",
        support=middling(kind),
        memory_limit=_MEMORY,
    )
    engine, screens = gridder.grid_engine, gridder.screens_of(None, stokes)
    assert isinstance(engine, WProjectionCudaEngine)
    engine.by_vis = False
    image = engine.send(np.ones((stokes, _PIXELS, _PIXELS)))
    vis = engine.predict_on_device(image, screens)
    if kind.kernel == "degridder":
        return _waited_for(lambda: engine.predict_on_device(image, screens, vis))
    return _waited_for(lambda: engine.grid_on_device(vis, None, screens))


TRIALS: dict[Kernel, Callable[[KernelKind], Callable[[], object]]] = {
    "tiles": _chi2,
    "rows": _chi2,
    "transposition": _transposition,
    "running median": _running_median,
    "noise": _noise,
    "SumThreshold": _sum_threshold,
    "degridder": _gridding,
    "gridder": _gridding,
}
"""What is timed of each kernel, in the shape that it has inside `choice.forced`."""


def _tracks(n_plane: int) -> Rows:
    """Rows of correlations with so many planes; an array turns over an hour, about the meridian."""
    rng, (n_antenna, n_time) = np.random.default_rng(1), _GRIDDED
    x, y, z = rng.normal(scale=1000.0, size=(3, n_antenna))
    hour = np.linspace(-0.13, 0.13, n_time)[:, None]
    to_west = np.cos(hour) * x - np.sin(hour) * y
    dec = np.deg2rad(-35.0)
    u, v = np.sin(hour) * x + np.cos(hour) * y, np.cos(dec) * z - np.sin(dec) * to_west
    position = np.stack([u, v, np.sin(dec) * z + np.cos(dec) * to_west], axis=-1)
    first, second = np.triu_indices(n_antenna, 1)
    uvw = (position[:, second] - position[:, first]).reshape(-1, 3)
    p, q = (np.tile(side, n_time).astype(np.int32) for side in (first, second))
    time_index = np.repeat(np.arange(n_time, dtype=np.int32), first.size)
    matrix = stokes_to_corr({1: ["I"], 2: ["XX", "YY"], 4: ["XX", "XY", "YX", "YY"]}[n_plane])
    return Rows(uvw, p, q, time_index, np.linspace(1.3e9, 1.36e9, _CHAN // 2), matrix, n_antenna, n_time)


@functools.lru_cache(maxsize=1)
def make_problem(antennas: str, polarised: bool, has_gaussian: bool) -> Problem:
    """All baselines at all times; four correlations of polarised sources, or the two of Stokes I."""
    rng = np.random.default_rng(1)
    n_antenna, n_time = SIZES[antennas]
    first, second = np.triu_indices(n_antenna, 1)
    position = rng.normal(scale=500.0, size=(n_time, n_antenna, 3))
    uvw = (position[:, first] - position[:, second]).reshape(-1, 3)
    p, q = (np.tile(x, n_time).astype(np.int32) for x in (first, second))
    time_index = np.repeat(np.arange(n_time, dtype=np.int32), first.size)
    matrix = stokes_to_corr(["XX", "XY", "YX", "YY"] if polarised else ["XX", "YY"])
    rows = Rows(uvw, p, q, time_index, np.linspace(1.0e9, 1.5e9, _CHAN), matrix, n_antenna, n_time)
    shape = rows.n_row, rows.n_chan, rows.n_corr
    return Problem(rows, np.ones(shape, np.complex64), np.ones(shape), _sources(rng, polarised, has_gaussian))


def _sources(rng: np.random.Generator, polarised: bool, has_gaussian: bool) -> Sources:
    """Points, or half points and half Gaussians, as a sampler hands them over."""
    n_gaussian = _SOURCE // 2 if has_gaussian else 0
    stokes = np.zeros((_BATCH, 1, _SOURCE, 4))
    stokes[..., 0] = 1.0
    stokes[..., 1:] = 0.1 if polarised else 0.0
    return Sources(
        rng.uniform(-0.01, 0.01, (_BATCH, _SOURCE, 2)),
        stokes,
        np.full(_SOURCE, 1.25e9),
        np.full((_BATCH, _SOURCE, 4, 1), -0.7),
        np.ones(_SOURCE, np.bool_),
        np.tile([2e-5, 1e-5, 0.5], (_BATCH, n_gaussian, 1)),
    )
