"""How likely residuals are as thermal noise together with errors of the antennas' gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.visibility_data import VisibilityData

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Vis = NDArray[np.complex128]
LONGER = 4
"""Each length of time over which gains may be constant is so many times the one before."""
MAX_WORK = 1 << 25
"""Numbers in the normal matrices of gains, times the antennas, at most."""
_SD = np.concatenate([[0.0], np.logspace(-4.0, 1.0, 31)])
"""Standard deviations of gains that are tried, in units of the rms of residuals at unit visibility."""


@dataclass(frozen=True)
class Explained:
    """Residuals of a model, taken for noise and errors of gains.

    Attributes
    ----------
    minus_2_log : float
        -2 ln L, without a constant.
    noise : float
        Rms of what gains do not explain, in units of the noise that the weights state.
    gain_error : float
        Rms of the real and of the imaginary part of an antenna's relative gain error.
    left : tuple of complex128 (n,), Jy
        Residuals without the most probable errors of gains, in the order of the chunks.
    """

    minus_2_log: float
    noise: float
    gain_error: float
    left: tuple[Vis, ...]


@dataclass(frozen=True, eq=False)
class _Modes:
    """Eigenvectors of the normal matrices of the gains' real or imaginary parts in each interval.

    Attributes
    ----------
    values : float64 (n_interval, n_antenna)
    vectors : float64 (n_interval, n_antenna, n_antenna)
    along : float64 (n_interval, n_antenna)
        Gradients along the eigenvectors.
    """

    values: Array
    vectors: Array
    along: Array

    def solution(self, k: float) -> Array:
        """The most probable gain errors for k = t^2/s^2, float64 (n_interval, n_antenna)."""
        return np.asarray(np.einsum("sij,sj->si", self.vectors, self.along * k / (1.0 + k * self.values)))


class GainErrors:
    """The likelihood of residuals with errors of the antennas' gains integrated out.

    To first order in the gain errors a + i phi of the antennas, residuals r of a model V are

        r_pq = V_pq [(a_p + a_q) + i (phi_p - phi_q)] + noise,

    with noise s/sqrt(w), and with a and phi normal of standard deviation t, independent for each antenna,
    partition and interval of time. The integral over a and phi is

        -2 ln L = [chi2 - sum k g^2/(1 + k m)] / s^2 + sum ln(1 + k m) + 2N ln s^2,      k = t^2/s^2,

    with sums over the eigenvectors of the normal matrices of a and of phi, m their eigenvalues and g the
    gradients along them. s, k and the length of the intervals take their best values. A source that the
    model lacks is not antenna-based, so that adding it raises L; what is added to describe errors of gains
    does not.

    Parameters
    ----------
    data : VisibilityData
    """

    def __init__(self, data: VisibilityData) -> None:
        chunks = data.chunks
        first, second = (
            np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("antenna1", "antenna2")
        )
        names, both = np.unique(np.concatenate([first, second]), return_inverse=True)
        self._n, self._n_vis = len(names), data.n_vis
        self._first, self._second = np.split(both.ravel(), 2)
        self._is_other = self._first != self._second
        self._root = np.concatenate([chunk.root for chunk in chunks])
        part = np.concatenate([chunk.part for chunk in chunks])
        time = np.unique(np.concatenate([chunk.time for chunk in chunks]), return_inverse=True)[1].ravel()
        self._intervals = list(_intervals(part, time, MAX_WORK // self._n**3))

    def __call__(self, residual: Sequence[Vis], model: Sequence[Vis]) -> Explained:
        """Residuals data - V, and V, complex128 (n,) in Jy each, in the order of the chunks."""
        z, v = np.concatenate(residual) * self._root, np.concatenate(model) * self._root
        slope, power = z * v.conj() * self._is_other, (v.real**2 + v.imag**2) * self._is_other
        chi2 = float(np.vdot(z, z).real)
        n, best = 2.0 * max(self._n_vis, 1), (np.inf, 0.0, 0)
        solved = []
        for i, interval in enumerate(self._intervals):
            real = self._modes(interval, power, slope.real, 1.0)
            imag = self._modes(interval, power, slope.imag, -1.0)
            solved.append((real, imag))
            m = np.concatenate([real.values, imag.values]).ravel()
            g2 = np.concatenate([real.along, imag.along]).ravel() ** 2
            for sd in _SD if power.any() else _SD[:1]:
                k = sd**2 * n / max(chi2, 1e-300)
                left = max(chi2 - float((g2 * k / (1.0 + k * m)).sum()), 1e-12 * chi2, 1e-300)
                value = n * np.log(left / n) + float(np.log1p(k * m).sum())
                best = min(best, (float(value), float(k), i))
        value, k, i = best
        a, phi = (modes.solution(k) for modes in solved[i])
        index = self._intervals[i]
        turn = a[index, self._first] + a[index, self._second]
        turn = turn + 1j * (phi[index, self._first] - phi[index, self._second])
        left_over, begin = [], 0
        for old, vis in zip(residual, model, strict=True):
            left_over.append(old - vis * (turn * self._is_other)[begin : begin + len(vis)])
            begin += len(vis)
        m = np.concatenate([modes.values for modes in solved[i]])
        g2 = np.concatenate([modes.along for modes in solved[i]]) ** 2
        noise = float(np.sqrt(max(chi2 - float((g2 * k / (1.0 + k * m)).sum()), 0.0) / n))
        return Explained(value, noise, float(np.sqrt(k)) * noise, tuple(left_over))

    def _modes(self, interval: Indices, power: Array, slope: Array, sign: float) -> _Modes:
        """The normal matrices of a (sign 1) or phi (sign -1), solved."""
        n, size = self._n, int(interval.max()) + 1
        ends, signs = (self._first, self._second), (1.0, sign)
        matrix, gradient = np.zeros(size * n * n), np.zeros(size * n)
        for one, factor in zip(ends, signs, strict=True):
            place = interval * n + one
            gradient += factor * np.bincount(place, slope, size * n)
            for other, second in zip(ends, signs, strict=True):
                matrix += factor * second * np.bincount(place * n + other, power, size * n * n)
        values, vectors = np.linalg.eigh(matrix.reshape(size, n, n))
        along = np.einsum("sij,si->sj", vectors, gradient.reshape(size, n))
        return _Modes(np.maximum(values, 0.0), vectors, along)


def _intervals(part: Indices, time: Indices, most: int) -> list[Indices]:
    """Numbers of intervals of growing length, int64 (n,) each; of the shortest there are `most` at most."""
    length, found = 1, []
    while True:
        both = part * (int(time.max()) + 1) + time // length
        index = np.unique(both, return_inverse=True)[1].ravel()
        is_last = length > int(time.max())
        if int(index.max()) < most or is_last:
            found.append(index)
        if is_last:
            return found
        length *= LONGER
