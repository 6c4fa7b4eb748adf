"""The engine that works for a `Rime`: of one device or of several, smeared or not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.arrays import Rows
from rime_kernels.checked_inputs import data_of
from rime_kernels.compile.call_lock import SHARD_LOCK
from rime_kernels.derivatives import Derivatives
from rime_kernels.engine import Engine
from rime_kernels.engine.local_shards import Shard
from rime_kernels.engine.sharded import DataOf, HeldData, ShardedEngine, Team
from rime_kernels.engine.smeared import Settings, SmearedBlocks, SmearedEngine
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, with_data
from rime_kernels.smearing.average import Average
from rime_kernels.tangent.columns import FixedInputs


class _Recipe(NamedTuple):
    """Some rows, their data or what gives these, and how they are computed; see
    `local_shards.EngineRecipe`.
    """

    backend: str
    average: Average | None
    fixed: Constants
    table: RowTable
    settings: Settings
    data: DataOf | None

    def __call__(self, n_engine: int) -> Shard:
        fixed = self.fixed
        n_time, n_antenna, _ = fixed.antenna_uvw.shape
        columns = fixed.uvw, fixed.antenna1, fixed.antenna2, fixed.time_index, fixed.chan_freq
        rows = Rows(*columns, fixed.matrix.astype(np.complex128), n_antenna, n_time)
        weight: NDArray[np.floating] = fixed.weight
        if self.data is not None:
            vis, weight = self.data()
            fixed = with_data(fixed, data_of(rows, vis, weight))
        limit = self.settings.memory_limit
        if limit is None and self.backend == "cuda":
            limit = device.memory_budget()
        own = self.settings._replace(memory_limit=None if limit is None else max(1, limit // n_engine))
        engine = _engine_class(self.backend, self.average)(fixed, self.table, **own._asdict())
        antenna_uvw = fixed.antenna_uvw if own.factored else None
        same = FixedInputs(rows, antenna_uvw, fixed.template, fixed.template_lm, own.frame, self.average)
        return Shard(engine, Derivatives(same, engine, weight, SHARD_LOCK))


def make_engine(
    backend: str,
    team: Team | None,
    average: Average | None,
    fixed: Constants,
    table: RowTable,
    settings: Settings,
    held: HeldData | None = None,
) -> Engine:
    """The engine of all rows, on the current device or, with a team, shared by its devices."""
    if team is None:
        return _engine_class(backend, average)(fixed, table, **settings._asdict())

    def recipe_of(
        rows: NDArray[np.int64], some: Constants, of_some: RowTable, data: DataOf | None
    ) -> _Recipe:
        of_rows = None if average is None else average.of_rows(rows)
        return _Recipe(backend, of_rows, some, of_some, settings, data)

    return ShardedEngine(recipe_of, team, fixed, table, held)


def _engine_class(backend: str, average: Average | None) -> Callable[..., Engine]:
    """The engine of a backend; imported here, since it brings Numba's compiler or CUDA."""
    if average is not None:
        return functools.partial(SmearedEngine, _blocks_class(backend), average)
    if backend == "cpu":
        from rime_kernels.cpu import engine

        return engine.CpuEngine
    from rime_kernels.cuda.as_rows import resident

    return resident.ResidentModelEngine


def _blocks_class(backend: str) -> Callable[..., SmearedBlocks]:
    """What makes the blocks of a `SmearedEngine`."""
    if backend == "cpu":
        from rime_kernels.cpu import smeared

        return smeared.CpuSmearedBlocks
    from rime_kernels.cuda.as_rows import smeared as smeared_cuda

    return smeared_cuda.CudaSmearedBlocks
