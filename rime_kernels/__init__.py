"""The radio interferometer measurement equation on CPU and GPU: plain arrays in, visibilities out.

predict           visibilities of a sky that is given as plain arrays
Rime              visibilities of batches of sources at the same rows, and their chi2 given data
Rows, Sources     the rows that a `Rime` is made for, and the sources that it is called with
chi2_together     the chi2 of several `Rime`, so that a GPU works on all of them at once
Gradient          derivatives of chi2 with respect to all of Sources: see Rime.chi2_and_gradient
Smearing          how long rows were integrated and how wide channels are, where visibilities are averages
make_gridder      what makes visibilities of images, and images of visibilities: `Idg` or `WProjection`
ImageGrid         pixels and place of these images
register_profile  make a function of your own a shape that sources may have
tune              measure which shape of each CUDA kernel is fastest on this machine
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rime_kernels.arrays import AntennaTerms, Beam, Rows, Sources
    from rime_kernels.errors import BackendError, BiroError, InputError
    from rime_kernels.geometry import AntennaGeometry, solve_antennas
    from rime_kernels.gradient import Gradient
    from rime_kernels.gridder_choice import make_gridder
    from rime_kernels.gridding.grid import ImageGrid
    from rime_kernels.jones_beam import JonesBeam
    from rime_kernels.physics.brightness import stokes_to_corr
    from rime_kernels.physics.registered import register_profile
    from rime_kernels.prediction import Antennas, Options, Spectrum, predict
    from rime_kernels.rime import Rime
    from rime_kernels.smearing.smearing import Smearing
    from rime_kernels.together import chi2_and_gradient_together, chi2_together
    from rime_kernels.tuning import tune

__all__ = [
    "AntennaGeometry",
    "AntennaTerms",
    "Antennas",
    "BackendError",
    "Beam",
    "BiroError",
    "Gradient",
    "ImageGrid",
    "InputError",
    "JonesBeam",
    "Options",
    "Rime",
    "Rows",
    "Smearing",
    "Sources",
    "Spectrum",
    "chi2_and_gradient_together",
    "chi2_together",
    "make_gridder",
    "predict",
    "register_profile",
    "solve_antennas",
    "stokes_to_corr",
    "tune",
]

_HOME = {
    "arrays": ("AntennaTerms", "Beam", "Rows", "Sources"),
    "physics.brightness": ("stokes_to_corr",),
    "physics.registered": ("register_profile",),
    "errors": ("BackendError", "BiroError", "InputError"),
    "geometry": ("AntennaGeometry", "solve_antennas"),
    "gradient": ("Gradient",),
    "jones_beam": ("JonesBeam",),
    "gridder_choice": ("make_gridder",),
    "gridding.grid": ("ImageGrid",),
    "rime": ("Rime",),
    "together": ("chi2_and_gradient_together", "chi2_together"),
    "smearing.smearing": ("Smearing",),
    "prediction": ("Antennas", "Options", "Spectrum", "predict"),
    "tuning": ("tune",),
}


def __getattr__(name: str) -> Any:  # any public name
    """Import a public name when it is first used: arrays and errors need no Numba."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"rime_kernels.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
