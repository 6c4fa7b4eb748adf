"""The result of an image that was fitted: mean, errors, residuals, fluxes of regions, files and pictures."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, Printed, sexagesimal, unit_for
from biro.errors import InputError
from biro.files.atomic import write_atomic
from biro.files.json_value import JsonValue
from biro.files.npz import read_npz, reading
from biro.image_posterior.field import ImageField
from biro.image_posterior.results.movie import movie_lines
from biro.image_posterior.results.movie_files import write_movie
from biro.image_posterior.results.parameter_facts import beside_lines
from biro.image_posterior.results.plane_files import write_planes
from biro.image_posterior.results.polarisation import plane_lines
from biro.image_posterior.results.products import write_spectrum
from biro.image_posterior.results.region import Region, parse_region
from biro.image_posterior.results.restoring import residual_lines
from biro.image_posterior.results.samples import ImageSamples
from biro.imaging.psf import RestoringBeam

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from biro.image_posterior.results.profile import Profile
    from biro.image_posterior.results.ring import Ring

Array = NDArray[np.float64]
FILE = "image.npz"
"""Where a run directory has the result."""
_VERSION = 1


@dataclass(frozen=True, eq=False, repr=False)
class ImagePosterior(ImageSamples, Printed):
    """The image given the data: samples or the most probable image, its text, pictures and files.

    Attributes are those of `ImageSamples`.
    """

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
            *(movie_lines(self.movie, self.facts["change"]) if "frames" in self.arrays else []),
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

    def ring(self, resolution: float = 0.0) -> Ring:
        """The ring of the image: diameter, width and depth with errors, of Stokes I.

        Parameters
        ----------
        resolution : float, rad, optional
            FWHM of the Gaussian with which the samples are convolved first; 0 for none.

        Raises
        ------
        InputError
            A resolution below 0.
        """
        from biro.image_posterior.results.ring import ring_of

        if not resolution >= 0.0:
            raise InputError(f"resolution: an angle from 0 on, in rad, found {resolution!r}")
        return ring_of(self.samples[:, 0], self.field, resolution, is_map=self.is_map)

    def to_xarray(self) -> xarray.Dataset:
        """Samples as a data set of xarray; see `samples_dataset`.

        Raises
        ------
        InputError
            There is the most probable image alone, or xarray is not installed.
        """
        from biro.image_posterior.results.sample_store import samples_dataset

        return samples_dataset(self)

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
            mean.fits, with samples median.fits, sd.fits and samples.fits (a cube; above 100 MB samples.zarr
            in its place), in Jy/pixel;
            restored.fits (with a beam) and residual.fits in Jy/beam; the power spectrum of ln I, where the
            prior has one, as power_spectrum.csv and .png; image.png, summary.txt and image.npz. A polarised
            image has pol_fraction.fits and evpa.fits besides, one with a spectrum spectral_index.fits and
            cube.fits; each has its error in a file _sd.fits. One with frames has those of `write_movie`, and
            movie.png, light_curve.png and movie.gif.

        Raises
        ------
        InputError
            There is a result already and `overwrite` is not given.
        """
        folder = Path(run)
        if not overwrite and (folder / FILE).exists():
            raise InputError(f"{folder}: has an image already; choose another directory or give --overwrite")
        folder.mkdir(parents=True, exist_ok=True)
        written = [*write_planes(self, folder), *write_spectrum(folder, self), *write_movie(self, folder)]
        write_atomic(folder / "summary.txt", f"{self}\n".encode())
        if pictures:
            from biro.image_posterior.results.pictures import write_pictures

            written += write_pictures(self, folder)
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
