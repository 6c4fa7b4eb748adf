"""W-projection against explicit sums over pixels, its own adjoint, closed forms and another program."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads

from rime_kernels import InputError, Rows, gridder_choice, make_gridder, stokes_to_corr
from rime_kernels.gridding.taper import least_misfit, pixels, profile
from rime_kernels.idg import ImageGrid
from rime_kernels.wprojection import WProjection
from rime_kernels.wprojection.kernel import make_tables, split_curvature
from tests.rime_kernels.problems import LINEAR, deltas, relative

C = 299792458.0


def wide(n: int = 64, degrees: float = 2.0, **centre: float) -> ImageGrid:
    return ImageGrid(n, np.deg2rad(degrees) / n, **centre)


def make_rows(
    grid: ImageGrid, w_max: float = 1e4, n_row: int = 60, n_chan: int = 3, corr: list[str] = LINEAR
) -> Rows:
    """Rows of any uvw as long as the pixels allow, in any order, at unevenly spaced channels."""
    rng = np.random.default_rng(5)
    freq = 1.0e9 + np.cumsum(rng.uniform(5e6, 15e6, n_chan))
    longest = 0.45 / grid.cell - w_max * np.hypot(grid.l0, grid.m0)
    uvw = rng.uniform(-1.0, 1.0, (n_row, 3)) * [longest, longest, w_max] * (C / freq[-1])
    p, q = rng.integers(0, 6, (2, n_row))
    return Rows(uvw, p, q, np.arange(n_row), freq, stokes_to_corr(corr), 6, n_row)


def corner(grid: ImageGrid, n_stokes: int) -> np.ndarray:
    """One pixel where the taper is smallest and w largest."""
    image = np.zeros((n_stokes, grid.n_pixel, grid.n_pixel))
    image[:, 0, 0] = np.arange(1.0, n_stokes + 1.0)
    return image


@pytest.mark.parametrize(
    ("picture", "precision"),
    [
        (deltas, "double"),
        (corner, "single"),
        pytest.param(deltas, "single", marks=pytest.mark.thorough),
        pytest.param(corner, "double", marks=pytest.mark.thorough),
    ],
)
def test_the_error_of_a_wide_field_falls_with_the_accuracy(
    reference: ModuleType, picture: Any, precision: Any
) -> None:
    # 2 degrees with w up to 1e4 wavelengths; a source in the corner has what `accuracy` promises at most.
    grid = wide()
    rows, image = make_rows(grid), picture(grid, 4)
    expected, found = reference.direct_image(rows, LINEAR, image, grid), []
    for accuracy in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)[: 4 if precision == "single" else 5]:
        gridder = WProjection(rows, grid, accuracy=accuracy, precision=precision, backend="cpu")
        found.append(relative(gridder.predict(image), expected) / accuracy)
    assert max(found) < 1.0


@pytest.mark.parametrize(
    ("support", "accuracy", "w_max"),
    [
        (7, 1e-2, 0.0), (8, 1e-2, 1000.0), (15, 1e-5, 1e4), (31, 1e-3, 1e4), (64, 1e-3, 1e4),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [(7, 1e-3, 100.0), (12, 1e-4, 1e4), (16, 1e-6, 1e3), (24, 1e-2, 3e4)]
        ),
    ],
)  # fmt: skip
def test_kernels_of_every_size(reference: ModuleType, support: int, accuracy: float, w_max: float) -> None:
    grid = wide()
    rows, image = make_rows(grid, w_max, n_row=30, n_chan=1), deltas(grid, 1)
    gridder = WProjection(rows, grid, accuracy=accuracy, support=support, backend="cpu")
    assert f"kernels of {support} x {support}" in gridder.plan
    assert relative(gridder.predict(image), reference.direct_image(rows, LINEAR, image, grid)) < accuracy


@pytest.mark.parametrize(
    ("corr", "n_stokes"), [(["I"], 1), (["XX", "YY"], 4), (LINEAR, 4), (["RL", "RR"], 4), (LINEAR, 1)]
)
def test_correlations_and_an_image_beside_the_phase_centre(
    reference: ModuleType, corr: list[str], n_stokes: int
) -> None:
    # Where l0 m0 is not 0, c has a term in dl dm.
    grid = wide(32, 3.0, l0=0.02, m0=-0.03)
    rows, image = make_rows(grid, 300.0, corr=corr), deltas(grid, n_stokes)
    gridder = WProjection(rows, grid, accuracy=1e-5, backend="cpu")
    assert relative(gridder.predict(image), reference.direct_image(rows, corr, image, grid)) < 1e-5


@pytest.mark.parametrize("accuracy", [pytest.param(1e-2, marks=pytest.mark.thorough), 1e-4])
@pytest.mark.parametrize(
    "corr",
    [
        pytest.param(["I"], marks=pytest.mark.thorough),
        LINEAR,
        pytest.param(["RL", "RR"], marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize(("precision", "tolerance"), [("single", 1e-6), ("double", 1e-12)])
def test_gridder_and_degridder_are_adjoint(
    corr: list[str], precision: Any, tolerance: float, accuracy: float
) -> None:
    grid = wide(32, l0=0.01, m0=-0.02)
    n_stokes = 1 if corr == ["I"] else 4
    rows, image = make_rows(grid, 1e3, corr=corr), deltas(grid, n_stokes)
    gridder = WProjection(rows, grid, accuracy=accuracy, precision=precision, backend="cpu")
    rng = np.random.default_rng(8)
    vis = rng.normal(size=(rows.n_row, rows.n_chan, len(corr), 2)) @ [1.0, 1.0j]
    weight = rng.uniform(0.0, 2.0, vis.shape)
    predicted = gridder.predict(image)
    there = np.sum((np.conj(predicted) * weight * vis).real)
    back = np.sum(image * gridder.grid(vis, weight, n_stokes=n_stokes))
    # Relative to what the sum could be: random visibilities nearly cancel. Rounding errors are left.
    assert abs(there - back) < tolerance * np.linalg.norm(predicted) * np.linalg.norm(weight * vis)


def test_rows_in_another_order_have_the_same_visibilities() -> None:
    grid = wide(32)
    rows, image = make_rows(grid, 1e3), deltas(grid, 4)
    order = np.random.default_rng(3).permutation(rows.n_row)
    other = Rows(
        rows.uvw[order], rows.antenna1[order], rows.antenna2[order], rows.time_index[order], rows.chan_freq,
        rows.stokes_to_corr, rows.n_antenna, rows.n_time,
    )  # fmt: skip
    found = [WProjection(each, grid, accuracy=1e-4, backend="cpu") for each in (rows, other)]
    vis = found[0].predict(image)
    # Each baseline and time is there once: the same items in the same order, to the bit.
    assert np.array_equal(found[1].predict(image), vis[order])
    assert np.array_equal(found[1].grid(vis[order], n_stokes=4), found[0].grid(vis, n_stokes=4))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    grid, n_thread = wide(32), get_num_threads()
    rows, image = make_rows(grid, 1e3, n_row=200), deltas(grid, 4)
    gridder, found = WProjection(rows, grid, accuracy=1e-4, backend="cpu"), []
    vis = gridder.predict(image)
    try:
        for n in (1, n_thread, 1):
            set_num_threads(n)
            found.append((gridder.predict(image), gridder.grid(vis, n_stokes=4)))
    finally:
        set_num_threads(n_thread)
    for predicted, gridded in found[1:]:
        assert np.array_equal(predicted, found[0][0])
        assert np.array_equal(gridded, found[0][1])


def test_an_image_too_large_for_the_memory_is_cut() -> None:
    grid = wide(64)
    rows, image = make_rows(grid, 1e3), deltas(grid, 1)
    whole = WProjection(rows, grid, accuracy=1e-5, backend="cpu")
    cut = WProjection(rows, grid, accuracy=1e-5, backend="cpu", memory_limit=4_300_000)
    vis = whole.predict(image)
    # Each has the accuracy that was asked for.
    assert 0.0 < relative(cut.predict(image), vis) < 2e-5
    assert relative(cut.grid(vis), whole.grid(vis)) < 2e-5


def test_a_curvature_is_split_with_the_least_rest() -> None:
    # c = -(x^2 + y^2)/2 - (x^2 + y^2)^2/8 - ...: the rest is -x^2 y^2/4, of which functions of x and of y
    # leave h^4/16 (next order: a share of h^2 of it).
    grid = wide(64, 4.0)
    half = 0.5 * grid.n_pixel * grid.cell
    assert split_curvature(grid, 15, 2 * half).rest == pytest.approx(half**4 / 16.0, rel=0.01)
    # Beside the phase centre: -l0 m0 x y, of which they can take nothing.
    beside = wide(64, 0.2, l0=0.1, m0=0.2)
    half = 0.5 * beside.n_pixel * beside.cell
    expected = 0.1 * 0.2 / beside.n0**3 * half**2
    # Terms of third order are a share of h l0 of it.
    assert split_curvature(beside, 15, 2 * half).rest == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("wanted", [1e-4, 1e-7])
def test_polynomials_move_a_source_to_where_it_is(wanted: float) -> None:
    # sum_j C_j(d; delta c) exp(2 pi i x j) = T(x) exp(2 pi i (x d + delta c(x))), but for the taper's misfit,
    # an rms over d: no single d has more than 4 times that (measured: 2).
    grid, padding, delta_most = wide(64, 2.0), 1.5, 500.0
    field = padding * grid.n_pixel * grid.cell
    taper = least_misfit(15, padding, 0.5, 2.0 * grid.slope() * field * delta_most, 0.0, 1000.0)
    split = split_curvature(grid, 15, field)
    tables = make_tables(taper.values, split, padding, delta_most, wanted)
    _, n_plane, n_w, n_d, _, size = tables.terms.shape
    cell, inside = np.arange(size) - size // 2, np.abs(pixels(size)) < 0.5 / padding
    x, c = pixels(size)[inside], (split.x[inside], split.y[inside])
    for delta in (-delta_most, -123.4, 0.0, 321.0, delta_most):
        at = 0.5 * n_plane * (delta / delta_most + 1.0)
        plane = min(int(at), n_plane - 1)
        t = 2.0 * (at - plane) - 1.0
        for d in (-0.5, -0.21, 0.0, 0.4):
            powers = np.outer(t ** np.arange(n_w), (2.0 * d) ** np.arange(n_d))
            for axis in range(2):
                parts = np.einsum("bacj,ba->cj", tables.terms[axis, plane], powers)
                found = np.exp(2j * np.pi * np.outer(x, cell)) @ (parts[0] + 1j * parts[1])
                expected = np.exp(2j * np.pi * (x * d + delta * c[axis]))
                error = np.abs(found / profile(taper.values, x) - expected).max()
                assert error < wanted + 4.0 * taper.misfit


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"support": 2}, r"support must lie in 3 \.\. 64 cells, got 2"),
        ({"support": 5, "accuracy": 1e-6}, "no kernel of up to 5 cells holds an accuracy of 1e-06"),
        ({"accuracy": 1e-7, "precision": "single"}, "float32 does not hold"),
        ({"memory_limit": "much"}, "memory_limit must be bytes"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], words: str) -> None:
    grid = wide(32)
    with pytest.raises(InputError, match=words):
        WProjection(make_rows(grid, 100.0), grid, backend="cpu", **options)


def test_a_terms_are_refused() -> None:
    grid = wide(32)
    gridder = WProjection(make_rows(grid, 100.0), grid, accuracy=1e-3, backend="cpu")
    with pytest.raises(InputError, match="W-projection has no A-terms"):
        gridder.predict(deltas(grid, 1), np.ones((1, 6, 16, 16)))


def test_an_engine_that_is_a_little_faster_is_not_taken_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where estimates are good to a quarter."""
    monkeypatch.setattr(gridder_choice, "GAIN", {"cpu": 1e6})
    grid = wide(64, 0.5)
    gridder = make_gridder(make_rows(grid, 10.0, n_row=500, n_chan=8), grid, backend="cpu")
    assert gridder.engine == "idg"
    assert "times as fast as wprojection, which is taken from 1e+06 times on" in gridder.plan


def test_the_engine_that_is_estimated_to_be_faster_is_taken_and_said() -> None:
    """Where one layer of w does for a kernel of few cells, and where there would be thousands of layers.

    Over half a degree a kernel is separable for all of w, and subgrids have eight visibilities each, and cost
    a transform. Over 20 degrees it is separable for a fraction of a wavelength of w alone.
    """
    narrow, very_wide = wide(64, 0.5), wide(64, 20.0)
    for grid, w_max, expected in ((narrow, 10.0, "wprojection"), (very_wide, 1e4, "idg")):
        rows = make_rows(grid, w_max, n_row=500, n_chan=8)
        gridder = make_gridder(rows, grid, backend="cpu")
        assert gridder.engine == expected
        assert f"engine {expected}, estimated" in gridder.plan
    for name in ("idg", "wprojection"):
        assert make_gridder(rows, narrow, engine=name, backend="cpu").engine == name
    with pytest.raises(InputError, match="engine must be"):
        make_gridder(rows, narrow, engine="fft")
    with pytest.raises(InputError, match=r"an ImageGrid\(n_pixel, cell\), got tuple"):
        make_gridder(rows, (64, 1e-4))  # type: ignore[arg-type]
