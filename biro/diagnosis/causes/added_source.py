"""One source more in a sky model, where the residual image is brightest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from biro.diagnosis.causes.brightness import place_text
from biro.diagnosis.causes.samples import ResidualSamples
from biro.diagnosis.causes.sky_changes import SkyChange
from biro.diagnosis.causes.source import (
    MIN_SAMPLES,
    MOST_THIN,
    ResidualSource,
    StokesView,
    fit_source,
    highest_few,
    refined,
)
from biro.models.components.direction import Centre, lm_to_radec, radec_to_lm
from biro.models.components.source import GaussianSource, PointSource
from biro.models.errors import ModelError
from biro.models.quantities.prior import Uniform
from biro.models.sky import SkyModel

MISSING, MISSING_EXTENDED = "missing source", "missing extended source"
ARCSEC = np.pi / 180.0 / 3600.0
SIZES = (0.5, 1.5)
"""FWHM that a Gaussian begins with, in beams."""


def added_sources(
    sky: SkyModel, samples: ResidualSamples, beam: float, origin: Centre
) -> Iterator[SkyChange]:
    """A point, or a circular Gaussian, at the highest peaks of the residuals of the first field.

    Parameters
    ----------
    sky : SkyModel
    samples : ResidualSamples
    beam : float, rad
        Half the width of the PSF.
    origin : (float, float), rad
        Where east and north of the model begin.
    """
    field = samples.parts[0].phase_centre
    own = StokesView.of(samples, field, "I").own
    if own.n < MIN_SAMPLES or not np.ptp(own.uvw[:2]) > 0.0:
        return
    thin = own.only(np.arange(own.n) % -(-own.n // MOST_THIN) == 0)
    peaks, places = highest_few(own)
    name = next(each for each in ("new", *(f"new{i}" for i in range(2, 10_000))) if each not in _names(sky))
    for peak in peaks:
        there = refined(thin, peak)
        flux = fit_source(thin, there)[0]
        if not flux > 0.0:
            continue
        try:
            at = radec_to_lm(*lm_to_radec(there.east, there.north, field), origin)
        except ModelError:
            continue
        yield from _at(sky, name, there, at, flux, beam, places)


def _names(sky: SkyModel) -> set[str]:
    return {source.name for source in sky.sources}


def _at(
    sky: SkyModel,
    name: str,
    there: ResidualSource,
    at: tuple[float, float],
    flux: float,
    beam: float,
    places: float,
) -> Iterator[SkyChange]:
    east, north = (value / ARCSEC for value in at)
    reach, unit = _round(3.0 * beam / ARCSEC), "arcsec"
    step = reach / 100.0
    entries = {
        "east": _between(east, reach, step, unit),
        "north": _between(north, reach, step, unit),
        "I": Uniform(0.0, _round(5.0 * flux), "Jy"),
    }
    start = {f"{name}.east": east, f"{name}.north": north, f"{name}.I": flux}
    size = Uniform(0.0, _round(10.0 * beam / ARCSEC), unit)
    place = place_text(there.east, there.north)
    for kind, source, n_new, starts in (
        (MISSING, PointSource(name, **entries), 3, (start,)),
        (
            MISSING_EXTENDED,
            GaussianSource(name, fwhm=size, **entries),
            4,
            tuple(start | {f"{name}.fwhm": part * beam / ARCSEC} for part in SIZES),
        ),
    ):
        what = "Extended emission" if kind == MISSING_EXTENDED else "A source"
        yield SkyChange(
            kind,
            replace(sky, sources=(*sky.sources, source)),
            name,
            ("name", "type", *entries, *["fwhm"] * (n_new == 4)),
            n_new,
            starts,
            f"{what} is missing about {place} of the phase centre",
            "Add it to the model",
            places=places,
        )


def _round(value: float) -> float:
    return float(f"{value:.2g}")


def _between(value: float, reach: float, step: float, unit: str) -> Uniform:
    digits = max(0, 1 - int(np.floor(np.log10(step))))
    return Uniform(round(value - reach, digits), round(value + reach, digits), unit)
