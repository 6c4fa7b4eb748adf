"""The covariance that errors of the antennas' gains give to visibilities, seen by a fit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Vis = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class BaselineAntennas:
    """Which antennas visibilities are of.

    Attributes
    ----------
    first, second : int64 (n,)
        Places of the antennas in a list of `n_antenna`.
    n_antenna : int
    is_other : bool (n,)
        Whether the two differ.
    """

    first: Indices
    second: Indices
    n_antenna: int
    is_other: NDArray[np.bool_]

    def turn(self, index: Indices, errors: Array) -> Vis:
        """Relative errors of visibilities, (1 + e_p) (1 + e_q^*) - 1, complex128 (n,).

        Parameters
        ----------
        index : int64 (n,)
            Interval of each visibility.
        errors : float64 (2, n_interval, n_antenna)
            Real and imaginary parts of the antennas' relative errors e.
        """
        one, other = self._of_ends(index, errors)
        return np.asarray(((1.0 + one) * (1.0 + other.conj()) - 1.0) * self.is_other)

    def product(self, index: Indices, errors: Array) -> Vis:
        """The part of `turn` that is of second order, e_p e_q^*."""
        one, other = self._of_ends(index, errors)
        return np.asarray(one * other.conj() * self.is_other)

    def _of_ends(self, index: Indices, errors: Array) -> tuple[Vis, Vis]:
        """Errors of the first and of the second antenna of each visibility."""
        complex_errors = errors[0] + 1j * errors[1]
        return complex_errors[index, self.first], complex_errors[index, self.second]


@dataclass(frozen=True, eq=False)
class GainErrorModes:
    """Normal matrices of errors of gains in the intervals of one length, and their eigenvectors.

    The first axis has the real parts of the gains, then the imaginary ones. Eigenvectors are those of the
    matrices in units of each antenna's standard deviation, up to a common factor.

    Attributes
    ----------
    index : int64 (n_vis,)
        Interval of each visibility.
    relative : float64 (2, n_antenna)
        The standard deviations.
    matrix : float64 (2, n_interval, n_antenna, n_antenna)
    gradient : float64 (2, n_interval, n_antenna)
    values, along : float64 (2, n_interval, n_antenna)
        Eigenvalues, and gradients along the eigenvectors.
    vectors : float64 (2, n_interval, n_antenna, n_antenna)
    k : float
        Square of the common factor over the variance of the noise.
    """

    index: Indices
    relative: Array
    matrix: Array
    gradient: Array
    values: Array
    along: Array
    vectors: Array
    k: float = 0.0

    @classmethod
    def of(
        cls, index: Indices, ends: BaselineAntennas, relative: Array, power: Array, slope: Vis
    ) -> GainErrorModes:
        """Sums over the visibilities.

        Parameters
        ----------
        index : int64 (n,)
        ends : BaselineAntennas
        relative : float64 (2, n_antenna)
        power : float64 (n,)
            w |V|^2.
        slope : complex128 (n,)
            w r V^*.
        """
        n, size = ends.n_antenna, int(index.max()) + 1
        power, slope = power * ends.is_other, slope * ends.is_other
        places = index * n + ends.first, index * n + ends.second
        own = np.add(*(np.bincount(place, power, size * n) for place in places))
        first, second = places[0] * n + ends.second, places[1] * n + ends.first
        between = np.add(*(np.bincount(place, power, size * n * n) for place in (first, second)))
        between = between.reshape(size, n, n)
        matrix = np.stack([between, -between])
        matrix[:, :, np.arange(n), np.arange(n)] += np.reshape(own, (size, n))
        parts = (slope.real, 1.0), (slope.imag, -1.0)
        gradient = np.stack([
            np.bincount(places[0], part, size * n) + sign * np.bincount(places[1], part, size * n)
            for part, sign in parts
        ]).reshape(2, size, n)  # fmt: skip
        scaled = matrix * relative[:, None, :, None] * relative[:, None, None, :]
        values, vectors = np.linalg.eigh(scaled)
        along = np.einsum("csij,csi->csj", vectors, gradient * relative[:, None, :])
        return cls(index, relative, matrix, gradient, np.maximum(values, 0.0), along, vectors)

    @property
    def explained(self) -> float:
        """By how much the most probable errors lower chi2, less what their size costs."""
        return float((self.along**2 * self.k / (1.0 + self.k * self.values)).sum())

    @property
    def errors(self) -> Array:
        """The most probable errors, float64 (2, n_interval, n_antenna)."""
        along = self.along * self.k / (1.0 + self.k * self.values)
        return np.asarray(np.einsum("csij,csj->csi", self.vectors, along) * self.relative[:, None, :])

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether data tell of an error, bool (2, n_interval, n_antenna)."""
        return np.asarray(np.diagonal(self.matrix, axis1=2, axis2=3) > 0.0)

    @property
    def mean(self) -> Array:
        """The most probable errors that are the same in all intervals, float64 (2, n_antenna)."""
        root = np.sqrt(self.k) * self.relative
        matrix = self.matrix.sum(axis=1) * root[:, :, None] * root[:, None, :] + np.eye(root.shape[1])
        along = np.linalg.solve(matrix, (self.gradient.sum(axis=1) * root)[..., None])
        return np.asarray(root * along[..., 0])


