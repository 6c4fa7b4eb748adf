"""Blocks of rows whose visibilities are smeared, on a GPU: means of V, their residuals and data stay there.

What the kernels read of time and frequency are tables on the device, which are written anew for each node.
V of the node is added to the mean. chi2 follows from the mean; before derivatives the residual is laid out as
data are, for kernels that take V - D in place of D (`Variant.given`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.adjoint import Adjoint
from rime_kernels.arrays import Sources
from rime_kernels.compile.types import DeviceArray
from rime_kernels.cuda.as_rows.device_residuals import DeviceResidualEngine, SentSources
from rime_kernels.cuda.kernels import reductions
from rime_kernels.cuda.kernels import smearing as kernels
from rime_kernels.cuda.kernels.arguments import DataColumns, typed
from rime_kernels.cuda.layouts.choice import Layouts
from rime_kernels.cuda.layouts.launch import Layout, Runs
from rime_kernels.cuda.staging import CudaCall, ParameterStaging
from rime_kernels.engine import Visibilities
from rime_kernels.engine.smeared import Settings, finished, one_by_one
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Parameters
from rime_kernels.physics.feeds import feeds_of
from rime_kernels.smearing.average import Average, Node

# The share of the memory that rows of all blocks may take, and a block where they do not all stay there.
_ROWS_SHARE, _BLOCK_SHARE = 0.6, 0.3
# Blocks of threads that share the samples of an entry of the batch.
_SHARES = 256


class SharedByBlocks(NamedTuple):
    """What all blocks of rows have together: scratch arrays, and the budget in bytes."""

    workspace: device.Workspace
    budget: int
    is_resident: bool  # whether data of all of them fit


class CudaSmearedBlocks:
    """Makes blocks of rows for a GPU: see the protocol `rime_kernels.engine.smeared.SmearedBlocks`."""

    def __init__(self, fixed: Constants, settings: Settings) -> None:
        limit = settings.memory_limit
        budget = device.memory_budget() if limit is None else limit
        # Of each sample: data as rows and as kernels read them, the mean, and V of a node.
        cplx, real = (8, 4) if settings.single else (16, 8)
        n_data = 2 * (cplx * (1 + len(fixed.template)) + real) + 2 * cplx
        per_row = n_data * fixed.chan_freq.size * fixed.matrix.shape[0]
        n_row = fixed.uvw.shape[0]
        is_resident = per_row * n_row <= _ROWS_SHARE * budget
        self.most_rows = n_row if is_resident else max(1, int(_BLOCK_SHARE * budget / per_row))
        self._shared = SharedByBlocks(device.Workspace(), budget, is_resident)

    def block(
        self, average: Average, fixed: Constants, table: RowTable, settings: Settings
    ) -> CudaSmearedRows:  # fmt: skip
        """The block of rows whose constants and table these are."""
        return CudaSmearedRows(average, fixed, table, settings, self._shared)


class _SmearedData(NamedTuple):
    """Data on the device, as they were given: flat; templates (n_template, n_row, n_chan, n_corr)."""

    vis: DeviceArray
    weight: DeviceArray
    template: DeviceArray


class CudaSmearedRows(DeviceResidualEngine):
    """A block of rows on a GPU: see the protocol `rime_kernels.engine.smeared.SmearedBlock`."""

    def __init__(
        self, average: Average, fixed: Constants, table: RowTable, settings: Settings, shared: SharedByBlocks
    ) -> None:
        super().__init__(fixed, table, **settings._replace(memory_limit=shared.budget)._asdict())
        self._average, self._shared = average, shared
        # One layout, moved from node to node, serves predictions and the adjoint: it is made for the highest
        # frequencies of any node, which say how far coordinates reach. Those of a node may be uneven.
        width = average.smearing.chan_width
        highest = self._fixed._replace(chan_freq=fixed.chan_freq + 0.5 * width)
        self._layouts = Layouts(highest, table, may_use_tensor_cores=False, even=not np.ptp(width) > 0.0)
        self._workspace = shared.workspace
        self._staging = ParameterStaging(shared.workspace, tangent=settings.frame == "tangent")
        self._shape = fixed.uvw.shape[0], fixed.chan_freq.size, fixed.matrix.shape[0]
        self._rows: _SmearedData | None = None
        self._of_rows: tuple[DeviceArray, DeviceArray, DeviceArray, DeviceArray, DeviceArray] | None = None
        self._middle: dict[bool, tuple[DeviceArray, DeviceArray]] = {}
        self._freq = device.upload(fixed.chan_freq), device.upload(average.smearing.chan_width)
        angles = average.smearing.declination, average.smearing.pole_angle
        self._pole = typed(kernels.Pole(*(float(f(x)) for x in angles for f in (np.cos, np.sin))))
        cplx = 8 if settings.single else 16
        self.max_batch = max(1, int(0.1 * shared.budget) // (2 * cplx * int(np.prod(self._shape))))

    # ---- what a `SmearedBlock` gives

    def mean(self, sources: Sources) -> Visibilities:
        """V, the mean over nodes, complex (n_batch, n_row, n_chan, n_corr)."""
        found: Visibilities = self._retry_with_less_memory(
            lambda: self._mean(self._sky(sources)).copy_to_host()
        )
        return found.reshape(sources.n_batch, *self._shape)

    def chi2(self, sources: Sources, scaled_dof: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """chi2, or the sum of logarithms, float64 (n_batch,)."""
        return self._retry_with_less_memory(lambda: self._misfit(self._sky(sources), scaled_dof, None)[0])

    def adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None,
    ) -> Adjoint:
        """chi2 with its derivatives; `vis`, for all entries of the batch, replaces the data."""
        if not sources.n_batch:
            return super().start_adjoint(sources, scaled_dof)()
        return one_by_one(
            lambda one, t: self._retry_with_less_memory(lambda: self._pulled(one, t, vis)),
            sources,
            scaled_dof,
        )

    def plan(self, sources: Sources) -> str:
        """How it computes, in words."""
        where = "on the device" if self._shared.is_resident else "sent in every call"
        return f"{self._call(sources).layout}; data {where}"

    # ---- nodes

    def _nodes(self, layout: Layout) -> Iterator[tuple[float, Node, Node]]:
        """Weights and places of all nodes; the layout's tables are those of the node that was given last."""
        turn, add_scaled = kernels.make_turn(), kernels.make_add_scaled()
        base, seconds = self._coordinates(layout)
        coordinates = layout.coordinates.reshape(*base.shape)
        (freq, width), out = self._freq, layout.chan_freq
        for time in self._average.times:
            device.launch_each(turn, base.shape[0], 0, base, seconds, time.offset, self._pole, coordinates)
            for node in self._average.freqs:
                n = freq.size
                device.launch_each(add_scaled, n, 0, freq, n, 1.0, 1, n, 0, out)
                device.launch_each(add_scaled, n, 0, width, n, node.offset, 0, n, 0, out)
                yield time.weight * node.weight, time, node

    def _coordinates(self, layout: Layout) -> tuple[DeviceArray, DeviceArray]:
        """Coordinates in the middle of each integration (n, 3), of rows or antennas, and its length in s."""
        by_rows = isinstance(layout, Runs)
        if by_rows not in self._middle:
            average, fixed = self._average, self._fixed
            seconds = average.smearing.interval if by_rows else average.slot_interval
            assert seconds is not None, "the factored form needs slots with one interval"
            base = fixed.uvw if by_rows else fixed.antenna_uvw.reshape(-1, 3)
            self._middle[by_rows] = device.upload(base), device.upload(seconds)
        return self._middle[by_rows]

    # ---- the mean, and chi2

    def _mean(self, sky: SentSources) -> DeviceArray:
        """V, flat, on the device."""
        call, n_batch = sky.call, sky.call.n_batch
        n_each = int(np.prod(self._shape[1:]))
        n_all = n_each * self._shape[0]
        mean = self._workspace.array("mean", (n_batch * n_all,), call.variant.complex)
        pieces, add_scaled = self._pieces_of(call, lambda piece: 0), kernels.make_add_scaled()
        for k, (weight, time, freq) in enumerate(self._nodes(call.layout)):
            for piece, arrays in self._arrays(sky, pieces, self._nothing(call)):
                n = n_each * (piece.place.stop - piece.place.start)
                shape = n_batch, piece.place.stop - piece.place.start, *self._shape[1:]
                flat, vis = (
                    self._workspace.array("vis", each, call.variant.complex)
                    for each in ((n_batch * n,), shape)
                )
                call.layout.launch(piece, False, arrays._replace(vis_out=vis), 0)
                first = piece.place.start * n_each
                device.launch_each(add_scaled, flat.size, 0, flat, n, weight, int(k == 0), n_all, first, mean)
            if call.variant.shifted:
                self._add_templates(sky, weight, time, freq)
        if not call.variant.shifted:
            self._add_templates(sky, 1.0, Node(1.0, 0.0), Node(1.0, 0.0))
        return mean

    def _add_templates(self, sky: SentSources, weight: float, time: Node, freq: Node) -> None:
        """Add templates at a node to the mean."""
        fixed, call, n_template = self._fixed, sky.call, len(self._fixed.template)
        if not n_template:
            return
        seen = call.terms is not None
        place = tuple(feeds_of(fixed.matrix)[1]) if seen else tuple(range(self._shape[2]))
        mean = self._workspace.array("mean", (call.n_batch, *self._shape), call.variant.complex)
        add = kernels.make_add_templates(n_template, place, call.variant.shifted, seen)
        n = call.n_batch * self._shape[0] * self._shape[1]
        rows = typed(self._seen(call, sky.given))
        device.launch_each(
            add, n, 0, weight, time.offset, freq.offset, self._pole, rows, self._loaded.template,
            sky.given.template, mean,
        )  # fmt: skip

    def _seen(self, call: CudaCall, given: Parameters) -> kernels.Seen:
        """Rows of the templates."""
        if self._of_rows is None:
            fixed, interval = self._fixed, self._average.smearing.interval
            tables = fixed.time_index, fixed.antenna1, fixed.antenna2, fixed.uvw, interval
            time, first, second, uvw, seconds = (device.upload(table) for table in tables)
            self._of_rows = time, first, second, uvw, seconds
        return kernels.Seen(*self._of_rows, *self._freq, call.jones(given), *call.jones_shape)

    @property
    def _loaded(self) -> _SmearedData:
        """Data on the device; sent anew unless they stay."""
        if self._rows is None:
            fixed = self._fixed
            vis, weight = (np.broadcast_to(x, self._shape).ravel() for x in (fixed.vis, fixed.weight))
            self._rows = _SmearedData(*(device.upload(x) for x in (vis, weight, fixed.template)))
        return self._rows

    def _misfit(
        self, sky: SentSources, t: NDArray[np.float64] | None, vis: NDArray[np.complexfloating] | None
    ) -> NDArray[np.float64]:
        """chi2, and the sum of y / (1 + y), (2, n_batch); the residual takes the place of the mean."""
        mean, n_batch = self._mean(sky), sky.call.n_batch
        rows = self._loaded
        if vis is not None:
            rows = rows._replace(vis=device.upload(vis.ravel().astype(mean.dtype)))
        n_thread = device.threads_per_block()
        n_block = max(1, min(_SHARES, -(-rows.vis.size // n_thread)))
        sums = self._workspace.array("shares", (2 * n_batch, n_block), np.float64)
        out = self._workspace.array("misfit", (2 * n_batch,), np.float64)
        (tail,) = self._workspace.fill("tail", [np.ones(n_batch) if t is None else 1.0 / t])
        kernels.make_residuals(t is not None)[(n_block, n_batch), n_thread, 0](
            mean, rows.vis, rows.weight, tail, sums
        )
        reductions.make_batch_sums(n_thread)[2 * n_batch, n_thread, 0](sums, out)
        found: NDArray[np.float64] = out.copy_to_host().reshape(n_batch, 2).T
        self._release()
        return found

    def _release(self) -> None:
        """Give data back that do not stay."""
        if not self._shared.is_resident:
            self._rows = None

    # ---- derivatives

    def _pulled(
        self, sources: Sources, t: NDArray[np.float64] | None, vis: NDArray[np.complexfloating] | None
    ) -> Adjoint:
        """chi2 and its derivatives for a batch of one."""
        sky = self._sky(sources)
        (chi2,), (of_dof,) = self._misfit(sky, t, vis)
        call = self._with_residual(self._call(sources, for_adjoint=True))
        columns, sums = self._columns(call), self._adjoint_sums(call)
        of_kinds = sums.sums(self._workspace, 1)
        pieces = self._pieces_of(call, sums.record_bytes)
        total: DeviceArray = None
        for weight, _, _ in self._nodes(call.layout):
            for piece, arrays in self._arrays(sky._replace(call=call), pieces, columns):
                sums.launch(self._workspace, piece, arrays._replace(sum_out=of_kinds))
            answer = sums.answer(self._workspace, sky.given, call.layout.chan_freq, 0)
            n, begins = answer.size, int(total is None)
            total = self._workspace.array("mean answer", (n,), np.float64)
            device.launch_each(kernels.make_add_scaled(), n, 0, answer, n, weight, begins, n, 0, total)
        self._release()
        found = sums.adjoint(total.copy_to_host(), 1)
        return finished(
            found, float(chi2), None if t is None else 2.0 * float(of_dof), len(self._fixed.template)
        )

    def _columns(self, call: CudaCall) -> DataColumns:
        """The residual of the last `_misfit`, weights and templates, laid out."""
        residual = self._workspace.array("mean", self._shape, call.variant.complex)
        weight = self._loaded.weight.reshape(*self._shape)
        return self._laid_out(call, residual, weight, self._loaded.template)
