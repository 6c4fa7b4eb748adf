"""Files of a fitted image beside its FITS images: the power spectrum and calibrated data."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from biro.files.atomic import write_atomic
from biro.image_posterior.primary_beam import about
from biro.image_posterior.results.samples import ImageSamples
from biro.simulation.npz import write_npz

if TYPE_CHECKING:
    from biro.image_posterior.problem import FittedImage, ImageProblem

CALIBRATED = "calibrated.npz"
"""Visibilities with the fitted gains taken out."""


def write_calibrated(path: Path, problem: ImageProblem, fitted: FittedImage) -> None:
    """Write visibilities with the fitted gains taken out, as `biro predict --out model.npz` does.

    They are Stokes I, or all correlations of a polarised image. Components beside the image are in them.
    """
    operator = fitted.operator
    components = problem.components if fitted.components is None else fitted.components
    turned = [
        about(replace(part, vis=vis + beside), centre)
        for part, vis, beside, centre in zip(
            operator.observation.partitions, operator.data, components, problem.pointings, strict=True
        )
    ]
    observation = replace(operator.observation, partitions=tuple(turned))
    write_npz(path, observation, [part.vis for part in turned])


def write_spectrum(folder: Path, image: ImageSamples) -> list[Path]:
    """Write the power spectrum of ln I as a table; nothing where the prior has none.

    Returns
    -------
    list of Path
        power_spectrum.csv: wavenumber in cycles per width of the image, median, and the 68 % interval of the
        power.
    """
    if "power_spectrum" not in image.arrays:
        return []
    k, spectra = image.arrays["wavenumber"], image.arrays["power_spectrum"]
    names, columns = ["wavenumber", "median"], [k, np.median(spectra, axis=0)]
    if not image.is_map:
        names += ["low_68", "high_68"]
        columns += [*np.percentile(spectra, (16.0, 84.0), axis=0)]
    out = io.StringIO()
    out.writelines(f"# {line}\n" for line in image.remarks)
    out.write("# power of ln I; wavenumber in cycles per width of the image\n")
    np.savetxt(out, np.stack(columns, axis=1), "%.9g", ",", header=",".join(names), comments="")
    write_atomic(folder / "power_spectrum.csv", out.getvalue().encode())
    return [folder / "power_spectrum.csv"]
