"""The solutions of one spectral window, by interval, block of channels, antenna and feed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rime_kernels.gain_solving import Reason, Solution, Unknowns

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class WindowSolution:
    """Gains of the partitions that share a spectral window.

    Attributes
    ----------
    name : str
    spw_id : int
        Number of the window in the data set.
    partitions : tuple of int
        Numbers of the partitions.
    chan_freq, chan_width : float64 (n_chan,), Hz
    block : int64 (n_chan,)
        The block of each channel.
    feeds : tuple of int
        Feeds that have gains of their own: (0,) where the feeds are common, or where one was observed.
    gain : complex128 (n_interval, n_block, n_antenna, 2)
        1 where there is no solution that can be used.
    log_amplitude_error, phase_error, snr : float64, as gain
        Standard deviations of ln |g| and arg g (rad), and 1 over the one that matters.
    reason : int8, as gain
        A `rime_kernels.gain_solving.Reason`.
    reference : int64 (n_interval, n_block, n_group)
        Number of the reference antenna, -1 without one.
    chi2_before, chi2_after : float64, as reference
    n_vis, n_free : int64, as reference
        Complex visibilities that the solution is made of, and real numbers solved for.
    counts : bool (n_corr,)
        The correlations that gains were solved from.
    """

    name: str
    spw_id: int
    partitions: tuple[int, ...]
    chan_freq: Array
    chan_width: Array
    block: Index
    feeds: tuple[int, ...]
    gain: Complex
    log_amplitude_error: Array
    phase_error: Array
    snr: Array
    reason: NDArray[np.int8]
    reference: Index
    chi2_before: Array
    chi2_after: Array
    n_vis: Index
    n_free: Index
    counts: NDArray[np.bool_]

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Whether a gain has a solution that can be used, as `gain`."""
        return np.asarray(self.reason == Reason.SOLVED)

    @property
    def block_freq(self) -> Array:
        """Middle of each block of channels, float64 (n_block,), Hz."""
        return np.bincount(self.block, self.chan_freq) / np.bincount(self.block)

    def of_rows(self, interval: Index, antenna: NDArray[np.int32]) -> tuple[Complex, NDArray[np.bool_]]:
        """Gains of rows, complex128 (n_row, n_chan, 2), and whether there are any."""
        gain, usable = self.gain[interval, :, antenna], self.usable[interval, :, antenna]
        return gain[:, self.block], usable[:, self.block]


def window_of(
    name: str,
    axes: tuple[int, tuple[int, ...], Array, Array, Index],
    solution: Solution,
    unknowns: Unknowns,
    snr_limit: float,
) -> WindowSolution:
    """The solutions of a window, those whose signal-to-noise ratio is below the limit flagged.

    Parameters
    ----------
    name : str
    axes : spw_id, partitions, chan_freq, chan_width, block
        As in `WindowSolution`.
    solution : Solution
    unknowns : Unknowns
    snr_limit : float
    """
    errors = [solution.log_amplitude_error, solution.phase_error]
    n_free = sum((error > 0.0).sum(axis=-1) for error in errors)
    decisive = errors[0] if errors[0].any() else errors[1]
    with np.errstate(divide="ignore"):
        snr = np.where(decisive > 0.0, 1.0 / decisive, 0.0)
    # The reference of a phase solution has no error: as sure as the surest of the others.
    solved = solution.reason == Reason.SOLVED
    snr = np.where(solved & (decisive == 0.0), snr.max(axis=-1, keepdims=True), snr)
    reason = np.where(solved & (snr < snr_limit), Reason.LOW_SNR, solution.reason).astype(np.int8)
    gain = np.where(reason == Reason.SOLVED, solution.gain, 1.0)
    parallel = {"XX": 0, "RR": 0, "YY": 1, "LL": 1}
    observed = sorted({parallel[corr] for corr in unknowns.corr_type if corr in parallel})
    spw_id, partitions, chan_freq, chan_width, block = axes
    feeds = [np.asarray(unknowns.of_feeds(array)) for array in (gain, *errors, snr, reason)]
    return WindowSolution(
        name,
        spw_id,
        partitions,
        chan_freq,
        chan_width,
        block,
        (0,) if unknowns.feeds == "common" else tuple(observed),
        np.asarray(feeds[0], np.complex128),
        np.asarray(feeds[1], np.float64),
        np.asarray(feeds[2], np.float64),
        np.asarray(feeds[3], np.float64),
        np.asarray(feeds[4], np.int8),
        solution.reference,
        solution.chi2_before,
        solution.chi2_after,
        solution.n_vis,
        np.asarray(n_free, np.int64),
        unknowns.place[0, :, 0] >= 0,
    )
