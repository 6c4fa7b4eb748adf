"""The CPU's side of `Rime`: keeps the constants, cuts batch and rows into tasks, runs the loops."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels import _rime_cpu
from rime_kernels._inputs import Constants, Inputs, Output, Variant
from rime_kernels._lanes import Lanes, aligned, copied, make_lanes
from rime_kernels._rime_cpu import Correlations
from rime_kernels._simd import n_lanes
from rime_kernels.geometry import RowTable

# Bytes of spectral factors and partial sums that one pass over a part of the batch may take.
_MEMORY_BUDGET = 256 << 20
# Source-visibilities, counted in vectors, that make a task worth its overhead.
_TASK_WORK = 20000
_MAX_TASKS = 256


class Engine:
    """The CPU's side of `Rime`: keeps the constants, cuts batch and rows into tasks, runs the loops."""

    def __init__(self, fixed: Constants, table: RowTable, *, single: bool, factored: bool) -> None:
        self._single, self._factored = single, factored
        real = np.float32 if single else np.float64
        self._shape = fixed.uvw.shape[0], fixed.chan_freq.size, fixed.matrix.shape[0]
        self._matrix = fixed.matrix
        self._lanes = make_lanes(fixed, n_lanes(real), factored)
        self._tasks: dict[int, NDArray[np.int64]] = {}

    def run(self, inputs: Inputs, codes: tuple[int, int], polarised: bool, output: Output) -> NDArray[Any]:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr); or chi2 (n_batch,)."""
        variant = Variant(self._single, self._factored, codes[1], polarised)
        n_batch, n_source = inputs.direction.shape[:2]
        tasks = self._tasks_of(n_source)
        bytes_each = 8 * (variant.n_stokes * n_source * self._lanes.scale.size + len(tasks))
        step = max(1, min(n_batch, _MEMORY_BUDGET // bytes_each))
        result = self._result(n_batch, variant, output)
        for start in range(0, n_batch, step):
            part = inputs.batch(start, min(start + step, n_batch))
            self._run_part(part, codes[0], variant, output, tasks, result[start : start + step])
        return result

    def _tasks_of(self, n_source: int) -> NDArray[np.int64]:
        if n_source not in self._tasks:
            self._tasks[n_source] = make_tasks(self._lanes, n_source)
        return self._tasks[n_source]

    def _result(self, n_batch: int, variant: Variant, output: Output) -> NDArray[Any]:
        if output is Output.CHI2:
            return np.empty(n_batch)
        return np.empty((n_batch, *self._shape), np.float64 if output is Output.WEIGHTED else variant.complex)

    def _run_part(
        self, inputs: Inputs, shared_beam: int, variant: Variant, output: Output, tasks: NDArray[np.int64],
        result: NDArray[Any],
    ) -> None:  # fmt: skip
        n_batch, n_source = inputs.direction.shape[:2]
        n_block, n_lane = self._lanes.scale.shape
        spectra = aligned((n_batch, n_block, n_source, variant.n_stokes, n_lane), variant.real)
        _rime_cpu.make_spectra(variant.single)(shared_beam, inputs, self._lanes.scale, spectra)
        none = (n_batch, 0, 0, 0)
        vis_out, real_out = np.empty(none, variant.complex), np.empty(none)
        if output is Output.WEIGHTED:
            real_out = result
        elif output is not Output.CHI2:
            vis_out = result
        partial = np.empty((n_batch, len(tasks)))
        loop = _rime_cpu.make_visibilities(variant.single, variant.n_stokes)
        loop(
            variant.factored, variant.beam, int(output), tasks, self._lanes, inputs, spectra,
            correlations(self._matrix[:, : variant.n_stokes], variant.real), vis_out, real_out, partial,
        )  # fmt: skip
        if output is Output.CHI2:
            # NumPy sums each row by itself, in an order that depends on its length alone.
            np.sum(partial, axis=1, out=result)


def make_tasks(lanes: Lanes, n_source: int) -> NDArray[np.int64]:
    """The parts that threads take: of one block of channels, some slots or some entries of one slot.

    They depend on the problem alone, not on the threads or the batch, and with them the order of sums.

    Returns
    -------
    int64 (n_task, 5)
        Block, first slot, one past the last, first entry, one past the last.
    """
    n_block, n_slot, n_entry = len(lanes.scale), len(lanes.slot_time), len(lanes.row)
    wanted = min(_MAX_TASKS, max(1, n_block * n_entry * (n_source + 10) // _TASK_WORK))
    per_block = -(-wanted // n_block)
    cuts: list[tuple[int, int, int, int]] = []
    if per_block <= n_slot:
        bounds = np.linspace(0, n_slot, per_block + 1).astype(np.int64)
        cuts = [(a, z, 0, n_entry) for a, z in pairwise(bounds)]
    else:
        for slot, (a, z) in enumerate(pairwise(lanes.slot_entry)):
            n_part = max(1, round(per_block * int(z - a) / n_entry))
            bounds = a + (np.linspace(0, int(z - a + 1) // 2, n_part + 1).astype(np.int64) * 2)
            cuts += [(slot, slot + 1, e, min(f, z)) for e, f in pairwise(bounds)]
    tasks = [(block, *cut) for block in range(n_block) for cut in cuts]
    return np.array(tasks, dtype=np.int64).reshape(-1, 5)


def correlations(matrix: NDArray[np.complexfloating], real: type[np.floating]) -> Correlations:
    """The map (n_corr, n_stokes) without its zeros."""
    n_corr, n_stokes = matrix.shape
    full = np.zeros((2 * n_corr, 2 * n_stokes))
    full[0::2, :n_stokes], full[0::2, n_stokes:] = matrix.real, -matrix.imag
    full[1::2, :n_stokes], full[1::2, n_stokes:] = matrix.imag, matrix.real
    n_term = max(1, int(np.count_nonzero(full, axis=1).max()))
    part = np.argsort(full == 0.0, axis=1, kind="stable")[:, :n_term]
    return Correlations(copied(part, np.int64), copied(np.take_along_axis(full, part, axis=1), real))