@dataclass(frozen=True, eq=False)
class GainNoise:
    """The covariance of visibilities of which errors of gains are a part,

        C = W^-1 + A K A^T,        J^T C^-1 J = J^T W J - Y^T Y,
        Y = (K^-1 + A^T W A)^(-1/2) A^T W J

    by Woodbury's identity. A are the derivatives of V by the errors of gains, K the variances of these over
    the variance of the noise. The matrix in brackets has a block for each interval.

    Attributes
    ----------
    offset : list of complex128 (n,), Jy
        Terms of second order in the most probable errors, which are a part of the data of each chunk.
    seen : list of csr_array (n_gain, 2 n)
        A^T W^(1/2) for the visibilities of each chunk, real and imaginary parts side by side.
    white : float64 (2 n_interval, n_antenna, n_antenna)
        Roots of the blocks of the inverse.
    variance : float64 (n_gain,)
        Of the errors about their means over the intervals, relative to that of the noise.
    mean2 : float64 (2, n_antenna)
        Square of these means, likewise.
    """

    offset: list[Vis]
    seen: list[csr_array]
    white: Array
    variance: Array
    mean2: Array

    @classmethod
    def of(
        cls, modes: GainErrorModes, ends: BaselineAntennas, model: Vis, offset: list[Vis], noise: float
    ) -> GainNoise:
        """The covariance for the errors of some modes.

        Parameters
        ----------
        modes : GainErrorModes
        ends : BaselineAntennas
        model : complex128 (n,)
            Over sigma.
        offset : list of complex128, Jy
            Terms of second order, for each chunk.
        noise : float
            Standard deviation of the noise over the stated one.
        """
        from scipy.sparse import csr_array

        n, n_vis, size = ends.n_antenna, len(model), modes.values.shape[1]
        v, number = model * ends.is_other, np.arange(n_vis)
        entries, rows = [], []
        for kind, (turned, sign) in enumerate(((v, 1.0), (1j * v, -1.0))):
            for antenna, factor in ((ends.first, 1.0), (ends.second, sign)):
                place = (kind * size + modes.index) * n + antenna
                for half in (turned.real, turned.imag):
                    entries.append(factor * half)
                    rows.append(place)
        columns = np.tile(np.concatenate([[2 * number], [2 * number + 1]]), (4, 1))
        shape = (2 * size * n, 2 * n_vis)
        whole = csr_array(
            (np.concatenate(entries), (np.concatenate(rows), columns.ravel())), shape=shape
        ).tocsc()
        cut = 2 * np.cumsum([0, *map(len, offset)])
        root = np.sqrt(modes.k / (1.0 + modes.k * modes.values))
        white = root[..., None] * (np.swapaxes(modes.vectors, 2, 3) * modes.relative[:, None, None, :])
        mean2 = (modes.mean / max(noise, 1e-150)) ** 2
        within = np.maximum(modes.k * modes.relative**2 - mean2, 0.0)
        variance = np.broadcast_to(within[:, None, :], (2, size, n)).ravel()
        parts = [whole[:, a:b].tocsr() for a, b in pairwise(cut)]
        return cls(offset, parts, white.reshape(2 * size, n, n), variance, mean2)

    def along(self, i_chunk: int, columns: Array) -> Array:
        """A^T W J, float64 (n_gain, n_column), for W^(1/2) J of a chunk, float64 (n_column, 2 n)."""
        return np.asarray(self.seen[i_chunk] @ columns.T)

    def lost(self, along: Array) -> Array:
        """Y^T Y."""
        n_block, n, _ = self.white.shape
        y = (self.white @ along.reshape(n_block, n, -1)).reshape(n_block * n, -1)
        return np.asarray(y.T @ y)

    def spread(self, along: Array) -> Array:
        """J^T W A K A^T W J, where what an antenna's errors have in common in all intervals counts as one."""
        shape = len(self.mean2), -1, self.mean2.shape[1], along.shape[1]
        common = along.reshape(shape).sum(axis=1).reshape(self.mean2.size, -1)
        total = along.T @ (self.variance[:, None] * along)
        return np.asarray(total + common.T @ (self.mean2.reshape(-1, 1) * common))
