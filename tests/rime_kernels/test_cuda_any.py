"""The CUDA kernels on any ragged problem at all, against explicit sums in float64."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rime_kernels import Beam, Rime, Rows, Sources, device, stokes_to_corr
from tests.rime_kernels.problems import CIRCULAR, LINEAR

CORRELATIONS = [
    *(LINEAR, LINEAR[::-1], CIRCULAR, ["I", "Q", "U", "V"]),
    *(["YY", "XX"], ["LL", "RR"], ["RL", "LR"], ["I", "Q"], ["U", "I"]),
    *(["YX"], ["RR"], ["I"], ["V"]),
]
TOLERANCE = {"double": 1e-12, "single": 2e-6}


class Kind(NamedTuple):
    """What kernels are compiled for."""

    precision: str
    form: str
    corr: list[str]
    polarised: bool
    beam: str
    has_gaussian: bool


class Size(NamedTuple):
    n_antenna: int
    n_time: int
    n_chan: int
    even: bool
    n_row: int
    n_batch: int
    n_point: int
    n_gaussian: int
    per_time: bool


def kinds() -> Any:
    """Any kind; on a device, where each takes seconds to compile, some that hold all there is."""
    precisions, forms = ["double", "single"], ["factored", "row"]
    if not device.simulated():
        some = [(LINEAR, True, "pointing", True), (["I"], False, "none", False)]
        more = [(["LL", "RR"], True, "shared", False), (LINEAR, True, "none", True)]
        return st.sampled_from(
            [Kind(p, f, *k) for p in precisions for f in forms for k in some + more * (f == "factored")]
        )
    corr = st.sampled_from(CORRELATIONS)
    beams = st.sampled_from(["none", "shared", "pointing", "pointing for good"])
    return st.builds(
        Kind, st.sampled_from(precisions), st.sampled_from(forms), corr, st.booleans(), beams, st.booleans()
    )


sizes = st.builds(
    Size,
    n_antenna=st.integers(1, 9),
    n_time=st.integers(1, 5),
    n_chan=st.sampled_from([1, 2, 3, 6] if device.simulated() else [1, 11]),
    even=st.booleans(),
    # Up to 32 rows have the same shape of the kernel over rows.
    n_row=st.integers(1, 14 if device.simulated() else 32),
    n_batch=st.integers(1, 3),
    n_point=st.integers(0, 6),
    n_gaussian=st.integers(1, 6),
    per_time=st.booleans(),
)


def rows_of(rng: np.random.Generator, size: Size, corr: list[str]) -> Rows:
    """Rows in any order, antennas either way round and with themselves; numbers and times left out."""
    number = np.sort(rng.choice(2 * size.n_antenna, size.n_antenna, replace=False))
    slot = np.sort(rng.choice(2 * size.n_time, size.n_time, replace=False))
    p, q = rng.choice(number, (2, size.n_row))
    time = rng.choice(slot, size.n_row)
    again = rng.random(size.n_row) < 0.3  # the first row once more, some turned round
    p, q = np.where(again, q[0], p), np.where(again, p[0], q)
    time = np.where(again, time[0], time)
    position = rng.normal(scale=200.0, size=(2 * size.n_time, 2 * size.n_antenna, 3))
    freq = np.linspace(1.0e9, 1.4e9, size.n_chan) if size.even else rng.uniform(1.0e9, 1.4e9, size.n_chan)
    uvw = position[time, p] - position[time, q]
    return Rows(uvw, p, q, time, freq, stokes_to_corr(corr), 2 * size.n_antenna, 2 * size.n_time)


def sky_of(rng: np.random.Generator, rows: Rows, size: Size, kind: Kind) -> Sources:
    n_gaussian = size.n_gaussian if kind.has_gaussian else 0
    n_batch, n = size.n_batch, size.n_point + n_gaussian
    stokes = rng.uniform(-1.0, 1.0, (n_batch, rows.n_time if size.per_time else 1, n, 4))
    if not kind.polarised:
        stokes[..., 1:] = 0.0
    elif stokes.size:
        stokes[0, 0, 0, 1] = 0.5
    n_slot = 1 if kind.beam == "pointing for good" else rows.n_time
    errors = rng.normal(scale=0.004, size=(n_batch, n_slot, rows.n_antenna, 2))
    pointing = errors if kind.beam.startswith("pointing") else None
    return Sources(
        lm=rng.uniform(-0.04, 0.04, (n_batch, n, 2)),
        stokes=stokes,
        ref_freq=rng.uniform(1.0e9, 2.0e9, n),
        spectral_terms=rng.uniform(-1.0, 1.0, (n_batch, n, 4, rng.integers(0, 3))),
        log_spectrum=rng.random(n) < 0.5,
        shape=np.sort(rng.uniform(1e-5, 4e-4, (n_batch, n_gaussian, 3)))[..., ::-1] * [1, 1, 1e4],
        beam=None if kind.beam == "none" else Beam("cos3", rng.uniform(15e-9, 25e-9, n_batch), pointing),
    )


@pytest.mark.cuda
@pytest.mark.usefixtures("cuda_backend")
@settings(
    max_examples=5 if device.simulated() else 300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(kind=kinds(), size=sizes, frame=st.sampled_from(["tangent", "uv"]), seed=st.integers(0, 2**32 - 1))
def test_any_problem(
    tiles_always: None, reference: ModuleType, kind: Kind, size: Size, frame: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rows_of(rng, size, kind.corr)
    sources = sky_of(rng, rows, size, kind)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    vis = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    given_vis = np.where(weight > 0, vis, np.nan)
    rime = Rime(
        rows, vis=given_vis, weight=weight, backend="cuda", precision=kind.precision, form=kind.form,
        gaussian_frame=frame, extent=0.04,
    )  # fmt: skip
    expected = reference.visibilities(rows, kind.corr, sources, frame)
    # Relative to the visibilities, or to 1 Jy where sources of some Jy cancel.
    norm = np.sqrt(np.sum(np.abs(expected) ** 2, axis=(1, 2, 3)) + np.prod(shape))
    tolerance = TOLERANCE[kind.precision]
    error = np.sqrt(np.sum(np.abs(rime.predict(sources) - expected) ** 2, axis=(1, 2, 3)))
    assert (error <= tolerance * norm).all()
    # Twice for the square; with data of about 1 Jy, errors of chi2 are those of V relative to both.
    square = (weight * np.abs(expected - vis) ** 2).sum(axis=(1, 2, 3))
    limit = 2 * tolerance * 2 * (norm**2 + np.sum(np.abs(vis) ** 2))
    assert (np.abs(rime.chi2(sources) - square) <= limit).all()
