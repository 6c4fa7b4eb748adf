"""Read a calibration table of CASA as gains of antennas; casacore runs in a child process."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.errors import MeasurementSetError
from biro.files.foreign_text import visible_texts
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.storage import existing_set
from biro.models.components.antenna_terms.gain_solutions import GainSolutions


class _Window(NamedTuple):
    """Rows of one spectral window; frequencies of the solutions are those of channels, or their middle.

    Attributes
    ----------
    axis : float64 (n_chan,), Hz
    time : float64 (n_row,), s
    antenna : int64 (n_row,)
    interval : float64 (n_row,), s
    values : complex (n_row, n_chan, 1 or 2)
    flag : bool, as values
    """

    axis: NDArray[np.float64]
    time: NDArray[np.float64]
    antenna: NDArray[np.int64]
    interval: NDArray[np.float64]
    values: NDArray[np.complex128]
    flag: NDArray[np.bool_]

    @classmethod
    def of(cls, freq: list[float], arrays: list[NDArray[np.generic] | None]) -> _Window:
        time, antenna, interval, values, flag = map(np.asarray, arrays)
        axis = np.array(freq, np.float64)
        if values.shape[1] != axis.size:
            axis = np.array([axis.mean()])
        return cls(
            axis,
            time.astype(np.float64),
            antenna.astype(np.int64),
            np.maximum(np.nan_to_num(interval.astype(np.float64)), 0.0),
            values.astype(np.complex128),
            flag.astype(bool),
        )


def read_gain_table(path: str | os.PathLike[str], time_limit: float = 30.0) -> GainSolutions:
    """Solutions of a G, T or B Jones table, for all fields and spectral windows that it has.

    A T Jones has one gain for both feeds. Solutions of all fields are taken together, as CASA takes them.

    Parameters
    ----------
    path : path of the folder
    time_limit : float, s
        How long to wait for a lock, or for a storage that does not answer.

    Returns
    -------
    GainSolutions

    Raises
    ------
    MeasurementSetError
        No such table, another kind of table, a broken or a locked one, or one without rows.
    """
    folder = existing_set(path, time_limit)
    with MeasurementSetProcess(folder, time_limit) as child:
        header = visible_texts(child.call("gains", path=str(folder)))
        columns = [(freq, [child.receive()[1] for _ in range(5)]) for freq in header["freq"]]
    if not columns:
        raise MeasurementSetError(f"{path}: a gain table without rows")
    try:
        windows = [_Window.of(freq, arrays) for freq, arrays in columns]
        return _solutions(str(path), header["antennas"], windows)
    except (IndexError, ValueError, TypeError) as error:
        raise MeasurementSetError(f"{path}: a broken gain table ({error})") from None


def _solutions(path: str, names: list[str], windows: list[_Window]) -> GainSolutions:
    """All windows side by side along the axis of frequencies."""
    times = np.unique(np.concatenate([window.time for window in windows]))
    freqs, first = np.unique(np.concatenate([window.axis for window in windows]), return_index=True)
    of_freq = np.concatenate([np.full(window.axis.size, i) for i, window in enumerate(windows)])[first]
    gain = np.ones((times.size, len(names), freqs.size, 2), np.complex128)
    usable, n_flagged = np.zeros(gain.shape, bool), 0
    interval = np.zeros(times.size)
    for window in windows:
        outside = window.antenna[(window.antenna < 0) | (window.antenna >= len(names))]
        if outside.size:
            raise IndexError(f"ANTENNA1 has {outside[0]}, but there are {len(names)} antennas")
        at, chan = np.searchsorted(times, window.time), np.searchsorted(freqs, window.axis)
        good = ~window.flag & np.isfinite(window.values) & (np.abs(window.values) > 0)
        np.maximum.at(interval, at, window.interval)
        n_flagged += int(np.count_nonzero(~good))
        for feed in range(2):
            of_feed = min(feed, good.shape[2] - 1)  # T Jones has one for both
            place = (at[:, None], window.antenna[:, None], chan[None, :], feed)
            ok = good[:, :, of_feed]
            # A solution of one field must not be lost to one of another at the same time that is flagged.
            gain[place] = np.where(ok, window.values[:, :, of_feed], gain[place])
            usable[place] |= ok
    return GainSolutions(
        path, times, freqs, tuple(names), gain, usable, of_freq.astype(np.int64), n_flagged, interval
    )
