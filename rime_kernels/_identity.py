"""What tells a compiled function from others of its kind, in this process and in any other."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import types


class UnknownError(Exception):
    """A function closes over something that has no name of its own."""


def identity(value: Any) -> Any:
    """Tuples, numbers and strings that tell a value from others, the same in every process.

    Those of a function, compiled or not, say where it stands and what it closes over.

    Raises
    ------
    UnknownError
        There are none.
    """
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        # A digest is there to make stale machine code known, not to tell functions apart.
        held = [cell.cell_contents for name, cell in cells if name != "digest"]
        held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        # Two functions of one name may stand in two branches.
        place = function.__module__, function.__qualname__, function.__code__.co_firstlineno
        return *place, function.__code__.co_code, *map(identity, held)
    if value is None or isinstance(value, (bool, int, float, complex, str, np.generic, np.dtype, types.Type)):
        return repr(value)
    if isinstance(value, tuple):
        return type(value).__qualname__, *map(identity, value)
    if isinstance(value, type):
        return value.__module__, value.__qualname__
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return type(value).__qualname__, *(identity(getattr(value, field.name)) for field in fields)
    if isinstance(value, ModuleType):
        return value.__name__
    raise UnknownError(f"{value!r} is not known")


def short(identified: Any) -> str:
    """Sixteen letters instead of what `identity` has found."""
    return hashlib.sha256(repr(identified).encode()).hexdigest()[:16]
