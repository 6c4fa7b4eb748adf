"""The engine of a `Rime` whose visibilities are smeared: means over what the CPU's engine computes at nodes.

Rows are worked on in blocks. V of a block is the mean over the nodes; chi2 follows from it. The derivatives
of chi2 are means of those at the nodes, where the weighted residual of the mean takes the place of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, joined
from rime_kernels.arrays import Sources
from rime_kernels.cpu.engine import Engine
from rime_kernels.cpu.lanes import Lanes, copied
from rime_kernels.engine import Visibilities
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Output
from rime_kernels.physics.envelope import GaussianFrame
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.average import Average, Node

# Bytes of the visibilities of one block of rows.
_BLOCK_BYTES = 64 << 20


class _Block(NamedTuple):
    """Some of the rows, and of each node its weight and what computes visibilities there."""

    rows: slice | NDArray[np.int64]
    nodes: list[tuple[float, Engine]]


class SmearedEngine:
    """See `rime_kernels.engine.Engine`.

    Parameters
    ----------
    average : Average
    fixed, table, single, factored, frame, memory_limit
        As for the CPU's engine.
    """

    def __init__(
        self,
        average: Average,
        fixed: Constants,
        table: RowTable,
        *,
        single: bool,
        factored: bool,
        frame: GaussianFrame,
        memory_limit: int | None = None,
    ) -> None:
        self._average, self._fixed, self._factored = average, fixed, factored
        self._n_template = len(fixed.template)
        self._complex = np.complex64 if single else np.complex128
        self._shape = fixed.uvw.shape[0], fixed.chan_freq.size, fixed.matrix.shape[0]
        n_byte = _BLOCK_BYTES if memory_limit is None else min(_BLOCK_BYTES, memory_limit)
        step = max(1, n_byte // (16 * self._shape[1] * self._shape[2]))
        self._blocks = []
        for start in range(0, self._shape[0], step):
            rows = slice(None) if step >= self._shape[0] else table.order[start : start + step]
            engine = Engine(
                _some(fixed, rows), table, single=single, factored=factored, frame=frame,
                memory_limit=memory_limit,
            )  # fmt: skip
            self._blocks.append(_Block(rows, self._nodes(engine, rows)))
        self._batch = max(1, n_byte // (16 * min(step, self._shape[0]) * self._shape[1] * self._shape[2]))

    def run(self, sources: Sources, output: Output) -> Visibilities:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr)."""
        kind = np.float64 if output is Output.WEIGHTED else self._complex
        result: Visibilities = np.empty((sources.n_batch, *self._shape), kind)
        for block in self._blocks:
            for entries, part in self._parts(sources):
                result[entries, block.rows] = self._ending(block, self._mean(block, part), output)
        return result

    def _ending(self, block: _Block, vis: Visibilities, output: Output) -> Visibilities:
        if output is Output.VIS:
            return vis
        vis -= self._fixed.vis[block.rows]
        return vis if output is Output.RESIDUAL else self._squares(block, vis)

    def start_chi2(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> Callable[[], NDArray[np.float64]]:
        """Compute chi2, or the sum of logarithms, (n_batch,), at once; gives a function that returns it."""
        chi2 = np.zeros(sources.n_batch)
        for block in self._blocks:
            for entries, part in self._parts(sources):
                residual = self._ending(block, self._mean(block, part), Output.RESIDUAL)
                t = None if scaled_dof is None else scaled_dof[entries]
                chi2[entries] += self._chi2(block, residual, t)[0]
        return lambda: chi2

    def chi2_and_adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None = None,
    ) -> Adjoint:
        """chi2, and its derivatives with respect to the inputs of the loops; `vis` replaces the data."""
        data = self._fixed.vis if vis is None else vis.reshape(self._shape)
        entries = [
            self._adjoint(
                sources.entries(b, b + 1), data, None if scaled_dof is None else scaled_dof[b : b + 1]
            )
            for b in range(sources.n_batch)
        ]
        if not entries:
            return self._blocks[0].nodes[0][1].chi2_and_adjoint(sources, scaled_dof)
        return joined(entries)

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is computed, in words."""
        _, engine = self._blocks[0].nodes[0]
        return f"{self._average}, in {len(self._blocks)} blocks of rows; {engine.plan(sources)}"

    def _parts(self, sources: Sources) -> Iterator[tuple[slice, Sources]]:
        """As many entries of the batch at a time as memory is for."""
        for start in range(0, sources.n_batch, self._batch):
            entries = slice(start, min(start + self._batch, sources.n_batch))
            yield entries, sources.entries(entries.start, entries.stop)

    def _nodes(self, engine: Engine, rows: slice | NDArray[np.int64]) -> list[tuple[float, Engine]]:
        """`_Block.nodes` from what computes visibilities in the middle."""
        nodes = []
        for time in self._average.times:
            lanes = _turned(engine.lanes, self._average, time, rows, self._factored)
            for freq in self._average.freqs:
                chan_freq = self._average.chan_freq(self._fixed.chan_freq, freq)
                nodes.append((time.weight * freq.weight, engine.at(_tuned(lanes, chan_freq), chan_freq)))
        return nodes

    def _mean(self, block: _Block, sources: Sources) -> Visibilities:
        """V of a block, (n_batch, n_row of the block, n_chan, n_corr)."""
        mean: Visibilities | None = None
        for weight, engine in block.nodes:
            vis = engine.run(sources, Output.VIS)
            vis *= vis.real.dtype.type(weight)
            if mean is None:
                mean = vis
            else:
                mean += vis
        assert mean is not None, "there is a node at least"
        return mean

    def _squares(self, block: _Block, residual: Visibilities) -> NDArray[np.float64]:
        """w |V - D|^2 in float64."""
        weight = np.broadcast_to(self._fixed.weight, self._shape)[block.rows]
        return weight * (residual.real.astype(np.float64) ** 2 + residual.imag.astype(np.float64) ** 2)

    def _chi2(
        self, block: _Block, residual: Visibilities, t: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The sum of squares or of ln(1 + y), (n_batch,); and y = w |V - D|^2 / t, where there is a t."""
        squares = self._squares(block, residual)
        if t is None:
            return squares.sum(axis=(1, 2, 3)), None
        squares /= t[:, None, None, None]
        return np.log1p(squares).sum(axis=(1, 2, 3)), squares

    def _adjoint(
        self, sources: Sources, data: NDArray[np.complexfloating], t: NDArray[np.float64] | None
    ) -> Adjoint:
        """The same for one entry of the batch."""
        total: Adjoint | None = None
        chi2, of_dof = np.zeros(1), 0.0
        for block in self._blocks:
            residual = (self._mean(block, sources) - data[block.rows]).astype(self._complex)
            of_block, y = self._chi2(block, residual, t)
            chi2 += of_block
            if y is not None:
                residual = (residual / (1.0 + y)).astype(self._complex)
                of_dof += 2.0 * float((y / (1.0 + y)).sum())
            total = _sum(total, self._pulled(block, sources, residual[0]))
        assert total is not None, "rows are not empty"
        if t is not None:
            last = np.array([[[of_dof, 0.0, 0.0, 0.0]]])
            kept = total.template[:, : self._n_template]
            total = total._replace(template=np.concatenate([kept, last], axis=1))
        return total._replace(chi2=chi2)

    def _pulled(self, block: _Block, sources: Sources, residual: Visibilities) -> Adjoint:
        """Derivatives of chi2 where the residual of each node is this one, as the mean's weights say."""
        total: Adjoint | None = None
        largest = float(np.abs(residual).max())
        for weight, engine in block.nodes:
            vis = engine.run(sources, Output.VIS)[0]
            # V - D is to be a multiple of the residual as large as V, or the difference would lose digits.
            multiple = float(np.abs(vis).max()) / largest if largest > 0.0 else 1.0
            multiple = multiple if multiple > 0.0 else 1.0
            vis -= vis.real.dtype.type(multiple) * residual
            total = _sum(total, engine.chi2_and_adjoint(sources, None, vis), weight / multiple)
        assert total is not None, "there is a node at least"
        return total


