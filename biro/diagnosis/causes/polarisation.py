"""Residuals that another polarisation of the sources explains, or leakage between the feeds of antennas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from biro.diagnosis.causes.brightness import cells_in_time, moved_along, of_cells
from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.gains.sums import RIDGE
from biro.diagnosis.causes.least_squares import NormalBlock, block_of, solve_beside
from biro.diagnosis.causes.samples import Array, Complex, Index, ResidualSamples
from biro.display.formatting import percent

FIRST_FEED, SECOND_FEED = ("XY", "RL"), ("YX", "LR")
"""Cross hands that begin with the first feed of antenna 1, and with the second one."""
LEAST = 0.1
"""Part of the largest change of Q, U and V below which one is not listed."""
IS_SWAPPED = 0.5, 1.5
"""Part of the change by feeds that are the other way round, of which it is said that they are."""


def polarisation_candidates(samples: ResidualSamples) -> Iterator[Candidate]:
    """Q, U and V of all sources, steady or by time, in parts of their Stokes I; leakages of antennas."""
    intensity = _intensity(samples)
    if not intensity.any():
        return
    factors = {name: samples.in_stokes(name) for name in "QUV"}
    used = {name: f * intensity for name, f in factors.items() if (f * intensity).any()}
    if len(samples.corr_names) > 1 and used:
        yield from _stokes(samples, used)
    cross = np.isin(samples.corr_names, (*FIRST_FEED, *SECOND_FEED))[samples.correlation]
    of_cross = np.asarray(np.where(cross, intensity, 0.0 + 0.0j))
    if of_cross.any():
        yield from _leakages(samples, of_cross)
        yield from _swapped(samples, of_cross)


def _intensity(samples: ResidualSamples) -> Complex:
    """Stokes I of the model at each sample, from its row and channel, times `root`.

    It is the mean of the correlations with I in them; polarisation cancels where all of these are there.
    """
    n_row = np.cumsum([0, *(part.n_row for part in samples.parts)])
    key = (n_row[samples.part] + samples.row) * (int(samples.chan.max(initial=0)) + 1) + samples.chan
    _, place = np.unique(key, return_inverse=True)
    own = samples.is_parallel
    value = (samples.model / samples.root)[own] / samples.in_stokes("I")[own]
    total = np.bincount(place[own], value.real, place.max(initial=0) + 1) + 1j * np.bincount(
        place[own], value.imag, place.max(initial=0) + 1
    )
    count = np.bincount(place[own], minlength=len(total))
    return np.asarray((total / np.maximum(count, 1))[place] * samples.root)


def _stokes(samples: ResidualSamples, used: dict[str, Complex]) -> Iterator[Candidate]:
    names, templates = list(used), np.array(list(used.values()))
    zero = np.zeros(samples.n, np.int64)
    yield of_cells(samples, "polarisation of the model", templates, zero, partial(_texts, names))
    for length, cell, block in cells_in_time(samples, templates):
        texts = partial(_time_texts, samples, names, cell, length)
        yield of_cells(samples, "changing polarisation", templates, cell, texts, block)


def _leakages(samples: ResidualSamples, intensity: Complex) -> Iterator[Candidate]:
    """Leakages of single antennas, and of all: to first order a_p + conj(b_q) times I in XY or RL.

    a is what an antenna's first feed has of the second one's signal, b the other way round; YX and LR have
    b_p + conj(a_q). With YX conjugated all are linear in a and conj(b).
    """
    n = samples.n_antenna
    ends = np.unique(np.concatenate([samples.antenna1, samples.antenna2])[np.tile(intensity != 0, 2)])
    block = _leakage_block(samples, intensity, n)
    for antennas in [*([k] for k in ends.tolist()), ends.tolist()]:
        k = [*antennas, *(n + antenna for antenna in antennas)]
        some = NormalBlock(block.matrix[:, k][:, :, k], block.side[:, k], block.cross[:, k])
        solved = solve_beside([some], samples.tangent_part)
        leakage = np.zeros(2 * n, np.complex128)
        leakage[k] = solved.terms[0][0] + 1j * solved.terms[0][1]
        n_term = 4 * len(antennas)
        n_place = len(ends) if len(antennas) == 1 else 1
        gain, log_p = linear(samples.square, solved.drop, n_term, samples.n_real, n_place)
        change = _of_leakage(samples, intensity, leakage, n)
        yield Candidate(
            "leakage",
            solved.drop,
            gain,
            n_term,
            log_p,
            partial(moved_along, samples, change, solved.tangent),
            partial(_leakage_texts, samples, antennas, leakage, n),
        )


def _swapped(samples: ResidualSamples, intensity: Complex) -> Iterator[Candidate]:
    """An antenna whose feeds are the other way round: its parallel hands are the cross hands of the model.

    Of its Stokes I, which is nearly all of the model, parallel hands lose and cross hands gain all.
    """
    change = np.where(samples.is_parallel, 0.0 + 0.0j, intensity) - samples.model
    change[samples.is_mixed] = 0.0  # has I in all correlations, and none that lose it
    ends = np.unique(np.concatenate([samples.antenna1, samples.antenna2])).tolist()
    for antenna in ends:
        is_own = (samples.antenna1 == antenna) | (samples.antenna2 == antenna)
        own = np.where(is_own, change, 0.0 + 0.0j)
        solved = solve_beside([block_of(samples, own[None])], samples.tangent_part)
        factor = float(solved.terms[0][0, 0])
        if not IS_SWAPPED[0] < factor < IS_SWAPPED[1]:
            continue
        gain, log_p = linear(samples.square, solved.drop, 1, samples.n_real, len(ends))
        after = partial(moved_along, samples, np.asarray(factor * own, np.complex128), solved.tangent)
        texts = partial(_swapped_texts, samples.antenna(antenna))
        yield Candidate("swapped feeds", solved.drop, gain, 1, log_p, after, texts)


def _swapped_texts(name: str) -> tuple[str, str]:
    return (
        f"The two feeds of {name} are swapped.",
        "Swap its correlations in the data, or flag it.",
    )


def _ends_of(samples: ResidualSamples, n: int) -> tuple[Index, Index, np.ndarray]:
    """Numbers of the two leakages that each cross hand has in it, and whether it is conjugated."""
    turned = np.isin(samples.corr_names, SECOND_FEED)[samples.correlation]
    first = np.where(turned, n + samples.antenna1, samples.antenna1)
    second = np.where(turned, samples.antenna2, n + samples.antenna2)
    return first, second, turned


def _leakage_block(samples: ResidualSamples, intensity: Complex, n: int) -> NormalBlock:
    first, second, turned = _ends_of(samples, n)
    power, size = np.abs(intensity) ** 2, 2 * n
    pair = np.bincount(first * size + second, power, size * size).reshape(size, size)
    alone = np.bincount(first, power, size) + np.bincount(second, power, size)
    matrix = pair + pair.T + np.diag(alone + RIDGE)
    sums = np.zeros((2, size, 1 + len(samples.mixture)))
    # The hands that are conjugated are summed by themselves.
    for which, sign in ((~turned, 1.0), (turned, -1.0)):
        total = samples.sums(np.where(which, intensity, 0.0 + 0.0j), first, size)
        total += samples.sums(np.where(which, intensity, 0.0 + 0.0j), second, size)
        sums += np.array([total.real, sign * total.imag])
    return NormalBlock(np.array([matrix, matrix]), sums[:, :, 0], sums[:, :, 1:])


def _of_leakage(samples: ResidualSamples, intensity: Complex, leakage: Complex, n: int) -> Complex:
    first, second, turned = _ends_of(samples, n)
    total = leakage[first] + leakage[second]
    return np.asarray(intensity * np.where(turned, total.conj(), total))


def _leakage_texts(
    samples: ResidualSamples, antennas: Sequence[int], leakage: Complex, n: int
) -> tuple[str, str]:
    size = np.sqrt(0.5 * (np.abs(leakage[:n]) ** 2 + np.abs(leakage[n:]) ** 2))
    remedy = (
        "Fit the leakages (D-terms) in a [leakage] table with priors on `d_x` and `d_y` (or `d_r` and `d_l`)."
    )
    worst = int(np.argmax(size))
    if len(antennas) > 1:
        rms = float(np.sqrt(np.mean(size[list(antennas)] ** 2)))
        return (
            f"The leakage (D-terms) of the antennas is wrong by {percent(rms)} rms (largest for "
            f"{samples.antenna(worst)}, {percent(size[worst])}).",
            remedy,
        )
    return f"The leakage (D-terms) of {samples.antenna(worst)} is wrong by {percent(size[worst])}.", remedy


def _texts(names: Sequence[str], found: Array) -> tuple[str, str]:
    return (
        f"The polarisation differs from that of the model, by {_listed(names, found[0])} of Stokes I.",
        "Fit `Q`, `U` and `V` of the sources. If they are fitted, fit the gain ratio of the feeds ([gain] "
        'feeds = "ratio"), leakages or a cross-hand phase. To test Stokes I on its own, fit with '
        "`--stokes I`.",
    )


def _listed(names: Sequence[str], values: Array) -> str:
    """Values that are more than rounding or noise beside the largest."""
    least = LEAST * float(np.abs(values).max())
    pairs = zip(names, values.tolist(), strict=True)
    return ", ".join(f"{name} {percent(x, 2, '+')}" for name, x in pairs if abs(x) >= least)


def _time_texts(
    samples: ResidualSamples, names: Sequence[str], cell: Index, length: int, found: Array
) -> tuple[str, str]:
    known = np.unique(cell)
    away = np.linalg.norm(found[known] - np.mean(found[known], axis=0), axis=1)
    first = int(known[np.argmax(away)])
    second = int(known[np.argmax(np.linalg.norm(found[known] - found[first], axis=1))])
    texts = [
        f"{_listed(names, found[i])} at {samples.utc_of_cell(i, length)}" for i in sorted((first, second))
    ]
    return (
        f"The polarisation differs from the model, by {texts[0]} UTC and {texts[1]} UTC (relative to "
        "Stokes I).",
        "Check the feed rotation. If the data are not corrected for parallactic angle, write [feeds] "
        'rotation = "present". To test Stokes I on its own, fit with `--stokes I`.',
    )
