"""All named quantities of a model as one row of numbers: constants, and sums of multiples of parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.parameter import Fixed, Parameter, Quantity, Series, latex
from biro.models.quantities.prior import Prior, Uniform
from biro.models.quantities.strict import did_you_mean, short_repr
from biro.models.quantities.tie import Tie, TieSum, read_sum
from biro.models.quantities.units import Dimension

Array = NDArray[np.float64]
ZERO = 0  # the slot that always holds 0
_ROUNDING = 1e-14
_MAX_TERMS = 1_000_000
_PERIOD_DEG = {"pa": 180.0, "pol_angle": 180.0, "ra": 360.0, "hole_pa": 360.0, "axis_pa": 360.0}
_PERIOD_DEG |= dict.fromkeys(("phase", "phase.r", "phase.l", "phase.x", "phase.y", "ratio_phase"), 360.0)


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


@dataclass(frozen=True)
class Form:
    """offset + sum of factor * parameter, SI units.

    Attributes
    ----------
    terms : tuple of (int, float)
        Index of each parameter, ascending, and SI units per unit of theta; no factor is 0.
    offset : float
    """

    terms: tuple[tuple[int, float], ...] = ()
    offset: float = 0.0

    @property
    def parameters(self) -> frozenset[int]:
        """The parameters on which the value depends."""
        return frozenset(parameter for parameter, _ in self.terms)

    @property
    def is_multiple(self) -> bool:
        """Whether the value is a positive multiple of one parameter."""
        return len(self.terms) == 1 and self.offset == 0.0 and self.terms[0][1] > 0.0

    def __sub__(self, other: Form) -> Form:
        return combined([(1.0, self), (-1.0, other)])

    def of(self, theta: Array) -> Array:
        """The value for each row of theta (n, n_param): float64 (n,), or (1,) where it is constant."""
        if not self.terms:
            return np.array([self.offset])
        (first, scale), *others = self.terms
        value = theta[:, first] * scale
        for parameter, factor in others:
            value = value + theta[:, parameter] * factor
        return np.asarray(value + self.offset if self.offset else value)

    def limits(self, ranges: Array) -> tuple[float, float]:
        """Smallest and largest value, where parameter i is free within ranges[i] (2,)."""
        low = high = self.offset
        for parameter, factor in self.terms:
            ends = sorted(factor * float(end) for end in ranges[parameter])
            low, high = low + ends[0], high + ends[1]
        return low, high


def combined(parts: Iterable[tuple[float, Form]], offset: float = 0.0) -> Form:
    """offset + sum of factor * form; a factor that cancels to within its rounding is none."""
    factors: dict[int, float] = {}
    sizes: dict[int, float] = {}
    size = abs(offset)
    for by, form in parts:
        offset += by * form.offset
        size += abs(by * form.offset)
        for parameter, factor in form.terms:
            factors[parameter] = factors.get(parameter, 0.0) + by * factor
            sizes[parameter] = sizes.get(parameter, 0.0) + abs(by * factor)
    kept = sorted((p, f) for p, f in factors.items() if not _cancels(f, sizes[p]))
    return Form(tuple(kept), 0.0 if _cancels(offset, size) else offset)


def _cancels(total: float, size: float) -> bool:
    """Whether a sum is no more than rounding; `size` is the sum of the absolute values."""
    return math.isfinite(size) and abs(total) <= _ROUNDING * size


@dataclass(frozen=True, eq=False)
class ResolvedSlots:
    """Every quantity of a model as a slot: a constant, or a constant and multiples of parameters.

    Attributes
    ----------
    parameters : tuple of Parameter
    slot_of : dict of str to int
        Slot of each name.
    dimensions : tuple of Dimension
        Of each slot.
    base : float64 (n_slot,), SI
        Values of the constant slots; in others, what is added to the multiples of parameters.
    forms : dict of int to Form
        Of each slot that follows a parameter, in ascending order.
    """

    parameters: tuple[Parameter, ...]
    slot_of: dict[str, int]
    dimensions: tuple[Dimension, ...]
    base: Array
    forms: dict[int, Form]
    _free: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        free = np.zeros(self.base.size, dtype=bool)
        free[list(self.forms)] = True
        object.__setattr__(self, "_free", free)

    def form(self, slot: int) -> Form:
        """How a slot follows the parameters."""
        found = self.forms.get(int(slot))
        return Form(offset=float(self.base[slot])) if found is None else found

    def column(self, theta: Array, slot: int) -> Array:
        """One slot in SI for each row of theta (n, n_param): float64 (n,), or (1,) where it is constant."""
        return self.form(slot).of(theta)

    def ranges(self, tail: float) -> Array:
        """Smallest and largest value of each parameter, (n_param, 2), with `tail` of the prior left out."""
        return np.array([p.prior.quantile_range(tail) for p in self.parameters]).reshape(-1, 2)

    def limits(self, tail: float) -> tuple[Array, Array]:
        """Smallest and largest value of each slot in SI, with `tail` of the prior left out on either side.

        Of a slot that follows several parameters, where each of them is at its own end.
        """
        ranges, low, high = self.ranges(tail), self.base.copy(), self.base.copy()
        for slot, form in self.forms.items():
            low[slot], high[slot] = form.limits(ranges)
        return low, high

    def is_free(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these slots follow a parameter."""
        return np.asarray(self._free[slots])

    def parameters_of(self, slots: NDArray[np.int64]) -> frozenset[int]:
        """The parameters that any of these slots follows."""
        free = np.unique(slots[self._free[slots]]).tolist()
        return frozenset(parameter for slot in free for parameter, _ in self.forms[slot].terms)

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


