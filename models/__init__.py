"""What the sky and the instrument are: sources, spectra, beams, noise, and priors on them."""

from biro.models.beam import AiryBeam, Cos3Beam, GaussianBeam, Pointing
from biro.models.bound import BoundModel
from biro.models.constraint import Bounds, Condition, Order
from biro.models.errors import ModelError
from biro.models.files import read_model, read_sky, write_model
from biro.models.frame import Frame
from biro.models.frozen import Frozen
from biro.models.image import ImageModel
from biro.models.image_term import ImageTerm
from biro.models.noise import Noise
from biro.models.parameter import Fixed, Parameter, Tie
from biro.models.prior import (
    Cosine,
    HalfNormal,
    LogUniform,
    Normal,
    Prior,
    Sine,
    Triangular,
    TruncatedNormal,
    Uniform,
)
from biro.models.sky import SkyModel
from biro.models.source import GaussianSource, PointSource

__all__ = [
    "AiryBeam",
    "BoundModel",
    "Bounds",
    "Condition",
    "Cos3Beam",
    "Cosine",
    "Fixed",
    "Frame",
    "Frozen",
    "GaussianBeam",
    "GaussianSource",
    "HalfNormal",
    "ImageModel",
    "ImageTerm",
    "LogUniform",
    "ModelError",
    "Noise",
    "Normal",
    "Order",
    "Parameter",
    "PointSource",
    "Pointing",
    "Prior",
    "Sine",
    "SkyModel",
    "Tie",
    "Triangular",
    "TruncatedNormal",
    "Uniform",
    "read_model",
    "read_sky",
    "write_model",
]
