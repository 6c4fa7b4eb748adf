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

    Those of a function, compiled or not, say where it stands and what it closes over; constants in its text,
    and globals, are for a digest of the text to tell.

    Raises
    ------
    UnknownError
        There are none.
    """
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        # Two functions of one name may stand in two branches.
        place = function.__module__, function.__qualname__, function.__code__.co_firstlineno
        return *place, function.__code__.co_code, *map(identity, held)
    if isinstance(value, np.generic):
        return value.dtype.str, value.tobytes()
    if value is None or isinstance(value, (bool, int, float, complex, str, np.dtype, types.Type)):
        return type(value).__qualname__, repr(value)
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
    """Sixteen hexadecimal digits for what `identity` has found."""
    return hashlib.sha256(repr(identified).encode()).hexdigest()[:16]
