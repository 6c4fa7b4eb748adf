"""Models of lists with priors: from their fluxes and sizes, and the beam and noise of data."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from biro.display.formatting import ANGLES, FLUXES, Unit, angle_text, unit_for
from biro.errors import InputError
from biro.io.sky_files import text_reader
from biro.models import Fixed, Normal, SkyModel, Uniform, read_model
from biro.models.components.source import Source, si_value
from biro.models.files.difmap import read_difmap, read_marks
from biro.models.quantities.units import ANGLE, FLUX
from biro.observation.feeds.pointing import distance
from biro.observation.noise import measure_noise
from biro.observation.observation import Observation
from biro.observation.uv_extent import field_of_view, uv_extent
from biro.run.log_file import NOTICE
from biro.source_finding.fitting.component import MIN_RATIO
from biro.source_finding.proposed_model import Quantities, around, rounded

log = logging.getLogger(__name__)
_INDEX = "spectral_index"
FAR_VIEWS = 3.0
"""Fields of view from the phase centre beyond which a source is not in the field."""
FAR = math.radians(5.0)
"""Distance from the phase centre for the same, rad, where the dishes have no known diameter."""


def scales_of(observation: Observation) -> tuple[float, float]:
    """The beam, rad, and the noise of a flux that is fitted to all data, Jy.

    The beam is 1 / longest baseline in wavelengths; the noise is that of the weights, times the factor by
    which the data scatter more, where that can be measured.

    Raises
    ------
    InputError
        No baseline is longer than 0.
    """
    longest = uv_extent(observation.partitions).wavelengths[1]
    if not longest > 0.0:
        raise InputError(
            "no baseline is longer than 0, so the data have no beam for the widths of the priors"
        )
    weight = sum(float(part.row_weight.sum()) for part in observation.partitions)
    ratio = measure_noise(observation.partitions).ratio
    factor = ratio if math.isfinite(ratio) and ratio > 0.0 else 1.0
    return 1.0 / longest, factor / math.sqrt(weight) if weight > 0.0 else 0.0


def other_field(sky: SkyModel, observation: Observation) -> str:
    """A line where every source is far from the field of the data; empty where one is not.

    Far is beyond three times lambda / D of the smallest dish, and beyond `FAR` where no diameter is known.
    """
    parts = observation.partitions
    view = max(field_of_view(part, observation.dish_diameter) for part in parts)
    nearest = math.inf
    for source in sky.sources:
        ra, dec = (_plain(getattr(source, key)) for key in ("ra", "dec"))
        if ra is None or dec is None:
            return ""
        place = (si_value(ra, ANGLE), si_value(dec, ANGLE))
        nearest = min(nearest, *(distance(place, part.phase_centre) for part in parts))
    if not (FAR_VIEWS * view or FAR) < nearest < math.inf:
        return ""
    return (
        f"{observation.source}: no source is in the field: the nearest is {angle_text(nearest)} from the "
        "phase centre. Check that the list is of this field"
    )


def with_marked(sky: SkyModel, path: Path, observation: Observation) -> SkyModel:
    """The sky model of a list as a fit takes it: numbers of a difmap model that a "v" marks get priors.

    Numbers without a mark, and those of other lists, stay fixed; a line of the log says so where nothing is
    free.
    """
    reader = text_reader(path)
    marks = read_marks(path) if reader is read_difmap else {}
    if line := other_field(sky, observation):
        log.warning("%s", line)
    if marks:
        free = with_priors(sky, *scales_of(observation), marks)
        log.log(NOTICE, "priors of the values marked v in %s: %s", path, _listed(free, marks))
        return free
    if reader is not read_model:
        log.warning(
            "%s is a list without priors, so its sources stay fixed. `biro convert %s sky.toml --free "
            "--data OBS` writes priors", path, path
        )  # fmt: skip
    return sky


def _listed(sky: SkyModel, marks: Mapping[str, Sequence[str]]) -> str:
    """The priors of the marked values, as "core.I 0.26 .. 0.78 Jy"."""
    texts = []
    for source in sky.sources:
        for key in marks.get(source.name, ()):
            prior = getattr(source, key, None)
            prior = prior[0] if isinstance(prior, tuple) and len(prior) == 1 else prior
            if isinstance(prior, Uniform):
                texts.append(f"{source.name}.{key} {prior.low:.4g} .. {prior.high:.4g} {prior.unit}".strip())
            elif isinstance(prior, Normal):
                texts.append(f"{source.name}.{key} {prior.mean:.4g} +- {prior.sd:.4g} {prior.unit}".strip())
    return ", ".join(texts)


def with_priors(
    sky: SkyModel, beam_size: float, noise: float, only: Mapping[str, Sequence[str]] | None = None
) -> SkyModel:
    """A model of numbers with priors in place of its fluxes, positions, sizes and angles.

    The priors are those of `propose`: half of a flux or ten noises to either side, and not across 0; half a
    beam or half a source around positions; sizes up to three times theirs or to a beam; any ratio of axes,
    any position angle. What is no plain number stays as it is.

    Parameters
    ----------
    sky : SkyModel
    beam_size : float, rad
    noise : float, Jy
        Of a flux that is fitted to all data.
    only : mapping of str to sequence of str, optional
        Keys that get priors, by name of the source; by default all, of all sources.
    """
    angle = unit_for([max(beam_size, 1e-15)], ANGLES)
    flux = unit_for([abs(si_value(i, FLUX)) for one in sky.sources if (i := _plain(one.I))] or [1.0], FLUXES)
    sources = []
    for source in sky.sources:
        keys = _FREED if only is None else only.get(source.name, ())
        priors = _priors(source, keys, beam_size, noise, angle, flux)
        sources.append(replace(source, **priors))
    return replace(sky, sources=sources)


_FREED = ("I", "east", "north", "ra", "dec", "emaj", "emin", "ratio", "pa", "fwhm", "diameter")


def _plain(entry: Any) -> Fixed | None:
    """A quantity that is one number; None where it is a prior, a tie, or a list."""
    one = entry[0] if isinstance(entry, tuple) and len(entry) == 1 else entry
    return one if isinstance(one, Fixed) else None


def _priors(
    source: Source, keys: Sequence[str], beam: float, noise: float, angle: Unit, flux: Unit
) -> Quantities:
    """Priors by key, in place of the plain numbers of a source."""
    given = {key: one for key in keys if (one := _plain(getattr(source, key, None))) is not None}
    of_angles = {key: si_value(one, ANGLE) for key, one in given.items() if key not in ("I", "ratio", _INDEX)}
    size = next((abs(of_angles[key]) for key in ("emaj", "fwhm", "diameter") if key in of_angles), 0.0)
    reach, largest = max(0.5 * beam, 0.5 * size), max(3.0 * size, beam)
    dec = _plain(getattr(source, "dec", None))
    found: Quantities = {}
    for key, one in given.items():
        if key == "I":
            found[key] = _flux_prior(si_value(one, FLUX), noise, flux)
        elif key == _INDEX:
            found[key] = Normal(rounded(one.value, 0.01), 0.5)
        elif key == "ratio":
            found[key] = Uniform(min(MIN_RATIO, one.value), 1.0)
        elif key == "pa":
            found[key] = Uniform(0.0, 180.0, "deg")
        elif key in ("east", "north"):
            found[key] = around(of_angles[key], reach, angle)
        elif key in ("ra", "dec"):
            wide = reach / max(np.cos(si_value(dec, ANGLE)), 0.01) if key == "ra" and dec else reach
            low, high = (float(np.rad2deg(of_angles[key] + sign * wide)) for sign in (-1.0, 1.0))
            found[key] = Uniform(low, high, "deg")
        else:
            found[key] = around(0.5 * largest, 0.5 * largest, angle, positive=True)
    if "emin" in found:  # an axis that must not pass the other one is a ratio
        del found["emin"]
        found |= {"emin": None, "ratio": Uniform(MIN_RATIO, 1.0)}
    return found


def _flux_prior(value: float, noise: float, unit: Unit) -> Uniform:
    """Around a flux, on its side of 0."""
    found = around(abs(value), max(0.5 * abs(value), 10.0 * noise), unit, positive=True)
    return found if value >= 0.0 else Uniform(-found.high, -found.low, found.unit)
