"""The device's side of `Rime`: what is uploaded, cut into slabs and launched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import _rime_cuda, device
from rime_kernels._inputs import Constants, Inputs, Output, Variant
from rime_kernels.errors import BackendError
from rime_kernels.geometry import RowTable, row_chunks

# Blocks of the batch axis of a grid; CUDA allows 65535.
_MAX_BATCH = 32768
# Rows whose chi2 one block of threads sums.
_CHUNK_ROWS = 256


class _Slab(NamedTuple):
    """A part of the batch and of the time slots that is computed in one pass."""

    batch: slice
    time: slice
    place: slice  # rows, as places in `order`
    chunk: slice  # ranges of rows that are summed by themselves


class Engine:
    """The device's side of `Rime`: uploads the constants, cuts batch and time to the memory budget."""

    def __init__(self, fixed: Constants, table: RowTable, *, single: bool, factored: bool) -> None:
        self._fixed, self._table = fixed, table
        self._single, self._factored = single, factored
        self._n_thread = device.threads_per_block()
        self._chunks = row_chunks(table, _CHUNK_ROWS)
        self._on_device = Constants(*(device.upload(value) for value in fixed))
        n_chan = fixed.chan_freq.size
        self._start, self._stop = (device.upload(self._chunks[:, k] * n_chan) for k in (1, 2))
        self._whole = device.upload(np.array([0])), device.upload(np.array([len(self._chunks)]))
        self._workspace = device.Workspace()
        # Asked for once: to ask takes longer than a small problem.
        self._budget = device.memory_budget()

    def run(self, inputs: Inputs, codes: tuple[int, int], polarised: bool, output: Output) -> NDArray[Any]:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr); or chi2 (n_batch,).

        When the device runs out of memory the slabs are halved until they fit, for good.
        """
        variant = Variant(self._single, self._factored, codes[1], polarised)
        self._n_gaussian = inputs.projection.shape[1]
        slot_bytes = self._slot_bytes(variant, inputs, output)
        n_most = self._fixed.antenna_uvw.shape[0] * inputs.direction.shape[0]
        while True:
            n_slot = min(max(1, self._budget // slot_bytes), n_most)
            try:
                return self._run(inputs, codes[0], variant, output, n_slot)
            except device.DeviceMemoryError as error:
                self._workspace.clear()
                if n_slot == 1:
                    raise BackendError(f"{error}, and the work cannot be cut smaller") from error
                self._budget = n_slot // 2 * slot_bytes

    def _slot_bytes(self, variant: Variant, inputs: Inputs, output: Output) -> int:
        """What a pair (batch entry, time slot) takes at most."""
        n_source, n_chan = inputs.direction.shape[1], self._fixed.chan_freq.size
        n_antenna = self._fixed.antenna_uvw.shape[1] if variant.has_antenna_terms else 0
        real = np.dtype(variant.real).itemsize
        per_source = real * (2 * n_antenna + variant.n_stokes)
        n_row = int(np.diff(self._table.slot_start).max())
        per_row = 8 if output is Output.CHI2 else 2 * real * self._fixed.matrix.shape[0]
        return int(n_chan * (n_source * per_source + n_row * per_row))

    def _slabs(self, n_batch: int, n_slot: int) -> Iterator[_Slab]:
        """Parts of the batch with all times; where not one entry fits, parts of its times."""
        n_time = self._fixed.antenna_uvw.shape[0]
        batch_step = min(max(1, n_slot // n_time), _MAX_BATCH)
        time_step = min(n_slot, n_time)
        for b in range(0, n_batch, batch_step):
            for t in range(0, n_time, time_step):
                stop = min(t + time_step, n_time)
                place = slice(int(self._table.slot_start[t]), int(self._table.slot_start[stop]))
                if place.stop > place.start:
                    first, last = np.searchsorted(self._chunks[:, 0], (t, stop))
                    batch = slice(b, min(b + batch_step, n_batch))
                    yield _Slab(batch, slice(t, stop), place, slice(int(first), int(last)))

    def _run(
        self, inputs: Inputs, shared_beam: int, variant: Variant, output: Output, n_slot: int
    ) -> NDArray[Any]:
        n_batch = inputs.direction.shape[0]
        n_row, n_chan, n_corr = self._fixed.uvw.shape[0], self._fixed.chan_freq.size, len(self._fixed.matrix)
        if output is Output.CHI2:
            result = np.empty((n_batch, 1))
        else:
            kind = np.float64 if output is Output.WEIGHTED else variant.complex
            result = np.empty((n_batch, n_row, n_chan, n_corr), kind)
        uploaded: tuple[int, Inputs] | None = None
        for slab in self._slabs(n_batch, n_slot):
            if uploaded is None or uploaded[0] != slab.batch.start:
                part = inputs.batch(slab.batch.start, slab.batch.stop)
                uploaded = slab.batch.start, self._upload(part)
            values = self._launch(slab, uploaded[1], shared_beam, variant, output)
            if output is not Output.CHI2:
                rows = self._fixed.order[slab.place]
                result[slab.batch, rows] = values.copy_to_host()
            elif slab.place.stop == n_row:
                result[slab.batch] = self._total(values)
        return result[:, 0] if output is Output.CHI2 else result

    def _upload(self, inputs: Inputs) -> Inputs:
        """The parameters of a call on the device; no Gaussians become one element that no kernel reads."""
        parts = [value if value.size else np.zeros((1,) * value.ndim) for value in inputs]
        return Inputs(*self._workspace.fill("inputs", parts))

    def _launch(self, slab: _Slab, inputs: Inputs, shared_beam: int, variant: Variant, output: Output) -> Any:
        """Run one slab: its visibilities or weighted squares, or the partial sums of chi2 so far."""
        bright = self._brightness(slab, inputs, shared_beam, variant)
        terms = self._antenna_terms(slab, inputs, variant)
        n_batch, n_row = slab.batch.stop - slab.batch.start, slab.place.stop - slab.place.start
        n_chan, n_corr = self._fixed.chan_freq.size, len(self._fixed.matrix)
        shape = (n_batch, n_row, n_chan, 1 if output is Output.CHI2 else n_corr)
        none = (1, 1, 1, 1)
        is_real = output in (Output.CHI2, Output.WEIGHTED)
        vis_out = self._workspace.array("vis", none if is_real else shape, variant.complex)
        real_out = self._workspace.array("real", shape if is_real else none, np.float64)
        fixed = self._on_device
        _rime_cuda.make_visibilities(variant)[(self._n_block(n_row * n_chan), n_batch), self._n_thread](
            n_row, self._n_gaussian, slab.place.start, slab.time.start,
            fixed.uvw, fixed.antenna1, fixed.antenna2, fixed.time_index, fixed.order, fixed.chan_freq,
            fixed.matrix, fixed.vis, fixed.weight,
            inputs.direction, inputs.projection, bright, terms, int(output), vis_out, real_out,
        )  # fmt: skip
        if output is not Output.CHI2:
            return real_out if is_real else vis_out
        return self._sum_chunks(slab, self._workspace.array("real", (n_batch, n_row * n_chan), np.float64))

    def _brightness(self, slab: _Slab, inputs: Inputs, shared_beam: int, variant: Variant) -> Any:
        per_time = inputs.stokes.shape[1] > 1
        n_batch, n_source = inputs.direction.shape[:2]
        n_time = slab.time.stop - slab.time.start if per_time else 1
        shape = (n_batch, n_time, n_source, variant.n_stokes, self._fixed.chan_freq.size)
        bright = self._workspace.array("brightness", shape, variant.real)
        n_item = int(np.prod(shape)) // variant.n_stokes
        _rime_cuda.make_brightness(variant, shared_beam)[self._n_block(n_item), self._n_thread](
            slab.time.start if per_time else 0, self._on_device.chan_freq, inputs.direction, inputs.stokes,
                inputs.ref_freq, inputs.log_spectrum, inputs.spectral_terms, inputs.beam_scale, bright,
            )  # fmt: skip
        return bright

    def _antenna_terms(self, slab: _Slab, inputs: Inputs, variant: Variant) -> Any:
        n_batch, n_source = inputs.direction.shape[:2]
        n_antenna = self._fixed.antenna_uvw.shape[1]
        shape = (n_batch, slab.time.stop - slab.time.start, n_source, n_antenna, self._fixed.chan_freq.size)
        if not variant.has_antenna_terms:
            shape = (1, 1, 1, 1, 1)
        kind = variant.complex if variant.factored else variant.real
        terms = self._workspace.array("terms", shape, kind)
        if variant.has_antenna_terms:
            _rime_cuda.make_antenna_terms(variant)[self._n_block(int(np.prod(shape))), self._n_thread](
                slab.time.start, self._on_device.chan_freq, self._on_device.antenna_uvw,
                inputs.direction, inputs.beam_scale, inputs.pointing, terms,
            )  # fmt: skip
        return terms

    def _sum_chunks(self, slab: _Slab, values: Any) -> Any:
        """Add the sums of this slab's chunks to those of the slabs before; float64 (n_batch, n_chunk)."""
        partial = self._workspace.array("partial", (values.shape[0], len(self._chunks)), np.float64)
        offset = slab.place.start * self._fixed.chan_freq.size
        grid = (slab.chunk.stop - slab.chunk.start, values.shape[0])
        _rime_cuda.make_range_sums(self._n_thread)[grid, self._n_thread](
            self._start, self._stop, offset, values, slab.chunk.start, partial
        )
        return partial

    def _total(self, partial: Any) -> NDArray[np.float64]:
        """The sums over all chunks, float64 (n_batch, 1), on the host."""
        out = self._workspace.array("chi2", (partial.shape[0], 1), np.float64)
        start, stop = self._whole
        _rime_cuda.make_range_sums(self._n_thread)[(1, partial.shape[0]), self._n_thread](
            start, stop, 0, partial, 0, out
        )
        return out.copy_to_host()

    def _n_block(self, n_item: int) -> int:
        return -(-n_item // self._n_thread)
