"""Residuals of some baselines or channels that are alike at all times: closure errors, and interference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy.special import gammaln

from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.least_squares import (
    NormalBlock,
    SolvedTerms,
    drops_of_groups,
    solve_beside,
)
from biro.diagnosis.causes.samples import Array, Complex, Index, Mask, ResidualSamples
from biro.diagnosis.flag_command import flag_command, line_of
from biro.display.formatting import first_few, number_of, percent, plain

MOST_SHARE = {"baseline": 0.15, "conjugated": 0.3, "offset": 0.3}
"""Part of the groups that may stand out: what most have in common has another cause."""
NEAR_ONE = 0.2
"""Deviation from 1, and two errors, that the factor of what conjugation changes may have."""
LEAST = 0.05
"""Part of what the worst baseline explains, from which another is listed: the fit makes up for its error."""
MIN_SHARE = 0.6
"""Part of what is explained that one antenna, baseline or channel must have for it to be named."""


def offset_candidates(samples: ResidualSamples) -> Iterator[Candidate]:
    """Factors of single baselines, and constants that are added to baselines and channels."""
    if not samples.n:
        return
    by_corr = samples.baseline * len(samples.corr_names) + samples.correlation
    n_chan = int(samples.channel.max()) + 1
    yield from _groups(samples, "baseline", samples.baseline, samples.model)
    yield from _groups(samples, "conjugated", samples.baseline, samples.model.conj() - samples.model)
    yield from _all_baselines(samples)
    if len(samples.corr_names) > 1:
        yield from _groups(samples, "baseline", by_corr, samples.model)
    constant = samples.root.astype(np.complex128)
    yield from _groups(samples, "offset", samples.baseline, constant * samples.is_parallel)
    if n_chan > 1:
        yield from _groups(samples, "offset", by_corr, constant)
        yield from _groups(samples, "offset", samples.baseline * n_chan + samples.channel, constant)
    yield from _groups(samples, "offset", by_corr * n_chan + samples.channel, constant)


def _groups(samples: ResidualSamples, kind: str, group: Index, template: Complex) -> Iterator[Candidate]:
    """One complex number for each of those groups that stand out, if some do."""
    _, place = np.unique(group, return_inverse=True)
    block = _block(samples, place, template)
    drops = drops_of_groups(block, samples.tangent_part)
    chosen = (np.bincount(place) >= 3) & (block.matrix[:, 0, 0] > 0)
    if len(drops) < 3 or not chosen.any():
        return
    chosen &= standing_out(drops, 2, samples.square / samples.n_real, samples.n_real)
    solved = _solved(samples, block, chosen)
    if solved is None:
        return
    # Some stood out only because of others: those that do not beside these are left out.
    own = np.zeros(len(drops))
    own[chosen] = np.sum((solved.terms[0] / solved.errors[0]) ** 2, axis=1)
    chosen &= standing_out(own, 2, (samples.square - solved.drop) / samples.n_real, samples.n_real)
    solved = _solved(samples, block, chosen)
    if solved is None:
        return
    n = int(np.count_nonzero(chosen))
    if n > max(1.0, MOST_SHARE[kind] * len(drops)):
        return
    gain, log_p = linear(samples.square, solved.drop, 2 * n, samples.n_real)
    choices = log_choices(len(drops), n)
    factor = np.zeros(len(drops), np.complex128)
    factor[chosen] = solved.terms[0][:, 0] + 1j * solved.terms[0][:, 1]
    if kind == "conjugated":
        error = np.hypot(*solved.errors[0].T) * math.sqrt(samples.square / samples.n_real)
        if np.max(np.abs(factor[chosen] - 1.0) + 2.0 * error) > NEAR_ONE:
            return
    texts = {"baseline": _baseline_texts, "conjugated": _conjugated_texts, "offset": _offset_texts}[kind]
    yield Candidate(
        kind,
        solved.drop,
        gain - choices,
        2 * n,
        min(0.0, log_p + choices),
        partial(_after, samples, factor[place] * template, solved.tangent, kind != "offset"),
        partial(texts, samples, place, factor, drops * chosen),
    )


def _all_baselines(samples: ResidualSamples) -> Iterator[Candidate]:
    """A complex factor of each baseline: closure errors, as of a correlator or of unequal bandpasses."""
    pairs, place = np.unique(samples.baseline, return_inverse=True)
    n_antenna = len(np.unique(np.concatenate([samples.antenna1, samples.antenna2])))
    if len(pairs) <= n_antenna:  # gains say as much
        return
    block = _block(samples, place, samples.model)
    solved = _solved(samples, block, block.matrix[:, 0, 0] > 0)
    if solved is None or len(solved.terms[0]) < len(pairs):
        return
    gain, log_p = linear(samples.square, solved.drop, 2 * len(pairs), samples.n_real)
    factor = solved.terms[0][:, 0] + 1j * solved.terms[0][:, 1]
    yield Candidate(
        "closure errors",
        solved.drop,
        gain,
        2 * len(pairs),
        log_p,
        partial(_after, samples, factor[place] * samples.model, solved.tangent, True),
        partial(_closure_texts, samples, place, factor, block),
    )


def _closure_texts(
    samples: ResidualSamples, place: Index, factor: Complex, block: NormalBlock
) -> tuple[str, str]:
    weight = block.matrix[:, 0, 0]
    noise = 2.0 * samples.square / samples.n_real / weight  # what factors have by chance
    size = np.sqrt(max(float(np.average(np.abs(factor) ** 2 - noise, weights=weight)), 0.0) / 2.0)
    worst = int(np.argmax(np.abs(factor) ** 2 * weight))
    return (
        f"Baselines have errors of {percent(size)} rms that antenna gains cannot explain (largest on "
        f"{_ends(samples, int(np.argmax(place == worst)))}, {percent(abs(factor[worst]))}).",
        "Look for closure errors of the correlator, gains that change within an integration or a channel, "
        "or missing structure in the model.",
    )


def _solved(samples: ResidualSamples, block: NormalBlock, chosen: Mask) -> SolvedTerms | None:
    if not chosen.any():
        return None
    some = NormalBlock(block.matrix[chosen], block.side[chosen], block.cross[chosen])
    return solve_beside([some], samples.tangent_part)


def _block(samples: ResidualSamples, place: Index, template: Complex) -> NormalBlock:
    """Real and imaginary part of a factor of each group."""
    power: Array = np.bincount(place, np.abs(template) ** 2).astype(np.float64)
    sums = samples.sums(template, place, len(power))
    pairs = np.stack([sums.real, sums.imag], axis=1)
    return NormalBlock(power[:, None, None] * np.eye(2), pairs[:, :, 0], pairs[:, :, 1:])


def standing_out(drops: Array, n_term: int, variance: float, n_real: int) -> Mask:
    """Which groups gain more than their terms and the choice among them cost."""
    order = np.argsort(drops)[::-1]
    left = np.maximum(variance * n_real - np.cumsum(drops[order]), 1e-12 * variance * n_real + 1e-300)
    now = left / np.maximum(n_real - n_term * np.arange(1, len(drops) + 1), 1)
    needed = n_term * np.log(n_real) + 2.0 * np.log(max(len(drops), 2)) + 4.0
    # Variance as it is without those that explain most, where these are few.
    level = float(now[min(len(now) - 1, int(np.count_nonzero(drops > needed * variance)))])
    return np.asarray(drops > needed * min(variance, level))


def log_choices(n: int, k: int) -> float:
    """ln of how many ways there are to choose k of n."""
    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def _after(samples: ResidualSamples, change: Complex, tangent: Array, is_model: bool) -> ResidualSamples:
    moved = samples.changed(tangent)
    model = moved.model + change if is_model else moved.model
    return moved.with_values(residual=moved.residual - change, model=model)


def _baseline_texts(samples: ResidualSamples, place: Index, factor: Complex, drops: Array) -> tuple[str, str]:
    order = np.argsort(drops)[::-1]
    order = order[drops[order] > LEAST * drops[order[0]]]
    groups = {group: int(np.argmax(place == group)) for group in order.tolist()}
    hands = {group: _hand(samples, place == group) for group in groups}
    by_pair: dict[str, list[int]] = {}
    for group, at in groups.items():
        by_pair.setdefault(_ends(samples, at), []).append(group)
    texts, lines = [], []
    for ends, several in by_pair.items():
        sizes = []
        for group in several:
            gain = 1.0 + factor[group]
            size = f"amplitude {percent(abs(gain) - 1.0, 2, '+')}, phase {_degrees(gain)} deg"
            sizes.append(f"{hands[group]} {size}".strip())
            keys = ("baseline", *["correlation"] * (len(several) == 1 and bool(hands[group])))
        texts.append(f"{ends} ({'; '.join(sizes)})")
        lines.append(line_of(samples, groups[several[0]], *keys))
    word, verb = ("Baselines", "have") if len(texts) > 1 else ("Baseline", "has")
    it = "them" if len(texts) > 1 else "it"
    return (
        f"{word} {first_few(texts)} {verb} an error that antenna gains cannot explain.",
        f"Flag the {word.lower()}{flag_command(samples, lines)}, or correct {it}.",
    )


def _hand(samples: ResidualSamples, own: Mask) -> str:
    """The correlation of some samples where they have one, and their baseline has others of the model."""
    here = samples.correlation[own]
    if np.ptp(here) or len(samples.corr_names) == 1:
        return ""
    return samples.corr_names[int(here[0])]


def _degrees(gain: complex) -> str:
    return plain(float(np.degrees(np.angle(gain))), 2, "+")


def _conjugated_texts(
    samples: ResidualSamples, place: Index, factor: Complex, drops: Array
) -> tuple[str, str]:
    names = [_ends(samples, int(np.argmax(place == group))) for group in np.flatnonzero(drops)]
    word, verb = ("Baselines", "are") if len(names) > 1 else ("Baseline", "is")
    return (
        f"{word} {first_few(names)} {verb} conjugated.",
        "Swap the two antennas of each in the data, or flag them."
        if len(names) > 1
        else "Swap its two antennas in the data, or flag it.",
    )


def _ends(samples: ResidualSamples, at: int) -> str:
    return f"{samples.antenna(samples.antenna1[at])}-{samples.antenna(samples.antenna2[at])}"


def _offset_texts(samples: ResidualSamples, place: Index, factor: Complex, drops: Array) -> tuple[str, str]:
    groups = np.flatnonzero(drops)
    first = np.array([int(np.argmax(place == group)) for group in groups[np.argsort(-drops[groups])][:200]])
    weight = drops[place[first]]
    size = float(np.sqrt(np.average(np.abs(factor[place[first]]) ** 2, weights=weight)))
    of_all = np.ptp(samples.channel[place == place[first[0]]]) > 0
    of_antennas = _of_antennas(samples, first, weight)
    of_channels = [] if of_all else _of_channels(samples, first, weight)
    where = [*of_antennas, *of_channels]
    if not where:
        ends, _, channel, corr = samples.position(int(first[0]))
        n_pair = len(np.unique(samples.baseline[first]))
        n = number_of(n_pair, "baseline") if of_all else number_of(len(groups), "combination")
        of = "" if of_all else " of baseline, channel and correlation"
        largest = ends if of_all else f"{ends}, {channel}, {corr}"
        where = [f"{n}{of} (largest {largest})"]
    keys = ["baseline"] * _is_pair(of_antennas) + ["channel"] * bool(of_channels)
    lines = [line_of(samples, int(first[0]), *keys)] if _is_pair(of_antennas) else []
    command = flag_command(samples, lines) or " (`biro flag` finds interference)"
    return (
        f"There is a constant offset of {plain(size)} Jy in the visibilities of {' in '.join(where)}.",
        f"Flag these data{command}, or subtract the offset.",
    )


def _is_pair(of_antennas: list[str]) -> bool:
    """Whether one baseline is named."""
    return any(each.startswith("baseline ") for each in of_antennas)


def _of_antennas(samples: ResidualSamples, first: Index, weight: Array) -> list[str]:
    pairs = Counter[str]()
    ends = Counter[str]()
    for at, value in zip(first.tolist(), weight.tolist(), strict=True):
        pairs[_ends(samples, at)] += value
        for name in {samples.antenna(samples.antenna1[at]), samples.antenna(samples.antenna2[at])}:
            ends[name] += value
    named = _named(pairs, weight.sum(), 0.9)
    if named:
        return [f"baseline {named}"]
    named = _named(ends, weight.sum(), 0.9)
    return [f"the baselines of antenna {named}"] if named else []


def _of_channels(samples: ResidualSamples, first: Index, weight: Array) -> list[str]:
    if np.ptp(samples.channel) == 0:
        return []
    channels = Counter[str]()
    for at, value in zip(first.tolist(), weight.tolist(), strict=True):
        channels[samples.position(at)[2]] += value
    named = _named(channels, weight.sum(), MIN_SHARE)
    return [named] if named else []


def _named(found: Counter[str], total: float, share: float) -> str:
    name, value = found.most_common(1)[0]
    return name if value >= share * total else ""
