"""Image-domain gridding: what is decided before it begins. Taper, layout, plan, arithmetic of one pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.signal.windows import dpss

from rime_kernels import InputError, Rows, stokes_to_corr
from rime_kernels.gridding import scalars
from rime_kernels.gridding.layout import good_size
from rime_kernels.gridding.plan import Limits, make_plan, on_grid, sort_rows
from rime_kernels.gridding.taper import least_misfit
from rime_kernels.idg import Idg, ImageGrid

EDGES = np.array([0.0, 0.2, 0.4, 0.48, 0.5])


def through_subgrid(values: np.ndarray, x: float, distance: float, curvature: float) -> complex:
    """What a subgrid makes of a unit source at x, step by step: cells, pixels, and the sum over them."""
    size = values.size
    cell, pixel = np.arange(size) - size // 2, (np.arange(size) - size // 2) / size
    # T: the taper as a sum of waves, at x.
    waves = np.exp(-2j * np.pi * np.outer(cell, pixel)) @ values / size
    taper = np.sum(waves * np.exp(2j * np.pi * cell * x))
    cells = np.exp(2j * np.pi * cell * x) / taper
    image = np.exp(-2j * np.pi * np.outer(pixel, cell)) @ cells / size
    phase = np.exp(2j * np.pi * (distance * pixel + curvature * pixel**2))
    return complex(np.sum(values * image * phase))


@pytest.mark.parametrize(
    ("size", "padding", "reach", "w_cells"), [(24, 1.5, 6.0, 0.0), (24, 1.5, 3.0, 6.0), (32, 1.25, 9.0, 2.0)]
)
def test_the_misfit_is_the_error_of_a_source(size: int, padding: float, reach: float, w_cells: float) -> None:
    taper = least_misfit(size, padding, reach, w_cells, 0.0, 1e3)
    distances = reach * np.cos(np.pi * (np.arange(201) + 0.5) / 201)
    errors = [0.0]
    for share in (0.0, 0.5, 1.0) if w_cells else (0.0,):
        curvature = share * 0.5 * w_cells * padding  # slope w_cells/2 at the edge, x = 1/(2 padding)
        for x in EDGES / padding:
            exact = np.exp(2j * np.pi * (distances * x + curvature * x * x))
            found = [through_subgrid(taper.values, x, d, curvature) for d in distances]
            errors.append(float(np.sqrt(np.mean(np.abs(found - exact) ** 2))))
    # Between the places and values of w at which the error was made even it is at most a little larger.
    assert 0.5 * taper.misfit < max(errors) < 1.25 * taper.misfit


@pytest.mark.parametrize("reach", [5.0, 7.0])
def test_the_taper_is_better_than_a_prolate_spheroidal_one(reach: float) -> None:
    size, padding = 24, 1.5
    found = least_misfit(size, padding, reach, 0.0, 0.0, 1e3).misfit
    distances = reach * np.cos(np.pi * (np.arange(101) + 0.5) / 101)
    others = []
    for bandwidth in np.arange(1.0, 7.0, 0.5):
        values = dpss(size + 1, bandwidth)[:-1]
        worst = 0.0
        for x in np.array([0.3, 0.46, 0.49]) / padding:
            error = [through_subgrid(values, x, d, 0.0) - np.exp(2j * np.pi * d * x) for d in distances]
            worst = max(worst, float(np.sqrt(np.mean(np.abs(error) ** 2))))
        others.append(worst)
    assert found < 0.6 * min(others)


def test_a_gain_is_kept_to() -> None:
    # T falls to 1/84 at the edge by itself; held at 1/14, its misfit grows, and not more than tenfold or so.
    free, held = (least_misfit(24, 1.5, 6.0, 0.0, 0.0, gain) for gain in (1e3, 14.0))
    assert free.gain > 50.0
    assert held.gain == pytest.approx(14.0, rel=0.05)
    assert free.misfit < held.misfit < 30.0 * free.misfit


@pytest.mark.parametrize("centre", [(0.0, 0.0), (0.3, -0.5)])
def test_curvature_does_not_cancel_and_goes_on_smoothly(centre: tuple[float, float]) -> None:
    l0, m0 = centre
    n0 = np.sqrt(1.0 - l0 * l0 - m0 * m0)
    curvature = scalars.curvature.py_func  # type: ignore[attr-defined]
    long = np.longdouble
    for dl, dm in ((1e-7, 0.0), (1e-4, -2e-4), (0.1, 0.05)):
        l, m = long(l0) + long(dl), long(m0) + long(dm)
        exact_n0 = np.sqrt(1 - long(l0) ** 2 - long(m0) ** 2)
        exact = np.sqrt(1 - l * l - m * m) - exact_n0 + (long(l0) * long(dl) + long(m0) * long(dm)) / exact_n0
        found = curvature(dl, dm, l0, m0, n0, 0.9)
        # longdouble has 11 bits more: what cancels in 1e-14 leaves 1e-5 there, and here nothing is lost.
        assert found == pytest.approx(float(exact), rel=max(1e-12, 1e-18 / abs(float(exact))))
    # Across the edge: value, slope and curvature from both sides, by differences.
    corner2 = (l0 + 0.2) ** 2 + m0**2
    step = 1e-3
    values = [curvature(0.2 + k * step, 0.0, l0, m0, n0, corner2) for k in range(-3, 4)]
    second = np.diff(values, 2) / step**2
    assert np.ptp(second) < 0.03 * abs(second[2])


def ragged_rows(n_row: int = 3000, n_chan: int = 40, seed: int = 1) -> Rows:
    """Tracks of baselines, rows missing and in any order, channels not evenly spaced."""
    rng = np.random.default_rng(seed)
    position = rng.normal(scale=400.0, size=(8, 3))
    hour = np.linspace(-0.8, 0.8, 60)
    turn = np.array([[np.cos(hour), -np.sin(hour)], [np.sin(hour), np.cos(hour)]])
    u, v = np.einsum("ijt,aj->tia", turn, position[:, :2]).transpose(1, 0, 2)
    p, q, time = rng.integers(0, 8, n_row), rng.integers(0, 8, n_row), rng.integers(0, 60, n_row)
    uvw = np.stack(
        [u[time, p] - u[time, q], v[time, p] - v[time, q], position[p, 2] - position[q, 2]], axis=1
    )
    freq = np.sort(rng.uniform(1.0e9, 1.3e9, n_chan))
    return Rows(uvw, p, q, time, freq, stokes_to_corr(["XX"]), 8, 60)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(
    "limits", [Limits(0.1, 5.0, 40.0, 20.0, 50.0, 200), Limits(0.1, 3.5, np.inf, 0, 1.0, 1)]
)
def test_every_visibility_has_one_item_that_holds_it(flip: bool, limits: Limits) -> None:
    rows, grid = ragged_rows(), ImageGrid(64, 1e-3, 0.01, -0.02)
    limits = limits if flip else limits._replace(w_first=limits.w_first - 100.0 * limits.w_step)
    slot = (np.arange(60) // 7).astype(np.int32)
    sorted_rows = sort_rows(rows, grid, slot, flip)
    plan, placed = make_plan(sorted_rows, limits), on_grid(sorted_rows, limits.field)
    met = np.zeros((rows.n_row, rows.n_chan), int)
    for i in range(plan.n_item):
        here = slice(plan.first_row[i], plan.first_row[i] + plan.n_row[i])
        chans = slice(plan.first_chan[i], plan.first_chan[i] + plan.n_chan[i])
        met[here, chans] += 1
        cells = placed.uvw[here, None, :2] * placed.scale[None, chans, None]
        assert np.abs(cells - [plan.x[i], plan.y[i]]).max() <= limits.reach
        w = placed.uvw[here, 2, None] * placed.scale[None, chans]
        assert np.abs(w - plan.layer_w[plan.layer[i]]).max() <= limits.w_reach
        assert abs(plan.w[i] - 0.5 * (w.min() + w.max())) < 1e-9
        assert flip is False or w.min() >= 0.0
        for mine, of_rows in ((plan.antenna1, placed.antenna1), (plan.antenna2, placed.antenna2),
                              (plan.slot, placed.slot), (plan.flip, placed.is_flipped)):  # fmt: skip
            assert np.all(of_rows[here] == mine[i])
    assert np.all(met == 1)
    assert np.array_equal(np.sort(placed.order), np.arange(rows.n_row))
    assert np.all(np.diff(plan.layer) >= 0)
    assert np.array_equal(plan.layer_start, np.searchsorted(plan.layer, np.arange(plan.layer_w.size + 1)))


def test_a_plan_needs_few_items() -> None:
    # A baseline at rest, and one that crosses 100 cells in 500 steps: an item holds 9 cells and 128 rows.
    u = np.concatenate([np.zeros(1000), np.linspace(0.0, 100.0, 500)])
    pairs = np.repeat([0, 1], [1000, 500])
    rows = Rows(
        np.stack([u, 0 * u, 0 * u], axis=1), pairs, pairs + 1, np.zeros(1500, int), np.array([299792458.0]),
        stokes_to_corr(["I"]), 3, 1,
    )  # fmt: skip
    limits = Limits(1.0, 4.5, np.inf, 0.0, 1.0, 1)
    plan = make_plan(sort_rows(rows, ImageGrid(64, 1e-3), None, False), limits)
    at_rest = -(-1000 // 128)
    # The subgrid's middle is a whole cell: between 8 and 9 of its cells can be used.
    assert at_rest + 100 / 9 <= plan.n_item <= at_rest + 1 + 100 / 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_pixel": 63}, "even number"),
        ({"n_pixel": 0}, "even number"),
        ({"cell": 0.0}, "cell must be positive"),
        ({"cell": np.nan}, "cell must be positive"),
        ({"cell": 0.03}, "beyond the horizon"),
        ({"l0": 0.99}, "beyond the horizon"),
    ],
)
def test_impossible_images_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ImageGrid(**{"n_pixel": 64, "cell": 1e-3, **changes})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accuracy": 1e-9}, "accuracy must lie in"),
        ({"accuracy": 1e-7, "precision": "single"}, "take precision='double'"),
        ({"precision": "half"}, "precision must be one of"),
        ({"subgrid": 30}, "multiple of 4"),
        ({"aterm_support": 70.0}, "0 .. 60 cells"),
        ({"aterm_support": 59.0, "accuracy": 1e-6}, "no subgrid of"),
        ({"aterm_slot": [0, 1]}, "aterm_slot must have shape"),
        ({"aterm_slot": -np.ones(60, int)}, "at least 0"),
        ({"memory_limit": "12 parsec"}, "must be bytes"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Idg(ragged_rows(200, 3), ImageGrid(64, 1e-4), backend="cpu", **options)


def test_the_numbers_chosen_are_said() -> None:
    idg = Idg(ragged_rows(), ImageGrid(64, 1e-4), accuracy=1e-5, backend="cpu")
    for words in ("single precision", "subgrids of", "misfit", "grid of", "W-layers", "none left out"):
        assert words in idg.plan
    assert idg.precision == "single"
    assert Idg(ragged_rows(), ImageGrid(64, 1e-4), accuracy=1e-7, backend="cpu").precision == "double"


def test_sizes_of_grids_are_even_and_quick() -> None:
    for least in (17, 100.5, 1023, 4097):
        found = good_size(least)
        rest = found
        for prime in (2, 3, 5, 7, 11):
            while rest % prime == 0:
                rest //= prime
        assert rest == 1
        assert found % 2 == 0
        assert least <= found < 1.2 * least + 2
