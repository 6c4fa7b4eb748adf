"""Signs of life of a process to many others, given whatever that process does.

The thread that gives them is one call of a compiled function, which needs no turn of Python: neither a call
that takes long and keeps all other threads of Python waiting, nor a compiled loop, holds them up. Where the
process is stopped, or its host is gone, they end.
"""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache

import numba
import numpy as np
from numpy.typing import NDArray

SIGN = b"\0"
"""What a sign of life is."""
_STEP = 100_000
"""Microseconds between two looks whether to go on."""


class Heartbeat:
    """Gives a sign on each connection every so many seconds, until `stop`.

    Parameters
    ----------
    connections : sequence of socket
        They are made non-blocking, and must not be closed before the process ends.
    pause : float, s
    """

    def __init__(self, connections: Sequence[socket.socket], pause: float) -> None:
        for connection in connections:
            connection.setblocking(False)
        self._connections = list(connections)  # a number of a closed one could become that of a file
        self._goes_on = np.array([1, 0])
        numbers = np.array([each.fileno() for each in connections], np.int64)
        n_step = max(1, round(1e6 * pause / _STEP))
        loop = compiled_loop()
        threading.Thread(target=loop, args=(numbers, n_step, self._goes_on), daemon=True).start()
        while not self._goes_on[1]:  # the last turn of Python that it needs
            time.sleep(1e-3)

    def stop(self) -> None:
        """Give no more signs."""
        self._goes_on[0] = 0


@cache
def compiled_loop() -> Callable[..., None]:
    """The function that gives signs; to compile it takes longer than signs may fail to come."""
    library = ctypes.CDLL(None)
    write, sleep = library.write, library.usleep
    write.argtypes, write.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_ssize_t
    sleep.argtypes, sleep.restype = (ctypes.c_uint,), ctypes.c_int

    def loop(numbers: NDArray[np.int64], n_step: int, goes_on: NDArray[np.int64]) -> None:
        sign = np.zeros(1, np.uint8)
        goes_on[1] = 1
        while goes_on[0]:
            for number in numbers:
                write(number, sign.ctypes.data, 1)  # lost where its buffer is full, or it has broken off
            for _ in range(n_step):
                sleep(_STEP)
                if not goes_on[0]:
                    break

    compiled: Callable[..., None] = numba.njit("void(int64[::1], int64, int64[::1])", nogil=True)(loop)
    return compiled
