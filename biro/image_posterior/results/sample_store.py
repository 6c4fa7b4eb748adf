"""Samples of a fitted image for xarray and zarr, which read a part of them without the rest."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biro.errors import InputError
from biro.image_posterior.results.samples import ImageSamples

if TYPE_CHECKING:
    import xarray

log = logging.getLogger(__name__)

STORE = "samples.zarr"
"""Where a run directory has many samples, in place of samples.fits."""
LARGE = 100_000_000
"""Bytes of samples in float32 above which they are many."""
_CHUNK = 4_000_000
"""Bytes of a chunk at most, of samples that follow each other; one sample may be larger."""
_INSTALL = 'pip install "biro-rime[formats]"'


def samples_dataset(image: ImageSamples) -> xarray.Dataset:
    """Samples of an image as a data set of xarray.

    Returns
    -------
    xarray.Dataset
        `image`, float32 (sample, stokes, y, x), Jy/pixel; `frames`, float32 (sample, time, y, x), Jy/pixel,
        of one with frames; `spectral_index`, float32 (sample, coefficient, y, x), and `power_spectrum` of
        ln I, float64 (sample, wavenumber), where there are some. Coordinates: x and y, float64 (N,), offsets
        to the east and to the north in rad; stokes; time, MJD in UTC of the middle of each frame; wavenumber,
        cycles per width of the image. Attributes are the centre (rad, ICRS), the frequency (Hz), and remarks.

    Raises
    ------
    InputError
        There is the most probable image alone, or xarray is not installed.
    """
    if image.is_map:
        raise InputError(f"image {image.name!r} has no samples: it is the most probable image alone")
    try:
        import xarray
    except ImportError as error:
        raise InputError(f"samples as a data set need {error.name}, not installed here; {_INSTALL}") from None

    axis, arrays = image.field.axis, image.arrays
    plane = ("y", "x")
    found: dict[str, Any] = {
        "image": (("sample", "stokes", *plane), image.samples.astype(np.float32), {"units": "Jy/pixel"})
    }
    coords: dict[str, Any] = {
        "stokes": ("stokes", np.array(list("IQUV"[: image.samples.shape[1]]), object)),
        "x": ("x", -axis, {"units": "rad", "long_name": "offset to the east"}),
        "y": ("y", axis, {"units": "rad", "long_name": "offset to the north"}),
    }
    if "frames" in arrays:
        found["frames"] = (
            ("sample", "time", *plane),
            arrays["frames"].astype(np.float32),
            {"units": "Jy/pixel"},
        )
        coords["time"] = "time", image.movie.time, {"units": "MJD (UTC)"}
    if image.has_spectrum:
        found["spectral_index"] = (
            ("sample", "coefficient", *plane),
            arrays["spectral_index"].astype(np.float32),
        )
    if "power_spectrum" in arrays:
        found["power_spectrum"] = ("sample", "wavenumber"), arrays["power_spectrum"]
        coords["wavenumber"] = "wavenumber", arrays["wavenumber"], {"units": "cycles per width of the image"}
    attributes = {
        "name": image.name,
        "prior": image.prior,
        "right_ascension": image.field.centre[0],
        "declination": image.field.centre[1],
        "frequency": float(image.about["freq"]),
        "origin": str(image.about["origin"]),
        "remarks": list(image.remarks),
    }
    return xarray.Dataset(found, coords, attributes)


def has_many(image: ImageSamples) -> bool:
    """Whether samples go into a store in place of a FITS file: they are many, and zarr is installed."""
    n_byte = 4 * sum(np.size(one) for one in (image.samples, image.arrays.get("frames", ())))
    if image.is_map or n_byte <= LARGE:
        return False
    try:
        import xarray  # noqa: F401
        import zarr  # noqa: F401
    except ImportError as error:
        log.warning(
            "samples.fits has %.3g MB; %s is not installed, with which biro writes %s in its place, of which "
            "parts can be read: %s",
            n_byte / 1e6,
            error.name,
            STORE,
            _INSTALL,
        )
        return False
    return True


def write_store(image: ImageSamples, folder: Path) -> Path:
    """Write samples into samples.zarr of a folder, some samples to a chunk, as a whole or not at all.

    Returns
    -------
    Path
    """
    made, path = samples_dataset(image), folder / STORE
    encoding = {}
    for name, values in made.data_vars.items():
        n = max(1, _CHUNK // max(1, values[0].nbytes))
        encoding[str(name)] = {"chunks": (min(n, len(values)), *values.shape[1:])}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as place:
        made.to_zarr(Path(place) / STORE, encoding=encoding, consolidated=False)
        if path.exists():
            shutil.rmtree(path)
        os.replace(Path(place) / STORE, path)
    return path
