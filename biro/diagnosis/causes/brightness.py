"""Residuals that a change of the whole model explains: flux, position, size, in time or frequency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.least_squares import NormalBlock, block_of, solve_beside
from biro.diagnosis.causes.samples import Array, Complex, Index, ResidualSamples, parts_of
from biro.display.formatting import angle_text, frequency_text, percent, plain

FLAT = 0.02
"""Relative width of the band below which a spectral index has no effect."""


def brightness_candidates(samples: ResidualSamples) -> Iterator[Candidate]:
    """Changes of the model's brightness."""
    if not samples.n or not samples.model.any():
        return
    yield from _shape(samples)
    yield from _in_time(samples)
    yield from _in_frequency(samples)


def _shape(samples: ResidualSamples) -> Iterator[Candidate]:
    """The whole model brighter, elsewhere, or larger: parameters that are fixed at wrong values."""
    u, v = samples.uvw[:2] / max(float(np.abs(samples.uvw[:2]).max()), 1e-300)
    model = samples.model
    yield _linear(samples, "flux of the model", [model], _flux_texts)
    yield _linear(samples, "position of the model", [1j * u * model, 1j * v * model], _position_texts)
    quadratic = [model, u * u * model, u * v * model, v * v * model]
    yield _linear(samples, "size of the model", quadratic, _size_texts)
    log_freq = np.log(samples.freq)
    middle = np.average(log_freq, weights=np.abs(model) ** 2)
    if np.ptp(log_freq) > FLAT or np.ptp(samples.channel) > 0:
        yield _linear(samples, "spectrum of the model", [model, (log_freq - middle) * model], _index_texts)


def _linear(
    samples: ResidualSamples,
    kind: str,
    templates: Sequence[Complex],
    texts: Callable[[ResidualSamples, Array], tuple[str, str]],
) -> Candidate:
    coefficients, drop = fitted(samples, templates)
    gain, log_p = linear(samples.square, drop, len(templates), samples.n_real)
    change = np.einsum("k,kn->n", coefficients, np.asarray(templates))
    after = partial(_changed, samples, change)
    return Candidate(
        kind,
        drop,
        gain,
        len(templates),
        log_p,
        after,
        partial(texts, samples, coefficients),
    )


def fitted(samples: ResidualSamples, templates: Sequence[Complex]) -> tuple[Array, float]:
    """Real factors of templates by least squares, and the decrease of sum |r|^2."""
    parts = parts_of(np.asarray(templates, np.complex128))
    products = parts @ parts.T
    scale = np.sqrt(np.maximum(np.diag(products), 1e-300))
    matrix, side = products / np.outer(scale, scale), parts @ parts_of(samples.residual) / scale
    found = np.linalg.lstsq(matrix, side, rcond=1e-10)[0]
    return found / scale, float(found @ side)


def _changed(samples: ResidualSamples, change: Complex) -> ResidualSamples:
    return samples.with_values(residual=samples.residual - change, model=samples.model + change)


def _flux_texts(samples: ResidualSamples, found: Array) -> tuple[str, str]:
    return (
        f"The whole model is {percent(abs(found[0]))} too {'faint' if found[0] > 0 else 'bright'}.",
        "Fit the fluxes of the sources, or widen their priors.",
    )


def _position_texts(samples: ResidualSamples, found: Array) -> tuple[str, str]:
    longest = max(float(np.abs(samples.uvw[:2]).max()), 1e-300)
    east, north = found / (2.0 * np.pi * longest)
    return (
        f"The whole model is offset by {place_text(-east, -north)} from the best position.",
        "Fit the positions of the sources, or correct the phase centre.",
    )


def _size_texts(samples: ResidualSamples, found: Array) -> tuple[str, str]:
    word = "large" if found[1] + found[3] > 0 else "small"
    return (
        f"The model is too {word} on the sky, or its shape is wrong.",
        "Fit the sizes if they are fixed; else add a component, or choose another `type` in [[source]].",
    )


def _index_texts(samples: ResidualSamples, found: Array) -> tuple[str, str]:
    return (
        f"The spectral index of the model is wrong by {plain(found[1], 2, '+')} (data minus model).",
        "Fit `spectral_index` of the sources, or add a curvature term.",
    )


def place_text(east: float, north: float) -> str:
    """Distance and direction of an offset in rad, as "2.1 arcmin north-east"."""
    words = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
    word = words[round(np.arctan2(east, north) / (np.pi / 4)) % 8]
    return f"{angle_text(float(np.hypot(east, north)))} {word}"


