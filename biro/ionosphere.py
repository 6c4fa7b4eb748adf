"""The ionosphere above antennas: read from files, or asked of the package spinifex."""

from __future__ import annotations

import importlib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from biro.errors import DataError, InputError, ModelError
from biro.files.foreign_text import visible_texts
from biro.models.components.antenna_terms.ionosphere import Ionosphere, IonosphereSamples
from biro.models.components.partition_view import PartitionView
from biro.models.sky import SkyModel
from biro.observation.observation import Observation

LARGEST = 1 << 32
"""Bytes that the arrays of a file may take."""


def read_ionosphere(path: str | Path) -> IonosphereSamples:
    """Electron contents and rotation measures of a file .npz; what the file lacks of the two is 0.

    Raises
    ------
    DataError
        No such file, or one that is broken or of another kind.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if (size := sum(item.file_size for item in archive.infolist())) > LARGEST:
                raise DataError(f"{path}: holds {size / 1e9:.3g} GB, which is no file of an ionosphere")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        names = tuple(visible_texts(arrays["antenna_names"].astype(str).tolist()))
        time = arrays["time"].astype(np.float64)
        if not {"tec", "rm"} & set(arrays):
            raise DataError(f"{path}: has neither tec nor rm")
        tec, rm = (
            arrays[key].astype(np.float64) if key in arrays else np.zeros((time.size, len(names)))
            for key in ("tec", "rm")
        )
        return IonosphereSamples(str(path), time, names, tec, rm)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, ModelError) as error:
        raise DataError(f"{path}: no file of an ionosphere, or a broken one ({error})") from None


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
    if given.kind == "spinifex":
        found = [_of_spinifex(view, observation) for view in observation.partition_views]
        return replace(sky, ionosphere=replace(given, file=found))
    if given.file is None or all(isinstance(one, IonosphereSamples) for one in given.file):
        return sky
    read = [one if isinstance(one, IonosphereSamples) else _later(one, observation) for one in given.file]
    return replace(sky, ionosphere=replace(given, file=read))


def _later(path: str, observation: Observation) -> IonosphereSamples:
    found = read_ionosphere(path)
    return replace(found, time=found.time - observation.utc_offset)


def _of_spinifex(view: PartitionView, observation: Observation) -> IonosphereSamples:
    """Rotation measures towards a phase centre by `spinifex.get_rm.get_rm_from_skycoord`."""
    try:
        get_rm = importlib.import_module("spinifex.get_rm").get_rm_from_skycoord
    except ImportError:
        raise InputError(
            'ionosphere: kind = "spinifex" needs the package spinifex: pip install spinifex'
        ) from None
    from astropy.coordinates import EarthLocation, SkyCoord
    from astropy.time import Time

    times = Time((view.time + observation.utc_offset) / 86400.0, format="mjd", scale="utc")
    centre = SkyCoord(*view.phase_centre, unit="rad")
    rm = np.zeros((view.time.size, len(view.antenna_names)))
    used = set(view.used_antennas)
    for i, (name, place) in enumerate(zip(view.antenna_names, observation.antenna_positions, strict=True)):
        if name not in used:
            continue
        found = np.asarray(get_rm(EarthLocation(*place, unit="m"), times, centre).rm, dtype=np.float64)
        if found.shape != view.time.shape or not np.isfinite(found).all():
            raise InputError(
                f"ionosphere: spinifex gives rotation measures of shape {found.shape} for antenna {name!r}; "
                f"expected one finite number for each of {view.time.size} times"
            )
        rm[:, i] = found
    return IonosphereSamples("", view.time, view.antenna_names, np.zeros(rm.shape), rm)
