"""The CPU's side of `Rime`: keeps the constants, cuts the batch to a memory budget, runs the loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels import _rime_cpu
from rime_kernels._inputs import Constants, Inputs, Output, Variant
from rime_kernels.geometry import RowTable, row_chunks

# Bytes of spectral factors and partial sums that one pass over a part of the batch may take.
_MEMORY_BUDGET = 256 << 20


class Engine:
    """The CPU's side of `Rime`: keeps the constants, cuts the batch, runs the loops."""

    def __init__(self, fixed: Constants, table: RowTable, *, single: bool, factored: bool) -> None:
        self._fixed = fixed
        self._single, self._factored = single, factored
        # Long pieces share their antenna terms among many rows, several pieces feed all threads.
        self._chunks = row_chunks(table, max(1024, 16 * fixed.antenna_uvw.shape[1]))

    def run(self, inputs: Inputs, codes: tuple[int, int], polarised: bool, output: Output) -> NDArray[Any]:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr); or chi2 (n_batch,)."""
        variant = Variant(self._single, self._factored, codes[1], polarised)
        n_batch, n_source = inputs.direction.shape[:2]
        n_chan, n_chunk = self._fixed.chan_freq.size, len(self._chunks)
        bytes_each = n_chan * 8 * (variant.n_stokes * n_source + n_chunk)
        step = max(1, min(n_batch, _MEMORY_BUDGET // max(1, bytes_each)))
        result = self._result(n_batch, variant, output)
        for start in range(0, n_batch, step):
            part = inputs.batch(start, min(start + step, n_batch))
            self._run_part(part, codes[0], variant, output, result[start : start + step])
        return result

    def _result(self, n_batch: int, variant: Variant, output: Output) -> NDArray[Any]:
        if output is Output.CHI2:
            return np.empty(n_batch)
        shape = (n_batch, self._fixed.uvw.shape[0], self._fixed.chan_freq.size, self._fixed.matrix.shape[0])
        return np.empty(shape, np.float64 if output is Output.WEIGHTED else variant.complex)

    def _run_part(
        self, inputs: Inputs, shared_beam: int, variant: Variant, output: Output, result: NDArray[Any]
    ) -> None:
        n_batch, n_source = inputs.direction.shape[:2]
        n_chan = self._fixed.chan_freq.size
        spectra = np.empty((n_batch, n_chan, variant.n_stokes, n_source), variant.real)
        _rime_cpu.make_spectra(variant.single)(shared_beam, inputs, self._fixed.chan_freq, spectra)
        vis_out, real_out = np.empty((0, 0, 0, 0), variant.complex), np.empty((0, 0, 0, 0))
        if output is Output.CHI2:
            real_out = np.empty((n_batch, len(self._chunks), n_chan, 1))
        elif output is Output.WEIGHTED:
            real_out = result
        else:
            vis_out = result
        flags = variant.factored, variant.beam, int(output)
        visibilities = _rime_cpu.make_visibilities(variant.single)
        visibilities(flags, self._fixed, self._chunks, inputs, spectra, vis_out, real_out)
        if output is Output.CHI2:
            # NumPy sums each row by itself, in an order that depends on its length alone.
            np.sum(real_out.reshape(n_batch, -1), axis=1, out=result)
