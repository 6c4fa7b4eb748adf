"""How likely residuals are as thermal noise together with errors of the antennas' gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.fitting.gain_noise import BaselineAntennas, GainErrorModes, GainNoise
from biro.source_finding.fitting.visibility_data import VisibilityData

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Vis = NDArray[np.complex128]
LONGER = 4
"""Each length of time over which gains may be constant is so many times the one before."""
MAX_WORK = 1 << 25
"""Numbers in the normal matrices of gains, times the antennas, at most."""
PRIOR_INTERVALS = 4.0
"""Intervals that the mean variance of all antennas counts for, where that of one antenna is estimated."""
GAP = 3.0
"""Times farther apart than so many times the median are of different scans."""
_SD = np.concatenate([[0.0], np.logspace(-4.0, 1.0, 31)])
"""Standard deviations of gains that are tried, in units of the rms of residuals at unit visibility."""
MOST_ERROR = 0.3
"""Rms error of gains at most: larger ones are not of first order, and stand for structure that is missing."""
_ROUNDS = 5
"""Rounds of the estimate of each antenna's variance."""


@dataclass(frozen=True, eq=False)
class Explained:
    """Residuals of a model, taken for noise and errors of gains.

    Attributes
    ----------
    minus_2_log : float
        -2 ln L, without a constant.
    noise : float
        Rms of what gains do not explain, in units of the noise that the weights state.
    gain_error : float
        Rms of the real and of the imaginary part of an antenna's relative gain error, over the antennas.
    left : tuple of complex128 (n,), Jy
        Residuals without the most probable errors of gains, in the order of the chunks.
    modes : GainErrorModes
        Of these errors.
    second : complex128 (n,), Jy
        What is of second order in these errors, which was taken off the residuals.
    evidence : float
        2 ln of the likelihood ratio for gains with errors against gains without.
    """

    minus_2_log: float
    noise: float
    gain_error: float
    left: tuple[Vis, ...]
    modes: GainErrorModes
    second: Vis
    evidence: float = 0.0


