"""SBC of a small model by the ranks that mpiexec starts, or by one process; its rows go into a file of JSON.

mpiexec -n 2 python tests/biro/ranks_sbc_program.py FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ranks_program import MODEL, made

import biro
from biro.models.files.toml import from_toml
from biro.sbc.replicate import Replicates


def main(file: str, what: str) -> None:
    """Twelve replicates; where rank 1 fails, those of rank 0 are kept beside the file."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if what == "raises" and comm.rank == 1:
        Replicates.__call__ = lambda *_: 1 / 0  # type: ignore[assignment, method-assign]
    likelihood = biro.Likelihood(made(), from_toml(MODEL), backend="cpu")
    options = {"replicates": 12, "draws": 7, "seed": 3, "progress": False}
    run_dir = Path(file).with_suffix(".run") if what == "raises" else None
    result = biro.sbc.run(
        likelihood, "none", comm=comm if comm.size > 1 else None, run_dir=run_dir, **options
    )
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in result.rows]
    Path(file).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
