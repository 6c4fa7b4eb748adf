"""Measure how much memory each rank of MPI takes that reads and holds its own rows.

    python benchmarks/ranks_memory.py [--quick] [--output FILE]

`biro simulate` makes a Measurement Set. A program reads it by ranks, binds a model of one source, and works
out what a fit needs: chi2, a gradient, the Fisher information, the range of the noise factor, and remarks
about residuals. Each rank then says the most memory that it ever had (VmHWM of Linux). "Data" are the
visibilities and weights as they are read, 12 bytes for each. Without mpi4py nothing is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from common.large_set import made, status
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line

N_RANK = (0, 1, 2, 4)
"""0 is one process that reads all data by itself."""


def worker(path: str, model: str, precision: str, shared: bool) -> None:
    """Compute on as many ranks as there are, and print a line of JSON on rank 0."""
    import biro

    comm = None
    if shared:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    observation = biro.read(path, comm=comm)
    n_byte = 12 * sum(part.vis.size for part in observation.partitions)
    sky = biro.read_model(model)
    asked = {"precision": precision, "backend": "cpu", "smearing": "off", "comm": comm}
    with biro.Likelihood(observation, sky, **asked) as likelihood:
        theta = likelihood.prior_transform([0.5] * likelihood.n_param)
        value, gradient = likelihood.log_likelihood_and_gradient(theta)
        bits = [value, *gradient.tolist(), *likelihood.fisher(theta).ravel().tolist()]
        likelihood.remarks(theta)
        peaks = [status("VmHWM")] if likelihood.ranks is None else likelihood.ranks.do(status, "VmHWM")
    exact = [float(x).hex() for x in bits]
    print(json.dumps({"data_MiB": n_byte / (1 << 20), "peak_MiB": peaks, "bits": exact}))


def measured(path: Path, model: Path, precision: str, n_rank: int) -> Line:
    """Measure one line."""
    words = [sys.executable, __file__, "--worker", str(path), str(model), precision, str(int(n_rank > 0))]
    command = ["mpiexec", "-n", str(n_rank), *words] if n_rank else words
    environment = os.environ | {"NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {"precision": precision, "n_rank": n_rank, **json.loads(done.stdout.splitlines()[-1])}


def text(line: Line) -> str:
    """A line of the table."""
    by, (first, *others) = f"{line['n_rank']} ranks" if line["n_rank"] else "one process", line["peak_MiB"]
    most = f"{max(others):16d}" if others else f"{'':16}"
    return f"{line['set']:8}{line['precision']:>10}{by:>14}{line['data_MiB']:12.0f}{first:10d}{most}"


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        path, model, precision, shared = sys.argv[2:]
        worker(path, model, precision, shared == "1")
        return 0
    args = parse(make_parser(__doc__))
    about, lines = machine("cpu"), list[Line]()
    found: dict[str, object] = {"machine": about, "quick": args.quick, "lines": lines}
    output = output_path(args, "ranks", f"memory_{machine_slug(about)}.json")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
        print("nothing is measured: mpi4py or mpiexec is missing (pip install mpi4py mpich)")
        write(output, found)
        return 0
    print(f"{'set':8}{'precision':>10}{'shared by':>14}{'data, MiB':>12}{'rank 0':>10}{'most of others':>16}")
    sizes = {"small": "--duration 32s --n-chan 2"}
    sizes |= {} if args.quick else {"large": "--duration 400s --n-chan 64"}
    with tempfile.TemporaryDirectory() as folder:
        for name, size in sizes.items():
            path, model = made(Path(folder), name, size)
            precisions = ("double",) if name == "small" else ("double", "single")
            for precision in precisions:
                for n_rank in (0, 2) if name == "small" else N_RANK:
                    lines.append({"set": name, **measured(path, model, precision, n_rank)})
                    print(text(lines[-1]), flush=True)
                    write(output, found)
            shutil.rmtree(path)
    ranked = [line for line in lines if line["n_rank"]]
    kinds = {(line["set"], line["precision"]) for line in ranked}
    distinct = {(line["set"], line["precision"], tuple(line["bits"])) for line in ranked}
    found["same bits"] = len(kinds) == len(distinct)
    print(f"same bits: {found['same bits']}")
    write(output, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
