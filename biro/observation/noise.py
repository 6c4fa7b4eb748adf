"""Thermal noise, measured from differences of neighbouring samples: of visibilities, or of residuals.

Each difference of samples v_1, v_2, v_3 of a baseline, one step apart, has the variance of one sample where
these are noise:

    first     (v_1 - v_2) / sqrt(2)               removes what changes slowly
    second    (v_1 - 2 v_2 + v_3) / sqrt(6)       removes what changes steadily, too
    fringe    (v_1 u* - (v_3 u*)*) / sqrt(2)      removes what turns steadily, u = v_2 / |v_2|

Between two times the sky turns and gains change, so that all of these are upper limits. `thermal_noise`
chooses among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from biro.observation.correlations import share_of_i
from biro.observation.partition import Partition

MIN_DIFFERENCES = 32
"""Fewer differences of neighbouring times say nothing about the scatter of residuals."""
MAX_SAMPLES = 1 << 20
"""Visibilities that a measurement takes at most; more would be no better, only slower."""
BLOCK_VISIBILITIES = 1 << 22
"""Visibilities of baselines that are taken at a time, of which one has more at most."""
BY_TIME, BY_CHANNEL = "neighbouring times", "neighbouring channels"
FIRST, SECOND, FRINGE, FAR = "first", "second", "fringe", "far"
"""Kinds of differences; `FAR` are first differences over two steps."""
NEAR, LEVEL = 1.02, 1.05
"""Ratio of first to second differences, and of first ones over two steps and one, that noise alone has."""
CHANCE = 3.0
"""Standard errors by which a ratio of two kinds of differences of noise may exceed 1."""
OF_SECOND, OF_CHANNEL = 0.7, 0.91
"""Standard errors of ratios of `sigma_of`, times the root of the number of differences; see `_error`."""
Kind: TypeAlias = tuple[str, str]
Complex: TypeAlias = NDArray[np.complex128]
MAD_TO_SIGMA = 1.4826022185056018
"""1 / (sqrt(2) erfinv(1/2)): sigma of a Gaussian from the median of |x|."""


@dataclass(frozen=True)
class Noise:
    """Noise of the real and of the imaginary part alike.

    Attributes
    ----------
    measured : float, Jy
        From differences; NaN where there are no neighbouring times.
    stated : float, Jy
        What `measured` would be if the weights were right; the median of 1/sqrt(weight) where nothing is
        measured.
    ratio : float
        Measured over stated: the factor by which the weights' sigma is wrong, from each difference over its
        own sigma.
    n_difference : int
        Number of complex first differences of neighbouring times.
    is_bound : bool
        Whether neighbours certainly differ by more than noise, so that it is an upper limit.
    """

    measured: float
    stated: float
    ratio: float
    n_difference: int
    is_bound: bool = False


class Chosen(NamedTuple):
    """Which differences measure the thermal noise, and whether these hold more than noise."""

    kind: Kind
    is_bound: bool


def thermal_noise(
    sigma: Mapping[Kind, float], n: Mapping[Kind, int], changes: bool | None = None
) -> Chosen | None:
    """The differences that are least above the thermal noise; None where there are none.

    First differences of neighbouring times are the noise, unless second ones, or those of channels, are
    less by 2 % and three standard errors. Then the samples change between two times, and the least of all
    kinds is an upper limit. Channels of one time take the place of times where their noise is less and
    independent: differences over one and over two channels are alike then, as they are neither for a signal
    that changes across channels nor for smoothed channels. Where there are first differences alone, they are
    an upper limit only of samples that are certainly more than noise.

    Parameters
    ----------
    sigma : mapping (axis, kind of difference) -> float
        Rms of the real part of each kind of which there are enough.
    n : mapping (axis, kind of difference) -> int
        Number of complex differences of each kind.
    changes : bool, optional
        Whether samples of neighbouring times are certainly more than noise; by default differences decide.
    """
    of_time = {kind: value for kind, value in sigma.items() if kind[0] == BY_TIME}
    of_channel = {kind: value for kind, value in sigma.items() if kind[0] == BY_CHANNEL and kind[1] != FAR}
    is_level = _is_level(sigma)
    if not of_time:
        return Chosen(min(of_channel, key=of_channel.__getitem__), not is_level) if of_channel else None
    first, by_channel = (BY_TIME, FIRST), (BY_CHANNEL, FIRST)
    others = [kind for kind in ((BY_TIME, SECOND), by_channel) if kind in sigma]
    if not is_level and by_channel in others:
        others.remove(by_channel)
    limit = {kind: NEAR * (1.0 if changes else 1.0 + CHANCE * _error(n, kind)) for kind in others}
    exceeds = any(of_time[first] > limit[kind] * sigma[kind] for kind in others)
    if not others:  # nothing shows whether samples that are more than noise differ by noise alone
        exceeds = changes is True
    if changes is False or not exceeds:
        return Chosen(first, False)
    least = min(of_time, key=of_time.__getitem__)
    if is_level and sigma[by_channel] < of_time[least]:
        return Chosen(by_channel, False)
    return Chosen(least, True)


def _error(n: Mapping[Kind, int], other: Kind) -> float:
    """Standard error of the ratio of first differences of times to another kind, where both are noise.

    The median of |x| of n independent complex values has the relative variance k/n, k = 0.68 (a Gaussian's
    1 / (16 n q^2 f(q)^2) of 2 n parts, q = 0.674). Two values whose parts have the correlation rho have
    g(rho) of it in common, the correlation of |x| < q and |y| < q: 0.11, 0.22 and 0.47 at 1/2, 2/3 and
    sqrt(3)/2.
    Neighbouring first differences have the correlation 1/2, second ones 2/3 (then 1/6, g = 0.01), and a
    first and a second one sqrt(3)/2 (then 1 / sqrt(12), g = 0.03). In a long scan

        first over second      k (2 + 2 g(1/2) + 2 g(2/3) - 4 g(sqrt(3)/2) ..) / n = (0.66)^2 / n
        first over channels    k (1 + 2 g(1/2)) (1/n + 1/n_channel) = (0.91)^2 (1/n + 1/n_channel) at most
    """
    if other == (BY_TIME, SECOND):
        return OF_SECOND / math.sqrt(n[other])
    return OF_CHANNEL * math.sqrt(1.0 / n[BY_TIME, FIRST] + 1.0 / n[other])


def _is_level(sigma: Mapping[Kind, float]) -> bool:
    """Whether differences over one and over two channels are alike."""
    near, far = (sigma.get((BY_CHANNEL, kind), 0.0) for kind in (FIRST, FAR))
    return near > 0.0 and 1.0 / LEVEL < far / near < LEVEL


def measure_noise(partitions: Sequence[Partition], corr: str | None = None, stokes_i: bool = False) -> Noise:
    """Robust noise of one correlation (None: all), or of Stokes I.

    For two neighbouring samples of a baseline, channel and correlation, with weights w1 and w2,

        (v2 - v1) / sqrt(2)                    has the rms sigma,
        (v2 - v1) / sqrt(1/w1 + 1/w2)          has the rms 1 if the weights are right,

    both estimated as 1.4826 median |x| of real and imaginary parts: an rms would be that of the few
    differences in which the fringes of a bright source turn or a gain jumps. Neighbours are at most 1.5
    median spacings (and 7.5 integration times) apart, because across a longer gap the sky turns and adds to
    the difference. With differences across scan breaks the noise of a VLA set of 3C273 would come out 14 %
    larger (their rms: 16 times larger), and that of a WSRT set 5 %. Where samples change between neighbouring
    times, too, `thermal_noise` chooses other differences.

    Stokes I is the weighted mean of those parallel hands that are there, and its weight is their sum; where
    only one is there the noise is larger, so that `ratio` says more than `measured` about a set with flags of
    single hands. Of large sets only every n-th channel, and then every n-th baseline, is used.
    """
    found: dict[Kind, list[tuple[Complex, Complex]]] = {}
    stated = []
    size = sum(part.vis.size for part in partitions)
    for part in partitions:
        rows, channels = some_rows(part, size)
        vis, weight = part.taken(rows, channels)
        if stokes_i:
            vis, weight = _stokes_i(part, vis, weight)
        elif corr is not None:
            wanted = [name == corr for name in part.corr_type]
            vis, weight = vis[..., wanted], weight[..., wanted]
        for kind, *both in _differences_of(part, rows, vis, weight):
            found.setdefault(kind, []).append((both[0], both[1]))
        stated.append(1 / np.sqrt(weight[weight > 0], dtype=np.float64))
    values = {kind: [np.concatenate(x) for x in zip(*each, strict=True)] for kind, each in found.items()}
    size_of = {kind: len(each[1]) for kind, each in values.items()}
    n = size_of[BY_TIME, FIRST]
    enough = {kind: sigma_of(values[kind][1]) for kind, n_of in size_of.items() if n_of >= MIN_DIFFERENCES}
    # A few differences of times are better than nothing, but not for a choice.
    chosen = thermal_noise(enough, size_of) if (BY_TIME, FIRST) in enough else Chosen((BY_TIME, FIRST), False)
    assert chosen is not None
    measured, ratio = (sigma_of(each) for each in values[chosen.kind])
    if ratio > 0.0:
        return Noise(measured, measured / ratio, ratio, n, chosen.is_bound)
    every = np.concatenate(stated)
    return Noise(measured, float(np.median(every)) if every.size else np.nan, ratio, n)


def _differences_of(
    part: Partition, rows: NDArray[np.int64], vis: NDArray[np.complexfloating], weight: NDArray[np.floating]
) -> Iterator[tuple[Kind, Complex, Complex]]:
    """Each kind of difference with the variance of one sample: as it is, and over the noise by weights."""
    for axis, places_of in neighbour_runs(part, rows, vis.shape[1]):
        counts = np.logical_and.reduce([weight[k] > 0 for k in places_of])
        samples = [vis[k][counts].astype(np.complex128) for k in places_of]
        variance = [1.0 / weight[k][counts].astype(np.float64) for k in places_of]
        for name, value, norm in differences(samples):
            own = sum(c * c * each for c, each in zip(norm, variance, strict=True))
            size = sum(c * c for c in norm)
            yield (axis, name), value / math.sqrt(size), value / np.sqrt(own)


def differences(samples: Sequence[Complex]) -> Iterator[tuple[str, Complex, tuple[float, ...]]]:
    """First differences of pairs; second and far ones, and those of fringes, of triples; and coefficients.

    Parameters
    ----------
    samples : two or three of complex128 (n,)
        Neighbours.
    """
    if len(samples) == 2:
        yield FIRST, samples[1] - samples[0], (1.0, 1.0)
        return
    first, second, third = samples
    yield SECOND, first - 2.0 * second + third, (1.0, 2.0, 1.0)
    size = np.abs(second)
    turn = np.divide(second.conj(), size, out=np.zeros_like(second), where=size > 0)
    yield FRINGE, first * turn - (third * turn).conj(), (1.0, 0.0, 1.0)
    yield FAR, third - first, (1.0, 0.0, 1.0)


def neighbour_runs(
    part: Partition, rows: NDArray[np.int64], n_chan: int
) -> Iterator[tuple[str, list[NDArray[np.int64] | tuple[slice, slice]]]]:
    """Indices of pairs and triples of neighbouring times, then of channels, in arrays (n_row, n_chan, ...).

    Parameters
    ----------
    part : Partition
    rows : int64 (n_row,)
        The rows of the partition that the arrays have, ascending.
    n_chan : int
    """
    for n in (2, 3):
        yield BY_TIME, [*places(rows, neighbours(part, rows, n))]
    for n in (2, 3):
        if n_chan >= n:
            yield BY_CHANNEL, [(slice(None), slice(k, n_chan - n + 1 + k)) for k in range(n)]


def scatter_of_baselines(part: Partition) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The noise of each baseline and correlation, in units of that which the weights state.

    Parameters
    ----------
    part : Partition
        Where its data lie elsewhere, those of some baselines at a time are taken.

    Returns
    -------
    baseline : int64 (n_row,)
        Number of each row's baseline.
    ratio : float64 (n_baseline, n_corr)
        From differences of neighbouring times as `measure_noise` takes them; NaN of fewer than 32.
    """
    pair = part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    _, baseline = np.unique(pair, return_inverse=True)
    order = np.argsort(baseline, kind="stable")
    rows_of = np.split(order, np.cumsum(np.bincount(baseline))[:-1])
    ratio = np.full((len(rows_of), part.n_corr), np.nan)
    first = 0
    for last in _blocks(
        [rows.size for rows in rows_of], BLOCK_VISIBILITIES // max(1, part.n_chan * part.n_corr)
    ):
        taken = np.sort(np.concatenate(rows_of[first:last]))
        vis, weight = part.taken(taken, slice(None))
        for i, rows in enumerate(rows_of[first:last], first):
            pairs = places(taken, neighbours(part, rows))
            for k in range(part.n_corr):
                _, scaled = _differences(pairs, vis[:, :, k], weight[:, :, k])
                if len(scaled) >= MIN_DIFFERENCES:
                    ratio[i, k] = sigma_of(scaled)
        first = last
    return baseline, ratio


