"""Read priors from tables of a model file, and write them as such tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from biro.models.errors import ModelError
from biro.models.quantities.frozen_prior import Frozen
from biro.models.quantities.power_law_prior import PowerLaw
from biro.models.quantities.prior import (
    Cosine,
    HalfNormal,
    LogNormal,
    LogUniform,
    Normal,
    Prior,
    Sine,
    Triangular,
    TruncatedNormal,
    Uniform,
)
from biro.models.quantities.strict import did_you_mean, short_repr

FAMILIES: dict[str, type[Prior]] = {
    cls.family: cls
    for cls in (
        *(Uniform, LogUniform, PowerLaw, Normal, LogNormal, TruncatedNormal, HalfNormal, Triangular),
        *(Sine, Cosine),
    )
}


def from_table(table: Mapping[str, object]) -> Prior:
    """The prior of a model file's table, { prior = "normal", mean = 1, sd = 0.1, unit = "Jy" }.

    Raises
    ------
    ModelError
        An unknown family or key, or numbers that make no density.
    """
    name = table.get("prior")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ModelError(
            f"unknown prior {short_repr(name)}{did_you_mean(name, FAMILIES)}; one of: {', '.join(FAMILIES)}"
        )
    if table.get("marginalise") and name != Normal.family:
        raise ModelError(
            f'marginalise: needs prior = "normal" (a wide one where nothing is known), found {name!r}'
        )
    return FAMILIES[name](**{str(key): value for key, value in table.items() if key != "prior"})


def to_table(prior: Prior) -> dict[str, object]:
    """The table that `from_table` reads back, without the keys at their defaults."""
    if isinstance(prior, Frozen):
        raise ModelError(f"{prior!r} can be used from Python only, not written to a model file")
    table: dict[str, object] = {"prior": prior.family}
    for field in dataclasses.fields(prior):  # type: ignore[arg-type]
        value = getattr(prior, field.name)
        if value is not False and value != "" and not (isinstance(value, float) and math.isinf(value)):
            table[field.name] = value
    return table
