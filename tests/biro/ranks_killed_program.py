"""A command of biro on ranks of MPI, one of which is killed (-9) while it writes visibilities.

mpiexec -n 2 python tests/biro/ranks_killed_program.py RANK WRITES predict SET ...
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from biro.cli.app import main
from biro.distributed.world import Launch
from biro.io.measurement_set import column
from biro.io.measurement_set.process import MeasurementSetProcess


def kill_after(n_write: int) -> None:
    """Have this process killed once it has had so many chunks written."""
    column.CHUNK_VISIBILITIES = 200
    call, written = MeasurementSetProcess.call, []

    def counted(self: MeasurementSetProcess, operation: str, *arguments: Any, **more: Any) -> Any:
        answer = call(self, operation, *arguments, **more)
        if operation == "write":
            written.append(operation)
        if len(written) == n_write:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    MeasurementSetProcess.call = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    rank, n_write = map(int, sys.argv[1:3])
    if Launch.of(os.environ).rank == rank:
        kill_after(n_write)
    sys.argv[1:] = sys.argv[3:]
    main()
