"""Sums over the samples of each baseline, from which gains beside a changing sky follow without the samples.

The model of a baseline in a cell is g_p conj(g_q) sum_k x_k F_k V, with the changes F of
`biro.diagnosis.causes.tangents` and x = (1, 0, ...) at first. All that least squares needs of it are
sum |V|^2 u^a v^b up to the fourth power and sum conj(F_k V) r.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biro.diagnosis.causes.least_squares import NormalBlock
from biro.diagnosis.causes.samples import Array, Complex, Index, ResidualSamples
from biro.diagnosis.causes.tangents import IS_TURNED, POWERS, free_mixture

RIDGE = 25.0
"""Added to the diagonals: errors of 20 %, or 0.2 rad, beforehand, so that what is not known stays small."""
EXPONENTS = [(a, b) for a in range(5) for b in range(5 - a)]
PLACE = np.array([[EXPONENTS.index((a + c, b + d)) for c, d in POWERS] for a, b in POWERS])
"""Which of the sums |V|^2 u^a v^b is that of conj(F_j) F_k."""
TURN: Complex = np.where(IS_TURNED, 1j, 1.0)
UNTURNED: Complex = np.ones_like(TURN)
SIGN: Complex = TURN.conj()[:, None] * TURN
"""Factor of conj(F_j) F_k beside the powers of u and v."""
UNCHANGED = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
"""x of the model as it is."""


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over the samples of each baseline in each cell.

    Attributes
    ----------
    cell, antenna1, antenna2 : int64 (n_pair,)
    n_cell, n_antenna : int
    power : float64 (15, n_pair)
        sum |V|^2 u^a v^b in the order of `EXPONENTS`.
    product : complex128 (6, n_pair)
        sum conj(F_k V) r.
    square : float
        sum |r|^2 of all samples.
    n_real : int
        Their real and imaginary parts.
    """

    cell: Index
    antenna1: Index
    antenna2: Index
    n_cell: int
    n_antenna: int
    power: Array
    product: Complex
    square: float
    n_real: int

    @classmethod
    def of(cls, samples: ResidualSamples, cell: Index, n_cell: int) -> PairSums:
        """Sums over some samples, each in one of n_cell cells."""
        u, v = samples.factors[1:3]
        of_model, conjugate = np.abs(samples.model) ** 2, samples.model.conj() * samples.residual
        powers = [np.multiply.accumulate([np.ones_like(x), *[x] * 4]) for x in (u, v)]  # ** is slow
        values = [
            *(of_model * powers[0][a] * powers[1][b] for a, b in EXPONENTS),
            *(factor * part for part in (conjugate.real, conjugate.imag) for factor in samples.factors),
        ]
        n = samples.n_antenna
        return _summed(values, cell * n * n + samples.baseline, n_cell, samples, TURN.conj())

    def merged(self, into: Index, n_cell: int) -> PairSums:
        """Sums of cells that are made of these; `into` says of which each becomes a part."""
        n = self.n_antenna
        key = into[self.cell] * n * n + self.antenna1 * n + self.antenna2
        return _summed([*self.power, *self.product.real, *self.product.imag], key, n_cell, self)

    @property
    def n_used(self) -> int:
        """Cells with samples."""
        return len(np.unique(self.cell))

    def gain(self, logs: Array) -> Complex:
        """g_p conj(g_q) of each pair, from ln amplitudes and phases (2, n_cell, n_antenna)."""
        gain = np.exp(logs[0] + 1j * logs[1])
        return np.asarray(gain[self.cell, self.antenna1] * gain[self.cell, self.antenna2].conj())

    def times(self, coefficients: Complex) -> Complex:
        """sum_k sum conj(F_j V) c_k F_k V with c (6, n_pair) or (6, 1), complex128 (6, n_pair)."""
        found = np.zeros((len(POWERS), self.power.shape[1]), np.complex128)
        for j, k in np.ndindex(SIGN.shape):
            if coefficients[k].any():
                found[j] += SIGN[j, k] * coefficients[k] * self.power[PLACE[j, k]]
        return found


