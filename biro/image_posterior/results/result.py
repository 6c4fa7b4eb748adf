"""The result of an image that was fitted: mean, errors, residuals, fluxes of regions, files and pictures."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.display.formatting import FLUXES, Printed, sexagesimal, unit_for
from biro.errors import InputError
from biro.files.atomic import write_atomic, write_figure
from biro.files.json_value import JsonValue
from biro.files.npz import read_npz, reading
from biro.image_posterior.field import ImageField
from biro.image_posterior.primary_beam import LITTLE
from biro.image_posterior.results.movie import Movie, movie_lines, movie_of_image
from biro.image_posterior.results.movie_files import write_movie
from biro.image_posterior.results.parameter_facts import beside_lines, parameter_draws
from biro.image_posterior.results.plane_files import at_log_frequencies, write_planes
from biro.image_posterior.results.polarisation import Polarisation, plane_lines, polarisation_of
from biro.image_posterior.results.products import write_spectrum
from biro.image_posterior.results.region import Region, RegionFlux, parse_region
from biro.image_posterior.results.restoring import convolved_with, residual_lines
from biro.imaging.psf import RestoringBeam
from biro.models import ImageModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from biro.image_posterior.results.profile import Profile

Array = NDArray[np.float64]
FILE = "image.npz"
"""Where a run directory has the result."""
_VERSION = 1
MISFIT = 1.2
"""Reduced chi2, over that of the noise, from which on an image does not fit."""


@dataclass(frozen=True, eq=False, repr=False)
class ImagePosterior(Printed):
    """Samples of an image given the data, or the most probable image alone.

    Attributes
    ----------
    name, prior : str
        Of the image in the model.
    field : ImageField
        Its pixels.
    samples : float64 (n_sample, n_stokes, N, N), Jy/pixel
        One where `is_map`.
    is_map : bool
        Whether there is the most probable image alone, which has no errors.
    labels : tuple of str
        Of the partitions.
    chi2 : tuple of float
        Of the mean image (with sampled gains: of the image at their mean) and each partition, with the noise
        factor in: 2 N is expected of noise.
    n_data : tuple of int
        N, complex samples of each partition.
    noise : float
        Factor by which the noise is larger than the weights state.
    residual : float64 (n_stokes, N, N), Jy/beam
        Dirty image of data less the mean image, natural weights.
    beam : RestoringBeam or None
        Gaussian fitted to the PSF of natural weights.
    about : mapping
        What headers of FITS files have: freq, bandwidth, freq_frame, field, telescope, date, origin.
    remarks : tuple of str
        What may mislead, the gravest first.
    facts : mapping
        Numbers of the fit, for JSON.
    arrays : mapping of str to array
        What else an engine found, such as a power spectrum.
    """

    name: str
    prior: str
    field: ImageField
    samples: Array
    is_map: bool
    labels: tuple[str, ...]
    chi2: tuple[float, ...]
    n_data: tuple[int, ...]
    noise: float
    residual: Array
    beam: RestoringBeam | None
    about: Mapping[str, Any]
    remarks: tuple[str, ...] = ()
    facts: Mapping[str, JsonValue] = dataclasses.field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)

    @cached_property
    def mean(self) -> Array:
        """Mean over samples, float64 (n_stokes, N, N), Jy/pixel."""
        return np.asarray(self.samples.mean(axis=0))

    @cached_property
    def median(self) -> Array:
        """Median over samples of each pixel, float64 (n_stokes, N, N), Jy/pixel."""
        return np.asarray(np.median(self.samples, axis=0))

    @property
    def sd(self) -> Array:
        """Standard deviation over samples of each pixel, float64 (n_stokes, N, N), Jy/pixel.

        Raises
        ------
        InputError
            There is the most probable image alone.
        """
        if self.is_map:
            cause, remedy = f'prior = "{self.prior}"', 'fit with prior = "correlated-field"'
            if self.prior != "smooth":
                cause, remedy = 'method = "map"', 'fit with method = "geovi"'
            raise InputError(
                f"image {self.name!r} has no errors: {cause} gives the most probable image alone; {remedy} "
                "for errors"
            )
        return np.asarray(self.samples.std(axis=0, ddof=1))

    @property
    def is_polarised(self) -> bool:
        """Whether the image has more than Stokes I."""
        return bool(self.samples.shape[1] > 1)

    @property
    def has_spectrum(self) -> bool:
        """Whether brightness has been fitted as a function of frequency."""
        return "spectral_index" in self.arrays

    @cached_property
    def polarisation(self) -> Polarisation:
        """Linear polarisation of each pixel (N, N), with errors.

        Raises
        ------
        InputError
            The image is of Stokes I alone.
        """
        if not self.is_polarised:
            raise InputError(f'image {self.name!r} is of Stokes I alone; fit it with stokes = "IQU"')
        return polarisation_of(self.samples)

    def at_frequencies(self, freq: ArrayLike) -> Array:
        """Samples at some frequencies (Hz), float64 (n_sample, n_freq, n_stokes, N, N), Jy/pixel."""
        if not self.has_spectrum:
            raise InputError(f"image {self.name!r} has no spectrum; fit it with spectral_index")
        log_freq = np.log(np.asarray(freq, np.float64) / self.about["freq"])
        return at_log_frequencies(self.samples, self.arrays["spectral_index"], log_freq)

    @cached_property
    def movie(self) -> Movie:
        """Images of all frames, and their light curves.

        Raises
        ------
        InputError
            The image is constant.
        """
        if "frames" not in self.arrays:
            raise InputError(f"image {self.name!r} is constant; fit it with frames = 4, or another number")
        return movie_of_image(self)

    @property
    def reduced_chi2(self) -> tuple[float, ...]:
        """chi2 / 2N of each partition; 1 is expected of noise."""
        return tuple(
            chi2 / (2.0 * n) if n else np.nan for chi2, n in zip(self.chi2, self.n_data, strict=True)
        )

    @property
    def total_chi2(self) -> float:
        """chi2 / 2N of all data."""
        return sum(self.chi2) / (2.0 * max(1, sum(self.n_data)))

    def region(self, region: str | Region) -> RegionFlux:
        """The flux of a region with its error, of Stokes I.

        Parameters
        ----------
        region : str or Region
            In the syntax of DS9 or CASA; see `biro.image_posterior.results.region.parse_region`.

        Raises
        ------
        InputError
            A region that is not understood, or lies outside of the image.
        """
        shape = parse_region(region) if isinstance(region, str) else region
        mask = shape.mask(self.field)
        fluxes = np.tensordot(self.samples[:, 0], mask, axes=([1, 2], [0, 1]))
        error = None if self.is_map else float(fluxes.std(ddof=1))
        peak = float(self.mean[0][mask > 0.0].max())
        return RegionFlux(
            shape.text, float(fluxes.mean()), error, fluxes, float(mask.sum()), peak, shape.is_cut(self.field)
        )

    @property
    def flux(self) -> RegionFlux:
        """The flux of the whole image with its error."""
        fluxes = self.samples[:, 0].sum(axis=(1, 2))
        error = None if self.is_map else float(fluxes.std(ddof=1))
        n = float(self.field.size**2)
        return RegionFlux("whole image", float(fluxes.mean()), error, fluxes, n, float(self.mean[0].max()))

    @property
    def parameters(self) -> dict[str, Array]:
        """Draws of each parameter of components beside the image, float64 (n_sample,); one where `is_map`."""
        return parameter_draws(self.facts, self.arrays)

    def restored(self) -> Array:
        """The mean image convolved with the restoring beam, plus the residual image, Jy/beam.

        Behind a primary beam residuals are divided by the sensitivity, and 0 where it is below a tenth.

        Raises
        ------
        InputError
            No beam could be fitted to the PSF.
        """
        if self.beam is None:
            raise InputError("the PSF has no main lobe that a beam fits, so that there is no restored image")
        residual = self.residual
        if "sensitivity" in self.arrays:
            # The beam attenuates sources and weights residuals: its square is the sensitivity.
            seen = self.arrays["sensitivity"]
            residual = np.where(seen > LITTLE, residual / np.maximum(seen, LITTLE), 0.0)
        return convolved_with(self.beam, self.mean, self.field) + residual

    def model(self) -> ImageModel:
        """The mean image as a model of the sky, for `ImageTerm(file=...)` or `biro.simulation.predict`."""
        return ImageModel(self.mean[:, None], self.field.cell, self.field.centre)

    def __str__(self) -> str:
        flux = self.flux
        unit = unit_for([flux.flux, flux.error or 0.0], FLUXES)
        error = "" if flux.error is None else f" +- {unit.text(flux.error, 2)}"
        ra_dec = " ".join(sexagesimal(*self.field.centre))
        n = len(self.samples)
        kind = "the most probable image, without errors" if self.is_map else f"{n} samples"
        lines = [
            *self.remarks,
            f"{self.name}: {self.field} at {ra_dec}; prior {self.prior}, {kind}",
            f"  flux          {unit.text(flux.flux, 4)}{error} {unit.name}",
            *plane_lines(self.samples, self.facts.get("leakage")),
            *movie_lines(self),
            f"  chi2/2N       {self.total_chi2:.4g} of {sum(self.n_data)} visibilities{self._noise_text()}",
        ]
        if len(self.chi2) > 1:
            pairs = zip(self.labels, self.reduced_chi2, self.n_data, strict=True)
            width = max(len(label) for label in self.labels) + 2
            lines += [f"    {label:<{width}}{value:.4g} of {n}" for label, value, n in pairs]
        more = [*residual_lines(self.residual[0], self.beam), *beside_lines(self.facts), *self.field.chosen]
        return "\n".join([*lines, *(f"  {line}" for line in more)])

    def __repr__(self) -> str:
        return f"<ImagePosterior {self.name}: {self.field}, prior {self.prior}; print() shows more>"

    def _noise_text(self) -> str:
        return "" if self.noise == 1.0 else f"; noise {self.noise:.3g} times that of the weights"

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON."""
        flux = self.flux
        return {
            "name": self.name,
            "prior": self.prior,
            "n_sample": len(self.samples),
            "is_map": self.is_map,
            "size": self.field.size,
            "cell": self.field.cell,
            "flux": flux.flux,
            "flux_error": flux.error,
            "noise_factor": self.noise,
            "chi2": list(self.chi2),
            "n_data": list(self.n_data),
            "reduced_chi2": list(self.reduced_chi2),
            "remarks": list(self.remarks),
            "facts": dict(self.facts),
        }

    def profile(self, line: str | Region) -> Profile:
        """Brightness of Stokes I along a line, with the band in which the samples lie.

        Parameters
        ----------
        line : str or Region
            Such as "offset; line(0 mas, 0 mas, 5 mas, 2 mas)"; see `parse_region`.

        Raises
        ------
        InputError
            A line that is not understood, or leaves the image.
        """
        from biro.image_posterior.results.profile import profile_of

        shape = parse_region(line) if isinstance(line, str) else line
        return profile_of(self.samples[:, 0], self.field, shape, is_map=self.is_map, remarks=self.remarks)

    def plot(self) -> Figure:
        """The image with its significance, its standard deviation if there are samples, and the residual."""
        from biro.image_posterior.results.pictures import draw_image

        return draw_image(self)

    def save(
        self, run: str | os.PathLike[str], *, overwrite: bool = False, pictures: bool = True
    ) -> list[Path]:
        """Write the result into a folder: image.npz, FITS files, tables, summary.txt and pictures.

        Returns
        -------
        list of Path
            mean.fits, with samples median.fits, sd.fits and samples.fits (a cube), in Jy/pixel;
            restored.fits (with a beam) and residual.fits in Jy/beam; the power spectrum of ln I, where the
            prior has one, as power_spectrum.csv and .png; image.png, summary.txt and image.npz. A polarised
            image has pol_fraction.fits and evpa.fits besides, one with a spectrum spectral_index.fits and
            cube.fits; each has its error in a file _sd.fits. One with frames has those of `write_movie`.

        Raises
        ------
        InputError
            There is a result already and `overwrite` is not given.
        """
        folder = Path(run)
        if not overwrite and (folder / FILE).exists():
            raise InputError(f"{folder}: has an image already; choose another directory or give --overwrite")
        folder.mkdir(parents=True, exist_ok=True)
        written = [*write_planes(self, folder), *write_spectrum(folder, self, pictures=pictures)]
        written += write_movie(self, folder, pictures=pictures)
        write_atomic(folder / "summary.txt", f"{self}\n".encode())
        if pictures:
            write_figure(folder / "image.png", self.plot(), dpi=150)
            written.append(folder / "image.png")
        self._write(folder / FILE)
        return [folder / FILE, folder / "summary.txt", *written]

    def _write(self, path: Path) -> None:
        beam = None if self.beam is None else vars(self.beam)
        pixels = {"size": self.field.size, "cell": self.field.cell, "centre": list(self.field.centre)}
        pixels |= {"chosen": list(self.field.chosen), "remarks": list(self.field.remarks)}
        facts = {
            "version": _VERSION,
            "name": self.name,
            "prior": self.prior,
            "is_map": self.is_map,
            "labels": list(self.labels),
            "noise": self.noise,
            "field": pixels,
            "beam": beam,
            "about": dict(self.about),
            "remarks": list(self.remarks),
            "facts": dict(self.facts),
        }
        extra: dict[str, Any] = {f"array_{name}": value for name, value in self.arrays.items()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            samples=self.samples,
            residual=self.residual,
            chi2=np.array(self.chi2),
            n_data=np.array(self.n_data),
            facts=np.array(json.dumps(facts)),
            **extra,
        )
        write_atomic(path, buffer.getvalue())


