"""Which gridder works for rows and an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from rime_kernels import check, device
from rime_kernels.arrays import Rows
from rime_kernels.device import Backend
from rime_kernels.errors import InputError
from rime_kernels.gridding.grid import ImageGrid

if TYPE_CHECKING:
    from rime_kernels.gridding.gridder import Gridder

GridderName = Literal["auto", "idg", "wprojection"]


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
        for these rows is estimated to be faster, by times that were measured on a CPU
        (`benchmarks/wprojection.py`), and "idg" on a GPU. Both hold the accuracy.
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
    if device.resolve(backend)[0] == "cuda":  # where estimates do not tell them apart
        return Idg(rows, grid, **shared)
    one = Idg(rows, grid, **shared)
    try:
        other = WProjection(rows, grid, **shared)
    except InputError:  # no kernel is accurate enough
        return one
    chosen, left = (one, other) if one.cost <= other.cost else (other, one)
    chosen.reason += (
        f"; engine {chosen.engine}, estimated {left.cost / chosen.cost:.2g} times as fast as {left.engine}"
    )
    return chosen
