"""The engine of a `Rime` whose rows several devices share, each with shards of whole time slots.

Sources go to every device. Each shard gives its chi2 and derivatives, and these are added on the host in
the order of the shards: the result is the same to the bit for any number of devices.
"""

from __future__ import annotations

import atexit
import functools
import gc
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.adjoint import Adjoint, plus
from rime_kernels.arrays import Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.engine import Engine, Visibilities
from rime_kernels.engine.shards import Index, rows_of, shard_bounds, shared_out, table_of
from rime_kernels.geometry import RowTable
from rime_kernels.inputs import Constants, Output

T = TypeVar("T")
# Kinds of call that are remembered as made before.
_MOST_KINDS = 1024


class Worker(Protocol):
    """A thread that a device belongs to."""

    name: str

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do it in that thread; the result is waited for by way of the future."""
        ...

    def close(self) -> None:
        """The process ends."""
        ...


class MakeEngine(Protocol):
    """Makes the engine of some rows, in the thread of its device."""

    def __call__(self, rows: Index, fixed: Constants, table: RowTable, n_engine: int, /) -> Engine:
        """`rows` are their numbers among all; `n_engine` engines share the device's memory."""
        ...


class _Shard(NamedTuple):
    rows: Index  # numbers among all rows
    engine: Engine


class ShardedEngine:
    """See `rime_kernels.engine.Engine`.

    Parameters
    ----------
    make : MakeEngine
    workers : sequence of Worker
        One for each device.
    fixed : Constants
        Of all rows.
    table : RowTable
    """

    def __init__(
        self, make: MakeEngine, workers: Sequence[Worker], fixed: Constants, table: RowTable
    ) -> None:
        self._shape = fixed.uvw.shape[0], fixed.chan_freq.size, fixed.matrix.shape[0]
        self._complex = fixed.matrix.dtype.type
        bounds = shard_bounds(table)
        self._devices: list[tuple[Worker, list[_Shard]]] = []
        for worker, numbers in zip(workers, shared_out(bounds, len(workers)), strict=True):
            shards = []
            for number in numbers:
                rows = table.order[bounds[number] : bounds[number + 1]]
                some = rows_of(fixed, rows)
                args = rows, some, table_of(some, len(table.slot_start)), len(numbers)
                shards.append(_Shard(rows, worker.submit(lambda args=args: make(*args)).result()))  # type: ignore[misc]
            if shards:
                self._devices.append((worker, shards))
        self._made: set[tuple[Any, ...]] = set()
        weakref.finalize(self, _give_back, self._devices).atexit = False
        # Registered behind the finalizers of all other objects, it is called before them.
        atexit.unregister(_give_all_back)
        atexit.register(_give_all_back)
        _LIVE.add(self)
        _WORKERS.update(workers)

    def run(self, sources: Sources, output: Output) -> Visibilities:
        """V, residual or weighted square, (n_batch, n_row, n_chan, n_corr)."""
        kind = np.float64 if output is Output.WEIGHTED else self._complex
        result: Visibilities = np.empty((sources.n_batch, *self._shape), kind)

        def fill(shard: _Shard) -> None:
            result[:, shard.rows] = shard.engine.run(sources, output)

        self._start(("run", output, *_kind_of(sources)), fill)()
        return result

    def start_chi2(
        self, sources: Sources, scaled_dof: NDArray[np.float64] | None
    ) -> Callable[[], NDArray[np.float64]]:
        """Begin to compute chi2, or the sum of logarithms, (n_batch,); the function returned waits for it."""
        kind = "chi2", scaled_dof is None, *_kind_of(sources)
        wait = self._start(
            kind,
            lambda shard: shard.engine.start_chi2(sources, scaled_dof),
            lambda finish: finish(),
        )

        def finish() -> NDArray[np.float64]:
            total = np.zeros(sources.n_batch)
            for chi2 in wait():
                total += chi2
            return total

        return finish

    def start_adjoint(
        self,
        sources: Sources,
        scaled_dof: NDArray[np.float64] | None,
        vis: NDArray[np.complexfloating] | None = None,
    ) -> Callable[[], Adjoint]:
        """Begin to compute chi2 and its derivatives; `vis` replaces the data. The function returned waits."""
        data = None if vis is None else vis.reshape(self._shape)

        def begin(shard: _Shard) -> Callable[[], Adjoint]:
            own = None if data is None else data[shard.rows]
            return shard.engine.start_adjoint(sources, scaled_dof, own)

        kind = "adjoint", scaled_dof is None, vis is None, *_kind_of(sources)
        wait = self._start(kind, begin, lambda finish: finish())

        def finish() -> Adjoint:
            total: Adjoint | None = None
            for part in wait():
                total = plus(total, part)
            assert total is not None, "rows are not empty"
            return total

        return finish

    def keep(self, sources: Sources, cells: RowCells) -> None:
        """What gains are fitted to does not stay on several devices."""

    def plan(self, sources: Sources) -> str:
        """How chi2 of such sources is computed, in words."""
        lines = []
        for worker, shards in self._devices:
            plans = {worker.submit(lambda s=s: s.engine.plan(sources)).result(): None for s in shards}  # type: ignore[misc]
            n_row = sum(shard.rows.size for shard in shards)
            lines.append(f"{worker.name}: {len(shards)} shards of {n_row} rows; {'; '.join(plans)}")
        return " | ".join(lines)

    def _start(
        self,
        kind: tuple[Any, ...],
        begin: Callable[[_Shard], Any],
        end: Callable[[Any], Any] = lambda found: found,
    ) -> Callable[[], list[Any]]:
        """Begin work on all shards, in the threads of their devices; the function returned gives its results.

        A kind of call that is new is done by one device after the other: the first one compiles its kernels.
        """

        def work(shards: list[_Shard]) -> list[Any]:
            return [end(each) for each in [begin(shard) for shard in shards]]

        is_new, futures = kind not in self._made, []
        for worker, shards in self._devices:
            futures.append(worker.submit(lambda shards=shards: work(shards)))  # type: ignore[misc]
            if is_new:
                futures[-1].exception()  # waited for; raised where results are asked for
        if len(self._made) >= _MOST_KINDS:
            self._made.clear()
        self._made.add(kind)
        return lambda: [each for future in _all_done(futures) for each in future.result()]


_LIVE: weakref.WeakSet[ShardedEngine] = weakref.WeakSet()
_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


def _give_back(devices: list[tuple[Worker, list[_Shard]]]) -> list[Future[None]]:
    """Free what is on the devices, each in its thread, before it does anything else."""

    def clear(shards: list[_Shard]) -> None:
        shards.clear()
        gc.collect()  # engines refer to themselves

    return [worker.submit(functools.partial(clear, shards)) for worker, shards in devices]


def _give_all_back() -> None:
    """The process ends: free what is on devices, and have nothing else freed there."""
    for future in [future for engine in _LIVE for future in _give_back(engine._devices)]:
        future.exception()
    for worker in _WORKERS:
        worker.close()


def _all_done(futures: list[Future[list[Any]]]) -> list[Future[list[Any]]]:
    """The same, once all are done: an error of one device leaves none of the others at work."""
    for future in futures:
        future.exception()
    return futures


def _kind_of(sources: Sources) -> tuple[Any, ...]:
    """What tells calls apart for which kernels may have to be compiled."""
    return (
        sources.n_batch, sources.n_source, sources.n_shape, sources.n_profile, sources.polarised,
        sources.stokes.shape[1], sources.spectral_terms.shape[3], type(sources.beam),
        sources.antenna_terms is None, sources.faraday is None, sources.template_shift is None,
    )  # fmt: skip
