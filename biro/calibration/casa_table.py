"""Solved gains as a calibration table that CASA reads."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from biro.calibration.solved_gains import SolvedGains
from biro.calibration.window import WindowSolution
from biro.errors import InputError
from biro.io.measurement_set.metadata import GainMetadata, GainWindow
from biro.io.measurement_set.new_gain_table import create_gain_table
from biro.models.components.antenna_terms.feeds import basis_of

Columns = dict[str, NDArray[np.generic]]


def reason_for_no_table(solved: SolvedGains) -> str:
    """Why no table of CASA can hold these gains; empty where one can."""
    if solved.observation.set_names:
        return "data of several sets"
    if any(turn is not None for turn in solved.turns):
        return (
            "gains that biro applies after the feed rotation (if the data are raw, write [feeds] rotation = "
            '"present" into the model)'
        )
    blocks = {window.block_freq.size > 1 for window in solved.windows}
    numbers = [window.spw_id for window in solved.windows]
    if len(blocks) > 1 or len(set(numbers)) < len(numbers):
        return "spectral windows with different channels"
    return ""


def write_casa_table(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str],
    solved: SolvedGains,
    *,
    overwrite: bool = False,
    time_limit: float = 30.0,
) -> None:
    """Write a G Jones table, or a B Jones table where blocks of channels were solved apart.

    A row is an antenna at a solution interval in a spectral window. SNR is that of `WindowSolution`, PARAMERR
    |g| over it; ANTENNA2 is the reference antenna. TIME is on the scale of the set's, which CASA compares it
    with as it stands; SCAN_NUMBER is -1 where an interval has several scans, or the set does not tell them.

    Parameters
    ----------
    path : path
    source : path
        The Measurement Set.
    solved : SolvedGains
    overwrite : bool
    time_limit : float, s

    Raises
    ------
    InputError
        Gains that such a table cannot hold (`reason_for_no_table`).
    MeasurementSetError
        It cannot be written.
    """
    reason = reason_for_no_table(solved)
    if reason:
        raise InputError(f"{path}: a CASA table cannot hold {reason}; use the .npz file")
    bandpass = any(window.block_freq.size > 1 for window in solved.windows)
    metadata: GainMetadata = {
        "kind": "B Jones" if bandpass else "G Jones",
        "time_scale": solved.observation.time_scale,
        "basis": (basis_of(solved.observation.partitions[0].corr_type) or "unknown").upper(),
        "n_row": 0,
        "windows": {str(window.spw_id): _axis(window, bandpass) for window in solved.windows},
    }
    parts = [_rows(solved, window, bandpass) for window in solved.windows]
    if len({part["CPARAM"].shape[1] for part in parts}) > 1:
        raise InputError(
            f"{path}: the spectral windows differ in their number of channels; solve each on its own (--spws)"
        )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["TIME"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    metadata["n_row"] = len(order)
    create_gain_table(path, source, metadata, columns, overwrite=overwrite, time_limit=time_limit)


def _axis(window: WindowSolution, bandpass: bool) -> GainWindow:
    freq = window.chan_freq if bandpass else window.block_freq
    width = window.chan_width if bandpass else np.array([window.chan_width.sum()])
    return {"freq": freq.tolist(), "width": width.tolist()}


def _rows(solved: SolvedGains, window: WindowSolution, bandpass: bool) -> Columns:
    """The rows of a window, interval after interval."""
    observation, segments = solved.observation, solved.segments
    n_interval, n_antenna = window.gain.shape[0], window.gain.shape[2]
    low, high = np.full(n_interval, np.inf), np.full(n_interval, -np.inf)
    field, scans = np.full(n_interval, -1), [np.zeros((0, 2), np.int64)]
    for i in window.partitions:
        part, of_time = observation.partitions[i], segments.of_time[i]
        np.minimum.at(low, of_time, part.times - 0.5 * part.interval)
        np.maximum.at(high, of_time, part.times + 0.5 * part.interval)
        field[of_time] = part.field_id
        of_part = part.scan_of_time
        scan = np.full(len(of_time), -1) if of_part is None else of_part
        scans.append(np.stack([of_time, scan], axis=1))
    there = np.flatnonzero(high > low)
    block = window.block if bandpass else np.zeros(1, np.int64)
    shape = (len(there) * n_antenna, len(block), 2)

    def cells(values: NDArray[np.generic], kind: type) -> NDArray[np.generic]:
        return np.moveaxis(values[there][:, block], 1, 2).reshape(shape).astype(kind)

    missing = np.ones(2, bool)
    missing[list(window.feeds)] = False
    flag = ~window.usable | (missing if len(window.feeds) == 1 and window.feeds != (0,) else False)
    snr = np.where(flag, 0.0, window.snr)
    error = np.divide(np.abs(window.gain), snr, out=np.zeros_like(snr), where=snr > 0.0)
    times = 0.5 * (low + high)[there]
    reference = window.reference.max(axis=(1, 2))[there]
    n_row = shape[0]
    return {
        "TIME": np.repeat(times, n_antenna),
        "INTERVAL": np.repeat((high - low)[there], n_antenna),
        "FIELD_ID": np.repeat(field[there], n_antenna).astype(np.int32),
        "SPECTRAL_WINDOW_ID": np.full(n_row, window.spw_id, np.int32),
        "ANTENNA1": np.tile(np.arange(n_antenna, dtype=np.int32), len(there)),
        "ANTENNA2": np.repeat(reference, n_antenna).astype(np.int32),
        "SCAN_NUMBER": np.repeat(_only_scans(np.concatenate(scans), n_interval)[there], n_antenna),
        "OBSERVATION_ID": np.zeros(n_row, np.int32),
        "CPARAM": cells(window.gain, np.complex64),
        "PARAMERR": cells(error, np.float32),
        "FLAG": cells(flag, np.bool_),
        "SNR": cells(snr, np.float32),
        "WEIGHT": np.ones(shape, np.float32),
    }


def _only_scans(pairs: NDArray[np.int64], n_interval: int) -> NDArray[np.int32]:
    """The scan of each interval, int32 (n_interval,), -1 of several; from pairs of interval and scan."""
    interval, scan = np.unique(pairs, axis=0).T
    found = np.full(n_interval, -1, np.int32)
    found[interval] = scan
    found[np.bincount(interval, minlength=n_interval) > 1] = -1
    return found