def _in_time(samples: ResidualSamples) -> Iterator[Candidate]:
    """A flux, and a place of all sources, of their own in each of some intervals of equal length.

    Places change so behind an ionosphere that changes.
    """
    u, v = samples.uvw[:2] / max(float(np.abs(samples.uvw[:2]).max()), 1e-300)
    flux, places = samples.model[None], np.array([1j * u * samples.model, 1j * v * samples.model])
    for (length, cell, of_flux), (_, _, of_places) in zip(
        cells_in_time(samples, flux), cells_in_time(samples, places), strict=True
    ):
        texts = partial(_of_one, partial(_time_texts, samples, cell, length))
        yield of_cells(samples, "variable flux", flux, cell, texts, of_flux)
        texts = partial(_drift_texts, samples, cell, length)
        yield of_cells(samples, "moving position", places, cell, texts, of_places)


def cells_in_time(samples: ResidualSamples, templates: Complex) -> Iterator[tuple[int, Index, NormalBlock]]:
    """Intervals of equal length, from the longest to one time: times in each, cells, the templates' block."""
    of_times = block_of(samples, templates, samples.slot)
    length = len(samples.times) // 2
    while length >= 1:
        yield length, samples.slot // length, of_times.merged(np.arange(len(of_times.matrix)) // length)
        length //= 2


def _of_one(texts: Callable[[Array], tuple[str, str]], found: Array) -> tuple[str, str]:
    return texts(found[:, 0])


def _drift_texts(samples: ResidualSamples, cell: Index, length: int, found: Array) -> tuple[str, str]:
    offsets = found / (2.0 * np.pi * max(float(np.abs(samples.uvw[:2]).max()), 1e-300))
    known = np.unique(cell)
    away = np.hypot(*(offsets[known] - np.mean(offsets[known], axis=0)).T)
    first = int(known[np.argmax(away)])
    second = int(known[np.argmax(np.hypot(*(offsets[known] - offsets[first]).T))])
    first, second = sorted((first, second))
    east, north = offsets[second] - offsets[first]
    when = [samples.utc_of_cell(i, length) for i in (first, second)]
    return (
        f"All sources move by {place_text(east, north)} between {when[0]} and {when[1]} UTC.",
        "Calibrate the phases (ionosphere or troposphere), and check uvw and times.",
    )


def _in_frequency(samples: ResidualSamples) -> Iterator[Candidate]:
    """A flux of its own in each channel."""
    cell = samples.channel
    if np.ptp(cell) > 0:
        texts = partial(_of_one, partial(_channel_texts, samples, cell))
        yield of_cells(samples, "flux by channel", samples.model[None], cell, texts)


def of_cells(
    samples: ResidualSamples,
    kind: str,
    templates: Complex,
    cell: Index,
    texts: Callable[[Array], tuple[str, str]],
    block: NormalBlock | None = None,
) -> Candidate:
    """Changes along templates (k, n), with factors (n_cell, k) of their own in each cell.

    `block` is that of `block_of`, where it is known.
    """
    block = block_of(samples, templates, cell) if block is None else block
    solved = solve_beside([block], samples.tangent_part)
    factor = solved.terms[0]
    # The mean over the cells is no further number where the fit was free to change it.
    n_term = max(block.n_used * len(templates) - block.n_free, len(templates))
    gain, log_p = linear(samples.square, solved.drop, n_term, samples.n_real)
    after = partial(_with_factors, samples, templates, cell, factor, solved.tangent)
    return Candidate(kind, solved.drop, gain, n_term, log_p, after, partial(texts, factor))


def _with_factors(
    samples: ResidualSamples, templates: Complex, cell: Index, factor: Array, tangent: Array
) -> ResidualSamples:
    return moved_along(samples, np.sum(factor[cell].T * templates, axis=0), tangent)


def moved_along(samples: ResidualSamples, change: Complex, tangent: Array) -> ResidualSamples:
    """The samples with the model changed along its tangents, and by what terms add to it."""
    moved = samples.changed(tangent)
    return moved.with_values(residual=moved.residual - change, model=moved.model + change)


def _time_texts(samples: ResidualSamples, cell: Index, length: int, factor: Array) -> tuple[str, str]:
    weight = np.bincount(cell, np.abs(samples.model) ** 2)
    known = np.flatnonzero(weight)
    low, high = (known[k(factor[known])] for k in (np.argmin, np.argmax))
    when = [samples.utc_of_cell(i, length) for i in (low, high)]
    return (
        f"The flux changes with time, by {percent(factor[low], 2, '+')} of the model at {when[0]} UTC and "
        f"{percent(factor[high], 2, '+')} at {when[1]} UTC.",
        "Give the source a light curve (`times` in [[source]]), or fit the flux scale with time in [gain].",
    )


def _channel_texts(samples: ResidualSamples, cell: Index, factor: Array) -> tuple[str, str]:
    weight = np.bincount(cell, np.abs(samples.model) ** 2)
    known = np.flatnonzero(weight)
    worst = known[np.argmax(np.abs(factor[known] - np.median(factor[known])))]
    freq = float(samples.freq[np.argmax(cell == worst)])
    return (
        f"The spectrum differs from the model, most at {frequency_text(freq)} "
        f"({percent(factor[worst], 2, '+')}).",
        "Change the spectrum of the source, or calibrate the bandpass with `biro solve`.",
    )
