"""W-projection on CUDA, or in its simulator: explicit sums over pixels, its own adjoint, cells that move."""

from __future__ import annotations

import dataclasses
import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, Rows, device, make_gridder, stokes_to_corr
from rime_kernels.gridding.plan import make_plan, sort_rows
from rime_kernels.gridding.screens import make_screens
from rime_kernels.idg import ImageGrid
from rime_kernels.wprojection import WProjection
from rime_kernels.wprojection.cuda.block_degrid import DegridKernel
from rime_kernels.wprojection.cuda.block_grid import GridKernel
from rime_kernels.wprojection.cuda.block_terms import shares_of
from rime_kernels.wprojection.cuda.parts import Kernel, WProjectionShape, shape_for
from rime_kernels.wprojection.cuda.vis_degrid import VisKernel
from rime_kernels.wprojection.kernel import make_tables
from rime_kernels.wprojection.layout import COSTS, cheapest_layout, fits_tensor_cores, tensor_core_block
from tests.rime_kernels.problems import LINEAR, relative

# Those of rounding errors, as on the CPU.
ADJOINT = {"double": 1e-12, "single": 1e-6}

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    # Of four visibilities that are evaluated together some may not be there: what lay in shared memory then
    # goes through the polynomials, and is not used. Whole numbers without signs go below 0 where the lesser
    # of two is meant.
    pytest.mark.filterwarnings("ignore:.*encountered in scalar:RuntimeWarning"),
]