def _sum(total: Adjoint | None, term: Adjoint, factor: float = 1.0) -> Adjoint:
    """total + factor * term."""
    scaled: list[Any] = [None if value is None else factor * value for value in term]  # None of the last only
    if total is not None:
        scaled = [None if b is None else a + b for a, b in zip(total, scaled, strict=True)]
    return Adjoint(*scaled)


def _some(fixed: Constants, rows: slice | NDArray[np.int64]) -> Constants:
    """The constants of some of the rows."""
    n_row = fixed.uvw.shape[0]
    data = [name for name in ("vis", "weight") if getattr(fixed, name).shape[0] == n_row]
    names = ("uvw", "antenna1", "antenna2", "time_index", *data)
    template = np.ascontiguousarray(fixed.template[:, rows])
    return fixed._replace(template=template, **{name: getattr(fixed, name)[rows] for name in names})


def _turned(
    lanes: Lanes, average: Average, time: Node, rows: slice | NDArray[np.int64], factored: bool
) -> Lanes:
    """Lanes whose coordinates are those at a node of time."""
    of_entry = average.smearing.interval[rows][np.maximum(lanes.row, 0)]
    uvw = average.turned(np.moveaxis(lanes.uvw, 1, -1), of_entry, time)
    lanes = lanes._replace(uvw=copied(np.moveaxis(uvw, -1, 1), np.float64))
    if not factored or average.slot_interval is None:
        return lanes
    of_slot = average.slot_interval[lanes.slot_time][:, None]
    antenna_uvw = average.turned(np.moveaxis(lanes.antenna_uvw, 2, -1), of_slot, time)
    return lanes._replace(antenna_uvw=copied(np.moveaxis(antenna_uvw, -1, 2), np.float64))


def _tuned(lanes: Lanes, chan_freq: NDArray[np.float64]) -> Lanes:
    """Lanes of other frequencies."""
    chan = np.where(lanes.chan < 0, chan_freq.size - 1, lanes.chan)
    return lanes._replace(scale=copied(chan_freq[chan] / SPEED_OF_LIGHT, np.float64))