class GainErrors:
    """The likelihood of residuals with errors of the antennas' gains integrated out.

    To first order in the gain errors a + i phi of the antennas, residuals r of a model V are

        r_pq = V_pq [(a_p + a_q) + i (phi_p - phi_q)] + noise,

    with noise s/sqrt(w), and with a and phi normal, independent for each antenna, partition and interval of
    time. Their standard deviation is t d, where d depends on the antenna and differs for a and phi (`learn`).
    In units of d, the integral over a and phi is

        -2 ln L = [chi2 - sum k g^2/(1 + k m)] / s^2 + sum ln(1 + k m) + 2N ln s^2,      k = t^2/s^2,

    with sums over the eigenvectors of the normal matrices of a and of phi, m their eigenvalues and g the
    gradients along them. What is of second order in the most probable errors is taken off r before. s, k and
    the length of the intervals take their best values. A source that the model lacks is not antenna-based, so
    that adding it raises L; what is added to describe errors of gains does not.

    Parameters
    ----------
    data : VisibilityData
    any_at_all : bool
        False: gains have no errors.

    Attributes
    ----------
    names : int64 (n_antenna,)
        Numbers of the antennas.
    relative : float64 (2, n_antenna)
        d of a and of phi, of mean square 1.
    """

    def __init__(self, data: VisibilityData, *, any_at_all: bool = True) -> None:
        chunks = data.chunks
        first, second, part, time, self._root = (
            np.concatenate([getattr(chunk, name) for chunk in chunks])
            for name in ("antenna1", "antenna2", "part", "time", "root")
        )
        self.names, both = np.unique(np.concatenate([first, second]), return_inverse=True)
        first, second = np.split(both.ravel(), 2)
        self._ends = BaselineAntennas(first, second, len(self.names), first != second)
        self._n_baseline = len(np.unique(np.sort(np.stack([first, second]), axis=0), axis=1).T)
        self._n_vis, self._lengths = data.n_vis, [len(chunk.vis) for chunk in chunks]
        self._times, slot = np.unique(time, return_inverse=True)
        most = MAX_WORK // len(self.names) ** 3
        self._intervals = list(_intervals(part, slot.ravel(), self._times, most))
        self._sizes = _SD if any_at_all else _SD[:1]
        self.forget()

    def forget(self) -> None:
        """Take errors as equally large in all antennas."""
        self.relative = np.ones((2, len(self.names)))

    def __call__(self, residual: Sequence[Vis], model: Sequence[Vis]) -> Explained:
        """Residuals data - V, and V, complex128 (n,) in Jy each, in the order of the chunks."""
        z, v = np.concatenate(residual) * self._root, np.concatenate(model) * self._root
        value, best = self._best(z, v, self._intervals)
        n = 2.0 * max(self._n_vis, 1)
        without = n * float(np.log(max(float(np.vdot(z, z).real), 1e-300) / n))
        second = np.zeros_like(v)
        if best.k > 0.0:
            # Terms of second order belong to the model, once they are known from the first.
            second = v * self._ends.product(best.index, best.errors)
            value, best = self._best(z - second, v, [i for i in self._intervals if i.index is best.index])
        z = z - second
        first = self._ends.turn(best.index, best.errors) - self._ends.product(best.index, best.errors)
        chi2 = float(np.vdot(z, z).real)
        noise = float(np.sqrt(max(chi2 - best.explained, 0.0) / (2.0 * max(self._n_vis, 1))))
        split = tuple(np.split((z - v * first) / self._root, np.cumsum(self._lengths)[:-1]))
        return Explained(
            value, noise, float(np.sqrt(best.k)) * noise, split, best, second / self._root, without - value
        )

    def _best(self, z: Vis, v: Vis, intervals: Sequence[_Intervals]) -> tuple[float, GainErrorModes]:
        """The least -2 ln L of residuals and a model over sigma, and the modes of the gains there."""
        slope, power = z * v.conj(), v.real**2 + v.imag**2
        chi2, n = float(np.vdot(z, z).real), 2.0 * max(self._n_vis, 1)
        value, best = np.inf, None
        for interval in intervals:
            modes = GainErrorModes.of(interval.index, self._ends, self.relative, power, slope)
            m, g2 = modes.values.ravel(), modes.along.ravel() ** 2
            for sd in self._sizes if power.any() else _SD[:1]:
                k = sd**2 * n / max(chi2, 1e-300)
                left = max(chi2 - float((g2 * k / (1.0 + k * m)).sum()), 1e-12 * chi2, 1e-300)
                if k * left / n > MOST_ERROR**2:
                    continue
                one = float(n * np.log(left / n) + np.log1p(k * m).sum())
                if best is None or one < value:
                    value, best = one, replace(modes, k=k)
        assert best is not None, "there is one length of time at least"
        return value, best

    def learn(self, explained: Explained) -> None:
        """Estimate the variance of each antenna's errors, by expectation and maximisation.

        The variance is the mean over the intervals of the square of the most probable error and of its
        variance; the mean of all antennas counts for `PRIOR_INTERVALS` intervals more.
        """
        modes, noise2 = explained.modes, max(explained.noise**2, 1e-300)
        if not modes.k > 0.0:
            return
        count, variance = modes.seen.sum(axis=1), modes.k * modes.relative**2
        for _ in range(_ROUNDS):
            root = np.sqrt(variance)[:, None, :]
            inverse = np.linalg.inv(
                np.eye(len(self.names)) + modes.matrix * root[..., None] * root[:, :, None, :]
            )
            error = root * np.einsum("csij,csj->csi", inverse, modes.gradient * root)
            square = error**2 / noise2 + variance[:, None, :] * np.diagonal(inverse, axis1=2, axis2=3)
            total = np.where(modes.seen, square, 0.0).sum(axis=1)
            mean = total.sum() / max(count.sum(), 1)
            variance = (total + PRIOR_INTERVALS * mean) / (count + PRIOR_INTERVALS)
        self.relative = np.sqrt(variance / max(variance.mean(), 1e-300))

    def noise_of(self, explained: Explained, model: Sequence[Vis]) -> GainNoise | None:
        """The covariance of data that errors of gains of a model are a part of; None where there are none.

        None, too, where closures are fewer than gains: errors of these may then be anything.
        """
        if not explained.modes.k > 0.0 or self._n_baseline < 2 * len(self.names):
            return None
        offset = np.split(explained.second, np.cumsum(self._lengths)[:-1])
        v = np.concatenate(model) * self._root
        return GainNoise.of(explained.modes, self._ends, v, offset, explained.noise)

    def by_antenna(self, explained: Explained) -> dict[int, tuple[float, float, float]]:
        """What is wrong with the gain of each antenna, by its number.

        Returns
        -------
        dict of (float, float, float)
            Rms of the relative error of the amplitude, its mean over all intervals, and rms of the phase
            error, rad.
        """
        modes = explained.modes
        amplitude, phase = np.sqrt(modes.k) * explained.noise * modes.relative
        values = zip(amplitude.tolist(), modes.mean[0].tolist(), phase.tolist(), strict=True)
        return dict(zip(self.names.tolist(), values, strict=True))

    def turn(
        self,
        explained: Explained,
        i_part: int,
        time: Array,
        antenna1: NDArray[np.integer],
        antenna2: NDArray[np.integer],
    ) -> Vis:
        """The most probable relative error in rows of a partition, complex128 (n_row,).

        Parameters
        ----------
        explained : Explained
        i_part : int
        time : float64 (n_row,), s
        antenna1, antenna2 : int (n_row,)
        """
        modes = explained.modes
        (interval,) = (each for each in self._intervals if each.index is modes.index)
        slot = np.searchsorted(0.5 * (self._times[1:] + self._times[:-1]), time)
        index, known = interval.of(i_part, slot)
        last = len(self.names) - 1
        first, second = (np.minimum(np.searchsorted(self.names, end), last) for end in (antenna1, antenna2))
        known &= (self.names[first] == antenna1) & (self.names[second] == antenna2) & (first != second)
        return BaselineAntennas(first, second, len(self.names), known).turn(index, modes.errors)


