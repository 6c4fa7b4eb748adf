"""All kinds of sources with a shape of their own, by the type that a model file gives them."""

from __future__ import annotations

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
from biro.models.components.shapes.shaped import ShapedSource

SHAPED: dict[str, type[ShapedSource]] = {
    cls.type: cls
    for cls in (
        DiscSource,
        LimbDarkenedSource,
        RingSource,
        AnnulusSource,
        SphereSource,
        MRingSource,
        CrescentSource,
        ExponentialSource,
        SersicSource,
        BetaModelSource,
        ShapeletSource,
        CoreHaloSource,
        GradientGaussianSource,
        CustomSource,
    )
}
