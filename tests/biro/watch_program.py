"""Ranks of which one does something to itself, as mpiexec starts them.

mpiexec -n 2 python tests/biro/watch_program.py WHAT [RANK]
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from biro.distributed import watch
from biro.distributed.start import start


def main(what: str, rank: int) -> None:
    """Rank 0 goes on for longer than the silence that is allowed, in its own thread or in the deed."""
    from mpi4py import MPI

    watch.BEAT, watch.SILENCE = 0.2, 1.5
    deeds: dict[str, Callable[[], object]] = {
        "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "busy": lambda: sum(range(3 * 10**8)),  # in C, with no turn of other threads meanwhile
    }
    if rank and rank == MPI.COMM_WORLD.rank:  # from `start` these do not return
        threading.Timer(4.0, deeds[what]).start()  # rank 0 compiles before it watches
    ranks = start(MPI.COMM_WORLD)
    if not rank:
        threading.Timer(0.1, deeds[what]).start()
    time.sleep(9.0)
    ranks.stop()
    print("ended well")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
