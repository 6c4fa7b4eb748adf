"""Objects that go from rank to rank: what each has received goes into a file of JSON of its own.

mpiexec -n 3 python tests/biro/link_program.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

SMALL, LARGE = 5, 100_000
"""Numbers in an array: of one that goes with its object, and of one that goes by itself."""
TAG = 7


def sent(by: int, n: int) -> dict[str, Any]:
    """An object of a rank with an array."""
    return {"by": by, "array": np.arange(n, dtype=float).reshape(-1, 5) + by, "text": "a" * n}


def check(found: dict[str, Any], by: int, n: int) -> bool:
    """Whether it is that object, with an array that can be written to."""
    numbers = by + np.arange(float(n))
    found["array"] *= 1.0
    return found["by"] == by and np.array_equal(found["array"].ravel(), numbers) and found["text"] == "a" * n


def main(folder: str) -> None:
    """Broadcasts, messages there and back, and messages that nobody waits for, small and large in turn."""
    from mpi4py import MPI

    from biro.distributed import link as module
    from biro.distributed.link import Link

    link = Link(MPI.COMM_WORLD.Dup())
    found = {"size": link.size, "gathered": link.gather(link.rank)}
    for n in (SMALL, LARGE, SMALL):
        found[f"bcast {n}"] = check(link.bcast(sent(0, n) if link.rank == 0 else None), 0, n)
        if link.rank:
            link.begin_send(sent(link.rank, n), 0, TAG)
            link.begin_send(sent(10 + link.rank, SMALL), 0, TAG + 1)
            found[f"from 0 {n}"] = check(link.recv(source=0), 0, n)
            continue
        others = range(1, link.size)
        for rank in others:
            link.send(sent(0, n), rank)
        while not link.has_come(TAG):
            pass
        came = [link.recv(tag=TAG) for _ in others]
        found[f"from any {n}"] = sorted(each["by"] for each in came) == list(others)
        found[f"whole {n}"] = all(check(each, each["by"], n) for each in came)
        second = [link.recv(source=rank, tag=TAG + 1) for rank in others]
        found[f"by rank {n}"] = all(check(each, 10 + k, SMALL) for k, each in enumerate(second, 1))
    module.MOST = 100  # bytes: an object of more than one message may have, without large arrays
    found["bcast of much"] = check(link.bcast(sent(0, SMALL) if link.rank == 0 else None), 0, SMALL)
    found["nothing left"] = not link.has_come(TAG)
    Path(folder, f"{link.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
