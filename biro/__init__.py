"""Bayesian sky-model inference for radio interferometry.

>>> import biro                                                          # doctest: +SKIP
>>> observation = biro.read("obs.ms")                                    # doctest: +SKIP
>>> likelihood = biro.Likelihood(observation, biro.read_model("sky.toml"))  # doctest: +SKIP
>>> posterior = biro.sample(likelihood)                                  # doctest: +SKIP

Names are imported when first used, so that `import biro` is quick and touches no GPU.
"""

from typing import TYPE_CHECKING

from biro._moved import find_moved_modules, with_moved_modules
from biro._version import __version__ as __version__
from rime_kernels.compile.lazy import attach

if TYPE_CHECKING:
    from biro import plots as plots
    from biro import sbc as sbc
    from biro.beams.cube_files import read_beam as read_beam
    from biro.calibration.solving import solve_gains as solve_gains
    from biro.errors import BackendError as BackendError
    from biro.errors import BiroError as BiroError
    from biro.errors import DataError as DataError
    from biro.errors import DataNote as DataNote
    from biro.errors import InputError as InputError
    from biro.errors import LikelihoodError as LikelihoodError
    from biro.errors import MeasurementSetError as MeasurementSetError
    from biro.errors import ModelError as ModelError
    from biro.errors import OutputError as OutputError
    from biro.errors import RunError as RunError
    from biro.flagging.strategy import read_strategy as read_strategy
    from biro.image_posterior.fit import fit_image as fit_image
    from biro.imaging.fits import read_image as read_image
    from biro.imaging.image import image as image
    from biro.inference.maximum.maximum import maximise as maximise
    from biro.inference.posterior.comparison import compare as compare
    from biro.inference.posterior.posterior import Posterior as Posterior
    from biro.inference.samplers.sampling import sample as sample
    from biro.interference import flag as flag
    from biro.interference import flag_selected as flag_selected
    from biro.io.gain_files import read_gains as read_gains
    from biro.io.measurement_set import read_columns as read_columns
    from biro.io.measurement_set import read_ms as read_ms
    from biro.io.measurement_set import undo_flags as undo_flags
    from biro.io.reading import read as read
    from biro.io.sky_files import read_sky as read_sky
    from biro.io.uvfits.read import read_uvfits as read_uvfits
    from biro.likelihood.likelihood import Likelihood as Likelihood
    from biro.likelihood.options import EngineOptions as EngineOptions
    from biro.many_fits.fit_each import fit_each as fit_each
    from biro.many_fits.fit_numbers import fit_numbers as fit_numbers
    from biro.models import ImageModel as ImageModel
    from biro.models import SkyModel as SkyModel
    from biro.models import read_model as read_model
    from biro.observation.averaging import Averaging as Averaging
    from biro.observation.join import join as join
    from biro.observation.observation import Observation as Observation
    from biro.observation.selection import Selection as Selection
    from biro.observation.weighting import Weighting as Weighting
    from biro.simulation import simulate as simulate
    from biro.source_finding.add_source import add_source as add_source
    from biro.source_finding.find import find_sources as find_sources
    from biro.source_finding.populations.fit import fit_population as fit_population

find_moved_modules()
__all__, _get, __dir__ = attach(__name__, "__version__")
__getattr__ = with_moved_modules(_get)
