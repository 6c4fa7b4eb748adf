"""Mounts of antennas, and the names that files have for them."""

from __future__ import annotations

MOUNTS = ("alt-az", "equatorial", "nasmyth-right", "nasmyth-left", "x-y")
"""Mounts whose angles are known."""
NASMYTH = ("nasmyth-right", "nasmyth-left")
_SAME = {
    "altaz": "alt-az",
    "az-el": "alt-az",
    "alt-az+nasmyth-r": "nasmyth-right",
    "alt-az+nasmyth-l": "nasmyth-left",
    "nasmyth-r": "nasmyth-right",
    "nasmyth-l": "nasmyth-left",
    "xy": "x-y",
}
"""Other names of mounts, as files have them, in small letters."""


def mount_kind(text: str) -> str:
    """The kind of a mount, one of `MOUNTS`, or the text as it stands where it is none of them."""
    name = text.strip().lower().replace("_", "-")
    name = _SAME.get(name, name)
    return name if name in MOUNTS else text.strip()
