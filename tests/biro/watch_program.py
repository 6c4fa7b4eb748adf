"""Ranks of which the last one does something to itself, as mpiexec starts them.

mpiexec -n 2 python tests/biro/watch_program.py what
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from biro.ranks import watch
from biro.ranks.start import start


def main(what: str) -> None:
    """Rank 0 waits for as long as three times the silence that is allowed."""
    from mpi4py import MPI

    watch.BEAT, watch.SILENCE = 0.2, 1.5
    deeds: dict[str, Callable[[], object]] = {
        "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "busy": lambda: sum(range(3 * 10**8)),  # in C, with no turn of other threads meanwhile
    }
    if MPI.COMM_WORLD.rank:
        threading.Timer(0.5, deeds[what]).start()
    ranks = start(MPI.COMM_WORLD)
    time.sleep(4.5)
    ranks.stop()
    print("ended well")


if __name__ == "__main__":
    main(sys.argv[1])
