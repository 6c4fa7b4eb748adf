"""Files of numpy arrays: model visibilities, and where a simulation has interference."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.distributed.remote_data import RemoteArray, rows_of
from biro.files.atomic import atomic_path
from biro.io.data_set.writable_models import blocks_of_rows, checked_models
from biro.observation.observation import Observation
from biro.observation.partition import Partition

OF_ROWS = ("row_id", "antenna1", "antenna2", "time", "uvw", "chan_freq")
"""Arrays of a partition that stand beside its visibilities and weights."""


def write_npz(
    out: str | os.PathLike[str], observation: Observation, models: Iterable[NDArray[np.generic] | RemoteArray]
) -> int:
    """Write model visibilities with the rows that they belong to, as a whole or not at all.

    The file has, for partition i of the observation, `vis_i` (n_row, n_chan, n_corr), Jy; `row_id_i` (rows of
    the data set), `antenna1_i`, `antenna2_i`, `time_i` (MJD, s), `uvw_i` (m), `weight_i` (0 for what is
    flagged), `chan_freq_i` (Hz), `corr_type_i`, `phase_centre_i` (rad); and for all `labels` and
    `antenna_names`.

    Parameters
    ----------
    out : path
        Replaced where it exists.
    observation : Observation
    models : iterable of complex (n_row, n_chan, n_corr), Jy
        One for each partition, in its order; may be a generator. Of those that are
        elsewhere, a block of rows at a time is in memory.

    Returns
    -------
    int
        How many visibilities were written.

    Raises
    ------
    InputError
        A model of wrong shape, kind, or with values that are not finite; the file cannot be written.
    """
    n_written = 0
    with atomic_path(Path(out)) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        _write(archive, "labels", np.array(observation.labels))
        _write(archive, "antenna_names", np.array(observation.antenna_names))
        for i, (part, model) in enumerate(checked_models(observation.partitions, models)):
            blocks = (rows_of(model, rows) for rows in blocks_of_rows(part))
            write_blocks(archive, f"vis_{i}", model.shape, model.dtype, blocks)
            n_written += model.size
            weights = (part.taken_weight(rows) for rows in blocks_of_rows(part))
            write_blocks(archive, f"weight_{i}", part.weight.shape, part.weight.dtype, weights)
            for name, array in _arrays(part):
                _write(archive, f"{name}_{i}", array)
    return n_written


def write_truth(out: str | os.PathLike[str], part: Partition, truth: NDArray[np.bool_]) -> float:
    """Write which visibilities have interference, as a whole or not at all.

    Parameters
    ----------
    out : path
        Gets one array, `interference`, bool (n_row, n_chan, n_corr). Replaced where it exists.
    part : Partition
    truth : bool (n_time, n_chan)
        As `biro.simulation.interference.Interference.add` gives it.

    Returns
    -------
    float
        Their share among all visibilities.
    """
    blocks = (
        np.repeat(truth[part.time_index[rows], :, None], part.n_corr, axis=2) for rows in blocks_of_rows(part)
    )
    with (
        atomic_path(Path(out)) as draft,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        write_blocks(archive, "interference", part.vis.shape, truth.dtype, blocks)
    return float(truth.mean(axis=1)[part.time_index].mean())


def _arrays(part: Partition) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for name in OF_ROWS:
        yield name, np.asarray(getattr(part, name))
    yield "corr_type", np.array(part.corr_type)
    yield "phase_centre", np.array(part.phase_centre)


def write_blocks(
    archive: zipfile.ZipFile,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    blocks: Iterable[NDArray[Any]],
) -> None:
    """Write an array that comes in blocks along its first axis, as `numpy.savez` writes a whole one."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block).data)


def _write(archive: zipfile.ZipFile, name: str, array: NDArray[np.generic]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
