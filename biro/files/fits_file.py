"""FITS files of others: opened after a check of their structure, with errors in one line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from biro.errors import InputError
from biro.files.fits_vetting import vet
from biro.files.foreign_text import visible_line
from biro.files.memory import free_memory
from biro.models.files.foreign import read_file

if TYPE_CHECKING:
    from astropy.io.fits import HDUList


@contextmanager
def naming(place: Path, what: str = "a FITS image") -> Iterator[None]:
    """Put the name of the file before the message of an error, and turn errors of astropy into InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {visible_line(error)}") from None
    except Exception as error:  # astropy raises many kinds about foreign files
        reason = visible_line(error)[:200] or type(error).__name__
        raise InputError(f"{place}: cannot be read as {what} ({reason})") from None


def check_is_file(place: Path) -> None:
    """Refuse what is not there, a folder, or a device.

    Raises
    ------
    InputError
    """
    try:
        read_file(place, only=1)
    except FileNotFoundError:
        raise InputError("no such file") from None
    except OSError as error:
        raise InputError(error.strerror or str(error)) from None


@contextmanager
def opened(place: Path) -> Iterator[HDUList]:
    """The units of a FITS file that has passed `fits_vetting.vet`."""
    from astropy.io import fits

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fits.open(vet(place, free_memory()), mode="readonly", memmap=False, lazy_load_hdus=True) as hdus:
            yield hdus
