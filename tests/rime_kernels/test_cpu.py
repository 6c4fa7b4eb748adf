"""The CPU loops: vectors, what they hold, and any ragged problem against explicit sums."""

import mmap
from dataclasses import fields
from types import ModuleType

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rime_kernels import Beam, Rime, Rows, Sources, stokes_to_corr
from rime_kernels.choices import Precision
from rime_kernels.cpu import brightness, forward, simd
from rime_kernels.cpu.engine import make_tasks
from rime_kernels.cpu.lanes import Lanes, aligned, make_lanes
from rime_kernels.cpu.simd import load, n_lanes, pointer, store, zeros
from rime_kernels.cpu.vector_math import cos_sin, cos_sin_turns, exp
from rime_kernels.geometry import Form, row_table, solve_antennas
from rime_kernels.inputs import constants
from tests.rime_kernels.problems import LINEAR

# ---- vectors


@numba.njit
def vector_cos_sin(turns, cos, sin):
    wide = zeros(np.float64, 8)
    for i in range(0, turns.size, 8):
        c, s = cos_sin_turns(load(pointer(turns), i, wide), load(pointer(cos), i, wide))
        store(pointer(cos), i, c)
        store(pointer(sin), i, s)


@numba.njit
def vector_exp(x, out):
    like = zeros(np.float64, 8)
    for i in range(0, x.size, 8):
        store(pointer(out), i, exp(load(pointer(x), i, like)))


@pytest.mark.parametrize(("real", "tolerance"), [(np.float32, 6e-7), (np.float64, 1e-15)])
def test_cos_sin_of_turns(real, tolerance: float) -> None:
    # 2 sin cos and 1 - 2 sin^2 of half the angle: ten roundings of the type.
    pi = np.longdouble("3.14159265358979323846264338327950288")
    turns = np.concatenate([np.linspace(-1.0, 1.0, 4096), np.random.default_rng(1).normal(size=4096) * 1e6])
    angle = 2 * pi * (np.longdouble(turns) - np.rint(np.longdouble(turns)))
    cos, sin = np.empty(turns.size, real), np.empty(turns.size, real)
    vector_cos_sin(turns, cos, sin)
    assert np.abs(cos - np.cos(angle)).max() < tolerance
    assert np.abs(sin - np.sin(angle)).max() < tolerance


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 3), (8,), (2, 1, 4097)])
def test_cos_sin_of_arrays(shape: tuple[int, ...]) -> None:
    angle = np.random.default_rng(1).normal(size=shape) * 10.0
    exact = angle.astype(np.longdouble)
    for found, expected in zip(cos_sin(angle), (np.cos(exact), np.sin(exact)), strict=True):
        assert found.shape == shape
        # Ten roundings, and two of the angle in turns.
        assert (np.abs(found - expected) < 1e-15 + 2.3e-16 * np.abs(angle)).all()
    assert np.isnan(cos_sin(np.array([np.nan, np.inf]))).all()


@pytest.mark.parametrize("has_large_pages", [True, False])
def test_arrays_begin_where_cache_lines_and_large_pages_do(monkeypatch, has_large_pages: bool) -> None:
    """Zeros that can be written, from the first to the last; with and without large pages."""
    if not has_large_pages:
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    elif not hasattr(mmap, "MADV_HUGEPAGE"):
        pytest.skip("this system has no large pages")
    for n, step in ((3, 64), (1000, 64), (200_000, 2 << 20), (1_000_001, 2 << 20)):
        found = aligned((n, 1), np.float64)
        assert found.ctypes.data % (step if has_large_pages else 64) == 0
        assert found.shape == (n, 1)
        assert not found.any()
        found[...] = np.arange(n)[:, None]
        np.testing.assert_array_equal(found[:, 0], np.arange(n))


