"""Rows of a tempered run as the sources of draws, in rad and Jy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.imaging.psf import RestoringBeam
from biro.models import Fixed, Population
from biro.models.components.source import DIMENSIONS
from biro.models.quantities.units import convert, factor
from biro.source_finding.populations.results.draws import SourceDraws
from biro.source_finding.populations.scales import Scales
from biro.source_finding.populations.space import NO_SOURCE, PopulationSpace

Array = NDArray[np.float64]
_OF_SHAPE = ("emaj", "emin", "ratio", "fwhm", "pa")
_FWHM = float(np.sqrt(8.0 * np.log(2.0)))


def source_draws(space: PopulationSpace, name: str, rows: Array, population: Population) -> SourceDraws:
    """The sources of all rows.

    Parameters
    ----------
    space : PopulationSpace
    name : str
    rows : float64 (n_draw, n_row)
    population : Population
        Its numbers without a prior are those of all sources.
    """
    slots = space.slots_of(rows)
    exists = slots[..., 0] != NO_SOURCE
    draw, kind = np.nonzero(exists)[0], slots[..., 0][exists].astype(np.int8)
    found = {
        quantity.key: slots[..., 1 + i][exists] * _unit(quantity.key, quantity.unit)
        for i, quantity in enumerate(space.quantities)
    }
    for key in DIMENSIONS:
        given = getattr(population, key, None)
        if isinstance(given, tuple) and len(given) == 1:
            given = given[0]
        if isinstance(given, Fixed):
            found.setdefault(key, np.full(len(draw), given.value * _unit(key, given.unit)))
    index = population.spectral_index
    if isinstance(index, tuple) and len(index) == 1 and isinstance(index[0], Fixed):
        found.setdefault("spectral_index", np.full(len(draw), index[0].value))
    extended = np.array([kind != "point" for kind in space.kinds])[kind]
    found |= {key: np.where(extended, of, np.nan) for key, of in _shape(found).items()}
    values = {key: of for key, of in found.items() if key not in ("ratio", "fwhm", "ref_freq")}
    return SourceDraws(name, space.kinds, len(rows), draw.astype(np.int64), kind, values)


def _shape(found: dict[str, Array]) -> dict[str, Array]:
    """Axes and position angle, whichever way they are given."""
    if "fwhm" in found:
        return {"emaj": found["fwhm"], "emin": found["fwhm"], "pa": np.zeros_like(found["fwhm"])}
    if "emaj" not in found:
        return {}
    minor = found["emaj"] * found["ratio"] if "ratio" in found else found.get("emin", found["emaj"])
    return {"emaj": found["emaj"], "emin": minor, "pa": found.get("pa", np.zeros_like(minor))}


def _unit(key: str, unit: str) -> float:
    """A unit of a quantity in rad, Jy and Hz."""
    if key not in DIMENSIONS or not unit:
        return 1.0
    return factor(unit, DIMENSIONS[key])


def beam_of(space: PopulationSpace, scales: Scales) -> RestoringBeam:
    """The beam of natural weights, from the curvature of its peak.

    Parameters
    ----------
    space : PopulationSpace
    scales : Scales
    """
    sizes = [convert(1.0, space.quantities[i].unit, "rad") for i in space.place]
    # Columns: what the beam's circle of size 1 is on the sky.
    axes = np.diag(sizes) @ np.linalg.inv(scales.whitening)
    turn, lengths, _ = np.linalg.svd(axes)
    east, north = turn[:, 0]
    pa = float(np.mod(np.arctan2(east, north), np.pi))
    return RestoringBeam(_FWHM * float(lengths[0]), _FWHM * float(lengths[1]), pa)
