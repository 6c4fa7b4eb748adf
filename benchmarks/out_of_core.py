"""Fit data that are larger than the memory they may take, from files that are mapped into memory.

    python benchmarks/out_of_core.py [--quick] [--repeat 5] [--output FILE]

`biro simulate` makes a Measurement Set. A program that may take a third of its visibilities and weights (12
bytes each), page cache included, reads it with `cache=`, works out chi2 and its gradient, and finds the
maximum of the posterior from one start, whose flux was simulated as 0.5 Jy. The limit is a control group of
Linux, which root alone may make; without it the system keeps in memory what it can. The disk's own rate is
that of reading the files of the cache from end to end, in the same group.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.large_set import made, status
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import measure
from common.types import Line

GROUPS = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}
"""Where control groups of memory lie, by version, and what sets their limit."""
BLOCK = 1 << 22
"""Bytes that are read at a time where the disk is measured."""
SIZES = {False: ("--duration 2000s --n-chan 64", 500), True: ("--duration 64s --n-chan 8", 500)}
"""Options of `biro simulate`, and MiB that the program may take, by whether the run is quick."""


@contextmanager
def limited(n_byte: int) -> Iterator[str]:
    """A control group with a limit of memory; "" where none can be made."""
    for root, limit in GROUPS.items():
        group = Path(root, f"biro-{os.getpid()}")
        try:
            group.mkdir()
            (group / limit).write_text(str(n_byte))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield str(group)
        finally:
            group.rmdir()
        return
    yield ""


def worker(group: str, path: str, model: str, folder: str, repeat: int) -> None:
    """Read, compute, and print a line of JSON."""
    if group:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    import biro

    begin = time.perf_counter()
    observation = biro.read(path, cache=folder)
    found: Line = {"read_s": time.perf_counter() - begin}
    found["data_MB"] = 12e-6 * sum(part.vis.size for part in observation.partitions)
    likelihood = biro.Likelihood(observation, biro.read_model(model), backend="cpu", smearing="off")
    theta = likelihood.prior_transform([0.5] * likelihood.n_param)
    found["chi2_s"] = measure(lambda: likelihood.log_likelihood(theta), repeat).median
    found["gradient_s"] = measure(lambda: likelihood.log_likelihood_and_gradient(theta), repeat).median
    begin = time.perf_counter()
    best = biro.maximise(likelihood, seed=1, starts=1)
    found |= {"fit_s": time.perf_counter() - begin, "n_gradient": best.n_gradient}
    found |= {"flux": best["a.I"], "error": float(best.error[best.names.index("a.I")])}
    # In double precision a visibility and its weight are three numbers.
    found |= {"computed_MB": 2 * found["data_MB"], "anonymous_MiB": status("RssAnon")}
    rates = [_rate(Path(folder)) for _ in range(repeat)]
    found["disk_MB_per_s"] = sorted(rates)[len(rates) // 2]
    for name in ("chi2", "gradient"):
        found[f"{name}_MB_per_s"] = found["computed_MB"] / found[f"{name}_s"]
    print(json.dumps(found))


def _rate(folder: Path) -> float:
    """MB/s at which the files of a folder are read."""
    begin, n_byte = time.perf_counter(), 0
    for path in sorted(folder.rglob("*.npy")):
        with open(path, "rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while block := file.read(BLOCK):
                n_byte += len(block)
    return 1e-6 * n_byte / (time.perf_counter() - begin)


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        group, path, model, folder, repeat = sys.argv[2:]
        worker(group, path, model, folder, int(repeat))
        return 0
    args = parse(make_parser(__doc__, repeat=5))
    size, allowed = SIZES[args.quick]
    with tempfile.TemporaryDirectory() as name, limited(allowed << 20) as group:
        path, model = made(Path(name), "large", size)
        cache = Path(name, "cache")
        cache.mkdir()
        words = [group, str(path), str(model), str(cache), str(args.repeat)]
        done = subprocess.run([sys.executable, __file__, "--worker", *words], capture_output=True, text=True)
        if done.returncode:
            print(done.stdout + done.stderr)
            return 1
        found = json.loads(done.stdout.splitlines()[-1])
    about = machine("cpu")
    found |= {"allowed_MiB": allowed, "is_limited": bool(group)}
    print(text(found))
    write(output_path(args, "ranks", f"out_of_core_{machine_slug(about)}.json"), {"machine": about, **found})
    return 0


def text(found: Line) -> str:
    """The table."""
    bound = f"{found['allowed_MiB']} MiB allowed" if found["is_limited"] else "no limit could be set"
    head = (
        f"{found['data_MB']:.0f} MB of data, {found['computed_MB']:.0f} MB as they are computed with; "
        f"{bound}, {found['anonymous_MiB']} MiB not in files; read in {found['read_s']:.1f} s\n"
        f"the disk: {found['disk_MB_per_s']:.0f} MB/s"
    )
    lines = [
        f"{name:10}{found[f'{name}_s']:10.3f} s{found[f'{name}_MB_per_s']:10.0f} MB/s"
        f"{found[f'{name}_MB_per_s'] / found['disk_MB_per_s']:8.2f} of the disk"
        for name in ("chi2", "gradient")
    ]
    fit = (
        f"fit: {found['n_gradient']} gradients in {found['fit_s']:.1f} s, "
        f"flux {found['flux']:.6f} +- {found['error']:.6f} Jy"
    )
    return "\n".join([head, *lines, fit])


if __name__ == "__main__":
    sys.exit(main())
