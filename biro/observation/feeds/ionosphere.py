"""What is applied of the ionosphere, or what it may do to data of which nothing is known of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from biro.models import Ionosphere, IonosphereSamples
from biro.models.bound.antenna_terms.ionosphere import DISPERSION
from biro.models.quantities.parameter import Fixed
from rime_kernels.physics.phase import SPEED_OF_LIGHT

SMALL = np.radians(1.0)
"""Changes of phase or position angle across the band of which nothing is said."""
FAR = 1e5
"""Baselines of this length, m, and longer ones are taken to have 1 TECU more above one end, shorter ones less
in proportion: a large gradient, beyond which nothing of importance is left unsaid."""
UNITS = {"tec": "TECU", "rm": "rad/m2"}


def assumed(freq: NDArray[np.float64], longest: float, polarised: bool) -> str:
    """What an ionosphere that no model has may change across the band; empty where that is small.

    Parameters
    ----------
    freq : float64 (n_chan,), Hz
        Of all channels.
    longest : float, m
        The longest baseline.
    polarised : bool
        Whether the correlations have Q or U in them.
    """
    contents = min(1.0, longest / FAR)
    phase = abs(DISPERSION) * contents * float(np.ptp(1.0 / freq))
    turn = float(np.ptp((SPEED_OF_LIGHT / freq) ** 2)) if polarised else 0.0
    found = []
    if phase > SMALL:
        found.append(
            f"a difference of {contents:.2g} TECU between the ends of the longest baseline would change its "
            f"phase by {np.degrees(phase):.2g} deg across the band"
        )
    if turn > SMALL:
        found.append(
            f"1 rad/m2 of Faraday rotation would rotate the polarisation by {np.degrees(turn):.2g} deg "
            "across "
            "the band"
        )
    if not found:
        return ""
    text = ", and ".join(found)
    return f"biro assumes none. {text[0].upper()}{text[1:]}. To model it, write [ionosphere]"


def applied(given: Ionosphere, antennas: Collection[str]) -> str:
    """What a model applies to some antennas, and where it has it from.

    Parameters
    ----------
    given : Ionosphere
        With its files in memory.
    antennas : names
    """
    samples = [one for one in given.file or () if isinstance(one, IonosphereSamples)]
    sources = dict.fromkeys(one.source or given.kind.partition("-")[0] for one in samples)
    parts = []
    if samples:
        ranges = [text for key in UNITS if (text := _range(samples, key, antennas))]
        parts.append(f"{', '.join(ranges) or 'nothing'} from {', '.join(sources)}")
    parts += _own(given, antennas)
    return "; ".join(parts) or "nothing is applied"


def _range(samples: list[IonosphereSamples], key: str, antennas: Collection[str]) -> str:
    """The smallest and the largest value of `tec` or `rm`; empty where all are 0."""
    of_used = [
        getattr(one, key)[:, i]
        for one in samples
        for i, name in enumerate(one.antenna_names)
        if name in antennas
    ]
    values = np.concatenate(of_used) if of_used else np.zeros(1)
    return f"{key} {values.min():.3g} .. {values.max():.3g} {UNITS[key]}" if values.any() else ""


def _own(given: Ionosphere, antennas: Collection[str]) -> Iterator[str]:
    """Quantities of the model."""
    for key in UNITS:
        found = [given.quantity_of(name, key) for name in antennas]
        n_fixed = sum(isinstance(one, Fixed) for one in found)
        n_free = sum(one is not None for one in found) - n_fixed
        if n_free:
            yield f"{key} of {n_free} antennas fitted"
        if n_fixed:
            yield f"{key} of {n_fixed} antennas fixed by the model"
