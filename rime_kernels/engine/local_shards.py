"""Shards of rows with an engine each, on the devices of this process."""

from __future__ import annotations

import atexit
import functools
import gc
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.engine import Engine
from rime_kernels.inputs import Output

T = TypeVar("T")
# Kinds of call that are remembered as made before.
_MOST_KINDS = 1024


class Worker(Protocol):
    """A thread that a device belongs to.

    Attributes
    ----------
    name : str
        Of the device, as plans call it.
    kind : str
        Devices of the same kind compute the same bits.
    """

    name: str
    kind: str

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do it in that thread; the result is waited for by way of the future."""
        ...

    def close(self) -> None:
        """The process ends."""
        ...


class Recipe(Protocol):
    """What the engine of a shard is made from: data that can be sent to where it is made."""

    def __call__(self, n_engine: int, /) -> Engine:
        """The engine, in the thread of its device; `n_engine` engines share the device's memory."""
        ...


class Call(NamedTuple):
    """What all shards are asked for: a method of `Engine`, and its arguments but for `vis`."""

    what: Literal["run", "chi2", "adjoint", "plan"]
    sources: Sources
    output: Output = Output.VIS
    scaled_dof: NDArray[np.float64] | None = None

    def begin(self, engine: Engine, vis: NDArray[np.complexfloating] | None) -> Callable[[], Any]:
        """Begin it on one engine; the function returned waits for the result."""
        if self.what == "chi2":
            return engine.start_chi2(self.sources, self.scaled_dof)
        if self.what == "adjoint":
            return engine.start_adjoint(self.sources, self.scaled_dof, vis)
        found = engine.plan(self.sources) if self.what == "plan" else engine.run(self.sources, self.output)
        return lambda: found

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tells calls apart for which kernels may have to be compiled."""
        sources = self.sources
        return (
            self.what, self.output, self.scaled_dof is None,
            sources.n_batch, sources.n_source, sources.n_shape, sources.n_profile, sources.polarised,
            sources.stokes.shape[1], sources.spectral_terms.shape[3], type(sources.beam),
            sources.antenna_terms is None, sources.faraday is None, sources.template_shift is None,
        )  # fmt: skip


class LocalShards:
    """The shards that devices of this process hold, in the order of the devices.

    Parameters
    ----------
    workers : sequence of Worker
        One for each device.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._devices: list[tuple[Worker, list[Engine]]] = [(worker, []) for worker in workers]
        self._made: set[tuple[Any, ...]] = set()
        weakref.finalize(self, _give_back, self._devices).atexit = False
        # Registered behind the finalizers of all other objects, it is called before them.
        atexit.unregister(_give_all_back)
        atexit.register(_give_all_back)
        _LIVE.add(self)
        _WORKERS.update(workers)

    @property
    def n_shard(self) -> int:
        """Number of shards."""
        return sum(len(engines) for _, engines in self._devices)

    def add(self, device: int, recipe: Recipe, n_engine: int) -> None:
        """Make the engine of one more shard on a device."""
        worker, engines = self._devices[device]
        engines.append(worker.submit(lambda: recipe(n_engine)).result())

    def start(
        self,
        call: Call,
        vis: Sequence[NDArray[np.complexfloating]] | None = None,
        end: Callable[[int, Any], Any] = lambda _, found: found,
    ) -> Callable[[], list[Any]]:
        """Begin a call on all shards, in the threads of devices; the function returned waits for results.

        A kind of call that is new is done by one device after the other: the first one compiles its kernels.

        Parameters
        ----------
        call : Call
        vis : sequence of complex (n_row of the shard, n_chan, n_corr), optional
            Data of each shard in the place of its own.
        end : function of the number of a shard and its result
            Done in the thread of the device; what it returns is the result.
        """

        def work(engines: list[Engine], first: int) -> list[Any]:
            given = [None] * len(engines) if vis is None else vis[first : first + len(engines)]
            begun = [call.begin(engine, one) for engine, one in zip(engines, given, strict=True)]
            return [end(first + i, finish()) for i, finish in enumerate(begun)]

        kind = (*call.kind, vis is None)
        is_new, futures, first = kind not in self._made, [], 0
        for worker, engines in self._devices:
            if not engines:
                continue
            futures.append(worker.submit(functools.partial(work, engines, first)))
            first += len(engines)
            if is_new:
                futures[-1].exception()  # waited for; raised where results are asked for
        if len(self._made) >= _MOST_KINDS:
            self._made.clear()
        self._made.add(kind)
        return lambda: [each for future in _all_done(futures) for each in future.result()]


_LIVE: weakref.WeakSet[LocalShards] = weakref.WeakSet()
_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


def _give_back(devices: list[tuple[Worker, list[Engine]]]) -> list[Future[None]]:
    """Free what is on the devices, each in its thread, before it does anything else."""

    def clear(engines: list[Engine]) -> None:
        engines.clear()
        gc.collect()  # engines refer to themselves

    return [worker.submit(functools.partial(clear, engines)) for worker, engines in devices]


def _give_all_back() -> None:
    """The process ends: free what is on devices, and have nothing else freed there."""
    for future in [future for shards in _LIVE for future in _give_back(shards._devices)]:
        future.exception()
    for worker in _WORKERS:
        worker.close()


def _all_done(futures: list[Future[list[Any]]]) -> list[Future[list[Any]]]:
    """The same, once all are done: an error of one device leaves none of the others at work."""
    for future in futures:
        future.exception()
    return futures
