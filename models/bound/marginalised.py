"""Quantities that a likelihood integrates over: which they may be, and the model with them fixed.

Visibilities must be linear in all of them together. They are sums over sources of flux times spectrum times
shape, and each of these factors is linear in some quantities: a source may have marginalised ones in one of
the three.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from biro.models.bound.prior.checks import Check
from biro.models.bound.slots import ResolvedSlots
from biro.models.components.fractions import FRACTIONS
from biro.models.components.image_term import ImageTerm
from biro.models.components.sky import SkyDescription
from biro.models.components.source import Source
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.prior import Normal, Prior
from biro.models.quantities.strict import Entry

S = TypeVar("S", bound=SkyDescription)

_FACTORS = (
    ("I", "Q", "U", "V", "scale"),
    ("polynomial", "line.height", "table.value"),
    ("coefficients", "beta_re", "beta_im", "beta_pol_re", "beta_pol_im", "beta_v_re", "beta_v_im"),
)
"""Keys in which flux, spectrum and shape are linear."""
_ALLOWED = (
    "allowed: I, Q, U, V, polynomial, height of a line, value of a linear table, beta_... of an m-ring, "
    "coefficients of shapelets, scale of an image"
)
_BOUNDED = {key for fraction in FRACTIONS for key in fraction.bounds}
_BOUNDED |= {"core_fraction", "floor", "inner_ratio", "limb_darkening", "ratio"}


def check_marginalised(sky: SkyDescription) -> None:
    """Refuse marginalised quantities in which visibilities are not linear.

    Raises
    ------
    ModelError
        Names the quantity.
    """
    for part in (*sky.sources, *sky.images):
        _check_part(part)
    for name in ("beam", "pointing", "feeds", "leakage", "gain", "ionosphere", "noise"):
        for key in _keys_of(getattr(sky, name), ""):
            raise ModelError(_not_linear(f"{name}.{key}".rstrip(".")))


def check_alone(resolved: ResolvedSlots, checks: Sequence[Check], chains: Sequence[Sequence[int]]) -> None:
    """Refuse ties to marginalised quantities, and constraints on them.

    Raises
    ------
    ModelError
        Names the two.
    """
    inner = {i: p.name for i, p in enumerate(resolved.parameters) if p.prior.marginalise}
    if not inner:
        return
    name_of = {slot: name for name, slot in resolved.slot_of.items()}
    for slot, form in resolved.forms.items():
        for i in form.parameters & inner.keys():
            if name_of[slot] != inner[i]:
                raise ModelError(
                    f"{name_of[slot]}: is tied to {inner[i]}, which is marginalised; "
                    "remove marginalise, or the tie"
                )
    demands = [(check.text, check.parameters) for check in checks]
    demands += [(f"an order with {resolved.parameters[chain[0]].name}", frozenset(chain)) for chain in chains]
    for text, parameters in demands:
        for i in parameters & inner.keys():
            raise ModelError(
                f"constraints: {text}: {inner[i]} is marginalised, over all numbers; "
                "remove marginalise, or the constraint"
            )


def with_means(sky: S) -> S:
    """The sky with means of priors in place of marginalised quantities; itself where there are none."""
    parts = (*sky.sources, *sky.images)
    if not any(True for part in parts for _ in _keys_of(part, "")):
        return sky
    sources, images = ([_at_mean(part) for part in some] for some in (sky.sources, sky.images))
    return dataclasses.replace(sky, sources=sources, images=images)


def _check_part(part: Source | ImageTerm) -> None:
    """Refuse what is wrong within one source or image."""
    of_factor: dict[int, str] = {}
    for key in _keys_of(part, ""):
        name = f"{part.name}.{key}"
        factor = next((i for i, keys in enumerate(_FACTORS) if key in keys), None)
        if factor is None or (key == "scale") != isinstance(part, ImageTerm):
            raise ModelError(_not_linear(name))
        if key == "table.value" and isinstance(part, Source) and part.table["interpolation"] != "linear":
            raise ModelError(
                f'{name}: between the knots of a table with interpolation "log" it is not linear in '
                'the values: use interpolation = "linear", or remove marginalise'
            )
        of_factor[factor] = name
    if len(of_factor) > 1:
        raise ModelError(
            f"{' and '.join(of_factor.values())} are both marginalised, but visibilities have their product: "
            "remove marginalise from one of them"
        )


def _not_linear(name: str) -> str:
    if name.rsplit(".", 1)[-1] in _BOUNDED:
        return f"{name}: lies between bounds, which an integral over all numbers does not see; {_ALLOWED}"
    return f"{name}: visibilities are not linear in it, so that it cannot be marginalised; {_ALLOWED}"


def _keys_of(value: Entry, key: str) -> Iterator[str]:
    """Keys of the marginalised quantities in a part of a model; those within tables as "line.height"."""
    if value is None or isinstance(value, (Fixed, str, bool)):
        return
    if isinstance(value, Prior):
        if value.marginalise:
            yield key
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _keys_of(item, key)
    elif isinstance(value, Mapping):
        # Tables by Stokes parameter are lists of one quantity, other tables have quantities of their own.
        for name, item in value.items():
            yield from _keys_of(item, f"{key}.{name}" if key in ("line", "table", "orbit") else key or name)
    elif dataclasses.is_dataclass(value):
        for name, item in vars(value).items():
            yield from _keys_of(item, f"{key}.{name}" if key else name)


def _at_mean(value: Entry) -> Entry:
    """The object with means in place of marginalised quantities; itself where there are none."""
    if isinstance(value, Normal):
        return Fixed(value.mean, value.unit) if value.marginalise else value
    if isinstance(value, tuple):
        items = tuple(_at_mean(item) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, Mapping):
        table = {name: _at_mean(item) for name, item in value.items()}
        return value if all(table[name] is item for name, item in value.items()) else table
    if isinstance(value, (Source, ImageTerm)):
        changed = {
            field.name: new
            for field in dataclasses.fields(value)
            if (new := _at_mean(old := getattr(value, field.name))) is not old
        }
        return dataclasses.replace(value, **changed) if changed else value
    return value