def _summed(
    values: Sequence[Array], key: Index, n_cell: int, of: ResidualSamples | PairSums, turn: Complex = UNTURNED
) -> PairSums:
    """Sums by cell and baseline (key) of powers, and of real and imaginary parts of products times `turn`."""
    n = of.n_antenna
    found, place = np.unique(key, return_inverse=True)
    sums = np.array([np.bincount(place, each, len(found)) for each in values])
    real, imag = np.split(sums[len(EXPONENTS) :], 2)
    cell, pair = np.divmod(found, n * n)
    antenna1, antenna2 = np.divmod(pair, n)
    product = turn[:, None] * (real + 1j * imag)
    return PairSums(
        cell, antenna1, antenna2, n_cell, n, sums[: len(EXPONENTS)], product, of.square, of.n_real
    )


@dataclass(frozen=True, eq=False)
class Normal:
    """Normal equations of errors of gains in each cell, beside changes of the sky.

    With r_pq = (a_p + a_q + i (b_p - b_q)) V_pq, amplitudes a and phases b do not meet: their matrices
    have sum |V|^2 on the diagonal and at (p, q), with a plus for amplitudes and a minus for phases.

    Attributes
    ----------
    blocks : two NormalBlock
        Of amplitudes and of phases, (n_cell, n_antenna, ...).
    mixture : float64 (n_tangent, 6)
        The changes of the sky: `free_mixture`.
    part : float64 (n_tangent,)
        Their products with the residuals.
    square : float
        sum |r|^2 of what is left.
    """

    blocks: tuple[NormalBlock, NormalBlock]
    mixture: Array
    part: Array
    square: float

    @classmethod
    def of(cls, sums: PairSums, logs: Array | None = None, x: Array = UNCHANGED) -> Normal:
        """About gains exp(a + i b), logs (2, n_cell, n_antenna) of a and b, and the sky sum_k x_k F_k V."""
        if logs is None:
            logs = np.zeros((2, sums.n_cell, sums.n_antenna))
        gain = sums.gain(logs)
        removed = UNCHANGED[:, None] - gain * x[:, None]  # r plus this many F V is what is left
        left = sums.product + sums.times(removed)
        square = sums.square + float(np.sum(removed.conj() * (sums.product + left)).real)
        of_sky, size = sums.times(x[:, None].astype(np.complex128)), np.abs(gain) ** 2
        totals = size @ sums.power.T
        of_changes = np.sum((gain.conj() * left).real, axis=1)
        mixture = free_mixture(SIGN.real * totals[PLACE], of_changes, square, sums.n_real)
        sides = np.concatenate([[gain.conj() * (x @ left)], mixture @ (size * of_sky.conj())])
        power = size * (x @ of_sky).real
        blocks = _block(sums, power, sides.real, 1.0), _block(sums, power, sides.imag, -1.0)
        return cls(blocks, mixture, mixture @ of_changes, square)


def _block(sums: PairSums, power: Array, sides: Array, sign: float) -> NormalBlock:
    """Equations of amplitudes (sign 1) or phases (-1) from sums of pairs, sides (1 + n_tangent, n_pair)."""
    n, size = sums.n_antenna, sums.n_cell * sums.n_antenna
    first, second = sums.cell * n + sums.antenna1, sums.cell * n + sums.antenna2
    off = np.bincount(first * n + sums.antenna2, sign * power, size * n).reshape(-1, n, n)
    matrix = off + np.swapaxes(off, 1, 2) + RIDGE * np.eye(n)
    diagonal = np.bincount(first, power, size) + np.bincount(second, power, size)
    matrix[:, np.arange(n), np.arange(n)] += diagonal.reshape(-1, n)
    found = np.array([np.bincount(first, s, size) + sign * np.bincount(second, s, size) for s in sides])
    columns = np.moveaxis(found.reshape(len(sides), -1, n), 0, -1)
    return NormalBlock(matrix, np.ascontiguousarray(columns[..., 0]), np.ascontiguousarray(columns[..., 1:]))
