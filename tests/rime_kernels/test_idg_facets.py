"""Images larger than the memory: in quarters, against explicit sums over pixels."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, Rows, stokes_to_corr
from rime_kernels.gridding.facets import quarters
from rime_kernels.idg import Idg, ImageGrid

LINEAR, ACCURACY = ["XX", "XY", "YX", "YY"], 1e-4


def make_rows(n_row: int = 40, n_chan: int = 3) -> Rows:
    rng = np.random.default_rng(5)
    uvw = rng.uniform(-1.0, 1.0, (n_row, 3)) * [60.0, 60.0, 300.0]
    p, q = rng.integers(0, 4, (2, n_row))
    freq = 1e9 + 2e6 * np.arange(n_chan)
    return Rows(uvw, p, q, rng.integers(0, 6, n_row), freq, stokes_to_corr(LINEAR), 4, 6)


def beams(l: Any, m: Any) -> np.ndarray:
    """Smooth scalar A-terms of one slot and four antennas."""
    k = np.arange(4).reshape(4, *[1] * np.ndim(l))
    return np.asarray(np.exp(2j * k * l - 10.0 * (l * l + m * m) * (1 + 0.1 * k)))[None]


@pytest.mark.parametrize("n", [32, 34, 38])
def test_quarters_have_each_pixel_once_where_it_lies(n: int) -> None:
    grid = ImageGrid(n, 1e-3, l0=0.02, m0=-0.03)
    x, y = np.meshgrid(np.arange(n), np.arange(n))
    place = np.stack([grid.l0 - (x - n // 2) * grid.cell, grid.m0 + (y - n // 2) * grid.cell])
    found = np.full((2, n, n), np.nan)
    for facet in quarters(grid):
        size = facet.grid.n_pixel
        assert size % 2 == 0
        x, y = np.meshgrid(np.arange(size), np.arange(size))
        l = facet.grid.l0 - (x - size // 2) * facet.grid.cell
        m = facet.grid.m0 + (y - size // 2) * facet.grid.cell
        assert np.isnan(found[:, *facet.there]).all()
        facet.paste(np.stack([l, m]), found)
        cut = facet.cut(place)
        assert np.allclose(cut[:, *facet.here], np.stack([l, m])[:, *facet.here], rtol=0, atol=1e-15)
        assert np.count_nonzero(cut[0]) == (facet.here[0].stop - facet.here[0].start) * (
            facet.here[1].stop - facet.here[1].start
        )
    assert np.allclose(found, place, rtol=0, atol=1e-15)


@pytest.mark.parametrize("screens", [None, beams])
@pytest.mark.parametrize("n", [48, 50])
def test_an_image_in_quarters(reference: ModuleType, n: int, screens: Any) -> None:
    """The limit holds the grids of quarters, not that of the whole image."""
    rows, grid = make_rows(), ImageGrid(n, np.deg2rad(4.0) / 48, l0=0.02, m0=-0.03)
    options: dict[str, Any] = {"accuracy": ACCURACY, "backend": "cpu", "aterm_support": 3.0}
    whole = Idg(rows, grid, **options)
    rng = np.random.default_rng(6)
    image = np.zeros((4, n, n))
    image[:, rng.integers(0, n, 20), rng.integers(0, n, 20)] = rng.normal(size=(4, 20))
    image[:, [0, 0, -1, -1], [0, -1, 0, -1]] = rng.normal(size=(4, 4))
    sampled = None if screens is None else screens(*whole.lm)
    tight = limited(whole, rows, grid, image, options)
    predicted = tight.predict(image, screens)
    four_d = None if screens is None else (lambda l, m: screens(np.asarray(l), np.asarray(m)))
    expected = reference.direct_image(rows, LINEAR, image, grid, four_d, np.zeros(6, int))
    # Each quarter holds the accuracy relative to its own visibilities: some 2 x in norm, together.
    assert np.linalg.norm(predicted - expected) < 2.0 * ACCURACY * np.linalg.norm(expected)
    assert np.linalg.norm(predicted - whole.predict(image, sampled)) > 0.0  # it was cut
    vis = rng.normal(size=(*predicted.shape, 2)) @ [1.0, 1.0j]
    weight = rng.uniform(0.0, 2.0, vis.shape)
    back = tight.grid(vis, weight, n_stokes=4, screens=screens)
    there = np.sum((np.conj(predicted) * weight * vis).real)
    size = np.linalg.norm(predicted) * np.linalg.norm(weight * vis)
    assert abs(there - np.sum(image * back)) < 1e-5 * size  # float32
    if screens is not None:
        with pytest.raises(InputError, match=r"memory limit of .*; give screens as a function of \(l, m\)"):
            tight.predict(image, sampled)


def limited(whole: Idg, rows: Rows, grid: ImageGrid, image: np.ndarray, options: dict[str, Any]) -> Idg:
    """With the largest limit, in steps of 1 %, that has no room for the whole grid."""
    engine: Any = whole.grid_engine
    made, limit = whole.screens_of(None, 4), 1 << 23
    while True:
        engine.memory_limit = limit
        try:
            engine.predict(image, made)
        except InputError:
            return Idg(rows, grid, memory_limit=limit, **options)
        finally:
            engine.memory_limit = None
        limit = int(0.99 * limit)


def test_a_limit_for_nothing_is_said() -> None:
    idg = Idg(make_rows(), ImageGrid(48, np.deg2rad(4.0) / 48), backend="cpu", memory_limit="1 kB")
    with pytest.raises(InputError, match="more than the memory limit"):
        idg.predict(np.ones((1, 48, 48)))
