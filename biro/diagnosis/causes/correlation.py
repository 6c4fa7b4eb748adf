"""Residuals that are correlated between times, channels or hands, and how much that takes from the errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import log_ndtr

from biro.diagnosis.causes.evidence import Candidate
from biro.diagnosis.causes.samples import Array, Index, ResidualSamples, spacing
from biro.display.formatting import plain
from biro.observation.correlations import PARALLEL_HANDS

TIME, CHANNEL, HANDS, DUPLICATES = (
    "correlated in time",
    "correlated in frequency",
    "correlated hands",
    "duplicated rows",
)
MOST_LAGS, AR_ORDER = 128, 8
MIN_PAIRS = 32
CUT = 2.0
"""Standard deviations below which a correlation ends the sum over lags."""
ALIKE, APART = 0.95, 0.25
"""Correlation of two neighbouring times that are one integration, and of those that are not, at most."""
GAP = 1.5
SHARED = 0.6
"""Least over largest correlation of channels, at any distance, above which all share their noise."""


@dataclass(frozen=True)
class Correlation:
    """Correlation of residuals at lag 1, 2, ...

    Attributes
    ----------
    rho : float64 (n_lag,)
        Re sum r_i r_j* / sqrt(sum |r_i|^2 sum |r_j|^2) over pairs that far apart.
    n_pair : int64 (n_lag,)
        Complex pairs.
    n : int
        Samples.
    """

    rho: Array
    n_pair: Index
    n: int

    @property
    def error(self) -> Array:
        """Standard deviation of each by chance, of real and imaginary parts."""
        return np.asarray(1.0 / np.sqrt(2.0 * np.maximum(self.n_pair, 1)))

    @property
    def inflation(self) -> float:
        """Variance of a sum of the samples over that of independent ones, 1 + 2 sum_k rho_k n_k / n.

        The sum ends where a correlation is not positive beyond chance: it is the initial positive sequence
        (Geyer 1992), and the number of pairs n_k has the end of each series in it.
        """
        low = np.flatnonzero(self.rho < CUT * self.error)
        end = int(low[0]) if len(low) else len(self.rho)
        return 1.0 + 2.0 * float(np.sum(self.rho[:end] * self.n_pair[:end])) / max(self.n, 1)

    @property
    def gain(self) -> float:
        """ln L that an autoregressive noise gains: -n_k ln(1 - phi_kk^2) of each partial correlation."""
        gain = 0.0
        for k, phi in enumerate(partial_correlations(self.rho[:AR_ORDER])):
            if abs(phi) < CUT * self.error[k]:
                break
            gain -= float(self.n_pair[k]) * math.log1p(-min(phi * phi, 1.0 - 1e-6))
        return gain

    @property
    def log_p(self) -> float:
        """ln of the chance of so large a correlation at lag 1 or 2."""
        z = float(np.max(self.rho[:2] / self.error[:2])) if len(self.rho) else 0.0
        return min(0.0, float(log_ndtr(-z)) + math.log(2.0)) if z > 0 else 0.0


def partial_correlations(rho: Array) -> list[float]:
    """Partial autocorrelations by Levinson and Durbin; they end where rho is no covariance."""
    found: list[float] = []
    phi = np.zeros(0)
    for k in range(len(rho)):
        rest = 1.0 - float(phi @ rho[:k])
        if rest <= 1e-6:
            break
        new = (float(rho[k]) - float(phi @ rho[:k][::-1])) / rest
        if abs(new) > 1.0:
            new = math.copysign(1.0 - 1e-6, new)
        phi = np.concatenate([phi - new * phi[::-1], [new]])
        found.append(new)
    return found


def in_time(samples: ResidualSamples) -> Correlation:
    """Correlation of neighbouring times of a baseline, channel and correlation."""
    size = max((len(part.times) for part in samples.parts), default=0)
    local = np.zeros(samples.n, np.int64)
    for i, part in enumerate(samples.parts):
        here = samples.part == i
        local[here] = part.time_index[samples.row[here]]
    return _correlation(samples, _time_series(samples), local, size, spacing(samples.parts))


def in_frequency(samples: ResidualSamples) -> Correlation:
    """Correlation of neighbouring channels of a row and correlation."""
    size = max((part.n_chan for part in samples.parts), default=0)
    series = _row_series(samples) * len(samples.corr_names) + samples.correlation
    return _correlation(samples, series, samples.chan, size, 0.0)


def _row_series(samples: ResidualSamples) -> Index:
    first = np.cumsum([0, *(part.n_row for part in samples.parts)])
    return np.asarray(first[samples.part] + samples.row, np.int64)


def _pairs(series: Index, place: Index, size: int, lag: int) -> tuple[Index, Index]:
    """Samples of one series that are `lag` places apart."""
    width = size + MOST_LAGS + 1
    key = series * width + place
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    found = np.searchsorted(ordered, ordered + lag)
    inside = np.minimum(found, len(ordered) - 1)
    match = ordered[inside] == ordered + lag
    return order[match], order[inside[match]]


def _correlation(
    samples: ResidualSamples, series: Index, place: Index, size: int, step: float
) -> Correlation:
    rho, n_pair = [], []
    _, series = np.unique(series, return_inverse=True)
    for lag in range(1, min(MOST_LAGS, size - 1) + 1):
        first, second = _pairs(series, place, size, lag)
        if step:
            near = np.abs(samples.time[second] - samples.time[first]) <= GAP * lag * step
            first, second = first[near], second[near]
        if len(first) < MIN_PAIRS:
            break
        rho.append(_rho(samples, first, second))
        n_pair.append(len(first))
        if lag >= 2 and rho[-1] < CUT / math.sqrt(2.0 * len(first)):
            break
    return Correlation(np.array(rho, np.float64), np.array(n_pair, np.int64), samples.n)


def _rho(samples: ResidualSamples, first: Index, second: Index) -> float:
    a, b = samples.residual[first], samples.residual[second]
    scale = math.sqrt(float(np.vdot(a, a).real) * float(np.vdot(b, b).real))
    return float(np.vdot(b, a).real) / scale if scale > 0 else 0.0


def of_hands(samples: ResidualSamples) -> tuple[float, int, tuple[str, str]]:
    """Correlation of the two parallel hands, the number of pairs, and their names."""
    pairs = [name for name in samples.corr_names if name in PARALLEL_HANDS]
    if len(pairs) != 2:
        return 0.0, 0, ("", "")
    place = np.full(len(samples.corr_names), -1)
    place[[samples.corr_names.index(name) for name in pairs]] = 0, 1
    own = place[samples.correlation]
    taken = np.flatnonzero(own >= 0)
    series = _row_series(samples)[taken] * (samples.channel.max(initial=0) + 1) + samples.channel[taken]
    _, series = np.unique(series, return_inverse=True)
    first, second = _pairs(series, own[taken], 2, 1)
    if len(first) < MIN_PAIRS:
        return 0.0, 0, (pairs[0], pairs[1])
    return _rho(samples, taken[first], taken[second]), len(first), (pairs[0], pairs[1])


def duplicated(samples: ResidualSamples) -> float:
    """Part of the pairs of neighbouring times whose residuals are those of one integration; 0 of few.

    Where rows were stored more than once, some pairs of neighbouring times are alike and the others are
    independent; noise with a correlation in time, or a source that the model lacks, makes all pairs alike.
    """
    n_time = len(samples.times)
    first, second = _pairs(_time_series(samples), samples.slot, n_time, 1)
    near = np.abs(samples.time[second] - samples.time[first]) <= GAP * spacing(samples.parts)
    first, second = first[near], second[near]
    if len(first) < MIN_PAIRS:
        return 0.0
    a, b, slot = samples.residual[first], samples.residual[second], samples.slot[first]
    product = np.bincount(slot, (a * b.conj()).real, n_time)
    square = np.bincount(slot, 0.5 * (np.abs(a) ** 2 + np.abs(b) ** 2), n_time)
    known = np.flatnonzero(np.bincount(slot, minlength=n_time) >= 4)
    if not len(known):
        return 0.0
    rho = product[known] / np.maximum(square[known], 1e-300)
    alike = rho > ALIKE
    if not 0.1 < alike.mean() < 0.85:
        return 0.0
    return float(alike.mean()) if abs(float(np.mean(rho[~alike]))) < APART else 0.0


def _time_series(samples: ResidualSamples) -> Index:
    """Number of each sample's baseline, channel and correlation."""
    n_chan = samples.channel.max(initial=0) + 1
    series = (samples.baseline * n_chan + samples.channel) * len(samples.corr_names) + samples.correlation
    return np.asarray(np.unique(series, return_inverse=True)[1], np.int64)


