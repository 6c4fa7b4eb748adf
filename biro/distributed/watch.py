"""How ranks notice that another one is gone: each has a connection to rank 0 and gives signs of life on it.

MPI itself may wait for ever for a rank that is gone. A process that ends, however it ends, closes its
connections at once. A host that no longer answers, and a process that was stopped, give no signs. Those of
the other ranks are written by the handler of a timer's signal in C (`signal.set_wakeup_fd`), those of rank 0,
whose signals belong to its program, by a thread of compiled code (`biro.distributed.heartbeat`). Neither
needs a turn of Python: a compiled loop may take as long as it likes.

Rank 0 listens at the address by which it reaches the other ranks, at that of this machine alone where all are
on it, and only until these have connected. A secret that MPI has brought to them tells them from strangers,
who are neither waited for nor answered.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from biro.distributed.heartbeat import SIGN, Heartbeat, compiled_loop

if TYPE_CHECKING:
    from biro.distributed.link import Link

BEAT = 4.0
"""Seconds between two signs of life."""
SILENCE = 20.0
"""Seconds without one after which a rank counts as gone."""
CONNECT_LIMIT = 5.0
"""Seconds in which a rank must reach rank 0."""
_SAVED = "The run directory has all samples up to here; repeat the command to resume"
_DONE = b"."
"""What rank 0 sends before it lets the others end."""
_N_RANK_BYTE = 4
_HOME = "127.0.0.1"
_BACKLOG = 128
"""Connections that may wait to be accepted, those of strangers included."""


class Rendezvous(NamedTuple):
    """Where ranks connect to: host and port of rank 0, and what shows that they belong to it."""

    host: str
    port: int
    token: bytes


def watch(link: Link, hosts: Sequence[str]) -> tuple[Watch, str]:
    """Rank 0's side: wait for the connections of all ranks, and end this process where one breaks off.

    Returns
    -------
    Watch
    str
        One line about ranks that could not connect, which nobody watches; "" where there are none.
    """
    compiled_loop()  # before others expect signs
    token = secrets.token_bytes(16)
    try:
        listener = socket.create_server((address(hosts), 0), backlog=max(_BACKLOG, len(hosts)))
    except OSError as error:
        link.bcast(f"no port can be opened: {error}")
        problems, found = link.gather("") or [], {}
    else:
        with listener:
            host, port = listener.getsockname()[:2]
            link.bcast(Rendezvous(host, port, token))
            problems = link.gather("") or []
            found = accepted(listener, token, sum(not problem for problem in problems[1:]))
    lost = [rank for rank in range(1, len(hosts)) if rank not in found]
    where = {rank: f"MPI process {rank} ({hosts[rank]})" for rank in range(len(hosts))}
    remark = ""
    if lost:
        remark = (
            f"{', '.join(where[rank] for rank in lost)} cannot reach MPI process 0 ({hosts[0]}) by TCP "
            f"({problems[lost[0]] or 'no answer'}). If one of them fails, only MPI may notice it"
        )
    return Watch({where[rank]: connection for rank, connection in found.items()}), remark


def address(hosts: Sequence[str]) -> str:
    """The address by which rank 0 reaches the hosts of other ranks; that of this machine alone where it can.

    Raises
    ------
    OSError
        A host has no address that is known here.
    """
    for host in hosts[1:]:
        if host != hosts[0]:
            # Nothing is sent: the system says by which of its addresses it would.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
                way.connect((host, 9))
                return str(way.getsockname()[0])
    return _HOME


def be_watched(link: Link) -> None:
    """The side of the other ranks: connect to rank 0, and end this process where rank 0 is gone.

    Parameters
    ----------
    link : Link
    """
    meeting: Rendezvous | str = link.bcast(None)
    if isinstance(meeting, str):
        link.gather(meeting)
        return
    if threading.current_thread() is not threading.main_thread():
        link.gather("signals need the main thread")
        return
    try:
        connection = socket.create_connection((meeting.host, meeting.port), CONNECT_LIMIT)
        connection.sendall(meeting.token + link.rank.to_bytes(_N_RANK_BYTE))
    except OSError as error:
        link.gather(str(error) or type(error).__name__)
        return
    link.gather("")
    _give_signs(connection)
    threading.Thread(target=_end_with_rank_0, args=(connection,), daemon=True).start()


def end_signs() -> None:
    """No more signs of life: rank 0 is done, and a process that ends no longer handles their signal."""
    signal.setitimer(signal.ITIMER_REAL, 0.0)


class Watch:
    """The connections of rank 0 to others, looked at by a thread until `stop`.

    Parameters
    ----------
    connections : mapping of socket by rank and host in words
    """

    def __init__(self, connections: Mapping[str, socket.socket]) -> None:
        self._connections, self._is_over, self._beat = connections, False, None
        if connections:
            self._beat = Heartbeat(list(connections.values()), BEAT)
            threading.Thread(target=self._look, daemon=True).start()

    def stop(self) -> None:
        """Let the other ranks end without being missed."""
        self._is_over = True
        if self._beat is not None:
            self._beat.stop()
        for connection in self._connections.values():
            with contextlib.suppress(OSError):  # it has ended already
                connection.sendall(_DONE)

    def _look(self) -> None:
        """End this process when a rank is gone, with one line."""
        problem = ""
        heard = dict.fromkeys(self._connections, time.monotonic())
        with selectors.DefaultSelector() as selector:
            for where, connection in self._connections.items():
                selector.register(connection, selectors.EVENT_READ, where)
            while not problem:
                before = time.monotonic()
                ready = [key.data for key, _ in selector.select(BEAT)]
                gone = [where for where in ready if not _has_sign(self._connections[where])]
                now = time.monotonic()
                # A process that was stopped itself cannot tell who else was.
                heard = {
                    where: now if where in ready or now - before > 2 * BEAT else at
                    for where, at in heard.items()
                }
                silent = [where for where, at in heard.items() if now - at > SILENCE]
                if self._is_over:
                    return
                if gone:
                    problem = f"{', '.join(gone)} has ended"
                elif silent:
                    problem = f"{', '.join(silent)}: no sign of life for {SILENCE:.0f} s"
        # Not by way of MPI, which may be in the middle of a call: the other ranks see that this process has
        # closed its connections, if mpiexec has not ended them before.
        os.write(2, f"biro: {problem}. All MPI processes stop. {_SAVED}\n".encode())
        os._exit(1)


def accepted(listener: socket.socket, token: bytes, n: int) -> dict[int, socket.socket]:
    """The connections of n ranks by rank; strangers are closed, and none is waited for."""
    found: dict[int, socket.socket] = {}
    said: dict[socket.socket, bytes] = {}
    length, end = len(token) + _N_RANK_BYTE, time.monotonic() + CONNECT_LIMIT
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while len(found) < n and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fileobj is listener:
                    _accept(listener, selector, said)
                    continue
                connection = cast(socket.socket, key.fileobj)
                part = _received(connection, length - len(said[connection]))
                said[connection] += part
                if part and len(said[connection]) < length:
                    continue
                selector.unregister(connection)
                word = said.pop(connection)
                if len(word) == length and secrets.compare_digest(word[: len(token)], token):
                    found[int.from_bytes(word[len(token) :])] = connection
                else:
                    connection.close()
    for connection in said:  # who said nothing, or not enough
        connection.close()
    return found


def _accept(
    listener: socket.socket, selector: selectors.BaseSelector, said: dict[socket.socket, bytes]
) -> None:
    """Take a connection up that waits, and listen to it."""
    with contextlib.suppress(OSError):  # it is gone again, or too many files are open
        connection, _ = listener.accept()
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
        said[connection] = b""


def _received(connection: socket.socket, n_byte: int) -> bytes:
    """What has come, at most so many bytes; b"" where the connection has ended or broken off."""
    try:
        return connection.recv(n_byte)
    except OSError:
        return b""


def _has_sign(connection: socket.socket) -> bool:
    """Read the signs of life that came; False where the connection has broken off."""
    try:
        return bool(connection.recv(1 << 12))
    except OSError:
        return False


def _give_signs(connection: socket.socket) -> None:
    """Have a sign of life written every `BEAT` seconds, whatever this process does."""
    connection.setblocking(False)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: signs that a host does not confirm are an error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * SILENCE))
    signal.set_wakeup_fd(connection.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, BEAT, BEAT)


def _end_with_rank_0(connection: socket.socket) -> None:
    """End this process when rank 0 is gone, or silent, before it has said that it is done."""
    heard, line = time.monotonic(), ""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while True:
            before = time.monotonic()
            is_ready, now = bool(selector.select(BEAT)), time.monotonic()
            said = _received(connection, 1 << 12) if is_ready else SIGN
            if _DONE in said:
                end_signs()
                return
            if is_ready or now - before > 2 * BEAT:  # who was stopped itself cannot tell who else was
                heard = now
            if now - heard > SILENCE:
                line = (
                    f"biro: MPI process 0: no sign of life for {SILENCE:.0f} s. All MPI processes stop. "
                    f"{_SAVED}\n"
                )
            if line or not said:
                os.write(2, line.encode())
                os._exit(1)
