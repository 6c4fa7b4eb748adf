"""The catalogue of a population: sources that many draws have, with the probability that each exists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import (
    ANGLES,
    FLUXES,
    Tabular,
    Unit,
    digits_after_point,
    percent,
    plain,
    unit_for,
)
from biro.errors import InputError
from biro.files.json_value import JsonValue
from biro.imaging.psf import RestoringBeam
from biro.models.components.direction import Centre, lm_to_radec
from biro.source_finding.populations.results.clustering import cluster
from biro.source_finding.populations.results.confusion import Confusion, find_confusion
from biro.source_finding.populations.results.draws import SHAPE, SourceDraws
from biro.source_finding.populations.results.features import features
from biro.source_finding.populations.results.mixture import NONE, Problem
from biro.source_finding.populations.results.uncertainty import (
    Estimate,
    estimate,
    mean_error,
    probability_error,
)

Array = NDArray[np.float64]
PERIODS = {"pa": np.pi}
"""Period of values that wrap."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A source that many draws have.

    Estimates hold where the source exists. An interval is NaN where fewer than six independent draws have it.

    Attributes
    ----------
    name : str
    probability, error : float
        That the source exists, and one sigma by the finite number of draws.
    n_draw : int
        Draws that have it.
    ra, dec : float, rad
        ICRS, of the median offsets.
    values : mapping of str to Estimate
        "east" and "north" (rad), "I" (Jy), and whatever sources have, in rad, Jy and Hz: "emaj", "emin" and
        "pa" only over draws in which the source has a size.
    kinds : mapping of str to float
        Probability of each type where the source exists.
    typical : mapping of str to float
        Medians over the draws in which the source has its most probable type: one source of a model.
    """

    name: str
    probability: float
    error: float
    n_draw: int
    ra: float
    dec: float
    values: Mapping[str, Estimate]
    kinds: Mapping[str, float]
    typical: Mapping[str, float]

    @property
    def east(self) -> Estimate:
        """Offset to the east, rad."""
        return self.values["east"]

    @property
    def north(self) -> Estimate:
        """Offset to the north, rad."""
        return self.values["north"]

    @property
    def flux(self) -> Estimate:
        """Flux density in Stokes I, Jy."""
        return self.values["I"]

    @property
    def kind(self) -> str:
        """The most probable type."""
        return max(self.kinds, key=lambda name: self.kinds[name])

    @property
    def is_extended(self) -> bool:
        """Whether its most probable type has a major and a minor axis."""
        return all(name in self.typical for name in SHAPE)

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON; null where an interval is not known."""
        return {
            "name": self.name,
            "probability": self.probability,
            "probability_error": self.error,
            "n_draw": self.n_draw,
            "ra": self.ra,
            "dec": self.dec,
            "type": self.kind,
            "type_probability": dict(self.kinds),
            "values": {key: one.to_dict() for key, one in self.values.items()},
        }


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue(Tabular):
    """Sources that exist in more than a part `least` of the draws, the brightest first.

    Attributes
    ----------
    entries : tuple of Entry
    confusion : tuple of Confusion
        Entries that are one source in some draws, that may be exchanged, or of which one excludes another.
    n_other, n_other_error : float
        Mean number of sources in a draw that belong to no entry, and its Monte Carlo error.
    least : float
    label : int64 (n,)
        Index of the entry of each source of the draws, -1 for none.
    """

    entries: tuple[Entry, ...]
    confusion: tuple[Confusion, ...]
    n_other: float
    n_other_error: float
    least: float
    label: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __getitem__(self, name: str) -> Entry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        names = ", ".join(entry.name for entry in self.entries)
        raise InputError(f"no entry {name!r}; there are {names or 'none'}")

    def __repr__(self) -> str:
        return f"<Catalogue: {len(self)} entries; print() shows the table>"

    def above(self, probability: float) -> tuple[Entry, ...]:
        """Entries that exist with more than a probability."""
        return tuple(entry for entry in self.entries if entry.probability > probability)

    def cells(self) -> list[list[str]]:
        """Header and rows as text: fluxes in one unit, and places and sizes in one."""
        flux = unit_for((entry.flux.median for entry in self.entries), FLUXES)
        keys = ["east", "north", *(["emaj", "emin"] if any("emaj" in e.values for e in self.entries) else [])]
        angle = unit_for((e.values[k].median for e in self.entries for k in keys if k in e.values), ANGLES)
        head = ["source", "type", "P", "+-", f"I, {flux.name}", "-68 %", "+68 %"]
        for key in keys:
            head += [f"{key}, {angle.name}", "+-"]
        head += ["pa, deg", "+-"] if "emaj" in keys else []
        rows = []
        for entry in self.entries:
            digits = digits_after_point(entry.error)
            row = [entry.name, _kind_text(entry)]
            row += [
                f"{entry.probability:.{digits}f}",
                f"{entry.error:.{digits}f}",
                *_flux_texts(entry.flux, flux),
            ]
            for key in keys:
                row += _texts(entry.values.get(key), angle)
            row += _texts(entry.values.get("pa"), ANGLES[0]) if "emaj" in keys else []
            rows.append(row)
        return [head, *rows]

    def notes(self) -> list[str]:
        """Lines below the table: confusion, and sources that are no entry."""
        digits = digits_after_point(self.n_other_error)
        return [
            *(str(one) for one in self.confusion),
            f"sources in no entry (each in {percent(self.least)} of the draws at most): "
            f"{self.n_other:.{digits}f} +- {self.n_other_error:.{digits}f} expected",
        ]

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON."""
        return {
            "entries": [entry.to_dict() for entry in self.entries],
            "confusion": [one.to_dict() for one in self.confusion],
            "n_other": self.n_other,
            "n_other_error": self.n_other_error,
            "least": self.least,
        }


def make_catalogue(
    draws: SourceDraws,
    centre: Centre,
    beam: RestoringBeam,
    n_effective: float,
    *,
    least: float = 0.05,
    first_draw: int | None = None,
) -> Catalogue:
    """The catalogue of the sources of all draws.

    Parameters
    ----------
    draws : SourceDraws
    centre : (float, float), rad
        ICRS right ascension and declination from which east and north are offsets.
    beam : RestoringBeam
        Resolution of the data.
    n_effective : float
        Independent draws.
    least : float
        Entries exist with more than this probability.
    first_draw : int, optional
        The draw with the highest posterior density, tried as a first catalogue.

    Raises
    ------
    InputError
        `least` is not within 0 .. 1.
    """
    if not 0.0 < least < 1.0:
        raise InputError(f"least: a probability within 0 .. 1, got {least!r}")
    found = cluster(Problem(features(draws, beam), draws.draw, draws.n_draw), least, first_draw)
    n = len(found.entries)
    order = sorted(range(n), key=lambda k: -float(np.median(draws.flux[found.members(k)])))
    new = np.full(n + 1, NONE)
    new[order] = np.arange(n)
    found = replace(found, entries=found.entries.take(np.array(order, np.int64)), label=new[found.label])
    names = tuple(f"{draws.name}_{k + 1}" for k in range(n))
    others = np.bincount(draws.draw[found.label == NONE], minlength=draws.n_draw)
    return Catalogue(
        entries=tuple(
            _entry(name, draws, found.members(k), centre, n_effective) for k, name in enumerate(names)
        ),
        confusion=find_confusion(found, draws.flux, names, least, n_effective),
        n_other=float(others.mean()),
        n_other_error=mean_error(others, n_effective),
        least=least,
        label=found.label,
    )


def _entry(name: str, draws: SourceDraws, i: NDArray[np.int64], centre: Centre, n_effective: float) -> Entry:
    """What the draws say of one source, whose members are `i`."""
    kind, per_draw = draws.kind[i], n_effective / draws.n_draw
    share = np.bincount(kind, minlength=len(draws.types)) / len(i)
    typical_kind = kind == int(np.argmax(share))
    values, typical = {}, {}
    for key, array in draws.values.items():
        own = array[i]
        known = np.isfinite(own)
        if known.any():
            values[key] = estimate(own[known], float(known.sum()) * per_draw, PERIODS.get(key))
        if (known & typical_kind).any():
            typical[key] = estimate(own[known & typical_kind], 0.0, PERIODS.get(key)).median
    ra, dec = lm_to_radec(values["east"].median, values["north"].median, centre)
    probability = len(i) / draws.n_draw
    return Entry(
        name=name,
        probability=probability,
        error=float(probability_error(probability, n_effective)),
        n_draw=len(i),
        ra=ra,
        dec=dec,
        values=values,
        kinds={each: float(p) for each, p in zip(draws.types, share, strict=True)},
        typical=typical,
    )


def _kind_text(entry: Entry) -> str:
    """The most probable type, with its probability where there are others."""
    p = entry.kinds[entry.kind]
    return entry.kind if p == 1.0 else f"{entry.kind} {percent(p)}"


def _flux_texts(flux: Estimate, unit: Unit) -> list[str]:
    """Median and both sides of the interval, rounded to what the interval supports."""
    if not np.isfinite(flux.error):
        return [unit.text(flux.median, 4), "?", "?"]
    digits = digits_after_point(flux.error / unit.size)
    below, above = flux.median - flux.low_68, flux.high_68 - flux.median
    return [f"{number / unit.size:.{digits}f}" for number in (flux.median, below, above)]


def _texts(value: Estimate | None, unit: Unit) -> list[str]:
    """Median and half the interval; "?" where too few draws have the source for an interval."""
    if value is None:
        return ["-", "-"]
    if not np.isfinite(value.error):
        return [plain(value.median / unit.size, 4), "?"]
    digits = digits_after_point(value.error / unit.size)
    return [f"{number / unit.size:.{digits}f}" for number in (value.median, value.error)]