@pytest.mark.parametrize(
    ("real", "lowest", "tolerance"), [(np.float32, -87, 2e-7), (np.float64, -700, 4e-16)]
)
def test_exp(real, lowest: float, tolerance: float) -> None:
    x = np.concatenate([np.linspace(lowest, -lowest, 4096), np.linspace(-2.0, 0.0, 4096)]).astype(real)
    found = np.empty_like(x)
    vector_exp(x, found)
    # The rounding of x log2(e), |x|/3 half units, is what remains for large |x|.
    error = np.abs(found / np.exp(x.astype(np.longdouble)) - 1) / (1 + np.abs(x.astype(float)) / 3)
    assert error.max() < tolerance


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_vectors_keep_nan_and_hold_the_extremes(real) -> None:
    x = np.array([np.nan, -1e5, 1e5, -np.inf, np.inf, 0.0, 1.0, -1.0], real)
    found, cos, sin = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    vector_exp(x, found)
    assert np.isnan(found[0])
    assert (found[[1, 3]] < 1e-37).all()
    assert (found[[2, 4]] > 1e38).all()
    assert found[5] == 1.0
    vector_cos_sin(x.astype(float), cos, sin)
    assert np.isnan([cos[[0, 3, 4]], sin[[0, 3, 4]]]).all()


# ---- lanes and tasks


def rows_of(seed: int, n_antenna: int, n_time: int, n_chan: int, n_row: int) -> Rows:
    """Any rows at all: repeated, missing, swapped, of an antenna with itself, in any order of time."""
    rng = np.random.default_rng(seed)
    p, q = rng.integers(0, n_antenna, (2, n_row))
    time = rng.integers(0, n_time, n_row)
    position = rng.normal(scale=200.0, size=(n_time, n_antenna, 3))
    uvw = position[time, p] - position[time, q]
    freq = np.sort(rng.uniform(1.0e9, 1.4e9, n_chan))
    return Rows(uvw, p, q, time, freq, stokes_to_corr(LINEAR), n_antenna, n_time)


sizes = {
    "seed": st.integers(0, 2**32 - 1),
    "n_antenna": st.integers(1, 9),
    "n_time": st.integers(1, 40),
    "n_chan": st.sampled_from([1, 2, 5, 16, 17]),
    "n_row": st.integers(1, 60),
}


def lanes_of(rows: Rows, n: int, factored: bool) -> Lanes:
    table, index = (
        row_table(rows.time_index, rows.n_time),
        np.arange(rows.n_row * rows.n_chan * 4).reshape(rows.n_row, rows.n_chan, 4),
    )
    data = index + 0.5j * index, 1.0 + index
    no_template = np.zeros((0, *index.shape))
    fixed = constants(rows, table, solve_antennas(rows).uvw, data, (no_template, np.zeros((0, 2))), False)
    return make_lanes(fixed, n, factored)


def cells(lanes: Lanes) -> NDArray[np.int64]:
    """Row and channel of each lane (n_block, n_entry, n, 2)."""
    shape = (len(lanes.chan), len(lanes.row), lanes.chan.shape[1])
    return np.stack([np.broadcast_to(lanes.row, shape), np.broadcast_to(lanes.chan[:, None], shape)], axis=-1)


@settings(max_examples=60, deadline=None)
@given(n=st.sampled_from([2, 8, 16]), factored=st.booleans(), **sizes)
def test_every_visibility_has_one_lane(n: int, factored: bool, **size: int) -> None:
    rows = rows_of(**size)
    lanes = lanes_of(rows, n, factored)
    cell = cells(lanes)
    used = (cell >= 0).all(axis=-1)
    row, chan = cell[used].T
    assert np.array_equal(np.sort(row * rows.n_chan + chan), np.arange(rows.n_row * rows.n_chan))
    at = np.nonzero(used)
    antenna = np.broadcast_to(lanes.antenna, (len(lanes.row), 2, n))[at[1], :, at[2]]
    assert np.array_equal(antenna, np.stack([rows.antenna1, rows.antenna2], axis=1)[row])
    uvw = np.broadcast_to(lanes.uvw, (len(lanes.row), 3, n))[at[1], :, at[2]]
    assert np.array_equal(uvw, rows.uvw[row])
    slot = np.searchsorted(lanes.slot_entry, at[1], side="right") - 1
    time = np.broadcast_to(lanes.slot_time, (len(lanes.slot_time), n))[slot, at[2]]
    assert np.array_equal(time, rows.time_index[row])
    values = np.moveaxis(lanes.data, -1, 2)
    index = np.arange(rows.n_row * rows.n_chan * 4).reshape(rows.n_row, rows.n_chan, 4)[row, chan]
    assert np.array_equal(values[used], np.stack([index, 0.5 * index, 1.0 + index], axis=-1))
    assert not values[~used].any()


