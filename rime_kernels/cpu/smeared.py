"""Blocks of rows whose visibilities are smeared, on the CPU.

The loops sum over nodes as they sum over sources. Through beams of Jones matrices, and with templates that
move, visibilities at each node are computed apart, and their mean is taken here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, plus
from rime_kernels.arrays import Sources
from rime_kernels.cpu.engine import CpuEngine
from rime_kernels.cpu.lanes import Lanes, Nodes, copied
from rime_kernels.engine import Visibilities
from rime_kernels.engine.smeared import Settings, finished, one_by_one, squares
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Output, in_files
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.average import Average, Node

# Bytes of the visibilities of one block of rows.
BLOCK_BYTES = 64 << 20


class CpuSmearedBlocks:
    """Makes blocks of rows for the CPU: see the protocol `rime_kernels.engine.smeared.SmearedBlocks`."""

    def __init__(self, fixed: Constants, settings: Settings) -> None:
        self.most_rows = _bytes(settings) // (16 * fixed.chan_freq.size * fixed.matrix.shape[0])

    def block(
        self, average: Average, fixed: Constants, table: RowTable, settings: Settings
    ) -> CpuSmearedRows:  # fmt: skip
        """The block of rows whose constants and table these are."""
        return CpuSmearedRows(average, fixed, table, settings)


def _bytes(settings: Settings) -> int:
    limit = settings.memory_limit
    return BLOCK_BYTES if limit is None else min(BLOCK_BYTES, limit)


class CpuSmearedRows:
    """A block of rows on the CPU: see the protocol `rime_kernels.engine.smeared.SmearedBlock`."""

    def __init__(self, average: Average, fixed: Constants, table: RowTable, settings: Settings) -> None:
        fixed = in_files(fixed, settings.folder)
        self._fixed, self._complex = fixed, np.complex64 if settings.single else np.complex128
        n_each = fixed.uvw.shape[0] * fixed.chan_freq.size * fixed.matrix.shape[0]
        self.max_batch = max(1, _bytes(settings) // (16 * n_each))
        self._engine = CpuEngine(fixed, table, **settings._asdict())
        # Coordinates are few beside the data, which all nodes share.
        freqs = [average.chan_freq(fixed.chan_freq, freq) for freq in average.freqs]
        nodes = _nodes_of(average, self._engine.lanes, freqs, settings.factored)
        self._smeared = self._engine.smeared(nodes, freqs)
        self._nodes: list[tuple[float, CpuEngine]] = []
        for k, weight in enumerate(nodes.weight):
            time, freq = divmod(k, len(freqs))
            lanes = self._engine.lanes._replace(
                antenna_uvw=nodes.antenna_uvw[time], uvw=nodes.uvw[time], scale=nodes.scale[freq]
            )
            self._nodes.append((float(weight), self._engine.at_node(lanes, freqs[freq])))

    def mean(self, sources: Sources) -> Visibilities:
        """V, the mean over nodes, complex (n_batch, n_row, n_chan, n_corr)."""
        if not CpuEngine.by_node(sources):
            return self._smeared.run(sources, Output.VIS)
        mean: Visibilities | None = None
        for weight, engine in self._nodes:
            vis = engine.run(sources, Output.VIS)
            vis *= vis.real.dtype.type(weight)
            if mean is None:
                mean = vis
            else:
                mean += vis
        assert mean is not None, "there is a node at least"
        return mean

    def chi2(self, sources: Sources, scaled_dof: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """chi2, or the sum of logarithms, float64 (n_batch,)."""
        if not CpuEngine.by_node(sources):
            return self._smeared.run(sources, Output.CHI2 if scaled_dof is None else Output.LOG, scaled_dof)
        return self._chi2(self.mean(sources) - self._fixed.vis, scaled_dof)[0]

    def adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None,
    ) -> Adjoint:
        """chi2 with its derivatives; `vis`, for all entries of the batch, replaces the data."""
        if not sources.n_batch:
            return self._engine.start_adjoint(sources, scaled_dof)()
        if not CpuEngine.by_node(sources):
            return self._smeared.start_adjoint(sources, scaled_dof, vis)()
        data = self._fixed.vis if vis is None else vis
        return one_by_one(lambda one, t: self._of_nodes(one, t, data), sources, scaled_dof)

    def _of_nodes(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None, data: NDArray[np.complexfloating]
    ) -> Adjoint:
        """chi2 with its derivatives, of a batch of one: a sum over nodes."""
        residual = (self.mean(sources) - data).astype(self._complex)
        chi2, y = self._chi2(residual, scaled_dof)
        of_dof = None
        if y is not None:
            residual, of_dof = (
                (residual / (1.0 + y)).astype(self._complex),
                2.0 * float((y / (1.0 + y)).sum()),
            )
        laid_out, total = self._engine.laid_out(residual[0]), None
        for weight, engine in self._nodes:
            total = plus(total, engine.pulled(sources, laid_out), weight)
        assert total is not None, "there is a node at least"
        return finished(total, float(chi2[0]), of_dof, len(self._fixed.template))

    def plan(self, sources: Sources) -> str:
        """How it computes, in words."""
        return (self._engine if CpuEngine.by_node(sources) else self._smeared).plan(sources)

    def _chi2(
        self, residual: Visibilities, t: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The sum of squares or of ln(1 + y), (n_batch,); and y = w |V - D|^2 / t, where there is a t."""
        found = squares(residual, self._fixed.weight)
        if t is None:
            return found.sum(axis=(1, 2, 3)), None
        found /= t[:, None, None, None]
        return np.log1p(found).sum(axis=(1, 2, 3)), found


def _nodes_of(average: Average, lanes: Lanes, chan_freqs: list[NDArray[np.float64]], factored: bool) -> Nodes:
    """Coordinates and frequencies of the lanes at all nodes."""
    entry, slot = np.maximum(lanes.row, 0), lanes.slot_time[:, None]
    chan = np.where(lanes.chan < 0, chan_freqs[0].size - 1, lanes.chan)
    uvw = [_turned(lanes.uvw, average, time, average.smearing.interval[entry]) for time in average.times]
    antenna_uvw = [lanes.antenna_uvw] * len(uvw)
    if factored and average.slot_interval is not None:
        interval = average.slot_interval[slot]
        antenna_uvw = [_turned(lanes.antenna_uvw, average, time, interval) for time in average.times]
    return Nodes(
        np.array([time.weight * freq.weight for time in average.times for freq in average.freqs]),
        copied(np.stack(antenna_uvw), np.float64),
        copied(np.stack(uvw), np.float64),
        copied(np.stack([chan_freq[chan] for chan_freq in chan_freqs]) / SPEED_OF_LIGHT, np.float64),
    )


def _turned(
    uvw: NDArray[np.float64], average: Average, time: Node, seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Coordinates (..., 3, n_lane) at a node of time."""
    return np.moveaxis(average.turned(np.moveaxis(uvw, -2, -1), seconds, time), -1, -2)
