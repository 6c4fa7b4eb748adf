"""The gradient on CUDA where it has ways of its own: parts of tiles, sums over threads, slabs, batches.

That it is right for every variant of the model is in `test_gradient.py`.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rime_kernels import Gradient, Rime, Rows, Sources, device, stokes_to_corr
from tests.rime_kernels.problems import LINEAR, data_for, with_data

FORMS = ["factored", "row"]
# Where forms differ in nothing that a test is about, the simulator runs one.
FORMS_ON_DEVICE = ["factored", pytest.param("row", marks=pytest.mark.on_device)]
SIMULATED = device.simulated()
# As in `test_gradient.py`: differences keep 1e-8.
TOLERANCE = 1e-7
# As there: float32 terms of 1e-7, weighted by coordinates that are differences of larger ones.
SINGLE_TOLERANCE = 2e-5
# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("cuda_backend", "tiles_always"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


def arrays_of(chi2: np.ndarray, gradient: Gradient) -> dict[str, np.ndarray]:
    return {"chi2": chi2, **{k: v for k, v in vars(gradient).items() if v is not None}}


def answer(rime: Rime, sources: Sources) -> dict[str, np.ndarray]:
    return arrays_of(*rime.chi2_and_gradient(sources))


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """To the bit: what is summed together, and in which order, depends on the problem alone."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def assert_right(
    reference: Any, rows: Rows, sources: Sources, found: dict[str, np.ndarray], tolerance: float = TOLERANCE,
    corr: list[str] = LINEAR, data: dict[str, np.ndarray] | None = None,
) -> None:  # fmt: skip
    """Along a random direction, and for some elements by themselves, against differences of explicit sums."""

    def slope(name: str, change: np.ndarray, step: float) -> np.ndarray:
        values = getattr(sources, name)

        def chi2(x: float) -> np.ndarray:
            moved = replace(sources, **{name: values + x * change})
            found: np.ndarray = reference.chi2(rows, corr, moved, **(data or data_for(rows)))
            return found

        result: np.ndarray = reference.derivative(chi2, step)
        return result

    rng = np.random.default_rng(7)
    for name, step in (("lm", 2e-6), ("stokes", 0.05), ("shape", 1e-3)):
        values = getattr(sources, name)
        if not values.size:
            continue
        scale = np.abs(values) if name == "shape" else 1.0
        change = rng.normal(size=values.shape) * scale
        if name == "stokes" and not values[..., 1:].any():
            change[..., 1:] = 0.0  # of sources with I alone, that is all that is worked out
        expected = slope(name, change, step / 3.0)
        product = found[name] * change
        # Terms of either sign: what their sum may be wrong by is relative to them.
        error = np.abs(product.reshape(len(product), -1).sum(axis=1) - expected)
        assert np.all(error < tolerance * np.sqrt((product**2).reshape(len(product), -1).sum(axis=1)))


# ---- sums over threads


