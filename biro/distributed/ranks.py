"""Rank 0's side: what it asks of the other ranks, and how their answers come back."""

from __future__ import annotations

import atexit
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

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
    lean,
)
from biro.distributed.rank_tasks import WorkDistributor, at_work
from biro.distributed.watch import Watch
from biro.errors import BackendError, InputError
from rime_kernels import device
from rime_kernels.choices import Backend
from rime_kernels.compile.call_lock import CALL_LOCK
from rime_kernels.engine.device_threads import Devices, workers_of
from rime_kernels.engine.local_shards import EngineRecipe, ShardCall
from rime_kernels.engine.sharded import OnShardDone, Team

if TYPE_CHECKING:
    from biro.distributed.link import Link

T = TypeVar("T")
N_TICKET = 1 << 14
"""Numbers of requests repeat after so many: the smallest bound of the tags of MPI is 32767."""


class MpiRanks:
    """The ranks of a communicator as rank 0 sees them; see `rime_kernels.engine.sharded.Ranks`.

    Requests go to all ranks by a broadcast, answers come back from each, under the number of the request, so
    that several requests may be under way. `stop` lets the other ranks end; so does the end of the process.

    Parameters
    ----------
    link : Link
        That nobody else uses.
    hosts : sequence of str
        Name of the host of each rank.
    number : int
        Of this rank among those of its host.
    watching : Watch
        Notices ranks that are gone.
    """

    def __init__(self, link: Link, hosts: Sequence[str], number: int, watching: Watch) -> None:
        self._link, self._hosts, self._number, self._watching = link, hosts, number, watching
        self._numbers, self._tickets = itertools.count(), itertools.count()
        self._dropped: list[int] = []
        self._awaited: dict[int, list[int]] = {}  # the ranks that have yet to answer, by ticket
        self._is_open, self._is_torn = True, False
        atexit.register(self.stop)

    @property
    def n_rank(self) -> int:
        """Number of ranks, this one included."""
        return len(self._hosts)

    @property
    def hosts(self) -> Sequence[str]:
        """Name of the host of each rank."""
        return self._hosts

    def where(self, rank: int) -> str:
        """A rank and its host, for messages."""
        return f"MPI process {rank} ({self._hosts[rank]})"

    def check_open(self) -> None:
        """Refuse to go on once the other ranks were told to stop.

        Raises
        ------
        InputError
        """
        if not self._is_open:
            raise InputError(
                "the other MPI processes have stopped; close a likelihood after all work is done"
            )

    def team(self, asked: Backend, backend: str, devices: Devices | None) -> Team:
        """The ranks that share the shards of an engine; see `rime_kernels.engine.sharded.Ranks`."""
        workers = workers_of("cuda" if backend == "cuda" else "cpu", devices, self._number)
        engine = self.number()
        try:
            found: list[FoundDevices] = self.ask(PrepareEngine(engine, asked, devices))()
            self.check_devices_alike(backend, {worker.kind for worker in workers}, found)
        except BaseException:
            self.drop(engine)
            raise
        return Team(workers, _FarShards(self, engine, found))

    def check_alike(self, asked: Backend) -> None:
        """Refuse ranks whose backends, or kinds of devices, are not those of this one.

        Raises
        ------
        BackendError
        """
        self.team(asked, device.resolve(asked)[0], None)

    def check_devices_alike(self, backend: str, kinds: set[str], found: Sequence[FoundDevices]) -> None:
        """Refuse ranks whose results could differ from those of rank 0."""
        for rank, each in enumerate(found, 1):
            if each.backend != backend:
                has, lacks = (0, rank) if backend == "cuda" else (rank, 0)
                raise BackendError(
                    f"{self.where(has)} has a GPU, {self.where(lacks)} has none; give each process a GPU, "
                    'or use --backend cpu (backend="cpu" in Python)'
                )
            if not kinds.issuperset(each.kinds):
                raise BackendError(
                    f"{self.where(rank)} has {', '.join(each.kinds)}, {self.where(0)} has "
                    f"{', '.join(kinds)}; all devices must be of one kind"
                )

    def ask(self, request: Request, ranks: Sequence[int] | None = None) -> Callable[[], list[Any]]:
        """Send a request to all ranks; the function returned waits for answers of some, by default of all.

        Raises
        ------
        BiroError
            That function: the first failure among the answers.
        """
        with CALL_LOCK:
            self.check_open()
            ticket = next(self._tickets) % N_TICKET
            dropped = tuple(self._dropped)
            del self._dropped[: len(dropped)]
            self._awaited[ticket] = list(range(1, self.n_rank)) if ranks is None else list(ranks)
            with self._unbroken():
                self._link.bcast(Envelope(request, ticket, dropped))
        return lambda: self._answers(ticket)

    def send(self, rank: int, value: Any) -> None:
        """Send a rank what belongs to the request before."""
        with CALL_LOCK, self._unbroken():
            self._link.send(value, rank)

    def do(
        self, function: Callable[..., T], *arguments: object, given: Sequence[Any] | None = None
    ) -> list[T]:
        """What a function of a module gives on each rank, this one first.

        Parameters
        ----------
        function : function of a module
        *arguments
            The same for all ranks.
        given : sequence, optional
            A first argument for each rank, which no other rank receives.
        """
        wait = self.ask(CallFunction(function, arguments, given is not None))
        first: tuple[Any, ...] = ()
        if given is not None:
            for rank, each in enumerate(given[1:], 1):
                self.send(rank, each)
            first = (given[0],)
        try:
            own = function(*first, *arguments)
        finally:  # an error here leaves no others at work
            others = wait()
        return [own, *others]

    def do_on(self, rank: int, function: Callable[..., T], *arguments: object) -> T:
        """What a function of a module gives on one rank."""
        if not rank:
            return function(*arguments)
        found: list[T] = self.ask(CallFunction(function, arguments, to=rank), [rank])()
        return found[0]

    @contextmanager
    def working(
        self, make: Callable[..., Callable[[Any], Any]], *arguments: object
    ) -> Iterator[WorkDistributor]:
        """Have all other ranks at work on what they are handed, one after the other, until the end.

        Parameters
        ----------
        make : function of a module
            Gives, of the arguments, the function that makes results of what a rank is handed.
        """
        wait = self.ask(CallFunction(at_work, (make, arguments)))
        hand = WorkDistributor(self._link)
        try:
            yield hand
        finally:
            with CALL_LOCK, self._unbroken():
                hand.end()
            wait()

    def number(self) -> int:
        """One that no engine and no partition has yet, to name it by."""
        return next(self._numbers)

    def drop(self, number: int) -> None:
        """Have the shards of an engine, or of a partition that is held, given up with the next request."""
        self._dropped.append(number)

    def stop(self) -> None:
        """Let the other ranks end; nothing may be asked of them afterwards."""
        from mpi4py import MPI

        if not self._is_open or MPI.Is_finalized():
            return
        with CALL_LOCK:
            if self._is_torn:  # the others wait for the rest of a message that will never come
                sys.stderr.write(
                    "biro: a message to the other MPI processes was cut off. All MPI processes stop\n"
                )
                sys.stderr.flush()
                MPI.COMM_WORLD.Abort(1)
            for ticket in list(self._awaited):
                self._receive(ticket)  # answers that nobody waited for, after an error
            self._watching.stop()
            self.ask(EndRanks(), [])()
            self._is_open = False
            atexit.unregister(self.stop)

    def _answers(self, ticket: int) -> list[Any]:
        with CALL_LOCK:
            answers = self._receive(ticket)
        for answer in answers:
            if answer.failure is not None:
                raise answer.failure
        return [answer.value for answer in answers]

    def _receive(self, ticket: int) -> list[Answer]:
        ranks = self._awaited.pop(ticket)
        with self._unbroken():
            return [self._link.recv(source=rank, tag=1 + ticket) for rank in ranks]

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Note where an exception cuts a message off, after which ranks do not understand each other."""
        try:
            yield
        except BaseException:
            self._is_torn = True
            raise


class _FarShards:
    """Shards of an engine on other ranks; see `rime_kernels.engine.sharded.FarShards`."""

    def __init__(self, ranks: MpiRanks, engine: int, found: Sequence[FoundDevices]) -> None:
        self._ranks, self._engine = ranks, engine
        self.names = [f"{ranks.where(i)}: {name}" for i, each in enumerate(found, 1) for name in each.names]
        self.processes = [i for i, each in enumerate(found, 1) for _ in each.names]
        self._places = [(i, k) for i, each in enumerate(found, 1) for k in range(len(each.names))]
        self._n_shard = [0] * ranks.n_rank
        self._constant: tuple[NDArray[Any], ...] = ()
        weakref.finalize(self, ranks.drop, engine).atexit = False

    def add(self, device: int, recipe: EngineRecipe, n_engine: int) -> None:
        """Send a shard to the rank that has the device."""
        rank, number = self._places[device]
        wait = self._ranks.ask(AddShard(self._engine, rank, number, n_engine), [rank])
        self._ranks.send(rank, recipe)
        wait()
        self._n_shard[rank] += 1

    def start(
        self, call: ShardCall, given: Sequence[Any] | None = None, end: OnShardDone | None = None
    ) -> Callable[[], list[Any]]:
        """Begin a call on all shards of other ranks; the function returned waits for the results."""
        ranks = [rank for rank, n in enumerate(self._n_shard) if n]
        if not ranks:
            return list
        sources, constant = lean(call.sources)
        is_known = len(constant) == len(self._constant) and all(
            a is b for a, b in zip(constant, self._constant, strict=True)
        )
        self._constant = constant
        lean_call, new = call._replace(sources=sources), None if is_known else constant
        work = ComputeShards(self._engine, lean_call, new, given is not None, end)
        wait = self._ranks.ask(work, ranks)
        if given is not None:
            first = 0
            for rank in ranks:
                self._ranks.send(rank, given[first : first + self._n_shard[rank]])
                first += self._n_shard[rank]
        return lambda: [each for part in wait() for each in part]