def read_result(run: str | os.PathLike[str]) -> ImagePosterior:
    """The result in a run directory that `biro fit` or `ImagePosterior.save` wrote.

    Raises
    ------
    InputError
        There is none.
    DataError
        Its file is damaged.
    """
    path = Path(run)
    path = path / FILE if path.is_dir() else path
    if not path.exists():
        raise InputError(f"{run}: has no image ({FILE}); fit one with `biro fit`, prior in [[image]]")
    arrays: dict[str, NDArray[Any]] = read_npz(path, "a fitted image")
    with reading(path, "a fitted image"):
        facts = json.loads(str(arrays["facts"]))
        pixels, beam = facts["field"], facts["beam"]
        rest = (tuple(pixels[key]) for key in ("centre", "chosen", "remarks"))
        return ImagePosterior(
            name=facts["name"],
            prior=facts["prior"],
            field=ImageField(pixels["size"], pixels["cell"], *rest),
            samples=np.asarray(arrays["samples"], np.float64),
            is_map=facts["is_map"],
            labels=tuple(facts["labels"]),
            chi2=tuple(float(value) for value in arrays["chi2"]),
            n_data=tuple(int(value) for value in arrays["n_data"]),
            noise=facts["noise"],
            residual=np.asarray(arrays["residual"], np.float64),
            beam=None if beam is None else RestoringBeam(**beam),
            about=facts["about"],
            remarks=tuple(facts["remarks"]),
            facts=facts["facts"],
            arrays={
                key.removeprefix("array_"): value for key, value in arrays.items() if key.startswith("array_")
            },
        )
