"""FITS files of a fitted image: planes with their headers, polarisation, spectra and samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biro._version import __version__
from biro.image_posterior.results.sample_store import has_many, write_store
from biro.image_posterior.results.samples import ImageSamples
from biro.imaging.fits import write_image
from biro.imaging.fits_header import FitsAxis, celestial_axes, image_cards, stokes_axis

Array = NDArray[np.float64]
_STOKES = "IQUV"
_UNITS = {
    "mean": "Jy/pixel",
    "median": "Jy/pixel",
    "sd": "Jy/pixel",
    "restored": "Jy/beam",
    "residual": "Jy/beam",
}
N_CUBE = 8
"""Frequencies of cube.fits."""


def write_planes(image: ImageSamples, folder: Path) -> list[Path]:
    """Write the FITS files that `ImagePosterior.save` lists.

    Returns
    -------
    list of Path
        Those that were written.
    """
    given = {"mean": image.mean, "residual": image.residual}
    given |= {} if image.is_map else {"sd": image.sd, "median": image.median}
    given |= {} if image.beam is None else {"restored": image.restored()}
    written = [
        write_plane(image, folder, name, given[name], unit) for name, unit in _UNITS.items() if name in given
    ]
    if image.is_polarised:
        written += _write_polarisation(image, folder)
    if image.has_spectrum:
        written += _write_spectra(image, folder)
    if has_many(image):
        written.append(write_store(image, folder))
        (folder / "samples.fits").unlink(missing_ok=True)  # of an earlier result with fewer samples
    elif not image.is_map:
        axis = FitsAxis("SAMPLE", 1.0, 1.0, 1.0, "")
        written.append(
            write_plane(image, folder, "samples", image.samples[:, :, None], "Jy/pixel", more=axis)
        )
    return written


def _write_polarisation(image: ImageSamples, folder: Path) -> list[Path]:
    """Write pol_fraction.fits and evpa.fits (deg), and their errors where there are samples."""
    found = image.polarisation
    planes = {"pol_fraction": (found.fraction, ""), "evpa": (np.rad2deg(found.angle), "deg")}
    if not image.is_map:
        planes["pol_fraction_sd"] = found.fraction_error, ""
        planes["evpa_sd"] = np.rad2deg(found.angle_error), "deg"
    return [write_plane(image, folder, name, plane[None], unit) for name, (plane, unit) in planes.items()]


def _write_spectra(image: ImageSamples, folder: Path) -> list[Path]:
    """Write spectral_index.fits and its error, those of further coefficients, and cube.fits."""
    written = []
    for k, each in enumerate(np.moveaxis(image.arrays["spectral_index"], 1, 0)):
        name = "spectral_index" if k == 0 else f"spectral_coefficient_{k}"
        written.append(write_plane(image, folder, name, each.mean(axis=0)[None], ""))
        if not image.is_map:
            written.append(write_plane(image, folder, f"{name}_sd", each.std(axis=0, ddof=1)[None], ""))
    ends = image.arrays["plane_freq"][[0, -1]]
    freq = np.linspace(float(ends[0]), float(ends[1]), N_CUBE)
    axis = FitsAxis("FREQ", float(freq[0]), float(freq[1] - freq[0]), 1.0, "Hz")
    planes = image.at_frequencies(freq).mean(axis=0).swapaxes(0, 1)
    return [*written, write_plane(image, folder, "cube", planes, "Jy/pixel", freq=axis)]


def write_plane(
    image: ImageSamples,
    folder: Path,
    name: str,
    planes: Array,
    unit: str,
    *,
    freq: FitsAxis | None = None,
    more: FitsAxis | None = None,
    cards: Mapping[str, str | float] | None = None,
) -> Path:
    """Write planes (n_stokes, N, N), or an array with all axes; `cards` are further ones of the header."""
    about = image.about
    stokes = _STOKES[: planes.shape[-4 if planes.ndim > 3 else 0]]
    axes = celestial_axes(image.field.centre, image.field.cell, image.field.size)
    axes += [
        freq or FitsAxis("FREQ", about["freq"], about["bandwidth"] or 1.0, 1.0, "Hz"),
        stokes_axis(stokes),
        *([] if more is None else [more]),
    ]
    keys = ("freq_frame", "field", "telescope", "date")
    cards = image_cards(axes, unit=unit, **{key: str(about[key]) for key in keys}) | dict(cards or {})
    if image.beam is not None and unit == "Jy/beam":
        cards |= {"BMAJ": float(np.rad2deg(image.beam.major)), "BMIN": float(np.rad2deg(image.beam.minor))}
        cards["BPA"] = float(np.rad2deg(image.beam.pa))
    if unit[:2] != "Jy":
        cards["BTYPE"] = name
    history = [
        f"biro {__version__}: {name} of the image {image.name}, prior {image.prior}",
        f"from {about['origin']}",
        f"chi2/2N {image.total_chi2:.6g}, noise factor {image.noise:.6g}",
    ]
    write_image(folder / f"{name}.fits", planes, cards, history)
    return folder / f"{name}.fits"
