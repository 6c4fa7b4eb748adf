"""Entries that every antenna has, and those of named antennas, which go before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from biro.models.errors import ModelError
from biro.models.quantities.parameter import read_entry
from biro.models.quantities.strict import Entry, did_you_mean, short_repr


def read_names(value: Entry) -> tuple[str, ...] | None:
    """The names of antennas in a list; None where none is given, which means all.

    Raises
    ------
    ModelError
        Anything but a list of texts.
    """
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ModelError(f"antennas: expected a list of names, found {short_repr(value)}")
    return tuple(value)


def read_own(value: Entry, read: Mapping[str, Callable[[Entry], Entry]]) -> dict[str, dict[str, Entry]]:
    """The entries of named antennas: a table by name, then by key.

    Parameters
    ----------
    value : table or None
    read : mapping of key to function
        Reads what a person wrote for a key.

    Raises
    ------
    ModelError
        No such tables, an unknown key, or what `read` raises, with the place in front.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ModelError(f"antenna: expected a table by antenna name, found {short_repr(value)}")
    own: dict[str, dict[str, Entry]] = {}
    for name, entries in value.items():
        if not isinstance(entries, Mapping):
            raise ModelError(f"antenna.{name}: expected a table, found {short_repr(entries)}")
        for key in entries:
            if key not in read:
                raise ModelError(
                    f"antenna.{name}: unknown key {short_repr(key)}{did_you_mean(key, read)}; "
                    f"keys allowed: {', '.join(read)}"
                )
        own[str(name)] = {
            key: read_entry(f"antenna.{name}.{key}", read[key], item)
            for key, item in entries.items()
            if item is not None
        }
    return own


def check_known(label: str, named: Iterable[str], antennas: Iterable[str]) -> None:
    """Refuse names that no antenna of the data has.

    Raises
    ------
    ModelError
    """
    known = set(antennas)
    unknown = sorted(set(named) - known)
    if unknown:
        raise ModelError(
            f"{label}: no antenna is called {short_repr(unknown[0])}{did_you_mean(unknown[0], known)}"
        )
