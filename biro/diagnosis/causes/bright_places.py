"""Residuals at the sources of the model: one that varies, has another spectrum, or is smeared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from biro.diagnosis.causes.brightness import cells_in_time, fitted, place_text
from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.least_squares import SolvedTerms, block_of, solve_beside
from biro.diagnosis.causes.samples import Array, Complex, Index, ResidualSamples
from biro.diagnosis.causes.source import (
    ResidualSource,
    StokesView,
    fit_source,
    highest,
    refined,
    template,
)
from biro.diagnosis.residual_data import ResidualData
from biro.display.formatting import FLUXES, first_few, plain, unit_for
from biro.observation.smearing import smearing_of
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import rates

MOST_PLACES, MOST_STATED = 4, 8
FAINTEST = 0.05
"""Flux over that of the brightest, below which a peak of the model's image may be a sidelobe."""


@dataclass(frozen=True, eq=False)
class BrightPlaces:
    """Where the model of one field is bright.

    Attributes
    ----------
    field : (float, float), rad
    sources : tuple of ResidualSource
    fluxes : tuple of float, Jy
    """

    field: tuple[float, float]
    sources: tuple[ResidualSource, ...]
    fluxes: tuple[float, ...]


def places_of(samples: ResidualSamples, data: Sequence[ResidualData] = ()) -> list[BrightPlaces]:
    """Where the model of each field has its sources: as `data` states, or the peaks of its image.

    Parameters
    ----------
    samples : ResidualSamples
    data : sequence of ResidualData
        Stated places are taken of up to eight sources, even of those that the fit has made faint.
    """
    found = []
    for field in sorted({part.phase_centre for part in samples.parts}):
        own = StokesView.of(samples, field, "I").own
        stated = [each.sources for each in data if each.partition.phase_centre == field]
        known = stated[0] if stated else None
        if known is not None and 0 < len(known) <= MOST_STATED and own.n:
            sources = tuple(ResidualSource(*place) for place in known.tolist())
            of_model = replace(own, residual=own.model)
            fluxes, _ = fitted(of_model, [template(own, source) for source in sources])
            found.append(BrightPlaces(field, sources, tuple(fluxes.tolist())))
        else:
            found.append(_peaks_of_model(own, field))
    return found


def _peaks_of_model(own: ResidualSamples, field: tuple[float, float]) -> BrightPlaces:
    """The highest peaks of the image of the model, each taken out before the next."""
    work = replace(own, residual=own.model)
    sources: list[ResidualSource] = []
    fluxes: list[float] = []
    while len(sources) < MOST_PLACES and work.n and work.residual.any():
        peak = highest(work)
        if peak is None:
            break
        source = refined(work, peak)
        flux = fit_source(work, source)[0]
        if sources and abs(flux) < FAINTEST * abs(fluxes[0]):
            break
        sources.append(source)
        fluxes.append(flux)
        work = work.less(flux * template(work, source))
    return BrightPlaces(field, tuple(sources), tuple(fluxes))


def place_candidates(samples: ResidualSamples, places: Sequence[BrightPlaces]) -> Iterator[Candidate]:
    """Changes of single sources of the model with time or frequency, and what averages take of all."""
    for each in places:
        view = StokesView.of(samples, each.field, "I")
        if not view.own.n or not each.sources:
            continue
        yield from _smeared(samples, view, each)
        if len(each.sources) > 1:
            yield _fluxes(samples, view, each.sources, 1)
        for source in each.sources if len(each.sources) > 1 else ():
            yield _fluxes(samples, view, [source], len(each.sources))
            yield from _of_source(samples, view, source, len(each.sources))


def _fluxes(
    samples: ResidualSamples, view: StokesView, sources: Sequence[ResidualSource], n_place: int
) -> Candidate:
    """Other fluxes of some sources of the model, as of a beam that is wrong."""
    own = view.own
    templates = np.array([template(own, source) for source in sources])
    solved = solve_beside([block_of(own, templates)], own.tangent_part)
    fluxes = solved.terms[0][0]
    texts = partial(_flux_texts, sources, fluxes)
    return candidate(
        samples, view, "source of the model", solved, len(sources), n_place, fluxes @ templates, texts
    )


def _flux_texts(sources: Sequence[ResidualSource], fluxes: Array) -> tuple[str, str]:
    unit = unit_for(fluxes, FLUXES)
    listed = first_few(
        f"{plain(flux / unit.size, 3, '+')} {unit.name} {place_text(source.east, source.north)}"
        for source, flux in zip(sources, fluxes, strict=True)
    )
    verb = "sources of the model are" if len(sources) > 1 else "source of the model is"
    return (
        f"The flux density of the {verb} wrong, by {listed} of the phase centre.",
        "Fit the fluxes. Check the beam (`[beam]`) and smearing (`--smearing`).",
    )


