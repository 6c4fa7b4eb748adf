"""Flag what lines name in a copy of a UVFITS file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from biro.io.data_set.index import PartitionRows
from biro.io.flag_commands.commands import FlagCommand
from biro.io.flag_commands.new_flags import FlaggedCells, Mask, find_cells
from biro.io.uvfits.read import open_uvfits, stations_of
from biro.io.uvfits.write import check_other, write_flagged


def flag_lines(
    path: str | os.PathLike[str],
    lines: Sequence[FlagCommand],
    output: str | os.PathLike[str] | None,
    check: Callable[[FlaggedCells], None],
) -> FlaggedCells:
    """Write a copy in which the weights of what lines name are negative.

    Parameters
    ----------
    path : path of the UVFITS file
    lines : sequence of FlagCommand
    output : path of the copy, or None to count alone
    check : function
        Called with what was found before anything is written; raises where nothing shall be.

    Raises
    ------
    DataError, InputError
        As `biro.io.uvfits.write.write_flagged` raises them.
    """
    if output is not None:
        check_other(Path(path), Path(output))
    with open_uvfits(path, {}) as (data, _):

        def flags_of(part: PartitionRows) -> Mask:
            read = data.visibilities(part)
            return np.asarray((read.weight <= 0) if read.flag is None else (read.weight <= 0) | read.flag)

        found = find_cells(data.index, lines, flags_of, stations=stations_of(data))
    check(found)
    if output is not None:
        write_flagged(path, output, (_unpacked(cells.part, cells.bits) for cells in found.cells))
    return found


def _unpacked(part: PartitionRows, bits: np.ndarray) -> tuple[PartitionRows, Mask]:
    shape = len(part.rows), len(part.chan), len(part.corr)
    return part, np.unpackbits(bits, count=int(np.prod(shape))).reshape(shape).astype(bool)
