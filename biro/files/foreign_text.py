"""Text from files of others, with whatever does not print made visible where it comes in.

Names of telescopes, fields and antennas are text of others. A terminal obeys some characters (\\x1b]0;...
renames its window, \\x1b[31m changes colours), others reverse the order in which a line is read, a newline
breaks a table, FITS headers refuse them all. They are cleaned where they come in, once, and not at each
table, log, picture, header and message where they go out. So the name that is shown is also the name that
a selection takes.
"""

from __future__ import annotations

from biro.files.json_value import JsonValue


def visible(text: str) -> str:
    r"""Text with each character that does not print as an escape: the bell as \x07, a newline as \n."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def visible_texts(value: JsonValue) -> JsonValue:
    """The `visible` form of all texts in a tree of dicts and lists, those of its keys as well."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(name): visible_texts(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible_texts(item) for item in value]
    return value


def visible_line(text: object) -> str:
    """The text of an error of a library in one line, as `visible` has it."""
    return visible(" ".join(str(text).split()))
