"""A sky model from sources that were found: priors around them, in units that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from biro.models import Fixed, GaussianSource, Normal, PointSource, SkyModel, Uniform

if TYPE_CHECKING:
    from biro.source_finding.find import FoundSource

_ANGLES = tuple(
    (np.pi / 180 / size, unit)
    for size, unit in ((1.0, "deg"), (60.0, "arcmin"), (3600.0, "arcsec"), (3.6e6, "mas"), (3.6e9, "uas"))
)
_FLUXES = ((1.0, "Jy"), (1e-3, "mJy"), (1e-6, "uJy"))


def propose(
    sources: Sequence[FoundSource],
    centre: tuple[float, float],
    ref_freq: float,
    *,
    size: float = 0.0,
    free: bool = True,
) -> SkyModel:
    """The model of some sources.

    Priors are uniform: positions within half a beam or half a source of what was found (or ten errors, where
    these are more), fluxes from half to one and a half times (or ten errors on either side, but not below
    0), the major axis up to three times or to a beam, any ratio of axes and position angle. Spectral indices
    are normal with a standard deviation of 0.5 (or five errors).

    Parameters
    ----------
    sources : sequence of FoundSource
    centre : (float, float), rad
        Phase centre, from which offsets are counted.
    ref_freq : float, Hz
    size : float, rad
        FWHM of the beam.
    free : bool
        False: everything fixed as found.
    """
    made = [_free(source, size) if free else _fixed(source) for source in sources]
    spectral = any(source.spectral_index_err for source in sources)
    return SkyModel(made, centre=centre, ref_freq=Fixed(ref_freq, "Hz") if spectral else None)


def _fixed(source: FoundSource) -> Any:
    given: dict[str, Any] = {
        "east": Fixed(source.east, "rad"),
        "north": Fixed(source.north, "rad"),
        "I": Fixed(source.flux, "Jy"),
    }
    if source.spectral_index_err:
        given["spectral_index"] = source.spectral_index
    if source.kind == "point":
        return PointSource(source.name, **given)
    shape = (Fixed(value, "rad") for value in (source.emaj, source.emin, source.pa))
    return GaussianSource(source.name, **given, **dict(zip(("emaj", "emin", "pa"), shape, strict=True)))


def _free(source: FoundSource, size: float) -> Any:
    reach = max(0.5 * size, 0.5 * source.emaj, 10.0 * source.position_err)
    given: dict[str, Any] = {
        "east": _around(source.east, reach, _ANGLES),
        "north": _around(source.north, reach, _ANGLES),
        "I": _around(source.flux, max(0.5 * source.flux, 10.0 * source.flux_err), _FLUXES, positive=True),
    }
    if source.spectral_index_err:
        sd = max(0.5, 5.0 * source.spectral_index_err)
        given["spectral_index"] = Normal(_digits(source.spectral_index, 0.01), _digits(sd, 0.01))
    if source.kind == "point":
        return PointSource(source.name, **given)
    largest = max(3.0 * source.emaj, size)
    turn = float(np.round(np.rad2deg(source.pa)))
    shape = {
        "emaj": _around(0.5 * largest, 0.5 * largest, _ANGLES, positive=True),
        "ratio": Uniform(0.0, 1.0),
        "pa": Uniform(turn - 90.0, turn + 90.0, "deg"),
    }
    return GaussianSource(source.name, **given, **shape)


def _around(
    value: float, reach: float, units: Sequence[tuple[float, str]], *, positive: bool = False
) -> Uniform:
    """Uniform within `reach` of a value, in a unit in which the reach is a number of some size."""
    scale, unit = next((item for item in units if reach >= 0.5 * item[0]), units[-1])
    step = 10.0 ** (np.floor(np.log10(reach / scale)) - 2.0)
    low, high = (
        np.floor((value - reach) / scale / step) * step,
        np.ceil((value + reach) / scale / step) * step,
    )
    return Uniform(
        max(0.0, _digits(low, step)) if positive else _digits(low, step), _digits(high, step), unit
    )


def _digits(value: float, step: float) -> float:
    """A number without digits below the step."""
    return float(round(value, max(0, -int(np.floor(np.log10(step))))))