def _blocks(sizes: Sequence[int], most: int) -> Iterator[int]:
    """Where blocks of neighbours end whose sizes have a sum of at most `most`, or that have one alone."""
    total = 0
    for i, size in enumerate(sizes):
        if total and total + size > most:
            yield i
            total = 0
        total += size
    if sizes:
        yield len(sizes)


def some_rows(part: Partition, size: int) -> tuple[NDArray[np.int64], slice]:
    """Rows of a partition, ascending, and its channels, so that `size` becomes about `MAX_SAMPLES`."""
    step = max(1, min(part.n_chan, round(size / MAX_SAMPLES)))
    return _every_nth_baseline(part, max(1, round(size / step / MAX_SAMPLES))), slice(None, None, step)


def places(rows: NDArray[np.int64], some: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Where some of the rows, which ascend, are among them."""
    return [np.searchsorted(rows, each) for each in some]


def _stokes_i(
    part: Partition, vis: NDArray[np.complexfloating], weight: NDArray[np.floating]
) -> tuple[NDArray[np.complexfloating], NDArray[np.floating]]:
    share = share_of_i(part.corr_type)
    total = (weight @ np.abs(share) ** 2)[..., None]
    mean = (vis * weight @ share.conj())[..., None]
    return np.divide(mean, total, out=np.zeros_like(mean), where=total > 0), total


def _every_nth_baseline(part: Partition, step: int) -> NDArray[np.int64]:
    """Rows of every step-th baseline that has rows, int64 (n_selected,)."""
    pair = part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    has_rows = np.zeros(part.n_antenna**2, bool)
    has_rows[pair] = True
    return np.flatnonzero(((np.cumsum(has_rows) - 1) % step == 0)[pair])


def neighbours(part: Partition, rows: NDArray[np.int64], n: int = 2) -> list[NDArray[np.int64]]:
    """Rows that are n neighbouring times of one baseline: n arrays int64 (n_run,), in the order of time.

    Parameters
    ----------
    part : Partition
    rows : int64 (n_selected,)
        Among which they are looked for.
    n : int
    """
    rows = rows[part.row_weight[rows] > 0]  # copies of rows that count lie between these and the next time
    order = rows[np.lexsort((part.time[rows], part.antenna2[rows], part.antenna1[rows]))]
    gap = np.diff(part.time[order])
    spacing = part.spacing
    near = (gap > 0) & (gap <= 1.5 * min(spacing, 5 * (part.interval or spacing)))
    for antenna in (part.antenna1, part.antenna2):
        near &= np.diff(antenna[order]) == 0
    n_start = max(0, len(order) - n + 1)
    together = np.ones(n_start, bool)
    for k in range(n - 1):
        together &= near[k : k + n_start]
    start = np.flatnonzero(together)
    return [order[start + k] for k in range(n)]


def _differences(
    pairs: Sequence[NDArray[np.int64]],
    vis: NDArray[np.complexfloating],
    weight: NDArray[np.floating],
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Differences of neighbouring times, over sqrt(2) and over sqrt(1/w1 + 1/w2), complex128 (n_pair,)."""
    before, after = pairs
    both = (weight[before] > 0) & (weight[after] > 0)
    difference: NDArray[np.complex128] = vis[after][both].astype(np.complex128) - vis[before][both]
    variance = 1 / weight[before][both].astype(np.float64) + 1 / weight[after][both].astype(np.float64)
    return difference / np.sqrt(2), difference / np.sqrt(variance)


def sigma_of(values: NDArray[np.complex128]) -> float:
    """1.4826 median |x| of real and imaginary parts; NaN of none."""
    if not values.size:
        return float("nan")
    return float(MAD_TO_SIGMA * np.median(np.abs(np.concatenate([values.real, values.imag]))))
