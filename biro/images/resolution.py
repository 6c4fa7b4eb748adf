"""Whether pixels are fine enough for baselines, said in units that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from biro.errors import InputError
from biro.formatting import angle_text
from rime_kernels.arrays import Rows

if TYPE_CHECKING:
    from rime_kernels.idg import ImageGrid


def refuse_coarse(rows: Rows, grid: ImageGrid, remedy: str) -> None:
    """Refuse pixels of more than half a fringe, as `rime_kernels.idg.Idg` does, before work is done.

    Parameters
    ----------
    rows : Rows
    grid : ImageGrid
    remedy : str
        What to do; "{}" becomes the largest cell.

    Raises
    ------
    InputError
    """
    lost, largest = grid.too_coarse(rows)
    if lost:
        cell = angle_text(0.995 * largest)  # three digits may be rounded up by half a per cent
        raise InputError(
            f"pixels of {angle_text(grid.cell)} are too coarse: {lost} of {rows.n_row * rows.n_chan} "
            f"visibilities have more than half a fringe per pixel; {remedy.format(cell)}"
        )