class ModelSlots:
    """Collects the quantities of a model, then resolves ties."""

    def __init__(self) -> None:
        self._entries: list[_Entry | None] = [None]
        self._slot_of: dict[str, int] = {}
        self._n_term = 0

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
        return any(name.split(".")[0] in owners for tie in ties for name in read_sum(tie).terms)

    def resolve(self) -> ResolvedSlots:
        """Number the parameters in order of appearance and follow the ties.

        Raises
        ------
        ModelError
            A tie to nothing, to itself, or to a quantity of another dimension.
        """
        base = np.zeros(len(self._entries))
        forms: dict[int, Form] = {}
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
                forms[slot] = Form(((len(parameters), units.factor(entry.quantity.unit, entry.dimension)),))
                parameters.append(_parameter(entry, entry.quantity))
        tied: dict[int, Form] = {}
        for slot in ties:
            self._follow(slot, base, forms, tied)
        for slot, form in tied.items():
            base[slot] = form.offset
            if form.terms:
                forms[slot] = form
        self._stop_turning(parameters, tied)
        dimensions = tuple(entry.dimension if entry else units.NUMBER for entry in self._entries)
        return ResolvedSlots(tuple(parameters), self._slot_of, dimensions, base, dict(sorted(forms.items())))

    def _follow(self, start: int, base: Array, forms: dict[int, Form], tied: dict[int, Form]) -> None:
        """Find the forms of a tie and of the ties that it follows, which are put into `tied`."""
        waiting, within = [start], {start}
        while waiting:
            slot = waiting[-1]
            entry, sum_, slots = self._tie(slot)
            missing = [i for i in slots if i not in tied and isinstance(self._entry(i).quantity, Tie)]
            if missing:
                if missing[0] in within:
                    name = self._entry(missing[0]).name
                    raise ModelError(f"{self._entry(start).name}: tied to itself, by way of {name!r}")
                waiting.append(missing[0])
                within.add(missing[0])
                continue
            offset = 0.0
            if sum_.unit is not None:
                offset = sum_.constant * units.factor(sum_.unit, entry.dimension)
            parts = zip(sum_.terms.values(), slots, strict=True)
            known = [(by, tied.get(i) or forms.get(i) or Form(offset=float(base[i]))) for by, i in parts]
            form = combined(known, offset)
            if not all(np.isfinite([form.offset, *(factor for _, factor in form.terms)])):
                raise ModelError(f"{entry.name}: the numbers of its ties are too large")
            self._n_term += len(form.terms)
            if self._n_term > _MAX_TERMS:
                raise ModelError(f"{entry.name}: ties add up more than {_MAX_TERMS} multiples of parameters")
            tied[slot] = form
            within.discard(waiting.pop())

    def _tie(self, slot: int) -> tuple[_Entry, TieSum, list[int]]:
        """A tie: its entry, what it says, and the slots of the names in that."""
        entry = self._entry(slot)
        assert isinstance(entry.quantity, Tie)
        sum_ = read_sum(entry.quantity.to)
        for name in sum_.terms:
            if name not in self._slot_of:
                spaces = "; + and - need a space on either side" if re.search("[+-]", name) else ""
                raise ModelError(
                    f"{entry.name}: tied to {short_repr(name)}, but no quantity is called so"
                    f"{did_you_mean(name, self._slot_of)}{spaces}"
                )
        slots = [self._slot_of[name] for name in sum_.terms]
        for target in (self._entry(i) for i in slots):
            if target.dimension.si != entry.dimension.si:
                raise ModelError(
                    f"{entry.name}: is {entry.dimension.name} and cannot be tied to {target.name!r}, "
                    f"{target.dimension.name}"
                )
        return entry, sum_, slots

    def _entry(self, slot: int) -> _Entry:
        entry = self._entries[slot]
        assert entry is not None
        return entry

    def _stop_turning(self, parameters: list[Parameter], tied: dict[int, Form]) -> None:
        """Take the period from parameters after which some quantity that follows them does not repeat."""
        for slot, form in tied.items():
            for i, factor in form.terms:
                parameter = parameters[i]
                if parameter.period is None:
                    continue
                own = np.radians(_PERIOD_DEG.get(self._entry(slot).key, np.inf))
                turns = parameter.period * factor / own
                if turns == 0.0 or abs(turns - round(turns)) > 1e-9:
                    parameters[i] = replace(parameter, period=None)


def _parameter(entry: _Entry, prior: Prior) -> Parameter:
    period = None
    if isinstance(prior, Uniform) and entry.key in _PERIOD_DEG:
        whole = units.convert(_PERIOD_DEG[entry.key], "deg", prior.unit)
        if abs((prior.high - prior.low) / whole - 1) < 1e-12:
            period = float(prior.high - prior.low)
    return Parameter(entry.name, prior.unit, prior, period, latex(entry.owner, entry.key, entry.index))


def numbers_of(tables: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """A number for each row of some tables (n, ...), the same for rows that are alike; int64 (n,)."""
    flat = np.concatenate([table.reshape(len(table), -1) for table in tables], axis=1)
    return np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