def correlation_candidates(samples: ResidualSamples, known: tuple[str, ...] = ()) -> Iterator[Candidate]:
    """Noise that is correlated along one axis, apart from those that are known."""
    after = partial(_same, samples)
    if not {TIME, DUPLICATES} & set(known):
        found = in_time(samples)
        share = duplicated(samples) if len(found.rho) else 0.0
        kind = DUPLICATES if share else TIME
        text = partial(_duplicate_texts, share) if share else partial(_time_texts, samples, found)
        if len(found.rho) and found.rho[0] > 0:
            yield Candidate(kind, 0.0, found.gain, 1, found.log_p, after, text, found.inflation)
    if CHANNEL not in known:
        found = in_frequency(samples)
        if len(found.rho) and found.rho[0] > 0:
            text = partial(_channel_texts, found)
            yield Candidate(CHANNEL, 0.0, found.gain, 1, found.log_p, after, text, found.inflation)
    if HANDS not in known:
        rho, n_pair, names = of_hands(samples)
        if n_pair and rho > 0:
            gain = -n_pair * math.log1p(-min(rho * rho, 1.0 - 1e-6))
            log_p = min(0.0, float(log_ndtr(-rho * math.sqrt(2.0 * n_pair))))
            yield Candidate(HANDS, 0.0, gain, 1, log_p, after, partial(_hands_texts, rho, names), 1.0 + rho)


