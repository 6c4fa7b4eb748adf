"""What the sky and the instrument are: sources, spectra, beams, noise, and priors on them.

Names are imported when first used: what reads data needs few of them.
"""

from typing import TYPE_CHECKING

from rime_kernels.compile.lazy import attach

if TYPE_CHECKING:
    from biro.models.bound.model import BoundModel as BoundModel
    from biro.models.components.antenna_terms.feeds import Feeds as Feeds
    from biro.models.components.antenna_terms.gain import Gain as Gain
    from biro.models.components.antenna_terms.gain_solutions import GainSolutions as GainSolutions
    from biro.models.components.antenna_terms.ionosphere import Ionosphere as Ionosphere
    from biro.models.components.antenna_terms.ionosphere import IonosphereSamples as IonosphereSamples
    from biro.models.components.antenna_terms.leakage import Leakage as Leakage
    from biro.models.components.antenna_terms.per_segment import PerSegment as PerSegment
    from biro.models.components.beam import AiryBeam as AiryBeam
    from biro.models.components.beam import Cos3Beam as Cos3Beam
    from biro.models.components.beam import GaussianBeam as GaussianBeam
    from biro.models.components.beam import Pointing as Pointing
    from biro.models.components.beam_cube import AntennaBeams as AntennaBeams
    from biro.models.components.beam_cube import BeamCube as BeamCube
    from biro.models.components.constraint import Bounds as Bounds
    from biro.models.components.constraint import Condition as Condition
    from biro.models.components.constraint import Order as Order
    from biro.models.components.image import ImageModel as ImageModel
    from biro.models.components.image_prior import ImagePrior as ImagePrior
    from biro.models.components.image_term import ImageTerm as ImageTerm
    from biro.models.components.jones_beam import DishBeam as DishBeam
    from biro.models.components.jones_beam import EveryBeam as EveryBeam
    from biro.models.components.jones_beam import FitsBeam as FitsBeam
    from biro.models.components.jones_beam import FunctionBeam as FunctionBeam
    from biro.models.components.jones_beam import KatBeam as KatBeam
    from biro.models.components.jones_beam import ZernikeBeam as ZernikeBeam
    from biro.models.components.noise import Noise as Noise
    from biro.models.components.partition_view import PartitionView as PartitionView
    from biro.models.components.population import NumberPrior as NumberPrior
    from biro.models.components.population import Population as Population
    from biro.models.components.shapes.custom import CustomSource as CustomSource
    from biro.models.components.shapes.discs import AnnulusSource as AnnulusSource
    from biro.models.components.shapes.discs import DiscSource as DiscSource
    from biro.models.components.shapes.discs import LimbDarkenedSource as LimbDarkenedSource
    from biro.models.components.shapes.discs import RingSource as RingSource
    from biro.models.components.shapes.discs import SphereSource as SphereSource
    from biro.models.components.shapes.galaxies import BetaModelSource as BetaModelSource
    from biro.models.components.shapes.galaxies import CoreHaloSource as CoreHaloSource
    from biro.models.components.shapes.galaxies import ExponentialSource as ExponentialSource
    from biro.models.components.shapes.galaxies import GradientGaussianSource as GradientGaussianSource
    from biro.models.components.shapes.galaxies import SersicSource as SersicSource
    from biro.models.components.shapes.galaxies import ShapeletSource as ShapeletSource
    from biro.models.components.shapes.one_sided import CrescentSource as CrescentSource
    from biro.models.components.shapes.one_sided import MRingSource as MRingSource
    from biro.models.components.single_dish import SingleDish as SingleDish
    from biro.models.components.source import GaussianSource as GaussianSource
    from biro.models.components.source import PointSource as PointSource
    from biro.models.errors import ModelError as ModelError
    from biro.models.files import read_model as read_model
    from biro.models.files import read_sky as read_sky
    from biro.models.files import write_model as write_model
    from biro.models.files import write_sky as write_sky
    from biro.models.quantities.frozen_prior import Frozen as Frozen
    from biro.models.quantities.parameter import Fixed as Fixed
    from biro.models.quantities.parameter import Parameter as Parameter
    from biro.models.quantities.power_law_prior import PowerLaw as PowerLaw
    from biro.models.quantities.prior import Cosine as Cosine
    from biro.models.quantities.prior import HalfNormal as HalfNormal
    from biro.models.quantities.prior import LogNormal as LogNormal
    from biro.models.quantities.prior import LogUniform as LogUniform
    from biro.models.quantities.prior import Normal as Normal
    from biro.models.quantities.prior import Prior as Prior
    from biro.models.quantities.prior import Sine as Sine
    from biro.models.quantities.prior import Triangular as Triangular
    from biro.models.quantities.prior import TruncatedNormal as TruncatedNormal
    from biro.models.quantities.prior import Uniform as Uniform
    from biro.models.quantities.tie import Tie as Tie
    from biro.models.sky import SkyModel as SkyModel

__all__, __getattr__, __dir__ = attach(__name__)
