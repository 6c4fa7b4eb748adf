"""Constraints that a user may write: orders and bounds of quantities, and conditions on all parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.parameter import Fixed, read_entry
from biro.models.quantities.strict import Entry, did_you_mean, key_names, short_repr, strict


@strict
class Order:
    """Quantities in descending order: Order(["a.I", "b.I"]) demands a.I > b.I.

    Parameters
    ----------
    order : list of two or more names
    """

    label: ClassVar[str] = "constraint"
    order: Entry

    def __post_init__(self) -> None:
        names = self.order
        if (
            not isinstance(names, (list, tuple))
            or len(names) < 2
            or not all(isinstance(n, str) for n in names)
        ):
            raise ModelError(
                "order: expected a list of two or more names such as ['a.I', 'b.I'], "
                f"found {short_repr(names)}"
            )
        if len(set(names)) < len(names):
            raise ModelError(f"order: a name occurs twice in {short_repr(list(names))}")
        object.__setattr__(self, "order", tuple(names))


@strict
class Bounds:
    """A quantity within limits: Bounds("jet.I", low="0.1 Jy").

    Parameters
    ----------
    bounds : str
        Name of the quantity.
    low, high : number with unit
        Either may be left out.
    """

    label: ClassVar[str] = "constraint"
    bounds: str
    low: Entry = None
    high: Entry = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ModelError(f"bounds of {self.bounds!r}: give low, high, or both")
        for key in ("low", "high"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, Fixed):
                number, unit = read_entry(key, units.number, value)
                object.__setattr__(self, key, Fixed(number, unit or ""))


class Condition:
    """A function of the parameters that says which are allowed; from Python only.

    Parameters
    ----------
    function : callable
        Takes {name: float64 (n,)} in the units of the model, returns bool (n,).
    """

    def __init__(self, function: Callable[[Mapping[str, NDArray[np.float64]]], object]) -> None:
        if not callable(function):
            raise ModelError(
                f"Condition needs a function of a dictionary of parameters, found {short_repr(function)}"
            )
        self.function = function

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        digest = hashlib.sha256(_fingerprint(self.function).encode()).hexdigest()
        return f"Condition({name}, sha256 {digest[:16]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self.function is other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __call__(self, parameters: Mapping[str, NDArray[np.float64]], n: int) -> NDArray[np.bool_]:
        """Which of n parameter vectors are allowed."""
        answer = np.asarray(self.function(parameters))
        if answer.shape != (n,) or answer.dtype != np.bool_:
            raise ModelError(
                f"{self!r} must return bool ({n},) for parameters of shape ({n},), "
                f"returned {answer.dtype} {answer.shape}"
            )
        return answer


def _fingerprint(function: object) -> str:
    """What a function does, as far as every run tells it alike: code, constants, plain closures."""
    code = getattr(function, "__code__", None)
    if code is None:
        return str(getattr(function, "__qualname__", type(function).__qualname__))
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    plain = [
        value
        for value in (*cells, *(getattr(function, "__defaults__", None) or ()))
        if isinstance(value, (int, float, str))
    ]
    return f"{_code_text(code)} {plain!r}"


def _code_text(code: CodeType) -> str:
    constants = [_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names!r} {constants!r}"


Constraint: TypeAlias = Order | Bounds | Condition


def read_constraint(value: object) -> Constraint:
    """A constraint from a table of a model file, a function, or itself."""
    if isinstance(value, (Order, Bounds, Condition)):
        return value
    if isinstance(value, Mapping):
        cls = Bounds if "bounds" in value else Order
        known = [*key_names(Order), *key_names(Bounds)]
        unknown = [key for key in value if key not in known]
        if unknown:
            raise ModelError(
                f"constraint: unknown key {short_repr(unknown[0])}{did_you_mean(unknown[0], known)}; "
                "keys allowed: order; or bounds, low, high"
            )
        return cls(**{str(key): item for key, item in value.items()})
    if callable(value):
        return Condition(value)
    raise ModelError(f"constraint: expected Order, Bounds, or a function, found {short_repr(value)}")


def read_constraints(values: object) -> tuple[Constraint, ...]:
    """Constraints as a tuple; one alone counts as a list of one."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        values = (values,)
    return tuple(read_constraint(value) for value in values)
