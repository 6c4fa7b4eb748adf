"""Bayesian sky-model inference for radio interferometry.

>>> import biro                                                          # doctest: +SKIP
>>> observation = biro.read("obs.ms")                                    # doctest: +SKIP
>>> likelihood = biro.Likelihood(observation, biro.read_model("sky.toml"))  # doctest: +SKIP
>>> posterior = biro.sample(likelihood)                                  # doctest: +SKIP

Names are imported when first used, so that `import biro` is quick and touches no GPU.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from biro._version import __version__

if TYPE_CHECKING:
    from biro import plots, sbc
    from biro.beams.cube_files import read_beam
    from biro.calibration.solving import solve_gains
    from biro.errors import BiroError
    from biro.flagging.strategy import read_strategy
    from biro.gain_files import read_gains
    from biro.images.fits import read_image
    from biro.images.image import image
    from biro.interference import flag, flag_selected
    from biro.likelihood.likelihood import Likelihood
    from biro.many_fits.fit_each import fit_each
    from biro.maximum.maximum import maximise
    from biro.measurement_set import read_columns, read_ms, undo_flags
    from biro.models import ImageModel, SkyModel, read_model
    from biro.observation.join import join
    from biro.observation.observation import Observation
    from biro.observation.selection import Selection
    from biro.posterior.comparison import compare
    from biro.posterior.posterior import Posterior
    from biro.reading import read
    from biro.samplers.sampling import sample
    from biro.simulation import simulate
    from biro.sky_files import read_sky
    from biro.source_finding.add_source import add_source
    from biro.source_finding.find import find_sources
    from biro.uvfits.read import read_uvfits

__all__ = [
    "BiroError",
    "ImageModel",
    "Likelihood",
    "Observation",
    "Posterior",
    "Selection",
    "SkyModel",
    "__version__",
    "add_source",
    "compare",
    "find_sources",
    "fit_each",
    "flag",
    "flag_selected",
    "image",
    "join",
    "maximise",
    "plots",
    "read",
    "read_beam",
    "read_columns",
    "read_gains",
    "read_image",
    "read_model",
    "read_ms",
    "read_sky",
    "read_strategy",
    "read_uvfits",
    "sample",
    "sbc",
    "simulate",
    "solve_gains",
    "undo_flags",
]

_HOME = {
    "BiroError": "biro.errors",
    "ImageModel": "biro.models",
    "Likelihood": "biro.likelihood.likelihood",
    "Observation": "biro.observation.observation",
    "Posterior": "biro.posterior.posterior",
    "Selection": "biro.observation.selection",
    "SkyModel": "biro.models",
    "add_source": "biro.source_finding.add_source",
    "compare": "biro.posterior.comparison",
    "find_sources": "biro.source_finding.find",
    "fit_each": "biro.many_fits.fit_each",
    "flag": "biro.interference",
    "flag_selected": "biro.interference",
    "image": "biro.images.image",
    "join": "biro.observation.join",
    "maximise": "biro.maximum.maximum",
    "read": "biro.reading",
    "read_beam": "biro.beams.cube_files",
    "read_columns": "biro.measurement_set",
    "read_gains": "biro.gain_files",
    "read_image": "biro.images.fits",
    "read_model": "biro.models",
    "read_ms": "biro.measurement_set",
    "read_sky": "biro.sky_files",
    "read_strategy": "biro.flagging.strategy",
    "read_uvfits": "biro.uvfits.read",
    "sample": "biro.samplers.sampling",
    "simulate": "biro.simulation",
    "solve_gains": "biro.calibration.solving",
    "undo_flags": "biro.measurement_set",
}


def __getattr__(name: str) -> object:
    if name in ("plots", "sbc"):
        return import_module(f"biro.{name}")
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'biro' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
