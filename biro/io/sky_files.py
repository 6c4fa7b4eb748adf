"""Read a sky model or component list of any format; what a path holds decides, not its name."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from biro.display.arguments import PATH, takes
from biro.errors import BiroError, ModelError
from biro.files.fits_table import read_table
from biro.files.fits_vetting import GZIP_START
from biro.files.foreign_text import visible, visible_line
from biro.io.measurement_set.component_list import read_component_list
from biro.io.measurement_set.storage import TIME_LIMIT, ask_storage
from biro.models.files import read_sky as read_text_sky
from biro.models.files.catalogue import CatalogueColumns, from_columns, is_catalogue
from biro.models.files.foreign import start_of
from biro.models.files.formats import reader_of
from biro.models.files.text import FITS_START
from biro.models.sky import SkyModel


@takes(path=PATH)
def read_sky(path: str | os.PathLike[str], *, beam: bool = True) -> SkyModel:
    """A sky model from a model file or a component list of any format.

    Parameters
    ----------
    path : path
        A TOML model file; a component list of WSClean/BBS, Tigger, difmap or OSKAR; a catalogue of PyBDSF or
        AEGEAN, FITS or CSV; or a component list of CASA, which is a folder.
    beam : bool, default True
        False for a list of apparent fluxes: no source of it is seen through the beam of a model.

    Returns
    -------
    SkyModel
        Without priors, unless it is a model file.

    Raises
    ------
    ModelError
        No such file, none of these, or something that is not understood: the file, the row and the column,
        what was found and what was expected.
    MeasurementSetError
        A component list of CASA that is broken or locked.

    Examples
    --------
    >>> read_sky("field.gaul.fits")
    """
    sky = _read(Path(path))
    if beam:
        return sky
    if sky.populations:
        raise ModelError(
            f"{path}: population {sky.populations[0].name!r} is seen through the beam of a model; leave "
            "[beam] out for apparent fluxes"
        )
    return dataclasses.replace(sky, sources=[dataclasses.replace(one, beam=False) for one in sky.sources])


def _read(place: Path) -> SkyModel:
    is_folder, start = ask_storage(place, TIME_LIMIT, "looking at it", lambda: _look(place))
    if is_folder:
        return read_component_list(place, TIME_LIMIT)
    if start.startswith((FITS_START, GZIP_START)):
        return _read_fits(place)
    return read_text_sky(place)


def text_reader(path: Path) -> Callable[[str | Path], SkyModel] | None:
    """What reads a text file, `biro.models.files.formats.reader_of`; None for FITS and folders."""
    is_folder, start = ask_storage(path, TIME_LIMIT, "looking at it", lambda: _look(path))
    return None if is_folder or start.startswith((FITS_START, GZIP_START)) else reader_of(path)


def is_component_list(folder: Path) -> bool:
    """Whether a folder looks like a casacore table."""
    return (folder / "table.dat").is_file()


def _look(place: Path) -> tuple[bool, bytes]:
    """Whether there is a casacore table, and the first bytes of a file; readers of text refuse all else."""
    try:
        if place.is_dir():
            return is_component_list(place), b""
    except (OSError, ValueError):
        return False, b""
    return False, start_of(place, len(FITS_START))


def _read_fits(place: Path) -> SkyModel:
    """The catalogue in a FITS file."""
    shown = visible(str(place))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = read_table(place, is_catalogue)
        if table is None:
            raise ModelError(
                "FITS, but no catalogue of PyBDSF or AEGEAN; for an image use --image, or [[image]] in a "
                "model file. If these are the data, write them before the model"
            )
        return from_columns(
            CatalogueColumns(
                table.values,
                table.units,
                ref_freq=_number(table.header, "FREQ0"),
                equinox=_number(table.header, "EQUINOX") or 2000.0,
            )
        )
    except BiroError as error:
        raise ModelError(f"{shown}: {visible_line(error)}") from None
    except Exception as error:  # astropy raises many kinds about foreign files
        reason = visible_line(error)[:200] or type(error).__name__
        raise ModelError(f"{shown}: cannot be read as a FITS catalogue ({reason})") from None


def _number(header: dict[str, object], name: str) -> float | None:
    """A number of a header, also where it is written as text; None where there is none."""
    try:
        value = float(str(header[name]).strip().lstrip("JjBb"))
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) else None
