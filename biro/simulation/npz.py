"""Write model visibilities into a file of numpy arrays."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.data_set.models_of_rows import checked_models, gathered
from biro.files.atomic import atomic_path
from biro.held import Elsewhere
from biro.observation.observation import Observation
from biro.observation.partition import Partition

OF_ROWS = ("row_id", "antenna1", "antenna2", "time", "uvw", "weight", "chan_freq")
"""Arrays of a partition that stand beside its visibilities."""


def write_npz(
    out: str | os.PathLike[str], observation: Observation, models: Iterable[NDArray[np.generic] | Elsewhere]
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
        One for each partition, in its order; may be a generator. Those that ranks hold are gathered,
        partition by partition.

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
            _write(archive, f"vis_{i}", gathered(part, model))
            n_written += model.size
            for name, array in _arrays(part.whole()):
                _write(archive, f"{name}_{i}", array)
    return n_written


def _arrays(part: Partition) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for name in OF_ROWS:
        yield name, np.asarray(getattr(part, name))
    yield "corr_type", np.array(part.corr_type)
    yield "phase_centre", np.array(part.phase_centre)


def _write(archive: zipfile.ZipFile, name: str, array: NDArray[np.generic]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
