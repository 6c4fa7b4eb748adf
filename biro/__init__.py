"""Bayesian sky-model inference for radio interferometry.

>>> import biro                                                          # doctest: +SKIP
>>> observation = biro.read_ms("obs.ms")                                 # doctest: +SKIP
>>> likelihood = biro.Likelihood(observation, biro.read_model("sky.toml"))  # doctest: +SKIP
>>> posterior = biro.sample(likelihood)                                  # doctest: +SKIP

Names are imported when first used, so that `import biro` is quick and touches no GPU.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "BiroError": "biro.errors",
    "ImageModel": "biro.models",
    "Likelihood": "biro.likelihood",
    "Observation": "biro.observation",
    "Posterior": "biro.posterior",
    "Selection": "biro.selection",
    "SkyModel": "biro.models",
    "calibrate": "biro.calibration",
    "compare": "biro.comparison",
    "find_sources": "biro.find",
    "image": "biro.imaging",
    "maximise": "biro.maximum",
    "read_image": "biro.image_file",
    "read_model": "biro.models",
    "read_ms": "biro.measurement_set",
    "read_sky": "biro.models",
    "sample": "biro.samplers",
    "simulate": "biro.simulation",
}

__all__ = [
    "BiroError",
    "ImageModel",
    "Likelihood",
    "Observation",
    "Posterior",
    "Selection",
    "SkyModel",
    "__version__",
    "calibrate",
    "compare",
    "find_sources",
    "image",
    "maximise",
    "read_image",
    "read_model",
    "read_ms",
    "read_sky",
    "sample",
    "simulate",
]

if TYPE_CHECKING:
    from biro.calibration import calibrate
    from biro.comparison import compare
    from biro.errors import BiroError
    from biro.find import find_sources
    from biro.image_file import read_image
    from biro.imaging import image
    from biro.likelihood import Likelihood
    from biro.maximum import maximise
    from biro.measurement_set import read_ms
    from biro.models import ImageModel, SkyModel, read_model, read_sky
    from biro.observation import Observation
    from biro.posterior import Posterior
    from biro.samplers import sample
    from biro.selection import Selection
    from biro.simulation import simulate


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'biro' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
