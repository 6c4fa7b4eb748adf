"""Residuals of closures weighted by their full covariance, without a matrix of closures.

With variances S of the legs, and a complete set of closures A x of leg values x, their covariance is A S A^T,
and

    chi2 = (A x)^T (A S A^T)^-1 A x = min over antenna values g of (x - B g)^T S^-1 (x - B g)

where the columns of B are what antennas do to legs, A B = 0: 1 and -1 for phases, 1 and 1 for log amplitudes.
The small matrix B^T S^-1 B of each set of antennas takes the place of the large one, and no complete set
needs to be chosen (Blackburn et al. 2020: closures are the same as self-calibration). The determinant is

    ln det(A S A^T) = ln det S + ln det(B^T S^-1 B) - ln 4 (log amplitudes, where there are odd polygons)

for A of whole numbers that generates all closures, such as minimal sets of triangles or of quadrangles.
"""

from __future__ import annotations

import copy
import math

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.closures.sets import ClosureSets

Array = NDArray[np.float64]


class ClosureCovariance:
    """The covariance of all closures of one kind.

    Parameters
    ----------
    sets : ClosureSets
    sign : -1 or +1
        What the second antenna of a leg does: -1 of phases, +1 of log amplitudes.

    Attributes
    ----------
    n_closure : int
    log_det : float
        ln det of the covariance of a minimal set, all sets together.
    """

    def __init__(self, sets: ClosureSets, sign: float) -> None:
        self._incidence = sets.incidence(sign)
        self._to_nodes = self._incidence.T.tocsr()
        self._shape = (sets.n_set, sets.width)
        self._ends, self._sign = (sets.first, sets.second), sign
        # Nodes without an antenna, and the first of sets in which a value of all antennas changes nothing.
        self._idle = sets.antenna < 0
        self._idle[:, 0] = sign < 0 or ~sets.has_odd
        # Whole numbers of log amplitudes that generate all closures count odd polygons twice (see above).
        self._log_index = math.log(4.0) * int(sets.has_odd.sum()) if sign > 0 else 0.0
        self.n_closure = int((sets.n_phase if sign < 0 else sets.n_amplitude).sum())
        self._weigh(sets.legs.variance)

    def with_variance(self, variance: Array) -> ClosureCovariance:
        """Covariance of these closures where legs have these variances, float64 (n_leg,)."""
        found = copy.copy(self)
        found._weigh(variance)
        return found

    def _weigh(self, variance: Array) -> None:
        """Work out what depends on the variances of legs."""
        self._inverse_variance = 1.0 / variance[:, None]
        matrix = self._products(self._inverse_variance[:, 0])
        distributed, index = self._idle[:, 0], np.arange(self._shape[1])
        matrix[distributed, 0, :] = matrix[distributed, :, 0] = 0.0
        # Idle nodes have a row of the unit matrix.
        matrix[:, index, index] = np.where(self._idle, 1.0, matrix[:, index, index])
        self._solve = np.linalg.inv(matrix)
        self._solve[:, index, index] = np.where(self._idle, 0.0, self._solve[:, index, index])
        self.log_det = float(np.log(variance).sum() + np.linalg.slogdet(matrix)[1].sum()) - self._log_index

    def _products(self, weight: NDArray[np.floating]) -> Array:
        """B^T W B of each set, float64 (n_set, width, width), for a weight of each leg (n_leg,)."""
        n_set, width = self._shape
        flat, (first, second), sign = np.zeros(n_set * width * width), self._ends, self._sign
        owner, i, j = first // width, first % width, second % width
        for row, column, factor in ((i, i, 1.0), (j, j, 1.0), (i, j, sign), (j, i, sign)):
            flat += np.bincount((owner * width + row) * width + column, factor * weight, len(flat))
        return flat.reshape(n_set, width, width)

    def _forms(self, matrix: NDArray[np.floating]) -> Array:
        """b^T M b of the row b of B of each leg, float64 (n_leg,), with symmetric M of each set."""
        (first, second), width = self._ends, self._shape[1]
        owner, i, j = first // width, first % width, second % width
        found = matrix[owner, i, i] + matrix[owner, j, j] + 2.0 * self._sign * matrix[owner, i, j]
        return np.asarray(found)

    def antennas(self, values: Array) -> Array:
        """The antenna values that fit leg values (n_leg, n) best, float64 (n_set width, n)."""
        n_set, width = self._shape
        pulled = self._to_nodes @ (self._inverse_variance * values)
        solved = self._solve @ pulled.reshape(n_set, width, values.shape[1])
        return np.asarray(solved.reshape(n_set * width, values.shape[1]))

    def shares(self) -> Array:
        """Share h of each leg's variance that closures see, S_k [A^T (A S A^T)^-1 A]_kk, float64 (n_leg,)."""
        return np.asarray(1.0 - self._inverse_variance[:, 0] * self._forms(self._solve))

    def slopes_of_shares(self, by_share: Array) -> Array:
        """Derivatives of sum c h with respect to the variances S, float64 (n_leg,), for c (n_leg,).

        With w = 1/S, P = B (B^T S^-1 B)^-1 B^T and h_k = 1 - w_k P_kk, dP_kk / dw_j = -P_kj^2.
        """
        weight = self._inverse_variance[:, 0]
        spread = self._solve @ self._products(by_share * weight) @ self._solve
        by_weight = self._forms(spread) - by_share * self._forms(self._solve)
        return np.asarray(-by_weight * weight**2)

    def variance_information(self, change: Array) -> Array:
        """Fisher information on changes of the variances (n_leg, n): tr(R dS R dS') / 2, float64 (n, n).

        R = A^T (A S A^T)^-1 A = S^-1 - S^-1 P S^-1, so that with d = dS / S and K = B^T S^-1 d B

            tr(R dS R dS') = sum d d' (1 - 2 P_kk / S_k) + sum over sets of tr(M^-1 K M^-1 K'), M = B^T S^-1 B
        """
        weight = self._inverse_variance
        relative = weight * change
        found = relative.T @ (relative * (2.0 * self.shares()[:, None] - 1.0))
        solved = [self._solve @ self._products(one) for one in (weight * relative).T]
        for i, one in enumerate(solved):
            found[i] += [np.sum(one * other.transpose(0, 2, 1)) for other in solved]
        return np.asarray(0.5 * found)

    def weighted(self, values: Array) -> tuple[Array, Array]:
        """What antenna values leave of leg values x (n_leg, n), e, and S^-1 e = A^T (A S A^T)^-1 A x."""
        if not len(values):
            return values, values
        left = values - self._incidence @ self.antennas(values)
        return left, self._inverse_variance * left
