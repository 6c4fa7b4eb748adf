"""How noise is distributed, and the factor that the stated noise is multiplied by (physics: section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from biro.models.components.partition_view import PartitionView
from biro.models.errors import ModelError
from biro.models.quantities.parameter import QuantityLike, quantity, read_entry
from biro.models.quantities.prior import LogUniform
from biro.models.quantities.strict import did_you_mean, short_repr, strict
from biro.models.quantities.units import NUMBER

GROUPINGS = ("partition", "hands", "field", "spw", "all")
DISTRIBUTIONS = ("gaussian", "student-t")
LOWEST, HIGHEST = 1e-3, 1e3
"""Ends of the prior of a noise factor that no entry gives, where nothing is known of the data."""
_DOF = LogUniform(1.0, 1000.0)


@strict
class Noise:
    """sigma -> factor sigma, for each group of data.

    Parameters
    ----------
    factor : number, optional
        A prior stands for one parameter per group. By default a log-uniform prior over 1e-3 .. 1e3, which a
        likelihood widens where the scatter of the data is far from what their weights say.
    per : "partition", "hands", "field", "spw" or "all", default "partition"
        "hands" is one group for the parallel hands of each partition, and another for its cross hands: data
        are split so before the model is bound to them.
    distribution : "gaussian" or "student-t", default "gaussian"
        Of each complex correlation; Student's t in two dimensions is for data with outliers.
    dof : number, optional
        Degrees of freedom of Student's t, above 0: the fewer, the more outliers. By default a log-uniform
        prior over 1 .. 1000. A prior stands for one parameter per group.
    systematic : float, default 0
        Fraction f of its amplitude that each visibility is off by on its own, not by gains of antennas:
        sigma^2 + (f |V|)^2, with the amplitude of the data, stands for the stated sigma^2.
    """

    label: ClassVar[str] = "noise"
    factor: QuantityLike = None
    per: str = "partition"
    distribution: str = "gaussian"
    dof: QuantityLike = None
    systematic: float = 0.0

    def __post_init__(self) -> None:
        if self.factor is not None:
            object.__setattr__(self, "factor", read_entry("factor", quantity, self.factor, NUMBER))
        for key, known in (("per", GROUPINGS), ("distribution", DISTRIBUTIONS)):
            found = getattr(self, key)
            if found not in known:
                raise ModelError(
                    f"{key}: one of {', '.join(known)}, found {short_repr(found)}{did_you_mean(found, known)}"
                )
        if not 0.0 <= self.systematic < 1.0:
            raise ModelError(f"systematic: a fraction from 0 to below 1, found {self.systematic:g}")
        if self.distribution == "student-t":
            dof = _DOF if self.dof is None else self.dof
            object.__setattr__(self, "dof", read_entry("dof", quantity, dof, NUMBER))
        elif self.dof is not None:
            raise ModelError('dof: belongs to distribution = "student-t", which is not set')

    def with_factor_between(self, low: float, high: float) -> Noise:
        """The same noise, its factor fitted with a log-uniform prior over low .. high."""
        return replace(self, factor=LogUniform(low, high))

    def groups(self, partitions: Sequence[PartitionView]) -> list[str]:
        """The group that each partition belongs to; "" where all belong to one."""
        return grouped(self.per, partitions)


def grouped(per: str, partitions: Sequence[PartitionView]) -> list[str]:
    """The group that each partition belongs to by one of `GROUPINGS`; "" where all belong to one."""
    keys = {"partition": "label", "hands": "label", "field": "field", "spw": "spw"}
    if per == "all":
        return [""] * len(partitions)
    groups = [str(getattr(partition, keys[per])) for partition in partitions]
    return groups if len(set(groups)) > 1 else [""] * len(partitions)
