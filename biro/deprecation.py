"""Earlier names: each works, with a `DeprecationWarning`, as long as CONTRIBUTING promises (Deprecations)."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from biro.errors import InputError
from rime_kernels import deprecation
from rime_kernels.deprecation import warn_renamed

ALIASES = {
    "image(n_pixel=)": ("image(size=)", "0.3"),
    "Imaging(n_pixel=)": ("Imaging(size=)", "0.3"),
    "Likelihood.forms": ("Likelihood.choices.forms", "0.3"),
    "Likelihood.precision_reason": ("Likelihood.choices.precision", "0.3"),
    "Likelihood.smearing_lines": ("Likelihood.choices.smearing", "0.3"),
    "Likelihood.gains_lines": ("Likelihood.choices.gains", "0.3"),
    "Likelihood.average_lines": ("Likelihood.choices.average", "0.3"),
    "Likelihood.smearing": ("Likelihood.options.smearing", "0.3"),
    "Likelihood.gaussian_frame": ("Likelihood.options.gaussian_frame", "0.3"),
    "Likelihood.memory_limit": ("Likelihood.options.memory_limit", "0.3"),
    "Likelihood.devices": ("Likelihood.options.devices", "0.3"),
    "Likelihood.image_accuracy": ("Likelihood.options.image_accuracy", "0.3"),
    "Likelihood.image_engine": ("Likelihood.options.image_engine", "0.3"),
    "Observation.is_held": ("Observation.is_distributed", "0.3"),
    "Observation.by_hands": ("Observation.split_parallel_cross", "0.3"),
    "Partition.held": ("Partition.distributed", "0.3"),
    "Partition.held_by": ("Partition.distributed_over", "0.3"),
    "Partition.shards": ("Partition.block_rows", "0.3"),
    "Partition.by_shard": ("Partition.by_block", "0.3"),
    **deprecation.ALIASES,
}
"""Each earlier name, its present name, and the release in which it changed."""


def with_new_names(
    options: Mapping[str, object], renamed: Mapping[str, str], caller: str
) -> dict[str, object]:
    """Keyword arguments by their present names.

    Raises
    ------
    InputError
        An argument is given by both names.
    """
    given = dict(options)
    for old, new in renamed.items():
        if old in given:
            if new in given:
                raise InputError(f"{caller}: {old} is the earlier name of {new}; give {new} alone")
            earlier = f"{caller}({old}=)"
            warn_renamed(earlier, *ALIASES[earlier])
            given[new] = given.pop(old)
    return given


def by_earlier_name(owner: object, name: str) -> object:
    """An attribute by an earlier name.

    Raises
    ------
    AttributeError
        No attribute had this name.
    """
    of_class = type(owner).__name__
    earlier = f"{of_class}.{name}"
    if earlier not in ALIASES:
        raise AttributeError(f"{of_class!r} object has no attribute {name!r}", name=name, obj=owner)
    warn_renamed(earlier, *ALIASES[earlier])
    return attrgetter(ALIASES[earlier][0].removeprefix(f"{of_class}."))(owner)
