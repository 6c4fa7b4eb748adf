"""The public call: the gains of all problems, with errors, reasons and chi-squared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.gain_solving.minimum import minimise
from rime_kernels.gain_solving.sums import Array, Index, IntervalSums
from rime_kernels.gain_solving.unknowns import MODES, SolveOptions, Unknowns

Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Solution:
    """Gains of all intervals, blocks of channels, groups of feeds and nodes (see `Unknowns`).

    Attributes
    ----------
    gain : complex128 (n_interval, n_block, n_group, n_node)
        1 where there is no solution.
    log_amplitude_error, phase_error : float64, as gain
        Standard deviations of ln |g| and of arg g (rad) that noise gives them; 0 for what is not free.
    reason : int8, as gain
        A `Reason`.
    reference : int64 (n_interval, n_block, n_group)
        Number of the reference antenna; -1 where there is none.
    chi2_before, chi2_after : float64, as reference
        chi-squared of the visibilities that the solution is made of, of gains 1 and of these.
    n_vis : int64, as reference
        How many these are.
    n_step : int64 (n_interval, n_block, n_group, 2)
        Steps of StefCal, and of Newton's method.
    """

    gain: Complex
    log_amplitude_error: Array
    phase_error: Array
    reason: NDArray[np.int8]
    reference: Index
    chi2_before: Array
    chi2_after: Array
    n_vis: Index
    n_step: Index


def solve_sums(
    sums: IntervalSums,
    unknowns: Unknowns,
    options: SolveOptions,
    order: Index,
    start: Complex | None = None,
) -> Solution:
    """The gains that minimise chi-squared, and what noise leaves uncertain of them.

    Parameters
    ----------
    sums : IntervalSums
    unknowns : Unknowns
    options : SolveOptions
    order : int64 (n_antenna,)
        Numbers of antennas; the reference of a problem is the first of them that has data enough. Its phase
        is 0. Where the feeds of an antenna are in one group, that of its first feed is.
    start : complex128 (n_interval, n_block, n_group, n_node), optional
        Gains to start from, none of them 0.

    Returns
    -------
    Solution
    """
    shape = sums.cross.shape[:3]
    n_problem, n_node = int(np.prod(shape)), unknowns.n_node
    gain = np.ones((n_problem, n_node), np.complex128)
    if start is not None:
        gain[:] = start.reshape(n_problem, n_node)
    errors = np.zeros((n_problem, n_node, 2))
    reason = np.zeros((n_problem, n_node), np.int8)
    anchor, numbers = np.full(n_problem, -1), np.zeros((n_problem, 3), np.int64)
    chi2 = np.zeros((n_problem, 2))
    flat = [array.reshape(n_problem, -1) for array in (sums.cross, sums.model, sums.data, sums.count)]
    with CALL_LOCK:
        minimise(
            unknowns.nodes[0],
            unknowns.nodes[1],
            (flat[0], flat[1], flat[2]),
            flat[3],
            np.ascontiguousarray(order, np.int64),
            (MODES.index(options.mode), options.min_baselines, options.max_iterations, start is not None),
            gain,
            errors,
            reason,
            anchor,
            numbers,
            chi2,
        )
    gain = np.where(reason == 0, _referred(gain, anchor), 1.0)
    whole = (*shape, n_node)
    return Solution(
        gain.reshape(whole),
        errors[..., 0].reshape(whole),
        errors[..., 1].reshape(whole),
        reason.reshape(whole),
        np.where(anchor < 0, -1, anchor // (n_node // unknowns.n_antenna)).reshape(shape),
        chi2[:, 0].reshape(shape),
        chi2[:, 1].reshape(shape),
        numbers[:, 0].reshape(shape),
        numbers[:, 1:].reshape(*shape, 2),
    )


def _referred(gain: Complex, anchor: Index) -> Complex:
    """Gains relative to the phase of one of each problem."""
    phase = np.angle(gain[np.arange(len(gain)), np.maximum(anchor, 0)])
    return np.asarray(gain * np.exp(-1j * phase)[:, None])