def make_rows(corr: list[str] = LINEAR, n_row: int = 8, n_chan: int = 4) -> Rows:
    """Rows of w of either sign; pairs of neighbours in time, whose cells move by some."""
    rng = np.random.default_rng(5)
    uvw = rng.uniform(-1.0, 1.0, (n_row, 3)) * [6.0, 6.0, 30.0]
    uvw[1::2] = uvw[::2] + rng.uniform(-0.3, 0.3, (n_row // 2, 3))
    p, q = np.repeat(rng.integers(0, 4, (2, n_row // 2)), 2, axis=1)
    freq = 1.0e9 + 2e7 * np.arange(n_chan)
    return Rows(uvw, p, q, np.arange(n_row), freq, stokes_to_corr(corr), 4, n_row)


def one_baseline(corr: list[str]) -> Rows:
    """Rows whose cells move slowly: items of many visibilities."""
    steps = np.arange(64)
    uvw, antenna = [3.0, 2.0, 5.0] + 0.01 * steps[:, None], np.zeros(64, np.int64)
    freq = 1.0e9 + 1e6 * np.arange(16)
    return Rows(uvw, antenna, antenna + 1, steps, freq, stokes_to_corr(corr), 2, 64)


def small() -> ImageGrid:
    return ImageGrid(16, np.deg2rad(5.0) / 16, l0=0.02, m0=-0.03)


def random_data(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    vis = rng.normal(size=(rows.n_row, rows.n_chan, rows.n_corr, 2)) @ [1.0, 1.0j]
    return vis, rng.uniform(0.0, 2.0, vis.shape)


@pytest.mark.parametrize(
    ("corr", "n_stokes", "shape", "precision", "accuracy"),
    [
        (["I"], 1, WProjectionShape(2, 2, 8), "single", 1e-3),
        (LINEAR, 4, WProjectionShape(4, 2, 4), "double", 1e-3),
        (["XX", "YY"], 4, WProjectionShape(1, 2, 8, whole_kernel=True), "single", 1e-3),
        pytest.param(["RL", "RR"], 4, None, "double", 1e-6, marks=pytest.mark.on_device),
        pytest.param(LINEAR, 4, WProjectionShape(1, 1, 16), "single", 1e-5, marks=pytest.mark.on_device),
        pytest.param(
            LINEAR,
            4,
            WProjectionShape(8, 2, 16, whole_kernel=True),
            "single",
            1e-4,
            marks=pytest.mark.on_device,
        ),
    ],
)
def test_sums_over_pixels_and_the_adjoint(
    cuda_backend: str, reference: ModuleType, corr: list[str], n_stokes: int, shape: WProjectionShape | None,
    precision: Any, accuracy: float,
) -> None:  # fmt: skip
    rows, grid, rng = make_rows(corr), small(), np.random.default_rng(3)
    gridder = WProjection(rows, grid, accuracy=accuracy, precision=precision, backend="cuda")
    engine: Any = gridder.grid_engine
    engine.shape, engine.by_tensor_cores = shape, False
    image = rng.normal(size=(n_stokes, 16, 16))
    predicted = gridder.predict(image)
    assert relative(predicted, reference.direct_image(rows, corr, image, grid)) < accuracy
    vis, weight = random_data(rows)
    there = np.sum((np.conj(predicted) * weight * vis).real)
    back = np.sum(image * gridder.grid(vis, weight, n_stokes=n_stokes))
    # Relative to what the sum could be: random visibilities nearly cancel.
    size = np.linalg.norm(predicted) * np.linalg.norm(weight * vis)
    assert abs(there - back) < ADJOINT[precision] * size


def test_many_batches_that_end_within_rows_and_planes_of_w(cuda_backend: str, reference: ModuleType) -> None:
    """Of 22 visibilities four are staged at a time: more batches than are kept, the last of them not full.

    Two rows of 11 channels, of other planes of w, are in one of them.
    """
    rows, grid = make_rows(["I"], n_row=2, n_chan=11), small()
    uvw = np.array([[*rows.uvw[0, :2], 20.0], [*rows.uvw[1, :2], 12.0]])
    rows = dataclasses.replace(rows, uvw=uvw)
    gridder = WProjection(rows, grid, accuracy=1e-3, backend="cuda")
    engine: Any = gridder.grid_engine
    engine.shape, engine.by_tensor_cores = WProjectionShape(2, 1, 4), False
    assert gridder.row_plan.n_item == 1
    assert gridder.layout.tables.n_plane > 1
    image = np.random.default_rng(3).normal(size=(1, 16, 16))
    predicted = gridder.predict(image)
    assert relative(predicted, reference.direct_image(rows, ["I"], image, grid)) < 1e-3
    vis, weight = random_data(rows)
    there = np.sum((np.conj(predicted) * weight * vis).real)
    back = np.sum(image * gridder.grid(vis, weight))
    assert abs(there - back) < ADJOINT[gridder.precision] * np.linalg.norm(predicted) * np.linalg.norm(
        weight * vis
    )


def test_results_repeat_to_the_bit_and_what_has_no_weight_may_be_anything(cuda_backend: str) -> None:
    rows = make_rows(["I"])
    gridder = WProjection(rows, small(), accuracy=1e-3, backend="cuda")
    vis, weight = random_data(rows)
    weight[::3] = 0.0
    first = gridder.grid(vis, weight)
    spoilt = np.where(weight > 0.0, vis, np.nan)
    assert np.array_equal(gridder.grid(spoilt, weight), first)
    # Larger numbers have another unit of whole numbers: a power of two, so that nothing else changes.
    assert np.array_equal(gridder.grid(1024.0 * vis, weight), 1024.0 * first)
    with pytest.raises(InputError, match="finite where the weight"):
        gridder.grid(np.where(weight > 0.0, np.nan, vis), weight)


@pytest.mark.parametrize(
    ("corr", "n_stokes", "n_pixel", "reach", "n_step"),
    [
        (["XX", "YY"], 4, 16, 4, 1),
        (["I"], 1, 32, 16, 3),
        pytest.param(LINEAR, 4, 24, 8, 1, marks=pytest.mark.on_device),
    ],
)
def test_items_by_tensor_cores(
    cuda_backend: str, reference: ModuleType, corr: list[str], n_stokes: int, n_pixel: int, reach: int,
    n_step: int,
) -> None:  # fmt: skip
    """Of blocks of 16 to 48 cells; an item of 22 visibilities, 16 at a time, in planes of w.

    Of up to 16 terms, a step of a product, or more: as many as leave no error that float32 would show.

    The other kernels have their own sums, in float32 without halves. Both differ from the same sums in
    float64 by 3e-7 to 7e-7: roundings of grid and transform, which the taper multiplies by up to 10.
    """
    rows, grid = make_rows(corr, n_row=2, n_chan=11), ImageGrid(n_pixel, np.deg2rad(5.0) / 16)
    uvw = np.array([[*rows.uvw[0, :2], 20.0], [*rows.uvw[1, :2], 12.0]])
    rows = dataclasses.replace(rows, uvw=uvw)
    gridder = WProjection(rows, grid, accuracy=1e-3, precision="single", backend="cuda")
    layout = gridder.layout
    layout = layout._replace(limits=layout.limits._replace(reach=float(reach)))
    if n_step > 1:
        padding, w_half = layout.n_grid / n_pixel, layout.tables.w_half
        layout = layout._replace(tables=make_tables(layout.taper.values, layout.split, padding, w_half, 1e-9))
    _, n_plane, n_w, n_d, _, support = layout.tables.terms.shape
    assert n_plane > 1
    assert shares_of(n_w, n_d, support).n_step == n_step
    gridder.layout = layout
    engine: Any = gridder.grid_engine
    engine.by_vis = False
    assert fits_tensor_cores(gridder.layout.tensor_core_block, len(corr), gridder.layout.n_grid)
    image = np.random.default_rng(3).normal(size=(n_stokes, n_pixel, n_pixel))
    vis, weight = random_data(rows)
    found = []
    for by_tensor_cores in (True, False):
        engine.by_tensor_cores = by_tensor_cores
        found.append((gridder.predict(image), gridder.grid(vis, weight, n_stokes=n_stokes)))
    (predicted, dirty), others = found
    assert not np.array_equal(predicted, others[0])
    assert relative(predicted, others[0]) < 2e-6
    assert relative(dirty, others[1]) < 2e-6
    assert relative(predicted, reference.direct_image(rows, corr, image, grid)) < 1e-3
    there, back = np.sum((np.conj(predicted) * weight * vis).real), np.sum(image * dirty)
    assert abs(there - back) < ADJOINT["single"] * np.linalg.norm(predicted) * np.linalg.norm(weight * vis)
    # To the bit, and in another unit: a power of two.
    engine.by_tensor_cores = True
    assert np.array_equal(gridder.grid(1024.0 * vis, weight, n_stokes=n_stokes), 1024.0 * dirty)


@pytest.mark.parametrize(
    ("corr", "n_stokes", "precision", "support", "n_pixel"),
    [
        (["I"], 1, "single", 7, 16),
        (LINEAR, 4, "double", 9, 16),
        (["XX", "YY"], 4, "single", 11, 16),
        pytest.param(LINEAR, 4, "single", 7, 16, marks=pytest.mark.on_device),
        pytest.param(LINEAR, 4, "single", 13, 64, marks=pytest.mark.on_device),
        pytest.param(["I"], 1, "double", 23, 64, marks=pytest.mark.on_device),
    ],
)
def test_threads_that_have_visibilities(
    cuda_backend: str, reference: ModuleType, monkeypatch: pytest.MonkeyPatch, corr: list[str], n_stokes: int,
    precision: Any, support: int, n_pixel: int,
) -> None:  # fmt: skip
    """An item of 33 visibilities, an odd number, in planes of w that change within the two of a thread.

    The gridder has kernels of its own, so that they are adjoint only if both are right.
    """
    monkeypatch.setattr(VisKernel, "pays", lambda *given: True)
    freq, matrix, antenna = 1.0e9 + 2e7 * np.arange(11), stokes_to_corr(corr), np.zeros(3, np.int64)
    uvw = np.array([[3.6, 3.7, 20.0], [3.65, 3.75, 16.0], [3.7, 3.8, 12.0]])
    rows = Rows(uvw, antenna, antenna + 1, np.arange(3), freq, matrix, 2, 3)
    grid = ImageGrid(n_pixel, np.deg2rad(5.0) / n_pixel, l0=0.02, m0=-0.03)
    gridder = WProjection(rows, grid, accuracy=1e-3, precision=precision, backend="cuda", support=support)
    engine: Any = gridder.grid_engine
    assert (gridder.row_plan.n_item, gridder.row_plan.n_row[0]) == (1, 3)
    assert gridder.layout.tables.n_plane > 1
    image = np.random.default_rng(3).normal(size=(n_stokes, n_pixel, n_pixel))
    predicted = gridder.predict(image)
    assert relative(predicted, reference.direct_image(rows, corr, image, grid)) < 1e-3
    vis, weight = random_data(rows)
    there = np.sum((np.conj(predicted) * weight * vis).real)
    back = np.sum(image * gridder.grid(vis, weight, n_stokes=n_stokes))
    assert abs(there - back) < ADJOINT[precision] * np.linalg.norm(predicted) * np.linalg.norm(weight * vis)
    assert np.array_equal(gridder.predict(image), predicted)
    engine.by_vis = False
    assert not np.array_equal(gridder.predict(image), predicted), "another order of sums"


@pytest.mark.parametrize(
    ("support", "n_plane", "reach", "n_vis", "unit_ns", "is_faster"),
    [
        (7, 1, 4, 148, 0.172, True),
        (7, 4, 4, 148, 0.215, True),
        (11, 1, 2, 60, 0.182, True),
        (11, 2, 2, 60, 0.208, False),
        (11, 4, 2, 60, 0.262, False),
        (13, 2, 9, 567, 0.276, True),
        (13, 4, 9, 567, 0.448, True),
        (15, 1, 8, 511, 0.233, True),
        (15, 2, 8, 511, 0.276, False),
        (15, 4, 8, 511, 0.449, False),
        (19, 1, 6, 304, 0.255, False),
        (23, 1, 4, 158, 0.258, False),
    ],
)
def test_threads_have_visibilities_where_that_was_measured_to_be_faster(
    support: int, n_plane: int, reach: int, n_vis: float, unit_ns: float, is_faster: bool
) -> None:
    """With the times that tensor cores took on an H200 (`benchmarks/wprojection.py`)."""
    kernel = VisKernel(True, support, n_plane, n_plane, 2, 5, 11, False, False, reach, 64)
    assert kernel.pays(n_vis, unit_ns) == is_faster


def test_blocks_of_threads_that_have_visibilities_can_be_launched() -> None:
    """Three at once have room in the shared memory of a multiprocessor, 227 KiB, and in its registers."""
    for support, n_plane, reach in itertools.product(range(3, 64, 2), (1, 2, 4), (2, 4, 8, 16)):
        for single, n_thread in itertools.product((True, False), (32, 64)):
            kernel = VisKernel(single, support, n_plane, n_plane, 1, 12, 0, False, False, reach, n_thread)
            if kernel.fits(4096):
                assert 3 * (kernel.dynamic_bytes + 1024) <= 227 * 1024
                assert 3 * kernel.max_register * n_thread <= 65536
            assert not kernel.fits(kernel.block - 1), "a cell would be twice in a block"


@pytest.mark.on_device
@pytest.mark.parametrize("corr", [["I"], ["XX", "YY"], LINEAR])
def test_wide_kernels_go_by_tensor_cores(cuda_backend: str, reference: ModuleType, corr: list[str]) -> None:
    rows, grid = one_baseline(corr), ImageGrid(64, np.deg2rad(5.0) / 64)
    gridder = WProjection(rows, grid, accuracy=1e-5, precision="single", backend="cuda", support=31)
    assert gridder.layout.by_tensor_cores
    image = np.random.default_rng(3).normal(size=(1, 64, 64))
    predicted = gridder.predict(image)
    assert relative(predicted, reference.direct_image(rows, corr, image, grid)) < 1e-5
    vis, weight = random_data(rows)
    dirty = gridder.grid(vis, weight)
    there, back = np.sum((np.conj(predicted) * weight * vis).real), np.sum(image * dirty)
    assert abs(there - back) < ADJOINT["single"] * np.linalg.norm(predicted) * np.linalg.norm(weight * vis)
    assert np.array_equal(gridder.predict(image), predicted)
    assert np.array_equal(gridder.grid(vis, weight), dirty)


@pytest.mark.parametrize(
    ("single", "support", "taken"), [(True, 31, True), (True, 7, True), (False, 31, False)]
)
def test_blocks_for_tensor_cores_fit_the_registers(single: bool, support: int, taken: bool) -> None:
    rows, grid = one_baseline(LINEAR), ImageGrid(64, np.deg2rad(5.0) / 64)
    layout = cheapest_layout(
        sort_rows(rows, grid, None, True), grid, accuracy=1e-3, single=single, n_corr=4, costs=COSTS["cuda"],
        supports=(support,),
    )  # fmt: skip
    assert layout.by_tensor_cores == taken
    if taken:
        assert layout.tensor_core_block >= support + 2 * layout.limits.reach
        numbers = (
            single,
            support,
            4,
            4,
            2,
            8,
            3,
            True,
            False,
            round(layout.limits.reach),
            layout.tensor_core_block,
        )
        for kernel in GridKernel(*numbers), DegridKernel(*numbers):
            assert kernel.max_register * kernel.n_thread <= 65536
            assert kernel.n_thread <= 1024
        # Each warp's own columns are all the columns of all planes.
        assert (
            GridKernel(*numbers).n_thread // 32 * GridKernel(*numbers).n_column
            == layout.tensor_core_block // 2
        )
        assert DegridKernel(*numbers).n_warp * DegridKernel(*numbers).n_tile == layout.tensor_core_block // 2


def test_the_schedulers_of_a_multiprocessor_have_registers_for_all_warps_of_a_block() -> None:
    """A launch is refused else. Each of four has 16384, and gives them to warps in portions of 256."""
    for support, n_plane, reach in itertools.product(range(3, 64, 2), (1, 2, 4), (2, 4, 8, 16)):
        block = tensor_core_block(support, reach)
        if not fits_tensor_cores(block, n_plane, 4096):
            continue
        numbers = True, support, n_plane, n_plane, 1, 12, 0, False, False, reach, block
        for kernel in GridKernel(*numbers), DegridKernel(*numbers):
            of_warp = -(-kernel.max_register * 32 // 256) * 256
            assert -(-kernel.n_thread // 128) * of_warp <= 16384, kernel


def test_items_for_tensor_cores_have_more_rows() -> None:
    """Of one channel: 600 rows of one cell are two items, of 512 rows at most, or five of 128."""
    steps = np.arange(600)
    uvw, antenna = [3.0, 2.0, 5.0] + 1e-5 * steps[:, None], np.zeros(600, np.int64)
    rows = Rows(uvw, antenna, antenna + 1, steps, np.array([1e9]), stokes_to_corr(["I"]), 2, 600)
    grid = ImageGrid(64, np.deg2rad(5.0) / 64)
    in_order = sort_rows(rows, grid, None, True)
    for costs, n_item in (COSTS["cuda"], 2), (COSTS["cuda"]._replace(tensor_cores=None), 5):
        layout = cheapest_layout(
            in_order, grid, accuracy=1e-3, single=True, n_corr=1, costs=costs, supports=(31,)
        )
        assert layout.by_tensor_cores == (costs.tensor_cores is not None)
        assert make_plan(in_order, layout.limits).n_item == n_item


@pytest.mark.parametrize(("degrees", "w_max", "expected"), [(0.5, 10.0, "wprojection"), (20.0, 1e4, "idg")])
def test_the_engine_that_is_estimated_to_be_faster_is_taken(
    cuda_backend: str, degrees: float, w_max: float, expected: str
) -> None:
    """One channel over half a degree: few visibilities share a subgrid. Wide: layers for each wavelength."""
    rng = np.random.default_rng(2)
    n_row = 100_000
    grid = ImageGrid(512, np.deg2rad(degrees) / 512)
    uvw = rng.uniform(-1.0, 1.0, (n_row, 3)) * [0.3 / grid.cell, 0.3 / grid.cell, w_max]
    antenna, one = rng.integers(0, 3, n_row), np.array([299792458.0])
    rows = Rows(uvw, antenna, antenna + 1, np.arange(n_row), one, stokes_to_corr(["I"]), 4, n_row)
    gridder = make_gridder(rows, grid, accuracy=1e-4, backend="cuda")
    assert gridder.engine == expected
    assert f"engine {expected}, estimated" in gridder.plan


def test_arrays_that_stay_on_the_device(cuda_backend: str) -> None:
    rows = make_rows(["I"], n_row=4)
    gridder = WProjection(rows, small(), accuracy=1e-3, backend="cuda")
    engine: Any = gridder.grid_engine
    screens = make_screens(None, rows.stokes_to_corr, 1, (1, rows.n_antenna, 1), np.complex64)
    image = np.random.default_rng(4).normal(size=(1, 16, 16))
    there = engine.predict_on_device(engine.send(image), screens)
    assert np.array_equal(there.copy_to_host(), gridder.predict(image))
    vis, weight = (each.astype(kind) for each, kind in zip(random_data(rows), ("c8", "f4"), strict=True))
    found = engine.grid_on_device(device.upload(vis), device.upload(weight), screens)
    # The host multiplies by weights before it sends: one rounding of float32.
    assert relative(found, gridder.grid(vis, weight)) < 1e-6


@pytest.mark.parametrize("support", [3, 7, 11, 16, 31, 63])
@pytest.mark.parametrize("n_plane", [1, 2, 4])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("degrids", [True, False])
def test_a_bin_holds_a_kernel_wherever_it_begins(
    support: int, n_plane: int, single: bool, degrids: bool
) -> None:
    shape = shape_for(support, n_plane, single, degrids=degrids)
    kernel = Kernel(single, support, n_plane, n_plane, 2, 8, 3, True, False, shape)
    assert kernel.bin_x >= support + shape.m_x - 1
    assert kernel.bin_y >= support + shape.m_y - 1
    assert kernel.n_x * kernel.n_y <= kernel.n_thread <= 1024
    assert shape.m_x * shape.m_y <= 16
    assert kernel.max_register * kernel.n_thread * shape.n_block <= 65536
    assert shape.n_stage % 4 == 0
