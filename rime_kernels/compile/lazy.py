"""Public names of a package that are imported when they are first used.

The package lists each once, under `if TYPE_CHECKING:`, as `from package.module import name as name`. Type
checkers and editors find it there. At run time that block is read as text.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module

from rime_kernels.deprecation import ALIASES, warn_alias


def attach(package: str, *others: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package.

    Its earlier names in `deprecation.ALIASES` work, with a `DeprecationWarning`.

    Parameters
    ----------
    package : str
        Its name, `__name__`.
    *others : str
        Public names that it defines itself.

    Examples
    --------
    >>> if TYPE_CHECKING:
    ...     from package.module import name as name
    >>> __all__, __getattr__, __dir__ = attach(__name__)
    """
    homes = _listed(package)
    public = sorted([*homes, *others])

    def get(name: str) -> object:
        if (earlier := f"{package}.{name}") in ALIASES:
            warn_alias(earlier)
            return get(ALIASES[earlier][0].removeprefix(f"{package}."))
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        home = homes[name]
        value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    module = sys.modules[package]
    return public, get, lambda: public


def _listed(package: str) -> dict[str, str]:
    """The module of each name that is imported under `if TYPE_CHECKING:` at the top of a package."""
    spec = sys.modules[package].__spec__
    text = spec.loader.get_source(package)  # type: ignore[union-attr]
    checked = [
        statement
        for block in ast.parse(text).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
    ]
    return {
        each.asname: str(statement.module)
        for statement in checked
        if isinstance(statement, ast.ImportFrom)
        for each in statement.names
        if each.asname
    }
