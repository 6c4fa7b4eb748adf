"""What sources with a shape of their own share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple

from biro.models.components.source import LOCAL, Source
from biro.models.errors import ModelError
from biro.models.quantities.parameter import QuantityLike
from biro.models.quantities.strict import Entry

_ELLIPSES = (["emaj", "emin", "pa"], ["emaj", "ratio", "pa"])


class ValueLimits(NamedTuple):
    """Between which values a quantity must lie; with `above_low` it is not `low` itself."""

    low: float
    high: float
    above_low: bool = False


FRACTION = ValueLimits(0.0, 1.0)


@dataclass(frozen=True)
class ShapedSource(Source):
    """What sources with a shape of their own share: a size, and what it is along another axis.

    The size is given once, by the key that `size_key` names, or as an ellipse: emaj, emin (or ratio) and pa,
    where emaj is that size along the axis of position angle pa. `blur` is the full width at half maximum,
    along the major axis, of a Gaussian that the source is convolved with; it is circular before the source is
    stretched. `frame` is as of `GaussianSource`: whose north all angles are from.
    """

    label: ClassVar[str] = "source"
    type: ClassVar[str]
    size_key: ClassVar[str]
    # Quantities beside the size, each with its limits, in the order of the kernels' parameters.
    numbers: ClassVar[Mapping[str, ValueLimits]] = {}
    _: KW_ONLY
    emaj: QuantityLike = None
    emin: QuantityLike = None
    ratio: QuantityLike = None
    pa: QuantityLike = None
    frame: Entry = LOCAL

    def _check_shape(self) -> None:
        keys = ("emaj", "emin", "ratio", "pa", self.size_key)
        given = [key for key in keys if getattr(self, key) is not None]
        if given not in (*_ELLIPSES, [self.size_key]):
            raise ModelError(
                f"a size is {self.size_key} alone for a circle; or emaj, emin, pa; or emaj, ratio, pa; "
                f"found {', '.join(given) or 'none'}"
            )
        for key in self.numbers:
            if getattr(self, key) is None:
                raise ModelError(f"{key}: is missing; a source of type {self.type!r} needs it")
