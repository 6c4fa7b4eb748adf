"""The one name for values of JSON, whose type is known only when a program runs."""

from __future__ import annotations

from typing import Any, TypeAlias

# What json.loads gives is a tree of unknown shape: whoever takes a value from it checks what it is.
JsonValue: TypeAlias = Any