@pytest.mark.parametrize("n_lane", [8, 16, 32])
@pytest.mark.parametrize("n_value", [1, 4, 8, 16, 32, 64])
def test_sums_over_lanes(n_value, n_lane) -> None:
    from rime_kernels.cuda.kernels.reductions import make_warp_reduce

    warp_reduce, n_thread = make_warp_reduce(n_value, n_lane), 64
    n_sum = n_thread // n_lane * n_value

    @cuda.jit
    def kernel(values: Any, out: Any) -> None:
        thread = cuda.threadIdx.x
        mine = cuda.local.array(n_value, np.float64)
        for k in range(n_value):
            mine[k] = values[thread, k]
        warp_reduce(thread, mine, out, thread // n_lane * n_value)

    values = np.random.default_rng(1).integers(-1000, 1000, (n_thread, n_value)).astype(np.float64)
    out = device.empty((n_sum,), np.float64)
    kernel[1, n_thread](device.upload(values), out)
    # Whole numbers: every order gives the same.
    expected = values.reshape(n_thread // n_lane, n_lane, n_value).sum(axis=1)
    np.testing.assert_array_equal(out.copy_to_host(), expected.ravel())


def test_totals_of_groups_do_not_depend_on_the_pieces() -> None:
    """Groups that begin within a piece, end in a later one, or have no units at all."""
    from rime_kernels.cuda.adjoint_totals import collect, grouped

    time = np.array([1, 1, 1, 2, 4, 4, 4, 4, 6], np.int32)
    n_batch, n_column, n_copy, n_item = 2, 3, 2, 5
    records = np.random.default_rng(2).normal(size=(n_batch, time.size, n_column, n_copy, n_item))
    groups = grouped(time, 8, 1)
    for ends in ([0, 9], [0, 3, 9], [0, 1, 5, 6, 9], [0, 4, 8, 9]):
        totals = device.upload(np.full((n_batch, 8, n_column, n_item), np.nan))
        for first, stop in itertools.pairwise(ends):
            part = device.upload(np.ascontiguousarray(records[:, first:stop]).ravel())
            collect(groups, first, stop, n_copy, part, totals)
        expected = np.stack([records[:, time == t].sum(axis=(1, 3)) for t in range(8)], axis=1)
        # Sums of up to 8 numbers of order 1 in another order.
        np.testing.assert_allclose(totals.copy_to_host(), expected, rtol=0, atol=1e-14)
    assert grouped(time, 1, 10**6).n_group == 1
    assert grouped(time, 1, 1).n_group == time.size


# ---- how tiles are shared out


@pytest.mark.parametrize("n_antenna", [2, pytest.param(5, marks=pytest.mark.on_device), 9])
def test_tiles_that_share_a_block_or_need_several(problem, sky, reference, n_antenna) -> None:
    """Simulated, 9 antennas have 15 tiles of one block, 10 more than one; 2 have a single one."""
    n_antenna += n_antenna == 9 and device.simulated()
    rows = problem(n_antenna=n_antenna, n_time=2, n_chan=1)
    sources = sky(rows, n_batch=1, n_point=1, n_gaussian=1, stokes=np.ones((1, 1, 2, 4)))
    assert_right(reference, rows, sources, answer(with_data(rows, form="factored"), sources))


def test_threads_beyond_those_of_the_tiles(problem, sky, beam_of, reference, monkeypatch) -> None:
    """Blocks are whole warps: some threads have no tile, and no item either."""
    from rime_kernels.cuda.adjoint_launch import TileShare

    rows = problem(n_antenna=5, n_time=2, n_chan=1)
    sources = sky(rows, beam=beam_of(rows, "cos3", pointing=True))
    monkeypatch.setattr(
        TileShare, "n_thread", property(lambda cut: 32 + -(-cut.n_item * cut.n_lanes // 32) * 32)
    )
    assert_right(reference, rows, sources, answer(with_data(rows, form="factored"), sources))


@pytest.mark.parametrize("form", FORMS_ON_DEVICE)
def test_more_sources_than_a_chunk(problem, sky, reference, form) -> None:
    rows = problem(n_antenna=3, n_time=1, n_chan=1)
    n_point, n_gaussian = (5, 6) if device.simulated() else (19, 35)
    stokes = np.random.default_rng(1).normal(size=(1, 1, n_point + n_gaussian, 4))
    sources = sky(rows, n_batch=1, n_point=n_point, n_gaussian=n_gaussian, stokes=stokes)
    assert_right(reference, rows, sources, answer(with_data(rows, form=form), sources))


@pytest.mark.parametrize("n_gaussian", [pytest.param(0, marks=pytest.mark.on_device), 2])
@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.on_device)])
@pytest.mark.parametrize("side", [4, pytest.param(5, marks=pytest.mark.on_device)])
def test_large_tiles_whose_slopes_are_summed_by_antenna(
    problem, sky, reference, side, precision, n_gaussian
) -> None:
    """Stokes I, and antennas that fill one group of a tile and a part of another."""
    from rime_kernels.cuda.kernels.tiles.parts import TileShape
    from rime_kernels.cuda.launch_shapes.choice import forced

    rows = problem(n_antenna=side + 2, n_time=1, n_chan=1)
    sources = sky(rows, n_batch=1, n_point=1, n_gaussian=n_gaussian)
    sources.stokes[..., 1:] = 0.0
    n_thread = 16 if SIMULATED else 96
    with forced("tiles", TileShape(side, n_thread, 4, 4 * side, 1)):
        rime = with_data(rows, form="factored", precision=precision)
        assert f"tiles of {side} x {side}" in rime.plan(sources)
        found = answer(rime, sources)
    assert_right(reference, rows, sources, found, TOLERANCE if precision == "double" else SINGLE_TOLERANCE)


@pytest.mark.parametrize("far", [0, 1, 4])
def test_a_distant_antenna_without_data_costs_no_digits(reference, far) -> None:
    """Coordinates of the others are not taken from there: in single precision these would be half a metre."""
    from rime_kernels.cuda.kernels.tiles.parts import TileShape
    from rime_kernels.cuda.launch_shapes.choice import forced

    rng = np.random.default_rng(1)
    position = rng.normal(scale=300.0, size=(6, 3))
    position[far] += [3e6, 4e6, 1e6]
    p, q = np.triu_indices(6, 1)
    rows = Rows(position[p] - position[q], p, q, np.zeros(15, int), [1.3e9], stokes_to_corr(["XX"]), 6, 1)
    weight = np.where((p == far) | (q == far), 0.0, 1.0)[:, None, None]
    vis = rng.normal(size=weight.shape) + 1j * rng.normal(size=weight.shape)
    shape = np.array([[[3e-5, 1e-5, 0.3], [2e-5, 2e-5, 0.1]]])
    stokes, terms = rng.normal(size=(1, 1, 3, 4)) * [1, 0, 0, 0], rng.normal(size=(1, 3, 4, 1))
    sources = Sources(
        rng.uniform(-0.01, 0.01, (1, 3, 2)), stokes, np.full(3, 1.3e9), terms, np.ones(3, bool), shape
    )
    data = {"vis": vis, "weight": weight}
    with forced("tiles", TileShape(4, 16 if SIMULATED else 96, 4, 16, 1)):
        rime = Rime(rows, **data, form="factored", extent=0.03, backend="cuda", precision="single")
        assert "tiles of 4 x 4" in rime.plan(sources)
        found = answer(rime, sources)
    # Sums of 10 visibilities in single precision.
    assert_right(reference, rows, sources, found, 2e-6, ["XX"], data)


# ---- memory


@pytest.mark.parametrize(
    ("form", "beam", "per_time"),
    [("factored", False, True), ("row", True, False)]
    if SIMULATED
    else [*itertools.product(FORMS, [False, True], [False, True])],
)
def test_no_limit_of_memory_changes_a_bit(problem, sky, beam_of, form, beam, per_time) -> None:
    """Data in many slabs, records in many pieces, entries one by one."""
    n_time = 4 if form == "factored" else 6 if SIMULATED else 8
    rows = problem(n_antenna=3, n_time=n_time, n_chan=1)
    made = beam_of(rows, "cos3") if beam else None
    sources = sky(rows, n_point=1, n_gaussian=1, beam=made)
    if not per_time:
        sources = replace(sources, stokes=sources.stokes[:, :1].copy())
    options = {"form": form, "precision": "single"}
    expected = answer(with_data(rows, **options), sources)
    for limit in (1,) if SIMULATED else (1, 10_000):
        limited = with_data(rows, **options, memory_limit=limit)
        assert_same(answer(limited, sources), expected)
        (data,) = limited.engine.data.held.values()  # type: ignore[attr-defined]
        assert limit > 1 or not data.resident


@pytest.mark.parametrize("form", FORMS_ON_DEVICE)
def test_records_are_cut_where_the_data_are_not(problem, sky, form) -> None:
    rows = problem(n_antenna=3, n_time=3 if form == "factored" else 8, n_chan=1)
    sources = sky(rows, n_point=1, n_gaussian=0, stokes=np.ones((2, 1, 1, 4)))
    expected = answer(with_data(rows, form=form), sources)
    other = with_data(rows, form=form)
    other.engine.work_budget = 100  # type: ignore[attr-defined]
    assert_same(answer(other, sources), expected)
    (data,) = other.engine.data.held.values()  # type: ignore[attr-defined]
    assert data.resident


def test_work_that_does_not_fit_is_cut(problem, sky, monkeypatch) -> None:
    rows = problem(n_antenna=3, n_time=3, n_chan=1)
    sources = sky(rows, n_batch=3, n_point=1, n_gaussian=0, stokes=np.ones((3, 1, 1, 4)))
    expected = answer(with_data(rows), sources)
    given: Callable[..., Any] = device.Workspace.array
    refused = []

    def array(workspace: Any, name: str, shape: tuple[int, ...], dtype: type) -> Any:
        if name == "records 0" and np.prod(shape) > 40:
            refused.append(shape)
            raise device.DeviceMemoryError("the device has no room for 1 MB")
        return given(workspace, name, shape, dtype)

    monkeypatch.setattr(device.Workspace, "array", array)
    assert_same(answer(with_data(rows), sources), expected)
    assert refused


# ---- again and again


@pytest.mark.on_device
@pytest.mark.parametrize("form", FORMS)
def test_it_repeats_to_the_bit_with_chi2_between(problem, sky, form) -> None:
    """chi2 is recorded at its second call; the gradient uses some of its arrays."""
    rows = problem(n_antenna=3, n_time=2, n_chan=1 if SIMULATED else 2)
    batches = (1, 2) if SIMULATED else (1, 3)
    rime, skies = with_data(rows, form=form), [sky(rows, n_batch=n, seed=n) for n in batches]
    first = [(rime.chi2(each), answer(rime, each)) for each in skies]
    for _ in range(2):
        for each, (chi2, expected) in zip(skies, first, strict=True):
            assert_same(answer(rime, each), expected)
            np.testing.assert_array_equal(rime.chi2(each), chi2)
            # The same tiles, or rows, in blocks of other sizes.
            np.testing.assert_allclose(expected["chi2"], chi2, rtol=1e-13)


def test_entries_are_what_they_are_alone(problem, sky) -> None:
    rows = problem(n_antenna=3, n_time=2, n_chan=1)
    sources, rime = sky(rows, n_batch=3, n_point=1, n_gaussian=1), with_data(rows)
    whole = answer(rime, sources)
    for b in range(3):
        alone = answer(rime, sources.entries(b, b + 1))
        assert_same(alone, {name: values[b : b + 1] for name, values in whole.items()})


@pytest.mark.alone
def test_device_memory_does_not_grow(problem, sky) -> None:
    """Other programs on the device would be counted, too."""
    if device.simulated():
        pytest.skip("simulated: there is no device whose memory could grow")
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    rime, skies = with_data(rows), [sky(rows, n_batch=n) for n in (1, 3)]

    def used() -> int:
        for i in range(300):
            rime.chi2_and_gradient(skies[i % 2])
        free, total = device.cuda.current_context().get_memory_info()
        return int(total - free)

    before = used()
    assert used() == before
