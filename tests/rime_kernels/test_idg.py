"""Image-domain gridding on the CPU against explicit sums over pixels, and its own adjoint."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, Rows, stokes_to_corr
from rime_kernels.idg import Idg, ImageGrid
from tests.rime_kernels.problems import LINEAR, deltas, relative, screens_of

N_ANTENNA, N_TIME = 6, 12
make_screens = partial(screens_of, n_antenna=N_ANTENNA)


def make_rows(
    u_max: float = 190.0, w_max: float = 10e3, n_row: int = 150, n_chan: int = 5, corr: list[str] = LINEAR
) -> Rows:
    """Rows of any uvw, autocorrelations and antenna1 > antenna2 among them, near 1 GHz."""
    rng = np.random.default_rng(5)
    uvw = rng.uniform(-1.0, 1.0, (n_row, 3)) * [u_max, u_max, w_max]
    p, q = rng.integers(0, N_ANTENNA, (2, n_row))
    uvw[p == q] = 0.0
    freq = 1.0e9 + np.cumsum(rng.uniform(5e6, 15e6, n_chan))  # unevenly spaced
    return Rows(uvw, p, q, rng.integers(0, N_TIME, n_row), freq, stokes_to_corr(corr), N_ANTENNA, N_TIME)


def wide(n: int = 128, degrees: float = 5.0, **centre: float) -> ImageGrid:
    return ImageGrid(n, np.deg2rad(degrees) / n, **centre)


def blobs(grid: ImageGrid, n_stokes: int) -> np.ndarray:
    """Smooth, and not zero at the edges."""
    x = np.linspace(-1.0, 1.0, grid.n_pixel)
    shapes = [
        np.exp(-((x[:, None] - a) ** 2) * 9 - (x[None] - b) ** 2 * 5) for a, b in ((0.8, 0.3), (-0.5, -1))
    ]
    return np.stack([shapes[0] + (0.5 - 0.3 * s) * shapes[1] for s in range(n_stokes)])


@pytest.mark.parametrize(
    ("accuracy", "precision"),
    [(a, "single") for a in (1e-2, 1e-3, 1e-4, 1e-5)]
    + [(a, "double") for a in (1e-2, 1e-4, 1e-5, 1e-6, 1e-7)],
)
@pytest.mark.parametrize("picture", [deltas, blobs])
def test_a_wide_field_is_the_sum_over_its_pixels(
    reference: ModuleType, picture: Any, accuracy: float, precision: Any
) -> None:
    # 5 degrees at 1 GHz with w up to 10 km, corners of the image included.
    rows, grid = make_rows(), wide()
    image = picture(grid, 4)
    found = Idg(rows, grid, accuracy=accuracy, precision=precision, backend="cpu").predict(image)
    assert relative(found, reference.direct_image(rows, LINEAR, image, grid)) < accuracy


@pytest.mark.parametrize("kind", ["none", "scalar", "2 x 2"])
@pytest.mark.parametrize("corr", [["XX", "XY", "YX", "YY"], ["LL", "RL", "RR", "LR"], ["XX", "YY"], ["RL"]])
@pytest.mark.parametrize("n_stokes", [1, 4])
def test_feeds_screens_and_an_image_beside_the_phase_centre(
    reference: ModuleType, kind: str, corr: list[str], n_stokes: int
) -> None:
    rows, grid = make_rows(60.0, 1000.0, 60, 2, corr), wide(64, l0=0.02, m0=-0.03)
    slot, image = np.arange(N_TIME) // 5, deltas(grid, n_stokes)
    accuracy, screens = 1e-5, None if kind == "none" else make_screens(kind, grid, 3)
    idg = Idg(
        rows, grid, accuracy=accuracy, backend="cpu", precision="double", aterm_slot=slot, aterm_support=4.0
    )
    found = idg.predict(image, None if screens is None else screens(*idg.lm))
    expected = reference.direct_image(rows, corr, image, grid, screens, slot)
    if n_stokes == 1 and corr == ["RL"] and kind != "2 x 2":
        assert np.all(found == 0.0)
        return
    assert relative(found, expected) < accuracy


@pytest.mark.parametrize("kind", ["none", "scalar", "2 x 2"])
@pytest.mark.parametrize("corr", [LINEAR, ["RL", "RR"]])
@pytest.mark.parametrize("n_stokes", [1, 4])
@pytest.mark.parametrize(("precision", "tolerance"), [("single", 1e-5), ("double", 1e-12)])
def test_gridder_and_degridder_are_adjoint(
    kind: str, corr: list[str], n_stokes: int, precision: Any, tolerance: float
) -> None:
    rows, grid = make_rows(60.0, 1000.0, 60, 3, corr), wide(64, l0=0.02, m0=-0.03)
    slot, image = np.arange(N_TIME) // 5, blobs(grid, n_stokes)
    idg = Idg(
        rows, grid, accuracy=1e-4, backend="cpu", precision=precision, aterm_slot=slot, aterm_support=4.0
    )
    screens = None if kind == "none" else make_screens(kind, grid, 3)(*idg.lm)
    rng = np.random.default_rng(8)
    vis = rng.normal(size=(60, 3, len(corr), 2)) @ [1.0, 1.0j]
    weight = rng.uniform(0.0, 2.0, vis.shape)
    predicted = idg.predict(image, screens)
    there = np.sum((np.conj(predicted) * weight * vis).real)
    back = np.sum(image * idg.grid(vis, weight, n_stokes=n_stokes, screens=screens))
    # Relative to what the sum could be: random visibilities nearly cancel.
    assert abs(there - back) < tolerance * np.linalg.norm(predicted) * np.linalg.norm(weight * vis)


def test_a_coarse_cell_is_refused_with_a_count() -> None:
    rows, grid = make_rows(400.0, 0.0), wide(64)
    waves = np.abs(rows.uvw[:, :2]).max(axis=1)[:, None] * rows.chan_freq / 299792458.0 * grid.cell
    lost = int(np.sum(waves > 0.5))
    with pytest.raises(
        InputError, match=f"{lost} of 750 visibilities .* cell of at most {0.5 / waves.max() * grid.cell:.4g}"
    ):
        Idg(rows, grid, backend="cpu")
