"""Make a new Measurement Set that holds an observation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro.distributed.blocks import Vis, Weight
from biro.distributed.turns import Turn, Turns
from biro.errors import InputError, MeasurementSetError
from biro.files.child_messages import Header
from biro.io.measurement_set.metadata import STOKES, NewDescription, NewMetadata
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.storage import existing_set
from biro.io.measurement_set.temporary import clean_up, made_beside, refuse_foreign_files
from biro.models.bound.antenna_terms.segments import cut
from biro.models.components.antenna_terms.mounts import mount_kind
from biro.models.components.direction import lm_to_radec
from biro.observation.feeds.feeds import FeedMetadata
from biro.observation.observation import Observation
from biro.observation.partition import Partition

CHUNK_VISIBILITIES = 1 << 21
"""Visibilities that are sent to the child at a time."""
SPARE_BYTES = 4 << 20
"""Room that is left on the disk beyond what the set needs."""
SECOND_RECEPTORS = "LY"
"""Receptors that are the second of an antenna; X and R are the first."""
MOUNT_NAMES = {
    "": "ALT-AZ",
    "alt-az": "ALT-AZ",
    "equatorial": "EQUATORIAL",
    "nasmyth-right": "ALT-AZ+NASMYTH-R",
    "nasmyth-left": "ALT-AZ+NASMYTH-L",
    "x-y": "X-Y",
}
"""What the column MOUNT calls mounts; those that are not known are taken as the commonest."""
ROW_COLUMNS = (
    "TIME",
    "ANTENNA1",
    "ANTENNA2",
    "UVW",
    "FIELD_ID",
    "DATA_DESC_ID",
    "INTERVAL",
    "EXPOSURE",
    "SCAN_NUMBER",
)


def create_ms(
    path: str | os.PathLike[str],
    observation: Observation,
    *,
    overwrite: bool = False,
    time_limit: float = 30.0,
) -> None:
    """Make a new Measurement Set that holds an observation; `read_ms` gives it back.

    DATA holds the visibilities, FLAG what has weight 0, WEIGHT_SPECTRUM the weights, WEIGHT their mean over
    channels and SIGMA = 1/sqrt(WEIGHT). Rows are written in the order of `row_id`. It is made beside its
    place and moved there when it is whole. Processes that share the data write theirs, one after the other.

    Parameters
    ----------
    path : path
    observation : Observation
        UVW is written with the signs of a Measurement Set, whatever convention it was read with.
    overwrite : bool
        Replace a Measurement Set that is there (never another kind of file or folder), and remove the
        versions of its flags.
    time_limit : float, s

    Raises
    ------
    MeasurementSetError
        Something is there already, or files that are no part of the set lie in it; no room, or it
        cannot be written.
    InputError
        The observation was joined of several sets.
    """
    if observation.set_names:
        raise InputError(
            f"{path}: cannot make one set of the joined data of {', '.join(observation.set_names)}; make one "
            "of each"
        )
    target = Path(path).expanduser().absolute()
    _check_target(path, target, overwrite, time_limit)
    need = 3 * sum(part.vis.nbytes for part in observation.partitions) + SPARE_BYTES
    free = shutil.disk_usage(target.parent).free
    if need > free:
        raise MeasurementSetError(
            f"{path}: needs about {need / 1e6:.0f} MB, but {free / 1e6:.0f} MB are free on its disk: make "
            "room"
        )
    _check_range(path, observation)
    with made_beside(path, target) as new:
        _write(observation, new, time_limit)


def _check_range(path: str | os.PathLike[str], observation: Observation) -> None:
    """Refuse visibilities that are no numbers in the precision of the column DATA."""
    most = float(np.finfo(np.float32).max)
    for part in observation.partitions:
        largest = max(part.by_block(_largest), default=0.0)
        if largest > most:
            raise MeasurementSetError(
                f"{path}: visibilities of up to {largest:.3g} Jy cannot be stored: DATA holds numbers up to"
                f" {most:.3g}; check the flux densities of the sky"
            )


def _largest(vis: Vis, _: Weight) -> float:
    """Largest modulus of a real or imaginary part."""
    return max(float(np.abs(half).max(initial=0.0)) for half in (vis.real, vis.imag))


def _check_target(path: str | os.PathLike[str], target: Path, overwrite: bool, time_limit: float) -> None:
    """Refuse a place where no set can be made; clean up what killed processes have left there."""
    if not target.parent.is_dir():
        raise MeasurementSetError(f"{path}: no directory {target.parent}")
    if not os.access(target.parent, os.R_OK | os.W_OK | os.X_OK):
        raise MeasurementSetError(f"{path}: no permission to make files in {target.parent}")
    clean_up(target)
    if target.exists():
        if not overwrite:
            raise MeasurementSetError(
                f"{path}: exists already; choose another name, or give --overwrite (overwrite=True in Python)"
            )
        existing_set(target, time_limit)
        refuse_foreign_files(target)


Message = tuple[Header, NDArray[np.generic] | None]


def _send(child: MeasurementSetProcess, messages: Iterable[Message]) -> None:
    """Send messages that the child answers."""
    for header, array in messages:
        child.send(header, array)
        child.receive()


def _made(observation: Observation, path: Path) -> Iterator[Message]:
    """The messages to the child that make a set without visibilities."""
    yield {"operation": "create", "path": str(path), "metadata": _metadata(observation)}, None
    columns, _ = _row_columns(observation)
    for name in ROW_COLUMNS:
        yield {"operation": "fill", "column": name}, columns[name]


def _cells(rows: NDArray[np.int64], vis: Vis, weight: Weight) -> Iterator[Message]:
    """The messages that write visibilities and weights of some rows."""
    size = max(1, CHUNK_VISIBILITIES // int(np.prod(vis.shape[1:])))
    for start in range(0, len(rows), size):
        some = slice(start, start + size)
        yield {"operation": "select_rows"}, rows[some]
        yield {"operation": "fill_cells", "column": "DATA"}, vis[some].astype(np.complex64)
        yield {"operation": "fill_cells", "column": "WEIGHT_SPECTRUM"}, weight[some].astype(np.float32)


def _write(observation: Observation, path: Path, time_limit: float) -> None:
    """Make the set; processes that share the data write theirs, one after the other."""
    turns = Turns()
    with MeasurementSetProcess(path, time_limit) as child:
        child.writing = True
        _send(child, _made(observation, path))
        for part, rows in zip(observation.partitions, _new_rows(observation), strict=True):
            if part.distributed is None:
                _send(child, _cells(rows, part.vis, part.weight))
            else:
                turns.add(part.distributed, part.split(rows))
        for own_rows, data in turns.own:
            _send(child, _cells(own_rows, *data()))
        _send(child, _CLOSE)
    turns.let_others_write(_take_turn, path, time_limit)


_CLOSE: list[Message] = [({"operation": "close_new"}, None)]


def _take_turn(turn: Turn, path: Path, time_limit: float) -> None:
    """What another process writes while no other has the set."""
    with MeasurementSetProcess(path, time_limit) as child:
        child.writing = True
        _send(child, [({"operation": "open_new", "path": str(path)}, None)])
        for rows, data in turn:
            _send(child, _cells(rows, *data()))
        _send(child, _CLOSE)


def _new_rows(observation: Observation) -> list[NDArray[np.int64]]:
    """The row of the new set for each row of each partition."""
    _, order = _row_columns(observation)
    ends = np.cumsum([part.n_row for part in observation.partitions])
    return np.split(np.argsort(order), ends[:-1])


def _row_columns(observation: Observation) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.int64]]:
    """Columns of the main table in the order of row_id, and that order of the joined partitions."""
    parts = observation.partitions
    sign = -1.0 if observation.convention == "fourier" else 1.0
    descriptions = _descriptions(parts)
    field_ids = sorted({part.field_id for part in parts})
    order = np.argsort(np.concatenate([part.row_id for part in parts]), kind="stable")
    time = np.concatenate([part.time for part in parts])[order] + observation.utc_offset
    field = np.concatenate([np.full(part.n_row, field_ids.index(part.field_id), np.int32) for part in parts])[
        order
    ]
    dd = [np.full(part.n_row, descriptions.index(part.data_desc_id), np.int32) for part in parts]
    columns: dict[str, NDArray[np.generic]] = {
        "TIME": time,
        "ANTENNA1": np.concatenate([part.antenna1 for part in parts])[order],
        "ANTENNA2": np.concatenate([part.antenna2 for part in parts])[order],
        "UVW": sign * np.concatenate([part.uvw for part in parts])[order],
        "FIELD_ID": field,
        "DATA_DESC_ID": np.concatenate(dd)[order],
        "INTERVAL": np.concatenate([part.row_intervals for part in parts])[order],
        "EXPOSURE": np.concatenate([part.averaged_over for part in parts])[order],
        "SCAN_NUMBER": np.concatenate(_scans(observation))[order],
    }
    return columns, order


def _scans(observation: Observation) -> list[NDArray[np.int32]]:
    """Scan number of each row of each partition: those of the data, or scans by pauses counted from 1."""
    segments = cut("scan", observation.partition_views)
    number = np.arange(segments.middle.size) + 1 if segments.number is None else segments.number
    return [
        number[of_time][part.time_index].astype(np.int32)
        for of_time, part in zip(segments.of_time, observation.partitions, strict=True)
    ]


def _descriptions(parts: Iterable[Partition]) -> list[int]:
    return sorted({part.data_desc_id for part in parts})


def _metadata(observation: Observation) -> NewMetadata:
    """What the subtables are to hold."""
    parts = observation.partitions
    fields = {part.field_id: part for part in reversed(parts)}
    descriptions = {part.data_desc_id: part for part in reversed(parts)}
    times = np.concatenate([part.times for part in parts]) + observation.utc_offset
    diameter = observation.dish_diameter
    feeds = parts[0].feeds or FeedMetadata.unknown(observation.n_antenna)
    return {
        "antenna_names": list(observation.antenna_names),
        "antenna_positions": observation.antenna_positions.tolist(),
        "dish_diameter": (diameter if len(diameter) else np.zeros(observation.n_antenna)).tolist(),
        "mounts": [MOUNT_NAMES.get(mount_kind(mount), mount) for mount in feeds.mounts],
        "receptor_angles": np.nan_to_num(feeds.receptor_angle).tolist(),
        "circular": _circular(parts, observation.n_antenna).tolist(),
        "telescope": observation.telescope,
        "n_row": sum(part.n_row for part in parts),
        "time_range": [float(times.min()), float(times.max())],
        "fields": [
            {
                "name": fields[i].field,
                "direction": list(fields[i].phase_centre),
                "pointing": list(_pointing(fields[i])),
            }
            for i in sorted(fields)
        ],
        "pointings": [row for i in sorted(fields) for row in _pointing_rows(fields[i], observation)],
        "descriptions": [_description(descriptions[i]) for i in sorted(descriptions)],
    }


def _circular(parts: Sequence[Partition], n_antenna: int) -> NDArray[np.bool_]:
    """Which antennas have circular feeds, bool (n_antenna,): the letters of correlations say so."""
    found = np.zeros(n_antenna, bool)
    for part in parts:
        for place, antenna in ((0, part.antenna1), (-1, part.antenna2)):
            if {name[place] for name in part.corr_type} & set("RL"):
                found[np.unique(antenna)] = True
    return found


def _pointing(part: Partition) -> tuple[float, float]:
    """Where the dishes of a partition pointed, ICRS, rad."""
    return part.phase_centre if part.pointing is None else part.pointing.centre


def _pointing_rows(part: Partition, observation: Observation) -> Iterator[list[float]]:
    """Antenna, time, how long it holds, right ascension and declination, where antennas pointed apart."""
    pointing = part.pointing
    if pointing is None or pointing.offset is None or pointing.time is None:
        return
    times = pointing.time
    if len(times) > 1:
        holds = float(np.median(np.diff(times)))
    else:  # for the whole observation
        times, holds = np.array([part.times.mean()]), 2.0 * float(np.ptp(part.times)) + 2.0 * part.interval
    for time, offset in zip(times.tolist(), pointing.offset.tolist(), strict=True):
        for antenna, (l, m) in enumerate(offset):
            place = lm_to_radec(l, m, pointing.centre)
            yield [antenna, time + observation.utc_offset, holds, *place]


def _description(part: Partition) -> NewDescription:
    return {
        "name": part.spw,
        "chan_freq": part.chan_freq.tolist(),
        "chan_width": part.chan_width.tolist(),
        "frame": part.freq_frame,
        "corr_type": list(part.corr_type),
        "corr_codes": [STOKES.index(name) for name in part.corr_type],
        "receptors": [
            [int(receptor in SECOND_RECEPTORS) for receptor in (name[0], name[-1])] for name in part.corr_type
        ],
    }