@settings(max_examples=60, deadline=None)
@given(n_source=st.sampled_from([1, 100, 10**6]), factored=st.booleans(), **sizes)
def test_every_entry_has_one_task(n_source: int, factored: bool, **size: int) -> None:
    lanes = lanes_of(rows_of(**size), 8, factored)
    done = np.zeros((len(lanes.chan), len(lanes.row)), int)
    for block, slot, slot_stop, first, stop in make_tasks(lanes, n_source):
        entries = slice(max(first, lanes.slot_entry[slot]), min(stop, lanes.slot_entry[slot_stop]))
        done[block, entries] += 1
    assert (done == 1).all()


# ---- the RIME


def test_a_sky_without_sources_has_no_beam(beam_of) -> None:
    rows = rows_of(1, n_antenna=5, n_time=3, n_chan=2, n_row=20)
    empty = sky_of(2, rows, 0, 0, False, False)
    sources = Sources(
        **{**{f.name: getattr(empty, f.name) for f in fields(empty)}, "beam": beam_of(rows, "airy")}
    )
    for form in ("factored", "row"):
        assert not Rime(rows, backend="cpu", form=form, extent=0.0).predict(sources).any()


def sky_of(seed: int, rows: Rows, n_point: int, n_gaussian: int, per_time: bool, pointing: bool) -> Sources:
    rng = np.random.default_rng(seed)
    n, n_batch = n_point + n_gaussian, 2
    errors = rng.normal(scale=0.004, size=(n_batch, rows.n_time, rows.n_antenna, 2))
    return Sources(
        lm=rng.uniform(-0.04, 0.04, (n_batch, n, 2)),
        stokes=rng.uniform(-1.0, 1.0, (n_batch, rows.n_time if per_time else 1, n, 4)),
        ref_freq=rng.uniform(1.0e9, 2.0e9, n),
        spectral_terms=rng.uniform(-1.0, 1.0, size=(n_batch, n, 4, 2)),
        log_spectrum=rng.random(n) < 0.5,
        shape=np.sort(rng.uniform(1e-5, 4e-4, (n_batch, n_gaussian, 3)))[..., ::-1] * [1, 1, 1e4],
        beam=Beam("cos3", np.full(n_batch, 20e-9), errors) if pointing else None,
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    precision=st.sampled_from(["double", "single"]),
    form=st.sampled_from(["factored", "row"]),
    n_point=st.sampled_from([0, 1, 2, 60]),
    n_gaussian=st.sampled_from([0, 1, 55]),
    per_time=st.booleans(),
    pointing=st.booleans(),
    **sizes,
)
def test_any_problem(
    reference: ModuleType, precision, form, n_point, n_gaussian, per_time, pointing, **size: int
) -> None:
    if n_point + n_gaussian > 5:  # the explicit sums are slow
        size["n_chan"], size["n_row"] = min(size["n_chan"], 2), min(size["n_row"], 20)
    rows = rows_of(**size)
    sources = sky_of(size["seed"], rows, n_point, n_gaussian, per_time, pointing)
    rng = np.random.default_rng(size["seed"])
    shape = (rows.n_row, rows.n_chan, 4)
    vis, weight = rng.normal(size=shape) + 1j * rng.normal(size=shape), rng.uniform(0.0, 2.0, shape)
    rime = Rime(rows, vis=vis, weight=weight, backend="cpu", precision=precision, form=form, extent=0.04)
    expected = reference.visibilities(rows, LINEAR, sources)
    # Phases of up to 300 turns, good to 2e-16 of that; float32 terms of them. Sources are of some Jy.
    scale = 1.0 + np.abs(expected).max() + np.sqrt(n_point + n_gaussian)
    tolerance = scale * (1e-12 if precision == "double" else 1e-6)
    np.testing.assert_allclose(rime.predict(sources), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(rime.residual(sources), expected - vis, rtol=0, atol=tolerance)
    square = weight * np.abs(expected - vis) ** 2
    np.testing.assert_allclose(rime.weighted_residual2(sources), square, rtol=0, atol=10 * scale * tolerance)
    np.testing.assert_allclose(rime.chi2(sources), square.sum(axis=(1, 2, 3)), rtol=tolerance)


@pytest.fixture
def many_tasks() -> tuple[Rime, Sources]:
    rng = np.random.default_rng(3)
    rows = rows_of(1, n_antenna=30, n_time=30, n_chan=40, n_row=3000)
    vis = rng.normal(size=(3000, 40, 4)) + 0j
    rime = Rime(rows, vis=vis, weight=np.ones(vis.shape), backend="cpu", precision="single", extent=0.04)
    return rime, sky_of(4, rows, 60, 10, False, False)


def test_threads_do_not_change_a_bit(many_tasks) -> None:
    rime, sources = many_tasks
    assert len(make_tasks(lanes_of(rime.rows, 8, True), 70)) > 20
    n_thread = numba.get_num_threads()
    expected = [rime.chi2(sources) for _ in range(3)]
    try:
        numba.set_num_threads(1)
        found = rime.chi2(sources)
    finally:
        numba.set_num_threads(n_thread)
    for again in expected:
        np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize("n_point", [31, 32, 33, 65])
@pytest.mark.parametrize(("n_antenna", "precision"), [(9, "double"), (17, "single")])
def test_total_intensity_of_points_in_pieces(
    problem, sky, error_of, reference: ModuleType, n_antenna: int, precision: Precision, n_point: int
) -> None:
    """Pairs of antennas are summed four at a time, of squares of eight, and sources in pieces of 32."""
    rows = problem(n_antenna=n_antenna, n_time=2, n_chan=5, corr=["I"])
    stokes = np.random.default_rng(6).normal(size=(2, 1, n_point, 4)) * [1.0, 0.0, 0.0, 0.0]
    sources = sky(rows, n_point=n_point, n_gaussian=0, stokes=stokes)
    rime = Rime(rows, backend="cpu", form="factored", precision=precision, extent=0.06)
    # As in `test_cuda.py`: rounding of phases of some hundred turns, and of sums.
    tolerance = {"double": 1e-12, "single": 2e-6}[precision]
    assert error_of(rime.predict(sources), reference.visibilities(rows, ["I"], sources)) < tolerance


def test_short_and_long_baselines_lose_no_digits(reference: ModuleType) -> None:
    """Gaussians see the difference of two antennas 1 m apart, 5000 km from the others."""
    position = np.array([[0.0, 0.0, 0.0], [0.7, 0.7, 0.1], [5e6, -3e6, 2e6], [5e6 + 0.8, -3e6 + 0.6, 2e6]])
    first, second = np.triu_indices(4, 1)
    none = np.zeros(6, int)
    uvw = position[first] - position[second]
    rows = Rows(uvw, first, second, none, [1e9, 1.1e9], stokes_to_corr(["I"]), 4, 1)
    # Half of its flux on 1 m, nothing on the long baselines.
    sources = Sources(
        [[[1e-3, 2e-3]]], [[[[1.0, 0, 0, 0]]]], [1e9], np.zeros((1, 1, 4, 0)), [True], [[[0.1, 0.05, 0.3]]]
    )
    for form in ("factored", "row"):
        found = Rime(rows, backend="cpu", precision="single", form=form, extent=0.01).predict(sources)
        expected = reference.visibilities(rows, ["I"], sources)
        assert 0.1 < np.abs(expected).max() < 0.9
        # float32 terms of float64 phases and coordinates.
        assert np.abs(found - expected).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("form", ["factored", "row"])
def test_narrow_registers(reference: ModuleType, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    makers = (brightness.make_spectra, forward.make_visibilities)
    try:
        monkeypatch.setattr(simd, "register_bytes", lambda: 16)
        for maker in makers:
            maker.cache_clear()
        rows = rows_of(1, n_antenna=6, n_time=7, n_chan=5, n_row=50)
        sources = sky_of(2, rows, 3, 2, True, True)
        expected = reference.visibilities(rows, LINEAR, sources)
        rime = Rime(rows, backend="cpu", form=form, extent=0.04)
        assert n_lanes(np.float64) == 2
        np.testing.assert_allclose(rime.predict(sources), expected, rtol=0, atol=1e-11)
    finally:
        for maker in makers:
            maker.cache_clear()
