"""All named quantities of a model as one row of numbers, some constant and some given by theta."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.parameter import Fixed, Parameter, Quantity, Series, Tie, latex
from biro.models.quantities.prior import Prior, Uniform
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.quantities.units import Dimension

Array = NDArray[np.float64]
ZERO = 0  # the slot that always holds 0
_PERIOD_DEG = {"pa": 180.0, "pol_angle": 180.0, "ra": 360.0}


@dataclass(frozen=True)
class _Entry:
    owner: str
    key: str
    index: str
    quantity: Quantity
    dimension: Dimension

    @property
    def name(self) -> str:
        return f"{self.owner}.{self.key}{self.index}"


@dataclass(frozen=True, eq=False)
class ResolvedSlots:
    """Every quantity of a model as a slot that is constant or follows a parameter.

    Attributes
    ----------
    parameters : tuple of Parameter
    slot_of : dict of str to int
        Slot of each name.
    dimensions : tuple of Dimension
        Of each slot.
    base : float64 (n_slot,), SI
        Values of the constant slots; 0 in slots that follow a parameter.
    parameter_of : int64 (n_slot,)
        Index of the parameter, -1 for constants.
    scale : float64 (n_slot,)
        SI units per unit of theta.
    """

    parameters: tuple[Parameter, ...]
    slot_of: dict[str, int]
    dimensions: tuple[Dimension, ...]
    base: Array
    parameter_of: NDArray[np.int64]
    scale: Array
    _free: NDArray[np.int64] = field(init=False)
    _column: NDArray[np.int64] = field(init=False)
    _scale: Array = field(init=False)

    def __post_init__(self) -> None:
        free = np.flatnonzero(self.parameter_of >= 0)
        object.__setattr__(self, "_free", free)
        object.__setattr__(self, "_column", self.parameter_of[free])
        object.__setattr__(self, "_scale", self.scale[free])

    def column(self, theta: Array, slot: int) -> Array:
        """One slot in SI for each row of theta (n, n_param): float64 (n,), or (1,) where it is constant."""
        parameter = self.parameter_of[slot]
        if parameter < 0:
            return self.base[slot : slot + 1]
        return np.asarray(theta[:, parameter] * self.scale[slot])

    def limits(self, tail: float) -> tuple[Array, Array]:
        """Smallest and largest value of each slot in SI, with `tail` of the prior left out on either side."""
        ranges = np.array([p.prior.quantile_range(tail) for p in self.parameters]).reshape(-1, 2)
        low, high = self.base.copy(), self.base.copy()
        low[self._free] = ranges[self._column, 0] * self._scale
        high[self._free] = ranges[self._column, 1] * self._scale
        return low, high

    def is_free(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these slots follow a parameter."""
        return np.asarray(self.parameter_of[slots] >= 0)

    def find(self, name: str, what: str) -> int:
        """Slot of a name.

        Raises
        ------
        ModelError
            No quantity has this name.
        """
        if name not in self.slot_of:
            raise ModelError(
                f"{what}: no quantity is called {short_repr(name)}{did_you_mean(name, self.slot_of)}"
            )
        return self.slot_of[name]


class Slots:
    """Collects the quantities of a model, then resolves ties."""

    def __init__(self) -> None:
        self._entries: list[_Entry | None] = [None]
        self._slot_of: dict[str, int] = {}

    def add(
        self, owner: str, key: str, quantity: Quantity | None, dimension: Dimension, index: str = ""
    ) -> int:
        """The slot of a quantity; that of the constant 0 where there is none."""
        if quantity is None:
            return ZERO
        entry = _Entry(owner, key, index, quantity, dimension)
        if entry.name in self._slot_of:
            raise ModelError(f"{entry.name!r} is defined twice")
        slot = len(self._entries)
        self._entries.append(entry)
        self._slot_of[entry.name] = slot
        return slot

    def add_series(
        self, owner: str, key: str, series: Series, dimension: Dimension, prefix: str = ""
    ) -> list[int]:
        """Slots of a list of quantities, "core.I[0]", ...; a list of one needs no index."""
        if len(series) == 1:
            return [self.add(owner, key, series[0], dimension, prefix)]
        return [self.add(owner, key, item, dimension, f"{prefix}[{i}]") for i, item in enumerate(series)]

    def is_tied_to(self, owners: tuple[str, ...]) -> bool:
        """Whether a tie names a quantity of one of these owners."""
        ties = (entry.quantity.to for entry in self._entries if entry and isinstance(entry.quantity, Tie))
        return any(name.split(".")[0] in owners for name in ties)

    def resolve(self) -> ResolvedSlots:
        """Number the parameters in order of appearance and follow the ties.

        Raises
        ------
        ModelError
            A tie to nothing, to itself, or to a quantity of another dimension.
        """
        n_slot = len(self._entries)
        base, scale = np.zeros(n_slot), np.zeros(n_slot)
        parameter_of = np.full(n_slot, -1, dtype=np.int64)
        parameters: list[Parameter] = []
        ties: list[int] = []
        for slot, entry in enumerate(self._entries):
            if entry is None:
                continue
            if isinstance(entry.quantity, Tie):
                ties.append(slot)
            elif isinstance(entry.quantity, Fixed):
                base[slot] = entry.quantity.value * units.factor(entry.quantity.unit, entry.dimension)
            else:
                parameter_of[slot] = len(parameters)
                scale[slot] = units.factor(entry.quantity.unit, entry.dimension)
                parameters.append(_parameter(entry, entry.quantity))
        for slot in ties:
            target = self._follow(slot)
            base[slot], scale[slot], parameter_of[slot] = base[target], scale[target], parameter_of[target]
        dimensions = tuple(entry.dimension if entry else units.NUMBER for entry in self._entries)
        return ResolvedSlots(tuple(parameters), self._slot_of, dimensions, base, parameter_of, scale)

    def _follow(self, slot: int) -> int:
        start = self._entries[slot]
        assert start is not None
        seen = {slot}
        entry = start
        while isinstance(entry.quantity, Tie):
            name = entry.quantity.to
            if name not in self._slot_of:
                raise ModelError(
                    f"{start.name}: tied to {short_repr(name)}, but no quantity is called so"
                    f"{did_you_mean(name, self._slot_of)}"
                )
            slot = self._slot_of[name]
            if slot in seen:
                raise ModelError(f"{start.name}: tied to itself, by way of {name!r}")
            seen.add(slot)
            target = self._entries[slot]
            assert target is not None
            entry = target
        if entry.dimension.si != start.dimension.si:
            raise ModelError(
                f"{start.name}: is {start.dimension.name} and cannot be tied to {entry.name!r}, "
                f"{entry.dimension.name}"
            )
        return slot


def _parameter(entry: _Entry, prior: Prior) -> Parameter:
    period = None
    if isinstance(prior, Uniform) and entry.key in _PERIOD_DEG:
        whole = units.convert(_PERIOD_DEG[entry.key], "deg", prior.unit)
        if abs((prior.high - prior.low) / whole - 1) < 1e-12:
            period = float(prior.high - prior.low)
    return Parameter(entry.name, prior.unit, prior, period, latex(entry.owner, entry.key, entry.index))
