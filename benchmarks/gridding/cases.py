"""Observations and images that are gridded and degridded, and the calls that are measured on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from common.types import Line
from numpy.typing import NDArray

from rime_kernels import Rows, stokes_to_corr
from rime_kernels.idg import Idg, ImageGrid
from rime_kernels.physics.phase import SPEED_OF_LIGHT

_CORR = {1: ["I"], 2: ["XX", "YY"], 4: ["XX", "XY", "YX", "YY"]}


@dataclass(frozen=True)
class Size:
    """Sizes of an observation and of an image, whose side is `n_pixel`."""

    n_antenna: int
    n_time: int
    n_chan: int
    n_pixel: int
    hours: float = 6.0

    @property
    def n_vis(self) -> int:
        return self.n_antenna * (self.n_antenna - 1) // 2 * self.n_time * self.n_chan


QUICK = Size(8, 4, 16, 128)
"""Of a quick run on a CPU."""
SIMULATED = Size(3, 1, 2, 16)
"""Of a quick run in the CUDA simulator, which takes a millisecond for each thread."""


def make_rows(size: Size, n_corr: int) -> Rows:
    """Make rows of an array of up to 8 km, most baselines short, about the meridian at 1.3 - 1.364 GHz."""
    rng = np.random.default_rng(1)
    radius = np.minimum(4e3, 500.0 * np.exp(rng.normal(size=size.n_antenna)))
    angle = rng.uniform(0.0, 2.0 * np.pi, size.n_antenna)
    east, north = radius * np.cos(angle), radius * np.sin(angle)
    lat, dec = np.deg2rad(-31.0), np.deg2rad(-35.0)
    x, y, z = -np.sin(lat) * north, east, np.cos(lat) * north
    hour = np.linspace(-0.5, 0.5, size.n_time)[:, None] * size.hours * (np.pi / 12.0)
    to_west = np.cos(hour) * x - np.sin(hour) * y
    u = np.sin(hour) * x + np.cos(hour) * y
    v, w = np.cos(dec) * z - np.sin(dec) * to_west, np.sin(dec) * z + np.cos(dec) * to_west
    p, q = np.triu_indices(size.n_antenna, 1)
    uvw = np.stack([each[:, q] - each[:, p] for each in (u, v, w)], axis=-1).reshape(-1, 3)
    time_index = np.repeat(np.arange(size.n_time), p.size)
    freq = 1.3e9 + 64e6 * (np.arange(size.n_chan) + 0.5) / size.n_chan
    p, q = np.tile(p, size.n_time), np.tile(q, size.n_time)
    return Rows(uvw, p, q, time_index, freq, stokes_to_corr(_CORR[n_corr]), size.n_antenna, size.n_time)


def make_grid(rows: Rows, n_pixel: int) -> ImageGrid:
    """Make an image with three pixels to the shortest wave."""
    longest = np.abs(rows.uvw[:, :2]).max() * rows.chan_freq.max() / SPEED_OF_LIGHT
    return ImageGrid(n_pixel, float(1.0 / (3.0 * longest)))


def make_screens(idg: Idg, n_antenna: int, kind: str) -> NDArray[np.complexfloating] | None:
    """Make A-terms that differ from 1; how smooth they are costs nothing."""
    if kind == "none":
        return None
    rng, shape = np.random.default_rng(2), (1, n_antenna, *idg.lm[0].shape)
    if kind == "scalar":
        return np.exp(0.3j * rng.normal(size=shape))
    return np.eye(2) + 0.2 * (rng.normal(size=(*shape, 2, 2, 2)) @ [1.0, 1.0j])


class Case:
    """One way to predict and to grid: what is measured, ready to be called."""

    def __init__(
        self,
        size: Size,
        n_corr: int,
        screens: str,
        accuracy: float,
        backend: Literal["cpu", "cuda"],
        subgrid: int | None = None,
    ) -> None:
        rows = make_rows(size, n_corr)
        self.name = f"{accuracy:g}, {n_corr} corr, A-terms {screens}"
        self.size, self.grid, self.rows, self.accuracy = size, make_grid(rows, size.n_pixel), rows, accuracy
        self.n_stokes = 1 if n_corr == 1 else 4
        start = time.perf_counter()
        self.idg = Idg(rows, self.grid, accuracy=accuracy, backend=backend, subgrid=subgrid)
        self.plan_s = time.perf_counter() - start
        rng = np.random.default_rng(3)
        self.image = rng.normal(size=(self.n_stokes, size.n_pixel, size.n_pixel))
        self.vis = np.ones((rows.n_row, rows.n_chan, n_corr), np.complex64)
        self.screens = make_screens(self.idg, size.n_antenna, screens)

    def predict(self) -> None:
        self.idg.predict(self.image, self.screens)

    def image_of(self) -> None:
        self.idg.grid(self.vis, n_stokes=self.n_stokes, screens=self.screens)

    def ducc(self, threads: int) -> dict[str, Callable[[], object]]:
        """ducc0's call of either kind, for one correlation; none where it is not installed."""
        try:
            from ducc0 import wgridder
        except ImportError:
            return {}
        size, cell = self.size.n_pixel, self.grid.cell
        options = {
            "uvw": self.rows.uvw * [1.0, -1.0, 1.0], "freq": self.rows.chan_freq, "pixsize_x": cell,
            "pixsize_y": cell, "epsilon": self.accuracy, "do_wgridding": True, "divide_by_n": False,
            "nthreads": threads,
        }  # fmt: skip
        image = self.image[0].astype(np.float32)
        vis = np.ascontiguousarray(self.vis[..., 0])
        return {
            "predict": lambda: wgridder.dirty2vis(dirty=image, **options),
            "grid": lambda: wgridder.vis2dirty(vis=vis, npix_x=size, npix_y=size, **options),
        }


def describe(case: Case) -> Line:
    """Return what a line of the results is about."""
    layout, plan, size = case.idg.layout, case.idg.row_plan, case.size
    return {
        "name": case.name, "accuracy": case.accuracy, "n_corr": case.rows.n_corr, "n_vis": size.n_vis,
        "n_antenna": size.n_antenna, "n_time": size.n_time, "n_chan": size.n_chan, "n_pixel": size.n_pixel,
        "subgrid": layout.size, "n_grid": layout.n_grid, "n_layer": int(plan.layer_w.size),
        "n_item": plan.n_item, "precision": case.idg.precision, "plan": case.idg.plan,
    }  # fmt: skip
