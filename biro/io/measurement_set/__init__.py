"""Read and write CASA Measurement Sets; casacore runs in a child process.

The child process imports this package too, so names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from biro.io.measurement_set.column import write_column
    from biro.io.measurement_set.flags import undo_flags
    from biro.io.measurement_set.new_set import create_ms
    from biro.io.measurement_set.read import read_columns, read_ms

__all__ = ["create_ms", "read_columns", "read_ms", "undo_flags", "write_column"]

_HOME = {
    "create_ms": "new_set",
    "read_columns": "read",
    "read_ms": "read",
    "undo_flags": "flags",
    "write_column": "column",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
