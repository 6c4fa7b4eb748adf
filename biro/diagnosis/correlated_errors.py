"""Errors of a fit whose residuals are correlated, or larger than the noise that the fit took them to have.

With J the derivatives of the model visibilities, W the weights and s the noise factor, a fit that takes
residuals to be independent gives its parameters the covariance H^-1, H = Re(J^H W J)/s^2. Residuals of the
variance c s^2/W and of the correlation R give

    H^-1 M H^-1,    M = Re(J^H W^(1/2) (c + c' (R - 1)) W^(1/2) J) / s^2

R(k_time, k_chan, corr) is the mean product of residuals of a baseline so many times and channels apart, of
the same or of different correlations, over their mean square c', outliers clipped: from all data, as far as
it is certain. Lags in time are taken together, 1, 2 to 3, 4 to 7, and so on, because a weak correlation over
many times is not certain at any one lag. Partitions of the same times, such as spectral windows, have a
correlation with each other that depends on the lag in time alone (`biro.diagnosis.shared_errors`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from biro.diagnosis.lags import LONGEST, SURE, lag_ranges
from biro.diagnosis.residual_data import ResidualData
from biro.diagnosis.shared_errors import SharedErrors
from biro.diagnosis.whiteness import CERTAIN, clip
from biro.observation.noise import sigma_of
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Grid: TypeAlias = NDArray[np.complex128]
Models = Sequence[NDArray[np.complexfloating]]
MOST_PARAMETERS = 40
"""With more, no derivatives are taken: two predictions for each."""
N_SMOOTH = 8
"""Parameters whose derivatives are multiplied by R at a time: all would take as much memory again."""
STEP = 0.3
"""Step of derivatives, in sigmas: visibilities are straight over it, and change by more than rounding."""


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
    roots = [np.sqrt(each.partition.weight, dtype=np.float64) / each.factor for each in data]
    slopes: list[list[Grid]] = [[] for _ in data]
    for i in known:
        derivatives = _derivative(predict, theta, i, sd[i], box)
        for own, derivative, root in zip(slopes, derivatives, roots, strict=True):
            own.append(sd[i] * derivative * root)
    residuals = [each.scaled / each.factor for each in data]
    models = [np.asarray(each.model, np.complex128) for each in data]
    ratio = error_ratios([each.partition for each in data], residuals, slopes, models)
    ratio = ratio[np.isfinite(ratio)]
    return (
        ErrorFactor(math.sqrt(float(np.mean(ratio**2))), float(ratio.max())) if ratio.size else ErrorFactor()
    )


def error_ratios(
    partitions: Sequence[Partition],
    residuals: Sequence[Grid],
    slopes: Sequence[Sequence[Grid]],
    models: Sequence[Grid],
    rows: Sequence[NDArray[np.int64]] | None = None,
) -> Array:
    """Errors under correlated residuals over errors of the fit, from derivatives in units of its noise.

    The larger ratio counts of the residuals r, as a source near the phase centre makes them, and of
    r V^* / |V|, in which errors of gains and closure errors do not turn with the model V.

    Parameters
    ----------
    partitions : sequence of Partition
    residuals : sequence of complex128 (n_row, n_chan, n_corr)
        (D - V) sqrt(w) / s; 0 where a visibility does not count.
    slopes : sequence of sequences of complex128 (n_row, n_chan, n_corr)
        dV/dtheta sqrt(w) / s of each parameter, for each partition; scales of parameters do not matter.
    models : sequence of complex (n_row, n_chan, n_corr)
        V; its phase alone matters.
    rows : sequence of int64 (n_some,), optional
        Rows that `slopes` are of, all of some baselines, where these are enough; residuals are of all rows.

    Returns
    -------
    float64 (n_param,)
        NaN of a parameter that changes no visibility, as a noise factor.
    """
    phases = [np.exp(-1j * np.angle(model)) for model in models]
    turned = [r * phase for r, phase in zip(residuals, phases, strict=True)]
    if rows is None:
        some = list(partitions)
    else:
        some = [part.some(at, slice(None)) for part, at in zip(partitions, rows, strict=True)]
        phases = [phase[at] for phase, at in zip(phases, rows, strict=True)]
    ones: list[Grid | float] = [1.0] * len(phases)
    return np.fmax(
        _ratios(partitions, residuals, some, slopes, ones), _ratios(partitions, turned, some, slopes, phases)
    )


def _ratios(
    partitions: Sequence[Partition],
    residuals: Sequence[Grid],
    parts: Sequence[Partition],
    slopes: Sequence[Sequence[Grid]],
    phases: Sequence[Grid | float],
) -> Array:
    """The ratios of residuals as they are, and of derivatives in `parts`, some of their rows, times `phases`.

    One partition at a time has its derivatives copied, because all of them may fill the memory.
    """
    n = len(slopes[0]) if slopes else 0
    information, spread = np.zeros((2, n, n))
    units = [_Units.of(residual) for residual in residuals]
    for some in same_fields(partitions):
        shared = SharedErrors([partitions[i] for i in some], [units[i].clipped for i in some], n)
        for i in some:
            if not parts[i].n_row:
                continue
            unit, turn = units[i], units[i].inner * phases[i]
            lags = _correlations(_grid(partitions[i], unit.clipped))
            shared.add(parts[i], (turn * slope for slope in slopes[i]))
            grids = _grids(parts[i], slopes[i], turn)
            power = _products(grids, grids)
            information += power / unit.inner**2
            spread += (unit.whole**2 / unit.inner**2 - 1.0) * power
            for first in range(0, n, N_SMOOTH):
                few = np.s_[first : first + N_SMOOTH]
                smooth = np.array([_correlated(grid, lags) for grid in grids[few]])
                spread[:, few] += _products(grids, smooth)
        spread += shared.spread()
    moved = np.flatnonzero(np.diag(information) > 0.0)
    ratio = np.full(n, np.nan)
    if moved.size:
        ratio[moved] = _of_matrices(*(matrix[np.ix_(moved, moved)] for matrix in (information, spread)))
    return ratio


def _grids(part: Partition, slopes: Sequence[Grid], turn: Grid | float) -> Grid:
    """Derivatives times something, complex128 (n_param, n_baseline, n_time, n_chan, n_corr)."""
    grids = np.empty((len(slopes), *_grid(part, np.zeros_like(slopes[0])).shape), np.complex128)
    for own, slope in zip(grids, slopes, strict=True):
        own[:] = _grid(part, turn * slope)
    return grids


def _products(first: Grid, second: Grid) -> Array:
    """Re sum a^* b of each grid of the first with each of the second, float64 (n_first, n_second)."""
    a, b = (grids.reshape(len(grids), -1).view(np.float64) for grids in (first, second))
    return np.asarray(a @ b.T)


def same_fields(partitions: Sequence[Partition]) -> list[list[int]]:
    """Numbers of the partitions of each field."""
    fields: dict[str, list[int]] = {}
    for i, part in enumerate(partitions):
        fields.setdefault(part.field, []).append(i)
    return list(fields.values())


def shared_remark(data: Sequence[ResidualData]) -> str:
    """A line on residuals that partitions of one field have in common; "" where that is not certain."""
    found, n = None, 0
    for some in same_fields([each.partition for each in data]):
        clipped = [_Units.of(data[i].scaled).clipped for i in some]
        shared = SharedErrors([data[i].partition for i in some], clipped, 0)
        if found is None or shared.certainty > found.certainty:
            found, n = shared, len(some)
    if found is None or not found.certainty > CERTAIN:
        return ""
    return (
        f"RESIDUALS OF {n} PARTITIONS ARE CORRELATED with each other: {found.rho[0]:.2g} at the same time, "
        f"significance {found.certainty:.0f} sigma. Closure errors of baselines, or structure that the model "
        "lacks, are common to all of them"
    )


class _Units(NamedTuple):
    """Residuals over the rms of their real parts, outliers clipped; this rms, and that of all residuals."""

    clipped: Grid
    inner: float
    whole: float

    @classmethod
    def of(cls, residual: Grid) -> _Units:
        counts = residual != 0
        clipped = clip(residual, sigma_of(residual[counts]))
        inner, whole = (_rms(values[counts]) for values in (clipped, residual))
        return cls(clipped / inner, inner, whole)


def _rms(values: Grid) -> float:
    """Rms of the real part of complex values; 1 of none."""
    return math.sqrt(float(np.mean(np.abs(values) ** 2)) / 2.0) if values.size else 1.0


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


def _baselines(part: Partition) -> NDArray[np.int64]:
    """Number of the baseline of each row, int64 (n_row,)."""
    pair = part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    return np.asarray(np.unique(pair, return_inverse=True)[1])


def _grid(part: Partition, values: NDArray[np.complexfloating]) -> Grid:
    """Values of rows as (n_baseline, n_time, n_chan, n_corr), 0 where there is none."""
    baseline = _baselines(part)
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
    n_lag = next((k for k in range(1, n_chan) if _certainty(own, k) < SURE), n_chan)
    found: list[Array] = []
    for lags in lag_ranges(n_time):
        some = np.array(
            [
                [np.sum([_lag(own, other, k_time, k) for k_time in lags], axis=0) for other in both]
                for k in range(n_lag)
            ]
        )
        rho, certainty = _ratio(some[..., 0], some[..., 1]), _ratio(some[..., 0], np.sqrt(some[..., 2]))
        if lags.start and certainty.sum() < SURE * math.sqrt(np.count_nonzero(certainty)):
            break
        found += [rho] * len(lags)
    return np.array(found)


def _ratio(values: Array, others: Array) -> Array:
    """Values over others, and 0 over 0."""
    return np.divide(values, others, out=np.zeros_like(values), where=others > 0.0)


def _certainty(own: _Values, k_chan: int) -> float:
    """Standard deviations of the correlation of the same hands at a lag in channels."""
    product, _, square = _lag(own, own, 0, k_chan)
    return product / math.sqrt(square) if square > 0.0 else 0.0


def _lag(own: _Values, other: _Values, k_time: int, k_chan: int) -> tuple[float, float, float]:
    """Sum of products at one lag, of the powers of both, and the variance of the first by chance."""
    n_time, n_chan = own.power.shape[1:3]
    late = own.part(np.s_[:, k_time:, k_chan:])
    early = other.part(np.s_[:, : n_time - k_time, : n_chan - k_chan])
    product = _dot(late.values.real, early.values.real) + _dot(late.values.imag, early.values.imag)
    power = 0.5 * (_dot(late.power, early.there) + _dot(late.there, early.power))
    return product, power, 0.5 * _dot(late.power, early.power)


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


def _of_matrices(information: Array, spread: Array) -> Array:
    """Square roots of the diagonals of H^-1 M H^-1 over those of H^-1, H scaled to a diagonal of 1."""
    scale = np.sqrt(np.diag(information))
    information, spread = (matrix / np.outer(scale, scale) for matrix in (information, spread))
    values, vectors = np.linalg.eigh(information)
    kept = values > 1e-6 * values.max()
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    stated, robust = np.diag(inverse), np.diag(inverse @ spread @ inverse)
    return np.sqrt(np.divide(np.maximum(robust, 0.0), stated, out=np.ones_like(stated), where=stated > 0.0))
