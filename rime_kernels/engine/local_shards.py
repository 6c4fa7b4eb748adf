"""Shards of rows with an engine each, on the devices of this process."""

from __future__ import annotations

import atexit
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rime_kernels.arrays import Sources
from rime_kernels.engine import Engine
from rime_kernels.engine.call_memo import call_memo
from rime_kernels.gradient import Gradient
from rime_kernels.inputs import Output

T = TypeVar("T")
# Kinds of call that are remembered as made before.
_MOST_KINDS = 1024
# Numbers of shards, and their results.
_Future: TypeAlias = Future[list[tuple[int, Any]]]


class DeviceWorker(Protocol):
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

    def here(self) -> AbstractContextManager[None]:
        """Within, the device is the current one of the thread that asks."""
        ...


@runtime_checkable
class GraphEngine(Protocol):
    """An engine that captures calls as CUDA graphs, and can launch these."""

    def launch_graph(
        self, what: Literal["chi2", "adjoint"], sources: Sources, scaled_dof: NDArray[np.float64] | None, /
    ) -> Callable[[], Any] | None:
        """Begin `start_chi2` or `start_adjoint` in one step, where such a call has been recorded.

        None where it has not; nothing is begun then.
        """
        ...


class Products(Protocol):
    """Products with J of the rows of a shard; see `rime_kernels.derivatives.Derivatives`."""

    def information(self, sources: Sources, change: Gradient, weight: Any, /) -> Any: ...

    def grouped_information(
        self, sources: Sources, change: Gradient, groups: Any, n_inner: int, weight: Any, /
    ) -> Any: ...

    def information_product(self, sources: Sources, change: Gradient, /) -> Gradient: ...

    def adjoint(self, sources: Sources, residual: Any, /) -> Gradient: ...


class Shard(NamedTuple):
    """What computes for the rows of a shard."""

    engine: Engine
    products: Products


class EngineRecipe(Protocol):
    """What a shard is made from: data that can be sent to where it is made."""

    def __call__(self, n_engine: int, /) -> Shard:
        """The shard, in the thread of its device; `n_engine` engines share the device's memory."""
        ...


class Part(NamedTuple):
    """Some rows of a shard, by their places in it, and some channels."""

    rows: NDArray[np.int64]
    channels: slice


