"""The GPU's engine of `Rime`: arrays that stay there, and what each call sends, launches and fetches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.adjoint import Adjoint, joined
from rime_kernels.arrays import Sources
from rime_kernels.choices import GaussianFrame
from rime_kernels.compile.types import DeviceArray, Record, Stream
from rime_kernels.cuda import jones
from rime_kernels.cuda.adjoint_launch import adjoint_launcher
from rime_kernels.cuda.adjoint_sums import AdjointSums
from rime_kernels.cuda.antenna_sums import AntennaSums, blocks_of
from rime_kernels.cuda.graphs import Capturable, CudaGraphs, OnceCalled
from rime_kernels.cuda.kernels import brightness, reductions
from rime_kernels.cuda.kernels.arguments import DataColumns
from rime_kernels.cuda.layouts.choice import Layouts
from rime_kernels.cuda.layouts.data import Data, DataByLayout, cut
from rime_kernels.cuda.layouts.launch import Arrays, Layout, Slab
from rime_kernels.cuda.resident_terms import ResidentTerms, is_device_resident
from rime_kernels.cuda.staging import CudaCall, ParameterStaging, n_times
from rime_kernels.cuda.templates import add_templates
from rime_kernels.errors import BackendError
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import (
    Constants,
    Output,
    Parameters,
    Variant,
    beam_codes,
    in_files,
    in_time_order,
    parameters,
    registered_profiles,
)
from rime_kernels.physics.beam import NO_BEAM

log = logging.getLogger(__name__)

# The share of the memory that data may take; brightness, sums and visibilities share the rest.
_DATA_SHARE = 0.75
# Pieces of the data that a recording may have.
_MOST_PIECES = 128
# Kinds of call whose sums of derivatives are remembered.
_MAX_ADJOINT = 64

T = TypeVar("T")
Chi2 = Callable[[], NDArray[np.float64]]


class CudaEngine:
    """The device's side of `Rime`: keeps the data there, cuts batch and rows to the memory budget."""

    def __init__(
        self,
        fixed: Constants,
        table: RowTable,
        *,
        single: bool,
        factored: bool,
        frame: GaussianFrame,
        memory_limit: int | None,
        folder: str | None = None,
    ) -> None:
        self._fixed = in_files(in_time_order(fixed), folder)
        self._single, self._factored = single, factored
        # Asked for once: to ask takes longer than a small problem.
        memory = device.memory_budget() if memory_limit is None else memory_limit
        self.data = DataByLayout(int(_DATA_SHARE * memory), pinned=folder is None)
        self.work_budget = memory - self.data.budget
        self._layouts = Layouts(self._fixed, table)
        self._workspace = device.Workspace()
        self._staging = ParameterStaging(self._workspace, tangent=frame == "tangent")
        self.adjoint_sums: dict[Any, AdjointSums] = {}
        self._resident_terms = ResidentTerms()
        self._streams = device.streams(2)
        self._graphs = CudaGraphs(self._workspace)
        self._begun: OnceCalled[Any] = OnceCalled(lambda: None)
        self._beams = jones.DeviceBeams(single)

    def run(self, sources: Sources, output: Output) -> NDArray[Any]:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr); or chi2 (n_batch,)."""
        if output is Output.CHI2:
            return self.start_chi2(sources)()
        call = self._retry_with_less_memory(lambda: self._call(sources))
        vis = self._retry_with_less_memory(lambda: self._predict(call))
        add_templates(vis, self._fixed, call.given.template, sources.antenna_terms)
        if output is Output.VIS:
            return vis
        vis[:, self._fixed.order] -= self._fixed.vis
        if output is Output.RESIDUAL:
            return vis
        weight = np.empty(vis.shape[1:])
        weight[self._fixed.order] = self._fixed.weight
        return weight * (vis.real.astype(np.float64) ** 2 + vis.imag.astype(np.float64) ** 2)

    def start_chi2(self, sources: Sources, scaled_dof: NDArray[np.float64] | None = None) -> Chi2:
        """Begin to work out chi2, or the sum of logarithms, (n_batch,); the function returned waits for it.

        The second call of a kind (same shapes) is captured as a CUDA graph,
        which later calls launch: one step
        instead of many.
        """
        found = self.launch_graph("chi2", sources, scaled_dof)
        if found is None:
            self._begun = found = OnceCalled(self._new_chi2(sources, scaled_dof))
        return found

    def launch_graph(
        self, what: Literal["chi2", "adjoint"], sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> Callable[[], Any] | None:
        """Launch the CUDA graph of such calls; None where none has been captured. See
        `local_shards.GraphEngine`.

        Nothing is uploaded but what the graph itself uploads: another thread may be capturing a call.
        """
        self._begun.settle()  # calls share their arrays: one that nobody has waited for is waited for
        terms = sources.antenna_terms
        if not self._beams.has(jones.beam_of(sources)):
            return None
        if terms is not None and is_device_resident(terms) and not self._resident_terms.has(terms):
            return None
        given, key = self._kind(what, sources, scaled_dof)
        graph = self._graphs.get(key)
        if graph is None:
            return None
        self._begun = found = OnceCalled(graph.launch(given))
        return found

    def _new_chi2(self, sources: Sources, scaled_dof: NDArray[np.float64] | None) -> Chi2:
        """Begin chi2 of a call that has no CUDA graph yet; the second call of a kind is captured."""
        if not sources.n_batch:
            return lambda: np.empty(0)
        _, key = self._kind("chi2", sources, scaled_dof)
        call = self._retry_with_less_memory(lambda: self._call(sources, scaled_dof))
        graph = self._graph_of(key, call, self._capturable_chi2)
        if graph is not None:
            return graph.launch(call.given)
        chi2 = self._retry_with_less_memory(lambda: self._chi2(call))
        return lambda: chi2

    def start_adjoint(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None = None, vis: NDArray[Any] | None = None
    ) -> Callable[[], Adjoint]:
        """Begin to work out chi2 and its derivatives with respect to what the kernels read.

        With `vis` in place of the data. The call is captured as that of chi2 is, but not with other data; the
        function returned waits.
        """
        if vis is None:
            launched = self.launch_graph("adjoint", sources, scaled_dof)
            if launched is not None:
                return launched
            _, key = self._kind("adjoint", sources, scaled_dof)
            start = self._new_adjoint(sources, scaled_dof, key)
        else:
            self._begun.settle()
            start = self._with_data(vis, lambda: self._new_adjoint(sources, scaled_dof, None))
        self._begun = found = OnceCalled(start)
        return found

    def _new_adjoint(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None, key: Any
    ) -> Callable[[], Adjoint]:
        """Begin chi2 and its derivatives without a CUDA graph; one is captured under
        `key`, or none for None.
        """
        call = self._retry_with_less_memory(lambda: self._call(sources, scaled_dof, for_adjoint=True))
        if not call.n_batch:
            nothing = self._adjoint_sums(call).nothing()
            return lambda: nothing
        graph = None if key is None else self._graph_of(key, call, self._capturable_adjoint)
        if graph is not None:
            return graph.launch(call.given)
        found = self._retry_with_less_memory(lambda: self._adjoint(call))
        return lambda: found

    def _given(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> tuple[Parameters, DeviceArray]:
        """The parameters of a call, and the matrices of antennas that stay on the device, or None."""
        terms = sources.antenna_terms
        if terms is None or not is_device_resident(terms):
            return parameters(sources, self._fixed.template_lm, scaled_dof), None
        given = parameters(sources, self._fixed.template_lm, scaled_dof, with_jones=False)
        resident, is_other = self._retry_with_less_memory(lambda: self._resident_terms.of(terms))
        if is_other:
            self._graphs.clear()  # of matrices that are no longer there
        return given, resident

    def _kind(
        self, what: str, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> tuple[Parameters, tuple[Any, ...]]:
        """The parameters of a call, and what calls that share a CUDA graph have in common.

        Worked out for every call: what most models do not have is passed over soon.
        """
        beam = profiles = None
        if sources.beam is not None:
            self._retry_with_less_memory(lambda: self._load_beam(sources))
            beam = *_beam_codes(sources), jones.beam_of(sources) is not None
        if sources.profile is not None:
            profiles = sources.n_profile, registered_profiles(sources)
        given, _ = self._given(sources, scaled_dof)
        return given, (
            what, sources.polarised, scaled_dof is None, sources.given_arrays, sources.shape.shape[1],
            sources.varied, beam, profiles, blocks_of(sources.antenna_terms),
            *[value.shape for value in given],
        )  # fmt: skip

    def _graph_of(
        self, key: Any, call: CudaCall, capturable: Callable[[CudaCall], Capturable | None]
    ) -> device.CudaGraph | None:
        """The CUDA graph of such calls, where it is time to capture one and `capturable` can do them."""
        work = self._retry_with_less_memory(lambda: capturable(call))
        return self._graphs.make(key, call.given, work) if work else None

    def _capturable_chi2(self, call: CudaCall) -> Capturable | None:
        """chi2 of a batch that is worked out together; None where it takes steps, or too many pieces."""
        data = self._data_of(call.layout)
        pieces = self._pieces(call, data)
        if self._chi2_step(call, pieces) < call.n_batch:
            return None
        if len(pieces) > (_MOST_PIECES if data.pinned else 1):
            return None

        def launch(arrays: list[DeviceArray], stream: Stream) -> DeviceArray:
            return self._launch_chi2(call, Parameters(*arrays), data, pieces, self._streams, stream)

        return Capturable(launch, lambda chi2: chi2, not data.resident)

    def _capturable_adjoint(self, call: CudaCall) -> Capturable | None:
        """chi2 and its derivatives of a batch that is worked out together; None where it takes steps."""
        data, sums = self._data_of(call.layout), self._adjoint_sums(call)
        pieces = self._pieces(call, data, sums.record_bytes)
        if len(pieces) > (_MOST_PIECES if data.resident else 1):
            return None
        if self._adjoint_step(call, pieces) < call.n_batch:
            return None

        def launch(arrays: list[DeviceArray], stream: Stream) -> DeviceArray:
            return self.launch_adjoint(call, Parameters(*arrays), data, pieces, self._streams[:1], stream)

        return Capturable(launch, lambda answer: sums.adjoint(answer, call.n_batch), not data.resident)

    def _with_data(self, vis: NDArray[Any], work: Callable[[], T]) -> T:
        """Do it with other data (n_row, n_chan, n_corr) on the device; the next call brings its own back."""
        fixed = self._fixed
        in_order = np.ascontiguousarray(vis[fixed.order], dtype=fixed.vis.dtype)
        self._fixed = fixed._replace(vis=in_order)
        self.data.clear()
        try:
            return work()
        finally:
            self._fixed = fixed
            self.data.clear()
            self._graphs.clear()  # of data that are no longer there

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is worked out, in words."""
        call = self._call(sources)
        data = self._retry_with_less_memory(lambda: self._data_of(call.layout))
        pieces = self._pieces(call, data)
        step, n_piece = self._chi2_step(call, pieces), len(pieces)
        where = "on the device" if data.resident else f"streamed in {len(data.slabs)} slabs"
        return (
            f"{call.layout}; {data.n_byte / 1e6:.3g} MB of data {where}; "
            f"batch of {call.n_batch} in steps of {step}, {n_piece} launches each"
        )

    def _call(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None = None, *, for_adjoint: bool = False
    ) -> CudaCall:
        shared_beam, beam = _beam_codes(sources)
        shifted, is_log = sources.template_shift is not None, scaled_dof is not None
        matrices, terms = jones.beam_of(sources), sources.antenna_terms
        has_matrices = matrices is not None
        factored = self._factored and not jones.by_rows(sources, for_adjoint=for_adjoint)
        variant = Variant(
            self._single, factored, beam, sources.polarised or has_matrices, shifted, is_log,
            registered_profiles(sources), terms is not None, terms is not None and terms.stays_diagonal,
            has_matrices, matrices is not None and matrices.turn is not None,
        )  # fmt: skip
        layout = self._layouts.of(variant, sources, for_adjoint=for_adjoint)
        given, resident = self._given(sources, scaled_dof)
        n_shape, n_profile, spectrum = sources.n_shape, sources.n_profile, _spectrum(sources)
        beams = self._load_beam(sources)
        return CudaCall(
            given, shared_beam, variant, layout, n_shape, spectrum, n_profile, terms, resident, beams,
            sources.varied_range,
        )  # fmt: skip

    def _load_beam(self, sources: Sources) -> Record:
        """The sources' `JonesBeam` on the device, or None; graphs do not outlive another one."""
        beams, is_new = self._beams.load(jones.beam_of(sources))
        if is_new:
            self._graphs.clear()
        return beams

    def _data_of(self, layout: Layout) -> Data:
        """Data laid out for this kernel; those of others make room where there is none."""
        data, others_went = self.data.of(self._fixed, layout)
        if others_went:
            self._graphs.clear()
        return data

    def _retry_with_less_memory(self, work: Callable[[], T]) -> T:
        """Do it with ever smaller budgets, for good, until the device has room."""
        while True:
            try:
                return work()
            except device.DeviceMemoryError as error:
                self._workspace.clear()
                self._graphs.clear()
                self.data.limit(self.data.budget // 2)  # laid out anew, in smaller slabs
                self.work_budget //= 2
                if self.work_budget < 1:
                    raise BackendError(f"{error}, and the work cannot be cut smaller") from error
                rest = (self.data.budget + self.work_budget) / 1e6
                log.warning("%s: going on in smaller steps, with %.3g MB of it", error, rest)

    def _bright_bytes(self, call: CudaCall) -> int:
        """Brightness of one entry of the batch at one time."""
        itemsize = np.dtype(call.variant.real).itemsize
        return itemsize * call.variant.n_stokes * call.layout.n_chan * call.n_source

    def _pieces(
        self, call: CudaCall, data: Data, more: Callable[[Slab], int] | None = None
    ) -> list[tuple[int, Slab]]:
        """Slabs of the data, cut further where brightness per time is large; with the number of the slab.

        `more` are bytes that an entry of the batch needs besides. Rather more pieces than steps: all pieces
        of one step can be recorded.
        """
        slabs = enumerate(data.slabs)
        if not call.per_time and more is None:
            return list(slabs)
        per_time, limit = (
            2 * self._bright_bytes(call) * call.per_time,
            self.work_budget // max(1, call.n_batch),
        )

        def size(piece: Slab) -> int:
            return per_time * n_times(piece) + (2 * more(piece) if more else 0)

        return [(i, piece) for i, slab in slabs for piece in cut(call.layout, slab.unit, size, limit)]

    def _chi2_step(self, call: CudaCall, pieces: list[tuple[int, Slab]]) -> int:
        """Entries of the batch that are worked out together."""
        return self._step(call, pieces, 8 * call.layout.n_sum, lambda piece: 0, call.layout.max_batch)

    def _step(
        self, call: CudaCall, pieces: list[tuple[int, Slab]], n_byte: int, more: Callable[[Slab], int],
        max_batch: int,
    ) -> int:  # fmt: skip
        """Entries of the batch for one launch, of so many bytes each for sums, and more for each piece."""
        n_time = max(n_times(piece) for _, piece in pieces) if call.per_time else 1
        given = sum(value[:1].nbytes for value in call.given)
        each = n_byte + max(more(piece) for _, piece in pieces)
        each += 2 * n_time * self._bright_bytes(call) + given
        return max(1, min(call.n_batch, self.work_budget // each, max_batch))

    def _chi2(self, call: CudaCall) -> NDArray[np.float64]:
        data = self._data_of(call.layout)
        pieces = self._pieces(call, data)
        step = self._chi2_step(call, pieces)
        result = np.empty(call.n_batch)
        for first in range(0, call.n_batch, step):
            part = call._replace(given=call.given.batch(first, min(first + step, call.n_batch)))
            given = Parameters(*self._workspace.fill("parameters", part.given))
            out = self._launch_chi2(part, given, data, pieces, self._streams)
            result[first : first + step] = out.copy_to_host()
        return result

    def _launch_chi2(
        self, call: CudaCall, given: Parameters, data: Data, pieces: list[tuple[int, Slab]],
        streams: list[Stream], main: Stream = 0,
    ) -> DeviceArray:  # fmt: skip
        """Launch all that chi2 takes; float64 (n_batch,) on the device."""
        n_batch = call.n_batch
        sums = self._workspace.array("sums", (n_batch, call.layout.n_sum), np.float64)
        out = self._workspace.array("chi2", (n_batch,), np.float64)
        for piece, arrays, stream in self._staging.arrays(call, given, data, pieces, streams, main):
            call.layout.launch(piece, True, arrays._replace(sum_out=sums), stream)
        n_thread = device.threads_per_block()
        reductions.make_batch_sums(n_thread)[n_batch, n_thread, main](sums, out)
        return out

    def _adjoint(self, call: CudaCall) -> Adjoint:
        data, sums = self._data_of(call.layout), self._adjoint_sums(call)
        pieces = self._pieces(call, data, sums.record_bytes)
        step = self._adjoint_step(call, pieces)
        parts = []
        for first in range(0, call.n_batch, step):
            part = call._replace(given=call.given.batch(first, min(first + step, call.n_batch)))
            given = Parameters(*self._workspace.fill("parameters", part.given))
            answer = self.launch_adjoint(part, given, data, pieces, self._streams)
            parts.append(sums.adjoint(answer.copy_to_host(), part.n_batch))
        return joined(parts)

    def _adjoint_step(self, call: CudaCall, pieces: list[tuple[int, Slab]]) -> int:
        """Entries of the batch whose derivatives are worked out together."""
        sums = self._adjoint_sums(call)
        return self._step(call, pieces, sums.total_bytes(), sums.record_bytes, sums.max_batch)

    def launch_adjoint(
        self, call: CudaCall, given: Parameters, data: Data, pieces: list[tuple[int, Slab]],
        streams: list[Stream], main: Stream = 0,
    ) -> DeviceArray:  # fmt: skip
        """Launch all that chi2 and its derivatives take; flat, on the device.

        With several streams `main` is the legacy default one, which waits for what each piece leaves on them.
        With one of its own it makes the short sums: where shards are at work at once, their answers come one
        after the other, and are read while the rest are still at work.
        """
        sums = self._adjoint_sums(call)
        of_kinds = sums.sums(self._workspace, call.n_batch)
        for piece, arrays, stream in self._staging.arrays(call, given, data, pieces, streams, main):
            adds = stream if len(streams) == 1 else main
            sums.launch(self._workspace, piece, arrays._replace(sum_out=of_kinds), stream, adds, main)
        return sums.answer(self._workspace, given, call.layout.chan_freq, main)

    def _adjoint_sums(self, call: CudaCall) -> AdjointSums:
        given = call.given
        key = (
            call.layout,
            call.n_gaussian > 0,
            call.n_profile,
            call.shared_beam,
            call.spectrum,
            blocks_of(call.terms),
            *(x.shape[1:] for x in (given.stokes, given.pointing, given.shape, given.spectral_terms)),
        )
        if key not in self.adjoint_sums:
            if len(self.adjoint_sums) >= _MAX_ADJOINT:
                self.adjoint_sums.clear()
            has_gaussian, n_done = call.n_gaussian > 0, call.n_source * call.n_batch
            threads = self._layouts.beside(call.layout, call.variant, n_done) if has_gaussian else None
            launcher = adjoint_launcher(call.layout, has_gaussian, given, threads)
            n_template = len(self._fixed.template)
            antennas = None if call.terms is None else AntennaSums(self._fixed, call.terms, call.layout)
            self.adjoint_sums[key] = AdjointSums(
                launcher, call.variant, call.shared_beam, call.spectrum, given, n_template, call.n_profile,
                antennas,
            )  # fmt: skip
        return self.adjoint_sums[key]

    def _predict(self, call: CudaCall) -> NDArray[Any]:
        """V, (n_batch, n_row, n_chan, n_corr)."""
        n_chan, n_corr, order = self._fixed.chan_freq.size, len(self._fixed.matrix), self._fixed.order
        result = np.empty((call.n_batch, order.size, n_chan, n_corr), call.variant.complex)
        per_row, per_time = n_chan * n_corr * result.itemsize, self._bright_bytes(call) * call.per_time
        pieces = cut(
            call.layout,
            slice(0, call.layout.n_unit),
            lambda piece: per_row * (piece.place.stop - piece.place.start) + per_time * n_times(piece),
            self.work_budget,
        )
        sums = self._workspace.array("no sums", (1, 1), np.float64)
        no_vis = self._workspace.array("no data", (1,), call.variant.complex)
        no_weight = self._workspace.array("no weight", (1,), call.variant.real)
        nothing = DataColumns(no_vis, no_weight, no_vis, 0)
        for b in range(call.n_batch):
            part = call._replace(given=call.given.batch(b, b + 1))
            given = Parameters(*self._workspace.fill("parameters", part.given))
            inputs = self._staging.inputs(part, given, 0)
            for piece in pieces:
                shape = (1, piece.place.stop - piece.place.start, n_chan, n_corr)
                vis = self._workspace.array("vis", shape, call.variant.complex)
                bright = self._staging.brightness(
                    part, given, piece if call.per_time else None, "brightness", 0
                )
                n_time = n_times(piece) if call.per_time else 1
                arrays = Arrays(
                    inputs, call.n_gaussian, bright, n_time, nothing, vis, sums, call.jones(given),
                    call.jones_shape, call.n_profile, call.beams,
                )  # fmt: skip
                call.layout.launch(piece, False, arrays, 0)
                result[b, order[piece.place]] = vis.copy_to_host()[0]
        return result


def _beam_codes(sources: Sources) -> tuple[int, int]:
    """Codes of the beam as `beam_codes` has them; the source of no flux that stands for none has no beam."""
    return beam_codes(sources) if sources.n_source else (NO_BEAM, NO_BEAM)


def _spectrum(sources: Sources) -> brightness.SpectrumKernel:
    """The form of spectra as `SpectrumKernel.of` has it; the source of no flux that stands for none is a
    polynomial.
    """
    return brightness.SpectrumKernel.of(sources) if sources.n_source else brightness.SpectrumKernel()
