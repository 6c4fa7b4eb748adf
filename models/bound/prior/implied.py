"""Constraints as checks: those that the user wrote, and those that follow from what quantities mean.

A size is never negative, for example, and the major axis of a Gaussian is not below its minor axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.instrument_layout import InstrumentLayout
from biro.models.bound.prior.checks import AboveHorizon, Check, Greater, Limit, UserCondition, split_orders
from biro.models.bound.slots import ResolvedSlots
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.constraint import Bounds, Condition, Order
from biro.models.errors import ModelError
from biro.models.quantities.parameter import read_entry
from biro.models.quantities.units import convert, factor

Array = NDArray[np.float64]


def checks_of(
    layout: SourceLayout,
    instrument: InstrumentLayout,
    resolved: ResolvedSlots,
    constraints: Sequence[object],
    on_sky: Callable[[Array], NDArray[np.bool_]] | None,
) -> tuple[list[Check], list[list[int]]]:
    """All checks of a model, and the chains of parameters that the transform of the unit cube orders.

    Parameters
    ----------
    layout : SourceLayout
    instrument : InstrumentLayout
    resolved : ResolvedSlots
    constraints : sequence
        Those that the user wrote.
    on_sky : function, optional
        Whether all sources are above the horizon at theta (n_batch, n_param); None where they always are.

    Raises
    ------
    ModelError
        No value of the priors holds to a check, or a function has no parameters to look at.
    """
    implied = Implied(resolved)
    implied.shapes(layout)
    for bounds in layout.bounds:
        implied.limit(*bounds)
    for fraction, table in layout.fractions:
        for key, slots in zip(fraction.keys, table.T[1:], strict=True):
            for slot in slots if key in fraction.bounds else ():
                implied.limit(int(slot), *fraction.bounds[key])
    for slot in instrument.positive:
        implied.limit(slot, 0.0, math.inf, above_low=True)
    for slot in instrument.not_negative:
        implied.limit(slot, 0.0, math.inf)
    for slot, low, high in instrument.limited:
        implied.limit(slot, low, high)
    implied.constraints(constraints)
    chains, orders = split_orders(resolved, implied.orders)
    checks: list[Check] = [*implied.limits, *orders]
    if on_sky is not None:
        checks.append(AboveHorizon(on_sky, resolved.parameters_of(layout.position)))
    names = tuple(parameter.name for parameter in resolved.parameters)
    conditions = [UserCondition(each, names) for each in constraints if isinstance(each, Condition)]
    if conditions and not names:
        raise ModelError("constraints: a function needs parameters, but the model has none")
    return [*checks, *conditions], chains


class Implied:
    """Checks that follow from the meaning of the quantities and from the user's orders and bounds.

    Only checks that some value within the priors breaks are kept in `limits` and `orders`.

    Parameters
    ----------
    resolved : ResolvedSlots
    """

    def __init__(self, resolved: ResolvedSlots) -> None:
        self.resolved = resolved
        self._ranges = resolved.ranges(0.0)
        self.low, self.high = resolved.limits(0.0)
        self.name_of = {slot: name for name, slot in resolved.slot_of.items()}
        self.limits: list[Limit] = []
        self.orders: list[Greater] = []

    def limit(self, slot: int, low: float, high: float, above_low: bool = False) -> None:
        """Demand that a slot lies between low and high; with `above_low`, that it is not low itself."""
        if not (self.low[slot] < low or (above_low and self.low[slot] == low) or self.high[slot] > high):
            return
        text = f"{self.name_of.get(slot, '0')} must be {self._demand(slot, low, high, above_low)}"
        too_low = self.high[slot] <= low if above_low else self.high[slot] < low
        if too_low or self.low[slot] > high:
            raise ModelError(f"{text}, found {self._found(slot)}")
        self.limits.append(Limit(self.resolved, self.resolved.form(slot), low, high, text, above_low))

    def greater(self, large: int, small: int, text: str) -> None:
        """Demand that the slot `large` is not below the slot `small`."""
        if large == small or self.low[large] >= self.high[small]:
            return
        forms = self.resolved.form(large), self.resolved.form(small)
        least, most = (forms[0] - forms[1]).limits(self._ranges)  # tighter where the two are tied
        if least >= 0.0:
            return
        if most < 0.0:
            raise ModelError(f"{text}, found {self._found(large)} and {self._found(small)}")
        self.orders.append(Greater(self.resolved, *forms, text))

    def _demand(self, slot: int, low: float, high: float, above_low: bool) -> str:
        if above_low:
            return "positive"
        unit, (low, high) = self._in_unit(slot, low, high)
        if math.isinf(high):
            return f"{low:.6g} {unit}".rstrip() + " or more"
        within = f"at most {high:.6g}" if math.isinf(low) else f"within {low:.6g} .. {high:.6g}"
        return f"{within} {unit}".rstrip()

    def _found(self, slot: int) -> str:
        name = self.name_of.get(slot, "0")
        unit, (low, high) = self._in_unit(slot, self.low[slot], self.high[slot])
        if low == high:
            return f"{name} = {low:.6g} {unit}".rstrip()
        return f"{name} within {low:.6g} .. {high:.6g} {unit}".rstrip()

    def _in_unit(self, slot: int, *values: float) -> tuple[str, list[float]]:
        """The unit in which values of a slot are shown, arcsec for angles, and the values in that unit."""
        si = self.resolved.dimensions[slot].si
        unit = "arcsec" if si == "rad" else si
        return unit, [convert(value, si, unit) for value in values]

    def shapes(self, layout: SourceLayout) -> None:
        """Demand that sizes are not negative, no major axis is below its minor axis, and limits hold."""
        seen: set[tuple[int, int]] = set()  # the parts of a source may share their axes
        for (major, second, _), by_ratio in zip(layout.shape, layout.by_ratio, strict=True):
            if (int(major), int(second)) in seen:
                continue
            seen.add((int(major), int(second)))
            self.limit(major, 0.0, math.inf)
            if by_ratio:
                self.limit(second, 0.0, 1.0)
            elif second != major:
                self.limit(second, 0.0, math.inf)
                owner = self.name_of[major].rsplit(".", 1)[0]
                self.greater(major, second, f"source {owner!r}: emaj must not be below emin")
        for slot, limits in dict(layout.limits).items():
            self.limit(slot, *limits)

    def constraints(self, given: Sequence[object]) -> None:
        """Demand the orders and bounds that the user wrote."""
        for constraint in given:
            if isinstance(constraint, Order):
                self._order(constraint)
            elif isinstance(constraint, Bounds):
                self._bounds(constraint)

    def _order(self, constraint: Order) -> None:
        slots = [self.resolved.find(name, "constraint: order") for name in constraint.order]
        text = f"constraint: order {' > '.join(constraint.order)}"
        for (large, name), (small, other) in pairwise(zip(slots, constraint.order, strict=True)):
            dimensions = self.resolved.dimensions
            if dimensions[large].si != dimensions[small].si:
                raise ModelError(
                    f"{text}: {name!r} is {dimensions[large].name}, {other!r} is {dimensions[small].name}"
                )
            form = self.resolved.form(large)
            if form.terms and form == self.resolved.form(small):
                raise ModelError(f"{text}: {name!r} and {other!r} are tied, so neither is larger")
            self.greater(large, small, text)

    def _bounds(self, constraint: Bounds) -> None:
        slot = self.resolved.find(constraint.bounds, "constraint: bounds")
        dimension = self.resolved.dimensions[slot]
        of = f"constraint: bounds of {constraint.bounds!r}"
        low, high = (
            default
            if fixed is None
            else fixed.value * read_entry(f"{of}: {key}", factor, fixed.unit, dimension)
            for key, fixed, default in (
                ("low", constraint.low, -math.inf),
                ("high", constraint.high, math.inf),
            )
        )
        if not low < high:
            raise ModelError(f"{of} need low < high, found {low:g}, {high:g} {dimension.si}")
        self.limit(slot, low, high)
