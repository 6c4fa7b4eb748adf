"""Errors of a fit whose residuals are correlated, or larger than the noise that the fit took them to have.

With J the derivatives of the model visibilities, W the weights and s the noise factor, a fit that takes
residuals to be independent gives its parameters the covariance H^-1, H = Re(J^H W J)/s^2. Residuals of the
variance c s^2/W and of the correlation R give

    H^-1 M H^-1,    M = Re(J^H W^(1/2) (c + c' (R - 1)) W^(1/2) J) / s^2

R(k_time, k_chan, corr) is the mean product of residuals of a baseline so many times and channels apart, of
the same or of different correlations, over their mean square c', outliers clipped: from all data, as far as
it is certain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from biro.diagnosis.residual_data import ResidualData
from biro.diagnosis.whiteness import clip
from biro.observation.noise import sigma_of

Array = NDArray[np.float64]
Grid: TypeAlias = NDArray[np.complex128]
Models = Sequence[NDArray[np.complexfloating]]
MOST_PARAMETERS = 40
"""With more, no derivatives are taken: two predictions for each."""
STEP = 0.3
"""Step of derivatives, in sigmas: visibilities are straight over it, and change by more than rounding."""
SURE = 2.0
"""Standard deviations of the correlation at a lag, below which it and those at longer lags count as 0."""
LONGEST = 64
"""Times, or channels, apart that are looked at."""


class ErrorFactor(NamedTuple):
    """Ratios of errors under correlated residuals to errors of the fit; NaN where they are not known.

    Attributes
    ----------
    rms : float
        Root mean square of the ratios of all parameters.
    largest : float
        Ratio of the parameter whose error is too small by most.
    """

    rms: float = math.nan
    largest: float = math.nan


def error_factor(
    data: Sequence[ResidualData],
    predict: Callable[[Array], Models],
    theta: Array,
    sd: Array,
    box: tuple[Array, Array],
) -> ErrorFactor:
    """By how much the errors of a fit are too small: in all, and of the parameter of which it is most.

    Parameters
    ----------
    data : sequence of ResidualData
    predict : function of theta (n_param,)
        Gives model visibilities where `data` have theirs.
    theta, sd : float64 (n_param,)
        Best fit, and errors of the fit; parameters without a finite error are left out.
    box : (float64 (n_param,), float64 (n_param,))
        Limits of the priors.

    Returns
    -------
    ErrorFactor
        NaN where there are too many parameters.
    """
    known = np.flatnonzero(np.isfinite(sd) & (sd > 0.0))
    if not 0 < known.size <= MOST_PARAMETERS:
        return ErrorFactor()
    information, spread = np.zeros((2, known.size, known.size))
    derivatives = [_derivative(predict, theta, i, sd[i], box) for i in known]
    for k, each in enumerate(data):
        root = np.sqrt(each.partition.weight, dtype=np.float64) / each.factor
        slopes = [sd[i] * derivative[k] * root for i, derivative in zip(known, derivatives, strict=True)]
        residual = each.scaled / each.factor
        clipped = clip(residual, sigma_of(residual[root > 0.0]))
        whole, inner = (float(np.mean(np.abs(r[root > 0.0]) ** 2)) / 2.0 for r in (residual, clipped))
        grids, lags = [_grid(each, slope) for slope in slopes], _correlations(_grid(each, clipped))
        flat = np.array([grid.ravel() for grid in grids])
        smooth = np.array([_correlated(grid, lags).ravel() for grid in grids])
        information += (flat.conj() @ flat.T).real
        spread += (flat.conj() @ ((whole - inner) * flat + inner * smooth).T).real
    moved = np.diag(information) > 0.0  # what changes no visibility is a noise factor, say
    return _factor(*(matrix[np.ix_(moved, moved)] for matrix in (information, spread)))


def _derivative(
    predict: Callable[[Array], Models], theta: Array, i: np.intp, sd: float, box: tuple[Array, Array]
) -> list[NDArray[np.complexfloating]]:
    """Derivatives of model visibilities with respect to one parameter, by central differences."""
    ends = []
    for sign in (-1.0, 1.0):
        moved = theta.copy()
        moved[i] = np.clip(moved[i] + sign * STEP * sd, box[0][i], box[1][i])
        ends.append((moved[i], predict(moved)))
    (low, before), (high, after) = ends
    width = max(high - low, 1e-300)
    return [(b - a) / width for a, b in zip(before, after, strict=True)]


def _baselines(data: ResidualData) -> NDArray[np.int64]:
    """Number of the baseline of each row, int64 (n_row,)."""
    part = data.partition
    pair = part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    return np.asarray(np.unique(pair, return_inverse=True)[1])


def _grid(data: ResidualData, values: NDArray[np.complexfloating]) -> Grid:
    """Values of rows as (n_baseline, n_time, n_chan, n_corr), 0 where there is none."""
    baseline, part = _baselines(data), data.partition
    n_baseline = int(baseline.max(initial=-1)) + 1
    grid = np.zeros((n_baseline, len(part.times), *values.shape[1:]), np.complex128)
    counts = part.row_weight > 0  # no copy takes the place of the row that it repeats
    grid[baseline[counts], part.time_index[counts]] = values[counts]
    return grid


class _Values(NamedTuple):
    """Values of a grid, their squares, and 1 where there is one: (n_baseline, n_time, n_chan, n_corr)."""

    values: Grid
    power: Array
    there: Array

    @classmethod
    def of(cls, grid: Grid) -> _Values:
        return cls(grid, grid.real**2 + grid.imag**2, (grid != 0).astype(np.float64))

    def part(self, index: tuple[slice, ...]) -> _Values:
        """Some of them."""
        return _Values(self.values[index], self.power[index], self.there[index])

    def of_others(self) -> _Values:
        """The sums over the other correlations."""
        return _Values(*(each.sum(axis=3, keepdims=True) - each for each in self))


def _correlations(grid: Grid) -> Array:
    """R by lags in time and in channels, and of the same or of different correlations: float64 (., ., 2)."""
    n_time, n_chan = (min(n, LONGEST) for n in grid.shape[1:3])
    own = _Values.of(grid)
    both = own, own.of_others()
    n_lag = next((k for k in range(1, n_chan) if _lag(own, own, 0, k)[1] < SURE), n_chan)
    found = []
    for k_time in range(n_time):
        some = np.array([[_lag(own, other, k_time, k) for other in both] for k in range(n_lag)])
        if k_time and some[..., 1].sum() < SURE * math.sqrt(np.count_nonzero(some[..., 1])):
            break
        found.append(some[..., 0])
    return np.array(found)


def _lag(own: _Values, other: _Values, k_time: int, k_chan: int) -> tuple[float, float]:
    """R at one lag, and how certain it is in standard deviations; 0 of nothing."""
    n_time, n_chan = own.power.shape[1:3]
    late = own.part(np.s_[:, k_time:, k_chan:])
    early = other.part(np.s_[:, : n_time - k_time, : n_chan - k_chan])
    square = 0.5 * _dot(late.power, early.power)
    if not square > 0.0:
        return 0.0, 0.0
    product = _dot(late.values.real, early.values.real) + _dot(late.values.imag, early.values.imag)
    power = 0.5 * (_dot(late.power, early.there) + _dot(late.there, early.power))
    return product / power, product / math.sqrt(square)


def _dot(first: Array, second: Array) -> float:
    """The sum of products, without an array of these."""
    return float(np.einsum("btcx,btcx->", first, second))


def _correlated(grid: Grid, lags: Array) -> Grid:
    """R times values of a grid: a convolution along times and channels, of padded grids by transforms."""
    n_time, n_chan = grid.shape[1:3]
    shape = tuple(
        fft.next_fast_len(n + lag - 1) for n, lag in zip((n_time, n_chan), lags.shape, strict=False)
    )
    of_lags = np.zeros((*shape, 2))
    for k_time, k_chan in np.ndindex(lags.shape[:2]):
        for i, j in itertools.product({k_time, -k_time}, {k_chan, -k_chan}):
            of_lags[i, j] = lags[k_time, k_chan]
    same, differ = np.moveaxis(fft.fft2(of_lags, axes=(0, 1)).real, 2, 0)[..., None]
    values = fft.fft2(grid, shape, axes=(1, 2))
    values = (same - differ) * values + differ * values.sum(axis=3, keepdims=True)
    return np.asarray(fft.ifft2(values, axes=(1, 2))[:, :n_time, :n_chan])


def _factor(information: Array, spread: Array) -> ErrorFactor:
    """Errors under correlated residuals over errors of the fit, from matrices float64 (n_param, n_param)."""
    if not information.size:
        return ErrorFactor()
    values, vectors = np.linalg.eigh(information)
    kept = values > 1e-6 * values.max()
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    stated, robust = np.diag(inverse), np.diag(inverse @ spread @ inverse)
    ratio = robust[stated > 0.0] / stated[stated > 0.0]
    return ErrorFactor(*(math.sqrt(max(float(of(ratio)), 0.0)) for of in (np.mean, np.max)))
