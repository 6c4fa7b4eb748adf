"""What parameters are called in pictures, and which of them are chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from biro.display.formatting import given_text
from biro.errors import InputError
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.table import NOISE
from biro.models.components.antenna_terms.gain import is_gain
from biro.models.quantities.parameter import Column

WITH_NOISE = 8
"""Parameters of a model up to which its noise factors are shown without being asked for."""


def parameter_text(column: Column, *, lines: bool = True) -> str:
    """The name of a parameter as tables have it, with its unit on a line of its own or behind it."""
    name = column.name.replace("[", "\n[") if lines else column.name
    return f"{name}{chr(10) if lines else ' '}[{column.unit}]" if column.unit else name


def chosen_columns(posterior: Posterior, names: Sequence[str] | None) -> list[Column]:
    """Columns of a posterior by name, in the order of the names.

    Parameters
    ----------
    posterior : Posterior
    names : sequence of str or None
        "jet.I" is a parameter, "jet" all parameters of that source, "*.I" all that fit when * stands for any
        text. A text is a list of one. None: all without gains, without noise factors where there are more
        than eight parameters.

    Raises
    ------
    InputError
        A name that no parameter has.
    """
    if not isinstance(names, Iterable | None) or isinstance(names, Mapping):
        raise InputError(f"names must be a list of names of parameters, got {given_text(names)}")
    names = [names] if isinstance(names, str) else names
    if names is None:
        return [column for column in posterior.columns if column.name in default_names(posterior)]
    found: dict[str, Column] = {}
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"names must be names of parameters, got {given_text(name)}")
        fits = re.compile(".*".join(map(re.escape, name.split("*"))) + r"(\..*)?")
        columns = [column for column in posterior.columns if column.name == name]
        columns = columns or [column for column in posterior.columns if fits.fullmatch(column.name)]
        if not columns:
            raise InputError(f"no parameter {name!r}; there are {', '.join(posterior.names)}")
        found |= {column.name: column for column in columns}
    return list(found.values())


def default_names(posterior: Posterior) -> tuple[str, ...]:
    """Names of the parameters that are shown when none are asked for."""
    sky = tuple(name for name in posterior.names if not is_gain(name))
    if 0 < len(sky) < posterior.n_param:
        return sky
    without = tuple(name for name in posterior.names if not name.startswith(NOISE))
    return posterior.names if posterior.n_param <= WITH_NOISE or not without else without
