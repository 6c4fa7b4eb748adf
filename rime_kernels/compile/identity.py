"""Identify a compiled function by what it was made from, in the same way in every process."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from types import FunctionType, ModuleType

import numpy as np
from numba import types

# Nested tuples of numbers, strings, bytes and types.
Identity = tuple[object, ...] | str


class UnknownError(Exception):
    """A function closes over a value that cannot be identified."""


def identity(value: object) -> Identity:
    """Nested tuples of numbers and strings that identify a value, the same in every process.

    Those of a function, compiled or not, tell where it is defined and what it closes over. Constants in its
    text, and globals, are not included: a digest of the source text covers them.

    Raises
    ------
    UnknownError
        The value is of a type that cannot be identified.
    """
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        # Two branches may define functions of the same name.
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
    raise UnknownError(f"{value!r} cannot be identified")


def short(identified: Identity) -> str:
    """Sixteen hexadecimal digits of a hash of what `identity` gives."""
    return hashlib.sha256(repr(identified).encode()).hexdigest()[:16]
