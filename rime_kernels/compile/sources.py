"""Digests of the source text of this package, and of the code that a compiled function is made of.

A function is made of the modules in which it, what it closes over and the types of its arguments are defined,
and of all that these import from this package. Comments, docstrings and line breaks are not code.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType

from numba import types

# The folder of this package.
ROOT = Path(__file__).parents[1]
# What compiles decides the machine code of all.
_COMPILER = tuple(f"rime_kernels.compile.{path.stem}" for path in sorted(Path(__file__).parent.glob("*.py")))


def source_digest(pattern: str = "**/*.py") -> str:
    """Hexadecimal digits that change with the text of any module of this package that fits the pattern.

    The pattern is of paths below `rime_kernels`.
    """
    digest = hashlib.sha256()
    for path in sorted(ROOT.glob(pattern)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def code_digest(*values: object) -> str:
    """Hexadecimal digits that change with the code that functions and types are made of.

    Parameters
    ----------
    *values : function, class, Numba type or tuple of them
        A compiled function, and the types of its arguments.
    """
    digest = hashlib.sha256()
    waiting = {*_COMPILER, *(name for value in values for name in _defined_in(value))}
    done: set[str] = set()
    while waiting:
        name = waiting.pop()
        done.add(name)
        waiting |= _code(name)[1] - done
    for name in sorted(done):
        digest.update(name.encode() + b"\0" + _code(name)[0])
    return digest.hexdigest()


def held(function: FunctionType) -> list[object]:
    """What a function closes over, and the defaults of its arguments."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _defined_in(value: object) -> Iterator[str]:
    """Names of the modules in which a value, and what it holds, are defined."""
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        yield function.__module__
    elif isinstance(value, type):
        yield from (each.__module__ for each in value.__mro__)
    else:
        yield from _defined_in(type(value))
    for each in _parts(function):
        yield from _defined_in(each)


def _parts(value: object) -> Iterable[object]:
    """What a value holds, as far as it can decide machine code."""
    if isinstance(value, FunctionType):
        return held(value)
    if isinstance(value, tuple):
        return value
    if isinstance(value, types.Type):
        return [getattr(value, "instance_class", None), *getattr(value, "types", ())]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return []


@functools.cache
def _code(name: str) -> tuple[bytes, set[str]]:
    """A digest of the code of a module, and the modules of this package that it imports; none of others."""
    path = _path(name)
    if path is None:
        return b"", set()
    tree = ast.parse(path.read_bytes())
    imported = {each for node in ast.walk(tree) for each in _imported(node) if _path(each)}
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).digest(), imported


def _imported(node: ast.AST) -> list[str]:
    """Names that may be those of modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    return []


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@functools.cache
def _path(name: str) -> Path | None:
    """The file of a module of this package; None of others, and of what imports all of this package."""
    package, *place = name.split(".")
    if package != ROOT.name or not place:
        return None
    found = ROOT.joinpath(*place)
    candidates = found.with_suffix(".py"), found / "__init__.py"
    return next((path for path in candidates if path.is_file()), None)
