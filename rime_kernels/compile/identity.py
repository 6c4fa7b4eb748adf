"""Identify a compiled function by what it was made from, in the same way in every process."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import numpy as np
from numba import types

from rime_kernels.compile.sources import held

# Modules whose contents stay the same while the versions that machine code belongs to do.
_LASTING = {"math", "cmath", "numpy"}
# Nested tuples of numbers, strings, bytes and types.
Identity = tuple[object, ...] | str


class UnknownError(Exception):
    """A function closes over a value that cannot be identified."""


def identity(value: object) -> Identity:
    """Nested tuples of numbers and strings that identify a value, the same in every process.

    That of a function, compiled or not, has where it is defined, its own code and what it closes over.
    Globals are not included, because a digest of their code covers them (`rime_kernels.compile.sources`).

    Raises
    ------
    UnknownError
        The value is of a type that cannot be identified.
    """
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        # Of functions made of a user's, which no digest covers: see `foreign_identity`.
        own = [function.identity] if hasattr(function, "identity") else []
        # Two branches may define functions of the same name.
        place = function.__module__, function.__qualname__, _code_identity(function.__code__)
        return *place, *map(identity, [*held(function), *own])
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


def foreign_identity(function: FunctionType) -> Identity:
    """That of a function whose source text is not this package's: constants and globals are included.

    Raises
    ------
    UnknownError
        It uses something whose value may change without being seen here, such as a module of a user's.
    """
    known: list[Identity] = [identity(function), _code_identity(function.__code__)]
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name)
        value = inspect.unwrap(value) if callable(value) else value
        if isinstance(value, FunctionType) and value is not function:
            known.append((name, *foreign_identity(value)))
        elif isinstance(value, ModuleType) and value.__name__ not in _LASTING:
            raise UnknownError(f"{value!r} may change")
        elif isinstance(value, BuiltinFunctionType):
            known.append((name, str(value.__module__), value.__qualname__))
        elif name in function.__globals__ and value is not function:
            known.append((name, *identity(value)))
    for cell in function.__closure__ or ():
        value = inspect.unwrap(cell.cell_contents) if callable(cell.cell_contents) else None
        if isinstance(value, FunctionType) and value is not function:
            known.append(foreign_identity(value))
    return tuple(known)


def _code_identity(code: CodeType) -> Identity:
    """Bytecode, names and constants, those of functions inside included; without docstrings."""
    constants = [_constant(x) for x in code.co_consts]
    if _begins_with_docstring(code):
        constants[0] = "docstring"
    return code.co_code, *code.co_names, *constants


def _constant(value: object) -> Identity:
    if isinstance(value, CodeType):
        return _code_identity(value)
    # The order of a set of strings differs from process to process.
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _begins_with_docstring(code: CodeType) -> bool:
    """Whether the first constant is a docstring, or None in the place of one."""
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
    return is_function and isinstance(next(iter(code.co_consts), 0), str | None)


def _names(code: CodeType) -> set[str]:
    """Names of globals (and of attributes) that a function and those inside it use."""
    inside = [_names(x) for x in code.co_consts if isinstance(x, CodeType)]
    return set(code.co_names).union(*inside)


def short(identified: Identity) -> str:
    """Sixteen hexadecimal digits of a hash of what `identity` gives."""
    return hashlib.sha256(repr(identified).encode()).hexdigest()[:16]
