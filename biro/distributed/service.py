"""The side of the ranks other than 0: they hold shards, and compute what rank 0 asks for until it is done."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from biro.distributed.data_on_ranks import STORE
from biro.distributed.messages import (
    AddShard,
    Answer,
    CallFunction,
    ComputeShards,
    EndRanks,
    Envelope,
    FoundDevices,
    PrepareEngine,
    Request,
    failure_of,
    whole,
)
from biro.distributed.this_rank import PLACE
from rime_kernels import device
from rime_kernels.engine.device_threads import workers_of
from rime_kernels.engine.local_shards import LocalShards

if TYPE_CHECKING:
    from biro.distributed.link import Link


def serve(link: Link, where: str, number: int) -> None:
    """Do what rank 0 asks for until it says that it is done.

    An error in the work is answered, and rank 0 raises it. Where ranks no longer understand each other, all
    end at once, with one line. Signals that stop a run are left to rank 0, which may have to save its state.

    Parameters
    ----------
    link : Link
    where : str
        This rank and its host, for messages.
    number : int
        Of this rank among those of its host.
    """
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
    try:
        _Service(link, where, number).run()
    except BaseException as error:
        # Not by way of sys.stderr, which leads nowhere where rank 0 alone speaks.
        os.write(2, f"biro: {where}: {type(error).__name__}: {error}. All MPI processes stop\n".encode())
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)


def _as_found(_: int, found: Any) -> Any:
    return found


class _Service:
    """Work of a rank other than 0 (`serve`), with the shards of each engine by its number."""

    def __init__(self, link: Link, where: str, number: int) -> None:
        self._link, self._where, self._number = link, where, number
        self._shards: dict[int, LocalShards] = {}
        self._constant: dict[int, Any] = {}
        PLACE.rank, PLACE.number, PLACE.where, PLACE.link = link.rank, number, where, link

    def run(self) -> None:
        """Serve until the end."""
        while True:
            envelope: Envelope = self._link.bcast(None)
            for number in envelope.dropped:
                self._shards.pop(number, None)
                self._constant.pop(number, None)
                STORE.shards.pop(number, None)
            request = envelope.request
            if isinstance(request, EndRanks):
                return
            if isinstance(request, AddShard) and request.rank != self._link.rank:
                continue
            if isinstance(request, CallFunction) and request.to not in (None, self._link.rank):
                continue
            if isinstance(request, ComputeShards) and not self._has_shards(request.engine):
                continue  # rank 0 knows, and awaits nothing
            # What belongs to the request is received before anything can fail.
            follows = isinstance(request, AddShard) or (
                isinstance(request, ComputeShards | CallFunction) and request.has_given
            )
            self._answer(envelope, self._link.recv(source=0) if follows else None)

    def _has_shards(self, engine: int) -> bool:
        return engine in self._shards and self._shards[engine].n_shard > 0

    def _answer(self, envelope: Envelope, received: Any) -> None:
        try:
            answer = Answer(self._do(envelope.request, received))
        except Exception as error:
            answer = Answer(failure=failure_of(error, self._where))
        # Not waited for: rank 0 may be sending the next request before it takes this answer.
        self._link.begin_send(answer, 0, 1 + envelope.ticket)

    def _do(self, request: Request, received: Any) -> Any:
        if isinstance(request, PrepareEngine):
            backend, _ = device.resolve(request.backend)
            workers = workers_of(backend, request.devices, self._number)
            self._shards[request.engine] = LocalShards(workers)
            return FoundDevices(backend, [each.name for each in workers], [each.kind for each in workers])
        if isinstance(request, AddShard):
            self._shards[request.engine].add(request.device, received, request.n_engine)
            return None
        if isinstance(request, CallFunction):
            own = (received,) if request.has_given else ()
            return request.function(*own, *request.arguments)
        assert isinstance(request, ComputeShards), "there are no others"
        if request.constant is not None:
            self._constant[request.engine] = request.constant
        sources = whole(request.call.sources, self._constant.get(request.engine, ()))
        call = request.call._replace(sources=sources)
        return self._shards[request.engine].start(call, received, request.end or _as_found)()
