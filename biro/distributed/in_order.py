"""Results of a function for many arguments, in their order, worked out by devices or processes in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from biro.distributed.data_on_ranks import DataOnRanks, on_own_device
from biro.distributed.ranks import MpiRanks
from biro.distributed.remote_data import DistributedData
from rime_kernels import device
from rime_kernels.choices import Backend
from rime_kernels.engine.device_threads import Devices, HostCPU, threads_of
from rime_kernels.engine.local_shards import DeviceWorker

A = TypeVar("A")
T = TypeVar("T")


class MapInOrder(Protocol):
    """What works out results for many arguments."""

    def map(self, function: Callable[[A], T], arguments: Iterable[A]) -> Iterator[T]:
        """Results in the order of the arguments, each of which is made only when its turn comes."""
        ...


class OnDevices:
    """Devices of this process take arguments in turn, and one waits for the next; see `MapInOrder`.

    Parameters
    ----------
    workers : list of DeviceWorker, optional
        Default: the calling thread.
    """

    def __init__(self, workers: list[DeviceWorker] | None = None) -> None:
        self._workers: list[DeviceWorker] = workers or [HostCPU()]
        self._n_ahead = len(workers or ())

    def map(self, function: Callable[[A], T], arguments: Iterable[A]) -> Iterator[T]:
        """Map with the threads of this process."""
        begun = deque[Future[T]]()
        for n, argument in enumerate(arguments):
            worker = self._workers[n % len(self._workers)]
            begun.append(worker.submit(partial(function, argument)))
            if len(begun) > self._n_ahead:
                yield begun.popleft().result()
        yield from (each.result() for each in begun)


class OnRanks:
    """Each rank works out one result at a time, on its own device; see `MapInOrder`.

    Parameters
    ----------
    ranks : MpiRanks
    backend : "auto", "cpu" or "cuda"
    n_argument : int
        All arguments that there are. At most so many are worked out at a time that what is gathered for them
        is about what a rank holds.
    """

    def __init__(self, ranks: MpiRanks, backend: Backend, n_argument: int) -> None:
        self._ranks, self._backend = ranks, backend
        self._step = min(ranks.n_rank, -(-n_argument // ranks.n_rank))

    def map(self, function: Callable[[A], T], arguments: Iterable[A]) -> Iterator[T]:
        """Map with the processes that share the data."""
        left = iter(arguments)
        while asked := list(islice(left, self._step)):
            given = [*([each] for each in asked), *[[]] * (self._ranks.n_rank - len(asked))]
            found = self._ranks.do(_on_rank, function, self._backend, given=given)
            yield from (result for of_rank in found for result in of_rank)


def _on_rank(arguments: list[A], function: Callable[[A], T], backend: Backend) -> list[T]:
    return [on_own_device(backend, partial(function, argument)) for argument in arguments]


def workers_for(
    data: DistributedData | None, backend: Backend, devices: Devices | None, n_argument: int
) -> MapInOrder:
    """What works out results of data that are where `data` says; None for the memory of this process.

    Raises
    ------
    InputError
        What names no devices.
    BackendError
        A device that is not there, or devices of different kinds.
    """
    if isinstance(data, DataOnRanks):
        return OnRanks(data.ranks, backend, n_argument)
    return OnDevices(None if devices is None else list(threads_of(device.resolve(backend)[0], devices)))