class ShardCall(NamedTuple):
    """What all shards are asked for: a method of `Engine` or of `Products`, and its arguments.

    The argument that is of the rows of a shard is given to `begin`: a `Part` of what "run" gives, data in the
    place of those of "adjoint", weights or groups and weights of "information", the residual of "product".
    """

    what: Literal["run", "chi2", "adjoint", "plan", "information", "grouped", "product"]
    sources: Sources
    output: Output = Output.VIS
    scaled_dof: NDArray[np.float64] | None = None
    change: Gradient | None = None
    n_inner: int = 0

    def begin(self, shard: Shard, given: Any) -> Callable[[], Any]:
        """Begin it on one shard; the function returned waits for the result."""
        if self.what == "chi2":
            return shard.engine.start_chi2(self.sources, self.scaled_dof)
        if self.what == "adjoint":
            return shard.engine.start_adjoint(self.sources, self.scaled_dof, given)
        if self.what == "plan":
            found: Any = shard.engine.plan(self.sources)
        elif self.what == "run":
            found = self._run(shard, given)
        else:
            found = self._product(shard.products, given)
        return lambda: found

    def launch_graph(self, shard: Shard) -> Callable[[], Any] | None:
        """Begin it on one shard that has a CUDA graph of such calls; the function returned waits."""
        engine = _graph_engine(shard.engine)
        if self.what not in ("chi2", "adjoint") or engine is None:
            return None
        try:
            return engine.launch_graph(self.what, self.sources, self.scaled_dof)
        except Exception as error:  # raised where the result is asked for, as others are at work
            return functools.partial(_raise, error)

    def _run(self, shard: Shard, part: Part | None) -> Any:
        if part is None:
            return shard.engine.run(self.sources, self.output)
        if not part.rows.size:
            return None
        return shard.engine.run(self.sources, self.output)[:, :, part.channels][:, part.rows]

    def _product(self, products: Products, given: Any) -> Any:
        if self.what == "product" and self.change is None:
            return products.adjoint(self.sources, given)
        assert self.change is not None, "the others are of a change"
        if self.what == "product":
            return products.information_product(self.sources, self.change)
        if self.what == "information":
            return products.information(self.sources, self.change, given)
        groups, weight = given
        return products.grouped_information(self.sources, self.change, groups, self.n_inner, weight)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tells calls apart for which kernels may have to be compiled."""
        sources = self.sources
        return (
            self.what, self.output, self.scaled_dof is None,
            sources.n_batch, sources.n_source, sources.n_shape, sources.n_profile, sources.polarised,
            sources.stokes.shape[1], sources.spectral_terms.shape[3], type(sources.beam),
            sources.antenna_terms is None, sources.given_arrays,
        )  # fmt: skip


class LocalShards:
    """The shards that devices of this process hold, in the order of the devices.

    Parameters
    ----------
    workers : sequence of DeviceWorker
        One for each device.
    """

    def __init__(self, workers: Sequence[DeviceWorker]) -> None:
        self.by_device: list[tuple[DeviceWorker, list[Shard]]] = [(worker, []) for worker in workers]
        self._made: set[tuple[Any, ...]] = set()
        self._changed, self._n_at_work = threading.Condition(), 0
        weakref.finalize(self, _give_back, self.by_device).atexit = False
        _LIVE.add(self)

    @property
    def n_shard(self) -> int:
        """Number of shards."""
        return sum(len(made) for _, made in self.by_device)

    def add(self, device: int, recipe: EngineRecipe, n_engine: int) -> None:
        """Make one more shard on a device."""
        worker, made = self.by_device[device]
        made.append(worker.submit(lambda: recipe(n_engine)).result())
        # Registered behind what the thread and other objects have registered, it is called before them.
        atexit.unregister(_give_all_back)
        atexit.register(_give_all_back)

    def start(
        self,
        call: ShardCall,
        given: Sequence[Any] | None = None,
        end: Callable[[int, Any], Any] = lambda _, found: found,
    ) -> Callable[[], list[Any]]:
        """Begin a call on all shards; the function returned waits for results.

        What shards have CUDA graphs of is begun by the thread that asks, for another thread would begin,
        and be
        heard of, a tenth of a millisecond later; the rest in the threads of devices. A kind of call that is
        new is done by one device after the other: the first one compiles its kernels.

        Parameters
        ----------
        call : Call
        given : sequence, optional
            For each shard its argument; see `ShardCall`.
        end : function of the number of a shard and its result
            Done in the thread of the device, or that asks; what it returns is the result.
        """

        def work(made: list[Shard], numbers: list[int]) -> list[tuple[int, Any]]:
            begun = (
                (i, call.begin(shard, None if given is None else given[i]))
                for i, shard in zip(numbers, made, strict=True)
            )
            with call_memo():
                # Visibilities are there once begun, and may be too many to wait for those of all shards.
                ready = begun if call.what == "run" else list(begun)
                return [(i, end(i, finish())) for i, finish in ready]

        kind = (*call.kind, given is None)
        is_new, futures, first = kind not in self._made, list[_Future](), 0
        launched = [] if is_new or given is not None else self._launch_graphs(call)
        done = {each.number for each in launched}
        for worker, made in self.by_device:
            rest = [i for i in range(len(made)) if first + i not in done]
            numbers = [first + i for i in rest]
            first += len(made)
            if not rest:
                continue
            futures.append(self._submit(worker, functools.partial(work, [made[i] for i in rest], numbers)))
            if is_new:
                futures[-1].exception()  # waited for; raised where results are asked for
        if len(self._made) >= _MOST_KINDS:
            self._made.clear()
        self._made.add(kind)

        def wait() -> list[Any]:
            found: list[Any] = [None] * first
            errors = [each.finish_into(found, end) for each in launched]
            for future in _all_done(futures):
                for number, result in future.result():
                    found[number] = result
            for error in errors:
                if error is not None:
                    raise error
            return found

        return wait

    def _submit(self, worker: DeviceWorker, work: Callable[[], T]) -> Future[T]:
        """Do it in the thread of a device; `_launch_graphs` waits until it has been done."""
        with self._changed:
            self._n_at_work += 1

        def counted() -> T:
            try:
                return work()
            finally:
                with self._changed:
                    self._n_at_work -= 1
                    self._changed.notify_all()

        return worker.submit(counted)

    def _launch_graphs(self, call: ShardCall) -> list[_Launched]:
        """Launch the CUDA graphs of a call, devices in turn so that all are at work soon.

        A device leaves the rest to its own thread from the first shard on that has no graph of such a call.
        """
        launched, first, waiting = [], 0, []
        for worker, made in self.by_device:
            waiting.append((worker, list(enumerate(made, first))))
            first += len(made)
        with self._changed:
            self._changed.wait_for(lambda: not self._n_at_work)  # engines do one thing at a time
            while waiting:
                still = []
                for worker, shards in waiting:
                    if not shards:
                        continue
                    number, shard = shards[0]
                    with worker.here():
                        finish = call.launch_graph(shard)
                    if finish is not None:
                        launched.append(_Launched(number, worker, finish))
                        still.append((worker, shards[1:]))
                waiting = still
        return launched


class _Launched(NamedTuple):
    """A call that one shard has begun by launching its CUDA graph."""

    number: int
    worker: DeviceWorker
    finish: Callable[[], Any]

    def finish_into(self, found: list[Any], end: Callable[[int, Any], Any]) -> Exception | None:
        """Wait for the result, and put it in its place; an error is given back, for others are at work."""
        try:
            with self.worker.here():
                found[self.number] = end(self.number, self.finish())
        except Exception as error:
            return error
        return None


def _graph_engine(engine: Any) -> GraphEngine | None:
    """The engine if it has CUDA graphs; each class is looked at once: that takes as long
    as to begin a call.
    """
    kind = type(engine)
    if kind not in _HAS_GRAPHS:
        _HAS_GRAPHS[kind] = issubclass(kind, GraphEngine)
    return engine if _HAS_GRAPHS[kind] else None


_HAS_GRAPHS: dict[type, bool] = {}


def _raise(error: Exception) -> NoReturn:
    raise error


_LIVE: weakref.WeakSet[LocalShards] = weakref.WeakSet()


def _give_back(devices: list[tuple[DeviceWorker, list[Shard]]]) -> list[Future[None]]:
    """Free what is on the devices, each in its thread, before it does anything else."""

    def clear(made: list[Shard]) -> None:
        made.clear()
        gc.collect()  # engines refer to themselves

    return [worker.submit(functools.partial(clear, made)) for worker, made in devices]


def _give_all_back() -> None:
    """The process ends: free what is on devices."""
    for future in [future for shards in _LIVE for future in _give_back(shards.by_device)]:
        future.exception()


def _all_done(futures: list[_Future]) -> list[_Future]:
    """The futures, once all are done: an error of one device leaves none of the others at work."""
    for future in futures:
        future.exception()
    return futures
