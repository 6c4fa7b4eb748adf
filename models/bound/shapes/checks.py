"""Functions of a user's own, tried before they are fitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.models.errors import ModelError
from rime_kernels.arrays import Sources

if TYPE_CHECKING:
    from rime_kernels.physics.registered import RegisteredProfile

# Baselines, wavelengths, at which functions are tried where the data state none.
_ANY_LENGTH = 1e6


def check_functions(names: Sequence[str], sources: Sources, longest: float) -> None:
    """Try functions that are registered at baselines from 0 to the longest.

    Parameters
    ----------
    names : sequence of str
        Of all sources; those with such functions are the last.
    sources : Sources
        Of a batch of one.
    longest : float, wavelengths

    Raises
    ------
    ModelError
        A function gives NaN or infinity; says where.
    """
    from rime_kernels.physics.registered import profiles_of

    assert sources.profile is not None, "there are functions"
    assert sources.profile_kind is not None, "there are functions"
    kinds, own = sources.profile_kind.tolist(), slice(-sources.n_profile, None)
    known = {each.code: each for each in profiles_of(kinds)}
    each_profile = zip(names[own], kinds, sources.shape[0, own], sources.profile[0], strict=True)
    for name, code, (major, minor, pa), numbers in each_profile:
        if code not in known:
            continue
        for length in (longest or _ANY_LENGTH) * np.array([0.0, 1e-3, 0.1, 0.5, 1.0]):
            for turn in 0.3 + 0.5 * math.pi * np.arange(4):
                u, v = length * math.sin(turn), length * math.cos(turn)
                a = major * (u * math.sin(pa) + v * math.cos(pa))
                b = minor * (u * math.cos(pa) - v * math.sin(pa))
                if not np.isfinite(known[code].visibility(a, b, *numbers)).all():
                    raise ModelError(
                        f"source {name!r}: the function of profile {known[code].name!r} gives NaN or "
                        f"infinity at u = {u:.6g}, v = {v:.6g} wavelengths{_given(known[code], numbers)}"
                    )


def _given(profile: RegisteredProfile, numbers: NDArray[np.float64]) -> str:
    """The parameters of a function, in words."""
    pairs = zip(profile.parameters, numbers.tolist(), strict=False)
    given = ", ".join(f"{key} = {value:.6g}" for key, value in pairs)
    return f" with {given} (the middle of the priors)" if given else ""
