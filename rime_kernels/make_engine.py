"""The engine that works for a `Rime`: of one device or of several, smeared or not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.engine import Engine
from rime_kernels.engine.sharded import ShardedEngine, Worker
from rime_kernels.engine.smeared import Blocks, Settings, SmearedEngine
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants
from rime_kernels.smearing.average import Average


def make_engine(
    backend: str,
    workers: Sequence[Worker] | None,
    average: Average | None,
    fixed: Constants,
    table: RowTable,
    settings: Settings,
) -> Engine:
    """The engine of all rows, on the current device or, with `workers`, shared by theirs."""
    if workers is None:
        return _engine_class(backend, average)(fixed, table, **settings._asdict())

    def make(rows: NDArray[np.int64], some: Constants, of_some: RowTable, n_engine: int) -> Engine:
        limit = settings.memory_limit
        if limit is None and backend == "cuda":
            limit = device.memory_budget()
        own = settings._replace(memory_limit=None if limit is None else max(1, limit // n_engine))
        of_rows = None if average is None else average.of_rows(rows)
        return _engine_class(backend, of_rows)(some, of_some, **own._asdict())

    return ShardedEngine(make, workers, fixed, table)


def _engine_class(backend: str, average: Average | None) -> Callable[..., Engine]:
    """The engine of a backend; imported here, since it brings Numba's compiler or CUDA."""
    if average is not None:
        return functools.partial(SmearedEngine, _blocks_class(backend), average)
    if backend == "cpu":
        from rime_kernels.cpu import engine

        return engine.Engine
    from rime_kernels.cuda.as_rows import kept

    return kept.KeepingEngine


def _blocks_class(backend: str) -> Callable[..., Blocks]:
    """What makes the blocks of a `SmearedEngine`."""
    if backend == "cpu":
        from rime_kernels.cpu import smeared

        return smeared.Blocks
    from rime_kernels.cuda.as_rows import smeared as smeared_cuda

    return smeared_cuda.Blocks