def _same(samples: ResidualSamples) -> ResidualSamples:
    return samples


def _time_texts(samples: ResidualSamples, found: Correlation) -> tuple[str, str]:
    return (
        f"Residuals are correlated in time ({found.rho[0]:.2f} between neighbouring times, "
        f"{plain(spacing(samples.parts), 3)} s apart).",
        'Fit the correlation ([noise] correlation = "time"), or average the data over a longer time.',
    )


def _channel_texts(found: Correlation) -> tuple[str, str]:
    if _is_shared(found):
        return (
            f"The noise of all channels of a row is correlated ({found.rho.min():.2f} to "
            f"{found.rho.max():.2f} at any separation).",
            'Average the channels (`--average-channels`). [noise] correlation = "chan" only describes '
            "correlation between neighbours.",
        )
    hanning = "" if not _is_hanning(found) else ", as after Hanning smoothing"
    return (
        f"Residuals of neighbouring channels are correlated ({found.rho[0]:.2f}{hanning}).",
        'Fit the correlation ([noise] correlation = "chan"), or average the channels.',
    )


def _is_shared(found: Correlation) -> bool:
    """Whether channels at all distances are correlated, the farthest nearly as much as neighbours."""
    return len(found.rho) >= 3 and float(found.rho.min()) > SHARED * float(found.rho.max())


def _is_hanning(found: Correlation) -> bool:
    """Whether lags 1 and 2 have the correlations 2/3 and 1/6 of weights 1/4, 1/2, 1/4."""
    if len(found.rho) < 2:
        return False
    return bool(abs(found.rho[0] - 2 / 3) < 0.07 and abs(found.rho[1] - 1 / 6) < 0.07)


def _hands_texts(rho: float, names: tuple[str, str]) -> tuple[str, str]:
    return (
        f"Residuals of {names[0]} and {names[1]} are correlated ({rho:.2f}).",
        "Fit Stokes I (`--stokes I`), or multiply the errors by the factor stated.",
    )


def _duplicate_texts(share: float) -> tuple[str, str]:
    return (
        f"Rows are duplicated: {100 * share:.0f} % of the pairs of neighbouring times have the same noise.",
        "Remove the copies, or multiply the errors by the factor stated.",
    )
