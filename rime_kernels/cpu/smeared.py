"""Blocks of rows whose visibilities are smeared, on the CPU: means over what its engine computes at nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, plus
from rime_kernels.arrays import Sources
from rime_kernels.cpu.engine import Engine
from rime_kernels.cpu.lanes import Lanes, Nodes, copied
from rime_kernels.engine import Visibilities
from rime_kernels.engine.smeared import Settings, finished, squares
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Output, in_files
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.average import Average, Node

# Bytes of the visibilities of one block of rows.
_BLOCK_BYTES = 64 << 20


class Blocks:
    """See `rime_kernels.engine.smeared.Blocks`."""

    def __init__(self, fixed: Constants, settings: Settings) -> None:
        self.most_rows = _bytes(settings) // (16 * fixed.chan_freq.size * fixed.matrix.shape[0])

    def block(
        self, average: Average, fixed: Constants, table: RowTable, settings: Settings
    ) -> SmearedRows:  # fmt: skip
        """The block of rows whose constants and table these are."""
        return SmearedRows(average, fixed, table, settings)


def _bytes(settings: Settings) -> int:
    limit = settings.memory_limit
    return _BLOCK_BYTES if limit is None else min(_BLOCK_BYTES, limit)


class SmearedRows:
    """See `rime_kernels.engine.smeared.Block`."""

    def __init__(self, average: Average, fixed: Constants, table: RowTable, settings: Settings) -> None:
        fixed = in_files(fixed, settings.folder)
        self._fixed, self._complex = fixed, np.complex64 if settings.single else np.complex128
        n_each = fixed.uvw.shape[0] * fixed.chan_freq.size * fixed.matrix.shape[0]
        self.max_batch = max(1, _bytes(settings) // (16 * n_each))
        self._engine = Engine(fixed, table, **settings._asdict())
        # Coordinates are few beside the data, which all nodes share.
        self._nodes: list[tuple[float, Engine]] = []
        turned = [_turned(self._engine.lanes, average, time, settings.factored) for time in average.times]
        freqs = [average.chan_freq(fixed.chan_freq, freq) for freq in average.freqs]
        for time, lanes in zip(average.times, turned, strict=True):
            for freq, chan_freq in zip(average.freqs, freqs, strict=True):
                node = self._engine.at(_tuned(lanes, chan_freq), chan_freq)
                self._nodes.append((time.weight * freq.weight, node))
        self._smeared = self._engine.smeared(
            Nodes(
                np.array([weight for weight, _ in self._nodes]),
                _stacked([lanes.antenna_uvw for lanes in turned]),
                _stacked([lanes.uvw for lanes in turned]),
                _stacked([_tuned(self._engine.lanes, chan_freq).scale for chan_freq in freqs]),
            )
        )

    def mean(self, sources: Sources) -> Visibilities:
        """V, the mean over nodes, complex (n_batch, n_row, n_chan, n_corr)."""
        if not Engine.is_by_node(sources):
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
        if not Engine.is_by_node(sources):
            return self._smeared.start_chi2(sources, scaled_dof)()
        return self._chi2(self.mean(sources) - self._fixed.vis, scaled_dof)[0]

    def adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None,
    ) -> Adjoint:
        """The same with its derivatives for a batch of one or none; `vis` replaces the data."""
        if not sources.n_batch:
            return self._engine.start_adjoint(sources, scaled_dof)()
        residual = (self.mean(sources) - (self._fixed.vis if vis is None else vis)).astype(self._complex)
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
        return self._engine.plan(sources)

    def _chi2(
        self, residual: Visibilities, t: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The sum of squares or of ln(1 + y), (n_batch,); and y = w |V - D|^2 / t, where there is a t."""
        found = squares(residual, self._fixed.weight)
        if t is None:
            return found.sum(axis=(1, 2, 3)), None
        found /= t[:, None, None, None]
        return np.log1p(found).sum(axis=(1, 2, 3)), found


def _turned(lanes: Lanes, average: Average, time: Node, factored: bool) -> Lanes:
    """Lanes whose coordinates are those at a node of time."""
    of_entry = average.smearing.interval[np.maximum(lanes.row, 0)]
    uvw = average.turned(np.moveaxis(lanes.uvw, 1, -1), of_entry, time)
    lanes = lanes._replace(uvw=copied(np.moveaxis(uvw, -1, 1), np.float64))
    if not factored or average.slot_interval is None:
        return lanes
    of_slot = average.slot_interval[lanes.slot_time][:, None]
    antenna_uvw = average.turned(np.moveaxis(lanes.antenna_uvw, 2, -1), of_slot, time)
    return lanes._replace(antenna_uvw=copied(np.moveaxis(antenna_uvw, -1, 2), np.float64))


def _stacked(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return copied(np.stack(arrays), np.float64)


def _tuned(lanes: Lanes, chan_freq: NDArray[np.float64]) -> Lanes:
    """Lanes of other frequencies."""
    chan = np.where(lanes.chan < 0, chan_freq.size - 1, lanes.chan)
    return lanes._replace(scale=copied(chan_freq[chan] / SPEED_OF_LIGHT, np.float64))