def _of_source(
    samples: ResidualSamples, view: StokesView, source: ResidualSource, n: int
) -> Iterator[Candidate]:
    own = view.own
    t = template(own, source)
    for length, cell, block in cells_in_time(own, t[None]):
        solved = solve_beside([block], own.tangent_part)
        factor = solved.terms[0][:, 0]
        texts = partial(_time_texts, own, source, factor, length)
        yield candidate(samples, view, "variable source", solved, block.n_used, n, factor[cell] * t, texts)
    log_freq = np.log(own.freq)
    if np.ptp(log_freq) > 0:
        slope = (log_freq - log_freq.mean()) * t
        solved = solve_beside([block_of(own, np.array([t, slope]))], own.tangent_part)
        terms = solved.terms[0][0]
        texts = partial(_spectrum_texts, source)
        change = terms[0] * t + terms[1] * slope
        yield candidate(samples, view, "spectrum of a source", solved, 2, n, change, texts)


def candidate(
    samples: ResidualSamples,
    view: StokesView,
    kind: str,
    solved: SolvedTerms,
    n_term: int,
    n_place: float,
    change: Complex,
    texts: Callable[[], tuple[str, str]],
) -> Candidate:
    """A change of the model of one field."""
    gain, log_p = linear(view.own.square, solved.drop, n_term, view.own.n_real, n_place)
    after = partial(view.after, samples, solved.tangent, change)
    return Candidate(kind, solved.drop, gain, n_term, log_p, after, texts)


def _smeared(samples: ResidualSamples, view: StokesView, places: BrightPlaces) -> Iterator[Candidate]:
    """What averages over integrations and channels take of the sources, as one template."""
    own = view.own
    change = np.zeros(own.n, np.complex128)
    for source, flux in zip(places.sources, places.fluxes, strict=True):
        change += flux * template(own, source, is_smeared=False) * (_kept(own, source) - 1.0)
    if not change.any():
        return
    solved = solve_beside([block_of(own, change[None])], own.tangent_part)
    factor = float(solved.terms[0][0, 0])
    if 0.5 < factor < 2.0:
        made = candidate(samples, view, "smearing", solved, 1, 1, factor * change, _smearing_texts)
        yield made


def _kept(own: ResidualSamples, source: ResidualSource) -> Array:
    """Part of a source that averages leave, sinc sinc (physics: section 6)."""
    u, v, w = own.uvw
    n_minus_1 = source.n_minus_1
    in_band = (u * source.east + v * source.north + w * n_minus_1) / own.freq * own.chan_width
    turns = np.zeros(own.n)
    for i, part in enumerate(own.parts):
        here = own.part == i
        if here.any():
            smearing = smearing_of(part)
            u1, v1, w1 = part.uvw[own.row[here]].T
            du, dv, dw = rates(u1, v1, w1, smearing.declination, smearing.pole_angle)
            speed = du * source.east + dv * source.north + dw * n_minus_1
            turns[here] = speed * own.freq[here] / SPEED_OF_LIGHT * own.interval[here]
    return np.asarray(np.sinc(in_band) * np.sinc(turns))


def _smearing_texts() -> tuple[str, str]:
    return (
        "Time and bandwidth smearing is missing in the model.",
        'Fit with smearing on (`--smearing on`, or smearing="on").',
    )


def _time_texts(own: ResidualSamples, source: ResidualSource, factor: Array, length: int) -> tuple[str, str]:
    weight = np.bincount(own.slot // length, np.abs(own.root) ** 2)
    known: Index = np.flatnonzero(weight)
    low, high = (int(known[choose(factor[known])]) for choose in (np.argmin, np.argmax))
    times = [own.utc_of_cell(i, length) for i in (low, high)]
    place = place_text(source.east, source.north)
    return (
        f"The source {place} of the phase centre varies, by {plain(factor[low], 2, '+')} Jy from the model "
        f"at {times[0]} UTC and {plain(factor[high], 2, '+')} Jy at {times[1]} UTC.",
        "Give it a light curve (`times` in [[source]]).",
    )


def _spectrum_texts(source: ResidualSource) -> tuple[str, str]:
    place = place_text(source.east, source.north)
    return (
        f"The spectrum of the source {place} of the phase centre is wrong.",
        "Fit its `spectral_index`, or check the beam, which changes with frequency.",
    )