@dataclass(frozen=True, eq=False)
class _Intervals:
    """Intervals of time in each partition.

    Attributes
    ----------
    block : int64 (n_time,)
        Interval of each time.
    keys : int64 (n_interval,)
        Of each interval of a partition, from both numbers.
    index : int64 (n_vis,)
        Interval of each visibility.
    """

    block: Indices
    keys: Indices
    index: Indices

    @classmethod
    def over(cls, part: Indices, slot: Indices, block: Indices) -> _Intervals:
        """Intervals of visibilities whose partitions and numbers of times are these."""
        keys, index = np.unique(part * len(block) + block[slot], return_inverse=True)
        return cls(block, keys, index.ravel())

    def of(self, i_part: int, slot: Indices) -> tuple[Indices, NDArray[np.bool_]]:
        """The intervals of some times of a partition, and whether there are such intervals."""
        wanted = i_part * len(self.block) + self.block[slot]
        index = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return index, self.keys[index] == wanted


def _intervals(part: Indices, slot: Indices, times: Array, most: int) -> list[_Intervals]:
    """Intervals of growing length; of the shortest there are `most` at most."""
    blocks = list(_blocks(times))
    every = (_Intervals.over(part, slot, block) for block in blocks)
    return [one for one, block in zip(every, blocks, strict=True) if len(one.keys) <= most or not block.any()]


def _blocks(times: Array) -> Iterator[Indices]:
    """The interval of each time, for intervals of growing length: parts of scans, scans, several scans, all.

    Gains change between scans, which gaps in time tell apart.
    """
    spacing = np.diff(times)
    is_gap = spacing > GAP * np.median(spacing) if spacing.size else np.zeros(0, bool)
    scan = np.concatenate([[0], np.cumsum(is_gap)])
    first = np.searchsorted(scan, scan)
    place = np.arange(len(times)) - first
    length, together = 1, 1
    while length <= int(place.max()):
        begins = (np.diff(scan) != 0) | (np.diff(place // length) != 0)
        yield np.concatenate([[0], np.cumsum(begins)])
        length *= LONGER
    while together <= int(scan.max()):
        yield scan // together
        together *= LONGER
    yield np.zeros(len(times), np.int64)
