"""The ionosphere above antennas: read from files, or asked of the package spinifex."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import DataError, InputError
from biro.files.foreign_text import visible
from biro.files.npz import read_npz, reading, texts
from biro.models.components.antenna_terms.ionosphere import Ionosphere, IonosphereSamples
from biro.models.components.partition_view import PartitionView
from biro.models.files.foreign import read_file, read_text_file
from biro.models.quantities.strict import short_repr
from biro.models.sky import SkyModel
from biro.observation.observation import Observation

if TYPE_CHECKING:
    from astropy.coordinates import EarthLocation, SkyCoord
    from astropy.time import Time

Array = NDArray[np.float64]
COLUMNS = ("time", "antenna", "tec", "rm")
"""Columns of a table as text; one of the last two may be missing."""
_LEAST_TIME = 1e6
_CALLS = {"rm": ("get_rm", "get_rm_from_skycoord"), "tec": ("get_dtec", "get_dtec_from_skycoord")}


def read_ionosphere(path: str | Path) -> IonosphereSamples:
    """Electron contents and rotation measures of a file .npz, or of a table as text.

    A table has a line of names, as `time antenna tec rm`, and a row for each time (MJD, s, UTC) and antenna;
    words are separated by blanks or commas, and what follows # is a comment. What a file lacks of electron
    contents (TECU) and rotation measures (rad/m2) is 0.

    Raises
    ------
    DataError
        No such file, or one that is broken or of another kind.
    """
    place, what = Path(path), "an ionosphere"
    with reading(place, what):
        if read_file(place, only=2) == b"PK":
            arrays = read_npz(place, what)
            names, time = texts(arrays["antenna_names"]), arrays["time"].astype(np.float64)
            found = {key: arrays[key].astype(np.float64) for key in arrays.keys() & {"tec", "rm"}}
        else:
            names, time, found = _read_table(place)
        if not found:
            raise DataError(f"{path}: has neither tec nor rm")
        if time.size and np.abs(time).max() < _LEAST_TIME:
            raise DataError(
                f"{path}: times must be MJD in seconds, found {time.flat[0]:.12g}; multiply days by 86400"
            )
        none = np.zeros((time.size, len(names)))
        return IonosphereSamples(str(path), time, names, found.get("tec", none), found.get("rm", none))


def _read_table(path: Path) -> tuple[tuple[str, ...], Array, dict[str, Array]]:
    """Names of antennas, times, and the quantities of a table by time and antenna."""
    names, columns = _columns(path)
    time, slot = np.unique(columns["time"], return_inverse=True)
    place = slot * len(names) + columns["antenna"].astype(np.int64)
    n_place = np.unique(place).size
    if place.size != time.size * len(names) or n_place != place.size:
        raise DataError(
            f"{path}: expected one row for each of {time.size} times and {len(names)} antennas, "
            f"found {place.size} rows, {n_place} of them different"
        )
    order, shape = np.argsort(place), (time.size, len(names))
    found: dict[str, Array] = {}
    for key in columns.keys() & {"tec", "rm"}:
        found[key] = columns[key][order].reshape(shape)
    return tuple(names), time, found


def _columns(path: Path) -> tuple[list[str], dict[str, Array]]:
    """Names of antennas, and the columns of a table; that of antennas has their places among the names."""
    rows = _rows(path)
    number, head = rows[0]
    if len(set(head)) < len(head) or not {"time", "antenna"} <= set(head) <= set(COLUMNS):
        raise DataError(
            f"{path}, line {number}: expected names of columns, for example '{' '.join(COLUMNS)}', "
            f"found {short_repr(' '.join(head))}"
        )
    names: dict[str, int] = {}
    columns = {key: np.empty(len(rows) - 1) for key in head}
    for i, (number, words) in enumerate(rows[1:]):
        try:
            for key, word in zip(head, words, strict=True):
                is_name = key == "antenna"
                columns[key][i] = names.setdefault(visible(word), len(names)) if is_name else float(word)
        except ValueError:
            raise DataError(
                f"{path}, line {number}: expected '{' '.join(head)}', found {short_repr(' '.join(words))}"
            ) from None
    return list(names), columns


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Numbered lines as words, the names of columns first."""
    lines = enumerate(read_text_file(path).splitlines(), start=1)
    words = ((number, line.split("#")[0].replace(",", " ").split()) for number, line in lines)
    rows = [(number, row) for number, row in words if row]
    if len(rows) < 2:
        raise DataError(f"{path}: expected a line of names and rows below it, found {len(rows)} lines")
    return rows


def with_ionosphere_read(sky: SkyModel, observation: Observation) -> SkyModel:
    """The model with what is known of its ionosphere in memory, at times on the scale of the data.

    Raises
    ------
    DataError
        A file cannot be read.
    InputError
        spinifex is not there, or gives what is not understood.
    """
    given: Ionosphere | None = sky.ionosphere
    if given is None:
        return sky
    if given.kind != "given":
        keys = ("rm", "tec") if given.kind == "spinifex-tec" else ("rm",)
        found = [_of_spinifex(view, observation, keys) for view in observation.partition_views]
        return replace(sky, ionosphere=replace(given, file=found))
    if given.file is None or all(isinstance(one, IonosphereSamples) for one in given.file):
        return sky
    read = [one if isinstance(one, IonosphereSamples) else _later(one, observation) for one in given.file]
    return replace(sky, ionosphere=replace(given, file=read))


def _later(path: str, observation: Observation) -> IonosphereSamples:
    found = read_ionosphere(path)
    return replace(found, time=found.time - observation.utc_offset)


def _of_spinifex(view: PartitionView, observation: Observation, keys: Sequence[str]) -> IonosphereSamples:
    """What spinifex gives towards a phase centre: `rm`, and `tec` along the line of sight."""
    from astropy.coordinates import EarthLocation, SkyCoord
    from astropy.time import Time

    ask = {key: _call_of(key) for key in keys}
    times = Time((view.time + observation.utc_offset) / 86400.0, format="mjd", scale="utc")
    centre = SkyCoord(*view.phase_centre, unit="rad")
    found = {key: np.zeros((view.time.size, len(view.antenna_names))) for key in ("tec", "rm")}
    used = set(view.used_antennas)
    for i, (name, place) in enumerate(zip(view.antenna_names, observation.antenna_positions, strict=True)):
        for key in keys if name in used else ():
            given = ask[key](EarthLocation(*place, unit="m"), times, centre)
            # Contents are those of vertical columns, at each of some altitudes.
            asked = given.rm if key == "rm" else np.sum(given.electron_density * given.airmass, axis=1)
            column = np.asarray(asked, dtype=np.float64)
            if column.shape != view.time.shape or not np.isfinite(column).all():
                raise InputError(
                    f"ionosphere: spinifex gives {key} of shape {column.shape} for antenna {name!r}; "
                    f"expected one finite number for each of {view.time.size} times"
                )
            found[key][:, i] = column
    return IonosphereSamples("", view.time, view.antenna_names, found["tec"], found["rm"])


def _call_of(key: str) -> Callable[[EarthLocation, Time, SkyCoord], Any]:
    """The function of spinifex that gives `rm` or `tec`."""
    module, name = _CALLS[key]
    try:
        found = importlib.import_module(f"spinifex.{module}")
    except ImportError:
        raise InputError(
            f'ionosphere: kind = "spinifex{"-tec" * (key == "tec")}" needs the package spinifex: '
            "pip install 'spinifex>=2'"
        ) from None
    call: Callable[[EarthLocation, Time, SkyCoord], Any] = getattr(found, name)
    return call
