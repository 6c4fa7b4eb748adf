"""Flag what lines name in a Measurement Set."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

from biro.io.flag_commands.commands import FlagCommand
from biro.io.flag_commands.new_flags import FlaggedCells, find_cells
from biro.io.measurement_set.column import check_writable
from biro.io.measurement_set.flags import write_masks
from biro.io.measurement_set.opened import TableOptions, opened_columns
from biro.io.measurement_set.storage import ask_storage, existing_set


def flag_lines(
    path: str | os.PathLike[str],
    lines: Sequence[FlagCommand],
    *,
    dry_run: bool,
    time_limit: float,
    check: Callable[[FlaggedCells], None],
) -> tuple[FlaggedCells, str]:
    """Write what lines name into FLAG, and FLAG_ROW where all of a row is flagged.

    Parameters
    ----------
    path : path of the Measurement Set
    lines : sequence of FlagCommand
    dry_run : bool
        Count, and write nothing.
    time_limit : float, s
    check : function
        Called with what was found before anything is written; raises where nothing shall be.

    Returns
    -------
    found : FlaggedCells
    version : str
        What keeps the flags as they were; empty where nothing was written.

    Raises
    ------
    MeasurementSetError
        As `biro.flag` raises it.
    """
    folder = existing_set(path, time_limit).resolve()  # one folder of versions, whatever path names the set
    if not dry_run:
        ask_storage(folder, time_limit, "looking whether it can be written", lambda: check_writable(folder))
    with opened_columns(path, TableOptions(None, None, time_limit), (None,)) as (data,):
        found, n_row = find_cells(data.index, lines, data.flags), data.index.n_row
    check(found)
    if dry_run or not found.cells:
        return found, ""
    selected = " ".join(f"--select {shlex.quote(line.text)}" for line in lines)
    command = f"biro flag {shlex.quote(str(folder))} {selected}"
    n_flagged = sum(count.n_flagged for count in found.counts)
    masks = [(cells.part, cells.bits) for cells in found.cells]
    return found, write_masks(folder, masks, command, f"{n_flagged} visibilities by hand", n_row, time_limit)
