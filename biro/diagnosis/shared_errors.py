"""Correlation between residuals of partitions that share baselines and times, such as spectral windows.

With r_a(t) the sum of the residuals of a baseline over channels and parallel hands of partition a, in units
of the rms of the real part, and n_a(t) how many these are,

    R(k) = sum_(a != b) Re r_a(t + k) r_b(t)^* / [2 sum_(a != b) n_a(t + k) n_b(t)]

with sums over times and baselines, too. A closure error of a baseline, or a source that the model lacks, is
common to all windows. It may be far below the noise of each, where the correlation within a window, as
`biro.diagnosis.correlated_errors` measures it, shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from biro.diagnosis.lags import SURE, lag_ranges
from biro.observation.correlations import PARALLEL_HANDS
from biro.observation.partition import Partition
from rime_kernels.arrays.time_slots import slot_width, time_slots

Array = NDArray[np.float64]
Grid = NDArray[np.complex128]


class SharedErrors:
    """Residuals of several partitions of a field, and the spread that their correlation gives to parameters.

    Parameters
    ----------
    partitions : sequence of Partition
        Of one field.
    residuals : sequence of complex128 (n_row, n_chan, n_corr)
        In units of the rms of their real parts; 0 where there is none.
    n_param : int

    Attributes
    ----------
    rho : float64 (n_lag,)
        R by lags in time, as far as it is certain; empty where it is not.
    certainty : float
        Standard deviations of the sum of R over these lags; 0 of none.
    """

    certainty = 0.0

    def __init__(self, partitions: Sequence[Partition], residuals: Sequence[Grid], n_param: int) -> None:
        # Partitions may round the same times differently (physics: section 6).
        self._times = np.unique(np.concatenate([part.times for part in partitions]))
        shortest = min((part.shortest_interval for part in partitions if part.n_row), default=0.0)
        slots, self._slot = time_slots(self._times, slot_width(shortest))
        self._pairs = np.unique(np.concatenate([_pair(part) for part in partitions]))
        self._shape = len(self._pairs), len(slots)
        self.rho = self._correlation(partitions, residuals) if len(partitions) > 1 else np.zeros(0)
        self._total = np.zeros((n_param, *self._shape) if self.rho.size else (n_param, 0, 0), np.complex128)
        self._own = np.zeros((n_param, n_param))

    def _sums(self, part: Partition, values: Grid) -> Grid:
        """Sums over channels and parallel hands, complex128 (n_baseline, n_time)."""
        sums = np.zeros(self._shape, np.complex128)
        rows = np.flatnonzero(part.row_weight > 0)  # a copy of a row counts once
        pair = np.searchsorted(self._pairs, _pair(part)[rows])
        slot = self._slot[np.searchsorted(self._times, part.times)][part.time_index[rows]]
        some = [i for i, name in enumerate(part.corr_type) if name in (*PARALLEL_HANDS, "I")]
        taken = values[rows][..., some] if some else values[rows]  # cross hands need not share these errors
        np.add.at(sums, (pair, slot), taken.sum(axis=(1, 2)))
        return sums

    def _correlation(self, partitions: Sequence[Partition], residuals: Sequence[Grid]) -> Array:
        sums = np.array([self._sums(part, r) for part, r in zip(partitions, residuals, strict=True)])
        count = np.array([
            self._sums(part, (r != 0).astype(np.complex128)).real
            for part, r in zip(partitions, residuals, strict=True)
        ])  # fmt: skip
        found: list[float] = []
        total = total_variance = 0.0
        for lags in lag_ranges(self._shape[1]):
            product = sum(_between(sums, k) for k in lags)
            pairs = sum(_between(count, k) for k in lags)
            # At lag 0 each pair of partitions counts twice.
            variance = 0.5 * sum(_between(np.abs(sums) ** 2, k) for k in lags) * (1.0 if lags.start else 2.0)
            if not product > SURE * math.sqrt(max(variance, 0.0)) or not pairs > 0.0:
                break
            found += [0.5 * product / pairs] * len(lags)
            total, total_variance = total + product, total_variance + variance
            self.certainty = total / math.sqrt(total_variance)
        return np.array(found)

    def add(self, part: Partition, slopes: Iterable[Grid]) -> None:
        """Add derivatives by each parameter, (n_row, n_chan, n_corr), times the rms of the residuals."""
        if self.rho.size:
            own = np.array([self._sums(part, slope) for slope in slopes])
            self._own += self._spread(own)
            self._total += own

    def spread(self) -> Array:
        """What correlation between partitions adds to Re(J^H C J), float64 (n_param, n_param)."""
        return self._spread(self._total) - self._own

    def _spread(self, sums: Grid) -> Array:
        """Re sum over baselines and times of S_i^* R S_j."""
        if not self.rho.size:
            return np.zeros((len(sums), len(sums)))
        n_time, n_lag = self._shape[1], len(self.rho)
        size = fft.next_fast_len(n_time + n_lag - 1)
        of_lags = np.zeros(size)
        of_lags[:n_lag] = self.rho
        of_lags[size - n_lag + 1 :] = self.rho[:0:-1]
        smooth = fft.ifft(fft.fft(sums, size) * fft.fft(of_lags).real)[..., :n_time]
        flat = len(sums), -1
        return np.asarray((sums.reshape(flat).conj() @ smooth.reshape(flat).T).real)


def _pair(part: Partition) -> NDArray[np.int64]:
    """A number for the two antennas of each row, int64 (n_row,)."""
    return np.asarray(part.antenna1.astype(np.int64) * (1 << 31) + part.antenna2)


def _between(values: NDArray[np.inexact], lag: int) -> float:
    """Re sum of products of different partitions a lag apart, of (n_part, n_baseline, n_time)."""
    late, early = values[..., lag:], values[..., : values.shape[-1] - lag]
    own = np.vdot(early, late).real
    return float(np.vdot(early.sum(axis=0), late.sum(axis=0)).real - own)
