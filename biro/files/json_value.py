"""Values of JSON, whose type is known only when a program runs."""

from __future__ import annotations

from typing import Any, TypeAlias

# What json.loads gives is a tree of unknown shape: whoever takes a value from it checks what it is.
JsonValue: TypeAlias = Any


def finite_json(value: object) -> JsonValue:
    """Dictionaries, lists and numbers of Python, from those of numpy too; None for NaN and infinity."""
    if isinstance(value, dict):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    if hasattr(value, "tolist"):
        return finite_json(value.tolist())
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
