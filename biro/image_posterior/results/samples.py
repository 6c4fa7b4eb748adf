"""Samples of an image that was fitted: mean, errors, fluxes of regions, polarisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError
from biro.files.json_value import JsonValue
from biro.image_posterior.field import ImageField
from biro.image_posterior.primary_beam import LITTLE
from biro.image_posterior.results.movie import Movie
from biro.image_posterior.results.parameter_facts import parameter_draws
from biro.image_posterior.results.polarisation import Polarisation, polarisation_of
from biro.image_posterior.results.region import Region, RegionFlux, parse_region
from biro.image_posterior.results.restoring import convolved_with
from biro.imaging.psf import RestoringBeam
from biro.models import ImageModel

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ImageSamples:
    """Samples of an image given the data, or the most probable image alone, and its statistics.

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
        Of the mean image and each partition, with the noise factor in: 2 N is expected of noise. With sampled
        gains it is of the image and the gains of their mean, or of the sample of chains nearest to the mean
        image.
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
        coefficients = self.arrays["spectral_index"]
        powers = log_freq[:, None] ** np.arange(1, coefficients.shape[1] + 1)
        factor = np.exp(np.einsum("fk,skyx->sfyx", powers, coefficients))
        return np.asarray(self.samples[:, None] * factor[:, :, None])

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
        arrays = self.arrays
        n_data = arrays["frame_n_data"]
        chi2 = np.full(len(n_data), np.nan)
        np.divide(arrays["frame_chi2"], 2.0 * n_data, out=chi2, where=n_data > 0)
        return Movie(
            self.field, arrays["frame_edges"], arrays["frames"], n_data, chi2, self.is_map, self.remarks
        )

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
