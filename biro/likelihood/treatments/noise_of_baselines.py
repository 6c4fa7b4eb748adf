"""Noise that differs among the baselines of a partition (physics: section 7).

    sigma^2 -> v = s^2 s_p s_q sigma^2 + (f |D|)^2 + a^2

of the real and of the imaginary part of a visibility D of antennas p and q alike, with the noise factor s of
the partition, the factors s_p of antennas, and f and a of the class of baseline length. Of the N usable
visibilities with the model V

    ln L = -sum |D - V|^2 / (2 v) - sum ln v - N ln(2 pi)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biro.models.bound.antenna_terms.noise_terms import NoiseTerms
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_BLOCK = 1 << 15
"""Visibilities that are worked on at a time: their arrays stay in the processor's cache."""


@dataclass(frozen=True)
class Slopes:
    """ln L of one partition and its derivatives.

    Attributes
    ----------
    value : float
    residual : complex128 (n_row, n_chan, n_corr), Jy
        (V - D) / (v w): minus the derivatives with respect to V, over the weights w.
    by_number : float64 (n_number,)
    by_factor : float
        With respect to s.
    """

    value: float
    residual: NDArray[np.complex128]
    by_number: Array
    by_factor: float


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
        step = max(1, _BLOCK // max(1, flat[1]))
        self._blocks = [slice(k, k + step) for k in range(0, part.n_row, step)]

    @property
    def links(self) -> tuple[Index, Index]:
        """Where the factors of the two antennas of each usable row stand among the numbers."""
        used = (self._weight > 0).any(axis=1)
        return self._first[used], self._second[used]

    def log_likelihood(self, model: NDArray[np.complexfloating], numbers: Array, factor: float) -> float:
        """ln L of model visibilities (n_row, n_chan, n_corr), for the numbers (n_number,) and s."""
        parts, flat, total = self._parts(numbers, factor), model.reshape(self._data.shape), 0.0
        for rows in self._blocks:
            used, _, _, variance = self._variance(rows, parts)
            power = np.where(used, squared(flat[rows] - self._data[rows]), 0.0)
            total -= float(np.sum(0.5 * power / variance + np.log(variance)) + _LOG_2PI * used.sum())
        return total

    def slopes(self, model: NDArray[np.complexfloating], numbers: Array, factor: float) -> Slopes:
        """The same with its derivatives."""
        parts, flat, total = self._parts(numbers, factor), model.reshape(self._data.shape), 0.0
        by_row = np.empty((len(flat), 3))
        residual = np.empty(self._data.shape, np.complex128)
        for rows in self._blocks:
            used, inverse, power_of_data, variance = self._variance(rows, parts)
            difference = np.where(used, flat[rows] - self._data[rows], 0.0)
            half = 0.5 * squared(difference) / variance
            total -= float(np.sum(half + np.log(variance)) + _LOG_2PI * used.sum())
            by_variance = np.where(used, (half - 1.0) / variance, 0.0)
            by_row[rows] = _moments(by_variance, inverse, power_of_data)
            residual[rows] = difference * (inverse / variance)
        by_number, by_factor = self._pulled(by_row, numbers, factor)
        return Slopes(total, residual.reshape(self._shape), by_number, by_factor)

    def log_norm(self, numbers: Array, factor: float) -> float:
        """-sum ln v - N ln(2 pi): ln L of a model without residuals."""
        parts, total = self._parts(numbers, factor), 0.0
        for rows in self._blocks:
            used, _, _, variance = self._variance(rows, parts)
            total -= float(np.sum(np.log(variance)) + _LOG_2PI * used.sum())
        return total

    def noise_slopes(self, half: Array, numbers: Array, factor: float) -> tuple[Array, float]:
        """Derivatives by the numbers and by s of -sum h / v - sum ln v; h (n_row, n_chan, n_corr), Jy^2."""
        parts, flat = self._parts(numbers, factor), half.reshape(self._data.shape)
        by_row = np.empty((len(flat), 3))
        for rows in self._blocks:
            used, inverse, power_of_data, variance = self._variance(rows, parts)
            by_variance = np.where(used, (flat[rows] / variance - 1.0) / variance, 0.0)
            by_row[rows] = _moments(by_variance, inverse, power_of_data)
        return self._pulled(by_row, numbers, factor)

    def weight(self, numbers: Array, factor: float, vis: NDArray[np.complexfloating] | None = None) -> Array:
        """1 / v, float64 (n_row, n_chan, n_corr), 0 where the weight is 0; with `vis` for D, if given."""
        parts, found = self._parts(numbers, factor), np.empty(self._data.shape)
        for rows in self._blocks:
            data = None if vis is None else vis.reshape(self._data.shape)[rows]
            used, _, _, variance = self._variance(rows, parts, data)
            found[rows] = np.where(used, 1.0 / variance, 0.0)
        return found.reshape(self._shape)

    def variance_slopes(
        self, at: tuple[Index, Index, Index], numbers: Array, factor: float
    ) -> tuple[Array, Array]:
        """Derivatives of (f |D|)^2, and of the rest of v, of some visibilities.

        Two float64 (n, n_number + 1), with respect to the numbers and, last, s, for the rows, channels and
        correlations `at`.
        """
        row, place = at[0], (at[0], at[1] * self._shape[2] + at[2])
        factors = (1.0 / self._weight[place].astype(np.float64), squared(self._data[place]), 1.0)
        found = np.zeros((2, len(row), self._n_number + 1))
        for number, kind, slope in self._columns(numbers, factor):
            found[0 if kind == 1 else 1, np.arange(len(row)), number[row]] += factors[kind] * slope[row]
        return found[0], found[1]

    def fraction(self, numbers: Array) -> Array:
        """f of each row, float64 (n_row,)."""
        return numbers[self._systematic]

    def information(self, numbers: Array, factor: float) -> Array:
        """Fisher information on the numbers and, last, on s: float64 (n_number + 1, n_number + 1).

        Of a complex sample it is 1 / v^2 on v.
        """
        parts = self._parts(numbers, factor)
        moments = np.empty((len(self._data), 3, 3))
        for rows in self._blocks:
            used, inverse, power, variance = self._variance(rows, parts)
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
        return np.stack([factors, numbers[self._systematic] ** 2, numbers[self._additive] ** 2])[..., None]

    def _variance(
        self, rows: slice, parts: Array, data: NDArray[np.complexfloating] | None = None
    ) -> tuple[NDArray[np.bool_], Array, Array, Array]:
        """Of some rows: which visibilities count, 1/w, |D|^2, and v, which is 1 for those that do not."""
        weight = self._weight[rows].astype(np.float64)
        used = weight > 0
        inverse = np.divide(1.0, weight, out=np.zeros_like(weight), where=used)
        power = squared(self._data[rows] if data is None else data)
        factors, fraction, added = parts[:, rows]
        return used, inverse, power, np.where(used, factors * inverse + fraction * power + added, 1.0)

    def _columns(self, numbers: Array, factor: float) -> list[tuple[Index, int, Array]]:
        """What s^2 s_p s_q, f^2 and a^2 of rows (0, 1, 2) change by: place of a number, which, slope."""
        first, second = numbers[self._first], numbers[self._second]
        return [
            (self._first, 0, factor**2 * second),
            (self._second, 0, factor**2 * first),
            (self._systematic, 1, 2.0 * numbers[self._systematic]),
            (self._additive, 2, 2.0 * numbers[self._additive]),
            (np.full(len(first), self._n_number), 0, 2.0 * factor * first * second),
        ]

    def _pulled(self, by_row: Array, numbers: Array, factor: float) -> tuple[Array, float]:
        """Derivatives with respect to the numbers and to s, from those to the parts of rows (n_row, 3)."""
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
    """Sums over each row of values times 1/w, |D|^2 and 1: float64 (n_row, 3)."""
    sums = [np.einsum("ij,ij->i", values, one) for one in (inverse, power)]
    return np.stack([*sums, values.sum(axis=1)], axis=1)
