"""Names of correlations, and what each has of Stokes I."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from rime_kernels.physics.brightness import stokes_to_corr

STOKES_NAMES = ("I", "Q", "U", "V")
MIXED_HANDS = ("RX", "RY", "LX", "LY", "XR", "XL", "YR", "YL")
"""Correlations of circular with linear feeds."""
KNOWN_CORRELATIONS = (*STOKES_NAMES, "RR", "RL", "LR", "LL", "XX", "XY", "YX", "YY", *MIXED_HANDS)
"""Correlations that physics: section 3 defines."""
PARALLEL_HANDS = ("RR", "LL", "XX", "YY")
"""Correlations of equal receptors, whose mean is Stokes I of an unpolarised sky."""


def check_correlations(corr_type: Sequence[str], name: str) -> None:
    """Refuse correlations that are not among `KNOWN_CORRELATIONS`; `name` is what errors call them.

    Raises
    ------
    InputError
    """
    unknown = [corr for corr in corr_type if corr not in KNOWN_CORRELATIONS]
    if unknown or not corr_type:
        raise InputError(
            f"{name}: unknown correlation {', '.join(map(repr, unknown)) or '(none given)'};"
            f" known are {', '.join(KNOWN_CORRELATIONS)}"
        )
    if len(set(corr_type)) < len(corr_type):
        raise InputError(f"{name}: {', '.join(corr_type)} has a correlation twice")


def share_of_i(corr_type: Sequence[str]) -> NDArray[np.complex128]:
    """What each correlation has of Stokes I, complex128 (n_corr,): 1 of parallel hands, 0 of cross hands.

    Correlations of circular with linear feeds have +-1 and +-i over the root of 2.
    """
    return stokes_to_corr(corr_type)[:, 0]
