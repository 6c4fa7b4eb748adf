"""The factor that the stated noise is multiplied by (physics: section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from biro.models.errors import ModelError
from biro.models.frame import Frame
from biro.models.parameter import QuantityLike, quantity, under
from biro.models.prior import LogUniform
from biro.models.strict import nearest, shown, strict
from biro.models.units import NUMBER

GROUPINGS = ("partition", "field", "spw", "all")


@strict
class Noise:
    """sigma -> factor sigma, for each group of data.

    Parameters
    ----------
    factor : number, default a log-uniform prior over 1e-3 .. 1e3
        A prior stands for one parameter per group.
    per : "partition", "field", "spw" or "all", default "partition"
    """

    label: ClassVar[str] = "noise"
    factor: QuantityLike = LogUniform(1e-3, 1e3)
    per: str = "partition"

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", under("factor", quantity, self.factor, NUMBER))
        if self.per not in GROUPINGS:
            raise ModelError(
                f"per: one of {', '.join(GROUPINGS)}, found {shown(self.per)}{nearest(self.per, GROUPINGS)}"
            )

    def groups(self, frames: Sequence[Frame]) -> list[str]:
        """The group that each frame belongs to; "" where all belong to one."""
        keys = {"partition": "label", "field": "field", "spw": "spw"}
        if self.per == "all":
            return [""] * len(frames)
        groups = [str(getattr(frame, keys[self.per])) for frame in frames]
        return groups if len(set(groups)) > 1 else [""] * len(frames)
