"""Gains of antennas in files of any format, as a model applies them to data."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from astropy.time import Time
from numpy.typing import NDArray

from biro.display.arguments import PATH, takes
from biro.errors import DataError, InputError
from biro.files.atomic import atomic_path
from biro.files.npz import read_npz, reading, texts
from biro.io.gain_files.h5parm import read_h5parm, split_h5parm
from biro.io.measurement_set.gain_table import read_gain_table
from biro.io.measurement_set.storage import TIME_LIMIT, ask_storage
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.models.files.foreign import read_file
from biro.models.sky import SkyModel
from biro.observation.observation import Observation

log = logging.getLogger(__name__)

HDF5 = b"\x89HDF\r\n\x1a\n"
DAY = 86400.0
LONGEST_AWAY = 30.0 * DAY
"""Gains are applied to data that lie at most so far beyond them, s: a bandpass may be of another day."""
_OTHER_TIMES: tuple[tuple[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]], ...] = (
    ("Times must be MJD in seconds; these look like MJD in days: multiply them by 86400", lambda t: DAY * t),
    (
        "Times must be MJD in seconds; these look like JD in days: subtract 2400000.5 and multiply by 86400",
        lambda t: DAY * (t - 2400000.5),
    ),
    (
        "Times must be MJD in seconds; these look like JD in seconds: subtract 207360043200",
        lambda t: t - DAY * 2400000.5,
    ),
    ("Times must be MJD in seconds; these look like Unix times: add 3506716800", lambda t: t + DAY * 40587.0),
)


@takes(path=PATH)
def read_gains(path: str | os.PathLike[str]) -> GainSolutions:
    """Gains of a CASA table (G, T or B Jones), of an H5parm file, or of a file of a simulation (.npz).

    Parameters
    ----------
    path : path
        Of an H5parm file, a colon and what is meant in it may follow: "cal.h5:sol000" (a solution set),
        "cal.h5:sol000/phase000" (a table of it), "cal.h5:sol000/phase000/Patch_1" (a direction). Without,
        its amplitudes and phases are read, where there is one table of each in one direction.

    Returns
    -------
    GainSolutions
        Times are MJD in seconds: UTC of a file that biro wrote, and of CASA tables and H5parm files those
        that the set has which they were solved from, on whatever scale: so CASA and DP3 write and apply
        them (to TIME as it stands, though a CASA table calls them UTC). Solutions of an H5parm file hold
        half of the way to the nearer neighbour in time.

    Raises
    ------
    DataError
        No such file or table, or one that is broken or of another kind.

    Examples
    --------
    >>> read_gains("day1.G0")
    """
    place, inside = _place(path)
    if _is_folder(place):
        return read_gain_table(place, TIME_LIMIT)
    if not place.exists():
        raise DataError(f"{path}: no such gain table")
    if inside or _is_hdf5(place):
        return read_h5parm(place, inside)
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
            interval=arrays["interval"].astype(np.float64) if "interval" in arrays else np.zeros(0),
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
                interval=gains.interval,
                **(beside or {}),  # type: ignore[arg-type]  # NumPy has an option among its names
            )
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def with_gains_read(sky: SkyModel, observation: Observation) -> SkyModel:
    """The model with the tables of its gains in memory, at times on the scale of the data.

    Raises
    ------
    DataError
        A table cannot be read, or is of another time than the data (`LONGEST_AWAY`).
    """
    known = [one for gain in sky.gains for one in gain.table or ()]
    for one in known:
        if isinstance(one, GainSolutions):
            _check_times(one, observation)
    if all(isinstance(one, GainSolutions) for one in known):
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
    place, _ = _place(path)
    is_of_set = _is_folder(place) or _is_hdf5(place)
    found = gains if is_of_set else gains.later(-observation.utc_offset)
    _check_times(found, observation)
    _check_freq(found, observation)
    return found


def _place(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """The path of a file or folder, and what is meant in an H5parm file."""
    return ask_storage(Path(path), TIME_LIMIT, "looking at it", lambda: split_h5parm(Path(path)))


def _is_folder(place: Path) -> bool:
    return ask_storage(place, TIME_LIMIT, "looking at it", place.is_dir)


def _is_hdf5(place: Path) -> bool:
    with reading(place, "gains"):
        return read_file(place, only=len(HDF5)) == HDF5


def _check_freq(gains: GainSolutions, observation: Observation) -> None:
    """Say where gains that differ between frequencies stay constant far beyond these."""
    if gains.freq.size < 2:
        return
    for label, part in zip(observation.labels, observation.partitions, strict=True):
        middle = float(np.mean(part.chan_freq))
        beyond = max(gains.freq[0] - middle, middle - gains.freq[-1])
        if beyond > max(np.diff(gains.freq).max(), 0.02 * middle):
            ends = f"{gains.freq[0] / 1e6:.6g} to {gains.freq[-1] / 1e6:.6g}"
            log.warning(
                "%s: gains of %s MHz are applied to %s at %.6g MHz, as they are at the nearer end",
                gains.source,
                ends,
                label,
                middle / 1e6,
            )


def _check_times(gains: GainSolutions, observation: Observation) -> None:
    """Refuse gains of a time that the data are far from, and say where they lie more than a day beyond them.

    Raises
    ------
    DataError
        With what is wrong with the times, where another unit or epoch explains it.
    """
    if np.isinf(gains.interval).any():  # they hold for all times
        return
    times = np.concatenate([part.times for part in observation.partitions])
    first, last = float(times.min()), float(times.max())
    away = _away(gains.time, first, last)
    if away <= DAY:
        return
    own, data = (_span(*ends) for ends in ((gains.time[0], gains.time[-1]), (first, last)))
    if away <= LONGEST_AWAY:
        log.warning("%s: biro applies gains of %s to data of %s", gains.source, own, data)
        return
    hint = next(
        (remedy for remedy, change in _OTHER_TIMES if _away(change(gains.time), first, last) <= LONGEST_AWAY),
        "Use gains that were solved from these data",
    )
    raise DataError(
        f"{gains.source}: the gain table covers {own}, the data {data}, {away / DAY:.4g} days apart. {hint}"
    )


def _away(time: NDArray[np.float64], first: float, last: float) -> float:
    """By how much data lie before the first or after the last solution, s."""
    return float(max(time[0] - first, last - time[-1], 0.0))


def _span(first: float, last: float) -> str:
    """Times, MJD in s, as dates; as numbers where these cannot be meant."""
    days = [value / DAY for value in (first, last)]
    if all(15000.0 < day < 100000.0 for day in days):  # 1899 to 2132
        with warnings.catch_warnings():  # of years for which leap seconds are not known
            warnings.simplefilter("ignore")
            ends = [str(Time(day, format="mjd").strftime("%Y-%m-%d")) for day in days]
    else:
        ends = [f"MJD {day:.6g}" for day in days]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
