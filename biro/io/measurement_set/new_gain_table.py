"""Make a calibration table that CASA reads; casacore runs in a child process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.errors import MeasurementSetError
from biro.io.measurement_set.metadata import GainMetadata
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.storage import existing_set
from biro.io.measurement_set.temporary import clean_up, made_beside, refuse_foreign_files

CHUNK_BYTES = 16 << 20
"""Bytes of a column that are sent to the child at a time."""


def create_gain_table(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str],
    metadata: GainMetadata,
    columns: Mapping[str, NDArray[np.generic]],
    *,
    overwrite: bool = False,
    time_limit: float = 30.0,
) -> None:
    """Make a calibration table that CASA's applycal and plotms read.

    Its subtables are copies of those of the Measurement Set, with the frequencies of the solutions. It is
    made beside its place, and moved there when it is whole.

    Parameters
    ----------
    path : path
    source : path
        The Measurement Set that the gains were solved from.
    metadata : GainMetadata
    columns : mapping of str to array (n_row, ...)
        All columns of the main table: TIME (MJD, s, UTC), FIELD_ID, ..., CPARAM complex64 (n_row, n_chan, 2).
    overwrite : bool
        Replace a table that is there.
    time_limit : float, s

    Raises
    ------
    MeasurementSetError
        Something is there already, or files that are no part of the table lie in it; it cannot be
        written, or the set cannot be read.
    """
    given = existing_set(source, time_limit)
    target = Path(path).expanduser().absolute()
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise MeasurementSetError(f"{path}: no permission to make files in {target.parent}")
    clean_up(target)
    if target.exists():
        if not overwrite:
            raise MeasurementSetError(
                f"{path}: exists already; choose another name, or give --overwrite (overwrite=True in Python)"
            )
        existing_set(target, time_limit)
        refuse_foreign_files(target)
    with made_beside(path, target) as new, MeasurementSetProcess(new, time_limit) as child:
        child.writing = True
        child.call("create_gains", path=str(new), source=str(given), metadata=metadata)
        for name, values in columns.items():
            size = max(1, CHUNK_BYTES // max(1, values[:1].nbytes))
            for start in range(0, len(values), size):
                chunk = np.ascontiguousarray(values[start : start + size])
                child.send({"operation": "fill_gains", "column": name, "start": start}, chunk)
                child.receive()
        child.call("close_gains")
