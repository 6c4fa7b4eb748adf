"""How the feeds of antennas turn on the sky: P of the measurement equation (physics: section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import ClassVar, Literal, TypeAlias

from biro.models.components.antenna_terms.mounts import MOUNTS, mount_kind
from biro.models.components.antenna_terms.per_antenna import read_names, read_own
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Quantity, quantity, read_entry
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import ANGLE

Basis: TypeAlias = Literal["linear", "circular"]
ROTATIONS = ("corrected", "present", "none")
"""What the data are: rotation taken out of them, still in them, or no matter of theirs."""


def check_mount(text: Entry) -> str:
    """The kind of a mount that a person gave.

    Raises
    ------
    ModelError
        None of `MOUNTS`.
    """
    kind = mount_kind(text) if isinstance(text, str) else ""
    if kind not in MOUNTS:
        raise ModelError(
            f"mount: one of {', '.join(MOUNTS)}, found {short_repr(text)}{did_you_mean(text, MOUNTS)}"
        )
    return kind


@strict
class Feeds:
    """Rotation of the feeds by phi: diag(e^-i phi, e^+i phi), or [[cos phi, sin phi], [-sin phi, cos phi]].

    phi is the angle of the mount (parallactic angle, elevation), of the feed as the data state it, and the
    offset, which is counted north through east like the others.

    Parameters
    ----------
    rotation : "corrected", "present" or "none", default "corrected"
        What the data are. "present": the feeds turn in them, A = G D P. "corrected": that was taken out after
        everything else, A = P^H G D P, which is G D where P commutes with it; calibrated data are so as a
        rule. "none": A = G D. True stands for "present", and False for "none".
    mount : text, or {antenna name: text}, optional
        "alt-az", "equatorial", "nasmyth-right", "nasmyth-left" or "x-y", in place of what the data say.
    offset : angle, optional
        Of every antenna in `antennas`, by which its feeds are turned beyond what the data state. A prior
        stands for one parameter per antenna.
    antennas : list of str, default all
    antenna : {name: {"offset": ...}}
        Antennas that have offsets of their own.
    """

    label: ClassVar[str] = "feeds"
    _: KW_ONLY
    rotation: Entry = "corrected"
    mount: Entry = None
    offset: Entry = None
    antennas: Entry = None
    antenna: Entry = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rotation", read_entry("rotation", _rotation, self.rotation))
        if self.mount is not None:
            if self.rotation == "none":
                raise ModelError('mount: has no effect with rotation = "none"')
            mount = self.mount
            if isinstance(mount, Mapping):
                read = {str(name): read_entry(f"mount.{name}", check_mount, m) for name, m in mount.items()}
                object.__setattr__(self, "mount", read)
            else:
                object.__setattr__(self, "mount", check_mount(mount))
        if self.offset is not None:
            object.__setattr__(self, "offset", read_entry("offset", _angle, self.offset))
        object.__setattr__(self, "antennas", read_names(self.antennas))
        object.__setattr__(self, "antenna", read_own(self.antenna, {"offset": _angle}))

    @property
    def mounts(self) -> dict[str, str]:
        """Mounts by name of antenna; "" stands for all others."""
        if self.mount is None:
            return {}
        return {"": self.mount} if isinstance(self.mount, str) else dict(self.mount)

    def named(self) -> set[str]:
        """Antennas that the model names."""
        return set(self.antennas or ()) | set(self.antenna) | (set(self.mounts) - {""})

    def offset_of(self, antenna: str) -> Quantity | None:
        """The offset of an antenna, None where it has none."""
        own: Quantity | None = self.antenna.get(antenna, {}).get("offset")
        if own is not None or (self.antennas is not None and antenna not in self.antennas):
            return own
        common: Quantity | None = self.offset
        return common


def _angle(value: Entry) -> Quantity:
    return quantity(value, ANGLE)


def _rotation(value: Entry) -> str:
    if isinstance(value, bool):
        return "present" if value else "none"
    if value not in ROTATIONS:
        raise ModelError(
            f"one of {', '.join(ROTATIONS)}, found {short_repr(value)}{did_you_mean(value, ROTATIONS)}"
        )
    return str(value)


def rotation_of(feeds: Feeds | None) -> str:
    """What a model says of the rotation of feeds, one of `ROTATIONS`: "corrected" if it says nothing."""
    return "corrected" if feeds is None else str(feeds.rotation)


def is_mixed(corr_type: tuple[str, ...]) -> bool:
    """Whether correlations are those of circular with linear feeds: RX, RY, ..."""
    return any(set(name) & set("RL") and set(name) & set("XY") for name in corr_type)


def feeds_in(corr_type: tuple[str, ...]) -> tuple[int, ...]:
    """Which feeds of antennas correlations have: 0 of XX and RR, 1 of YY and LL, both of others."""
    letters = set("".join(corr_type))
    found = tuple(feed for feed, names in enumerate(("XR", "YL")) if letters & set(names))
    return (0, 1) if basis_of(corr_type) is None else found


def basis_of(corr_type: tuple[str, ...]) -> Basis | None:
    """Which feeds correlations are of; None of Stokes parameters, of feeds of both kinds, or of nothing."""
    letters = set("".join(name for name in corr_type if len(name) == 2))
    if is_mixed(corr_type):
        return None
    if letters & set("RL"):
        return "circular"
    return "linear" if letters & set("XY") else None
