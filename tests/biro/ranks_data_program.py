"""What ranks have read of a data set, as mpiexec starts it; figures go into a file of JSON.

mpiexec -n 2 python tests/biro/ranks_data_program.py FILE SET OPTIONS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ranks_read_program import n_held

import biro
from biro.distributed.start import start


def found(observation: biro.Observation) -> dict[str, object]:
    """What is to be the same whoever holds the data."""
    return {
        "counts": dict(observation.counts),
        "averaged": str(observation.averaged),
        "weights": observation.weight_origin,
        "notes": list(observation.notes),
        "uvw": [part.uvw.tolist()[:50] for part in observation.partitions],
        "digest": observation.whole("a test").digest(),
    }


def main(file: str, path: str, options: str) -> None:
    """Read on as many ranks as there are."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    observation = biro.read(path, comm=comm, **json.loads(options))
    held = start(comm).do(n_held)
    about = {"is_held": observation.is_distributed, "held": held}
    Path(file).write_text(json.dumps(found(observation) | about))


if __name__ == "__main__":
    main(*sys.argv[1:])
