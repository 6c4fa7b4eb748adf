"""Propose a sky model from sources that were found, with priors around them in readable units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import ANGLES, FLUXES, Unit, unit_for
from biro.models import (
    Fixed,
    GaussianSource,
    HalfNormal,
    Normal,
    NumberPrior,
    Order,
    PointSource,
    Population,
    PowerLaw,
    SkyModel,
    Uniform,
)
from biro.source_finding.exchanges import KEYS, PriorLimits, keep_apart
from biro.source_finding.fitting.component import MIN_RATIO
from biro.source_finding.found_sources import FoundSource

Array = NDArray[np.float64]
Quantities = dict[str, Any]
"""Keyword arguments of a source: numbers, fixed values and priors; the source checks them."""


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
    deviation of 0.5 (or five errors). Where two sources could take each other's place within these priors,
    their priors end in the middle between them, or a constraint orders them
    (`biro.source_finding.exchanges.keep_apart`).

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
    constraints: tuple[Order, ...] = ()
    if free and sources:
        limits = limits_of(sources, beam_size)
        places = zip(sources, limits.low, limits.high, strict=True)
        components = [_free(source, low, high, beam_size, angle, flux) for source, low, high in places]
        constraints = limits.orders
    else:
        components = [_fixed(source) for source in sources]
    spectral = any(source.spectral_index_err for source in sources)
    return SkyModel(
        components,
        centre=centre,
        ref_freq=Fixed(ref_freq, "Hz") if spectral else None,
        constraints=constraints,
    )


def propose_population(sources: Sequence[FoundSource], beam_size: float, half: float) -> Population:
    """A population with the scales of sources that were found, so that their number is inferred with them.

    Places are anywhere in the image that was searched. The number has a Poisson prior with the number that
    was found for its mean. Fluxes are a power law (index 1.5) from twice the smallest error of a flux, which
    is about the noise of the image, to three times the brightest source. Sizes are half-normal with the
    larger of the beam and the largest source for their scale.

    Parameters
    ----------
    sources : sequence of FoundSource
        One at least.
    beam_size : float, rad
        FWHM of the beam.
    half : float, rad
        Half of the side of the image.
    """
    n = len(sources)
    flux = unit_for((source.flux for source in sources), FLUXES)
    low = 2.0 * min(source.flux_err for source in sources) / flux.size
    high = 3.0 * max(source.flux for source in sources) / flux.size
    size = max(beam_size, *(source.emaj for source in sources))
    angle, field = unit_for([size], ANGLES), unit_for([half], ANGLES)
    given: Quantities = {"emaj": HalfNormal(_figures(size / angle.size), angle.name)}
    if any(source.kind == "ellipse" for source in sources):
        given |= {"ratio": Uniform(0.0, 1.0), "pa": Uniform(0.0, 180.0, "deg")}
    else:
        given = {"fwhm": given["emaj"]}
    if any(source.spectral_index_err for source in sources):
        middle = float(np.median([source.spectral_index for source in sources]))
        given["spectral_index"] = Normal(rounded(middle, 0.01), 0.5)
    return Population(
        "s",
        types=["point", "gaussian"],
        number=NumberPrior("poisson", mean=float(n), high=2 * n + 10),
        I=PowerLaw(1.5, _figures(min(low, 0.1 * high)), _figures(high), flux.name),
        place=Uniform(-_figures(half / field.size), _figures(half / field.size), field.name),
        **given,
    )


def _figures(value: float) -> float:
    """A number with three figures."""
    return float(f"{value:.3g}")


def limits_of(sources: Sequence[FoundSource], beam_size: float) -> PriorLimits:
    """The limits of fluxes and positions, and the orders, of the proposed model.

    Parameters
    ----------
    sources : sequence of FoundSource
    beam_size : float, rad
        FWHM of the beam.
    """
    reach = [(_flux_reach(source), *[_reach(source, beam_size)] * 2) for source in sources]
    return keep_apart(sources, np.array(reach))


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


def _free(
    source: FoundSource, low: Array, high: Array, beam_size: float, angle: Unit, flux: Unit
) -> PointSource | GaussianSource:
    """A source with priors, those of I, east and north between these limits."""
    quantities: Quantities = {
        key: between(low[i], high[i], flux if key == "I" else angle, positive=key == "I")
        for i, key in enumerate(KEYS)
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
    quantities |= {
        "emaj": around(0.5 * largest, 0.5 * largest, angle, positive=True),
        "ratio": Uniform(MIN_RATIO, 1.0),
        "pa": Uniform(0.0, 180.0, "deg"),
    }
    return GaussianSource(source.name, **quantities)


def around(value: float, reach: float, unit: Unit, *, positive: bool = False) -> Uniform:
    """A uniform prior within `reach` of a value, with three figures of the reach."""
    return between(value - reach, value + reach, unit, positive=positive)


def between(low: float, high: float, unit: Unit, *, positive: bool = False) -> Uniform:
    """A uniform prior between limits, which are rounded outwards to three figures of half their distance."""
    step = 10.0 ** (np.floor(np.log10(0.5 * (high - low) / unit.size)) - 2.0)
    ends = [np.floor(low / unit.size / step) * step, np.ceil(high / unit.size / step) * step]
    least, most = (rounded(end, step) for end in ends)
    return Uniform(max(0.0, least) if positive else least, most, unit.name)


def rounded(value: float, step: float) -> float:
    """A number rounded to the digit of a step that is a power of ten."""
    return float(round(value, max(0, -int(np.floor(np.log10(step))))))
