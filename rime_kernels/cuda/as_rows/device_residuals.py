"""An engine whose kernels find V - D on the device in the place of the data, for derivatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rime_kernels.arrays import Sources
from rime_kernels.compile.types import DeviceArray
from rime_kernels.cuda.engine import CudaEngine
from rime_kernels.cuda.kernels.arguments import DataColumns
from rime_kernels.cuda.layouts.data import cut
from rime_kernels.cuda.layouts.launch import Arrays, Slab
from rime_kernels.cuda.staging import CudaCall, n_times
from rime_kernels.inputs import Inputs, Parameters


class SentSources(NamedTuple):
    """What a call sends."""

    call: CudaCall
    given: Parameters  # on the device
    inputs: Inputs  # on the device


class DeviceResidualEngine(CudaEngine):
    """Launches for data that lie on the device as rows do, not as kernels read them."""

    def _sky(self, sources: Sources) -> SentSources:
        call = self._call(sources)
        given = Parameters(*self._workspace.fill("parameters", call.given))
        return SentSources(call, given, self._staging.inputs(call, given, 0))

    def _with_residual(self, call: CudaCall) -> CudaCall:
        """This call with kernels that find V - D in the place of the data."""
        variant = dataclasses.replace(call.variant, given=True)
        layout = self._layouts.alike(call.layout, variant, has_gaussian=call.n_gaussian > 0)
        return call._replace(variant=variant, layout=layout)

    def _laid_out(
        self, call: CudaCall, residual: DeviceArray, rows_weight: DeviceArray, rows_template: DeviceArray
    ) -> DataColumns:
        """Residuals, weights (n_row, n_chan, n_corr) and templates, as kernels read them."""
        layout, workspace = call.layout, self._workspace
        whole, n_template = layout.slab(0, layout.n_unit), len(self._fixed.template)
        n, cplx = layout.n_datum(whole), call.variant.complex
        out = workspace.array("residual", (n,), cplx)
        layout.arrange(whole, residual, out, 0)
        weight = workspace.array("weight", (n,), call.variant.real)
        layout.arrange(whole, rows_weight, weight, 0, turned=-1.0)
        template = workspace.array("template", (max(1, n_template) * n,), cplx)
        for k in range(n_template):
            layout.arrange(whole, rows_template[k], template[k * n : (k + 1) * n], 0)
        return DataColumns(out, weight, template, n if n_template else 0)

    def _nothing(self, call: CudaCall) -> DataColumns:
        no_vis = self._workspace.array("no data", (1,), call.variant.complex)
        return DataColumns(no_vis, self._workspace.array("no weight", (1,), call.variant.real), no_vis, 0)

    def _pieces_of(self, call: CudaCall, more: Callable[[Slab], int]) -> list[Slab]:
        """Pieces of the rows whose brightnesses, and more bytes for each, memory is there for."""
        per_time = self._bright_bytes(call) * call.per_time * call.n_batch
        whole = slice(0, call.layout.n_unit)
        return cut(
            call.layout, whole, lambda piece: per_time * n_times(piece) + more(piece), self.work_budget
        )

    def _arrays(
        self, sky: SentSources, pieces: list[Slab], columns: DataColumns
    ) -> Iterator[tuple[Slab, Arrays]]:
        """What the kernels read for each piece."""
        call, given, layout = sky.call, sky.given, sky.call.layout
        bright: DeviceArray = None
        no_vis = self._workspace.array("no vis", (1, 1, 1, 1), call.variant.complex)
        no_sums = self._workspace.array("no sums", (1, 1), np.float64)
        for piece in pieces:
            if call.per_time or bright is None:
                of = piece if call.per_time else None
                bright = self._staging.brightness(call, given, of, "brightness", 0)
            n_time = n_times(piece) if call.per_time else 1
            has_data = columns.vis.size > 1
            offset = layout.n_datum(layout.slab(0, piece.unit.start)) if has_data and piece.unit.start else 0
            yield piece, Arrays(
                sky.inputs, call.n_gaussian, bright, n_time, columns.ahead(offset), no_vis, no_sums,
                call.jones(given), call.jones_shape, call.n_profile, call.beams,
            )  # fmt: skip
