"""Noise that differs among the baselines of a partition (physics: section 7).

    sigma^2 -> v = s^2 s_p s_q sigma^2 + (f |V|)^2 + a^2

of the real and of the imaginary part of a visibility D of antennas p and q alike, with the noise factor s of
the partition, the factors s_p of antennas, f and a of the class of baseline length, and V of the model. Of
the N usable visibilities

    ln L = -sum |D - V|^2 / (2 v) - sum ln v - N ln(2 pi)

Where f is fixed and stands alone, it is s f in place of f. It is |V|, not |D|: with |D|, data that the noise
made smaller would count more, so that fluxes come out 2 f^2 too small, and the density of the data would not
be a normalised one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.densities.each_theta import DensitySlopes
from biro.models.bound.antenna_terms.noise_terms import NoiseTerms
from biro.observation.partition import Partition
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.varied_noise.sums import density_slopes, log_density

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Model = NDArray[np.complexfloating] | None
"""Visibilities (n_row, n_chan, n_corr) that the systematic term follows, Jy; None where there is none."""
_BLOCK = 1 << 15
"""Visibilities that are worked on at a time: their arrays stay in the processor's cache."""


class NoiseOfBaselines:
    """The noise of one partition, and ln L of model visibilities.

    Parameters
    ----------
    part : Partition
    terms : NoiseTerms
    i : int
        Which partition it is.
    row_class : int (n_row,)
        Class of baseline length of each row.
    """

    def __init__(self, part: Partition, terms: NoiseTerms, i: int, row_class: Index) -> None:
        flat = (part.n_row, part.n_chan * part.n_corr)
        self._data, self._weight = part.vis.reshape(flat), part.weight.reshape(flat)
        self._shape, self._n_number = part.vis.shape, terms.n_number
        self._first, self._second = terms.antenna[i][part.antenna1], terms.antenna[i][part.antenna2]
        self._systematic, self._additive = terms.systematic[row_class], terms.additive[row_class]
        self._follows, self._factor_of_all = terms.follows_model, terms.factor_of_all
        self._n_used = int(np.count_nonzero(self._weight > 0))
        step = max(1, _BLOCK // max(1, flat[1]))
        self._blocks = [slice(k, k + step) for k in range(0, part.n_row, step)]

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which visibilities count, (n_row, n_chan n_corr)."""
        return np.asarray(self._weight > 0)

    @property
    def links(self) -> tuple[Index, Index]:
        """Where the factors of the two antennas of each usable row stand among the numbers."""
        used = (self._weight > 0).any(axis=1)
        return self._first[used], self._second[used]

    def log_likelihood(
        self, model: NDArray[np.complexfloating], numbers: Array, factor: float, dof: float | None = None
    ) -> float:
        """ln L of model visibilities (n_row, n_chan, n_corr), for the numbers (n_number,) and s.

        With degrees of freedom nu, -(nu/2 + 1) ln(1 + |D - V|^2 / (nu v)) stands for -|D - V|^2 / (2 v).
        """
        found = np.empty(len(self._data))
        with CALL_LOCK:
            log_density(*self._of_vis(model, numbers, factor), dof or 0.0, found)
        return float(found.sum() - _LOG_2PI * self._n_used)

    def slopes(
        self, model: NDArray[np.complexfloating], numbers: Array, factor: float, dof: float | None = None
    ) -> DensitySlopes:
        """ln L of the model visibilities, with its derivatives."""
        n_row = len(self._data)
        found, by_row, residual = (
            np.empty((n_row, 2)),
            np.empty((n_row, 3)),
            np.empty(self._data.shape, complex),
        )
        with CALL_LOCK:
            density_slopes(*self._of_vis(model, numbers, factor), dof or 0.0, found, by_row, residual)
        total, by_dof = found.sum(axis=0).tolist()
        total -= _LOG_2PI * self._n_used
        by_number, by_factor = self.pulled(by_row, numbers, factor)
        return DensitySlopes(total, residual.reshape(self._shape), by_number, by_factor, by_dof)

    def _of_vis(
        self, model: NDArray[np.complexfloating], numbers: Array, factor: float
    ) -> tuple[NDArray[np.complexfloating], NDArray[np.complexfloating], NDArray[np.floating], Array]:
        """What loops over visibilities read: V, D, w, and the numbers of rows."""
        of_row = np.ascontiguousarray(self._parts(numbers, factor)[..., 0])
        return np.ascontiguousarray(model.reshape(self._data.shape)), self._data, self._weight, of_row

    def chi2(self, model: NDArray[np.complexfloating], numbers: Array, factor: float) -> float:
        """Sum of |D - V|^2 / v."""
        residual = model - self._data.reshape(self._shape)
        return float(np.sum(self.weight(model, numbers, factor) * np.abs(residual) ** 2))

    def log_norm(self, model: Model, numbers: Array, factor: float) -> float:
        """-sum ln v - N ln(2 pi): ln L of data without residuals."""
        parts, flat, total = self._parts(numbers, factor), self._flat(model), 0.0
        for rows in self._blocks:
            used, _, _, variance = self._variance(rows, parts, flat)
            total -= float(np.sum(np.log(variance)) + _LOG_2PI * used.sum())
        return total

    def noise_slopes(
        self, half: Array, model: Model, numbers: Array, factor: float
    ) -> tuple[Array, float, NDArray[np.complex128] | None]:
        """Derivatives of -sum h / v - sum ln v; h (n_row, n_chan, n_corr), Jy^2.

        By the numbers; by s; and through v by V, over the weights w, complex128 (n_row, n_chan, n_corr), Jy:
        None where v does not follow V.
        """
        parts, flat, of_half = self._parts(numbers, factor), self._flat(model), half.reshape(self._data.shape)
        by_row = np.empty((len(of_half), 3))
        by_vis = np.empty(self._data.shape, np.complex128) if self._follows else None
        for rows in self._blocks:
            used, inverse, power, variance = self._variance(rows, parts, flat)
            by_variance = np.where(used, (of_half[rows] / variance - 1.0) / variance, 0.0)
            by_row[rows] = _moments(by_variance, inverse, power)
            if by_vis is not None and flat is not None:
                by_vis[rows] = 2.0 * parts[1, rows] * inverse * by_variance * flat[rows]
        by_number, by_factor = self.pulled(by_row, numbers, factor)
        return by_number, by_factor, None if by_vis is None else by_vis.reshape(self._shape)

    def weight(self, model: Model, numbers: Array, factor: float) -> Array:
        """1 / v, float64 (n_row, n_chan, n_corr), 0 where the weight is 0."""
        parts, flat, found = self._parts(numbers, factor), self._flat(model), np.empty(self._data.shape)
        for rows in self._blocks:
            used, _, _, variance = self._variance(rows, parts, flat)
            found[rows] = np.where(used, 1.0 / variance, 0.0)
        return found.reshape(self._shape)

    def relative_change(
        self, model: NDArray[np.complexfloating], numbers: Array, factor: float, change: Array
    ) -> tuple[Array, NDArray[np.complex128]]:
        """How ln v changes with the noise and with V.

        Its changes with each of some changes (n, n_number + 1) of the numbers and, last, of s, float64 (n,
        n_row, n_chan, n_corr); and e, complex128 (n_row, n_chan, n_corr), Jy^-1: d ln v = Re(conj(e) dV).
        """
        parts, flat = self._parts(numbers, factor), model.reshape(self._data.shape)
        of_rows = np.zeros((len(change), 3, len(flat), 1))
        for place, kind, slope in self._columns(numbers, factor):
            of_rows[:, kind, :, 0] += change[:, place] * slope
        of_noise = np.empty((len(change), *flat.shape))
        along = np.empty(flat.shape, np.complex128)
        for rows in self._blocks:
            used, inverse, power, variance = self._variance(rows, parts, flat)
            first, second, third = (of_rows[:, k, rows] for k in range(3))
            of_noise[:, rows] = np.where(used, (first * inverse + second * power + third) / variance, 0.0)
            along[rows] = np.where(used, 2.0 * parts[1, rows] / variance, 0.0) * flat[rows]
        return of_noise.reshape(-1, *self._shape), along.reshape(self._shape)

    def variance_slopes(
        self, at: tuple[Index, Index, Index], numbers: Array, factor: float
    ) -> tuple[Array, Array]:
        """Derivatives of (f |V|)^2, and of the rest of v, of some visibilities, where V is the data.

        Two float64 (n, n_number + 1), with respect to the numbers and, last, s, for the rows, channels and
        correlations `at`.
        """
        row, place = at[0], (at[0], at[1] * self._shape[2] + at[2])
        factors = (1.0 / self._weight[place].astype(np.float64), squared(self._data[place]), 1.0)
        found = np.zeros((2, len(row), self._n_number + 1))
        for number, kind, slope in self._columns(numbers, factor):
            found[0 if kind == 1 else 1, np.arange(len(row)), number[row]] += factors[kind] * slope[row]
        return found[0], found[1]

    def fraction2(self, numbers: Array, factor: float) -> Array:
        """f^2 of each row, float64 (n_row,)."""
        return np.asarray((self._scale(factor) * numbers[self._systematic]) ** 2)

    def information(self, model: Model, numbers: Array, factor: float) -> Array:
        """Fisher information on the numbers and, last, on s: float64 (n_number + 1, n_number + 1).

        Of a complex sample it is 1 / v^2 on v.
        """
        parts, flat = self._parts(numbers, factor), self._flat(model)
        moments = np.empty((len(self._data), 3, 3))
        for rows in self._blocks:
            used, inverse, power, variance = self._variance(rows, parts, flat)
            of_variance = np.where(used, 1.0 / variance**2, 0.0)
            for k, one in enumerate((inverse, power, None)):
                weighted = of_variance if one is None else of_variance * one
                moments[rows, k] = _moments(weighted, inverse, power)
        found = np.zeros((self._n_number + 1,) * 2)
        columns = self._columns(numbers, factor)
        for place, kind, slope in columns:
            for other, other_kind, other_slope in columns:
                np.add.at(found, (place, other), slope * other_slope * moments[:, kind, other_kind])
        return found

    def _parts(self, numbers: Array, factor: float) -> Array:
        """s^2 s_p s_q, f^2 and a^2 of each row, float64 (3, n_row, 1)."""
        factors = factor**2 * numbers[self._first] * numbers[self._second]
        return np.stack([factors, self.fraction2(numbers, factor), numbers[self._additive] ** 2])[..., None]

    def _scale(self, factor: float) -> float:
        """What f is multiplied by."""
        return factor if self._factor_of_all else 1.0

    def _flat(self, model: Model) -> Model:
        """Visibilities of the model as the data are kept; None where v does not follow them."""
        if not self._follows:
            return None
        assert model is not None, "a variance that follows the model needs its visibilities"
        return model.reshape(self._data.shape)

    def _variance(
        self, rows: slice, parts: Array, flat: Model
    ) -> tuple[NDArray[np.bool_], Array, Array, Array]:
        """Which visibilities of some rows count, their 1/w, |V|^2, and v, which is 1 for the others."""
        weight = self._weight[rows].astype(np.float64)
        used = weight > 0
        inverse = np.divide(1.0, weight, out=np.zeros_like(weight), where=used)
        power = squared(flat[rows]) if self._follows and flat is not None else np.zeros_like(weight)
        factors, fraction, added = parts[:, rows]
        return used, inverse, power, np.where(used, factors * inverse + fraction * power + added, 1.0)

    def _columns(self, numbers: Array, factor: float) -> list[tuple[Index, int, Array]]:
        """What s^2 s_p s_q, f^2 and a^2 of rows (0, 1, 2) change by: place of a number, which, slope."""
        first, second, fraction = numbers[self._first], numbers[self._second], numbers[self._systematic]
        of_factor = np.full(len(first), self._n_number)
        columns = [
            (self._first, 0, factor**2 * second),
            (self._second, 0, factor**2 * first),
            (self._systematic, 1, 2.0 * self._scale(factor) ** 2 * fraction),
            (self._additive, 2, 2.0 * numbers[self._additive]),
            (of_factor, 0, 2.0 * factor * first * second),
        ]
        return [*columns, (of_factor, 1, 2.0 * factor * fraction**2)] if self._factor_of_all else columns

    def pulled(self, by_row: Array, numbers: Array, factor: float) -> tuple[Array, float]:
        """Derivatives by the numbers and by s, from those by s^2 s_p s_q, f^2 and a^2 of rows (n_row, 3)."""
        found = np.zeros(self._n_number + 1)
        for place, kind, slope in self._columns(numbers, factor):
            found += np.bincount(place, by_row[:, kind] * slope, minlength=len(found))
        return found[:-1], float(found[-1])


_LOG_2PI = float(np.log(2.0 * np.pi))


def squared(vis: NDArray[np.complexfloating]) -> Array:
    """|V|^2 in double precision."""
    real, imag = vis.real.astype(np.float64), vis.imag.astype(np.float64)
    return np.asarray(real * real + imag * imag)


def _moments(values: Array, inverse: Array, power: Array) -> Array:
    """Sums over each row of values times 1/w, |V|^2 and 1: float64 (n_row, 3)."""
    sums = [np.einsum("ij,ij->i", values, one) for one in (inverse, power)]
    return np.stack([*sums, values.sum(axis=1)], axis=1)
