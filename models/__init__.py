"""What the sky and the instrument are: sources, spectra, beams, noise, and priors on them."""

from biro.models.bound.model import BoundModel
from biro.models.components.antenna_terms.feeds import Feeds
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.models.components.antenna_terms.ionosphere import Ionosphere, IonosphereSamples
from biro.models.components.antenna_terms.leakage import Leakage
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.components.beam import AiryBeam, Cos3Beam, GaussianBeam, Pointing
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.components.constraint import Bounds, Condition, Order
from biro.models.components.image import ImageModel
from biro.models.components.image_term import ImageTerm
from biro.models.components.jones_beam import (
    DishBeam,
    EveryBeam,
    FitsBeam,
    FunctionBeam,
    KatBeam,
    ZernikeBeam,
)
from biro.models.components.noise import Noise
from biro.models.components.partition_view import PartitionView
from biro.models.components.shapes.custom import CustomSource
from biro.models.components.shapes.discs import (
    AnnulusSource,
    DiscSource,
    LimbDarkenedSource,
    RingSource,
    SphereSource,
)
from biro.models.components.shapes.galaxies import (
    BetaModelSource,
    CoreHaloSource,
    ExponentialSource,
    GradientGaussianSource,
    SersicSource,
    ShapeletSource,
)
from biro.models.components.shapes.one_sided import (
    CrescentSource,
    MRingSource,
)
from biro.models.components.source import GaussianSource, PointSource
from biro.models.errors import ModelError
from biro.models.files import read_model, read_sky, write_model, write_sky
from biro.models.quantities.frozen_prior import Frozen
from biro.models.quantities.parameter import Fixed, Parameter
from biro.models.quantities.prior import (
    Cosine,
    HalfNormal,
    LogNormal,
    LogUniform,
    Normal,
    Prior,
    Sine,
    Triangular,
    TruncatedNormal,
    Uniform,
)
from biro.models.quantities.tie import Tie
from biro.models.sky import SkyModel

__all__ = [
    "AiryBeam",
    "AnnulusSource",
    "AntennaBeams",
    "BeamCube",
    "BetaModelSource",
    "BoundModel",
    "Bounds",
    "Condition",
    "CoreHaloSource",
    "Cos3Beam",
    "Cosine",
    "CrescentSource",
    "CustomSource",
    "DiscSource",
    "DishBeam",
    "EveryBeam",
    "ExponentialSource",
    "Feeds",
    "FitsBeam",
    "Fixed",
    "Frozen",
    "FunctionBeam",
    "Gain",
    "GainSolutions",
    "GaussianBeam",
    "GaussianSource",
    "GradientGaussianSource",
    "HalfNormal",
    "ImageModel",
    "ImageTerm",
    "Ionosphere",
    "IonosphereSamples",
    "KatBeam",
    "Leakage",
    "LimbDarkenedSource",
    "LogNormal",
    "LogUniform",
    "MRingSource",
    "ModelError",
    "Noise",
    "Normal",
    "Order",
    "Parameter",
    "PartitionView",
    "PerSegment",
    "PointSource",
    "Pointing",
    "Prior",
    "RingSource",
    "SersicSource",
    "ShapeletSource",
    "Sine",
    "SkyModel",
    "SphereSource",
    "Tie",
    "Triangular",
    "TruncatedNormal",
    "Uniform",
    "ZernikeBeam",
    "read_model",
    "read_sky",
    "write_model",
    "write_sky",
]
