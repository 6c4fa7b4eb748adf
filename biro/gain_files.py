"""Gains of antennas in files: tables of CASA, and those that simulations wrote beside their data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError, InputError
from biro.files.atomic import atomic_path
from biro.files.npz import read_npz, reading, texts
from biro.measurement_set.gain_table import read_gain_table
from biro.measurement_set.storage import TIME_LIMIT, ask_storage
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.models.sky import SkyModel
from biro.observation.observation import Observation


def read_gains(path: str | os.PathLike[str]) -> GainSolutions:
    """Gains of a CASA calibration table (G, T or B Jones), or of a file that a simulation wrote (.npz).

    Parameters
    ----------
    path : path

    Returns
    -------
    GainSolutions
        Times are MJD in seconds: UTC of a file that biro wrote, and of a CASA table those that the set has
        which it was solved from, on whatever scale: so CASA writes and applies them (to TIME as it stands,
        though the table calls them UTC).

    Raises
    ------
    DataError
        No such file or table, or one that is broken or of another kind.

    Examples
    --------
    >>> read_gains("day1.G0")
    """
    place = Path(path)
    if ask_storage(place, TIME_LIMIT, "looking at it", place.is_dir):
        return read_gain_table(place, TIME_LIMIT)
    if not place.exists():
        raise DataError(f"{path}: no such table of gains")
    arrays = read_npz(place, "gains")
    with reading(place, "gains"):
        return GainSolutions(
            str(place),
            arrays["time"].astype(np.float64),
            arrays["freq"].astype(np.float64),
            texts(arrays["antenna_names"]),
            arrays["gain"].astype(np.complex128),
            arrays["usable"].astype(bool),
            arrays["window"].astype(np.int64) if "window" in arrays else np.zeros(0, np.int64),
        )


def write_gains(
    path: str | os.PathLike[str],
    gains: GainSolutions,
    beside: Mapping[str, NDArray[np.generic]] | None = None,
) -> None:
    """Write gains into a file that `read_gains`, and a model's `[gain] table`, read back.

    Parameters
    ----------
    path : path
    gains : GainSolutions
        Times are MJD in seconds, UTC.
    beside : mapping of str to array, optional
        What else the file is to hold, as errors; it is not read back.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    try:
        with atomic_path(Path(path)) as temporary, open(temporary, "wb") as file:
            np.savez(
                file,
                time=gains.time,
                freq=gains.freq,
                antenna_names=np.array(gains.antenna_names),
                gain=gains.gain,
                usable=gains.usable,
                window=gains.window,
                **(beside or {}),  # type: ignore[arg-type]  # NumPy has an option among its names
            )
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def with_gains_read(sky: SkyModel, observation: Observation) -> SkyModel:
    """The model with the tables of its gains in memory, at times on the scale of the data.

    Raises
    ------
    DataError
        A table cannot be read.
    """
    if all(isinstance(one, GainSolutions) for gain in sky.gains for one in gain.table or ()):
        return sky

    def read(gain: Gain) -> Gain:
        tables = [
            one if isinstance(one, GainSolutions) else _on_scale_of(observation, one)
            for one in gain.table or ()
        ]
        return replace(gain, table=tables or None)

    return replace(sky, gain=[read(gain) for gain in sky.gains])


def _on_scale_of(observation: Observation, path: str | os.PathLike[str]) -> GainSolutions:
    """Gains in a file, at times on the scale of the data; see `read_gains` for those of files."""
    gains = read_gains(path)
    return gains if Path(path).is_dir() else gains.later(-observation.utc_offset)
