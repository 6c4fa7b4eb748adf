"""Noise that some antenna, baseline, channel, correlation or time has more of than its weights state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from biro.diagnosis.causes.evidence import Candidate
from biro.diagnosis.causes.samples import Array, Index, Mask, ResidualSamples
from biro.diagnosis.flag_command import flag_command, line_of
from biro.display.formatting import plain

MIN_SIZE = 16
"""Visibilities that a group must have."""
CONTRAST = 1.15
"""Ratio of noise below which nothing is said."""
OUTLIERS = 'fit noise with outliers ([noise] distribution = "student-t").'


def uneven_candidates(samples: ResidualSamples) -> Iterator[Candidate]:
    """One group of visibilities whose residuals scatter more than others do, of each kind."""
    power = np.abs(samples.residual) ** 2
    n = samples.n_antenna
    antenna = [(samples.antenna1 == k) | (samples.antenna2 == k) for k in range(n)]
    if n > 3:
        yield from _best(samples, power, "noise of an antenna", antenna, partial(_antenna_text, samples))
    pair, place = np.unique(samples.baseline, return_inverse=True)
    yield from _of_labels(
        samples, power, "noise of a baseline", place, len(pair), partial(_pair_text, samples, pair)
    )
    yield from _of_labels(
        samples,
        power,
        "noise of a channel",
        samples.channel,
        _size(samples.channel),
        partial(_channel_text, samples),
    )
    yield from _of_labels(
        samples,
        power,
        "noise of a correlation",
        samples.correlation,
        len(samples.corr_names),
        partial(_corr_text, samples),
    )
    length = max(1, len(samples.times) // 2)
    while length >= 1:
        n_cell, text = -(-len(samples.times) // length), partial(_time_text, samples, length)
        yield from _of_labels(samples, power, "noise of a time", samples.slot // length, n_cell, text)
        length //= 2


Text = Callable[[int], tuple[str, str]]


def _size(labels: Index) -> int:
    return int(labels.max()) + 1 if len(labels) else 0


def _of_labels(
    samples: ResidualSamples, power: Array, kind: str, label: Index, n_label: int, text: Text
) -> Iterator[Candidate]:
    if n_label < 2:
        return
    total: Array = np.bincount(label, power, n_label).astype(np.float64)
    count = np.bincount(label, minlength=n_label)
    gain = _gain(total, count, power.sum(), samples.n)
    best = int(np.argmax(gain))
    yield from _best(samples, power, kind, [label == best], text, [best], n_label)


def _gain(total: Array, count: Index, square: float, n: int) -> Array:
    """ln L that a noise of its own gains for each group, by the likelihood ratio; 0 where it has less."""
    count, rest = np.maximum(count, 1), np.maximum(n - count, 1)
    own, other, whole = total / count, np.maximum(square - total, 1e-300) / rest, square / n
    with np.errstate(divide="ignore", invalid="ignore"):  # of residuals that are exactly 0
        gain = n * np.log(whole) - count * np.log(own) - rest * np.log(other)
    return np.asarray(
        np.where((own > CONTRAST**2 * other) & (count >= MIN_SIZE) & (rest >= MIN_SIZE), gain, 0.0)
    )


def _best(
    samples: ResidualSamples,
    power: Array,
    kind: str,
    groups: list[Mask],
    text: Text,
    numbers: list[int] | None = None,
    places: int = 0,
) -> Iterator[Candidate]:
    total = np.array([power[each].sum() for each in groups])
    count = np.array([np.count_nonzero(each) for each in groups])
    gain = _gain(total, count, float(power.sum()), samples.n)
    best = int(np.argmax(gain))
    if not gain[best] > 0.0:
        return
    own = total[best] / count[best]
    other = (power.sum() - total[best]) / (samples.n - count[best])
    ratio = float(np.sqrt(own / other))
    places = places or len(groups)
    # Twice a likelihood ratio has the distribution of chi2 with one degree of freedom (Wilks 1938).
    log_p = min(0.0, -float(gain[best]) + float(np.log(places)))
    number = best if numbers is None else numbers[best]
    yield Candidate(
        kind,
        float(total[best] - other * count[best]),
        float(gain[best] - np.log(places)),
        1,
        log_p,
        partial(samples.scaled, np.where(groups[best], ratio, 1.0)),
        partial(_texts, text, number, ratio),
    )


def _texts(text: Text, number: int, ratio: float) -> tuple[str, str]:
    what, remedy = text(number)
    return f"The residuals {what} scatter {plain(ratio)} times as much as the others.", remedy


def _flag(samples: ResidualSamples, at: int, key: str) -> str:
    """The remedy of flagging all that has a property of one sample."""
    return f"Flag it{flag_command(samples, [line_of(samples, at, key)])}, or {OUTLIERS}"


def _antenna_text(samples: ResidualSamples, number: int) -> tuple[str, str]:
    return (
        f"of antenna {samples.antenna(number)}",
        'Fit its noise ([noise] per = "antenna"), or flag '
        f"it{flag_command(samples, [f'antennas={samples.antenna(number)}'])}.",
    )


def _pair_text(samples: ResidualSamples, pairs: Index, number: int) -> tuple[str, str]:
    p, q = divmod(int(pairs[number]), samples.n_antenna)
    at = int(np.argmax(samples.baseline == pairs[number]))
    return f"of baseline {samples.antenna(p)}-{samples.antenna(q)}", _flag(samples, at, "baseline")


def _channel_text(samples: ResidualSamples, number: int) -> tuple[str, str]:
    at = int(np.argmax(samples.channel == number))
    return f"of {samples.position(at)[2]}", _flag(samples, at, "channel")


def _corr_text(samples: ResidualSamples, number: int) -> tuple[str, str]:
    return (
        f"of {samples.corr_names[number]}",
        'Fit a noise factor for each correlation ([noise] per = "correlation").',
    )


def _time_text(samples: ResidualSamples, length: int, number: int) -> tuple[str, str]:
    first = float(samples.times[number * length])
    if length == 1:
        at = int(np.argmax(samples.slot == number))
        return f"at {samples.utc(first)} UTC", _flag(samples, at, "time")
    last = float(samples.times[min((number + 1) * length, len(samples.times)) - 1])
    begin, end = samples.utc(first), samples.utc(last)
    where, these = (
        (f"at {begin} UTC", "this time") if begin == end else (f"from {begin} to {end} UTC", "these times")
    )
    return (
        where,
        f"Scale the weights of {these} (`--weights scatter`), or fit noise with outliers ([noise] "
        'distribution = "student-t").',
    )
