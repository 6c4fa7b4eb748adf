"""Image-domain gridding on CUDA, or in its simulator: explicit sums over pixels, and its own adjoint."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, Rows, stokes_to_corr
from rime_kernels.gridding.cuda.items import split_long
from rime_kernels.gridding.plan import Plan
from rime_kernels.idg import Idg, ImageGrid
from rime_kernels.idg.cuda import subgrids
from rime_kernels.idg.cuda import tasks as tasks_cuda
from rime_kernels.idg.cuda.parts import IdgShape, TaskKind
from tests.rime_kernels.problems import LINEAR, deltas, relative, screens_of

N_ANTENNA, N_TIME = 4, 6
make_screens = partial(screens_of, n_antenna=N_ANTENNA, waves=1.0, falls=(0.1, 0.3))
# The simulator takes milliseconds for each thread: a small image, a coarse accuracy, small subgrids.
ACCURACY, SIZE = 1e-4, 16
ADJOINT = {"double": 1e-12, "single": 1e-5}

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def make_rows(
    n_row: int = 10, n_chan: int = 5, w_max: float = 100.0, corr: list[str] = LINEAR, even: bool = True
) -> Rows:
    """Rows of any uvw, autocorrelations and antenna1 > antenna2 among them, near 1 GHz."""
    rng = np.random.default_rng(5)
    uvw = rng.uniform(-1.0, 1.0, (n_row, 3)) * [20.0, 20.0, w_max]
    # Some neighbours in time, so that items have several rows.
    uvw[n_row // 2 :] = uvw[: n_row - n_row // 2] + rng.uniform(-0.3, 0.3, (n_row - n_row // 2, 3))
    p, q = rng.integers(0, N_ANTENNA, (2, n_row))
    p[n_row // 2 :], q[n_row // 2 :] = p[: n_row - n_row // 2], q[: n_row - n_row // 2]
    freq = 1.0e9 + 2e6 * np.arange(n_chan)
    if not even:
        freq = 1.0e9 + np.cumsum(rng.uniform(1e6, 3e6, n_chan))
    return Rows(uvw, p, q, rng.integers(0, N_TIME, n_row), freq, stokes_to_corr(corr), N_ANTENNA, N_TIME)


def small(**centre: float) -> ImageGrid:
    return ImageGrid(16, np.deg2rad(5.0) / 16, **{"l0": 0.02, "m0": -0.03, **centre})


def made(rows: Rows, grid: ImageGrid, **options: Any) -> Idg:
    return Idg(rows, grid, **{"accuracy": ACCURACY, "subgrid": SIZE, "backend": "cuda", **options})


def random_data(idg: Idg) -> tuple[np.ndarray, np.ndarray]:
    rng, rows = np.random.default_rng(8), idg.rows
    vis = rng.normal(size=(rows.n_row, rows.n_chan, rows.n_corr, 2)) @ [1.0, 1.0j]
    return vis, rng.uniform(0.0, 2.0, vis.shape)


def check(
    reference: ModuleType, idg: Idg, corr: list[str], n_stokes: int, screens: Any = None, slot: Any = None
) -> None:
    """Hold predictions against the sum over pixels, and the gridder against the degridder."""
    image, grid = deltas(idg.grid_of_image, n_stokes), idg.grid_of_image
    sampled = None if screens is None else screens(*idg.lm)
    predicted = idg.predict(image, sampled)
    expected = reference.direct_image(idg.rows, corr, image, grid, screens, slot)
    # The accuracy is that of the worst place in the image.
    assert relative(predicted, expected) < ACCURACY
    vis, weight = random_data(idg)
    there = np.sum((np.conj(predicted) * weight * vis).real)
    back = np.sum(image * idg.grid(vis, weight, n_stokes=n_stokes, screens=sampled))
    # Relative to what the sum could be: random visibilities nearly cancel.
    size = np.linalg.norm(predicted) * np.linalg.norm(weight * vis)
    assert abs(there - back) < ADJOINT[idg.precision] * size


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize(
    ("kind", "corr", "n_stokes"),
    [
        *(("2 x 2", LINEAR, 4), ("none", ["XX", "YY"], 1), ("none", ["RL"], 4)),
        *(
            pytest.param(kind, *each, marks=pytest.mark.on_device)
            for kind, *each in (
                *(("none", LINEAR, 4), ("scalar", LINEAR, 4), ("scalar", ["XX", "YY"], 1)),
                *(("2 x 2", ["XX", "YY"], 1), ("scalar", ["RL"], 4), ("2 x 2", ["RL"], 4)),
                *((kind, ["LL", "RL", "RR"], 4) for kind in ("none", "scalar", "2 x 2")),
            )
        ),
    ],
)
def test_sums_over_pixels_and_the_adjoint(
    cuda_backend: str, reference: ModuleType, precision: Any, kind: str, corr: list[str], n_stokes: int
) -> None:
    rows, grid, slot = make_rows(n_chan=3, corr=corr), small(), np.arange(N_TIME) // 3
    screens = None if kind == "none" else make_screens(kind, grid, 2)
    idg = made(rows, grid, precision=precision, aterm_slot=slot, aterm_support=2.0)
    check(reference, idg, corr, n_stokes, screens, slot)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize(
    ("n_chan", "even", "corr"),
    [
        *((1, True, LINEAR), (7, False, LINEAR), (23, True, LINEAR), (2, True, ["XX"]), (11, True, ["XX"])),
        *(
            pytest.param(*each, marks=pytest.mark.on_device)
            for each in (
                *((2, True, LINEAR), (11, True, LINEAR)),
                *((1, True, ["XX"]), (7, False, ["XX"]), (23, True, ["XX"])),
            )
        ),
    ],
)
def test_any_number_of_channels(
    cuda_backend: str, reference: ModuleType, precision: Any, n_chan: int, even: bool, corr: list[str]
) -> None:
    """Tasks of every kind: many channels, the rest of them, unevenly spaced ones."""
    rows = make_rows(4, n_chan, corr=corr, even=even)
    check(reference, made(rows, small(), precision=precision), corr, 1)


@pytest.mark.cuda
def test_layers_of_w_and_rows_turned_round(cuda_backend: str, reference: ModuleType) -> None:
    idg = made(make_rows(6, 2, w_max=3000.0), small(l0=0.0, m0=0.0))
    assert idg.row_plan.layer_w.size > 1
    assert idg.row_plan.flip.any()
    check(reference, idg, LINEAR, 4)


@pytest.mark.cuda
@pytest.mark.on_device
def test_many_batches_and_calls_repeat_to_the_bit(cuda_backend: str) -> None:
    rows, grid = make_rows(8, 4), small()
    free, image = made(rows, grid, precision="single"), deltas(grid, 4)
    vis, weight = random_data(free)
    limit = None
    for exponent in range(16, 30):
        tight = made(rows, grid, precision="single", memory_limit=2**exponent)
        try:
            predicted = tight.predict(image)
        except InputError as error:
            assert "more than" in str(error)  # noqa: PT017
            continue
        limit = exponent
        break
    assert limit is not None
    assert limit > 16
    n_batch = sum(map(len, tight.grid_engine.batches(tight.screens_of(None, 4))))  # type: ignore[attr-defined]
    assert n_batch > 3
    # Items are summed one by one, whatever the batch.
    assert np.array_equal(predicted, free.predict(image))
    assert np.array_equal(predicted, tight.predict(image))
    dirty = tight.grid(vis, weight, n_stokes=4)
    assert np.array_equal(dirty, tight.grid(vis, weight, n_stokes=4))
    # Subgrids are added batch by batch: float32 sums in another order.
    assert relative(dirty, free.grid(vis, weight, n_stokes=4)) < 1e-5


@pytest.mark.cuda
@pytest.mark.on_device
def test_visibilities_that_stay_on_the_device(cuda_backend: str) -> None:
    from rime_kernels import device

    idg = made(make_rows(6, 4), small(), precision="double")
    engine: Any = idg.grid_engine
    image, screens = deltas(idg.grid_of_image, 4), idg.screens_of(None, 4)
    vis, weight = random_data(idg)
    there = engine.predict_on_device(engine.send(image), screens)
    # The same sums.
    assert np.array_equal(there.copy_to_host(), idg.predict(image))
    found = engine.grid_on_device(device.upload(vis), device.upload(weight), screens)
    # Weights are multiplied with on the device, or before on the host.
    assert relative(found, idg.grid(vis, weight, n_stokes=4)) < 1e-14
    found = engine.grid_on_device(device.upload(vis), None, screens)
    assert relative(found, idg.grid(vis, n_stokes=4)) < 1e-14


@pytest.mark.cuda
def test_what_has_no_weight_may_be_anything(cuda_backend: str) -> None:
    from rime_kernels import device

    idg = made(make_rows(6, 4), small(), precision="double")
    vis, weight = random_data(idg)
    weight[2, 1], weight[4, :, 3] = 0.0, 0.0
    expected = idg.grid(np.where(weight > 0.0, vis, 0.0), weight)
    vis[2, 1], vis[4, :, 3] = np.nan, np.inf
    assert np.array_equal(idg.grid(vis, weight), expected)
    engine: Any = idg.grid_engine
    found = engine.grid_on_device(device.upload(vis), device.upload(weight), idg.screens_of(None, 1))
    assert relative(found, expected) < 1e-14  # weights multiplied on the device


@pytest.mark.parametrize(("size", "n_grid"), [(8, 40), (12, 30), (12, 13), (16, 12), (20, 18)])
def test_tiles_have_each_item_over_them_once(size: int, n_grid: int) -> None:
    rng, tile, n_item = np.random.default_rng(3), subgrids.TILE, 30
    plan: Any = type("Plan", (), {})()
    plan.x, plan.y = rng.integers(-n_grid // 2, n_grid // 2 + 1, (2, n_item)).astype(np.int32)
    plan.layer, plan.layer_w = np.sort(rng.integers(0, 3, n_item)), np.zeros(3)
    tiles = subgrids.make_tiles(plan, size, n_grid)
    found = set()
    for layer in range(3):
        for k in range(tiles.layer_start[layer], tiles.layer_start[layer + 1]):
            items = tiles.item[tiles.start[k] : tiles.start[k + 1]]
            assert np.all(np.diff(items[:, 0]) > 0)
            found |= {(layer, int(tiles.x[k]), int(tiles.y[k]), *map(int, item)) for item in items}
    expected = set()
    for item in range(n_item):
        cells = [(each[item] - size // 2 + np.arange(size)) % n_grid for each in (plan.x, plan.y)]
        expected |= {
            (int(plan.layer[item]), int(x), int(y), item, int(cells[0][0]), int(cells[1][0]))
            for x in np.unique(cells[0] // tile)
            for y in np.unique(cells[1] // tile)
        }
    assert found == expected
    assert sum(np.diff(tiles.start)) == len(expected)


def test_long_items_are_split_by_rows() -> None:
    rng = np.random.default_rng(9)
    n_row, n_chan = rng.integers(1, 200, 50).astype(np.int32), rng.integers(1, 300, 50).astype(np.int32)
    number, layer = np.arange(50, dtype=np.int32), np.repeat([0, 1, 2], [20, 10, 20]).astype(np.int32)
    plan = Plan(
        np.cumsum(n_row, dtype=np.int32) - n_row, n_row, 2 * number, n_chan, number, -number, 0.1 * number,
        layer, number, number, number, number % 2, np.array([0, 20, 30, 50], np.int32), np.zeros(3),
    )  # fmt: skip
    found = split_long(plan, 256)
    assert np.all((found.n_row * found.n_chan <= 256) | (found.n_row == 1))
    # Rows of each item once, in order, all else as it was.
    assert np.array_equal(found.first_row[1:], (found.first_row + found.n_row)[:-1])
    assert np.array_equal(np.bincount(found.x, found.n_row), n_row)
    assert np.all(np.diff(found.x) >= 0)
    for name in ("first_chan", "n_chan", "y", "w", "layer", "antenna1", "antenna2", "slot", "flip"):
        assert np.array_equal(getattr(found, name), getattr(plan, name)[found.x])
    assert np.array_equal(found.layer_start, np.searchsorted(found.layer, np.arange(4)))


def test_tasks_have_each_channel_once_and_even_ones_are_even() -> None:
    rng, n_chan = np.random.default_rng(4), 60
    scale = 3.0 + 0.01 * np.arange(n_chan)
    scale[40:] += np.cumsum(rng.uniform(0.0, 0.01, n_chan - 40))
    first = rng.integers(0, n_chan - 1, 200).astype(np.int32)
    n = np.minimum(rng.integers(1, 30, 200), n_chan - first).astype(np.int32)
    plan: Any = type("Plan", (), {"first_chan": first, "n_chan": n, "n_row": rng.integers(1, 9, 200)})()
    tasks = tasks_cuda.make_tasks(plan, scale, IdgShape(n_chan=8, n_other=4))
    assert tasks.kinds == (TaskKind(False, 4), TaskKind(True, 4), TaskKind(True, 8))
    times = np.zeros((200, n_chan), int)
    for kind, *of_kind, first_task in zip(*tasks, strict=True):
        for item, (begin, count) in enumerate(zip(*of_kind, strict=True)):
            chans = slice(begin, begin + count)
            times[item, chans] += 1
            groups = -(-count // kind.n) if kind.even else count / kind.n
            assert first_task[item + 1] - first_task[item] == np.ceil(plan.n_row[item] * groups)
            if kind.even and count:
                assert np.ptp(np.diff(scale[chans])) < 1e-10
    inside = (np.arange(n_chan) >= first[:, None]) & (np.arange(n_chan) < (first + n)[:, None])
    assert np.array_equal(times, inside)


def test_a_device_without_cupy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from rime_kernels import BackendError, device

    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        BackendError, match=r"package cupy is not installed \(in the checkout of biro: pip install"
    ):
        device.cupy("")
