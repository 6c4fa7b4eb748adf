"""The engine of `Rime` on the CPU: holds the data, divides batch and rows into tasks, runs the loops."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, joined
from rime_kernels.arrays import Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.choices import GaussianFrame
from rime_kernels.cpu.antennas import LaneTerms, back_map, places, terms_of
from rime_kernels.cpu.brightness import NO_BEAM, make_spectra
from rime_kernels.cpu.correlations import Correlations, correlations
from rime_kernels.cpu.forward import make_visibilities
from rime_kernels.cpu.gradient import adjoint_of, make_gradients, make_parts, n_places
from rime_kernels.cpu.jones.spline import BeamLanes, CpuBeams, beams_of
from rime_kernels.cpu.lanes import Lanes, Nodes, aligned, make_lanes, one_node, with_data
from rime_kernels.cpu.profiles import functions_of
from rime_kernels.cpu.simd import n_lanes
from rime_kernels.engine import Visibilities
from rime_kernels.engine.call_memo import memoised_within_call
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Inputs, Output, Variant, beam_codes, inputs, registered_profiles
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics.feeds import feeds_of

# Bytes of spectral factors and partial sums that one pass over a part of the batch may take.
MEMORY_BUDGET = 256 << 20
# Source-visibilities, counted in vectors, that make a task worth its overhead.
_TASK_WORK = 20000
_MAX_TASKS = 256
# So many tasks keep all threads busy: slots are divided only where there are fewer, and into parts of at
# least so many entries per antenna, because each part computes the antenna terms again.
_MANY_TASKS = 64
_TERM_SHARE = 12
_SUMS = (Output.CHI2, Output.LOG)
_variant = functools.lru_cache(maxsize=64)(Variant)


class CpuEngine:
    """The engine on the CPU: see the protocol `rime_kernels.engine.Engine`."""

    def __init__(
        self,
        fixed: Constants,
        table: RowTable,
        *,
        single: bool,
        factored: bool,
        frame: GaussianFrame,
        memory_limit: int | None = None,
        folder: str | None = None,
    ) -> None:
        self._single, self._factored = single, factored
        self._frame, self._memory_limit, self._template_lm = frame, memory_limit, fixed.template_lm
        self._inputs_key = frame, fixed.template_lm.tobytes()
        real = np.float32 if single else np.float64
        self._shape = fixed.uvw.shape[0], fixed.chan_freq.size, fixed.matrix.shape[0]
        self._n_antenna = fixed.antenna_uvw.shape[1]
        lanes = make_lanes(fixed, n_lanes(real), factored, folder)
        self._take_lanes(lanes, fixed.chan_freq)
        # Lanes beyond the last channel or time are computed and thrown away.
        self._use = np.prod(self._shape[:2]) / (len(lanes.row) * lanes.chan.size)
        self._tasks: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._matrix = fixed.matrix
        self._correlations = {k: correlations(fixed.matrix[:, :k], real) for k in (1, 4)}
        self._transposed = {k: correlations(fixed.matrix[:, :k].conj().T, real) for k in (1, 4)}

    @property
    def lanes(self) -> Lanes:
        """Rows and data as vectors."""
        return self._lanes

    def at_node(self, lanes: Lanes, chan_freq: NDArray[np.float64]) -> CpuEngine:
        """An engine at other coordinates and frequencies that shares the data of this one."""
        # A shallow copy: data and maps of correlations are those of this engine, in one piece of memory.
        other = copy.copy(self)
        other._take_lanes(lanes, chan_freq)
        return other

    def _take_lanes(self, lanes: Lanes, chan_freq: NDArray[np.float64]) -> None:
        self._lanes, self._beam_lanes = lanes, BeamLanes(lanes, np.float32 if self._single else np.float64)
        self._take_nodes(one_node(lanes), [chan_freq])

    def _take_nodes(self, nodes: Nodes, chan_freqs: list[NDArray[np.float64]]) -> None:
        self._nodes, self._chan_freqs = nodes, chan_freqs
        # nu/c of all nodes, (n_freq n_block, n)
        self._scale = nodes.scale.reshape(-1, self._lanes.scale.shape[1])
        self._scale_key = self._scale.shape, self._scale.tobytes()

    def smeared(self, nodes: Nodes, chan_freqs: list[NDArray[np.float64]]) -> CpuEngine:
        """An engine whose V is the mean over nodes; it has no use for what is computed `by_node`."""
        other = copy.copy(self)
        other._take_nodes(nodes, chan_freqs)
        return other

    @staticmethod
    def by_node(sources: Sources) -> bool:
        """Whether the loops compute V at one node only: with Jones beams, and templates that move."""
        return isinstance(sources.beam, JonesBeam) or sources.template_shift is not None

    def run(
        self, sources: Sources, output: Output, scaled_dof: NDArray[np.float64] | None = None
    ) -> Visibilities:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr); or chi2 (n_batch,)."""
        shared_beam, parameters, variant = self._parameters(sources, scaled_dof)
        n_batch, n_source = parameters.direction.shape[:2]
        tasks = self._tasks_of(n_source)
        jones = self._jones(sources, variant)
        step = self._batch_step(variant, n_source, n_batch, len(tasks))
        # Each part of the batch writes to its own entries: nothing is joined afterwards.
        shape = (n_batch,) if output in _SUMS else (n_batch, *self._shape)
        kind = np.float64 if output in (*_SUMS, Output.WEIGHTED) else variant.complex
        result: Visibilities = np.empty(shape, kind)
        beams = None
        if isinstance(sources.beam, JonesBeam):
            beams = beams_of(self._matrix, sources, n_source, self._beam_lanes)
        for start in range(0, n_batch, step):
            part = parameters.batch(start, start + step) if step < n_batch else parameters
            terms = None if jones is None else jones.batch(start, start + step)
            into = result[start : start + step]
            self._run_part(part, beams, shared_beam, variant, terms, output, tasks, into)
        return result

    def _jones(self, sources: Sources, variant: Variant) -> LaneTerms | None:
        """The matrices of the antennas, and how X follows from the sums; None without any."""
        if sources.antenna_terms is None:
            return None
        full, place = feeds_of(self._matrix)
        # Sums through beams of Jones matrices are products of feeds already.
        of_sums = np.eye(4, dtype=complex) if isinstance(sources.beam, JonesBeam) else full
        matrix = of_sums[:, : variant.n_stokes]
        return terms_of(sources.antenna_terms, matrix, place, self._lanes, variant.real)

    def _maps(
        self, beams: CpuBeams | None, jones: LaneTerms | None, variant: Variant
    ) -> tuple[Correlations, Correlations]:
        """The maps from sums (or V) to correlations, and from weighted residuals to Stokes parameters.

        Sums through `beams`, and what their gradient begins with, are products of feeds.
        """
        if beams is not None:
            if jones is None:
                return self._of_feeds
            return self._of_feeds[0], correlations(np.eye(4, dtype=complex), variant.real)
        if jones is None:
            return self._correlations[variant.n_stokes], self._transposed[variant.n_stokes]
        return self._of_feeds[0], back_map(self._matrix, variant.n_stokes, variant.real)

    @functools.cached_property
    def _of_feeds(self) -> tuple[Correlations, Correlations]:
        """The map from products of feeds to correlations, and its transpose."""
        select = np.eye(4, dtype=complex)[list(feeds_of(self._matrix)[1])]
        real = np.float32 if self._single else np.float64
        return correlations(select, real), correlations(select.T, real)

    def _parameters(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> tuple[int, Inputs, Variant]:
        """The code of the beam that all antennas share, the parameters and the variant of a call."""
        shared_beam, beam = beam_codes(sources)
        parameters = memoised_within_call(
            "inputs",
            (sources, scaled_dof),
            functools.partial(inputs, sources, self._frame, self._template_lm, scaled_dof),
            self._inputs_key,
        )
        # The beam is in the antennas' voltages only where pointing errors are of antennas.
        if parameters.pointing.shape[2] != self._n_antenna:  # a sky without sources has no beam either
            beam = NO_BEAM
        shifted = sources.template_shift is not None
        variant = _variant(
            self._single, self._factored, beam, _is_polarised(sources), shifted, scaled_dof is not None,
            None if sources.profile is None else registered_profiles(sources),
        )  # fmt: skip
        return shared_beam, parameters, variant

    def start_chi2(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> Callable[[], NDArray[np.float64]]:
        """Compute chi2, or the sum of logarithms, (n_batch,), at once; gives a function that returns it."""
        chi2 = self.run(sources, Output.CHI2 if scaled_dof is None else Output.LOG, scaled_dof)
        return lambda: chi2

    def start_adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None = None,
    ) -> Callable[[], Adjoint]:
        """Compute chi2 and its derivatives with respect to the inputs of the loops, at once.

        `vis` replaces the data. Gives a function that returns them.
        """
        lanes = self._lanes if vis is None else with_data(self._lanes, vis)
        output = Output.CHI2 if scaled_dof is None else Output.LOG
        found = self._adjoint(sources, scaled_dof, lanes, output)
        return lambda: found

    def laid_out(self, residual: NDArray[np.complexfloating]) -> NDArray[np.floating]:
        """A residual V - D (n_row, n_chan, n_corr) in the order of the lanes, in the place of the data."""
        return with_data(self._lanes, residual).data

    def pulled(self, sources: Sources, laid_out: NDArray[np.floating]) -> Adjoint:
        """Derivatives as of chi2 where V - D is this residual; what stands for chi2 is no number of use."""
        return self._adjoint(sources, None, self._lanes._replace(data=laid_out), Output.GIVEN)

    def _adjoint(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None, lanes: Lanes, output: Output
    ) -> Adjoint:
        shared_beam, parameters, variant = self._parameters(sources, scaled_dof)
        n_batch, n_source = parameters.direction.shape[:2]
        tasks = self._tasks_of(n_source, len(self._chan_freqs))
        jones = self._jones(sources, variant)
        n_jones = 0 if jones is None else places(jones, tasks)[1] * jones.jones.shape[2] * 8
        n_place = n_places(tasks, parameters.stokes.shape[1]) * len(self._chan_freqs)
        step = self._batch_step(variant, n_source, n_batch, len(self._tasks_of(n_source)), n_place, n_jones)
        # An empty batch runs once, too, so that the result has its shapes.
        parts = []
        for start in range(0, max(1, n_batch), step):
            part = parameters.batch(start, start + step) if step < n_batch else parameters
            of_part = sources.entries(start, start + step) if step < n_batch else sources
            terms = None if jones is None else jones.batch(start, start + step)
            parts.append(
                self._adjoint_of_part(part, of_part, shared_beam, variant, terms, output, tasks, lanes)
            )
        return joined(parts)

    def cache_model(self, sources: Sources, cells: RowCells) -> None:
        """There is no device where visibilities could stay."""

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is computed, in words."""
        variant = Variant(self._single, self._factored, beam_codes(sources)[1], _is_polarised(sources))
        n_source = max(1, sources.n_source)
        n_task, lanes = len(self._tasks_of(n_source)), self._lanes
        step = self._batch_step(variant, n_source, sources.n_batch, n_task)
        return (
            f"{lanes.chan.shape[1]} lanes along {lanes.axis}, {100 * self._use:.0f} % of them used; "
            f"batch of {sources.n_batch} in steps of {step}, {n_task} tasks each"
        )

    def _batch_step(
        self, variant: Variant, n_source: int, n_batch: int, n_task: int, n_place: int = 0, n_jones: int = 0
    ) -> int:
        """Entries of the batch in one pass.

        Their n_task tasks sum brightnesses in `n_place` places, and each lane `n_jones` numbers for antennas.
        """
        n_bright = variant.n_stokes * n_source * (self._scale.size + n_place * self._lanes.chan.shape[1])
        n_jones *= self._lanes.chan.shape[1]
        bytes_each = 8 * (n_bright + n_jones + n_task)
        # The limit of a user may only lower the budget.
        budget = MEMORY_BUDGET if self._memory_limit is None else min(MEMORY_BUDGET, self._memory_limit)
        return max(1, min(n_batch, budget // bytes_each))

    def _tasks_of(self, n_source: int, n_freq: int = 1) -> NDArray[np.int64]:
        """Tasks; fewer where each has sums of its own for n_freq nodes of frequency."""
        n_term = n_source * self._nodes.weight.size
        if (n_term, n_freq) not in self._tasks:
            self._tasks[n_term, n_freq] = make_tasks(self._lanes, n_term, _MAX_TASKS // n_freq)
        return self._tasks[n_term, n_freq]

    def _run_part(
        self, inputs: Inputs, beams: CpuBeams | None, shared_beam: int, variant: Variant,
        jones: LaneTerms | None,
        output: Output,
        tasks: NDArray[np.int64], result: Visibilities,
    ) -> None:  # fmt: skip
        n_batch, spectra = len(inputs.direction), self._spectra(inputs, shared_beam, variant)
        none = (n_batch, 0, 0, 0)
        vis_out, real_out = np.empty(none, variant.real), np.empty(none)
        if output is Output.WEIGHTED:
            real_out = result
        elif output not in _SUMS:
            vis_out = result.view(variant.real)
        # One number a task, whichever thread takes it: the order of the sum does not depend on threads.
        partial = np.empty((n_batch, len(tasks)))
        make_visibilities(variant.single, variant.n_stokes)(
            variant.factored, variant.shifted, variant.beam, int(output), tasks, self._lanes, self._nodes,
            inputs, beams, spectra, self._maps(beams, jones, variant)[0], jones, vis_out, real_out, partial,
            functions_of(variant.profiles),
        )  # fmt: skip
        if output in _SUMS:
            # NumPy sums each row by itself, in an order that depends on its length alone.
            np.add.reduce(partial, axis=1, out=result)

    def _spectra(self, inputs: Inputs, shared_beam: int, variant: Variant) -> NDArray[np.floating]:
        n_batch, n_source = inputs.direction.shape[:2]
        n_block, n_lane = self._scale.shape
        turned = variant.polarised and inputs.faraday.shape[1:] == (n_source, 4)
        n_row = variant.n_stokes + 2 * turned

        def make() -> NDArray[np.floating]:
            spectra = aligned((n_batch, n_block, n_source, n_row, n_lane), variant.real)
            make_spectra(variant.single)(shared_beam, inputs, self._scale, spectra)
            return spectra

        given = shared_beam, variant, self._scale_key
        # Engines with the same inputs and channels share spectra within one call.
        return memoised_within_call("spectra", (inputs,), make, given)

    def _adjoint_of_part(
        self, inputs: Inputs, sources: Sources, shared_beam: int, variant: Variant, jones: LaneTerms | None,
        output: Output, tasks: NDArray[np.int64], lanes: Lanes,
    ) -> Adjoint:  # fmt: skip
        spectra = self._spectra(inputs, shared_beam, variant)
        parts = make_parts(tasks, lanes, inputs, jones, variant.n_stokes, len(self._chan_freqs))
        none = (len(spectra), 0, 0, 0)
        beams = beams_of(self._matrix, sources, inputs.direction.shape[1], self._beam_lanes)
        make_gradients(variant.single, variant.n_stokes, lanes.uvw.shape[2])(
            variant.factored, variant.shifted, variant.beam, int(output), tasks, lanes, self._nodes, inputs,
            beams, spectra, *self._maps(beams, jones, variant), jones, np.empty(none, variant.real),
            np.empty(none), parts, functions_of(variant.profiles),
        )  # fmt: skip
        return adjoint_of(parts, tasks, lanes, inputs, sources, self._chan_freqs, jones)


def _is_polarised(sources: Sources) -> bool:
    """Whether loops have four Stokes parameters: Jones matrices make them of I alone."""
    return sources.polarised or isinstance(sources.beam, JonesBeam)


def make_tasks(lanes: Lanes, n_source: int, most: int = _MAX_TASKS) -> NDArray[np.int64]:
    """Divide the work into tasks: some slots, or some entries of one slot, in one block of channels.

    Tasks depend on the problem only, not on the number of threads or the batch; so does the order of sums.

    Returns
    -------
    int64 (n_task, 5)
        Block, first slot, one past the last, first entry, one past the last.
    """
    n_block, n_slot, n_entry = len(lanes.scale), len(lanes.slot_time), len(lanes.row)
    wanted = min(most, max(1, n_block * n_entry * (n_source + 10) // _TASK_WORK))
    per_block = -(-wanted // n_block)
    if per_block <= n_slot or n_block * n_slot >= _MANY_TASKS:
        bounds = np.linspace(0, n_slot, min(per_block, n_slot) + 1).astype(np.int64)
        cuts = [(a, z, 0, n_entry) for a, z in pairwise(bounds)]
    else:
        least = max(2, _TERM_SHARE * lanes.antenna_uvw.shape[1])
        cuts = [
            (slot, slot + 1, first, stop)
            for slot, (start, end) in enumerate(pairwise(lanes.slot_entry))
            for first, stop in _cut(int(start), int(end), min(per_block // n_slot, int(end - start) // least))
        ]
    tasks = [(block, *cut) for block in range(n_block) for cut in cuts]
    return np.array(tasks, dtype=np.int64).reshape(-1, 5)


def _cut(start: int, end: int, n_part: int) -> list[tuple[int, int]]:
    """Divide start .. end - 1 into parts of even length (except the last): loops take pairs of entries."""
    n_pair = -(-(end - start) // 2)
    bounds = np.linspace(0, n_pair, max(1, n_part) + 1).astype(np.int64) * 2 + start
    return [(int(a), min(int(z), end)) for a, z in pairwise(bounds)]
