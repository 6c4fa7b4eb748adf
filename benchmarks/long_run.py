"""Call a likelihood a million times, and check that memory and the number of open files do not grow.

    python benchmarks/long_run.py --device cpu|cuda [--quick] [--calls 1000000] [--output FILE]

Calls `Likelihood.log_likelihood` with one parameter vector at a time, on a small problem, and writes down now
and then what the process holds: host memory (resident), device memory, file descriptors, threads. Memory must
not grow with the calls: the slope over the second half, by least squares, is what the table ends with.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from chi2.cases import Case
from chi2.whole import likelihood
from common.machine import machine
from common.options import make_parser, output_path
from common.results import write
from common.types import Line

from rime_kernels.choices import Backend
from rime_kernels.device import cuda

CASE = Case("long run", n_antenna=7, n_time=10, n_chan=1, n_point=1, polarised=False)
QUICK = Case("quick", n_antenna=3, n_time=1, n_chan=1, n_point=1, polarised=False)
_LOOKS = 50
_PAGE = os.sysconf("SC_PAGE_SIZE")


def held(device: Backend) -> dict[str, float]:
    """What this process holds: MB of the host, MB of the device (of all processes), descriptors, threads."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    found = {
        "host_mb": resident / 1e6,
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
        "threads": float(len(os.listdir("/proc/self/task"))),
    }
    if device == "cuda":
        free, total = cuda.current_context().get_memory_info()
        found["device_mb"] = (total - free) / 1e6
    return found


def run(case: Case, device: Backend, n_call: int) -> Line:
    """Call the likelihood, and look now and then at what is held; some calls come before the first look."""
    target = likelihood(case, "double", device, free_places=True)
    n_theta = min(1000, n_call)
    theta = target.prior_transform(np.random.default_rng(1).uniform(size=(n_theta, target.n_param)))
    first = [target.log_likelihood(vector) for vector in theta]
    for vector in theta[: n_theta // 2]:
        target.log_likelihood(vector)
    looks, begun, done = [{"calls": 0, "seconds": 0.0, **held(device)}], time.perf_counter(), 0
    print(_line(looks[0]), flush=True)
    while done < n_call:
        for i in range(max(1, n_call // _LOOKS)):
            value = target.log_likelihood(theta[i % n_theta])
            if value != first[i % n_theta]:
                raise SystemExit(f"call {done + i} gave {value}, the first {first[i % n_theta]}")
        done += max(1, n_call // _LOOKS)
        looks.append({"calls": done, "seconds": time.perf_counter() - begun, **held(device)})
        print(_line(looks[-1]), flush=True)
    return {
        "calls": done,
        "us_per_call": 1e6 * looks[-1]["seconds"] / done,
        "slopes": slopes(looks),
        "looks": looks,
    }


def slopes(looks: list[dict[str, float]]) -> dict[str, float]:
    """Growth over a million calls of what is held, from the second half of the looks."""
    later = looks[len(looks) // 2 :]
    calls = np.array([look["calls"] for look in later]) / 1e6
    names = [name for name in later[0] if name not in ("calls", "seconds")]
    return {name: float(np.polyfit(calls, [look[name] for look in later], 1)[0]) for name in names}


def _line(look: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.6g}" for name, value in look.items())


def main() -> int:
    parser = make_parser(__doc__, device=True)
    parser.add_argument("--calls", type=int, default=1_000_000)
    args = parser.parse_args()
    case, n_call = (QUICK, 4) if args.quick else (CASE, args.calls)
    found = {"machine": machine(args.device), "case": asdict(case)} | run(case, args.device, n_call)
    print(f"{found['us_per_call']:.1f} us a call; growth per million calls: {_line(found['slopes'])}")
    write(output_path(args, "survive", f"long_run_{args.device}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
