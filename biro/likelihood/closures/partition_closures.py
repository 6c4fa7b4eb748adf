"""Chi-squared of the closures of one partition, and its derivatives with respect to model visibilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.closures.covariance import ClosureCovariance
from biro.likelihood.closures.legs import SNR_LIMIT, legs_of
from biro.likelihood.closures.sets import ClosureSets, sets_of
from biro.observation.partition import Partition

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]
_BYTES = 64 << 20
"""Of an array of all legs, for as many parameter vectors as are worked out at a time."""


@dataclass(frozen=True)
class ClosureResidual:
    """Log visibilities of data over model, beside the best gains, for n parameter vectors.

    Attributes
    ----------
    chi2 : float64 (2, n)
        Of closure phases, and of log closure amplitudes.
    weighted : complex128 (n_leg, n)
        A^T (A S A^T)^-1 A x of log amplitudes x, plus i times that of phases.
    """

    chi2: Array
    weighted: NDArray[np.complex128]


class PartitionClosures:
    """Closure phases and log closure amplitudes of a partition, with their full covariance.

        chi2 = r^T (A_p S A_p^T)^-1 r + q^T (A_a S A_a^T)^-1 q

    over the sets of each time, channel and parallel hand: r are the residuals of closure phases, turned to
    within half a turn of 0, q those of log closure amplitudes, S = diag((sigma / |V|)^2) of the data's legs.

    S is that of noisy amplitudes, so that a leg counts more where noise has made it larger. To first order in
    its thermal variance S', its log amplitude is on average 2 h S' too large as the fit weights it, where
    h = S_k [A^T (A S A^T)^-1 A]_kk is the share that closures have in it. This is subtracted: left alone, it
    biases sources by a sigma where the median SNR is 24. ln |V| has no bias (E1(SNR^2 / 2) / 2: 0.001 at 3).

    Parameters
    ----------
    sets : ClosureSets
    shape : (n_row, n_chan, n_corr)
        Of the partition.
    phase, amplitude : ClosureCovariance
        Of closure phases, and of log closure amplitudes.
    corrected : bool
        Whether 2 h S' is subtracted; False for the figures of other programs.

    Attributes
    ----------
    sets : ClosureSets
    n_phase, n_amplitude : int
        Independent closures.
    log_data : complex128 (n_leg,)
        ln |D| + i arg D of the legs, corrected.
    """

    def __init__(
        self,
        sets: ClosureSets,
        shape: tuple[int, ...],
        phase: ClosureCovariance,
        amplitude: ClosureCovariance,
        *,
        corrected: bool,
    ) -> None:
        self.sets, self._shape, self._corrected = sets, shape, corrected
        self._phase, self._amplitude = phase, amplitude
        self.n_phase, self.n_amplitude = self._phase.n_closure, self._amplitude.n_closure
        legs = sets.legs
        self.log_data = legs.log_vis - (2.0 * self._amplitude.shares() * legs.thermal if corrected else 0.0)

    @classmethod
    def of(
        cls, part: Partition, snr_limit: float = SNR_LIMIT, *, corrected: bool = True
    ) -> PartitionClosures:
        """The closures of a partition with the noise that its weights state; `snr_limit` as for `legs_of`."""
        sets = sets_of(legs_of(part, snr_limit))
        kinds = ClosureCovariance(sets, -1.0), ClosureCovariance(sets, 1.0)
        return cls(sets, part.vis.shape, *kinds, corrected=corrected)

    def with_noise(self, variance: Array, thermal: Array) -> PartitionClosures:
        """These closures with other noise, float64 (n_leg,) as of `Legs`."""
        legs = replace(self.sets.legs, variance=variance, thermal=thermal)
        sets, kinds = replace(self.sets, legs=legs), (self._phase, self._amplitude)
        phase, amplitude = (each.with_variance(variance) for each in kinds)
        return PartitionClosures(sets, self._shape, phase, amplitude, corrected=self._corrected)

    @property
    def n_data(self) -> int:
        """Independent real numbers."""
        return self.n_phase + self.n_amplitude

    @cached_property
    def log_norm(self) -> float:
        """ln of the normalisation: -(n_data ln(2 pi) + ln det of the covariance) / 2."""
        log_det = self._phase.log_det + self._amplitude.log_det
        return -0.5 * (self.n_data * math.log(2.0 * math.pi) + log_det)

    def chi2(self, vis: Complex) -> Array:
        """chi2 of closure phases and of log closure amplitudes, float64 (n_batch, 2).

        Parameters
        ----------
        vis : complex (n_batch, n_row, n_chan, n_corr), Jy
            Model visibilities. NaN, where one that closures are made of is 0 or not finite.
        """
        return np.concatenate([self._residual(some).chi2.T for some in self._pieces(vis)])

    def chi2_and_slope(self, vis: Complex) -> tuple[Array, NDArray[np.complex128]]:
        """`chi2`, and slopes G of their sum: d chi2 = sum Re(conj(G) dV).

        Float64 (n_batch, 2), and complex as `vis`. With x = ln D - ln V, d chi2 = -2 Re(conj(y) dV / V), y =
        A^T (A S A^T)^-1 A x.
        """
        chi2, slope = [], np.zeros(vis.shape, np.complex128)
        start, at = 0, self.at
        for some in self._pieces(vis):
            residual = self._residual(some)
            chi2.append(residual.chi2.T)
            index = slice(start, start + len(some))
            with np.errstate(divide="ignore", invalid="ignore"):
                slope[index, at[0], at[1], at[2]] = (-2.0 * residual.weighted / some.T.conj()).T
            start += len(some)
        return np.concatenate(chi2), slope

    def noise_slopes(self, vis: Complex) -> tuple[Array, Array]:
        """Derivatives of ln L with respect to variances S of the legs, and to their thermal part S'.

        Two float64 (n_leg,), for model visibilities (n_row, n_chan, n_corr). At a given S', with y of
        `ClosureResidual` and the shares h of amplitudes and phases

            d ln L / dS  = (y_a^2 + y_p^2) / 2 - (h_a + h_p) / (2 S) + d(sum 2 y_a S' h_a) / dS
            d ln L / dS' = 2 y_a h_a

        where the last term and the last line are those of the correction by 2 h S'.
        """
        (some,), legs = self._pieces(vis[None]), self.sets.legs
        weighted, share = self._residual(some).weighted[:, 0], self._amplitude.shares()
        by_variance = 0.5 * np.abs(weighted) ** 2 - 0.5 * (share + self._phase.shares()) / legs.variance
        if not self._corrected:
            return by_variance, np.zeros_like(by_variance)
        by_variance += self._amplitude.slopes_of_shares(2.0 * weighted.real * legs.thermal)
        return by_variance, 2.0 * weighted.real * share

    def noise_information(self, change: Array) -> Array:
        """Fisher information on changes of the variances of the legs (n_leg, n), float64 (n, n).

        To the lowest order in S': what the correction by 2 h S' tells of the noise is left out.
        """
        return self._phase.variance_information(change) + self._amplitude.variance_information(change)

    def information(self, vis: Complex, change: Complex) -> NDArray[np.complex128]:
        """A^T (A S A^T)^-1 A of changes of ln V, as slopes: sum Re(conj(this) dV) is the Fisher information.

        Parameters
        ----------
        vis : complex (n_row, n_chan, n_corr), Jy
        change : complex (n_change, n_row, n_chan, n_corr), Jy
            Derivatives of the visibilities.
        """
        of_legs = vis[self.at]
        row, chan, corr = self.at
        relative = (change[:, row, chan, corr] / of_legs).T
        weighted = self._amplitude.weighted(relative.real)[1] + 1j * self._phase.weighted(relative.imag)[1]
        slope = np.zeros(change.shape, np.complex128)
        slope[:, row, chan, corr] = weighted.T / of_legs.conj()
        return slope

    def gains(self, vis: Complex) -> NDArray[np.complex128]:
        """The gains that fit best, of both antennas of each visibility: data are about this times the model.

        Parameters
        ----------
        vis : complex (n_row, n_chan, n_corr), Jy
            Model visibilities.

        Returns
        -------
        complex128 (n_row, n_chan, n_corr)
            0 of visibilities that no closures are made of.
        """
        of_legs = vis[self.at].astype(np.complex128)
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = (self.log_data - np.log(of_legs))[:, None]
            amplitude = difference.real - self._amplitude.weighted(difference.real)[0]
            phase = difference.imag - self._phase.weighted(self._closed(difference.imag))[0]
        gains = np.zeros(self._shape, np.complex128)
        gains[self.at] = np.exp(amplitude + 1j * phase)[:, 0]
        return gains

    @property
    def at(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Where the legs are among the visibilities of a partition."""
        return self.sets.legs.row, self.sets.legs.chan, self.sets.legs.corr

    def _pieces(self, vis: Complex) -> list[NDArray[np.complex128]]:
        """Model visibilities of the legs, (n, n_leg) at a time."""
        step, (row, chan, corr) = max(1, _BYTES // (16 * max(1, len(self.sets.legs)))), self.at
        starts = range(0, len(vis), step)
        return [vis[i : i + step, row, chan, corr].astype(np.complex128) for i in starts]

    def _residual(self, vis: NDArray[np.complex128]) -> ClosureResidual:
        """Residuals of model visibilities of the legs, (n, n_leg)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = self.log_data[:, None] - np.log(vis).T
            left_amplitude, amplitude = self._amplitude.weighted(difference.real)
            left_phase, phase = self._phase.weighted(self._closed(difference.imag))
            chi2 = [np.sum(left_phase * phase, axis=0), np.sum(left_amplitude * amplitude, axis=0)]
        return ClosureResidual(np.array(chi2), amplitude + 1j * phase)

    def _closed(self, phase: Array) -> Array:
        """Leg phases (n_leg, n) less those of antennas that make them 0 along the trees, within half a turn.

        These are the closure phases of the legs that are not in a tree.
        """
        antenna = np.zeros((self.sets.n_set * self.sets.width, phase.shape[1]))
        for step in self.sets.steps:
            antenna[step.node] = antenna[step.parent] + step.sign[:, None] * phase[step.leg]
        closed = phase - antenna[self.sets.first] + antenna[self.sets.second]
        return closed - 2.0 * np.pi * np.rint(closed / (2.0 * np.pi))
