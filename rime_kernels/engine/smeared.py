"""The engine of a `Rime` whose visibilities are smeared, on the CPU or on a GPU.

Rows are worked on in blocks, whose V is a mean over nodes of time and frequency: as many as the longest of
its baselines needs. chi2 follows from the mean; its derivatives are means of those at the nodes, where the
weighted residual of the mean takes the place of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, joined, plus
from rime_kernels.arrays import Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.choices import GaussianFrame
from rime_kernels.engine import Visibilities
from rime_kernels.engine.shards import rows_of, table_of
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Output, in_files
from rime_kernels.smearing.average import Average


class Settings(NamedTuple):
    """How blocks compute: as the parameters of an engine."""

    single: bool
    factored: bool
    frame: GaussianFrame
    memory_limit: int | None
    folder: str | None = None
    """Data lie in files of it, not in memory."""


class SmearedBlock(Protocol):
    """Some rows; sources are a batch of `max_batch` at most."""

    max_batch: int

    def mean(self, sources: Sources) -> Visibilities:
        """V, the mean over nodes, complex (n_batch, n_row, n_chan, n_corr)."""
        ...

    def chi2(self, sources: Sources, scaled_dof: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """chi2, or the sum of logarithms, float64 (n_batch,)."""
        ...

    def adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None,
    ) -> Adjoint:
        """chi2 with its derivatives; `vis`, for all entries of the batch, replaces the data."""
        ...

    def plan(self, sources: Sources) -> str:
        """How it computes, in words."""
        ...


class SmearedBlocks(Protocol):
    """What makes the blocks of a backend."""

    most_rows: int  # that a block may have

    def block(self, average: Average, fixed: Constants, table: RowTable, settings: Settings) -> SmearedBlock:
        """The block of rows whose constants and table these are."""
        ...


class _SmearedPart(NamedTuple):
    """A block, and which of the rows it has."""

    rows: NDArray[np.int64]
    block: SmearedBlock


class SmearedEngine:
    """The engine of smeared rows, node by node: see the protocol `rime_kernels.engine.Engine`.

    Parameters
    ----------
    blocks_of : function
        Gives the `SmearedBlocks` of a backend, from the constants of all rows.
    average : Average
    fixed, table, single, factored, frame, memory_limit, folder
        As for the engines of the backends.
    """

    def __init__(
        self,
        blocks_of: Callable[[Constants, Settings], SmearedBlocks],
        average: Average,
        fixed: Constants,
        table: RowTable,
        *,
        single: bool,
        factored: bool,
        frame: GaussianFrame,
        memory_limit: int | None = None,
        folder: str | None = None,
    ) -> None:
        self._fixed = fixed = in_files(fixed, folder)
        self._n_template = len(fixed.template)
        self._complex = np.complex64 if single else np.complex128
        self._shape = fixed.uvw.shape[0], fixed.chan_freq.size, fixed.matrix.shape[0]
        settings = Settings(single, factored, frame, memory_limit, folder)
        blocks = blocks_of(fixed, settings)
        step = max(1, blocks.most_rows)
        self._parts = []
        for group in average.groups:
            in_order = table.order[group.has_row[table.order]]
            for start in range(0, in_order.size, step):
                rows = in_order[start : start + step]
                some = rows_of(fixed, rows)
                block = blocks.block(
                    average.of(group, rows), some, table_of(some, len(table.slot_start)), settings
                )
                self._parts.append(_SmearedPart(rows, block))

    def run(self, sources: Sources, output: Output) -> Visibilities:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr)."""
        kind = np.float64 if output is Output.WEIGHTED else self._complex
        result: Visibilities = np.empty((sources.n_batch, *self._shape), kind)
        for rows, block in self._parts:
            for entries, some in _entries(sources, block.max_batch):
                vis = block.mean(some)
                if output is not Output.VIS:
                    vis -= self._fixed.vis[rows]
                if output is Output.WEIGHTED:
                    vis = squares(vis, self._fixed.weight[rows])
                result[entries, rows] = vis
        return result

    def start_chi2(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> Callable[[], NDArray[np.float64]]:
        """Compute chi2, or the sum of logarithms, (n_batch,), at once; gives a function that returns it."""
        chi2 = np.zeros(sources.n_batch)
        for _, block in self._parts:
            for entries, some in _entries(sources, block.max_batch):
                chi2[entries] += block.chi2(some, None if scaled_dof is None else scaled_dof[entries])
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
        data, total = None if vis is None else vis.reshape(self._shape), None
        for rows, block in self._parts:
            total = plus(total, block.adjoint(sources, scaled_dof, None if data is None else data[rows]))
        assert total is not None, "rows are not empty"
        found = total
        return lambda: found

    def cache_model(self, sources: Sources, cells: RowCells) -> None:
        """Means over nodes do not stay on a device."""

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is computed, in words."""
        plans = {block.plan(sources): None for _, block in self._parts}
        return f"in {len(self._parts)} blocks of rows; {'; '.join(plans)}"


def squares(residual: Visibilities, weight: NDArray[np.floating]) -> NDArray[np.float64]:
    """w |V - D|^2 in float64."""
    return weight * (residual.real.astype(np.float64) ** 2 + residual.imag.astype(np.float64) ** 2)


def one_by_one(
    adjoint: Callable[[Sources, NDArray[np.float64] | None], Adjoint],
    sources: Sources,
    scaled_dof: NDArray[np.float64] | None,
) -> Adjoint:
    """The derivatives of a batch, of a function that gives those of one entry."""
    entries = [slice(b, b + 1) for b in range(sources.n_batch)]
    parts = [
        adjoint(sources.entries(b.start, b.stop), None if scaled_dof is None else scaled_dof[b])
        for b in entries
    ]
    return joined(parts)


def finished(pulled: Adjoint, chi2: float, of_dof: float | None, n_template: int) -> Adjoint:
    """Derivatives at the nodes, put together, with the chi2 of the mean.

    `of_dof` is what belongs to the scaled degrees of freedom: the sum of 2 y / (1 + y), `Adjoint.template`.
    """
    pulled = pulled._replace(chi2=np.full(1, chi2))
    if of_dof is None:
        return pulled
    last = np.array([[[of_dof, 0.0, 0.0, 0.0]]])
    return pulled._replace(template=np.concatenate([pulled.template[:, :n_template], last], axis=1))


def _entries(sources: Sources, step: int) -> Iterator[tuple[slice, Sources]]:
    """So many entries of the batch at a time."""
    n_batch = sources.n_batch
    for start in range(0, n_batch, step):
        entries = slice(start, min(start + step, n_batch))
        yield entries, sources if n_batch <= step else sources.entries(entries.start, entries.stop)
