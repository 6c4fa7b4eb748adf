"""What the sky and the instrument are: sources, spectra, beams, noise, and priors on them.

Names are imported when first used: what reads data needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOME = {
    "AiryBeam": "biro.models.components.beam",
    "AnnulusSource": "biro.models.components.shapes.discs",
    "AntennaBeams": "biro.models.components.beam_cube",
    "BeamCube": "biro.models.components.beam_cube",
    "BetaModelSource": "biro.models.components.shapes.galaxies",
    "BoundModel": "biro.models.bound.model",
    "Bounds": "biro.models.components.constraint",
    "Condition": "biro.models.components.constraint",
    "CoreHaloSource": "biro.models.components.shapes.galaxies",
    "Cos3Beam": "biro.models.components.beam",
    "Cosine": "biro.models.quantities.prior",
    "CrescentSource": "biro.models.components.shapes.one_sided",
    "CustomSource": "biro.models.components.shapes.custom",
    "DiscSource": "biro.models.components.shapes.discs",
    "DishBeam": "biro.models.components.jones_beam",
    "EveryBeam": "biro.models.components.jones_beam",
    "ExponentialSource": "biro.models.components.shapes.galaxies",
    "Feeds": "biro.models.components.antenna_terms.feeds",
    "FitsBeam": "biro.models.components.jones_beam",
    "Fixed": "biro.models.quantities.parameter",
    "Frozen": "biro.models.quantities.frozen_prior",
    "FunctionBeam": "biro.models.components.jones_beam",
    "Gain": "biro.models.components.antenna_terms.gain",
    "GainSolutions": "biro.models.components.antenna_terms.gain_solutions",
    "GaussianBeam": "biro.models.components.beam",
    "GaussianSource": "biro.models.components.source",
    "GradientGaussianSource": "biro.models.components.shapes.galaxies",
    "HalfNormal": "biro.models.quantities.prior",
    "ImageModel": "biro.models.components.image",
    "ImageTerm": "biro.models.components.image_term",
    "Ionosphere": "biro.models.components.antenna_terms.ionosphere",
    "IonosphereSamples": "biro.models.components.antenna_terms.ionosphere",
    "KatBeam": "biro.models.components.jones_beam",
    "Leakage": "biro.models.components.antenna_terms.leakage",
    "LimbDarkenedSource": "biro.models.components.shapes.discs",
    "LogNormal": "biro.models.quantities.prior",
    "LogUniform": "biro.models.quantities.prior",
    "MRingSource": "biro.models.components.shapes.one_sided",
    "ModelError": "biro.models.errors",
    "Noise": "biro.models.components.noise",
    "Normal": "biro.models.quantities.prior",
    "Order": "biro.models.components.constraint",
    "Parameter": "biro.models.quantities.parameter",
    "PartitionView": "biro.models.components.partition_view",
    "PerSegment": "biro.models.components.antenna_terms.per_segment",
    "PointSource": "biro.models.components.source",
    "Pointing": "biro.models.components.beam",
    "Prior": "biro.models.quantities.prior",
    "RingSource": "biro.models.components.shapes.discs",
    "SersicSource": "biro.models.components.shapes.galaxies",
    "ShapeletSource": "biro.models.components.shapes.galaxies",
    "Sine": "biro.models.quantities.prior",
    "SkyModel": "biro.models.sky",
    "SphereSource": "biro.models.components.shapes.discs",
    "Tie": "biro.models.quantities.tie",
    "Triangular": "biro.models.quantities.prior",
    "TruncatedNormal": "biro.models.quantities.prior",
    "Uniform": "biro.models.quantities.prior",
    "ZernikeBeam": "biro.models.components.jones_beam",
    "read_model": "biro.models.files",
    "read_sky": "biro.models.files",
    "write_model": "biro.models.files",
    "write_sky": "biro.models.files",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'biro.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
