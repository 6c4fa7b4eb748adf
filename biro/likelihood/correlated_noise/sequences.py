"""Samples of a partition whose noise is correlated: in sequences along times or channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.observation.partition import Partition
from rime_kernels.arrays.time_slots import steps_of_baselines
from rime_kernels.correlated_noise.covariance import Factors, Patterns, factors, information
from rime_kernels.correlated_noise.sums import Sequences, colour, square_slopes, unwhiten, whiten

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Index = NDArray[np.int64]
_JITTER = 1e-6
"""Gaps between times are alike within this, in units of the median spacing: files round times."""


@dataclass(frozen=True)
class Squares:
    """x^H R^-1 x of one partition, for residuals x over the stated noise, and derivatives.

    Attributes
    ----------
    value : float
    weighted : complex128 (n_row, n_chan, n_corr), 1/Jy
        sqrt(w) R^-1 x.
    by_number : float64 (2,)
        By rho and the smoothing.
    """

    value: float
    weighted: Complex
    by_number: Array


class NoiseSequences:
    """The correlated noise of one partition, of x = sqrt(w) (D - V), with the covariance s^2 R.

    Parameters
    ----------
    part : Partition
    axis : "time" or "chan"
        Along which samples are neighbours. Samples without weight belong to no sequence, and leave a gap.
    spacing : float, s
        Median spacing of times; of channels it is the smallest in the partition.

    Raises
    ------
    InputError
        Two rows of a baseline have the same time, or its antennas are in either order; or two channels have
        one frequency.
    """

    def __init__(self, part: Partition, axis: str, spacing: float) -> None:
        self._shape, self._smoothed = part.vis.shape, axis == "chan"
        self._root = np.sqrt(part.weight, dtype=np.float64)
        key, place = _along_channels(part) if self._smoothed else _along_times(part, spacing)
        used = np.flatnonzero(part.weight.ravel() > 0)
        key, place = key.ravel()[used], place.ravel()[used]
        order = np.lexsort((place, key))
        self._sample, key, place = used[order], key[order], place[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1)) if key.size else np.zeros(0, np.int64)
        self._root_of_sample = self._root.ravel()[self._sample]
        begin = np.append(starts, key.size).astype(np.int64)
        gaps = np.diff(place, prepend=0.0)
        gaps = np.round(gaps / _JITTER) * _JITTER
        gaps[starts] = 1.0
        if (gaps <= 0.0).any():
            raise InputError(_same_time(part, int(self._sample[np.flatnonzero(gaps <= 0.0)[0]])))
        gaps[starts] = 0.0
        self._patterns, pattern = _patterns(gaps, begin)
        self._sequences = Sequences(begin, pattern, self._patterns.begin[pattern])

    def factors(self, numbers: Array) -> Factors:
        """The factors of R^-1 for rho and the smoothing (2,)."""
        return factors(self._patterns, float(numbers[0]), float(numbers[1]), smoothed=self._smoothed)

    def log_det(self, of: Factors) -> tuple[float, Array]:
        """ln det R, each complex sample counted once, and its derivatives by rho and the smoothing."""
        count = np.bincount(self._sequences.pattern, minlength=len(of.log_det)).astype(np.float64)
        return float(of.log_det @ count), of.log_det_slopes @ count

    def square(self, residual: NDArray[np.complexfloating], of: Factors) -> float:
        """x^H R^-1 x of residuals (n_row, n_chan, n_corr) in Jy."""
        white = self._white(residual, of)[1]
        return float(np.vdot(white, white).real)

    def squares(self, residual: NDArray[np.complexfloating], of: Factors) -> Squares:
        """x^H R^-1 x with its derivatives."""
        (begin, _, first), (x, white) = self._sequences, self._white(residual, of)
        middle, y, by_number = np.empty_like(x), np.empty_like(x), np.zeros((len(first), 2))
        unwhiten(white, begin, first, of.rows, middle, y)
        n = 2 if self._smoothed else 1
        square_slopes(x, white, middle, begin, first, of.slopes[:n], by_number)
        weighted = self._scattered(y) * self._root
        return Squares(float(np.vdot(white, white).real), weighted, by_number.sum(axis=0))

    def weighted(self, change: NDArray[np.complexfloating], of: Factors) -> Complex:
        """sqrt(w) R^-1 sqrt(w) times visibilities (n_row, n_chan, n_corr)."""
        begin, _, first = self._sequences
        white = self._white(change, of)[1]
        middle, y = np.empty_like(white), np.empty_like(white)
        unwhiten(white, begin, first, of.rows, middle, y)
        return np.asarray(self._scattered(y) * self._root)

    def products(self, columns: NDArray[np.complexfloating], of: Factors) -> Array:
        """Re(J^H sqrt(w) R^-1 sqrt(w) J) of columns (n_column, n_row, n_chan, n_corr)."""
        white = np.stack([self._white(column, of)[1] for column in columns]).view(np.float64)
        return np.asarray(white @ white.T)

    def whitened(self, residual: NDArray[np.complexfloating], of: Factors) -> Complex:
        """L^-1 B x (n_row, n_chan, n_corr): what is independent in x, of variance s^2; 0 without weight."""
        return self._scattered(self._white(residual, of)[1])

    def coloured(self, white: NDArray[np.complexfloating], of: Factors) -> Complex:
        """Noise with the covariance R, of independent noise of variance 1; 0 without weight."""
        begin, _, first = self._sequences
        drawn = np.ascontiguousarray(white.ravel()[self._sample], np.complex128)
        found = np.empty_like(drawn)
        colour(drawn, begin, first, of.rows, found)
        return self._scattered(found)

    def correlation(self, white: Complex, lag: int) -> tuple[float, int]:
        """Correlation of whitened residuals (n_row, n_chan, n_corr) so far apart, and of how many pairs."""
        each, (begin, _, _) = white.ravel()[self._sample], self._sequences
        since = np.arange(len(each)) - np.repeat(begin[:-1], np.diff(begin))
        later = np.flatnonzero(since >= lag)
        square = float(np.vdot(each, each).real)
        if not later.size or square == 0.0:
            return 0.0, 0
        mean = float(np.vdot(each[later - lag], each[later]).real) / later.size
        return mean * len(each) / square, int(later.size)

    def information(self, of: Factors) -> Array:
        """Fisher information on rho, the smoothing and, last but for 1/s and 1/s^2, s: float64 (3, 3)."""
        count = np.bincount(self._sequences.pattern, minlength=len(of.log_det)).astype(np.float64)
        found = np.empty((3, 3))
        found[:2, :2] = np.einsum(
            "p,pab->ab", count, information(self._patterns, of, smoothed=self._smoothed)
        )
        found[:2, 2] = found[2, :2] = 2.0 * (of.log_det_slopes @ count)
        found[2, 2] = 4.0 * len(self._sample)
        return found

    def _white(self, residual: NDArray[np.complexfloating], of: Factors) -> tuple[Complex, Complex]:
        """x and L^-1 B x of all samples in the order of sequences."""
        begin, _, first = self._sequences
        x = np.asarray(residual.ravel()[self._sample] * self._root_of_sample, np.complex128)
        white = np.empty_like(x)
        whiten(x, begin, first, of.rows, white)
        return x, white

    def _scattered(self, values: Complex) -> Complex:
        """Values in the order of sequences as (n_row, n_chan, n_corr)."""
        found = np.zeros(self._shape, np.complex128)
        found.ravel()[self._sample] = values
        return found


def median_spacing(partitions: Sequence[Partition]) -> float:
    """Median spacing of the times of a baseline, in seconds; 1 where there are none."""
    gaps = [steps_of_baselines(part.time_of_slots, part.antenna1, part.antenna2) for part in partitions]
    found = np.concatenate(gaps)
    return float(np.median(found)) if found.size else 1.0


def _along_times(part: Partition, spacing: float) -> tuple[Index, Array]:
    """Sequence and place of each sample, (n_row, n_chan, n_corr): times of a baseline."""
    first, second = part.antenna1.astype(np.int64), part.antenna2.astype(np.int64)
    pair, turned = first * part.n_antenna + second, second * part.n_antenna + first
    both = np.flatnonzero(np.isin(pair, turned) & (first != second))
    if both.size:
        raise InputError(
            f'correlation = "time": {part.field}, spw {part.spw} has rows of the antennas {first[both[0]]} '
            f"and {second[both[0]]} in both orders; swap antennas, uvw and visibilities of these rows"
        )
    n = part.n_chan * part.n_corr
    key = (pair[:, None] * n + np.arange(n)).reshape(part.vis.shape)
    place = (part.time - part.time.min(initial=np.inf)) / spacing if part.n_row else part.time
    return key, np.broadcast_to(place[:, None, None], part.vis.shape)


def _along_channels(part: Partition) -> tuple[Index, Array]:
    """Sequence and place of each sample, (n_row, n_chan, n_corr): channels of a row."""
    step = np.diff(np.sort(part.chan_freq))
    if step.size and step.min() == 0.0:
        raise InputError(f'correlation = "chan": two channels of spw {part.spw} have the same frequency')
    place = np.rint((part.chan_freq - part.chan_freq.min()) / (step.min() if step.size else 1.0))
    key = np.arange(part.n_row)[:, None, None] * part.n_corr + np.arange(part.n_corr)
    return np.broadcast_to(key, part.vis.shape), np.broadcast_to(place[None, :, None], part.vis.shape)


def _patterns(gaps: Array, begin: Index) -> tuple[Patterns, Index]:
    """Gaps before each sample as patterns, each once; and the pattern of each sequence."""
    known: dict[bytes, int] = {}
    kept: list[Array] = []
    pattern = np.empty(len(begin) - 1, np.int64)
    for i, (start, end) in enumerate(zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True)):
        own = gaps[start:end]
        k = pattern[i] = known.setdefault(own.tobytes(), len(known))
        if k == len(kept):
            kept.append(np.cumsum(own))
    ends = np.cumsum([0, *map(len, kept)]).astype(np.int64)
    return Patterns(np.concatenate([*kept, np.zeros(0)]), ends), pattern


def _same_time(part: Partition, sample: int) -> str:
    row = sample // (part.n_chan * part.n_corr)
    return (
        f'correlation = "time": {part.field}, spw {part.spw} has two rows of the antennas '
        f"{part.antenna1[row]} and {part.antenna2[row]} at the same time; remove one of them"
    )
