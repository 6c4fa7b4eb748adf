"""How objects go from rank to rank: small ones as one message of MPI, large arrays without a copy."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

_PROTOCOL = 5
"""Of pickle: the first one that can leave large arrays out."""
_LARGE = 1 << 16
"""Bytes of an array from which on it goes by itself: fewer take less time to copy than a message takes."""
MOST = 1 << 30
"""Bytes of an object that go as one message: MPI libraries before the standard 4.0 count to 2^31."""


class Link:
    """A communicator for objects that can be pickled; see `mpi4py.util.pkl5`, which sends each array apart.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        That nobody else uses.

    Attributes
    ----------
    rank, size : int
        Of this process, and how many there are.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        from mpi4py import MPI  # whoever has a communicator has imported it
        from mpi4py.util import pkl5

        self._mpi, self._comm, self._apart = MPI, comm, pkl5.Intracomm(comm)
        self.rank: int = comm.rank
        self.size: int = comm.size
        self._under_way: list[Any] = []

    def bcast(self, value: Any = None) -> Any:
        """Give all ranks what rank 0 has."""
        data = _pickled(value) if self.rank == 0 else b""
        size = np.array([len(data)])
        self._comm.Bcast(size)
        if not size[0]:
            return self._apart.bcast(value)
        room = data if self.rank == 0 else bytearray(size[0])
        self._comm.Bcast([room, self._mpi.BYTE])
        return value if self.rank == 0 else pickle.loads(room)

    def gather(self, value: Any) -> list[Any] | None:
        """What all ranks have, on rank 0; None on the others."""
        found: list[Any] | None = self._apart.gather(value)
        return found

    def send(self, value: Any, rank: int, tag: int = 0) -> None:
        """Send a rank an object."""
        data = _pickled(value)
        self._comm.Send([data, self._mpi.BYTE], rank, tag)
        if not data:
            self._apart.send(value, rank, tag)

    def begin_send(self, value: Any, rank: int, tag: int) -> None:
        """Send a rank an object, and do not wait until that has taken it."""
        data = _pickled(value)
        self._under_way = [request for request in self._under_way if not request.test()[0]]
        self._under_way.append(self._comm.Isend([data, self._mpi.BYTE], rank, tag))
        if not data:
            self._under_way.append(self._apart.isend(value, rank, tag))

    def recv(self, source: int | None = None, tag: int = 0) -> Any:
        """Wait for an object that a rank, by default any, has sent."""
        status = self._mpi.Status()
        message = self._comm.Mprobe(self._mpi.ANY_SOURCE if source is None else source, tag, status)
        room = bytearray(status.Get_count(self._mpi.BYTE))
        message.Recv([room, self._mpi.BYTE])
        return pickle.loads(room) if room else self._apart.recv(source=status.source, tag=tag)

    def has_come(self, tag: int) -> bool:
        """Whether an object that any rank has sent can be received at once."""
        return bool(self._comm.iprobe(tag=tag))


def _pickled(value: Any) -> bytes:
    """The object; nothing where it has large arrays, which go by themselves, or is large itself."""
    apart: list[pickle.PickleBuffer] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _LARGE:
            return True
        apart.append(buffer)
        return False

    data = pickle.dumps(value, _PROTOCOL, buffer_callback=stays)
    return b"" if apart or len(data) > MOST else data
