"""Which gridder works for rows and an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from rime_kernels import check
from rime_kernels.arrays import Rows
from rime_kernels.choices import Backend, GridderName
from rime_kernels.errors import InputError
from rime_kernels.gridding.grid import ImageGrid

if TYPE_CHECKING:
    from rime_kernels.gridding.gridder import Gridder

# How much faster W-projection is to be. On a GPU estimates are good to a quarter, and its kernels take longer
# to compile.
GAIN = {"cpu": 1.0, "cuda": 1.25}


def make_gridder(
    rows: Rows,
    grid: ImageGrid,
    *,
    engine: GridderName = "auto",
    accuracy: float = 1e-5,
    backend: Backend = "auto",
    memory_limit: int | str | None = None,
) -> Gridder:
    """The gridder of rows and an image without A-terms: image-domain gridding, or W-projection.

    Parameters
    ----------
    rows : Rows
    grid : ImageGrid
    engine : "auto", "idg" or "wprojection"
        `rime_kernels.idg.Idg` or `rime_kernels.wprojection.WProjection`. "auto" takes the one whose layout
        for these rows is estimated to be faster, by times that were measured (`benchmarks/wprojection.py`);
        on a GPU W-projection where it is estimated to be 1.25 times as fast. Both hold the accuracy.
    accuracy : float
        Largest relative error (2-norm over visibilities) of a source anywhere in the image, 1e-1 ... 1e-8.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB".

    Returns
    -------
    Idg or WProjection
        Its `plan` says which, and why.

    Raises
    ------
    InputError
        As those two; an engine of another name.
    BackendError
        `backend="cuda"` without a device.
    """
    from rime_kernels.idg.idg import Idg
    from rime_kernels.wprojection.wprojection import WProjection

    check.one_of("engine", engine, get_args(GridderName))
    shared: dict[str, Any] = {"accuracy": accuracy, "backend": backend, "memory_limit": memory_limit}
    if engine != "auto":
        return Idg(rows, grid, **shared) if engine == "idg" else WProjection(rows, grid, **shared)
    one = Idg(rows, grid, **shared)
    try:
        other = WProjection(rows, grid, **shared)
    except InputError:  # no kernel is accurate enough
        return one
    chosen, left = (one, other) if one.cost <= GAIN[one.backend] * other.cost else (other, one)
    times = f"{left.cost / chosen.cost:.2g}"
    how_fast = "about as fast" if times == "1" else f"{times} times as fast"
    chosen.reason += f"; engine {chosen.engine}, estimated {how_fast} as {left.engine}"
    if left.cost < chosen.cost:
        chosen.reason += f", which is taken from {GAIN[one.backend]:g} times on"
    return chosen
