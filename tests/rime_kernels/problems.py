"""Random data for rows, and calls that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rime_kernels import Rime, Rows, device
from rime_kernels.idg import ImageGrid

LINEAR, CIRCULAR = ["XX", "XY", "YX", "YY"], ["RR", "RL", "LR", "LL"]


def rows_for(problem: Any, **changes: Any) -> Rows:
    """Few threads where CUDA is simulated."""
    sizes = {"n_antenna": 3, "n_time": 2, "n_chan": 2} if device.simulated() else {"n_antenna": 4}
    made: Rows = problem(**{**sizes, **changes})
    return made


def data_for(rows: Rows) -> dict[str, np.ndarray]:
    """Noise of 1 Jy, and weights of which a fifth is 0."""
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    return {"vis": rng.normal(size=shape) + 1j * rng.normal(size=shape), "weight": weight}


def with_data(rows: Rows, backend: str = "cuda", **options: Any) -> Rime:
    return Rime(rows, **{**data_for(rows), "backend": backend, "extent": 0.04, **options})


def chi2_of(rows: Rows, vis: np.ndarray) -> np.ndarray:
    """chi2 of visibilities with these data."""
    given = data_for(rows)
    found: np.ndarray = (given["weight"] * np.abs(vis - given["vis"]) ** 2).sum(axis=(1, 2, 3))
    return found


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    """Relative 2-norm of the difference."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def by_tensor_cores(rows: Rows, **options: Any) -> Rime:
    """By tiles, so that tensor cores may sum."""
    return with_data(rows, **{"form": "factored", **options})


def gradient_by_tensor_cores(rime: Rime, sources: Any, *dof: Any) -> Any:
    """chi2 and its gradient, which tensor cores have summed."""
    found = rime.chi2_and_gradient(sources, *dof)
    sums = rime.engine.adjoint_sums  # type: ignore[attr-defined]
    assert all("tensor cores" in str(key[0]) for key in sums)
    return found


def deltas(grid: ImageGrid, n_stokes: int) -> np.ndarray:
    """Random pixels of both signs, the corners among them."""
    rng, n = np.random.default_rng(6), grid.n_pixel
    image = np.zeros((n_stokes, n, n))
    image[:, rng.integers(0, n, 20), rng.integers(0, n, 20)] = rng.normal(size=(n_stokes, 20))
    image[:, [0, 0, -1, -1], [0, -1, 0, -1]] = rng.normal(size=(n_stokes, 4))
    return image


def screens_of(
    kind: str,
    grid: ImageGrid,
    n_slot: int,
    *,
    n_antenna: int,
    waves: float = 2.0,
    falls: tuple[float, float] = (0.2, 0.7),
) -> Callable[[Any, Any], np.ndarray]:
    """A-terms as functions of l and m: waves across the image, a fall towards its edge, leakage."""
    rng, field = np.random.default_rng(7), grid.n_pixel * grid.cell
    size = (n_slot, n_antenna, 2, 2)
    phase, tilt, fall = (
        rng.uniform(-3, 3, size),
        rng.uniform(-waves, waves, (2, *size)),
        rng.uniform(*falls, size),
    )
    leak = np.where(np.eye(2) == 1, 1.0, 0.2)

    def screens(l: Any, m: Any) -> np.ndarray:
        x, y = ((np.asarray(each) - zero) / field for each, zero in ((l, grid.l0), (m, grid.m0)))
        x, y = x[..., None, None], y[..., None, None]
        a, b, c, d = (each.reshape(*size[:2], *[1] * (x.ndim - 2), 2, 2) for each in (phase, *tilt, fall))
        found = leak * np.exp(1j * (a + b * x + c * y) - d * (x * x + y * y))
        return found if kind == "2 x 2" else found[..., 0, 0]

    return screens
