"""The radio interferometer measurement equation on CPU and GPU: plain arrays in, visibilities out.

predict           visibilities of a sky that is given as plain arrays
Rime              visibilities of batches of sources at the same rows, and their chi2 given data
Rows, Sources     the rows that a `Rime` is made for, and the sources that it is called with
chi2_many         the chi2 of several `Rime`, so that a GPU works on all of them at once
Gradient          derivatives of chi2 with respect to all of Sources: see Rime.chi2_and_gradient
Smearing          how long rows were integrated and how wide channels are, where visibilities are averages
make_gridder      what makes visibilities of images, and images of visibilities: `Idg` or `WProjection`
ImageGrid         pixels and place of these images
register_profile  make a function of your own a shape that sources may have
tune              measure which shape of each CUDA kernel is fastest on this machine
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rime_kernels.compile.lazy import attach

if TYPE_CHECKING:
    from rime_kernels.arrays import AntennaTerms as AntennaTerms
    from rime_kernels.arrays import Beam as Beam
    from rime_kernels.arrays import Rows as Rows
    from rime_kernels.arrays import Sources as Sources
    from rime_kernels.errors import BackendError as BackendError
    from rime_kernels.errors import BiroError as BiroError
    from rime_kernels.errors import InputError as InputError
    from rime_kernels.geometry import AntennaGeometry as AntennaGeometry
    from rime_kernels.geometry import solve_antennas as solve_antennas
    from rime_kernels.gradient import Gradient as Gradient
    from rime_kernels.gridder_choice import make_gridder as make_gridder
    from rime_kernels.gridding.grid import ImageGrid as ImageGrid
    from rime_kernels.jones_beam import JonesBeam as JonesBeam
    from rime_kernels.many import chi2_and_gradient_many as chi2_and_gradient_many
    from rime_kernels.many import chi2_many as chi2_many
    from rime_kernels.physics.brightness import stokes_to_corr as stokes_to_corr
    from rime_kernels.physics.registered import register_profile as register_profile
    from rime_kernels.prediction import Antennas as Antennas
    from rime_kernels.prediction import Options as Options
    from rime_kernels.prediction import Spectrum as Spectrum
    from rime_kernels.prediction import predict as predict
    from rime_kernels.rime import Rime as Rime
    from rime_kernels.smearing.smearing import Smearing as Smearing
    from rime_kernels.tuning import tune as tune

__all__, __getattr__, __dir__ = attach(__name__)
