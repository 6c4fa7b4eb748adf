"""Propose a sky model from sources that were found, with priors around them in readable units."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from biro.display.formatting import ANGLES, FLUXES, Unit, unit_for
from biro.models import Fixed, GaussianSource, Normal, Order, PointSource, SkyModel, Uniform
from biro.source_finding.fitting.component import MIN_RATIO
from biro.source_finding.found_sources import FoundSource

Quantities = dict[str, Any]
"""Keyword arguments of a source: numbers, fixed values and priors; the source checks them."""
APART = 4.0
"""Errors between two sources from which a constraint on their order cuts nothing off their posterior."""


def propose(
    sources: Sequence[FoundSource],
    centre: tuple[float, float],
    ref_freq: float,
    *,
    beam_size: float = 0.0,
    free: bool = True,
) -> SkyModel:
    """The sky model of sources that were found.

    Priors are uniform: positions within half a beam or half a source of the fitted position (or ten errors,
    where these are more), fluxes from half to one and a half times the fitted flux (or ten errors on either
    side, but not below 0), the major axis or diameter up to three times the fitted one or to a beam, any
    ratio of axes from `MIN_RATIO` on, and any position angle. Spectral indices are normal with a standard
    deviation of 0.5 (or five errors). Two sources of which each could take the other's place within these
    priors get a constraint on the order of the quantity that tells them apart best.

    Parameters
    ----------
    sources : sequence of FoundSource
    centre : (float, float), rad
        Phase centre, from which offsets are counted.
    ref_freq : float, Hz
    beam_size : float, rad
        FWHM of the beam.
    free : bool
        False: every parameter is fixed at its fitted value.
    """
    # One unit for all places and sizes, and one for all fluxes, so that the sources of a table compare.
    angle = unit_for((_reach(source, beam_size) for source in sources), ANGLES)
    flux = unit_for((source.flux for source in sources), FLUXES)
    components = [_free(source, beam_size, angle, flux) if free else _fixed(source) for source in sources]
    spectral = any(source.spectral_index_err for source in sources)
    return SkyModel(
        components,
        centre=centre,
        ref_freq=Fixed(ref_freq, "Hz") if spectral else None,
        constraints=_orders(sources, beam_size) if free else (),
    )


def _orders(sources: Sequence[FoundSource], beam_size: float) -> list[Order]:
    """Constraints without which a fit could exchange two sources: each would then be in the other's place."""
    orders = []
    for pair in combinations(sources, 2):
        (first, second) = ({"I": (s.flux, s.flux_err, _flux_reach(s))} | {
            key: (value, s.position_err, _reach(s, beam_size))
            for key, value in (("east", s.east), ("north", s.north))
        } for s in pair)  # fmt: skip
        apart, can_change = {}, True
        for key, (value, error, reach) in first.items():
            other, other_error, other_reach = second[key]
            far = abs(value - other)
            can_change &= far < min(reach + APART * other_error, other_reach + APART * error)
            apart[key] = far / max(np.hypot(error, other_error), 1e-300)
        best = max(apart, key=lambda key: apart[key])
        if can_change and apart[best] > APART:
            names = [f"{s.name}.{best}" for s in pair]
            orders.append(Order(names if first[best][0] > second[best][0] else names[::-1]))
    return orders


def _fixed(source: FoundSource) -> PointSource | GaussianSource:
    quantities: Quantities = {
        "east": Fixed(source.east, "rad"),
        "north": Fixed(source.north, "rad"),
        "I": Fixed(source.flux, "Jy"),
    }
    if source.spectral_index_err:
        quantities["spectral_index"] = source.spectral_index
    if source.kind == "point":
        return PointSource(source.name, **quantities)
    if source.kind == "circle":
        return GaussianSource(source.name, **quantities, fwhm=Fixed(source.emaj, "rad"))
    quantities |= {
        "emaj": Fixed(source.emaj, "rad"),
        "emin": Fixed(source.emin, "rad"),
        "pa": Fixed(source.pa, "rad"),
    }
    return GaussianSource(source.name, **quantities)


def _reach(source: FoundSource, beam_size: float) -> float:
    """How far from the fitted position the prior of a position reaches, rad."""
    return max(0.5 * beam_size, 0.5 * source.emaj, 10.0 * source.position_err)


def _flux_reach(source: FoundSource) -> float:
    """How far from the fitted flux its prior reaches, Jy."""
    return max(0.5 * source.flux, 10.0 * source.flux_err)


def _free(source: FoundSource, beam_size: float, angle: Unit, flux: Unit) -> PointSource | GaussianSource:
    reach = _reach(source, beam_size)
    quantities: Quantities = {
        "east": around(source.east, reach, angle),
        "north": around(source.north, reach, angle),
        "I": around(source.flux, _flux_reach(source), flux, positive=True),
    }
    if source.spectral_index_err:
        sd = max(0.5, 5.0 * source.spectral_index_err)
        quantities["spectral_index"] = Normal(rounded(source.spectral_index, 0.01), rounded(sd, 0.01))
    if source.kind == "point":
        return PointSource(source.name, **quantities)
    largest = max(3.0 * source.emaj, beam_size)
    if source.kind == "circle":
        size = around(0.5 * largest, 0.5 * largest, angle, positive=True)
        return GaussianSource(source.name, **quantities, fwhm=size)
    pa = float(np.round(np.rad2deg(source.pa)))
    quantities |= {
        "emaj": around(0.5 * largest, 0.5 * largest, angle, positive=True),
        "ratio": Uniform(MIN_RATIO, 1.0),
        "pa": Uniform(pa - 90.0, pa + 90.0, "deg"),
    }
    return GaussianSource(source.name, **quantities)


def around(value: float, reach: float, unit: Unit, *, positive: bool = False) -> Uniform:
    """A uniform prior within `reach` of a value, with three figures of the reach."""
    step = 10.0 ** (np.floor(np.log10(reach / unit.size)) - 2.0)
    low, high = (
        np.floor((value - reach) / unit.size / step) * step,
        np.ceil((value + reach) / unit.size / step) * step,
    )
    return Uniform(
        max(0.0, rounded(low, step)) if positive else rounded(low, step),
        rounded(high, step),
        unit.name,
    )


def rounded(value: float, step: float) -> float:
    """A number rounded to the digit of a step that is a power of ten."""
    return float(round(value, max(0, -int(np.floor(np.log10(step))))))
