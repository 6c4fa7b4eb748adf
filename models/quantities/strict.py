"""Frozen classes that refuse unknown keys, with errors a person can act on."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, dataclass_transform

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from biro.models.errors import ModelError

T = TypeVar("T", bound=type)
# What a person may write for an entry of a model. pydantic lets anything through; `__post_init__` of the
# class reads it, and puts what the class documents in its place.
Entry: TypeAlias = Any


def did_you_mean(found: object, known: Iterable[str]) -> str:
    """A hint such as " (did you mean 'emaj'?)", or nothing when no known word is close."""
    words = list(known)
    text = str(found)[:80]
    close = difflib.get_close_matches(text, words, n=1) or difflib.get_close_matches(
        text.lower(), [word for word in words if word == word.lower()], n=1
    )
    return f" (did you mean {close[0]!r}?)" if close else ""


def short_repr(value: object) -> str:
    """`repr` of a value, cut to a length that fits into one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_path(value: Entry, what: str) -> str:
    """The absolute path of `what` that a person wrote, "the path of an image" or the like.

    Raises
    ------
    ModelError
        Neither a text nor a path, or an empty one.
    """
    if not (isinstance(value, str) or hasattr(value, "__fspath__")) or not str(value):
        raise ModelError(f"expected {what}, found {short_repr(value)}")
    return str(Path(value).absolute())


def key_names(cls: type) -> list[str]:
    """The keys that a strict class takes."""
    return [field.name for field in dataclasses.fields(cls)]


def _label(cls: type, given: Mapping[str, object]) -> str:
    """What errors call an object: "source 'core'"."""
    label = str(getattr(cls, "label", cls.__name__))
    return f"{label} {short_repr(given['name'])}" if isinstance(given.get("name"), str) else label


def _refuse_unknown(cls: type, given: Mapping[str, object]) -> None:
    known = key_names(cls)
    for key in given:
        if key not in known:
            hint = f"{did_you_mean(key, known)}; keys allowed: {', '.join(known)}"
            raise ModelError(f"{_label(cls, given)}: unknown key {short_repr(key)}{hint}")


def _explain(cls: type, error: ValidationError, given: Mapping[str, object]) -> ModelError:
    """The first thing that pydantic found wrong, in one line."""
    label = _label(cls, given)
    details = sorted(error.errors(), key=lambda item: item["type"] == "missing")
    first = details[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ModelError):
        return ModelError(f"{label}: {cause}")
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return ModelError(f"{label}: {key!r} is missing; keys allowed: {', '.join(key_names(cls))}")
    return ModelError(f"{label}: {key}: {first['msg']}, found {short_repr(first['input'])}")


@dataclass_transform(frozen_default=True)
def strict(cls: T) -> T:
    """Make a frozen dataclass that refuses unknown keys and raises only `ModelError`.

    A class attribute `label` says what an error calls it; a `name` field is added to the label.
    """
    # pydantic types neither its class of T nor a new `__init__` for it.
    made: Any = dataclass(cls, frozen=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
    validate: Callable[..., None] = made.__init__

    @functools.wraps(validate)
    def init(self: object, /, *args: Entry, **kwargs: Entry) -> None:
        _refuse_unknown(made, kwargs)
        try:
            validate(self, *args, **kwargs)
        except ValidationError as error:
            given = dict(zip(key_names(made), args, strict=False)) | kwargs
            raise _explain(made, error, given) from None

    made.__init__ = init
    strict_class: T = made
    return strict_class
