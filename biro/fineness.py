"""Whether pixels are fine enough for baselines, said in units that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from biro.errors import InputError
from biro.summary import angle_text
from rime_kernels.arrays import Rows
from rime_kernels.phase import SPEED_OF_LIGHT

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
    l0, m0 = grid.l0, grid.m0
    w = rows.uvw[:, 2] / np.sqrt(1.0 - l0 * l0 - m0 * m0)
    metres = np.maximum(np.abs(rows.uvw[:, 0] - w * l0), np.abs(rows.uvw[:, 1] - w * m0))
    waves = metres[:, None] * (rows.chan_freq / SPEED_OF_LIGHT)
    lost = int(np.count_nonzero(waves * grid.cell > 0.5))
    if lost:
        # Three digits may be rounded up by half a per cent.
        largest = angle_text(0.995 * 0.5 / float(waves.max()))
        raise InputError(
            f"pixels of {angle_text(grid.cell)} are too coarse: {lost} of {waves.size} visibilities have "
            f"more than half a fringe per pixel; {remedy.format(largest)}"
        )
