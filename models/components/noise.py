"""How noise is distributed, and the factor that the stated noise is multiplied by (physics: section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from biro.models.components.partition_view import PartitionView
from biro.models.errors import ModelError
from biro.models.quantities.parameter import QuantityLike, quantity, read_entry
from biro.models.quantities.prior import LogUniform
from biro.models.quantities.strict import did_you_mean, short_repr, strict
from biro.models.quantities.units import NUMBER

GROUPINGS = ("partition", "field", "spw", "all")
DISTRIBUTIONS = ("gaussian", "student-t")
_DOF = LogUniform(1.0, 1000.0)


@strict
class Noise:
    """sigma -> factor sigma, for each group of data.

    Parameters
    ----------
    factor : number, default a log-uniform prior over 1e-3 .. 1e3
        A prior stands for one parameter per group.
    per : "partition", "field", "spw" or "all", default "partition"
    distribution : "gaussian" or "student-t", default "gaussian"
        Of each complex correlation; Student's t in two dimensions is for data with outliers.
    dof : number, optional
        Degrees of freedom of Student's t, above 0: the fewer, the more outliers. By default a log-uniform
        prior over 1 .. 1000. A prior stands for one parameter per group.
    """

    label: ClassVar[str] = "noise"
    factor: QuantityLike = LogUniform(1e-3, 1e3)
    per: str = "partition"
    distribution: str = "gaussian"
    dof: QuantityLike = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", read_entry("factor", quantity, self.factor, NUMBER))
        for key, known in (("per", GROUPINGS), ("distribution", DISTRIBUTIONS)):
            found = getattr(self, key)
            if found not in known:
                raise ModelError(
                    f"{key}: one of {', '.join(known)}, found {short_repr(found)}{did_you_mean(found, known)}"
                )
        if self.distribution == "student-t":
            dof = _DOF if self.dof is None else self.dof
            object.__setattr__(self, "dof", read_entry("dof", quantity, dof, NUMBER))
        elif self.dof is not None:
            raise ModelError('dof: belongs to distribution = "student-t", which is not set')

    def groups(self, partitions: Sequence[PartitionView]) -> list[str]:
        """The group that each partition belongs to; "" where all belong to one."""
        keys = {"partition": "label", "field": "field", "spw": "spw"}
        if self.per == "all":
            return [""] * len(partitions)
        groups = [str(getattr(partition, keys[self.per])) for partition in partitions]
        return groups if len(set(groups)) > 1 else [""] * len(partitions)
