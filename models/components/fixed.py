"""A sky with numbers in place of the priors of its sources and images."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from biro.models.components.image_term import ImageTerm
from biro.models.components.sky import SkyDescription
from biro.models.components.source import Source
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.prior import Prior
from biro.models.quantities.strict import Entry

S = TypeVar("S", bound=SkyDescription)


def at_values(sky: S, values: Mapping[str, float]) -> S:
    """The sky with its sources and images at values of their parameters; constraints are left out.

    Parameters
    ----------
    values : mapping of str to float
        By name of the parameter, in the unit of its prior.

    Raises
    ------
    ModelError
        A parameter of a source or an image has no value.
    """
    sources, images = ([_part(one, values) for one in some] for some in (sky.sources, sky.images))
    return dataclasses.replace(sky, sources=sources, images=images, constraints=())


def _part(part: Source | ImageTerm, values: Mapping[str, float]) -> Source | ImageTerm:
    given = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    # The arguments of a user's own function are parameters of the source itself.
    own = ("parameters", "angles")
    changed = {
        key: _fixed(value, part.name if key in own else f"{part.name}.{key}", values)
        for key, value in given.items()
    }
    return dataclasses.replace(part, **changed)


def _fixed(value: Entry, name: str, values: Mapping[str, float]) -> Entry:
    if isinstance(value, Prior):
        if name not in values:
            raise ModelError(f"{name}: there is no value of this parameter")
        return Fixed(float(values[name]), value.unit)
    if isinstance(value, tuple):
        names = [name] if len(value) == 1 else [f"{name}[{i}]" for i in range(len(value))]
        return tuple(_fixed(one, each, values) for one, each in zip(value, names, strict=True))
    if isinstance(value, Mapping):
        return {key: _fixed(one, f"{name}.{key}", values) for key, one in value.items()}
    return value
