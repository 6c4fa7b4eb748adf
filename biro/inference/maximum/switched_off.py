"""Parameters of a source that have no effect where another one is 0, its flux density or its size, say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from biro.models.components.shapes.kinds import SHAPED

_NAME = re.compile(
    r"([^\[]*?)\.((?:line|table|orbit|spectral_index|log10_spectrum|polynomial)\.)?([^.\[]+)(\[.*)?"
)
"""Source, table with its dot, key and index of a parameter: "jet", "", "coefficients", "[0]"."""
_POLARISED = frozenset({"Q", "U", "V"})
_ROTATION = frozenset({"rm", "rm_width", "rm_scatter"})
_OF_SIZE = frozenset(
    {"ratio", "pa", "hole_pa", "axis_pa", "limb_darkening", "inner_ratio", "offset", "floor", "n", "beta"}
    | {"core_fraction", "beta_re", "beta_im", "coefficients"}
)
"""What the visibilities of a source without a size do not depend on."""
_SIZES = {"emaj", "fwhm"} | {kind.size_key for kind in SHAPED.values()}
_OFF: dict[str, frozenset[str]] = {
    **dict.fromkeys(_SIZES, _OF_SIZE),
    "inner_ratio": frozenset({"offset", "floor", "hole_pa"}),
    "offset": frozenset({"hole_pa"}),
    "core_fraction": frozenset({"core_fwhm"}),
    "pol_fraction": _ROTATION | {"pol_angle"},
    "Q": _ROTATION,
    "U": _ROTATION,
    "v_fraction": frozenset({"v_index"}),
    "V": frozenset({"v_index"}),
}
"""Keys of a source that have no effect where another one is 0, beside those that I = 0 makes idle."""


def switched_off(
    names: Sequence[str],
    limits: Iterable[str],
    near_zero: Iterable[str],
    directions: Iterable[Sequence[str]],
) -> dict[str, list[str]]:
    """Parameters that are 0, with those of their source that have no effect then.

    A direction in which the data determine nothing counts only where the zeros explain all of its members.

    Parameters
    ----------
    names : sequence of str
        Of all parameters.
    limits : iterable of str
        Parameters that cannot be negative and are 0 within their error.
    near_zero : iterable of str
        All parameters that are 0 within their error.
    directions : iterable of sequences of str
        Parameters of each direction in which the data determine nothing.
    """
    small = set(near_zero)
    parts = {name: _parts(name) for name in names}
    known = {name for name in limits if _is_whole(name, parts, small)}
    found: dict[str, set[str]] = {}
    for members in directions:
        reasons = {
            member: next((zero for zero in names if zero in known and _explains(zero, member, parts)), None)
            for member in members
        }
        if None not in reasons.values():
            for member, zero in reasons.items():
                found.setdefault(str(zero), set()).add(member)
    return {zero: [name for name in names if name in members] for zero, members in found.items()}


def _parts(name: str) -> tuple[str, str, str]:
    """Source, key and index; the key of a table is that table."""
    match = _NAME.fullmatch(name)
    if match is None:
        return "", name, ""
    source, table, key, index = match.groups()
    return source, (table or key).rstrip("."), index or ""


def _is_whole(name: str, parts: Mapping[str, tuple[str, str, str]], small: set[str]) -> bool:
    """Whether a parameter that is 0 leaves nothing of its kind, as I does beside Q, U and V that are 0."""
    source, key, index = parts[name]
    beside = {"I": _POLARISED, "Q": {"U"}, "U": {"Q"}}.get(key, frozenset())
    rest = (each for each, (owner, of, _) in parts.items() if owner == source and of in beside)
    return not index and small.issuperset(rest)


def _explains(zero: str, member: str, parts: Mapping[str, tuple[str, str, str]]) -> bool:
    """Whether a parameter of a source has no effect where another one is 0."""
    (source, key, _), (owner, of, _) = parts[zero], parts[member]
    if source != owner or zero == member:
        return False
    return of not in _POLARISED if key == "I" else of in _OFF.get(key, ())
